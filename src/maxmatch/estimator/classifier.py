"""MaxMatchClassifier: semi-supervised training with scikit-learn's manners, where y == -1 is unlabelled."""

from __future__ import annotations

import copy
import json
import signal
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from maxmatch.data.datasets import from_arrays
from maxmatch.errors import Interrupted, UserError
from maxmatch.estimator.labels import UNLABELLED, encode, known_labels
from maxmatch.estimator.parameters import make_recipe, plain_value
from maxmatch.estimator.pictures import Pictures, checked, kind_of, learn_pictures
from maxmatch.evaluate.classifier import Classifier
from maxmatch.nets.device import find_device
from maxmatch.nets.model_file import load_model, read_tensors, save_model
from maxmatch.train.fit import fit

BATCH_PIXELS = 2**14  # of one channel, in a batch of predictions on a CPU


class MaxMatchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """An image classifier from few labelled and many unlabelled pictures.

    X is (N, H, W), (N, H, W, C) or (N, C, H, W), an array or a tensor; a list of image files, by their paths, as bytes,
    open or as pictures of PIL's; or rows (N, features), which become pictures of `image_shape`, or of the smallest
    near-square grid where that is None. uint8 is taken as it is, other numbers are scaled so that the training data
    fill 0..255. Without a label, y is -1, None, NaN, pandas' NA or ''; in an array of strings 'nan' and '-1' are
    unlabelled too, with a warning, and any other word is a class.

    Parameters
    ----------
    method : a name that `maxmatch methods` lists, or package.module:Class.
    k, over : how many strong views (3, '1,2,3', '1..3'), and what is taken over them ('worst', 'mean', ...);
        None: the method's own.
    steps : how many; None: 800, or as many as settings={"train.epochs": ...} says.
    batch, ratio, lr : labelled pictures a step, unlabelled ones for each, learning rate.
    net, policy, flip : the net's name, the strong views' policy, whether the weak views are flipped.
        None in any of these six: the digits recipe's value for pictures of at most 16 px, else the paper's on a GPU and
        that of `maxmatch train FOLDER` on a CPU; grey pictures have the policy 'gentle' and are not flipped, and
        rows that do not fill their grid are not shifted.
    image_shape : (H, W), (H, W, C) or (C, H, W) of a row, or the size files are read at (None: 32x32, RGB).
    settings : any other setting of a run, such as {"train.weight_decay": 0.001}; `maxmatch settings` lists them. With
        {"net.pretrained": True} and net="resnet18", say, it is trained as suits published weights.
    out : a new folder for the run; None keeps none, as a search over folds needs, which fits many times.
    device : 'auto', 'cpu', 'cuda' or 'mps'.
    random_state : a number for the same model each time, a RandomState, or None.
    verbose : 1 shows the progress on standard error.

    Attributes
    ----------
    classes_ : the sorted labels.
    transduction_ : a label for each training row: the given one, or the predicted one where there was none.
    classifier_ : the trained `Classifier`; `result_` is what result.json of the run holds.
    pictures_ : the shape and range of the training data. n_features_in_ is there after a fit on rows.

    >>> import numpy as np
    >>> X = np.repeat(np.arange(0, 240, 12, dtype=np.uint8), 64).reshape(20, 8, 8)
    >>> y = np.where(np.arange(20) % 3 == 0, np.arange(20) >= 10, -1)
    >>> MaxMatchClassifier(steps=2, batch=4, random_state=0).fit(X, y).predict_proba(X).shape
    (20, 2)
    """

    def __init__(
        self,
        method: str = "maxmatch",
        *,
        k: int | str | None = None,
        over: str | None = None,
        steps: int | None = None,
        batch: int | None = None,
        ratio: int | None = None,
        lr: float | None = None,
        net: str | None = None,
        policy: str | None = None,
        flip: bool | None = None,
        image_shape: Sequence[int] | None = None,
        settings: Mapping[str, Any] | None = None,
        out: str | Path | None = None,
        device: str | torch.device = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.k = k
        self.over = over
        self.steps = steps
        self.batch = batch
        self.ratio = ratio
        self.lr = lr
        self.net = net
        self.policy = policy
        self.flip = flip
        self.image_shape = image_shape
        self.settings = settings
        self.out = out
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> MaxMatchClassifier:
        """Train on all rows, with the labels that y has."""
        if y is None:
            raise ValueError("MaxMatchClassifier requires y to be passed, but the target y is None; -1 is unlabelled")
        said: list[str] = []
        with _plain_errors():
            data = self._checked(X, reset=True)
            check_consistent_length(data, y)
            codes, self.classes_ = encode(y)
            self.pictures_ = learn_pictures(data, kind_of(X), self.image_shape)
            pixels = self.pictures_.pixels(data)
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            recipe = make_recipe(self.get_params(deep=False), self.pictures_, seed)
            images = from_arrays(pixels, codes, classes=[str(name) for name in self.classes_.tolist()])
            with self._folder() as folder:
                self.result_ = fit(recipe, folder, images, quiet=not self.verbose, warn=said.append)
                net, self.model_info_ = load_model(folder / "model.safetensors")
            self.classifier_ = Classifier(net, self.model_info_.classes, self.model_info_.preprocessing)
            self.classifier_.net.to(find_device(self.device))
            without = codes == UNLABELLED
            if without.any():
                codes[without] = _chances(self.classifier_, pixels[without]).argmax(-1)
            self.transduction_ = self.classes_[codes]
        if not without.any():
            warnings.warn("y contains no unlabeled samples", UserWarning, stacklevel=2)
        for text in said:
            if not text.startswith("nothing is unlabelled"):
                warnings.warn(text, UserWarning, stacklevel=2)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (N, classes), in the order of classes_."""
        check_is_fitted(self)
        with _plain_errors():
            pixels = self.pictures_.pixels(self._checked(X, reset=False))
            self.classifier_.net.to(find_device(self.device))
            return _chances(self.classifier_, pixels)

    def predict(self, X: Any) -> np.ndarray:
        """The most likely class of each row."""
        chances = self.predict_proba(X)
        return np.asarray(self.classes_[chances.argmax(-1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of labelled rows that are predicted right; rows without a label do not count."""
        known, values = known_labels(y)
        if not known.any():
            raise ValueError(f"y: none of {len(known)} rows has a label, so there is nothing to score")
        weight = None if sample_weight is None else np.asarray(sample_weight)
        if weight is not None and weight.shape != (len(known),):
            raise ValueError(f"sample_weight of shape {weight.shape}: one number a row is wanted, ({len(known)},)")
        predicted = self.predict(X)
        check_consistent_length(predicted, known)
        weight = None if weight is None else weight[known]
        return float(accuracy_score(values, predicted[known], sample_weight=weight))

    def save(self, path: str | Path) -> None:
        """Write the weights as safetensors, and all else as JSON in its metadata. A RandomState is not kept."""
        check_is_fitted(self)
        held = {
            "parameters": {name: _written(value) for name, value in self.get_params(deep=False).items()},
            "classes": {"type": self.classes_.dtype.str, "values": _plain_labels(self.classes_)},
            "transduction": np.searchsorted(self.classes_, self.transduction_).tolist(),
            "pictures": asdict(self.pictures_),
            "result": self.result_,
            "n_features_in": getattr(self, "n_features_in_", None),
            "feature_names_in": getattr(self, "feature_names_in_", np.array([])).tolist(),
        }
        with _plain_errors():
            save_model(Path(path), self.classifier_.net, self.model_info_, {"estimator": json.dumps(held)})

    @classmethod
    def load(cls, path: str | Path) -> MaxMatchClassifier:
        """The estimator that `save` wrote; nothing is unpickled."""
        with _plain_errors():
            net, info = load_model(Path(path))
            metadata = read_tensors(Path(path))[1]
        if "estimator" not in metadata:
            raise ValueError(f"{path} holds a net but no estimator: maxmatch.load reads the folder of a run")
        held = json.loads(metadata["estimator"])
        made = cls(**{name: _read(value) for name, value in held["parameters"].items()})
        made.classes_ = np.array(held["classes"]["values"], dtype=held["classes"]["type"])
        made.transduction_ = made.classes_[held["transduction"]]
        made.pictures_ = Pictures(**{name: _read(value) for name, value in held["pictures"].items()})
        made.result_ = held["result"]
        made.classifier_ = Classifier(net, info.classes, info.preprocessing)
        made.model_info_ = info
        if held["n_features_in"] is not None:
            made.n_features_in_ = held["n_features_in"]
        if held["feature_names_in"]:
            made.feature_names_in_ = np.array(held["feature_names_in"], dtype=object)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: the net on the CPU, so that a machine without this device reads it too."""
        state = dict(super().__getstate__())
        if "classifier_" in state:
            state["classifier_"] = copy.deepcopy(state["classifier_"])
            state["classifier_"].net.cpu()
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _checked(self, X: Any, reset: bool) -> Any:
        """X as an array or a list of paths; `reset` where it is to be learned what rows look like."""
        kind = kind_of(X)
        if reset:
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
        elif (kind == "rows") != (self.pictures_.kind == "rows") and kind != "images":
            raise ValueError(f"X: {kind}, but the fit was on {self.pictures_.kind}; give the same kind")
        data = checked(X, kind)
        rows = kind == "rows" or (not reset and self.pictures_.kind == "rows")
        return validate_data(self, data, reset=reset) if rows else data

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """Where the run goes: a new folder, or one that is gone afterwards."""
        if self.out is None:
            with tempfile.TemporaryDirectory(prefix="maxmatch-") as folder:
                yield Path(folder) / "run"
            return
        if (Path(self.out) / "recipe.json").exists():
            raise ValueError(f"out = {str(self.out)!r}: it holds a run already; give a new folder, or None")
        yield Path(self.out)


def _chances(classifier: Classifier, pixels: Tensor) -> np.ndarray:
    """Probabilities (N, classes). On a CPU all batches have one size, the last filled up with black.

    How float32 sums are ordered depends on the size of a batch: a row's result shall not depend on its company.
    """
    if next(classifier.net.parameters()).device.type != "cpu":
        return classifier.predict_proba(pixels)
    size = max(1, BATCH_PIXELS // (pixels.shape[2] * pixels.shape[3]))
    made = []
    for part in torch.split(pixels, size):
        filled = torch.cat([part, part.new_zeros(size - len(part), *part.shape[1:])])
        made.append(classifier.predict_proba(filled)[: len(part)])
    return np.concatenate(made)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Our one-line errors as the ones that scikit-learn and Python raise."""
    try:
        yield
    except Interrupted as stopped:
        if stopped.code == 128 + signal.SIGINT:
            raise KeyboardInterrupt from None
        raise SystemExit(stopped.code) from None
    except UserError as error:
        raise ValueError(str(error)) from None


def _plain_labels(classes: np.ndarray) -> Any:
    """Labels as JSON; dates as the numbers that numpy has inside, of which their type makes dates again."""
    return (classes.astype(np.int64) if classes.dtype.kind in "mM" else classes).tolist()


def _written(value: Any) -> Any:
    """A parameter as JSON."""
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, Mapping):
        return {name: _written(item) for name, item in value.items()}
    return str(value) if isinstance(value, Path) else plain_value(value)


def _read(value: Any) -> Any:
    """A parameter from JSON, which has no tuples."""
    return tuple(value) if isinstance(value, list) else value

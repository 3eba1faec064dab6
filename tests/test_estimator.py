"""The estimator keeps scikit-learn's contract, gives what `maxmatch.fit` gives, and takes every form of picture alike."""

from __future__ import annotations

import io
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_estimator

import maxmatch
from maxmatch import LabeledKFold, MaxMatchClassifier
from maxmatch.errors import Interrupted, UserError
from maxmatch.estimator.labels import encode, is_unlabelled
from maxmatch.estimator.parameters import make_recipe
from maxmatch.estimator.pictures import learn_pictures
from maxmatch.train.recipe import Recipe, read_values

EXCEPTIONS = {
    "check_classifiers_classes": "it fits the labels -1 and 1, but -1 is unlabelled; scikit-learn spares its own "
    "semi-supervised classifiers this by their names. test_labels_are_strings checks the rest of it",
}


def tiny(**changes):
    values = {"steps": 3, "batch": 8, "ratio": 1, "k": 2, "lr": 0.1, "device": "cpu", "random_state": 0}
    return MaxMatchClassifier(**{**values, **changes})


@pytest.fixture(scope="module")
def digits():
    """The first 200 digits as float rows 0..16, uint8 pictures, labels of which 60 are shown, and all labels."""
    found = load_digits()
    rows, truth = found.data[:200], found.target[:200]
    pictures = np.rint(rows.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    return rows, pictures, np.where(np.arange(200) < 60, truth, -1), truth


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_scikit_learn_finds_no_fault_but_the_named_one():
    assert len(EXCEPTIONS) <= 5
    found = check_estimator(tiny(steps=16, batch=16), expected_failed_checks=EXCEPTIONS, on_fail=None, on_skip=None)
    assert {r["check_name"]: r["exception"] for r in found if r["status"] == "failed"} == {}
    assert {r["check_name"] for r in found if r["status"] == "xfail"} == set(EXCEPTIONS)
    assert len([r for r in found if r["status"] == "passed"]) >= 50


@pytest.mark.parametrize("kind", ["U", "O", "list"])
def test_labels_are_strings(digits, kind):
    names = np.array(["", "one", "eleven"])[np.arange(30) % 3]
    y = {"U": names, "O": names.astype(object), "list": [name or None for name in names]}[kind]
    trained = tiny().fit(digits[1][:30], y)
    assert trained.classes_.tolist() == np.unique(names[names != ""]).tolist() == ["eleven", "one"]
    assert set(trained.predict(digits[1])) <= {"eleven", "one"}
    given = names != ""
    assert (trained.transduction_[given] == names[given]).all()
    assert (trained.transduction_[~given] == trained.predict(digits[1][:30][~given])).all()
    assert trained.score(digits[1][:30], y) == accuracy_score(names[given], trained.predict(digits[1][:30])[given])


def test_every_mark_of_no_label_is_known():
    codes, classes = encode([3, -1, 1, 3])
    assert (codes.tolist(), classes.tolist()) == ([1, -1, 0, 1], [1, 3])
    assert encode([3.0, np.nan, -1.0, 1.0])[0].tolist() == [1, -1, -1, 0]
    assert encode(["b", -1, None, "", float("nan"), "a"])[0].tolist() == [1, -1, -1, -1, -1, 0]
    assert encode(np.array([2, None, 0], object))[1].dtype.kind == "i"
    assert encode(torch.tensor([1, 0, -1]))[0].tolist() == [1, 0, -1]
    assert encode(np.array([True, False]))[0].tolist() == [1, 0]
    assert is_unlabelled(np.array([-9, -1]), -9).tolist() == [True, False]


@pytest.mark.parametrize(
    ("y", "line"),
    [
        ([-1, -1, -1, -1], "none of 4 rows has a label"),
        ([5, 5, -1, -1], "one class alone, 5;"),
        (["a", 1, "b", None], "all as strings or all as numbers"),
        ([0.5, 1.25, 2.5, -1], "continuous"),
        ([0, 1], "inconsistent numbers of samples"),
        (None, "the target y is None"),
    ],
)
def test_labels_that_make_no_sense_are_refused(y, line):
    with pytest.raises(ValueError, match=line):
        tiny().fit(np.zeros((4, 8, 8), np.uint8), y)


def test_it_is_the_run_that_maxmatch_fit_makes(digits, tmp_path):
    """The recipe it leaves behind, trained without it on the same pictures, gives the same weights."""
    _, pictures, y, _ = digits
    trained = tiny(out=tmp_path / "a", settings={"train.weight_decay": 0.01, "method.threshold": 0.5}).fit(pictures, y)
    recipe = Recipe.from_dict(read_values(tmp_path / "a" / "recipe.json"))
    assert (recipe.train.weight_decay, recipe.method.threshold, recipe.method.k) == (0.01, 0.5, 2)
    maxmatch.fit(recipe, tmp_path / "b", maxmatch.from_arrays(pictures, y), quiet=True)
    expected = maxmatch.load(tmp_path / "b").predict_proba(pictures)
    np.testing.assert_allclose(trained.predict_proba(pictures), expected, atol=1e-6)
    assert (trained.predict(pictures) == expected.argmax(-1)).all()
    with pytest.raises(ValueError, match="holds a run already"):
        trained.fit(pictures, y)


def test_one_picture_in_every_form_is_the_same(digits, tmp_path):
    _, pictures, y, _ = digits
    pictures, y = pictures[:40], y[:40].copy()
    y[30:] = -1
    paths = [tmp_path / f"{number:02}.png" for number in range(40)]
    for path, picture in zip(paths, pictures, strict=True):
        Image.fromarray(picture).save(path)
    forms = {
        "N H W": (pictures, None),
        "N H W C": (pictures[..., None], None),
        "tensor N C H W": (torch.from_numpy(pictures)[:, None], None),
        "list of arrays": (list(pictures), None),
        "list of tensors": (list(torch.from_numpy(pictures)), None),
        "rows": (pictures.reshape(40, 64), None),
        "rows of a shape": (pictures.reshape(40, 64), (8, 8)),
        "files": (paths, (1, 8, 8)),
        "strings": (np.array([str(path) for path in paths]), (8, 8, 1)),
        "pictures of PIL's": ([Image.fromarray(picture) for picture in pictures], (1, 8, 8)),
        "palettes of PIL's": ([_palette(picture) for picture in pictures], (1, 8, 8)),
        "content": ([path.read_bytes() for path in paths], (1, 8, 8)),
        "open": ([io.BytesIO(path.read_bytes()) for path in paths], (1, 8, 8)),
    }
    expected = tiny().fit(pictures, y).predict_proba(pictures)
    for name, (form, shape) in forms.items():
        found = tiny(image_shape=shape).fit(form, y)
        assert np.array_equal(found.predict_proba(form), expected), name
    assert np.array_equal(tiny().fit(pictures, y).predict_proba(paths), expected)


def _palette(pixels):
    """The same greys in the order of another palette."""
    made = Image.fromarray(255 - pixels)
    made.putpalette([255 - place // 3 for place in range(768)])
    return made


def test_arrays_that_may_only_be_read_are_no_warning(digits, no_warning):
    pictures, y, settings = digits[1].copy(), digits[2], {"method.threshold": 0.0}
    pictures.flags.writeable = False
    found = tiny(settings=settings).fit(pictures, y).predict_proba(pictures)
    assert np.array_equal(found, tiny(settings=settings).fit(digits[1], y).predict_proba(digits[1]))


def test_a_device_of_torch_is_taken_by_its_name(digits, tmp_path):
    found, expected = (tiny(device=device).fit(digits[1], digits[2]) for device in (torch.device("cpu"), "cpu"))
    assert np.array_equal(found.predict_proba(digits[1]), expected.predict_proba(digits[1]))
    found.save(tmp_path / "saved.safetensors")
    assert MaxMatchClassifier.load(tmp_path / "saved.safetensors").device == "cpu"


@pytest.mark.parametrize("kind", ["M8[D]", "M8[ns]", "m8[h]"])
def test_dates_are_saved_as_they_were(digits, tmp_path, kind):
    dates = np.array([3, 50_000])[np.arange(200) % 2].astype(kind)
    dates[60:] = "NaT"
    trained = tiny().fit(digits[1], dates)
    trained.save(tmp_path / "saved.safetensors")
    found = MaxMatchClassifier.load(tmp_path / "saved.safetensors")
    assert found.classes_.dtype == np.dtype(kind)
    assert np.array_equal(found.classes_, np.unique(dates[:60]))
    assert np.array_equal(found.predict(digits[1]), trained.predict(digits[1]))


def test_a_method_that_is_no_name_is_told_how_it_is_named(digits):
    for method, line in (
        (maxmatch.FixMatch(k=3), "method='maxmatch.methods.fixmatch:FixMatch'; its options"),
        (maxmatch.FixMatch, "method='maxmatch.methods.fixmatch:FixMatch'; its options"),
        (3, "method = int: a name is wanted, such as method='maxmatch' or method='module:Class'"),
    ):
        with pytest.raises(ValueError, match=line) as told:
            tiny(method=method).fit(digits[1], digits[2])
        assert "replace" not in str(told.value)
    settings = {"method.threshold": 0.5}  # what the line says
    named = [tiny(method=name, settings=settings) for name in ("fixmatch", "maxmatch.methods.fixmatch:FixMatch")]
    chances = [trained.fit(digits[1], digits[2]).predict_proba(digits[1]) for trained in named]
    assert np.array_equal(*chances)


def test_colour_channels_may_come_first_or_last():
    x = np.random.default_rng(0).integers(0, 256, (20, 8, 10, 3), np.uint8)
    y = np.arange(20) % 2
    y[::5] = -1
    expected = tiny().fit(x, y).predict_proba(x)
    for form, shape in [
        (torch.from_numpy(x).permute(0, 3, 1, 2), None),
        (x.reshape(20, -1), (8, 10, 3)),
        (x.transpose(0, 3, 1, 2).reshape(20, -1), (3, 8, 10)),
    ]:
        assert np.array_equal(tiny(image_shape=shape).fit(form, y).predict_proba(form), expected)


def test_a_shape_that_begins_with_its_channels_has_them_first_even_if_it_could_end_with_them():
    for shape in ((3, 8, 3), (1, 8, 3), (3, 8, 1)):
        learned = learn_pictures(np.zeros((2, np.prod(shape)), np.uint8), "rows", shape)
        assert (learned.shape, learned.channels_last) == (shape, False)


def test_other_numbers_are_scaled_by_the_training_range(digits):
    rows, pictures, y, _ = digits
    assert np.array_equal(learn_pictures(rows, "rows", None).pixels(rows)[:, 0].numpy(), pictures)
    learned = learn_pictures(np.array([[-1.0, 0.0, 3.0]]), "rows", None)
    made = learned.pixels(np.array([[-2.0, 1.0, 9.0]]))
    assert made.shape == (1, 1, 8, 8)
    assert made.flatten().tolist() == [0, round(255 / 2), 255] + [0] * 61
    from_floats, from_bytes = tiny().fit(rows, y), tiny().fit(pictures, y)
    assert np.array_equal(from_floats.predict_proba(rows), from_bytes.predict_proba(pictures))
    assert tiny().fit(np.zeros((4, 3)), [0, 1, 0, -1]).predict(np.zeros((1, 3))).shape == (1,)
    of_torch = tiny().fit(torch.from_numpy(rows).bfloat16(), y)  # 0 to 16: no digit is lost, and numpy has no such type
    assert np.array_equal(of_torch.predict_proba(rows), from_floats.predict_proba(rows))


@pytest.mark.parametrize(
    ("changes", "x", "line"),
    [
        ({"method": "maxmach"}, "pictures", "did you mean 'maxmatch'"),
        ({"steps": 0}, "pictures", "train.steps = 0"),
        ({"settings": {"train.lr": 1.0}}, "pictures", "the estimator has lr for it"),
        ({"settings": {"train.wieght_decay": 1.0}}, "pictures", "did you mean 'train.weight_decay'"),
        ({"settings": {"weight_decay": 1.0}}, "pictures", "write section.field"),
        ({"settings": "train.lr=1"}, "pictures", "a dict such as"),
        ({"image_shape": 8}, "rows", "with 1 or 3 channels"),
        ({"image_shape": (9, 9)}, "rows", "81 values, but a row of X has 64"),
        ({"image_shape": (9, 9)}, "pictures", "the pictures of X are"),
        ({"image_shape": (8,)}, "rows", "with 1 or 3 channels"),
        ({"device": "tpu"}, "pictures", "train.device = tpu"),
        ({}, "a path", "give a list of paths"),
        ({}, "a picture", "X = Image: give a list of paths or of pictures"),
        ({}, "no floats", "NaN"),
    ],
)
def test_a_mistake_is_one_line(digits, changes, x, line):
    forms = {
        "rows": digits[0],
        "pictures": digits[1],
        "a path": "a.png",
        "a picture": Image.new("L", (8, 8)),
        "no floats": np.full((200, 8, 8), np.nan),
    }
    with pytest.raises(ValueError, match=line) as caught:
        tiny(**changes).fit(forms[x], digits[2])
    assert x == "no floats" or "\n" not in str(caught.value)


def test_what_was_not_trained_on_is_refused(digits):
    rows, pictures, y, _ = digits
    on_rows, on_pictures = tiny().fit(rows, y), tiny().fit(pictures, y)
    for trained, x, line in [
        (on_pictures, rows, "the fit was on images"),
        (on_pictures, pictures[:, :, None].repeat(2, 2).reshape(200, 8, 16), "pictures of"),
        (on_rows, pictures, "dim 3"),
        (on_rows, ["a.png"], "the fit was on rows"),
        (on_rows, rows[:, :9], "expecting 64 features"),
    ]:
        with pytest.raises(ValueError, match=line):
            trained.predict(x)
    with pytest.raises(ValueError, match="nothing to score"):
        on_rows.score(rows, np.full(200, -1))
    assert on_rows.fit(pictures, y).predict(pictures).shape == (200,)
    assert not hasattr(on_rows, "n_features_in_")


def test_another_range_at_prediction_is_said(digits):
    rows, _, y, _ = digits
    fitted = tiny().fit(rows / 16, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict(rows[:9] / 16)
        fitted.predict(rows[:1] / 20)
    with pytest.warns(UserWarning, match="from 0 to 255, the data of the fit 0 to 1: give it in the same range"):
        fitted.predict(np.full((9, 64), 255.0) * (np.arange(64) > 5))
    with pytest.warns(UserWarning, match="the data of the fit 0 to 1"):
        fitted.predict(rows[:9] / 16 / 100)


def test_another_range_of_mostly_black_pictures_is_said_too():
    x = np.zeros((30, 8, 8))
    x[:, 3:5, 3:5] = np.random.default_rng(0).random((30, 2, 2))
    x[0, 3, 3] = 1
    fitted = tiny().fit(x, np.where(np.arange(30) < 9, -1, np.arange(30) % 2))
    with pytest.warns(UserWarning, match="from 0 to 255, the data of the fit 0 to 1"):
        fitted.predict(255 * x)
    with pytest.warns(UserWarning, match=r"from 0 to 0\.1, the data of the fit 0 to 1"):
        fitted.predict(0.1 * x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict(0.1 * x[:3])  # a few may be dark
        fitted.predict(0.5 * x)
        fitted.predict(np.zeros((30, 8, 8)))


def test_it_warns_where_scikit_learn_would(digits):
    _, pictures, y, truth = digits
    teaching = {"method.threshold": 0.0}  # else three steps teach nothing, of which there is a warning too
    with pytest.warns(UserWarning, match="y contains no unlabeled samples") as found:
        tiny(settings=teaching).fit(pictures, truth)
    assert len(found) == 1
    assert found[0].filename == __file__
    with pytest.warns(UserWarning, match="the worst of one view"):
        tiny(k=1).fit(pictures, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny(settings=teaching).fit(pictures, y)


def test_quiet_unless_told(digits, capfd):
    tiny().fit(digits[1], digits[2])
    with pytest.warns(UserWarning, match="no unlabeled"):
        tiny().fit(digits[1], digits[3])
    assert capfd.readouterr() == ("", "")


def test_a_signal_ends_it_as_python_would(digits, monkeypatch):
    """The loop catches signals to save a checkpoint; what comes out is no advice on a folder that is gone."""
    for number, expected in ((2, KeyboardInterrupt), (15, SystemExit)):

        def stopped(*_, number=number, **__):
            raise Interrupted("nothing is lost: type maxmatch train --resume", number)

        monkeypatch.setattr("maxmatch.estimator.classifier.fit", stopped)
        with pytest.raises(expected) as caught:
            tiny().fit(digits[1], digits[2])
        assert "resume" not in str(caught.value)


def test_the_seed_decides(digits):
    def chances(random_state):
        return tiny(random_state=random_state).fit(digits[1], digits[2]).predict_proba(digits[1])

    assert np.array_equal(chances(3), chances(3))
    assert np.array_equal(chances(3), chances(np.random.RandomState(3)))
    assert not np.array_equal(chances(3), chances(4))
    state = np.random.RandomState(3)
    assert not np.array_equal(chances(state), chances(state))


def test_saved_and_loaded_it_is_the_same(digits, tmp_path):
    rows, _, y, _ = digits
    names = np.array(["zero", "one", "two", *"3456789"])[y].astype(object)
    names[y == -1] = None
    settings = {"train.weight_decay": 0.01}
    trained = tiny(image_shape=(8, 8), settings=settings, steps=np.int64(3), out=tmp_path / "run").fit(rows, names)
    trained.save(tmp_path / "saved.safetensors")
    found = MaxMatchClassifier.load(tmp_path / "saved.safetensors")
    assert found.get_params() == {**trained.get_params(), "out": str(tmp_path / "run")}
    assert np.array_equal(found.predict_proba(rows), trained.predict_proba(rows))
    for name in ("classes_", "transduction_"):
        assert getattr(found, name).tolist() == getattr(trained, name).tolist()
    assert (found.pictures_, found.n_features_in_, found.result_) == (
        trained.pictures_, trained.n_features_in_, trained.result_,
    )  # fmt: skip
    with safe_open(tmp_path / "saved.safetensors", "pt") as file:
        assert set(file.keys()) == set(trained.classifier_.net.state_dict())
    found.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").stat().st_size == (tmp_path / "saved.safetensors").stat().st_size
    with pytest.raises(ValueError, match="holds a net but no estimator"):
        MaxMatchClassifier.load(tmp_path / "run" / "model.safetensors")
    with pytest.raises(ValueError, match="missing"):
        MaxMatchClassifier.load(tmp_path / "nothing.safetensors")


def test_names_of_columns_are_saved_and_a_random_state_is_not(digits, tmp_path):
    rows, _, y, _ = digits
    trained = tiny(steps=1, random_state=np.random.RandomState(0)).fit(rows, y)
    trained.feature_names_in_ = np.array([f"pixel {place}" for place in range(64)], dtype=object)  # as of a table
    trained.save(tmp_path / "saved.safetensors")
    found = MaxMatchClassifier.load(tmp_path / "saved.safetensors")
    assert found.random_state is None
    assert found.feature_names_in_.dtype == object
    assert found.feature_names_in_.tolist() == trained.feature_names_in_.tolist()


@pytest.mark.parametrize("shape", [np.array([8, 8]), (np.int64(8), np.int64(8))])
def test_a_shape_of_numpy_is_saved(digits, tmp_path, shape):
    trained = tiny(steps=1, image_shape=shape).fit(digits[0], digits[2])
    trained.save(tmp_path / "saved.safetensors")
    found = MaxMatchClassifier.load(tmp_path / "saved.safetensors")
    assert found.image_shape == (8, 8)
    assert np.array_equal(found.predict_proba(digits[0]), trained.predict_proba(digits[0]))


def test_a_setting_may_be_an_array():
    parameters = MaxMatchClassifier(settings={"augment.levels": np.array([1, 5])}).get_params()
    assert make_recipe(parameters, learn_pictures(np.zeros((2, 3)), "rows", None), 0).augment.levels == (1, 5)


def test_a_place_that_nothing_can_be_saved_to_is_a_value_error(digits, tmp_path):
    trained = tiny(steps=1).fit(digits[1], digits[2])
    with pytest.raises(ValueError, match="there is no folder"):
        trained.save(tmp_path / "nowhere" / "x")


def test_pickled_and_cloned(digits):
    trained = tiny().fit(digits[1], digits[2])
    again = pickle.loads(pickle.dumps(trained))
    assert np.array_equal(again.predict_proba(digits[1]), trained.predict_proba(digits[1]))
    assert clone(trained).get_params() == trained.get_params()
    assert not hasattr(clone(trained), "classes_")
    assert "lr=0.1" in repr(trained)


@pytest.mark.parametrize("shuffle", [False, True])
def test_folds_are_those_of_the_labelled_rows_alone(shuffle):
    y = np.array([0, -1, 1, 0, -1, 1, 2, 2, -1, 0, 1, 2])
    state = 7 if shuffle else None
    labelled = np.flatnonzero(y >= 0)
    oracle = StratifiedKFold(3, shuffle=shuffle, random_state=state)
    folds = LabeledKFold(3, shuffle=shuffle, random_state=state)
    assert folds.get_n_splits() == 3
    found = list(folds.split(None, y))
    for (train, test), (train_, test_) in zip(found, oracle.split(labelled, y[labelled]), strict=True):
        assert test.tolist() == labelled[test_].tolist()
        assert train.tolist() == sorted([*labelled[train_], 1, 4, 8])
    words = np.array(["a", "b", "c", ""])[y].tolist()
    assert [test.tolist() for _, test in folds.split(None, words)] == [test.tolist() for _, test in found]
    other = LabeledKFold(3, shuffle=shuffle, random_state=state, unlabelled=9).split(None, np.where(y < 0, 9, y))
    assert [test.tolist() for _, test in other] == [test.tolist() for _, test in found]
    with pytest.raises(ValueError, match="10 folds but 9 labelled rows"):
        next(LabeledKFold(10).split(None, y))
    with pytest.raises(ValueError, match="needs y"):
        next(folds.split(y))


def test_grid_search_and_pipeline(digits):
    rows, pictures, y, truth = digits
    pipeline = make_pipeline(MinMaxScaler(), tiny(steps=20, batch=16))
    search = GridSearchCV(pipeline, {"maxmatchclassifier__lr": [0.1, 1e-9]}, cv=LabeledKFold(2), error_score="raise")
    search.fit(rows, y)
    assert search.best_params_ == {"maxmatchclassifier__lr": 0.1}
    best = search.best_estimator_[-1]
    assert accuracy_score(truth[y == -1], best.transduction_[y == -1]) > 0.3  # of ten classes
    scores = cross_val_score(tiny(), pictures, y, cv=LabeledKFold(2))
    assert ((scores > 0) & (scores < 1)).all()  # on labelled pictures alone
    assert (scores * 30 == np.round(scores * 30)).all()


def test_score_leaves_out_what_has_no_label(digits):
    _, pictures, y, _ = digits
    trained = tiny(steps=10).fit(pictures, y)
    weight = np.linspace(1, 2, 200)
    known, predicted = y != -1, trained.predict(pictures)
    assert trained.score(pictures, y) == accuracy_score(y[known], predicted[known])
    assert trained.score(pictures, y, weight) == accuracy_score(y[known], predicted[known], sample_weight=weight[known])
    for wrong in (weight[:9], 0.5, np.ones((200, 1))):
        with pytest.raises(ValueError, match=r"sample_weight of shape \(.*: one number a row is wanted, \(200,\)"):
            trained.score(pictures, y, wrong)


@pytest.mark.parametrize(
    ("data", "kind", "device", "expected"),
    [
        (np.zeros((2, 8, 8), np.uint8), "images", "cpu", ("wrn-10-1", "gentle", False, 0.125, 0.4, 32)),
        (np.zeros((2, 3)), "rows", "cuda", ("wrn-10-1", "gentle", False, 0.0, 0.4, 32)),
        (np.zeros((2, 28, 28), np.uint8), "images", "cpu", ("wrn-10-1", "gentle", False, 0.125, 0.2, 32)),
        (np.zeros((2, 28, 28), np.uint8), "images", "cuda", ("wrn-28-2", "gentle", False, 0.125, 0.03, 64)),
        (["a.png"], "files", "cpu", ("wrn-10-1", "fixmatch", True, 0.125, 0.2, 32)),
        (["a.png"], "files", "cuda", ("wrn-28-2", "fixmatch", True, 0.125, 0.03, 64)),
    ],
)
def test_defaults_suit_the_pictures_and_the_device(data, kind, device, expected):
    pictures = learn_pictures(data, kind, None)
    recipe = make_recipe(MaxMatchClassifier(device=device).get_params(), pictures, seed=5)
    augment, train = recipe.augment, recipe.train
    found = (recipe.net.name, augment.policy, augment.flip, augment.shift, train.lr, train.batch)
    assert found == expected
    assert (train.steps, train.seed, train.ema_decay, recipe.data.labels) == (800, 5, "auto", "all")
    assert make_recipe(MaxMatchClassifier("fixmatch").get_params(), pictures, 5).method.k == 1


@pytest.mark.parametrize("side", [8, 48])
def test_a_run_without_a_length_has_800_steps_unless_epochs_are_given(side):
    pictures = learn_pictures(np.zeros((2, 3, side, side), np.uint8), "images", None)

    def lengths(**given):
        train = make_recipe(MaxMatchClassifier(device="cpu", **given).get_params(), pictures, seed=5).train
        return train.steps, train.epochs

    assert lengths() == lengths(steps=None) == lengths(steps=800) == (800, None)
    assert lengths(settings={"train.epochs": None}) == lengths(settings={"train.epochs": "unset"}) == (800, None)
    assert lengths(settings={"train.epochs": 3})[1] == 3
    with pytest.raises(UserError, match="train.steps = 5 and train.epochs = 3"):
        lengths(steps=5, settings={"train.epochs": 3})


@pytest.mark.parametrize(("device", "batch"), [("cpu", 16), ("cuda", 64)])
def test_published_weights_are_trained_as_suits_them(device, batch):
    """As a folder of pictures is; another optimiser has other rates."""
    pictures = learn_pictures(np.zeros((2, 3, 48, 48), np.uint8), "images", None)

    def made(**settings):
        chosen = {"net.pretrained": True, **{name.replace("_", ".", 1): value for name, value in settings.items()}}
        given = MaxMatchClassifier(net="resnet18", steps=200, device=device, settings=chosen).get_params()
        return make_recipe(given, pictures, seed=5)

    train = made().train
    assert (train.optimizer, train.lr, train.head_lr, train.warmup, train.batch) == ("adamw", 1e-4, 1e-3, 20, batch)
    assert made().net.batchnorm_frozen
    assert not made(net_batchnorm_frozen=False).net.batchnorm_frozen
    sgd = made(train_optimizer="sgd").train
    assert (sgd.optimizer, sgd.lr, sgd.head_lr) == ("sgd", 3e-3, None)
    by_epochs = {"net.pretrained": True, "train.epochs": 40}
    given = MaxMatchClassifier(net="resnet18", device=device, settings=by_epochs).get_params()
    train = make_recipe(given, pictures, seed=5).train
    assert (train.epochs, train.warmup_epochs) == (40, 4)
    given = MaxMatchClassifier(net="resnet18", steps=np.int64(200), device=device, settings={"net.pretrained": True})
    assert make_recipe(given.get_params(), pictures, seed=5).train.warmup == 20


def test_marks_that_numpy_has_written_out_as_words_are_no_classes():
    """Nothing is lost without a word: what was dropped is named, and as objects, or in a list, it is a class."""
    for mark, word in ((-1, "-1"), (np.nan, "nan")):
        y = np.array(["cat", "dog", mark])
        with pytest.warns(UserWarning, match=f"'{word}' in an array of strings is taken as unlabelled") as found:
            codes, classes = encode(y)
        assert len(found) == 1
        assert classes.tolist() == ["cat", "dog"]
        assert codes.tolist() == [0, 1, -1]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for kept in (y.astype(object), y.tolist()):
                assert encode(kept)[1].tolist() == sorted([word, "cat", "dog"])
            assert encode(np.where(y == word, "", y))[0].tolist() == [0, 1, -1]
            assert is_unlabelled(y, mark=word).tolist() == [False, False, True]


def test_a_class_may_be_called_none(digits):
    words = ["None", "a", "b", "c"] * 10
    with pytest.warns(UserWarning, match="'None' in an array of strings is taken as a class") as found:
        trained = tiny(steps=1, settings={"method.threshold": 0.0}).fit(digits[1][:41], np.array([*words, ""]))
    assert [warning.filename for warning in found] == [__file__]
    assert trained.classes_.tolist() == encode(words)[1].tolist() == sorted(set(words))
    assert (trained.transduction_[:-1] == words).all()
    with pytest.warns(UserWarning, match="is taken as a class") as found:
        list(LabeledKFold(2).split(np.zeros((40, 1)), np.array(words)))
    assert {warning.filename for warning in found} == {__file__}


class NotAvailable:
    """As pandas' NA: what it is compared with, the answer is itself, and that is neither true nor false."""

    def __eq__(self, other):
        return self

    __ne__ = __eq__
    __hash__ = None

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


def test_what_is_not_available_is_unlabelled():
    gap = NotAvailable()
    assert encode(np.array(["b", gap, "a"], object))[0].tolist() == [1, -1, 0]
    assert encode(["b", gap, "a"])[0].tolist() == [1, -1, 0]
    assert encode(np.array([3, gap, 1], object))[1].tolist() == [1, 3]


class Nullable:
    """As a Series of pandas' own types: numpy would make floats of it."""

    def __init__(self, *values):
        self.values, self.dtype = values, SimpleNamespace(na_value=None)

    def to_numpy(self, dtype):
        assert dtype is object
        return np.array(self.values, dtype=object)


def test_labels_of_a_library_that_is_not_pandas_are_left_to_numpy():
    class Series(list):
        dtype = "Int64"

        def to_numpy(self, *, allow_copy=True):
            return np.array(self)

    assert encode(Series([3, -1, 1]))[0].tolist() == [1, -1, 0]


@pytest.mark.parametrize("one", [2**53, True])
def test_numbers_and_truths_beside_a_gap_keep_their_type(one):
    other = 2**53 + 1 if one is not True else False
    codes, classes = encode(Nullable(one, NotAvailable(), other))
    assert codes.tolist() == ([0, -1, 1] if one is not True else [1, -1, 0])
    assert classes.dtype == (bool if one is True else np.int64)
    assert set(classes.tolist()) == {one, other}


@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_arrays_of_several_sizes_are_told_what_to_give(make):
    with pytest.raises(ValueError, match=r"arrays of several sizes; .* Image\.fromarray"):
        tiny().fit([make((20, 20)), make((20, 30))], [0, 1])

"""A trained classifier to use: `maxmatch.load("runs/a")`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from maxmatch.data.datasets import as_pixels
from maxmatch.data.picture_file import is_given, read_given
from maxmatch.errors import UsageError
from maxmatch.evaluate.errors import predict_logits
from maxmatch.nets.device import find_device
from maxmatch.nets.model_file import load_model
from maxmatch.nets.preprocess import Preprocessing


class Classifier:
    """A net with the names of its classes and the preprocessing it was trained with.

    What it is asked about are pictures of any size, one or several: the paths of files, their content as bytes, open
    files, or pictures of PIL's, each taken as a file of it would be; or uint8 arrays of the trained size, (N, H, W),
    (N, H, W, C) or (N, C, H, W).
    """

    def __init__(self, net: nn.Module, classes: tuple[str, ...], preprocessing: Preprocessing) -> None:
        self.net, self.classes, self.preprocessing = net, classes, preprocessing

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.preprocessing.shape))
        return f"<Classifier: {len(self.classes)} classes, images of {size}>"

    def predict_proba(self, images: Any) -> npt.NDArray[np.float64]:
        """Probabilities (N, classes) of pictures of any size, or of uint8 arrays of the trained size."""
        logits = predict_logits(self.net, self.pixels(images), self.preprocessing)
        return torch.softmax(logits.double(), -1).cpu().numpy()

    def predict(self, images: Any) -> npt.NDArray[np.str_]:
        """The name of the most likely class of each image."""
        names = np.array(self.classes)
        return names[self.predict_proba(images).argmax(-1)]  # type: ignore[no-any-return]

    def pixels(self, images: Any) -> Tensor:
        """Pictures or arrays as the (N, C, H, W) uint8 images that the net was trained on."""
        if isinstance(images, np.ndarray) and images.dtype.kind in "OU":  # paths, as a table has them
            images = np.atleast_1d(images).tolist()
        if is_given(images):
            images = [images]
        if not isinstance(images, Tensor | np.ndarray) and isinstance(images, Iterable):
            images = list(images)
            if not images:
                raise UsageError("no images were given: give arrays, or the paths of at least one picture")
            if all(map(is_given, images)):
                shape, middle = self.preprocessing.shape, self.preprocessing.middle
                return torch.stack([read_given(item, shape, middle) for item in images])
            if any(map(is_given, images)):
                raise UsageError("images: some are files or pictures of PIL's, others not; give all so, or arrays")
        pixels = as_pixels(images)
        if tuple(pixels.shape[1:]) != self.preprocessing.shape:
            raise UsageError(
                f"images of {tuple(pixels.shape[1:])}: this classifier takes {self.preprocessing.shape} "
                "(channels, height, width); give files, or Image.fromarray(x), to have them fitted"
            )
        return pixels


def load(run: str | Path, device: str | torch.device = "cpu") -> Classifier:
    """The classifier of a finished run folder, or of a weight file."""
    folder = Path(run)
    if not folder.exists():
        raise UsageError(f"{folder}: there is no such run folder; type maxmatch train ... --out {folder}")
    net, info = load_model(folder / "model.safetensors" if folder.is_dir() else folder)
    if not info.classes:
        raise UsageError(f"{folder} is a pretraining and knows no classes: type maxmatch train DATA --init {folder}")
    return Classifier(net.to(find_device(device)), info.classes, info.preprocessing)

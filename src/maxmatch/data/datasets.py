"""Data sets by name, and arrays of your own: all become one `Images` of uint8 tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from maxmatch.data import store
from maxmatch.data.files import Files
from maxmatch.data.shards import is_sharded
from maxmatch.data.sources import SOURCES
from maxmatch.data.split import Protocol, name_of_pool
from maxmatch.errors import UsageError, UserError, unknown


@dataclass(frozen=True, eq=False)
class Images:
    """A pool of training images (N, C, H, W) uint8 with labels (N,), -1 where unknown, and perhaps a test set.

    `folds` (F, n) are labelled sets that the data set itself names.
    """

    name: str
    classes: tuple[str, ...]
    x: Tensor
    y: Tensor
    test_x: Tensor | None = None
    test_y: Tensor | None = None
    folds: Tensor | None = None
    # Pictures of any size lie in slots: `sizes` (N, 2) is how much of each is picture, `side` that of its views.
    sizes: Tensor | None = None
    side: int | None = None
    middle: float = 1.0  # the share of a picture's short side that is judged
    files: Files | None = None  # where they were read from; x is empty where they are read anew in every step
    digest: str | None = None  # where the pixels need not be read to know it
    test_digest: str | None = None  # of the test, where its files are known by more than their pixels at one size
    notes: tuple[str, ...] = ()  # what the user should know
    left_out: tuple[str, ...] = ()  # files that could not be read
    tested: tuple[str, ...] = ()  # files of the test, where they are a folder's

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of what the net sees"""
        _, channels, height, width = self.x.shape
        return (channels, height, width) if self.side is None else (channels, self.side, self.side)

    @property
    def streamed(self) -> bool:
        return self.files is not None and len(self.x) < len(self.y)

    def take(self, index: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor | None]:
        """Some images (B, C, H, W), and their sizes where they lie in slots."""
        if self.files is not None and self.streamed:
            with ThreadPoolExecutor(self.files.workers) as pool:
                read = list(pool.map(self.files.read, index.tolist()))
            sizes = torch.tensor([size for _, size in read], dtype=torch.int32)
            return torch.stack([slot for slot, _ in read]), None if self.side is None else sizes
        places = torch.from_numpy(index)
        return self.x[places], None if self.sizes is None else self.sizes[places]

    def sha256(self) -> str:
        """The digest of the training pixels and labels, by which a saved split knows its data."""
        if self.digest is not None:
            return self.digest
        return _sha256(self.x, self.y)

    def test_sha256(self) -> str | None:
        """The digest of the test images, where they came as arrays: all others are known by their files."""
        if self.digest is not None or self.test_x is None or self.test_y is None or not len(self.test_x):
            return None
        return _sha256(self.test_x, self.test_y)


def _sha256(*tensors: Tensor) -> str:
    return store.sha256(*(tensor.contiguous().numpy() for tensor in tensors))


def load_images(name: str | Path, protocol: Protocol = "balanced") -> Images:
    """A data set by its name, with the images that the protocol trains on; one that is not kept yet is fetched first.

    >>> load_images("digits").shape
    (1, 8, 8)
    """
    name = str(name)
    if name not in LOADERS:
        raise UsageError(unknown("data set", name, LOADERS))
    if protocol not in get_args(Protocol):
        raise UsageError(unknown("protocol", str(protocol), get_args(Protocol)))
    return LOADERS[name_of_pool(name, protocol)]()


def from_arrays(
    x: Any,
    y: Any,
    test_x: Any = None,
    test_y: Any = None,
    *,
    classes: Sequence[str] | None = None,
    name: str = "arrays",
) -> Images:
    """Images from arrays or tensors: uint8, (N, H, W), (N, H, W, C) or (N, C, H, W); labels 0..C-1, -1 is unlabelled.

    >>> images = from_arrays(np.zeros((4, 8, 8), np.uint8), [0, 1, -1, -1])
    >>> images.shape, images.classes
    ((1, 8, 8), ('0', '1'))
    """
    pixels = as_pixels(x)
    labels = _labels(y, len(pixels))
    if len(labels) == 0 or labels.max() < 0:
        raise UsageError("no image has a label: give at least one image of each class a label of 0 or more")
    if (test_x is None) != (test_y is None):
        raise UsageError("a test set needs both test_x and test_y")
    names = tuple(classes) if classes is not None else tuple(map(str, range(int(labels.max()) + 1)))
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"classes = {list(names)}: '{twice[0]}' stands there twice; give each class a name of its own")
    if int(labels.max()) >= len(names) or int(labels.min()) < -1:
        raise UsageError(f"labels run from {int(labels.min())} to {int(labels.max())}: 0 to {len(names) - 1}, or -1")
    if test_x is None:
        return Images(name, names, pixels, labels)
    test_pixels = as_pixels(test_x)
    test_labels = _labels(test_y, len(test_pixels))
    if test_pixels.shape[1:] != pixels.shape[1:]:
        raise UsageError(
            f"test images {tuple(test_pixels.shape[1:])}: {tuple(pixels.shape[1:])} like the training images"
        )
    if len(test_labels) and not 0 <= int(test_labels.min()) <= int(test_labels.max()) < len(names):
        raise UsageError(
            f"test labels run from {int(test_labels.min())} to {int(test_labels.max())}: 0 to {len(names) - 1}"
        )
    return Images(name, names, pixels, labels, test_pixels, test_labels)


def as_pixels(x: Any) -> Tensor:
    """uint8 images in any of the accepted layouts as (N, C, H, W)."""
    pixels = x if isinstance(x, Tensor) else _as_tensor(x)
    if pixels.dtype != torch.uint8:
        raise UsageError(
            f"images of {pixels.dtype}: uint8 from 0 to 255 is wanted; (255 * x).astype('uint8') if x is 0..1"
        )
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    if pixels.ndim == 4 and pixels.shape[1] not in (1, 3) and pixels.shape[3] in (1, 3):
        pixels = pixels.permute(0, 3, 1, 2)
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3) or min(pixels.shape[2:]) < 8:
        raise UsageError(f"images of shape {tuple(pixels.shape)}: (N, H, W), (N, H, W, C) or (N, C, H, W), from 8x8 up")
    return pixels.contiguous()


def _as_tensor(x: Any) -> Tensor:
    """A uint8 array as a tensor in the same memory.

    torch warns of an array that may only be read, a memory map for example. Nothing writes to images, so it is handed
    over as one that may be written to.
    """
    try:
        array = np.ascontiguousarray(x)
    except ValueError:  # numpy's words are about sequences
        raise UsageError(
            "images of several sizes: arrays of one size are wanted; predict fits pictures of any, Image.fromarray(x)"
        ) from None
    if array.dtype.kind not in "biuf":
        raise UsageError(f"images of {type(x).__name__}: arrays or tensors of uint8 are wanted, 0 to 255")
    if array.dtype != np.uint8:
        raise UsageError(
            f"images of {array.dtype}: uint8 from 0 to 255 is wanted; (255 * x).astype('uint8') if x is 0..1"
        )
    if not array.flags.writeable:
        told = array.__array_interface__
        array = np.asarray(SimpleNamespace(__array_interface__={**told, "data": (told["data"][0], False)}, held=array))
    return torch.from_numpy(array)


def _labels(y: Any, count: int) -> Tensor:
    """Labels as (N,) int64, or one line that says what is wrong with them."""
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UsageError(
            f"labels of shape {labels.shape} and type {labels.dtype}: one whole number an image, -1 where unknown"
        )
    if len(labels) != count:
        raise UsageError(f"{count} images but {len(labels)} labels: one label an image, -1 where unknown")
    return torch.from_numpy(labels.astype(np.int64))


def _digits() -> Images:
    """scikit-learn's 1,797 handwritten digits, 8x8 grey; every third image, class by class, is the test set."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    labels = digits.target.astype(np.int64)
    test = np.zeros(len(labels), bool)
    for label in range(10):
        test[np.flatnonzero(labels == label)[::3]] = True
    classes = tuple("0123456789")
    return from_arrays(pixels[~test], labels[~test], pixels[test], labels[test], classes=classes, name="digits")


def _kept(name: str) -> Images:
    """A data set of the store, memory-mapped."""
    from maxmatch.data.fetch import fetch

    fetch(name)
    arrays, kept = store.load(name)
    held: dict[str, Any] = dict(arrays)
    return Images(name, SOURCES[name].classes, **held, digest=kept.train_sha256)


def imagenet_folder() -> Path:
    """Where ImageNet's pictures lie, train/CLASS and val/CLASS; it can't be fetched."""
    place = store.root() / "imagenet"
    folders = (place / "train").is_dir() and (place / "val").is_dir()
    if not folders and not is_sharded(place):
        raise UserError(
            f"imagenet is not fetched by itself: put its pictures into {place}/train/CLASS and {place}/val/CLASS, "
            "or shards of them"
        )
    return place


def _imagenet() -> Images:
    raise UserError(f"imagenet is files, not arrays: load_pictures({str(imagenet_folder())!r}, ...) reads them")


LOADERS: dict[str, Callable[[], Images]] = {
    "digits": _digits,
    "imagenet": _imagenet,
    **{name: partial(_kept, name) for name in SOURCES},
}

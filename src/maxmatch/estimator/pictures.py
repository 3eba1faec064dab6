"""From what a scikit-learn user has, rows, arrays, tensors or files, to the uint8 pictures that a net trains on.

A fit learns one `Pictures`, which says of what shape and range its data were; prediction goes the same way with it.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from sklearn.utils import check_array
from torch import Tensor

from maxmatch.data.datasets import as_pixels
from maxmatch.data.picture_file import is_given, read_given

SMALLEST = 8  # the least side of a picture
MANY = 20  # pictures, of which some reach far into the range
FILE_SHAPE = (3, 32, 32)  # what files are read as where no image_shape is given

Kind = Literal["rows", "images", "files"]


@dataclass(frozen=True)
class Pictures:
    """What the data of a fit were: their kind, (channels, height, width), and the range that became 0..255."""

    kind: Kind
    shape: tuple[int, int, int]
    channels_last: bool = False  # of a row
    padded: bool = False  # whether a row is shorter than its picture
    low: float = 0.0
    high: float = 255.0

    def pixels(self, data: Any) -> Tensor:
        """Checked data of any kind as (N, C, H, W) uint8."""
        if isinstance(data, list):
            return torch.stack([read_given(item, self.shape) for item in data])
        values = self._bytes(data)
        pixels = self._grid(values) if self.kind == "rows" else as_pixels(values)
        if tuple(pixels.shape[1:]) != self.shape:
            raise ValueError(f"X: pictures of {tuple(pixels.shape[1:])}; {self.shape} (channels, height, width) here")
        return pixels

    def _bytes(self, values: np.ndarray) -> np.ndarray:
        """low..high as 0..255, what lies outside at the nearer end."""
        if values.dtype == np.uint8 and (self.low, self.high) == (0, 255):
            return values
        span = self.high - self.low
        self._warn_of_another_range(values, span)
        scaled = (np.asarray(values, np.float64) - self.low) * (255 / span if span > 0 else 0.0)
        return np.rint(scaled).clip(0, 255).astype(np.uint8)

    def _warn_of_another_range(self, values: np.ndarray, span: float) -> None:
        """0..1 in one place and 0..255 in another is a mistake that nothing else would show."""
        low, high = float(values.min()), float(values.max())
        inner = values[values != low]  # most of a picture may be black in any range
        far = len(inner) and np.mean((inner < self.low - span / 2) | (inner > self.high + span / 2)) > 0.5
        narrow = span / (8 if len(values) >= MANY else 50)  # one picture may be dark, so many are not
        if span > 0 and (far or 0 < high - low < narrow):
            told = f"X has values from {low:g} to {high:g}, the data of the fit {self.low:g} to {self.high:g}"
            warnings.warn(f"{told}: give it in the same range", UserWarning, stacklevel=4)

    def _grid(self, rows: np.ndarray) -> Tensor:
        """Rows (N, F) as pictures; where the grid has more places than a row, the last ones are 0."""
        filled = np.zeros((len(rows), math.prod(self.shape)), np.uint8)
        filled[:, : rows.shape[1]] = rows
        channels, height, width = self.shape
        shape = (height, width, channels) if self.channels_last else self.shape
        return as_pixels(filled.reshape(-1, *shape))


def kind_of(data: Any) -> Kind:
    """Whether data are rows of features, arrays of pictures, or files: their paths or content, or pictures of PIL's."""
    if isinstance(data, Tensor | np.ndarray) and data.ndim > 2:
        return "images"
    if is_given(data):
        told = repr(str(data)) if isinstance(data, str | os.PathLike) else type(data).__name__
        raise ValueError(f"X = {told}: give a list of paths or of pictures, or arrays")
    if isinstance(data, list | tuple) or getattr(data, "ndim", 2) == 1:
        items = list(data)
        if items and all(map(is_given, items)):
            return "files"
        if items and isinstance(items[0], Tensor | np.ndarray) and items[0].ndim > 1:
            return "images"
    return "rows"


def checked(data: Any, kind: Kind) -> Any:
    """Pictures as an array of finite numbers, or files as a list; rows are scikit-learn's to check."""
    if kind == "files":
        return list(data)
    if isinstance(data, list | tuple) and kind == "images" and len({tuple(np.shape(item)) for item in data}) > 1:
        raise ValueError("X: arrays of several sizes; give arrays of one, or pictures of any, Image.fromarray(x)")
    if isinstance(data, list | tuple) and len(data) and isinstance(data[0], Tensor):
        data = torch.stack(list(data))
    if isinstance(data, Tensor):
        data = data.detach().cpu()
        data = (data.float() if data.dtype == torch.bfloat16 else data).numpy()  # numpy has no bfloat16
    return data if kind == "rows" else check_array(data, dtype="numeric", allow_nd=True, ensure_2d=False)


def learn_pictures(data: Any, kind: Kind, image_shape: Sequence[int] | None) -> Pictures:
    """What these checked training data are; `image_shape` is (H, W), (H, W, C) or (C, H, W)."""
    shape, channels_last = _shape(image_shape, 3 if kind == "files" else 1)
    if kind == "files":
        return Pictures(kind, shape or FILE_SHAPE)
    low, high = (0.0, 255.0) if data.dtype == np.uint8 else (float(data.min()), float(data.max()))
    if kind == "images":
        channels, height, width = as_pixels(np.zeros((1, *data.shape[1:]), np.uint8)).shape[1:]
        found = (channels, height, width)
        if shape and shape != found:
            raise ValueError(f"image_shape = {image_shape}: the pictures of X are {found} (channels, height, width)")
        return Pictures(kind, found, low=low, high=high)
    count = data.shape[1]
    if shape and math.prod(shape) != count:
        raise ValueError(f"image_shape = {image_shape}: {math.prod(shape)} values, but a row of X has {count}")
    shape = shape or _near_square(count)
    return Pictures(kind, shape, channels_last, math.prod(shape) > count, low, high)


def _near_square(count: int) -> tuple[int, int, int]:
    """The smallest near-square grey picture, at least 8x8, with a place for each of `count` values.

    >>> _near_square(64), _near_square(784), _near_square(2), _near_square(90)
    ((1, 8, 8), (1, 28, 28), (1, 8, 8), (1, 9, 10))
    """
    width = max(SMALLEST, math.isqrt(count - 1) + 1)
    return 1, max(SMALLEST, -(-count // width)), width


def _shape(given: Sequence[int] | None, channels: int) -> tuple[tuple[int, int, int] | None, bool]:
    """(C, H, W) of a given shape, and whether it had its channels last."""
    if given is None:
        return None, False
    numbers = [int(number) for number in np.ravel(given)]
    if len(numbers) == 2:
        return (channels, numbers[0], numbers[1]), False
    if len(numbers) == 3 and numbers[2] in (1, 3) and numbers[0] not in (1, 3):
        return (numbers[2], numbers[0], numbers[1]), True
    if len(numbers) == 3 and numbers[0] in (1, 3):
        return (numbers[0], numbers[1], numbers[2]), False
    raise ValueError(f"image_shape = {given}: (H, W), (H, W, C) or (C, H, W) with 1 or 3 channels")

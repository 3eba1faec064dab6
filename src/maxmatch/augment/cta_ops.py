"""How one operation of CTAugment changes a picture: RandAugment's kernels, and what CTAugment has beside them.

Autocontrast, equalize, invert, blur and smooth are blended with the picture by their magnitude, where RandAugment has
them whole or not at all; rescale and cutout are operations like the others. The pixels equal PIL's bit for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from maxmatch.augment.kernels import blend, blend_grey, blend_smooth, blur, smooth, table, to_bytes, warp
from maxmatch.augment.ops import CODE, MATRICES, TABLES, Path, decided, levels, matrices
from maxmatch.augment.policy import Cutout
from maxmatch.augment.resample import NEAREST, rescale

BINS: dict[str, tuple[int, ...]] = {
    "autocontrast": (17,),
    "blur": (17,),
    "brightness": (17,),
    "color": (17,),
    "contrast": (17,),
    "cutout": (17,),
    "equalize": (17,),
    "invert": (17,),
    "identity": (),
    "posterize": (8,),
    "rescale": (17, 6),
    "rotate": (17,),
    "sharpness": (17,),
    "shear-x": (17,),
    "shear-y": (17,),
    "smooth": (17,),
    "solarize": (17,),
    "translate-x": (17,),
    "translate-y": (17,),
}  # the nineteen operations, each with the number of bins of its parameters
BLENDED_TABLES = ("autocontrast", "equalize", "invert")
FILTERED = {"blur": blur, "smooth": smooth}
BLACK = (0,)  # outside a warped image
SQUARE = Cutout(fill=127)


class Change(NamedTuple):
    """One operation an image: op (B,) indexes `OPS`, magnitude (B,), kind (B,) of rescale's filter, box (B, 4)."""

    op: Tensor
    magnitude: Tensor
    kind: Tensor
    box: Tensor  # cutout's: top, left, bottom, right


def apply(images: Tensor, change: Change, path: Path = "auto") -> Tensor:
    """Change each image (B, C, H, W) by its own operation. The paths are those of `ops.apply`, equal to the pixel."""
    return _apply_dense(images, change) if decided(path, images) == "dense" else _apply_grouped(images, change)


def _apply_dense(images: Tensor, change: Change) -> Tensor:
    op, magnitude = change.op, change.magnitude

    def only(name: str, otherwise: float) -> Tensor:
        return torch.where(op == CODE[name], magnitude, otherwise)

    lut = to_bytes(levels(images)).expand(*images.shape[:2], 256)
    for name in TABLES:
        if name in BINS:
            lut = torch.where((op == CODE[name]).view(-1, 1, 1), _table(name, images, magnitude), lut)
    changed = warp(images, matrices(op, magnitude, images), BLACK)
    changed = table(changed, lut)
    changed = blend_grey(changed, only("color", 1.0))
    changed = blend_smooth(changed, only("sharpness", 1.0))
    for name, filtered in FILTERED.items():
        changed = blend(changed, filtered(changed), only(name, 0.0))
    rescaled = op == CODE["rescale"]
    changed = rescale(changed, only("rescale", 0.0), torch.where(rescaled, change.kind, NEAREST))
    return SQUARE.apply(changed, change.box * (op == CODE["cutout"]).view(-1, 1))


def _apply_grouped(images: Tensor, change: Change) -> Tensor:
    changed = images.clone()
    for name in BINS:
        rows = (change.op == CODE[name]).nonzero().flatten()
        if len(rows) and name != "identity":
            changed[rows] = _apply_one(name, images[rows], Change(*(part[rows] for part in change)))
    return changed


def _apply_one(name: str, images: Tensor, change: Change) -> Tensor:
    """The same operation on every image."""
    magnitude = change.magnitude
    if name in MATRICES:
        return warp(images, MATRICES[name](magnitude, (images.shape[2], images.shape[3])), BLACK)
    if name in TABLES:
        return table(images, _table(name, images, magnitude).expand(len(images), images.shape[1], 256))
    if name in FILTERED:
        return blend(images, FILTERED[name](images), magnitude)
    if name == "rescale":
        return rescale(images, magnitude, change.kind)
    if name == "cutout":
        return SQUARE.apply(images, change.box)
    return (blend_grey if name == "color" else blend_smooth)(images, magnitude)


def _table(name: str, images: Tensor, magnitude: Tensor) -> Tensor:
    lut = TABLES[name](images, magnitude)
    if name not in BLENDED_TABLES:
        return lut
    return blend(levels(images).unsqueeze(0), lut.unsqueeze(1), magnitude).squeeze(1)

"""How one operation of RandAugment changes a picture: PIL's arithmetic on whole batches of uint8 tensors.

Every image of a batch has its own operation and magnitude. Sixteen operations are four kernels fed with
different numbers: here are the numbers, a matrix or a lookup table for each operation, and `apply`, which
routes them. The pixels equal PIL's bit for bit. A compiler that fuses a product and a sum into one rounding
would move a blended value, or one of autocontrast's, by one grey level now and then: compile with
`emulate_precision_casts`, as train/step.py does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from maxmatch.augment.kernels import (
    blend,
    blend_grey,
    blend_smooth,
    histogram,
    mean_grey,
    real,
    table,
    to_bytes,
    warp,
)

OPS: tuple[str, ...] = (
    "identity",
    "autocontrast",
    "equalize",
    "rotate",
    "solarize",
    "color",
    "contrast",
    "brightness",
    "sharpness",
    "shear-x",
    "shear-y",
    "translate-x",
    "translate-y",
    "posterize",
    "invert",
    "solarize-add",
    # CTAugment's own, in cta_ops.py; RandAugment has the sixteen above.
    "blur",
    "smooth",
    "rescale",
    "cutout",
)
RANDAUGMENT: tuple[str, ...] = OPS[:16]
CODE: dict[str, int] = {name: index for index, name in enumerate(OPS)}

Path = Literal["auto", "dense", "grouped"]


def apply(images: Tensor, op: Tensor, magnitude: Tensor, fill: tuple[int, ...], path: Path = "auto") -> Tensor:
    """Apply to each image (B, C, H, W) its own operation op (B,), an index into `RANDAUGMENT`, at magnitude (B,).

    `fill` is the colour outside a warped image, one value or C. Both paths give the same pixels: `dense` runs
    every kernel on the whole batch and never looks at a value from Python, so it can be compiled and captured
    in a CUDA graph; `grouped` runs each kernel on the images it concerns. `auto` groups on the CPU in eager
    mode.

    >>> images = torch.tensor([0, 100, 255], dtype=torch.uint8).view(1, 1, 1, 3)
    >>> apply(images, torch.tensor([CODE["invert"]]), torch.zeros(1), fill=(0,)).flatten().tolist()
    [255, 155, 0]
    """
    if decided(path, images) == "dense":
        return _apply_dense(images, op, magnitude, fill)
    return _apply_grouped(images, op, magnitude, fill)


def decided(path: Path, images: Tensor) -> Path:
    """The path that `auto` stands for with these images."""
    if path != "auto":
        return path
    return "grouped" if images.device.type == "cpu" and not torch.compiler.is_compiling() else "dense"


def rotate(magnitude: Tensor, size: tuple[int, int]) -> Tensor:
    """Matrix (B, 6) of a rotation by magnitude (B,) degrees, counter-clockwise, about the centre."""
    radians = torch.deg2rad(-real(magnitude))
    cos, sin = radians.cos(), radians.sin()
    x, y = size[1] / 2, size[0] / 2
    return torch.stack([cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y], 1)


def shear_x(magnitude: Tensor, size: tuple[int, int]) -> Tensor:
    """Matrix (B, 6) that moves row y by magnitude (B,) times y."""
    return _matrix(magnitude, 1)


def shear_y(magnitude: Tensor, size: tuple[int, int]) -> Tensor:
    """Matrix (B, 6) that moves column x by magnitude (B,) times x."""
    return _matrix(magnitude, 3)


def translate_x(magnitude: Tensor, size: tuple[int, int]) -> Tensor:
    """Matrix (B, 6) that moves the image to the left by magnitude (B,) pixels."""
    return _matrix(magnitude, 2)


def translate_y(magnitude: Tensor, size: tuple[int, int]) -> Tensor:
    """Matrix (B, 6) that moves the image up by magnitude (B,) pixels."""
    return _matrix(magnitude, 5)


def autocontrast(images: Tensor, magnitude: Tensor) -> Tensor:
    """Tables (B, C, 256) that stretch each channel from its darkest and brightest pixel to 0 and 255."""
    pixels, level = images.flatten(2), levels(images)
    # Compiled for a CPU, torch 2.14 finds wrong minima of uint8; of int16 it finds the right ones.
    low, high = pixels.to(torch.int16).amin(2, keepdim=True), pixels.amax(2, keepdim=True)
    spread = (real(high) - real(low)).clamp(min=1)
    scale = torch.full_like(spread, 255.0) / spread  # "255.0 / spread" would be a reciprocal, rounded twice
    stretched = level * scale + -real(low) * scale
    return to_bytes(torch.where(high > low, stretched, level))


def equalize(images: Tensor, magnitude: Tensor) -> Tensor:
    """Tables (B, C, 256) that flatten each channel's histogram, in PIL's integer arithmetic."""
    pixels, level = images.flatten(2), levels(images)
    counts = histogram(images)
    brightest = counts.gather(2, pixels.amax(2, keepdim=True).long())
    step = (pixels.shape[2] - brightest) // 255
    below = counts.cumsum(2, dtype=torch.int32) - counts
    flat = (step // 2 + below) // step.clamp(min=1)
    return to_bytes(torch.where(step > 0, flat, level))


def posterize(images: Tensor, magnitude: Tensor) -> Tensor:
    """Tables (B, 1, 256) that keep the highest magnitude (B,) bits of every value."""
    dropped = (8 - magnitude.to(torch.int32)).clamp(0, 8).view(-1, 1, 1)
    return to_bytes((levels(images) >> dropped) << dropped)


def solarize(images: Tensor, magnitude: Tensor) -> Tensor:
    """Tables (B, 1, 256) that invert the values at or above the threshold magnitude (B,)."""
    level = levels(images)
    return to_bytes(torch.where(level < magnitude.view(-1, 1, 1), level, 255 - level))


def solarize_add(images: Tensor, magnitude: Tensor) -> Tensor:
    """Tables (B, 1, 256) that add the whole part of magnitude (B,) to the values below 128."""
    level = levels(images)
    return to_bytes(torch.where(level < 128, level + magnitude.to(torch.int32).view(-1, 1, 1), level))


def brightness(images: Tensor, magnitude: Tensor) -> Tensor:
    """Tables (B, 1, 256) of a blend with black: magnitude (B,) 0 is black, 1 the image itself."""
    level = levels(images)
    return blend(torch.zeros_like(level), level, magnitude).squeeze(1)


def contrast(images: Tensor, magnitude: Tensor) -> Tensor:
    """Tables (B, 1, 256) of a blend with the mean grey: magnitude (B,) 0 is flat, 1 the image itself."""
    return blend(mean_grey(images).view(-1, 1, 1, 1), levels(images), magnitude).squeeze(1)


def invert(images: Tensor, magnitude: Tensor) -> Tensor:
    """Tables (B, 1, 256) of the negative."""
    return to_bytes(255 - levels(images)).expand(len(images), 1, 256)


Table = Callable[[Tensor, Tensor], Tensor]
Matrix = Callable[[Tensor, tuple[int, int]], Tensor]
TABLES: dict[str, Table] = {
    "autocontrast": autocontrast,
    "equalize": equalize,
    "solarize": solarize,
    "contrast": contrast,
    "brightness": brightness,
    "posterize": posterize,
    "invert": invert,
    "solarize-add": solarize_add,
}
MATRICES: dict[str, Matrix] = {
    "rotate": rotate,
    "shear-x": shear_x,
    "shear-y": shear_y,
    "translate-x": translate_x,
    "translate-y": translate_y,
}

# How the grouped path sorts a batch: kernel by kernel.
SORTED: tuple[str, ...] = ("identity", *MATRICES, *TABLES, "color", "sharpness")
RANK: tuple[int, ...] = tuple(SORTED.index(name) for name in RANDAUGMENT)


def _apply_dense(images: Tensor, op: Tensor, magnitude: Tensor, fill: tuple[int, ...]) -> Tensor:
    lut = to_bytes(levels(images)).expand(*images.shape[:2], 256)
    for name, make_table in TABLES.items():
        lut = torch.where((op == CODE[name]).view(-1, 1, 1), make_table(images, magnitude), lut)
    changed = warp(images, matrices(op, magnitude, images), fill)
    changed = table(changed, lut)
    changed = blend_grey(changed, torch.where(op == CODE["color"], magnitude, 1.0))
    return blend_smooth(changed, torch.where(op == CODE["sharpness"], magnitude, 1.0))


def _apply_grouped(images: Tensor, op: Tensor, magnitude: Tensor, fill: tuple[int, ...]) -> Tensor:
    # In the order of `SORTED` the images of a kernel are one slice, those of each of its operations a slice of that.
    rank = torch.tensor(RANK, device=op.device)[op]
    order = rank.argsort()
    images, magnitude = images.index_select(0, order), magnitude.index_select(0, order)
    counts = dict(zip(SORTED, torch.bincount(rank, minlength=len(SORTED)).tolist(), strict=True))
    picture = dict(zip(SORTED, torch.split(images, list(counts.values())), strict=True))
    strength = dict(zip(SORTED, torch.split(magnitude, list(counts.values())), strict=True))
    kernels = [sum(counts[name] for name in names) for names in (MATRICES, TABLES)]
    same, warped, tabled, _ = torch.split(images, [counts["identity"], *kernels, counts["color"] + counts["sharpness"]])
    parts = [same]
    if len(warped):
        size = (images.shape[2], images.shape[3])
        matrices = [make(strength[name], size) for name, make in MATRICES.items() if counts[name]]
        parts.append(warp(warped, torch.cat(matrices), fill))
    if len(tabled):
        tables = [make(picture[name], strength[name]) for name, make in TABLES.items() if counts[name]]
        parts.append(table(tabled, torch.cat([lut.expand(-1, images.shape[1], 256) for lut in tables])))
    if counts["color"]:
        parts.append(blend_grey(picture["color"], strength["color"]))
    if counts["sharpness"]:
        parts.append(blend_smooth(picture["sharpness"], strength["sharpness"]))
    return torch.cat(parts).index_select(0, order.argsort())


def matrices(op: Tensor, magnitude: Tensor, images: Tensor) -> Tensor:
    """The matrix (B, 6) of each image's operation, the identity's where it is no warp."""
    size = (images.shape[2], images.shape[3])
    matrix = _matrix(torch.zeros_like(magnitude), 2)
    for name, make_matrix in MATRICES.items():
        matrix = torch.where((op == CODE[name]).view(-1, 1), make_matrix(magnitude, size), matrix)
    return matrix


def _matrix(magnitude: Tensor, place: int) -> Tensor:
    value = real(magnitude)
    columns = [torch.ones_like(value) if index in (0, 4) else torch.zeros_like(value) for index in range(6)]
    columns[place] = value
    return torch.stack(columns, 1)


def levels(images: Tensor) -> Tensor:
    """The table (1, 1, 256) that changes nothing."""
    return torch.arange(256, dtype=torch.int32, device=images.device).view(1, 1, 256)

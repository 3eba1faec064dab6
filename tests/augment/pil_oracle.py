"""The oracle: PIL doing one operation on one picture, and pictures of every kind to try it on."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from sklearn.datasets import load_sample_image
from torch import Tensor


def pil_op(image: Tensor, op: str, magnitude: float, fill: int | tuple[int, ...]) -> Tensor:
    """One operation on one image (C, H, W), by PIL."""
    array = image.permute(1, 2, 0).squeeze(2).contiguous().numpy()
    picture = Image.fromarray(array)
    if op == "solarize-add":  # not in PIL
        wide = array.astype(np.int64)
        result = np.where(wide < 128, np.clip(wide + int(magnitude), 0, 255), wide).astype(np.uint8)
    else:
        result = np.array(change(picture, op, magnitude, fill))
    return torch.from_numpy(result.reshape(*array.shape[:2], -1)).permute(2, 0, 1)


def change(picture: Image.Image, op: str, v: float, fill: int | tuple[int, ...]) -> Image.Image:
    enhancers = {
        "color": ImageEnhance.Color,
        "contrast": ImageEnhance.Contrast,
        "brightness": ImageEnhance.Brightness,
        "sharpness": ImageEnhance.Sharpness,
    }
    matrices = {
        "shear-x": (1, v, 0, 0, 1, 0),
        "shear-y": (1, 0, 0, v, 1, 0),
        "translate-x": (1, 0, v, 0, 1, 0),
        "translate-y": (1, 0, 0, 0, 1, v),
    }
    if op in enhancers:
        return enhancers[op](picture).enhance(v)
    if op in matrices:
        return picture.transform(picture.size, Image.Transform.AFFINE, matrices[op], fillcolor=fill)
    if op == "rotate":
        return picture.rotate(v, fillcolor=fill)
    if op == "solarize":
        return ImageOps.solarize(picture, v)
    if op == "posterize":
        return ImageOps.posterize(picture, int(v))
    if op == "identity":
        return picture
    return {"autocontrast": ImageOps.autocontrast, "equalize": ImageOps.equalize, "invert": ImageOps.invert}[op](
        picture
    )


def pictures(channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Random, constant, low-contrast, two-valued and natural images (9, C, H, W)."""
    generator = torch.Generator().manual_seed(seed)
    shape = (channels, height, width)

    def noise(low: int, high: int) -> Tensor:
        return torch.randint(low, high, shape, dtype=torch.uint8, generator=generator)

    kinds = [noise(0, 256), noise(0, 1), noise(0, 1) + 200, noise(100, 131), noise(3, 9), noise(0, 2) * 255]
    for name, top, left in (("china.jpg", 150, 200), ("china.jpg", 20, 400), ("flower.jpg", 120, 250)):
        kinds.append(_photograph(name)[:channels, top : top + height, left : left + width])
    return torch.stack(kinds)


@cache
def _photograph(name: str) -> Tensor:
    return torch.from_numpy(load_sample_image(name).copy()).permute(2, 0, 1)

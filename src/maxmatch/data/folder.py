"""Your own pictures: which files in a folder are images, and what a file looks like to the net."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from maxmatch.errors import UsageError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"})


def list_images(folder: Path) -> list[Path]:
    """All image files below a folder, sorted by their path in it."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder; give the folder that holds the pictures")
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not found:
        raise UsageError(f"{folder}: no pictures in it ({', '.join(sorted(SUFFIXES))})")
    return found


def read_image(path: Path, shape: tuple[int, int, int]) -> Tensor:
    """A file as a (C, H, W) uint8 tensor: upright by its EXIF tag, grey or RGB, scaled to cover and cropped centrally.

    Raises OSError where the file cannot be decoded.
    """
    channels, height, width = shape
    try:
        with Image.open(path) as file:
            picture = ImageOps.exif_transpose(file)
            picture = _eight_bit(picture).convert("RGB" if channels == 3 else "L")
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise OSError(f"{path}: cannot be read as a picture ({type(error).__name__})") from None
    if picture.size != (width, height):
        picture = ImageOps.fit(picture, (width, height), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(picture).reshape(height, width, channels)).permute(2, 0, 1)


def _eight_bit(picture: Image.Image) -> Image.Image:
    """16-bit and float greys scaled to eight bits; everything else as it is."""
    if picture.mode.startswith(("I;16", "I")) and picture.mode != "L":
        return Image.fromarray((np.asarray(picture).astype(np.uint32) >> 8).clip(0, 255).astype(np.uint8))
    return picture

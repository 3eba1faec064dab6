"""One picture file as pixels: upright, grey or RGB, of eight bits, in the size that a net sees."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import IO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

# Pillow warns, with a line of its own code, of pictures that it reads all the same; those with twice as many pixels are
# refused by name. Once and for all, as threads can't change filters for themselves; last, so that one's own come first.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning, append=True)


def opens(path: Path) -> bool:
    """Whether a file begins as a picture does; what comes after is not read."""
    try:
        with Image.open(path):
            return True
    except Exception:  # of whatever kind: it will be named when it is read
        return False


# A JPEG is decoded at a half, a quarter or an eighth of its size as long as it stays so many times as large as it will
# be. Photographs of 12 megapixels are read eleven times as fast so, and what is scaled down further hardly differs.
AT_LEAST = 4


def read_image(file: Path | IO[bytes], shape: tuple[int, int, int], middle: float = 1.0) -> Tensor:
    """A file as a (C, H, W) uint8 tensor: upright by its EXIF tag, grey or RGB, scaled to cover and cropped centrally.

    With `middle` below 1 that share of the short side is shown: at 224 pixels 0.875 is torchvision's Resize(256) and
    CenterCrop(224), to the pixel, but for JPEGs 8 times as large or larger. Raises OSError where the file cannot be
    decoded.
    """
    least = round(AT_LEAST * max(shape[1:]) / middle)
    return fit_picture(open_image(file, shape[0], (least, least)), shape, middle)


def fit_picture(picture: Image.Image, shape: tuple[int, int, int], middle: float = 1.0) -> Tensor:
    """A grey or RGB picture as a (C, H, W) uint8 tensor: scaled to cover by PIL's bicubic filter, cropped centrally."""
    channels, height, width = shape
    if middle < 1:
        picture = _cut_middle(picture, (height, width), middle)
    elif picture.size != (width, height):
        picture = ImageOps.fit(picture, (width, height), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(picture).reshape(height, width, channels)).permute(2, 0, 1)


def _cut_middle(picture: Image.Image, size: tuple[int, int], middle: float) -> Image.Image:
    """Scaled by PIL's bilinear filter, so that the short side has side / middle pixels, and its middle cut out."""
    height, width = size
    short = round(min(height, width) / middle)
    scaled = [short * length // min(picture.size) for length in picture.size]
    left, top = round((scaled[0] - width) / 2), round((scaled[1] - height) / 2)
    picture = picture.resize((scaled[0], scaled[1]), Image.Resampling.BILINEAR)
    return picture.crop((left, top, left + width, top + height))


def open_image(path: Path | IO[bytes], channels: int, least: tuple[int, int] | None = None) -> Image.Image:
    """A file as a grey or RGB picture, upright by its EXIF tag. A JPEG may come smaller, but not below size `least`.

    Raises OSError where the file cannot be decoded; where the system did not give it, that is the cause of the error.
    """
    mode = "RGB" if channels == 3 else "L"
    try:
        with Image.open(path) as file:
            if least is not None:
                file.draft(mode, least)
            picture = ImageOps.exif_transpose(file)
            see_through = "transparency" in picture.info and picture.mode in ("P", "RGB", "L", "1")
            if picture.mode in ("RGBA", "LA", "PA") or see_through:
                picture = _on_white(picture)
            return _eight_bit(picture).convert(mode)
    except MemoryError:  # says nothing of the file
        raise
    except Exception as error:  # decoders meet damage in every way there is
        name = path if isinstance(path, Path) else "a file"
        why = type(error).__name__
        if isinstance(error, Image.DecompressionBombError):
            why = f"over {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels"  # Pillow refuses above twice its limit
        of_system = error if isinstance(error, OSError) and error.errno is not None else None
        raise OSError(f"{name}: cannot be read as a picture ({why})") from of_system


def _on_white(picture: Image.Image) -> Image.Image:
    """What is transparent is white, as a page would show it."""
    full = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", full.size, "white"), full).convert("RGB")


def _eight_bit(picture: Image.Image) -> Image.Image:
    """Greys of 16 or 32 bits and of floats brought to 0..255 by the range of their kind; everything else as it is."""
    if picture.mode != "F" and not picture.mode.startswith("I"):
        return picture
    values = np.nan_to_num(np.asarray(picture).astype(np.float64))
    highest = values.max(initial=0)
    if picture.mode == "F" and highest < 2:  # 0 to 1, a little above where it was scaled before
        values = values * 255
    elif picture.mode.startswith("I;16") or 255 < highest <= 65535:
        values = values / 257
    elif highest > 255:
        values = values * (255 / highest)
    return Image.fromarray(np.rint(values).clip(0, 255).astype(np.uint8))

"""One picture file as pixels: upright, grey or RGB, of eight bits, in the size that a net sees."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

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
# be: most of the time of a large photograph is its decoding, and what is scaled down further hardly differs.
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
    with _decoding(path if isinstance(path, Path) else "a file"), Image.open(path) as file:
        if least is not None:
            file.draft(mode, least)
        return plain_picture(file, channels)


def is_given(item: Any) -> bool:
    """Whether `read_given` takes it: the path of a file, its content as bytes, an open file, or a picture of PIL's."""
    if isinstance(item, str | os.PathLike | bytes | bytearray | memoryview | Image.Image):
        return True
    return callable(getattr(item, "read", None))


def read_given(item: Any, shape: tuple[int, int, int], middle: float = 1.0) -> Tensor:
    """A picture in any of these forms, as `read_image` has the file of it, but that PIL's JPEGs are decoded whole.

    Raises OSError where it cannot be decoded; where the system did not give the file, what the system said of that.
    """
    if isinstance(item, Image.Image):
        with _decoding(getattr(item, "filename", "") or "a picture"):  # a file's may not have been read yet
            return fit_picture(plain_picture(item, shape[0]), shape, middle)
    if isinstance(item, bytes | bytearray | memoryview):
        item = io.BytesIO(item)
    try:
        return read_image(Path(item) if isinstance(item, str | os.PathLike) else item, shape, middle)
    except OSError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise


def plain_picture(picture: Image.Image, channels: int) -> Image.Image:
    """A picture of any mode as a grey or RGB one of eight bits: upright by its EXIF tag, white where transparent."""
    picture = ImageOps.exif_transpose(picture)
    see_through = "transparency" in picture.info and picture.mode in ("P", "RGB", "L", "1")
    if picture.mode in ("RGBA", "LA", "PA") or see_through:
        picture = _on_white(picture)
    return _eight_bit(picture).convert("RGB" if channels == 3 else "L")


@contextmanager
def _decoding(name: object) -> Iterator[None]:
    """Within: whatever a decoder meets is an OSError that names the picture."""
    try:
        yield
    except MemoryError:  # says nothing of the file
        raise
    except Exception as error:  # decoders meet damage in every way there is
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

"""Pictures inside the page, as data addresses: PNG for small ones, whose pixels are kept, JPEG for photographs."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image
from torch import Tensor

LARGEST = 96  # pixels a side; larger pictures are shrunk to it
SMALL = 48  # up to this side every pixel is kept


def thumbnail(picture: Tensor) -> str:
    """A uint8 picture (C, H, W) as an address that an `img` takes."""
    pixels = np.ascontiguousarray(picture.permute(1, 2, 0).numpy())
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    small = max(image.size) <= SMALL
    if max(image.size) > LARGEST:
        image.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    held = io.BytesIO()
    if small:
        image.save(held, "PNG", optimize=True)
    else:
        image.save(held, "JPEG", quality=82)
    kind = "png" if small else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(held.getvalue()).decode()}"

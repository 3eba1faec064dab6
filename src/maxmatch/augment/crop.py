"""Views of pictures of any size: a part of each, drawn by area and shape, resized to one size, and perhaps flipped.

The pictures of a batch lie in slots of one shape, each with its own height and width in the upper left corner; one warp
makes all crops. It is bilinear, in whole numbers, so that eager and compiled steps see the same pixels; torchvision's
RandomResizedCrop is the model, but for its ten attempts at a box that fits: here a side that is too long is cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from maxmatch.augment.kernels import take
from maxmatch.errors import UsageError

BITS = 8  # of the weights between two pixels


class Boxes(NamedTuple):
    """For each picture of a batch the part to be shown: top, left, height, width in pixels, (B,) each, and the flip."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor


@dataclass(frozen=True)
class ResizedCrop:
    """A random part of a picture as a square of `side` pixels, or, where that is None, of the size of the slots.

    Uniforms: flip, area, shape, rows, columns.

    >>> crop = ResizedCrop(side=4, scale=(1.0, 1.0), shape=1.0, flip=False)
    >>> picture = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8)
    >>> boxes = crop.sample(torch.rand(1, 5), torch.tensor([[4, 4]]))
    >>> crop.apply(picture, boxes)[0, 0, 0].tolist()
    [0, 1, 2, 3]
    """

    side: int | None
    scale: tuple[float, float] = (0.35, 1.0)  # the part's area, as a share of the picture's
    shape: float = 4 / 3  # width to height, from 1 / shape to shape
    flip: bool = True
    middle: float | None = None  # no random part: the middle, this share of the short side
    uniforms: ClassVar[int] = 5

    def __post_init__(self) -> None:
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise UsageError(
                f"scale = {list(self.scale)}: two shares from 0 to 1, the smaller first, such as [0.35, 1]"
            )

    def sample(self, u: Tensor, sizes: Tensor) -> Boxes:
        """Boxes of pictures of sizes (B, 2), height and width, from uniforms u (B, 5)."""
        flip = (u[:, 0] < 0.5) & self.flip
        if self.middle is not None:
            return self.centre(sizes, self.middle)._replace(flip=flip)
        sizes = sizes.to(u.dtype)
        area = (self.scale[0] + (self.scale[1] - self.scale[0]) * u[:, 1]) * sizes.prod(1)
        ratio = torch.exp((2 * u[:, 2] - 1) * math.log(self.shape))
        height = torch.minimum(torch.sqrt(area / ratio).round().clamp_min(1), sizes[:, 0])
        width = torch.minimum(torch.sqrt(area * ratio).round().clamp_min(1), sizes[:, 1])
        top = torch.floor(u[:, 3] * (sizes[:, 0] - height + 1))
        left = torch.floor(u[:, 4] * (sizes[:, 1] - width + 1))
        top, left, height, width = (t.to(torch.int32) for t in (top, left, height, width))
        return Boxes(top, left, height, width, flip)

    def centre(self, sizes: Tensor, share: float = 1.0) -> Boxes:
        """The square in the middle of pictures of sizes (B, 2), `share` of their short side: what is judged."""
        side = (sizes.amin(1) * share).round().clamp_min(1).to(torch.int32)
        top, left = (((sizes[:, axis] - side) // 2).to(torch.int32) for axis in (0, 1))
        return Boxes(top, left, side, side, torch.zeros_like(side, dtype=torch.bool))

    def apply(self, images: Tensor, boxes: Boxes) -> Tensor:
        """The boxes of slots (B, C, H, W) as (B, C, side, side)."""
        columns = _resized(images, boxes.left, boxes.width, self.side or images.shape[3], boxes.flip)
        upright = torch.zeros_like(boxes.flip)
        rows = _resized(columns.transpose(2, 3), boxes.top, boxes.height, self.side or images.shape[2], upright)
        return rows.transpose(2, 3).contiguous()


def _resized(images: Tensor, start: Tensor, length: Tensor, side: int, turned: Tensor) -> Tensor:
    """Columns start to start + length of images (B, C, H, W) as `side` columns, from right to left where `turned`."""
    batch, channels, height, width = images.shape
    x = torch.arange(side, device=images.device)  # of 64 bits: a product below has more than 32
    x = torch.where(turned[:, None], side - 1 - x, x)
    # The middle of output pixel x lies at (x + 1/2) length / side; in units of 2^-BITS pixels, rounded down.
    place = ((2 * x + 1) * length[:, None] << BITS) // (2 * side) - (1 << (BITS - 1))
    last = (length[:, None] - 1) << BITS
    place = torch.minimum(place.clamp_min(0), last).to(torch.int32)
    first, weight = place >> BITS, place & ((1 << BITS) - 1)
    second = torch.minimum(first + 1, length[:, None] - 1)
    row = torch.arange(height, dtype=torch.int32, device=images.device).view(1, height, 1) * width
    pixels = images.flatten(2)

    def at(column: Tensor) -> Tensor:
        source = row + (start[:, None] + column).unsqueeze(1)  # (B, H, side)
        return take(pixels, source.view(batch, 1, -1)).view(batch, channels, height, side).to(torch.int32)

    w = weight.view(batch, 1, 1, side)
    mixed = at(first) * ((1 << BITS) - w) + at(second) * w + (1 << (BITS - 1))
    return (mixed >> BITS).to(torch.uint8)

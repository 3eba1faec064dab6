"""Each image's own crop, resized to the whole image by one of PIL's six filters, with PIL's arithmetic.

PIL resizes the columns, rounds to bytes, then resizes the rows; each output pixel is a sum over at most 7 source pixels
with coefficients in 22-bit fixed point. They are made here in float64, so that the pixels equal PIL's bit for bit; a
device without float64 may miss one by a grey level.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from maxmatch.augment.kernels import real, take, to_bytes

FILTERS: tuple[str, ...] = ("lanczos", "bicubic", "bilinear", "box", "hamming", "nearest")
SUPPORT: tuple[float, ...] = (3.0, 2.0, 1.0, 0.5, 1.0, 0.5)
NEAREST = FILTERS.index("nearest")
TAPS = 7  # a crop is never larger than the image, so no filter is stretched: 2 * 3 + 1
BITS = 22


def rescale(images: Tensor, share: Tensor, kind: Tensor) -> Tensor:
    """Cut share (B,) of the side off each edge of images (B, C, H, W) and resize by filter kind (B,), of `FILTERS`.

    >>> images = torch.tensor([0, 100, 200, 255], dtype=torch.uint8).expand(1, 1, 4, 4)
    >>> rescale(images, torch.tensor([0.25]), torch.tensor([FILTERS.index("nearest")]))[0, 0, 0].tolist()
    [100, 100, 200, 200]
    """
    height, width = images.shape[2:]
    changed = _columns(images, *_edges(share, width), kind)
    changed = _columns(changed.transpose(2, 3), *_edges(share, height), kind)
    return changed.transpose(2, 3).contiguous()


def _edges(share: Tensor, side: int) -> tuple[Tensor, Tensor]:
    # The first pixel of the crop and the number of its pixels, rounded half to even like PIL's crop.
    share = real(share)
    start, end = (share * side).round().long(), (side * (1 - share)).round().long()
    return start, end - start


def _columns(images: Tensor, start: Tensor, length: Tensor, kind: Tensor) -> Tensor:
    """Columns start (B,) to start + length of images (B, C, H, W), resized to W columns."""
    batch, channels, height, width = images.shape
    position, coefficient = _taps(length, width, kind)
    row = torch.arange(height, dtype=torch.int32, device=images.device).view(1, height, 1, 1) * width
    source = row + (start.view(-1, 1, 1) + position).to(torch.int32).unsqueeze(1)  # (B, H, W, 7)
    pixels = take(images.flatten(2), source.view(batch, 1, -1)).view(batch, channels, height, width, TAPS)
    weighted = pixels.to(torch.int32) * coefficient.view(batch, 1, 1, width, TAPS)
    total = weighted.sum(4, dtype=torch.int32) + (1 << (BITS - 1))
    return to_bytes(total >> BITS)


def _taps(length: Tensor, side: int, kind: Tensor) -> tuple[Tensor, Tensor]:
    """Which of `length` (B,) pixels make each of `side` pixels, and their weights, both (B, side, 7) whole numbers."""
    length, kind = length.view(-1, 1, 1), kind.view(-1, 1, 1)
    x = torch.arange(side, device=length.device).view(1, -1, 1)
    centre = (real(x) + 0.5) * (real(length) / side)
    support = torch.zeros_like(kind, dtype=centre.dtype)
    for index, reach in enumerate(SUPPORT):
        support = torch.where(kind == index, reach, support)
    first = (centre - support + 0.5).long().clamp(min=0)
    first = torch.where(kind == NEAREST, _nearest(length, side, x), first)
    last = torch.minimum((centre + support + 0.5).long(), length)
    tap = torch.arange(TAPS, device=length.device)
    position = first + tap
    weight = torch.where(position < last, _weight(position - centre + 0.5, kind), 0.0)
    weight = torch.where(kind == NEAREST, (tap == 0).to(weight.dtype), weight)
    weight = weight / weight.sum(2, keepdim=True)
    whole = (weight * (1 << BITS) + torch.where(weight < 0, -0.5, 0.5)).to(torch.int32)
    return torch.minimum(position, length - 1), whole


def _nearest(length: Tensor, side: int, x: Tensor) -> Tensor:
    """The pixel of `length` under the centre of each pixel x of `side`; at a border between two, the one PIL takes."""
    found = ((2 * x + 1) * length) // (2 * side)
    for crop, bits in _before_the_border(side):
        words = torch.zeros_like(x)
        for index in range(0, side, 32):
            words = torch.where(x // 32 == index // 32, (bits >> index) & 0xFFFFFFFF, words)
        found = torch.where(length == crop, found - ((words >> (x % 32)) & 1), found)
    return found


def _before_the_border(side: int) -> list[tuple[int, int]]:
    """(crop, bits): bit x is set where PIL's running sum, by its rounding, ends up short of a border it should reach.

    Only crops that hold a higher power of two than the side have such borders: none at 32 pixels, 64 alone at 96.
    """
    power = side & -side
    found = []
    for crop in range(2 * power, side, 2 * power):
        bits, position = 0, 0.5 * (crop / side)
        for x in range(side):
            bits |= (int(position) < (2 * x + 1) * crop // (2 * side)) << x
            position += crop / side
        if bits:
            found.append((crop, bits))
    return found


def _weight(x: Tensor, kind: Tensor) -> Tensor:
    """The filters' weights at distance x (B, side, 7) from the centre of an output pixel."""
    far = x.abs()
    inner = (1.5 * far - 2.5) * far * far + 1
    outer = (((far - 5) * far + 8) * far - 4) * -0.5
    lanczos = torch.where((x >= -3) & (x < 3), torch.sinc(x) * torch.sinc(x / 3), 0.0)
    bicubic = torch.where(far < 1, inner, torch.where(far < 2, outer, 0.0))
    hamming = torch.where(far < 1, torch.sinc(x) * (0.54 + 0.46 * (far * math.pi).cos()), 0.0)
    box = ((x > -0.5) & (x <= 0.5)).to(x.dtype)
    weight = torch.zeros_like(x)
    for index, value in enumerate((lanczos, bicubic, (1 - far).clamp(min=0), box, hamming)):
        weight = torch.where(kind == index, value, weight)
    return weight

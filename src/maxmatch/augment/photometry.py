"""Hue and Gaussian blur of a whole batch with PIL's arithmetic, each image with its own numbers.

PIL turns the hue of 8-bit HSV, and blurs by three box blurs along each axis, their width chosen so that together they
come near a Gaussian. Both are done here as PIL does them, for images (B, C, H, W) of uint8.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from maxmatch.augment.kernels import real, to_bytes

BOXES = 3  # PIL's box blurs along each axis
BITS = 24  # of the weights of a box


def turn_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue of images (B, 3, H, W) by turn (B,), a share of the circle, as torchvision does with PIL.

    >>> red = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1)
    >>> turn_hue(red, torch.tensor([1 / 3])).flatten().tolist()
    [0, 255, 0]
    """
    hue, saturation, value = _to_hsv(images)
    steps = (real(turn) * 255).to(torch.int32).view(-1, 1, 1)  # towards zero
    return _from_hsv((hue + steps) & 255, saturation, value)


def gaussian_blur(images: Tensor, sigma: Tensor, largest: float) -> Tensor:
    """Blur images (B, C, H, W) by sigma (B,) pixels, none of them above `largest`; 0 changes nothing."""
    radius = _box_radius(sigma)
    reach = int((math.sqrt(12 * largest**2 / BOXES + 1) - 1) / 2) + 1
    changed = images.to(torch.int64)
    for axis in (3, 2):
        for _ in range(BOXES):
            changed = _box_blur(changed, radius, reach, axis)
    return changed.to(torch.uint8)


def _box_radius(sigma: Tensor) -> Tensor:
    """The radius of the boxes, whole pixels and a share of the next: Gwosdek et al. 2011, equations 7, 11 and 14."""
    variance = sigma.to(torch.float32).square() / BOXES  # in float32, as PIL has it
    length = torch.sqrt(12 * real(variance) + 1).to(torch.float32)
    whole = ((length - 1) / 2).floor()
    share = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance) / (6 * (variance - (whole + 1).square()))
    return whole + share


def _box_blur(images: Tensor, radius: Tensor, reach: int, axis: int) -> Tensor:
    """The mean over each pixel's neighbours along an axis; those `radius` reaches in part count in part."""
    radius = radius.view(-1, 1, 1, 1)
    whole = radius.to(torch.int64)
    inner = (float(1 << BITS) / (2 * radius + 1)).to(torch.int64)  # the weight of a whole neighbour
    outer = ((1 << BITS) - (2 * whole + 1) * inner) // 2
    side = images.shape[axis]
    here = torch.arange(side, device=images.device)
    total = torch.full_like(images, 1 << (BITS - 1))
    for offset in range(-reach, reach + 1):
        weight = torch.where(whole >= abs(offset), inner, torch.where(whole + 1 == abs(offset), outer, 0))
        total = total + images.index_select(axis, (here + offset).clamp(0, side - 1)) * weight
    return total >> BITS


def _to_hsv(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hue, saturation and value (B, H, W), int32 from 0 to 255."""
    red, green, blue = images.to(torch.int32).unbind(1)
    high, low = torch.maximum(torch.maximum(red, green), blue), torch.minimum(torch.minimum(red, green), blue)
    spread = (high - low).clamp(min=1).to(torch.float32)
    below_red, below_green, below_blue = (
        real((high - channel).to(torch.float32) / spread) for channel in (red, green, blue)
    )
    sector = torch.where(
        red == high,
        (below_blue - below_green).to(torch.float32),
        torch.where(green == high, 2 + below_red - below_blue, 4 + below_green - below_red).to(torch.float32),
    )
    hue = torch.fmod(real(sector) / 6 + 1, 1).to(torch.float32)
    saturation = (high - low).to(torch.float32) / high.clamp(min=1).to(torch.float32)
    grey = high == low
    hue, saturation = (
        torch.where(grey, 0, (real(share) * 255).to(torch.int32).clamp(0, 255)) for share in (hue, saturation)
    )
    return hue, saturation, high


def _from_hsv(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """The same as red, green and blue (B, 3, H, W) uint8."""
    turned = (real(hue) * 6 / 255).to(torch.float32)
    sector = turned.floor()
    part, share = real(turned - sector), real(saturation.to(torch.float32) / 255)
    bright = real(value)
    least, falling, rising = (_rounded(bright * (1 - weight)) for weight in (share, share * part, share * (1 - part)))
    value, sector = value.to(torch.int32), sector.to(torch.int32) % 6
    channels = []
    for order in (
        (value, falling, least, least, rising, value),
        (rising, value, value, falling, least, least),
        (least, least, rising, value, value, falling),
    ):
        channel = order[0]
        for number in range(1, 6):
            channel = torch.where(sector == number, order[number], channel)
        channels.append(torch.where(saturation == 0, value, channel))
    return to_bytes(torch.stack(channels, 1))


def _rounded(value: Tensor) -> Tensor:
    return (value + 0.5).floor().to(torch.int32)  # none is negative, so a half goes away from zero, as in C

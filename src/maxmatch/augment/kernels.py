"""Kernels that change the pixels of a whole batch with PIL's arithmetic, each image with its own numbers.

`warp` is a nearest-neighbour affine map, `table` one lookup table a channel, `blend_grey` and `blend_smooth`
mix an image with its grey and its smoothed version, `smooth` and `blur` are PIL's filters. All take and give
uint8 (B, C, H, W), C = 1 or 3, and use nothing but tensor arithmetic of a fixed shape: no value is read back,
nothing is random.
"""

from __future__ import annotations

import torch
from torch import Tensor


def warp(images: Tensor, matrix: Tensor, fill: tuple[int, ...]) -> Tensor:
    """Nearest-neighbour affine map of images (B, C, H, W): matrix (B, 6) takes output (x, y) to input.

    The arithmetic is PIL's 16.16 fixed point. PIL rounds the offset to it, but truncates a pure translation.
    """
    batch, channels, height, width = images.shape
    along_x, along_y, offset = matrix.view(-1, 2, 3, 1, 1).unbind(2)  # (B, 2, 1, 1): of the column and of the row
    translated = (along_y[:, :1] == 0) & (along_x[:, 1:] == 0)
    start = _fixed(offset + along_x * 0.5 + along_y * 0.5, torch.where(translated, 0.0, 0.5))
    x = torch.arange(width, dtype=torch.int32, device=images.device)
    y = torch.arange(height, dtype=torch.int32, device=images.device).view(-1, 1)
    column, row = ((start + _fixed(along_y, 0.5) * y + _fixed(along_x, 0.5) * x) >> 16).unbind(1)
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    # One pixel of the fill colour after each channel's own; whatever falls outside reads that one.
    outside = colour(images, fill).view(1, -1, 1).expand(batch, channels, 1)
    pixels = torch.cat([images.flatten(2), outside], 2)
    source = torch.where(inside, row * width + column, height * width)
    return take(pixels, source.view(batch, 1, -1)).view(images.shape)


def table(images: Tensor, lut: Tensor) -> Tensor:
    """Send every pixel of images (B, C, H, W) through its channel's lookup table lut (B, C, 256)."""
    return take(lut, images.flatten(2)).view(images.shape)


def blend_grey(images: Tensor, factor: Tensor) -> Tensor:
    """Blend images (B, C, H, W) with their own grey version: factor (B,) 0 is grey, 1 the image itself."""
    return blend(luminance(images), images, factor)


def blend_smooth(images: Tensor, factor: Tensor) -> Tensor:
    """Blend images (B, C, H, W) with a smoothed version: factor (B,) below 1 blurs, above 1 sharpens.

    The filter is 1 1 1 / 1 5 1 / 1 1 1 over 13, rounded; the outermost pixels stay as they are.
    """
    if min(images.shape[2:]) < 3:
        return images
    blended = images.clone()
    blended[..., 1:-1, 1:-1] = blend(_smooth(images), images[..., 1:-1, 1:-1], factor)
    return blended


def smooth(images: Tensor) -> Tensor:
    """Smoothed images (B, C, H, W): PIL's SMOOTH, the filter of `blend_smooth`; the outermost pixels stay."""
    if min(images.shape[2:]) < 3:
        return images
    changed = images.clone()
    changed[..., 1:-1, 1:-1] = to_bytes(_smooth(images))
    return changed


def blur(images: Tensor) -> Tensor:
    """Blurred images (B, C, H, W): PIL's BLUR, the mean of the 16 pixels two steps away; the outer two stay."""
    if min(images.shape[2:]) < 5:
        return images
    wide = images.to(torch.int16)
    ring = _window(wide, 5) - _window(wide[..., 1:-1, 1:-1], 3)
    changed = images.clone()
    changed[..., 2:-2, 2:-2] = to_bytes((ring + 8) >> 4)
    return changed


def luminance(images: Tensor) -> Tensor:
    """Grey version (B, 1, H, W) int32 of images (B, C, H, W), with PIL's integer weights."""
    if images.shape[1] == 1:
        return images.to(torch.int32)
    red, green, blue = images.to(torch.int32).unsqueeze(1).unbind(2)
    return (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16


def mean_grey(images: Tensor) -> Tensor:
    """The mean of each image's grey version, (B,) int64, rounded as PIL does."""
    grey = luminance(images).flatten(1)
    return (2 * grey.sum(1) + grey.shape[1]) // (2 * grey.shape[1])


def histogram(images: Tensor) -> Tensor:
    """Count the pixels of each value: (B, C, 256) int32 of images (B, C, H, W), exact on every device."""
    pixels = images.flatten(2).long()
    counts = torch.zeros((*pixels.shape[:2], 256), dtype=torch.int32, device=images.device)
    return counts.scatter_add(2, pixels, torch.ones_like(pixels, dtype=torch.int32))


def take(values: Tensor, index: Tensor) -> Tensor:
    """Read values (B, C, N) at index (B, C or 1, M), channel by channel: (B, C, M).

    One flat `index_select` with 32-bit indices is several times faster on the CPU than a gather.
    """
    batch, channels, length = values.shape
    width = torch.int32 if values.numel() < 2**31 else torch.int64
    start = torch.arange(batch * channels, dtype=width, device=values.device) * length
    flat = index.to(width) + start.view(batch, channels, 1)
    return values.reshape(-1).index_select(0, flat.view(-1)).view(flat.shape)


def colour(images: Tensor, fill: tuple[int, ...]) -> Tensor:
    """The fill colour as a tensor (1, C or 1, 1, 1), made on the device without a copy from the host."""
    return torch.cat([images.new_full((1, 1, 1, 1), value) for value in fill], 1)


def blend(degenerate: Tensor, image: Tensor, factor: Tensor) -> Tensor:
    """PIL's blend in float32, truncated: the degenerate version at factor (B,) 0, the image at 1."""
    start = degenerate.to(torch.float32)
    return to_bytes(start + factor.view(-1, 1, 1, 1) * (image.to(torch.float32) - start))


def to_bytes(values: Tensor) -> Tensor:
    """Clip to 0..255 and truncate to uint8."""
    return values.clamp(0, 255).to(torch.uint8)


def real(value: Tensor) -> Tensor:
    """Float64 like PIL's own numbers, or float32 on a device without it."""
    return value.to(torch.float32 if value.device.type == "mps" else torch.float64)


def _smooth(images: Tensor) -> Tensor:
    wide = images.to(torch.int16)
    total = _window(wide, 3) + 4 * wide[..., 1:-1, 1:-1]
    # total / 13 is never closer than 1/26 to a half, so float32 rounds it as the integers would.
    return (total.to(torch.float32) * (1 / 13) + 0.5).floor()


def _window(wide: Tensor, side: int) -> Tensor:
    # The sum over each window of side x side pixels that lies within the image.
    height, width = wide.shape[2] - side + 1, wide.shape[3] - side + 1
    rows = wide[..., :height, :]
    for offset in range(1, side):
        rows = rows + wide[..., offset : offset + height, :]
    total = rows[..., :width]
    for offset in range(1, side):
        total = total + rows[..., offset : offset + width]
    return total


def _fixed(value: Tensor, rounding: Tensor | float) -> Tensor:
    return (value * 65536.0 + rounding).floor().to(torch.int32)

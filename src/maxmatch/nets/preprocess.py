"""From uint8 images to what a net takes, kept with the weights so that prediction repeats training exactly."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Preprocessing:
    """(x / 255 - mean) / std, for all channels or one value a channel.

    The default maps 0..255 to -1..1, as the FixMatch family does; published weights bring their own.
    """

    channels: int
    height: int
    width: int
    mean: float | tuple[float, ...] = 0.5
    std: float | tuple[float, ...] = 0.5
    middle: float = 1.0  # the share of a picture's short side that the net is shown

    def __post_init__(self) -> None:
        for name in ("mean", "std"):  # JSON has lists
            value = getattr(self, name)
            object.__setattr__(self, name, tuple(value) if isinstance(value, list | tuple) else value)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width

    @property
    def affine(self) -> tuple[tuple[float, float], ...]:
        """What a value is multiplied by, and what is then added: once for all channels, or for each."""
        means, stds = (value if isinstance(value, tuple) else (value,) for value in (self.mean, self.std))
        return tuple((1 / (255 * std), -mean / std) for mean, std in zip(means, stds, strict=True))

    def __call__(self, images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Levels 0..255 (B, C, H, W) to floats of the same shape."""
        x = images.to(dtype)
        if len(self.affine) == 1:
            ((scale, shift),) = self.affine
            return x.mul(scale).add_(shift)
        # Numbers, not a tensor of them: a step that is captured can't copy one to the device.
        channels = zip(x.unbind(1), self.affine, strict=True)
        return torch.stack([channel * scale + shift for channel, (scale, shift) in channels], 1)

"""From uint8 images to what a net takes, kept with the weights so that prediction repeats training exactly."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Preprocessing:
    """(x / 255 - mean) / std. The default maps 0..255 to -1..1, as the FixMatch family does."""

    channels: int
    height: int
    width: int
    mean: float = 0.5
    std: float = 0.5
    middle: float = 1.0  # the share of a picture's short side that the net is shown

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width

    @property
    def affine(self) -> tuple[float, float]:
        """What a value is multiplied by, and what is then added."""
        return 1 / (255 * self.std), -self.mean / self.std

    def __call__(self, images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """uint8 (B, C, H, W) to floats of the same shape."""
        scale, shift = self.affine
        return images.to(dtype).mul_(scale).add_(shift)

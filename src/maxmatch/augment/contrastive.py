"""What contrastive pretraining does to an image beside its crop: MoCo v2's colour jitter, grey pictures and blur.

The operations are torchvision's on PIL images, pixel by pixel, but each image of the batch has its own draw. Jitter
changes brightness, contrast, saturation and hue in an order of its own for each image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from maxmatch.augment.kernels import blend, blend_grey, luminance, mean_grey
from maxmatch.augment.ops import Path, decided
from maxmatch.augment.photometry import gaussian_blur, turn_hue
from maxmatch.errors import UsageError

JITTERS: tuple[str, ...] = ("brightness", "contrast", "saturation", "hue")


class Photometry(NamedTuple):
    """What is done: order (B, 4) of `JITTERS`, -1 for none, their factors (B, 4), grey (B,), sigma (B,), 0 for none.

    op (B, 0) names no operation of RandAugment.
    """

    op: Tensor
    order: Tensor
    factor: Tensor
    grey: Tensor
    sigma: Tensor


@dataclass(frozen=True)
class Contrastive:
    """Colour jitter with probability `jitter`, a grey picture with `grey`, Gaussian blur with `blur`, in that order.

    Brightness, contrast and saturation are multiplied by 1 - `strength` to 1 + `strength`, the hue is turned by at most
    `hue` of the circle, and sigma is uniform within `sigma`, in pixels. Uniforms: jitter, order, factors, grey, blur,
    sigma.
    """

    name: str
    strength: float = 0.4
    hue: float = 0.1
    jitter: float = 0.8
    grey: float = 0.2
    blur: float = 0.5
    sigma: tuple[float, float] = (0.1, 2.0)
    uniforms: ClassVar[int] = 12

    def __post_init__(self) -> None:
        for name in ("jitter", "grey", "blur"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} = {getattr(self, name)} is not a probability: type a number from 0 to 1")

    def sample(self, u: Tensor, size: tuple[int, int]) -> Photometry:
        """Draw from uniforms u (B, 12); the size of the images does not matter."""
        order = torch.where((u[:, :1] < self.jitter).expand(-1, 4), u[:, 1:5].argsort(1), -1)
        spread = 2 * u[:, 5:9] - 1
        factor = torch.cat([1 + self.strength * spread[:, :3], self.hue * spread[:, 3:]], 1)
        low, high = self.sigma
        sigma = torch.where(u[:, 10] < self.blur, low + (high - low) * u[:, 11], 0.0)
        return Photometry(u.new_empty((len(u), 0), dtype=torch.int64), order, factor, u[:, 9] < self.grey, sigma)

    def apply(self, images: Tensor, draw: Photometry, path: Path = "auto") -> Tensor:
        """Change images (B, C, H, W) as drawn. Pictures that are grey already keep their lack of hue."""
        path = decided(path, images)
        kinds = KINDS if images.shape[1] == 3 else KINDS[:2]
        for slot in range(4):
            for number, change in enumerate(kinds):
                images = _where(images, draw.order[:, slot] == number, change, draw.factor[:, number], path)
        if images.shape[1] == 3:
            images = _where(images, draw.grey, _grey, draw.sigma, path)

        def blurred(some: Tensor, sigma: Tensor) -> Tensor:
            return gaussian_blur(some, sigma, self.sigma[1])

        return _where(images, draw.sigma > 0, blurred, draw.sigma, path) if self.blur else images

    def describe(self, draw: Photometry) -> list[list[str]]:
        """What is done to each image, in words."""
        told = []
        for order, factor, grey, sigma in zip(*(part.tolist() for part in draw[1:]), strict=True):
            words = [f"{JITTERS[n]} {factor[n]:{'+' if n == 3 else ''}.2g}" for n in order if n >= 0]
            told.append([*words, *(["grey"] if grey else []), *([f"blur {sigma:.2g}"] if sigma else [])])
        return told


# For pictures of 32 pixels a blur by two of them leaves little to learn from, so that it is left out there.
CONTRASTIVE: dict[str, Contrastive] = {
    policy.name: policy for policy in (Contrastive("moco"), Contrastive("moco-small", blur=0.0))
}

Change = Callable[[Tensor, Tensor], Tensor]


def _brightness(images: Tensor, factor: Tensor) -> Tensor:
    return blend(torch.zeros_like(images), images, factor)


def _contrast(images: Tensor, factor: Tensor) -> Tensor:
    return blend(mean_grey(images).view(-1, 1, 1, 1), images, factor)


def _grey(images: Tensor, factor: Tensor) -> Tensor:
    return luminance(images).to(torch.uint8).expand_as(images)


KINDS: tuple[Change, ...] = (_brightness, _contrast, blend_grey, turn_hue)


def _where(images: Tensor, chosen: Tensor, change: Change, factor: Tensor, path: Path) -> Tensor:
    """The images, those that are chosen changed: all are tried, or, `grouped`, those alone."""
    if path == "dense":
        return torch.where(chosen.view(-1, 1, 1, 1), change(images, factor), images)
    places = chosen.nonzero()[:, 0]
    if not len(places):
        return images
    return images.index_copy(0, places, change(images[places], factor[places]))

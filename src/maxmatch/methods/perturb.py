"""Images changed as floats, after `run.pixels`: MixUp and Gaussian noise, parts that any method may take."""

from __future__ import annotations

import torch
from torch import Tensor


def mixed(one: Tensor, other: Tensor, weight: Tensor) -> Tensor:
    """MixUp of two sets of images, or of their targets: weight one + (1 - weight) other, image by image, weight (B,).

    >>> mixed(torch.tensor([[1.0], [1.0]]), torch.tensor([[3.0], [3.0]]), torch.tensor([0.0, 0.75])).flatten()
    tensor([3.0000, 1.5000])
    """
    w = weight.view(-1, *[1] * (one.ndim - 1)).to(one.dtype)
    return w * one + (1 - w) * other


def mixed_up(images: Tensor, targets: Tensor, order: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """MixUp of a set with itself as MixMatch does it: shuffled by `order`, each image nearer to itself.

    `order` and `weight` are those of `batch.mix`, drawn where a method's `needs` have `mix=alpha`.
    """
    partner, weight = order[: len(images)].argsort(), weight[: len(images)]
    weight = torch.maximum(weight, 1 - weight)
    return mixed(images, images[partner], weight), mixed(targets, targets[partner], weight)


def noisy(pixels: Tensor, deviation: float) -> Tensor:
    """Gaussian noise of that standard deviation on every pixel, anew at each call; pixels lie from -1 to 1.

    >>> noisy(torch.zeros(2, 1, 8, 8), 0.0).any().item()
    False
    """
    return pixels + deviation * torch.randn_like(pixels)

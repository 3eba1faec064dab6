"""Images changed as floats, after `run.pixels`: MixUp and Gaussian noise, parts that any method may take."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from maxmatch.methods.base import Mix, Run


def mixed(one: Tensor, other: Tensor, weight: Tensor) -> Tensor:
    """MixUp of two sets of images, or of their targets: weight one + (1 - weight) other, image by image, weight (B,).

    >>> mixed(torch.tensor([[1.0], [1.0]]), torch.tensor([[3.0], [3.0]]), torch.tensor([0.0, 0.75])).flatten()
    tensor([3.0000, 1.5000])
    """
    w = weight.view(-1, *[1] * (one.ndim - 1)).to(one.dtype)
    return w * one + (1 - w) * other


def mixed_up(run: Run, images: Sequence[Tensor], targets: Sequence[Tensor], mix: Mix) -> tuple[Tensor, Tensor]:
    """MixUp of groups of images with one another as MixMatch does it: all shuffled together, each nearer to itself.

    `mix` is `batch.mix`, drawn where a method's `needs` have `mix=alpha`. A partner may be on another rank, so images
    are gathered, as bytes. Returns pixels and targets of all groups, one behind the other.
    """
    sizes, mine, taught = [len(group) for group in images], torch.cat(list(images)), torch.cat(list(targets))
    others, their_targets = run.gather(mine), run.gather(taught)  # rank by rank, and there group by group
    places = torch.arange(len(others), device=mine.device).view(-1, len(mine))
    order = torch.cat([part.flatten() for part in torch.split(places, sizes, 1)])  # group by group, as if by one rank

    def own(drawn: Tensor) -> Tensor:
        return torch.cat([run.share(part) for part in torch.split(drawn, [n * len(places) for n in sizes])])

    partner, weight = own(order[mix.order[: len(order)].argsort()]), own(mix.weight[: len(order)])
    weight = torch.maximum(weight, 1 - weight)
    pixels, partners = run.pixels(mine), run.pixels(others[partner])
    return mixed(pixels, partners, weight), mixed(taught, their_targets[partner], weight)


def noisy(run: Run, images: Tensor, deviation: float) -> Tensor:
    """Gaussian noise of that standard deviation on every pixel, anew at each call; pixels lie from -1 to 1."""
    pixels = run.pixels(images)
    return pixels + deviation * run.noise(pixels)

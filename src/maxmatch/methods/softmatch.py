"""SoftMatch (Chen et al., 2023): the less confident, the less it counts, by a truncated Gaussian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from maxmatch.methods.alignment import TINY
from maxmatch.methods.base import Batch, Consistency, Run, Target, part
from maxmatch.methods.ranges import Decay, Positive


class Confidence(nn.Module):
    """Running mean and variance of the confidence, and the mean prediction (C,)."""

    mean: Tensor
    variance: Tensor
    predicted: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(1 / classes))
        self.register_buffer("variance", torch.tensor(1.0))
        self.register_buffer("predicted", torch.full((classes,), 1 / classes))


@dataclass(frozen=True)
class SoftMatch(Consistency):
    """Weight exp(-(c - mu)^2 / (2 sigma^2 / n_sigma^2)) below the mean confidence mu, 1 above it.

    The confidence c is that of the prediction aligned to uniform classes (`uniform`); the label is its own.
    """

    year: ClassVar[int] = 2023
    formula: ClassVar[str] = "mean_i w(max p_i) over_j CE(f(strong_j(u_i)), argmax p_i), w a truncated Gaussian"
    fixed_target: ClassVar[str] = "an argmax has no gradient"

    momentum: Decay = 0.999
    n_sigma: Positive = 2.0
    uniform: bool = True

    def parts(self, classes: int, images: int, features: int) -> dict[str, nn.Module]:
        return {**super().parts(classes, images, features), "confidence": Confidence(classes)}

    def teach(self, p: Tensor, run: Run, batch: Batch, x: Tensor | None) -> Target:
        seen = part(run, Confidence, "confidence")
        self._follow(seen.predicted, run.mean(p.mean(0)))
        fair = p / (seen.predicted + TINY).to(p.dtype) if self.uniform else p
        confidence = (fair / fair.sum(-1, keepdim=True)).amax(-1)
        everyone = run.gather(confidence)
        self._follow(seen.mean, everyone.mean())
        self._follow(seen.variance, everyone.var(correction=min(1, len(everyone) - 1)))
        below = (seen.mean - confidence).clamp_min(0)
        width = 2 * seen.variance.clamp_min(TINY**2) / self.n_sigma**2
        return Target(p.argmax(-1), torch.exp(-below.square() / width))

    @torch.no_grad()
    def _follow(self, running: Tensor, now: Tensor) -> None:
        running.lerp_(now.to(running.dtype), 1 - self.momentum)

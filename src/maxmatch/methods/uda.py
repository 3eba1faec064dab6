"""UDA (Xie et al., 2020): sharpened predictions on weak views teach strong views; labelled images wait their turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from maxmatch.methods.base import Consistency, Distance, Run, Target
from maxmatch.methods.functional import cross_entropy, kl_divergence, probabilities, sharpen
from maxmatch.methods.ranges import Positive, Share


@dataclass(frozen=True)
class UDA(Consistency):
    """KL to softmax(logits / temperature) where the unsharpened confidence passes the threshold.

    `annealing` is training-signal annealing: a labelled image counts until its own class is likelier than
    eta = a(t) (1 - 1/C) + 1/C, with a(t) = t, 1 - exp(-5 t) or exp(5 (t - 1)). Google's table has temperature 1 and
    threshold .95.
    """

    year: ClassVar[int] = 2020
    formula: ClassVar[str] = "mean_i 1[max p_i >= threshold] over_j KL(sharpen(p_i) || f(strong_j(u_i)))"

    temperature: Positive = 0.4
    threshold: Share = 0.8
    annealing: Literal["none", "linear", "log", "exp"] = "none"

    distance: ClassVar[Distance] = staticmethod(kl_divergence)

    def targets(self, p: Tensor) -> Target:
        return Target(sharpen(p, self.temperature), torch.ge(p.amax(-1), self.threshold))

    def supervised(self, run: Run, x: Tensor, y: Tensor) -> Tensor:
        loss = cross_entropy(x, y)
        if self.annealing == "none":
            return loss.mean()
        t = run.progress
        rise = {"linear": t, "log": 1 - torch.exp(-5 * t), "exp": torch.exp(5 * (t - 1))}[self.annealing]
        classes = x.shape[1]
        counts = torch.le(probabilities(x.detach()).gather(1, y[:, None])[:, 0], rise * (1 - 1 / classes) + 1 / classes)
        many = run.mean(counts.sum().to(loss.dtype))
        return (counts * loss).sum() / torch.where(many > 0, many, 1)

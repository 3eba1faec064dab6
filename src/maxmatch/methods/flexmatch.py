"""FlexMatch (Zhang et al., 2021): a class that is learned slowly has a lower threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from maxmatch.methods.base import Batch, Consistency, Run, Target, part
from maxmatch.methods.memory import Learned
from maxmatch.methods.ranges import Share


@dataclass(frozen=True)
class FlexMatch(Consistency):
    """threshold_c = threshold M(beta_c), M(x) = x / (2 - x), where beta_c is the share of images learned as class c.

    sigma_c counts the images whose last confident label is c; beta_c = sigma_c / max(max sigma, images without one).
    """

    year: ClassVar[int] = 2021
    formula: ClassVar[str] = "mean_i 1[max p_i >= threshold M(beta_c)] over_j CE(f(strong_j(u_i)), c), c = argmax p_i"
    fixed_target: ClassVar[str] = "an argmax has no gradient"

    threshold: Share = 0.95

    def parts(self, classes: int, images: int, features: int) -> dict[str, nn.Module]:
        return {**super().parts(classes, images, features), "learned": Learned(images)}

    def teach(self, p: Tensor, run: Run, batch: Batch, x: Tensor | None) -> Target:
        learned = part(run, Learned, "learned")
        counts = learned.counts(p.shape[1])
        beta = counts[:-1] / counts.amax()
        confidence, label = p.max(-1)
        keep = torch.ge(confidence, self.threshold * (beta / (2 - beta))[label])
        noted = (batch.index, label, torch.ge(confidence, self.threshold))
        learned.update(*(run.gather(value) for value in noted))
        return Target(label, keep)

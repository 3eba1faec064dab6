"""FixMatch (Sohn et al., 2020): confident predictions on weak views teach strong views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from maxmatch.errors import UsageError
from maxmatch.methods.base import Consistency, Target
from maxmatch.methods.ranges import Share


@dataclass(frozen=True)
class FixMatch(Consistency):
    """Confident predictions on weak views teach strong views.

    `target = "soft"` teaches the whole prediction instead of its argmax; with `threshold = 0` that is the objective the
    MaxMatch paper states before it is instantiated on FixMatch.
    """

    year: ClassVar[int] = 2020
    formula: ClassVar[str] = (
        "mean_i 1[max p_i >= threshold] over_j CE(f(strong_j(u_i)), argmax p_i), p_i = f(weak(u_i))"
    )

    threshold: Share = 0.95
    target: Literal["hard", "soft"] = "hard"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_gradient and self.target == "hard":
            raise UsageError("target_gradient = true: an argmax has no gradient; add --set method.target=soft")

    def targets(self, p: Tensor) -> Target:
        confidence, label = p.max(-1)
        # The paper has ">"; every implementation, and this one, has ">=".
        keep = torch.ge(confidence, self.threshold)
        return Target(label if self.target == "hard" else p, keep)

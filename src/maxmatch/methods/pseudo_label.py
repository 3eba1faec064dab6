"""Pseudo-Label (Lee, 2013): the model's confident guesses are taken for labels.

With K views the guess of the first teaches all of them; at K = 1 a view is taught its own label, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from maxmatch.methods.base import Batch, Needs, Run
from maxmatch.methods.fixmatch import FixMatch
from maxmatch.methods.functional import probabilities
from maxmatch.methods.ranges import Share


@dataclass(frozen=True)
class PseudoLabel(FixMatch):
    """Confident predictions on a weak view are its label."""

    year: ClassVar[int] = 2013
    formula: ClassVar[str] = (
        "mean_i 1[max p_i >= threshold] over_j CE(f(view_j(u_i)), argmax p_i), p_i = f(view_1(u_i))"
    )

    ramp: Share = 0.4
    views: Literal["weak", "strong"] = "weak"

    @property
    def needs(self) -> Needs:
        return Needs(strong=self.k, variants=self.views)

    def anchors(self, batch: Batch) -> tuple[Tensor, ...]:
        trains_on_others = self.target_gradient and self.resolved_strategy == "select"
        return (batch.strong[0],) if trains_on_others else ()  # `joint` has its logits already

    def opinion(self, run: Run, batch: Batch, anchored: Sequence[Tensor], variants: Sequence[Tensor]) -> Tensor:
        if self.teacher == "eman":
            return probabilities(self.guess(run, batch.strong[0])[0])
        return probabilities((*anchored, *variants)[0])

"""VAT (Miyato et al., 2018): a prediction should not change in the direction in which it changes fastest.

With K > 1 the climb begins anew K times, and `over` reduces the K results. `ball = linf` climbs within an l_inf ball by
signs of gradients instead: the norm-bounded worst case, to be compared with the semantic one of MaxMatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from maxmatch.methods.base import Batch, Consistency, Distance, Needs, Run, Target
from maxmatch.methods.functional import entropy, kl_divergence, probabilities
from maxmatch.methods.ranges import Count, Positive, Weight


@dataclass(frozen=True)
class VAT(Consistency):
    """KL(f(x) || f(x + r)), r of length `radius` in the direction of the fastest change, and entropy minimisation.

    The direction is found by `climbs` power steps from a random one, at distance `step`. The papers' 1e-6 for it drowns
    in float32 rounding; this default is larger, and the climb runs in the precision of the weights.
    """

    year: ClassVar[int] = 2018
    formula: ClassVar[str] = (
        "mean_i over_j KL(f(u_i) || f(u_i + r_ij)) + entropy H(f(u_i)), r_ij the adversarial direction of start j"
    )

    weight: Weight = 0.3
    radius: Positive = 6.0
    step: Positive = 0.1
    climbs: Count = 1
    ball: Literal["l2", "linf"] = "l2"
    entropy: Weight = 0.06

    terms: ClassVar[tuple[str, ...]] = ("supervised", "unlabeled", "entropy")
    distance: ClassVar[Distance] = staticmethod(kl_divergence)
    trains_anchors: ClassVar[bool] = True
    no_eman: ClassVar[str] = "the target is the prediction of the net whose slope is climbed"

    @property
    def needs(self) -> Needs:
        return Needs(weak=1, strong=self.k, variants="weak")

    def prepare(self, run: Run, batch: Batch) -> Batch:
        weak = run.pixels(batch.weak[0])
        with torch.no_grad():  # in the climb's own precision: bfloat16 rounding is larger than what `step` changes
            (logits,) = run.probe(weak)
        p = probabilities(logits)
        climbed = torch.stack([self._climb(run, weak, p) for _ in batch.strong])
        return replace(batch, x=run.pixels(batch.x), weak=weak[None], strong=climbed)

    def _climb(self, run: Run, images: Tensor, p: Tensor) -> Tensor:
        """The images, moved to where the prediction differs most from p."""
        linf = self.ball == "linf"
        moved = _unit(run.noise(images)) * self.step
        for _ in range(self.climbs):
            with torch.enable_grad():
                moved = moved.detach().requires_grad_()
                (logits,) = run.probe(images + moved)
                (slope,) = torch.autograd.grad(kl_divergence(logits, p).sum(), moved)
            if linf:
                moved = (moved.detach() + self.radius / self.climbs * slope.sign()).clamp(-self.radius, self.radius)
            else:
                moved = _unit(slope) * self.step
        return images + (moved if linf else _unit(moved) * self.radius)

    def targets(self, p: Tensor) -> Target:
        return Target(p, p.new_ones(len(p)))

    def more_terms(
        self, run: Run, batch: Batch, target: Target, anchored: Sequence[Tensor], variants: Sequence[Tensor]
    ) -> dict[str, Tensor]:
        return {"entropy": self.entropy * entropy(probabilities(anchored[0])).mean()}


def _unit(images: Tensor) -> Tensor:
    """Each image divided by its length."""
    length: Tensor = torch.linalg.vector_norm(images.flatten(1), dim=1).clamp_min(1e-12)
    return images / length.view(-1, 1, 1, 1)

"""Pi-Model (Laine & Aila, 2017): two noisy passes over one image should agree.

The noise is in the views, as in the standard protocol, or Gaussian (`noise`, on pixels from -1 to 1) and dropout
(`net.dropout`), as the paper has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import Tensor

from maxmatch.methods.base import Batch, Consistency, Distance, Needs, Run, Target
from maxmatch.methods.functional import squared_error
from maxmatch.methods.perturb import noisy
from maxmatch.methods.ranges import Share, Weight


@dataclass(frozen=True)
class PiModel(Consistency):
    """Squared error between the predictions of a weak view and of K others."""

    year: ClassVar[int] = 2017
    formula: ClassVar[str] = "mean_i over_j |f(view_j(u_i)) - f(weak(u_i))|^2 / C"

    weight: Weight = 10.0
    ramp: Share = 0.4
    views: Literal["weak", "strong"] = "weak"
    noise: Weight = 0.0

    distance: ClassVar[Distance] = staticmethod(squared_error)

    @property
    def needs(self) -> Needs:
        return Needs(weak=1, strong=self.k, variants=self.views)

    def prepare(self, run: Run, batch: Batch) -> Batch:
        if not self.noise:
            return batch
        x, weak, strong = (noisy(run, images, self.noise) for images in (batch.x, batch.weak, batch.strong))
        return replace(batch, x=x, weak=weak, strong=strong)

    def targets(self, p: Tensor) -> Target:
        return Target(p, p.new_ones(len(p)))

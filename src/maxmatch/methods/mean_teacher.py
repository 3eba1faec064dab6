"""Mean Teacher (Tarvainen & Valpola, 2017): the average of the net's past teaches the net."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from maxmatch.methods.base import Batch, Consistency, Distance, Needs, Run, Target
from maxmatch.methods.functional import probabilities, squared_error
from maxmatch.methods.ranges import Share, Weight


@dataclass(frozen=True)
class MeanTeacher(Consistency):
    """Squared error between the teacher's prediction on a weak view and the net's on K others.

    The teacher is the run's average (`train.ema_decay`, .999 in the standard protocol), normalised by the statistics of
    its own batch: running ones belong to the net, and averaged weights make other sums.
    """

    year: ClassVar[int] = 2017
    formula: ClassVar[str] = "mean_i over_j |f(view_j(u_i)) - f_ema(weak(u_i))|^2 / C"
    fixed_target: ClassVar[str] = "the teacher has no gradient"
    taught_by_average: ClassVar[bool] = True

    weight: Weight = 50.0
    ramp: Share = 0.4
    views: Literal["weak", "strong"] = "weak"

    distance: ClassVar[Distance] = staticmethod(squared_error)

    @property
    def needs(self) -> Needs:
        return Needs(weak=1, strong=self.k, variants=self.views)

    def anchors(self, batch: Batch) -> tuple[Tensor, ...]:
        return ()

    def opinion(self, run: Run, batch: Batch, anchored: Sequence[Tensor], variants: Sequence[Tensor]) -> Tensor:
        (logits,) = run.teacher(batch.weak[0])
        return probabilities(logits)

    def targets(self, p: Tensor) -> Target:
        return Target(p, p.new_ones(len(p)))

"""Temporal Ensembling (Laine & Aila, 2017): an image's past predictions, averaged, teach its next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from maxmatch.methods.base import Batch, Consistency, Distance, Needs, Run, Target, part
from maxmatch.methods.functional import probabilities, squared_error
from maxmatch.methods.memory import Ensemble
from maxmatch.methods.ranges import Decay, Share, Weight


@dataclass(frozen=True)
class TemporalEnsembling(Consistency):
    """Squared error to z~ = Z / (1 - momentum^visits), Z <- momentum Z + (1 - momentum) z, image by image.

    An image that was never seen has no target yet. With K views their mean prediction is remembered. The paper's
    weight is 30 times the share of labelled images; here it is a plain number.
    """

    year: ClassVar[int] = 2017
    formula: ClassVar[str] = "mean_i over_j |f(view_j(u_i)) - Z_i / (1 - momentum^visits_i)|^2 / C"
    fixed_target: ClassVar[str] = "the past has no gradient"

    weight: Weight = 30.0
    ramp: Share = 0.4
    momentum: Decay = 0.6
    views: Literal["weak", "strong"] = "weak"

    no_eman: ClassVar[str] = "an image's own past is its teacher"
    distance: ClassVar[Distance] = staticmethod(squared_error)

    @property
    def needs(self) -> Needs:
        return Needs(strong=self.k, variants=self.views)

    def parts(self, classes: int, images: int, features: int) -> dict[str, nn.Module]:
        return {**super().parts(classes, images, features), "past": Ensemble(images, classes)}

    def anchors(self, batch: Batch) -> tuple[Tensor, ...]:
        return ()

    def opinion(self, run: Run, batch: Batch, anchored: Sequence[Tensor], variants: Sequence[Tensor]) -> Tensor:
        past = part(run, Ensemble, "past")
        p, seen = past.recall(batch.index, self.momentum)
        views = torch.stack([probabilities(logits.detach()) for logits in variants])
        past.update(run.gather(batch.index), run.gather(views.mean(0)), self.momentum)
        # What was never seen teaches nothing, but a view of it is picked: from the mean of two both are as far.
        return torch.where(seen[:, None], p.to(views.dtype), views[0])

    def teach(self, p: Tensor, run: Run, batch: Batch, x: Tensor | None) -> Target:
        return Target(p, part(run, Ensemble, "past").visits[batch.index] > 1)  # this visit is counted already

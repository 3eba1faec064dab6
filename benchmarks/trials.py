"""Targets made with more care, as methods of one's own: FreeMatch whose labels are better, for a little more time.

    PYTHONPATH=src:benchmarks maxmatch train digits@20 --method trials:Guesses --k 3 --over worst

`Guesses`: the mean prediction of several weak views makes the label, as MixMatch guesses it. `Late`: from a share of
the training on the averaged net makes it, which then errs less than the net itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from maxmatch.methods.base import Batch, Needs, Run
from maxmatch.methods.freematch import FreeMatch
from maxmatch.methods.functional import probabilities


@dataclass(frozen=True)
class Guesses(FreeMatch):
    """FreeMatch, labels by the mean prediction of `guesses` weak views."""

    guesses: int = 2

    @property
    def needs(self) -> Needs:
        return Needs(weak=self.guesses, strong=self.k)

    def anchors(self, batch: Batch) -> tuple[Tensor, ...]:
        return tuple(batch.weak)

    def opinion(self, run: Run, batch: Batch, anchored: Sequence[Tensor], variants: Sequence[Tensor]) -> Tensor:
        return torch.stack([probabilities(logits) for logits in anchored]).mean(0)


@dataclass(frozen=True)
class Late(FreeMatch):
    """FreeMatch, labels by the averaged net from `late` of the training on."""

    taught_by_average: ClassVar[bool] = True

    late: float = 0.3

    def opinion(self, run: Run, batch: Batch, anchored: Sequence[Tensor], variants: Sequence[Tensor]) -> Tensor:
        own, average = probabilities(anchored[0]), probabilities(run.teacher(batch.weak[0])[0])
        return torch.where(run.progress < self.late, own, average)

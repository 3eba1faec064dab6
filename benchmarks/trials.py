"""FreeMatch with changes to try, as methods of one's own.

    PYTHONPATH=src:benchmarks maxmatch train digits@20 --method trials:Guesses --k 3 --over worst

`Guesses`: the mean prediction of several weak views makes the label, as MixMatch guesses it. `Late`: from a share of
the training on the averaged net makes it, which then errs less than the net itself. `Average`: it makes the label and
picks the worst view, and sees weak and strong views together, as the net does. `Apart`: BatchNorm normalises strong
views by themselves, and labelled and weak ones, which are like what is tested. `Company`: the labelled images are
beside the views that are scored, as they are beside those that are trained on. `Past`: an image's predictions so far,
averaged, make it, as in Temporal Ensembling. `Mild`: towards the end weak views are taught instead of strong ones,
which lie nearer to what is tested. `Soft`: what is taught is the sharpened prediction, as UDA has it, and not its
label. `Strict`: in the second half only what is very sure teaches, since what is wrong then stays so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from maxmatch.errors import UsageError
from maxmatch.methods.base import Batch, Losses, Needs, Run, Target, part
from maxmatch.methods.freematch import FreeMatch
from maxmatch.methods.functional import probabilities, sharpen
from maxmatch.methods.memory import Ensemble
from maxmatch.methods.ranges import Share
from maxmatch.methods.reduce import Reduction, Worst


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

    def teach(self, p: Tensor, run: Run, batch: Batch, x: Tensor | None) -> Target:
        average = probabilities(run.teacher(batch.weak[0])[0])
        return super().teach(torch.where(run.progress < self.late, p, average), run, batch, x)


@dataclass(frozen=True)
class Average(FreeMatch):
    """FreeMatch by `select`, scored by the averaged net in the net's place, from `late` of the training on."""

    taught_by_average: ClassVar[bool] = True

    over: Reduction = Worst()
    strategy: Literal["auto", "joint", "select"] = "select"
    late: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resolved_strategy != "select":
            raise UsageError("Average: by joint nothing is scored; type --strategy select")

    def losses(self, run: Run, batch: Batch) -> Losses:
        return super().losses(cast(Run, ScoredByAverage(run, self.late)), batch)


class ScoredByAverage:
    """A run but for `score`."""

    def __init__(self, run: Run, late: float) -> None:
        self._run, self._late = run, late

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def score(self, *groups: Tensor) -> Sequence[Tensor]:
        average = self._run.teacher(*groups)
        if not self._late:
            return average
        own = self._run.score(*groups)
        early = self._run.progress < self._late
        return [torch.where(early, a, b) for a, b in zip(own, average, strict=True)]


@dataclass(frozen=True)
class Apart(FreeMatch):
    """FreeMatch, strong views normalised apart from labelled and weak ones, whose statistics are kept; by `joint`."""

    strategy: Literal["auto", "joint", "select"] = "joint"
    no_eman: ClassVar[str] = "there is no weak view in its pass"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resolved_strategy != "joint":
            raise UsageError("Apart: weak views must be in the pass that learns; type --strategy joint")

    def train_pass(self, run: Run, x: Tensor, *groups: Tensor) -> Sequence[Tensor]:
        weak, *strong = groups
        return [*run.net(x, weak), *run.aside(*strong)]


@dataclass(frozen=True)
class Company(FreeMatch):
    """FreeMatch, views scored beside the labelled images."""

    scores_labelled: ClassVar[bool] = True


@dataclass(frozen=True)
class Past(FreeMatch):
    """FreeMatch, labels by the average of an image's predictions so far; `past` is the momentum of it."""

    past: float = 0.7

    def parts(self, classes: int, images: int, features: int) -> dict[str, nn.Module]:
        return {**super().parts(classes, images, features), "past": Ensemble(images, classes)}

    def teach(self, p: Tensor, run: Run, batch: Batch, x: Tensor | None) -> Target:
        past = part(run, Ensemble, "past")
        past.update(run.gather(batch.index), run.gather(p), self.past)
        return super().teach(past.recall(batch.index, self.past)[0].to(p.dtype), run, batch, x)


@dataclass(frozen=True)
class Mild(FreeMatch):
    """FreeMatch, taught on other weak views from `late` of the training on."""

    late: float = 0.8

    @property
    def needs(self) -> Needs:
        return Needs(weak=2, strong=self.k)

    def prepare(self, run: Run, batch: Batch) -> Batch:
        return replace(batch, strong=torch.where(run.progress < self.late, batch.strong, batch.weak[1]))


@dataclass(frozen=True)
class Soft(FreeMatch):
    """FreeMatch, teaching the prediction, sharpened by `temperature`."""

    temperature: float = 0.4

    def teach(self, p: Tensor, run: Run, batch: Batch, x: Tensor | None) -> Target:
        return super().teach(p, run, batch, x)._replace(value=sharpen(p, self.temperature))


@dataclass(frozen=True)
class Strict(FreeMatch):
    """FreeMatch, and from `late` of the training on no prediction teaches that is less sure than `least`."""

    late: Share = 0.5
    least: Share = 0.99

    def teach(self, p: Tensor, run: Run, batch: Batch, x: Tensor | None) -> Target:
        target = super().teach(p, run, batch, x)
        return target._replace(
            keep=target.keep & (torch.lt(run.progress, self.late) | torch.ge(p.amax(-1), self.least))
        )

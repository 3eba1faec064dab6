"""FreeMatch with changes to try, as methods of one's own.

    PYTHONPATH=src:benchmarks maxmatch train digits@20 --method trials:Guesses --k 3 --over worst

`Guesses`: the mean prediction of several weak views makes the label, as MixMatch guesses it. `Late`: from a share of
the training on the averaged net makes it, which then errs less than the net itself. `Average`: it makes the label and
picks the worst view, and sees weak and strong views together, as the net does. `Apart`: BatchNorm normalises strong
views by themselves, and labelled and weak ones, which are like what is tested. `Company`: the labelled images are
beside the views that are scored, as they are beside those that are trained on. `Past`: an image's predictions so far,
averaged, make it, as in Temporal Ensembling. `Mild`: towards the end weak views are taught instead of strong ones,
which lie nearer to what is tested. `Soft`: what is taught is the sharpened prediction, as UDA has it, and not its
label. `Strict`: in the second half only what is very sure teaches, since what is wrong then stays so. `Mixed`: images
of which even the worst view is learned are shown inside one another, as nothing is left to learn of them alone.
`Hardest`: they are left out of the pass that learns, which costs more than the one that scores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from maxmatch.errors import UsageError
from maxmatch.methods.base import Batch, Losses, Needs, Run, Target, part
from maxmatch.methods.freematch import FreeMatch, Progress
from maxmatch.methods.functional import probabilities, sharpen
from maxmatch.methods.memory import Ensemble
from maxmatch.methods.ranges import Share, Weight
from maxmatch.methods.reduce import Reduction, Worst
from maxmatch.methods.views import Views


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


@dataclass(frozen=True)
class Picked(FreeMatch):
    """FreeMatch by `select` with the worst view alone, for trials that change its lesson."""

    over: Reduction = Worst()
    k: Views = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resolved_strategy != "select" or self.over != Worst():
            raise UsageError(
                f"{type(self).__name__}: its lesson is the worst view, by select; type --over worst, --k 3"
            )


@dataclass(frozen=True)
class Mixed(Picked):
    """FreeMatch by `select`: of two images whose worst views are learned, one is shown shrunk in a box of the other.

    Learned is a view that is kept and whose loss is at most `learned`; a share `often` of them is mixed. Sides of boxes
    lie between `smallest` and `largest` of the image's, larger ones more often, as RegMixMatch (Han et al., 2025) has
    ResizeMix; labels are mixed by area.
    """

    learned: Weight = 0.05
    often: Share = 1.0
    smallest: Share = 0.1
    largest: Share = 0.8

    @property
    def needs(self) -> Needs:
        return Needs(weak=1, strong=self.k, mix=1.0)

    def lesson(self, run: Run, batch: Batch, taught: Target, views: Tensor, losses: Tensor) -> tuple[Tensor, Target]:
        assert batch.mix is not None  # `needs` asked for it
        many, side = views.shape[1], views.shape[-1]
        draws = batch.mix.order[: 4 * many].view(4, many)
        easy = taught.keep & (losses[0] <= self.learned) & (draws[3] < self.often)
        order = (draws[0] + ~easy).argsort()  # the learned ones first, shuffled
        partner = torch.empty_like(order).scatter_(0, order, order.roll(-1))
        both = easy & easy[partner] & (partner != torch.arange(many, device=order.device))
        share = self.smallest + (self.largest - self.smallest) * batch.mix.weight[:many].sqrt()
        box = torch.where(both, (side * share).round().clamp(min=1), 0)  # (B,) its side; 0: nothing is shown in it
        top, left = (draws[1:3] * (side - box + 1)).floor()
        mixed = pasted(views[0], views[0][partner], box, top, left)
        area = (box / side).square()[:, None]
        labels = functional.one_hot(taught.value, len(part(run, Progress, "progress").predicted)).to(area.dtype)
        return mixed[None], taught._replace(value=((1 - area) * labels + area * labels[partner])[None])


@dataclass(frozen=True)
class Hardest(Picked):
    """FreeMatch by `select`: of the images that were scored, the `share` with the largest losses is trained on."""

    share: Share = 0.5

    def lesson(self, run: Run, batch: Batch, taught: Target, views: Tensor, losses: Tensor) -> tuple[Tensor, Target]:
        many = max(1, round(self.share * len(taught.keep)))
        hardest = (taught.keep * losses[0]).topk(many).indices
        return views[:, hardest], Target(taught.value[hardest], taught.keep[hardest])


def pasted(images: Tensor, others: Tensor, box: Tensor, top: Tensor, left: Tensor) -> Tensor:
    """Square images (B, C, H, H), each with another shrunk into a box of it: its side, top and left (B,), in pixels."""
    side = images.shape[-1]
    places = torch.arange(side, device=images.device)
    rows, columns = (places - start[:, None] for start in (top, left))  # (B, H) within the box
    inside = [(place >= 0) & (place < box[:, None]) for place in (rows, columns)]
    of = [
        torch.floor((place + 0.5) * side / box.clamp(min=1)[:, None]).clamp(0, side - 1).long()
        for place in (rows, columns)
    ]
    where = (of[0][:, :, None] * side + of[1][:, None, :]).flatten(1)[:, None].expand(-1, images.shape[1], -1)
    shrunk = others.flatten(2).gather(2, where).view_as(images)
    return torch.where((inside[0][:, :, None] & inside[1][:, None, :])[:, None], shrunk, images)

"""FreeMatch on the images that have something left to learn, and the same objective: a method to try.

    PYTHONPATH=src:benchmarks maxmatch train digits@20 --method sampling:Sampled --set train.ratio=8

At the end of a run half of the images hold all of the gradient (docs/search.md). `Sampled` remembers of each image how
much its worst view had left to learn, and takes a share of a step's candidates, those with more left more often. Each
counts by one over how often it is taken, so that every mean, FreeMatch's thresholds among them, is still that of all
candidates: the gradient of a batch twice as large, but for the statistics of BatchNorm, which are of those taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from trials import Picked

from maxmatch.methods.base import Batch, Losses, Needs, Run, Seen, Target, part
from maxmatch.methods.freematch import Progress
from maxmatch.methods.ranges import Share

SCALES = 256


class Left(nn.Module):
    """Of each image how much was left to learn when it was last seen: 1 - p(label) of its worst view; 1 at first."""

    left: Tensor  # (N,)

    def __init__(self, images: int) -> None:
        super().__init__()
        self.register_buffer("left", torch.ones(images))


@dataclass(frozen=True)
class Sampled(Picked):
    """FreeMatch by `select` on a `share` of each batch; no image is taken with a chance of less than `least`.

    An image whose label is not kept teaches nothing now, and may soon: what is left in it counts as `unsure` of that.
    """

    share: Share = 0.5
    least: Share = 0.2
    unsure: Share = 0.5

    @property
    def needs(self) -> Needs:
        return Needs(weak=1, strong=self.k, mix=1.0)

    def parts(self, classes: int, images: int, features: int) -> dict[str, nn.Module]:
        return {**super().parts(classes, images, features), "left": Left(images)}

    def losses(self, run: Run, batch: Batch) -> Losses:
        assert batch.mix is not None  # `needs` asked for it
        memory, candidates = part(run, Left, "left").left, len(batch.index)
        many = max(1, round(self.share * candidates))
        often = expected(memory[batch.index], self.least, many)
        taken = systematic(often, batch.mix.order[0], many)
        counts = many / candidates / often[taken]
        few = replace(
            batch, index=batch.index[taken], weak=batch.weak[:, taken], strong=batch.strong[:, taken],
            mix=batch.mix._replace(weight=counts),
        )  # fmt: skip
        terms, seen = super().losses(run, few)
        assert seen is not None
        left = -torch.expm1(-seen.per_view.amax(0))
        left = torch.where(seen.keep > 0, left, self.unsure * left).to(memory.dtype)
        with torch.no_grad():  # of an image that occurs twice the larger one, whichever is written first
            memory.scatter_reduce_(0, few.index, left, "amax", include_self=False)
        return Losses(terms, _spread(seen, taken, candidates))

    def teach(self, p: Tensor, run: Run, batch: Batch, x: Tensor | None) -> Target:
        """FreeMatch's, with means in which each image counts as `losses` has noted in `batch.mix.weight`."""
        assert batch.mix is not None
        counts, so_far = batch.mix.weight[:, None], part(run, Progress, "progress")
        confidence, label = p.max(-1)
        labels = functional.one_hot(label, p.shape[1]).to(p.dtype)
        with torch.no_grad():
            for name, each in (("confidence", confidence[:, None]), ("predicted", p), ("labels", labels)):
                running = getattr(so_far, name)
                now = run.mean((counts * each).sum(0) / counts.sum()).to(running.dtype)
                running.lerp_(now.view_as(running), 1 - self.momentum)
        thresholds = so_far.confidence * so_far.predicted / so_far.predicted.amax()
        return Target(label, torch.ge(confidence, thresholds[label]) * counts[:, 0])


def expected(left: Tensor, least: float, many: int) -> Tensor:
    """How often each candidate (B,) is taken: by what is left in it, from `least` to 1; together `many` times."""
    scales = torch.logspace(-1, 5, SCALES, device=left.device, dtype=left.dtype)
    sums = (scales[:, None] * left).clamp(least, 1).sum(1)
    enough = (sums < many).sum().clamp(max=SCALES - 1)
    often = (scales.gather(0, enough[None]) * left).clamp(least, 1)
    return often * (many / often.sum())


def systematic(often: Tensor, start: Tensor, many: int) -> Tensor:
    """`many` positions, each as often as expected: where the sum of `often` (B,) so far passes start, start + 1, ..."""
    places = start.double() + torch.arange(many, device=often.device)
    return torch.searchsorted(often.double().cumsum(0), places, right=True).clamp(max=len(often) - 1)


def _spread(seen: Seen, taken: Tensor, candidates: int) -> Seen:
    """What was seen of those taken, in the places of all candidates; the others count as not kept."""

    def wide(value: Tensor) -> Tensor:
        return value.new_zeros(*value.shape[:-1], candidates).index_copy_(-1, taken, value)

    keep = wide(seen.keep) * (candidates / len(taken))
    return seen._replace(
        target=wide(seen.target), keep=keep, per_view=wide(seen.per_view), winner=wide(seen.winner), guess=None
    )

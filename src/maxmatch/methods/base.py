"""The contract between a method and everything else. Read this first.

A method is a frozen dataclass whose fields are its paper's hyper-parameters. It says which views it `needs`, and
`losses(run, batch)` returns named, already weighted terms that the loop sums and minimises. It knows no data set, no
optimiser, no logger and no device. Most methods are a target and a distance: they subclass `Consistency`, which holds
the paper's worst case over K views and both ways to compute it, once for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from maxmatch.errors import UsageError
from maxmatch.methods.functional import cross_entropy, probabilities
from maxmatch.methods.reduce import Mean, Reduction

Distance = Callable[[Tensor, Tensor], Tensor]  # logits (B, C), target (B,) or (B, C) -> (B,)


@dataclass(frozen=True, eq=False)
class Batch:
    """What one step shows a method. Hidden true labels are not in it."""

    x: Tensor  # (L, C, H, W) labelled images, weak views
    y: Tensor  # (L,) their labels
    index: Tensor  # (B,) positions of the unlabelled images in the pool
    weak: Tensor  # (V, B, C, H, W) weak views of the unlabelled images
    strong: Tensor  # (K, B, C, H, W) strong views of them
    x_strong: Tensor | None = None  # (L, C, H, W) strong views of the labelled images, on request


class Target(NamedTuple):
    """What the strong views are taught: labels (B,) or probabilities (B, C), and which images (or how much) count."""

    value: Tensor
    keep: Tensor  # (B,) bool, or weights


class Seen(NamedTuple):
    """What the loop may look at afterwards, all detached: every health figure is made from it."""

    target: Tensor  # (B,) or (B, C)
    keep: Tensor  # (B,)
    per_view: Tensor  # (K, B) loss of every view
    winner: Tensor  # (B,) the view that decided
    unlabeled_loss: Tensor  # () before its weight


class Losses(NamedTuple):
    terms: dict[str, Tensor]  # named, weighted, summed by the loop: what is logged is what is optimised
    seen: Seen | None = None


class Run(Protocol):
    """All that a method may touch. Images are uint8 as the views make them, or float as `run.pixels` does."""

    progress: Tensor  # () from 0 to 1, on the device: a Python number would be frozen into a captured graph
    step: Tensor  # ()
    state: nn.Module | None  # the method's own buffers and heads

    def net(self, *groups: Tensor) -> Sequence[Tensor]:
        """Logits of each group from one pass over all of them: gradient, running statistics updated."""

    def score(self, *groups: Tensor) -> Sequence[Tensor]:
        """The same without gradient: batch statistics, running ones untouched."""

    def teacher(self, *groups: Tensor) -> Sequence[Tensor]:
        """Logits of the averaged net in eval mode, without gradient."""

    def pixels(self, images: Tensor) -> Tensor:
        """uint8 images as the net takes them, for methods that mix or perturb them."""

    def mean(self, value: Tensor) -> Tensor:
        """Mean over the ranks."""

    def gather(self, value: Tensor) -> Tensor:
        """All ranks' values, one after the other."""


def parse_views(value: Any, name: str = "k") -> int | tuple[tuple[int, float], ...]:
    """The number of views K: an int, `1,2,3` (uniform) or `1:.5,2:.3,3:.2` (weights), sorted and summing to one.

    >>> parse_views("3")
    3
    >>> parse_views("2,1")
    ((1, 0.5), (2, 0.5))
    """
    typed, wrong = value, "type --k 3, --k 1,2,3 or --k 1:.5,2:.3,3:.2"
    if isinstance(value, str) and not value.strip().isdigit():
        parts = [part.split(":") for part in value.split(",")]
        value = [(part[0], part[1] if len(part) > 1 else 1) for part in parts]
    elif isinstance(value, int | str) and not isinstance(value, bool):
        value = [(value, 1)]
    try:
        pairs = sorted((int(k), float(weight)) for k, weight in value)
        total = sum(weight for _, weight in pairs)
        most = max(k for k, _ in pairs)
    except (TypeError, ValueError):
        raise UsageError(f"{name} = {typed}: whole numbers are wanted; {wrong}") from None
    if pairs[0][0] < 1:
        raise UsageError(f"{name} = {typed}: at least one strong view is needed; type --k 3")
    if min(weight for _, weight in pairs) < 0 or not total > 0 or len({k for k, _ in pairs}) < len(pairs):
        raise UsageError(f"{name} = {typed}: each K once, with a weight of 0 or more; {wrong}")
    if len(pairs) == 1:
        return most
    if abs(total - 1) < 1e-9:  # already probabilities: they survive another reading unchanged
        total = 1.0
    return tuple((k, weight / total) for k, weight in pairs)


Views = Annotated[int | tuple[tuple[int, float], ...], parse_views]


class Needs(NamedTuple):
    """The views a method asks for; the data never asks which method runs."""

    weak: int = 0
    strong: Views = 0
    x_strong: bool = False

    def choices(self) -> tuple[tuple[int, float], ...]:
        """Every K that a step may draw, with its probability."""
        return ((self.strong, 1.0),) if isinstance(self.strong, int) else self.strong


@dataclass(frozen=True)
class Method(ABC):
    """One paper, one file. Fields are its hyper-parameters with its defaults."""

    terms: ClassVar[tuple[str, ...]] = ("supervised", "unlabeled")  # the names that `losses` gives
    capturable: ClassVar[bool] = True

    @property
    @abstractmethod
    def needs(self) -> Needs:
        """Which views of which kind a step must make."""

    @abstractmethod
    def losses(self, run: Run, batch: Batch) -> Losses:
        """Named, weighted terms, and what was seen on the way."""

    def state(self, classes: int, images: int) -> nn.Module | None:
        """The method's own buffers and heads, for `classes` classes and a pool of `images`; None if it has none."""
        return None


@dataclass(frozen=True)
class Consistency(Method):
    """Strong views are taught what the weak view says; `over` decides which of the K count: the paper's objective.

    `weight` is the paper's lambda. `joint` passes everything through the net once, with gradient. `select` first scores
    all K views without gradient, then trains on the chosen ones alone: Algorithm 1, and cheaper. `auto` is `select`
    where the reduction picks views and K > 1.
    """

    k: Views = 1
    over: Reduction = Mean()
    strategy: Literal["auto", "joint", "select"] = "auto"
    weight: float = 1.0
    target_gradient: bool = False  # True: the weak side learns too; the paper, and every implementation, stops it

    distance: ClassVar[Distance] = staticmethod(cross_entropy)

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", parse_views(self.k))
        object.__setattr__(self, "over", Reduction.parse(self.over))
        if not 0 <= self.weight < float("inf"):
            raise UsageError(f"weight = {self.weight:g}: a number of 0 or more is wanted")
        if self.strategy == "select" and not self.over.picks:
            raise UsageError(
                f"strategy = select: '{self.over.spell()}' needs every view's gradient; type --strategy joint"
            )

    @abstractmethod
    def targets(self, p: Tensor) -> Target:
        """What the strong views are taught, from the probabilities p (B, C) of the weak views."""

    @property
    def needs(self) -> Needs:
        return Needs(weak=1, strong=self.k)

    @property
    def resolved_strategy(self) -> Literal["joint", "select"]:
        if self.strategy != "auto":
            return self.strategy
        most = max(k for k, _ in self.needs.choices())
        return "select" if self.over.picks and most > 1 else "joint"

    def losses(self, run: Run, batch: Batch) -> Losses:
        return self._select(run, batch) if self.resolved_strategy == "select" else self._joint(run, batch)

    def _joint(self, run: Run, batch: Batch) -> Losses:
        x, weak, *strong = run.net(batch.x, batch.weak[0], *batch.strong)
        target = self._teach(weak)
        per_view = self._distances(strong, target)
        value, winner = self.over(per_view)
        return self._assemble(x, batch.y, value, target, per_view, winner)

    def _select(self, run: Run, batch: Batch) -> Losses:
        weak, *strong = run.score(batch.weak[0], *batch.strong)
        target = self._teach(weak)
        per_view = self._distances(strong, target)
        chosen = self.over.choose(per_view)  # (J, B)
        views = batch.strong[chosen, torch.arange(chosen.shape[1], device=chosen.device)]  # (J, B, C, H, W)
        if self.target_gradient:
            x, weak, *trained = run.net(batch.x, batch.weak[0], *views)
            target = self._teach(weak)
        else:
            x, *trained = run.net(batch.x, *views)
        value = self._distances(trained, target).mean(0)
        return self._assemble(x, batch.y, value, target, per_view, chosen[0])

    def _teach(self, weak: Tensor) -> Target:
        return self.targets(probabilities(weak if self.target_gradient else weak.detach()))

    def _distances(self, views: Sequence[Tensor], target: Target) -> Tensor:
        return torch.stack([type(self).distance(logits, target.value) for logits in views])  # (K, B)

    def _assemble(
        self, x: Tensor, y: Tensor, value: Tensor, target: Target, per_view: Tensor, winner: Tensor
    ) -> Losses:
        unlabeled = (target.keep * value).mean()  # over all B images: one that is not kept counts as 0
        terms = {"supervised": cross_entropy(x, y).mean(), "unlabeled": self.weight * unlabeled}
        seen = Seen(target.value.detach(), target.keep, per_view.detach(), winner, unlabeled.detach())
        return Losses(terms, seen)

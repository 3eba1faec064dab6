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
from typing import ClassVar, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from maxmatch.errors import UsageError
from maxmatch.methods import mistakes, ranges
from maxmatch.methods.alignment import Alignment
from maxmatch.methods.functional import cross_entropy, probabilities
from maxmatch.methods.ranges import Share, Weight
from maxmatch.methods.reduce import Mean, Reduction
from maxmatch.methods.views import Choices, Views, all_choices, parse_views

Distance = Callable[[Tensor, Tensor], Tensor]  # logits (B, C), target (B,) or (B, C) -> (B,)


@dataclass(frozen=True, eq=False)
class Batch:
    """What one step shows a method. Hidden true labels are not in it."""

    x: Tensor  # (L, C, H, W) labelled images, weak views
    y: Tensor  # (L,) their labels
    index: Tensor  # (B,) positions of the unlabelled images in the pool
    weak: Tensor  # (V, B, C, H, W) weak views of the unlabelled images
    strong: Tensor  # (K, B, C, H, W) the K variants: strong views of them, or more weak ones where `needs` says so
    x_strong: Tensor | None = None  # (L, C, H, W) strong views of the labelled images, on request
    mix: Mix | None = None  # what mixing draws, on request
    target: Tensor | None = None  # (K, B, C) what each variant is taught, where a method's `prepare` has made it
    guess: Tensor | None = None  # (B, C) what it takes an image itself to be, where that target is mixed with others'


class Mix(NamedTuple):
    """Draws for mixing M images with one another: as many as there are labelled images, weak views and variants."""

    order: Tensor  # (M,) uniform: argsort of the first m is a shuffle of m images
    weight: Tensor  # (M,) Beta(alpha, alpha)


class Target(NamedTuple):
    """What the variants are taught: labels (B,), probabilities (B, C), or (K, B, C) if each is taught its own.

    `keep` says which images, or how much they, count.
    """

    value: Tensor
    keep: Tensor  # (B,) bool, or weights


class Seen(NamedTuple):
    """What the loop may look at afterwards, all detached: every health figure is made from it."""

    target: Tensor  # (B,) or (B, C) what an image is taken to be
    keep: Tensor  # (B,)
    per_view: Tensor  # (K, B) loss of every view
    winner: Tensor  # (B,) the view that decided
    unlabeled_loss: Tensor  # () before its weight
    guess: Tensor | None = None  # (B, C) the probabilities that `target` was made of, where it was made image by image


class Losses(NamedTuple):
    terms: dict[str, Tensor]  # named, weighted, summed by the loop: what is logged is what is optimised
    seen: Seen | None = None


class Run(Protocol):
    """All that a method may touch. Images are uint8 as the views make them, or float as `run.pixels` does."""

    progress: Tensor  # () from 0 to 1, on the device: a Python number would be frozen into a captured graph
    step: Tensor  # ()
    state: nn.Module | None  # the method's own buffers and heads
    rank: int  # which process this is,
    ranks: int  # of how many
    companies: int  # in how many batches a pass of all ranks is normalised: as many as ranks, or 1 if synchronised

    def net(self, *groups: Tensor) -> Sequence[Tensor]:
        """Logits of each group from one pass over all of them: gradient, running statistics updated."""

    def score(self, *groups: Tensor) -> Sequence[Tensor]:
        """The same without gradient: batch statistics, running ones untouched."""

    def aside(self, *groups: Tensor) -> Sequence[Tensor]:
        """With gradient and batch statistics, running ones untouched: for all but the pass that should move them."""

    def probe(self, *groups: Tensor) -> Sequence[Tensor]:
        """As `aside`, in the precision of the weights: for gradients with respect to small changes of an image."""

    def features(self, *groups: Tensor) -> Sequence[Tensor]:
        """As `aside`, but what the net's head sees, (B, F)."""

    def teacher(self, *groups: Tensor) -> Sequence[Tensor]:
        """Logits of the averaged net without gradient: batch statistics as in `score`, never the net's running ones.

        With EMAN (`averages_statistics`) in eval mode: the running statistics are averaged like the weights.
        """

    def pixels(self, images: Tensor) -> Tensor:
        """uint8 images as the net takes them, for methods that mix or perturb them; others as they are."""

    def mean(self, value: Tensor) -> Tensor:
        """Mean over the ranks."""

    def gather(self, value: Tensor) -> Tensor:
        """All ranks' values, one after the other."""

    def share(self, value: Tensor) -> Tensor:
        """This rank's part of a value that all ranks have: the reverse of `gather`."""

    def noise(self, images: Tensor) -> Tensor:
        """Normal noise for float images (..., B, C, H, W): this rank's part of that of the whole batch."""


class Needs(NamedTuple):
    """The views a method asks for; the data never asks which method runs."""

    weak: int = 0
    strong: Views = 0
    x_strong: bool = False
    variants: Literal["strong", "weak"] = "strong"  # by which policy the K of `strong` are made
    mix: float | None = None  # alpha of the Beta(alpha, alpha) that mixing weights come from
    labelled: bool = True  # False: no image is labelled, the pool is all there is

    @property
    def unlabelled(self) -> bool:
        """Whether a step looks at unlabelled images."""
        return self.weak > 0 or self.most > 0

    @property
    def most(self) -> int:
        """The most variants of an image that a step has."""
        return max(k for k, _ in self.choices())

    @property
    def in_order(self) -> bool:
        """Whether K has a schedule: `choices` are not drawn then, they follow each other."""
        return isinstance(self.strong, str)

    def choices(self) -> Choices:
        """Every K that a step may have, with its probability, or its share of the training."""
        return all_choices(self.strong)


@dataclass(frozen=True)
class Method(ABC):
    """One paper, one file. Fields are its hyper-parameters with its defaults."""

    terms: ClassVar[tuple[str, ...]] = ("supervised", "unlabeled")  # the names that `losses` gives
    capturable: ClassVar[bool] = True
    taught_by_average: ClassVar[bool] = False  # whether `run.teacher` is asked, so that train.ema_decay may not be 0
    year: ClassVar[int | None] = None  # of its paper
    formula: ClassVar[str] = ""  # of what it adds to the labelled images' cross-entropy, for the docs

    def __init_subclass__(cls) -> None:
        """Refuse what Python would read otherwise than it is meant."""
        if wrong := mistakes.untyped(cls) or mistakes.unlike_base(cls):
            raise UsageError(wrong)

    def __post_init__(self) -> None:
        ranges.check(self)

    @property
    @abstractmethod
    def needs(self) -> Needs:
        """Which views of which kind a step must make."""

    @abstractmethod
    def losses(self, run: Run, batch: Batch) -> Losses:
        """Named, weighted terms, and what was seen on the way."""

    def state(self, classes: int, images: int, features: int = 0) -> nn.Module | None:
        """The method's own buffers and heads, for a pool of `images` and the `features` that the net's head sees."""
        return None

    def refuses(self, shape: tuple[int, int, int]) -> str:
        """Why it can't learn from images of this shape, (C, H, W); empty where it can."""
        return ""

    @property
    def projection(self) -> int | None:
        """How many numbers the net gives for an image through an MLP, for a pretraining; None: logits of classes."""
        return None

    @property
    def averages_statistics(self) -> bool:
        """Whether the run's average has averaged running statistics, and teaches in eval mode: EMAN."""
        return False


@dataclass(frozen=True)
class Consistency(Method):
    """K variants of an image are taught one target; `over` decides which of them count: the paper's objective.

    `weight` is the paper's lambda; with `ramp` it rises from 0 over that share of the training. `align` takes the bias
    out of the predictions that make the targets. `teacher = eman` has them made by the average of weights and BatchNorm
    statistics, in eval mode (Cai et al., 2021); the net then trains without the weak views.

    `joint` passes everything through the net once, with gradient. `select` first scores the weak views and all K
    variants without gradient, then trains on the chosen ones alone: Algorithm 1, and cheaper where views are many.
    `auto` is `select` where the reduction picks views and K > 1. `select` passes weak and strong views together even at
    K = 1: BatchNorm would normalise weak views alone by statistics that training never has, and their labels would be
    worse (docs/search.md).

    A method says what it teaches: `targets(p)`, or `teach` where that takes more than p. Where p comes from is
    `opinion`: by default the first weak view's prediction, made in the same pass.
    """

    k: Views = 1
    over: Reduction = Mean()
    strategy: Literal["auto", "joint", "select"] = "auto"
    weight: Weight = 1.0
    ramp: Share = 0.0
    align: bool = False
    target_gradient: bool = False  # True: the weak side learns too; the paper, and every implementation, stops it
    teacher: Literal["own", "eman"] = "own"  # who makes the targets: whom the method's paper has, or the EMAN average

    distance: ClassVar[Distance] = staticmethod(cross_entropy)
    fixed_target: ClassVar[str] = ""  # why `target_gradient` is refused, where it is
    no_eman: ClassVar[str] = ""  # why `teacher = eman` is refused, where it is
    scores_labelled: ClassVar[bool] = False  # `select` scores the labelled images too, for `teach`
    trains_anchors: ClassVar[bool] = False  # `select` trains on the anchors too, for `more_terms`

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "k", parse_views(self.k))
        object.__setattr__(self, "over", Reduction.parse(self.over))
        if self.target_gradient and self.fixed_target:
            raise UsageError(f"target_gradient = true: {self.fixed_target}; leave it out")
        if self.teacher == "eman" and self.no_eman:
            raise UsageError(f"teacher = eman: {self.no_eman}; leave it out")
        if self.teacher == "eman" and (wrong := mistakes.deaf(self)):
            raise UsageError(f"teacher = eman: {wrong}")
        if self.teacher == "eman" and self.target_gradient:
            raise UsageError("target_gradient = true: with teacher = eman the targets have no gradient; leave one out")
        own = [name for name in ("teach", "lesson") if getattr(type(self), name) is not getattr(Consistency, name)]
        if self.target_gradient and self.resolved_strategy == "select" and own:
            what = f"target_gradient = true: {type(self).__name__} has a {own[0]} of its own"
            raise UsageError(f"{what}, which select asks once a step; type --strategy joint, or leave it out")
        if self.strategy == "select" and not self.over.picks:
            what = f"strategy = select: by '{self.over.spell()}' all views count, none is picked"
            raise UsageError(f"{what}; type --strategy joint" + (", or --over worst" if self.k == 1 else ""))

    def targets(self, p: Tensor) -> Target:
        """What the variants are taught, from the probabilities p (B, C) of the weak views."""
        raise UsageError(f"{type(self).__name__} teaches nothing: write targets(p), or teach(p, run, batch, x)")

    def teach(self, p: Tensor, run: Run, batch: Batch, x: Tensor | None) -> Target:
        """The same with all that may be known; called once a step, so it may change `run.state`.

        x (L, C) are the logits of the labelled images; None where they were not scored (`scores_labelled`).
        """
        return self.targets(p) if batch.target is None else Target(batch.target, p.new_ones(len(p)))

    def prepare(self, run: Run, batch: Batch) -> Batch:
        """The batch as the method wants it, noise added for example."""
        return batch

    def anchors(self, batch: Batch) -> tuple[Tensor, ...]:
        """Views that pass through the net beside the variants and are not taught."""
        return () if self.teacher == "eman" else (batch.weak[0],)

    def supervised(self, run: Run, x: Tensor, y: Tensor) -> Tensor:
        """The loss of the labelled images, from their logits (L, C)."""
        return cross_entropy(x, y).mean()

    def classes_of_labelled(self, x: Tensor | None, y: Tensor, classes: int) -> Tensor:
        """What `align` aligns to, image by image (L, C): the labels."""
        return functional.one_hot(y, classes)

    def train_pass(self, run: Run, x: Tensor, *groups: Tensor) -> Sequence[Tensor]:
        """Logits of the labelled images and of the groups, with gradient."""
        return run.net(x, *groups)

    def lesson(self, run: Run, batch: Batch, taught: Target, views: Tensor, losses: Tensor) -> tuple[Tensor, Target]:
        """What `select` trains on, of the views (J, B, C, H, W) that it has picked, and what they are taught.

        `losses` (J, B) are theirs as they were scored. Views may be changed, and images left out of both: they count
        as 0 then, as those do that are not kept.
        """
        return views, taught

    def more_terms(
        self, run: Run, batch: Batch, target: Target, anchored: Sequence[Tensor], variants: Sequence[Tensor]
    ) -> dict[str, Tensor]:
        """Terms beside the two that every method has, from the logits of the anchors and of the variants that count.

        `select` trains without the anchors, unless `trains_anchors`; they are empty then.
        """
        return {}

    def opinion(self, run: Run, batch: Batch, anchored: Sequence[Tensor], variants: Sequence[Tensor]) -> Tensor:
        """The probabilities (B, C) that targets are made of, from the logits of the anchors and of the K variants."""
        if batch.target is not None:
            return batch.target.mean(0)
        return probabilities(anchored[0] if anchored else self.guess(run, batch.weak[0])[0])

    def guess(self, run: Run, *groups: Tensor) -> Sequence[Tensor]:
        """Logits without gradient of whoever makes the targets, where they are asked for in a pass of their own."""
        return run.teacher(*groups) if self.teacher == "eman" else run.score(*groups)

    def parts(self, classes: int, images: int, features: int) -> dict[str, nn.Module]:
        """The method's own buffers and heads by name; a step finds them in `run.state`."""
        return {"alignment": Alignment(classes)} if self.align else {}

    def state(self, classes: int, images: int, features: int = 0) -> nn.Module | None:
        parts = self.parts(classes, images, features)
        if wrong := mistakes.of_parts(type(self).__name__, parts):
            raise UsageError(wrong)
        return nn.ModuleDict(parts) if parts else None

    @property
    def needs(self) -> Needs:
        return Needs(weak=1, strong=self.k)

    @property
    def averages_statistics(self) -> bool:
        return self.teacher == "eman"

    @property
    def resolved_strategy(self) -> Literal["joint", "select"]:
        if self.strategy != "auto":
            return self.strategy
        return "select" if self.over.picks and self.needs.most > 1 else "joint"

    def losses(self, run: Run, batch: Batch) -> Losses:
        batch = self.prepare(run, batch)
        return self._select(run, batch) if self.resolved_strategy == "select" else self._joint(run, batch)

    def _joint(self, run: Run, batch: Batch) -> Losses:
        anchors = self.anchors(batch)
        x, *rest = self.train_pass(run, batch.x, *anchors, *batch.strong)
        anchored, variants = rest[: len(anchors)], rest[len(anchors) :]
        p = self._opinion(run, batch, anchored, variants, x)
        target = self._target(p, run, batch, x)
        per_view = self._distances(variants, target.value)
        value, winner = self.over(per_view)
        if self.over.picks:
            variants = list(_picked(torch.stack(variants), self.over.choose(per_view.detach())))
        terms, unlabeled = self._terms(run, batch, x, anchored, variants, target, value)
        return Losses(terms, _seen(batch, p, target, per_view, winner, unlabeled))

    def _select(self, run: Run, batch: Batch) -> Losses:
        anchors = self.anchors(batch)
        labelled = (batch.x,) if self.scores_labelled else ()
        scored = run.score(*labelled, *anchors, *batch.strong)
        x_scored, scored = (scored[0], scored[1:]) if labelled else (None, scored)
        anchored, variants = scored[: len(anchors)], scored[len(anchors) :]
        p = self._opinion(run, batch, anchored, variants, x_scored, learn=not self.target_gradient)
        target = self._target(p, run, batch, x_scored)
        per_view = self._distances(variants, target.value)
        chosen = self.over.choose(per_view)  # (J, B)
        picked = _picked(target.value, chosen) if target.value.ndim == 3 else target.value
        beside = anchors if self.target_gradient or self.trains_anchors else ()
        views, taught = self.lesson(
            run, batch, Target(picked, target.keep), _picked(batch.strong, chosen), _picked(per_view, chosen)
        )
        x, *rest = self.train_pass(run, batch.x, *beside, *views)
        anchored, trained = rest[: len(beside)], rest[len(beside) :]
        if self.target_gradient:
            taught = target = self._taught_again(run, batch, target.keep, anchored, trained, x)
        value = self._distances(trained, taught.value).mean(0)
        terms, unlabeled = self._terms(run, batch, x, anchored, trained, taught, value)
        return Losses(terms, _seen(batch, p, target, per_view, chosen[0], unlabeled))

    def _taught_again(
        self, run: Run, batch: Batch, keep: Tensor, anchored: Sequence[Tensor], trained: Sequence[Tensor], x: Tensor
    ) -> Target:
        """The target from the pass that learns, so that it learns too; whom it is taught stays, how much does not."""
        again = self.targets(self._opinion(run, batch, anchored, trained, x))
        return Target(again.value, again.keep if again.keep.is_floating_point() else keep)

    def _target(self, p: Tensor, run: Run, batch: Batch, x: Tensor | None) -> Target:
        target = self.teach(p, run, batch, x)
        if wrong := mistakes.of_target(type(self).__name__, target, len(batch.index), p.shape[-1]):
            raise UsageError(wrong)
        return target

    def _opinion(
        self, run: Run, batch: Batch, anchored: Sequence[Tensor], variants: Sequence[Tensor], x: Tensor | None,
        learn: bool = True,
    ) -> Tensor:  # fmt: skip
        p = self.opinion(run, batch, anchored, variants)
        p = p if self.target_gradient else p.detach()
        return p if batch.target is not None else self.aligned(run, batch, p, x, learn)

    def aligned(self, run: Run, batch: Batch, p: Tensor, x: Tensor | None = None, learn: bool = True) -> Tensor:
        """p with its bias taken out, where `align` says so; a `prepare` that makes targets calls it itself."""
        if not self.align:
            return p
        alignment = part(run, Alignment, "alignment")
        aligned: Tensor = alignment(p)
        if learn:
            alignment.update(p.detach(), self.classes_of_labelled(x, batch.y, p.shape[1]), run.mean)
        return aligned

    def _distances(self, views: Sequence[Tensor], target: Tensor) -> Tensor:
        each = target if target.ndim == 3 else [target] * len(views)
        found = [type(self).distance(view, t) for view, t in zip(views, each, strict=True)]
        if wrong := mistakes.of_distances(type(self).__name__, found, len(views[0])):
            raise UsageError(wrong)
        return torch.stack(found)  # (K, B)

    def _terms(
        self, run: Run, batch: Batch, x: Tensor, anchored: Sequence[Tensor], trained: Sequence[Tensor], taught: Target,
        value: Tensor,
    ) -> tuple[dict[str, Tensor], Tensor]:  # fmt: skip
        """All terms, and the unlabelled one before its weight: a mean over all B images, one not kept counts as 0."""
        unlabeled = (taught.keep * value).mean() * (len(value) / len(batch.index))
        terms = {"supervised": self.supervised(run, x, batch.y), "unlabeled": self.ramped(run, self.weight) * unlabeled}
        return terms | self.more_terms(run, batch, taught, anchored, trained), unlabeled

    def ramped(self, run: Run, weight: float) -> float | Tensor:
        """A weight, times how far its `ramp` has come."""
        return weight * (run.progress / self.ramp).clamp(max=1.0) if self.ramp else weight


def _seen(batch: Batch, p: Tensor, target: Target, per_view: Tensor, winner: Tensor, unlabeled: Tensor) -> Seen:
    taken_for = target.value.detach() if target.value.ndim < 3 else target.value.detach().mean(0)
    taken_for = taken_for if batch.guess is None else batch.guess
    guess = p.detach() if batch.target is None else batch.guess
    return Seen(taken_for, target.keep, per_view.detach(), winner, unlabeled.detach(), guess)


def _picked(views: Tensor, chosen: Tensor) -> Tensor:
    """Of (K, B, ...) the chosen ones (J, B): (J, B, ...)."""
    return views[chosen, torch.arange(chosen.shape[1], device=chosen.device)]


P = TypeVar("P", bound=nn.Module)


def part(run: Run, kind: type[P], name: str) -> P:
    """A part of the method's state by name."""
    found = run.state[name] if isinstance(run.state, nn.ModuleDict) and name in run.state else None
    if not isinstance(found, kind):
        it = f"it is a {type(found).__name__}" if found is not None else "there is none of that name"
        raise UsageError(f"part '{name}' is asked for, a {kind.__name__}, and {it}: give it in `parts`, by name")
    return found

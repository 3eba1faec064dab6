"""What the bounds need of a run's data: risks on both pools and on the test set, and the norms of images and views.

The K views are those of the run's own policy, drawn from streams of their own. `epsilon` bounds the outputs as the
paper wants it; the sharp form takes the plain probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from maxmatch.augment import ResizedCrop
from maxmatch.data.plan import Plan
from maxmatch.evaluate.robust import robust_views
from maxmatch.theory import risks
from maxmatch.theory.bounds import Bound
from maxmatch.theory.norms import largest_input
from maxmatch.train.finished import Finished

CHUNK = 512  # images whose views are made at a time; part of the stream

Indices = npt.NDArray[np.int64]
Tell = Callable[[int], None]


class Outputs(NamedTuple):
    """Probabilities of images (N, C) and of their views (K, N, C), and the largest norms of what the net saw."""

    clean: Tensor
    views: Tensor
    input_norm: float
    view_norm: float


@dataclass(frozen=True)
class OnTest:
    """Proposition 1 on the test set, for each number of views from 1 to K."""

    images: int
    of: int
    error: float  # shares, not percent
    robust_risk: tuple[float, ...]
    sharp: tuple[Bound, ...]
    sharp_hard: tuple[Bound, ...]  # with the image's most likely class as its views' target, as MaxMatch trains
    corrected: Bound
    printed: Bound


@dataclass(frozen=True)
class Measured:
    """All of a run that enters the bounds beside its network."""

    classes: int
    views: int
    labelled: int
    unlabelled: int
    looked_at: int  # of the unlabelled images
    epsilon: float
    consistency_risk: tuple[float, ...]  # R_U of the bounded outputs, for 1 to K views
    labelled_risk: float  # R_L as the theorems have it: the cross-entropy of the softmax of the bounded outputs
    input_norm: float
    view_norm: float
    test: OnTest | None


def measure(finished: Finished, k: int, epsilon: float, most: int, advance: Tell = lambda count: None) -> Measured:
    """Measure on all labelled and at most `most` unlabelled and test images, drawn by the run's seed; 0 means all."""
    split, images = finished.split, finished.images
    pool = some(split.unlabelled, most, finished.recipe.train.seed)
    unlabelled = pool_outputs(finished, pool, k, "unlabelled", advance)
    labelled = pool_outputs(finished, split.labelled, k, "labelled", advance)
    labels = images.y[torch.from_numpy(split.labelled)]
    f_clean, f_views = risks.bounded(unlabelled.clean, epsilon), risks.bounded(unlabelled.views, epsilon)
    return Measured(
        classes=len(finished.classifier.classes),
        views=k,
        labelled=len(split.labelled),
        unlabelled=len(split.unlabelled),
        looked_at=len(pool),
        epsilon=epsilon,
        consistency_risk=tuple(risks.consistency_risk(f_clean, f_views[:count]) for count in range(1, k + 1)),
        labelled_risk=risks.score_cross_entropy(risks.bounded(labelled.clean, epsilon), labels).mean().item(),
        input_norm=max(unlabelled.input_norm, labelled.input_norm),
        view_norm=max(unlabelled.view_norm, labelled.view_norm),
        test=on_test(finished, k, epsilon, most, advance),
    )


def on_test(finished: Finished, k: int, epsilon: float, most: int, advance: Tell) -> OnTest | None:
    """Both sides of Proposition 1 on the same test images, so that it holds exactly; None where there are none."""
    images, seed = finished.images, finished.recipe.train.seed
    if images.test_x is None or images.test_y is None or not len(images.test_x):
        return None
    index = torch.from_numpy(some(np.arange(len(images.test_x)), most, seed))
    x, labels = images.test_x[index].to(finished.device), images.test_y[index]
    clean = _probabilities(finished, x)
    advance(len(x))
    seen = []
    for view in robust_views(x, finished.views, k, Plan(seed)):
        seen.append(_probabilities(finished, view))
        advance(len(x))
    views = torch.stack(seen)

    def bound(form: risks.Form, count: int = k) -> Bound:
        return risks.proposition_1_on(form, clean, views[:count], labels, epsilon)

    return OnTest(
        images=len(x),
        of=len(images.test_x),
        error=(clean.argmax(-1) != labels).double().mean().item(),
        robust_risk=tuple(risks.robust_risk(views[:count], labels) for count in range(1, k + 1)),
        sharp=tuple(bound("sharp", count) for count in range(1, k + 1)),
        sharp_hard=tuple(bound("sharp, hard", count) for count in range(1, k + 1)),
        corrected=bound("corrected"),
        printed=bound("printed"),
    )


def pool_outputs(finished: Finished, index: Indices, k: int, name: str, advance: Tell) -> Outputs:
    """What the net says of training images and of K strong views of each."""
    parts = []
    for clean, views in _pictures(finished, index, k, name):
        seen = [finished.classifier.preprocessing(images) for images in (clean, *views)]
        norms = [largest_input(images) for images in seen]
        probabilities = torch.stack([_probabilities(finished, images) for images in (clean, *views)])
        parts.append((probabilities, norms[0], max(norms[1:])))
        advance(len(clean) * (k + 1))
    whole = torch.cat([probabilities for probabilities, _, _ in parts], 1)
    return Outputs(whole[0], whole[1:], max(part[1] for part in parts), max(part[2] for part in parts))


def some(index: Indices, most: int, seed: int) -> Indices:
    """At most `most` of the indices, drawn by the seed, in their order; all for 0."""
    if not 0 < most < len(index):
        return index
    drawn = np.random.default_rng(seed).choice(len(index), most, replace=False)
    return index[np.sort(drawn)]


def passes(finished: Finished, k: int, most: int) -> int:
    """How many images go through the net."""
    test = finished.images.test_x
    counts = [len(finished.split.unlabelled), 0 if test is None else len(test)]
    return (k + 1) * (sum(min(n, most) if most else n for n in counts) + len(finished.split.labelled))


def _pictures(finished: Finished, index: Indices, k: int, name: str) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Images (B, C, H, W) and K views of them, a chunk at a time."""
    views, plan, device = finished.views, Plan(finished.recipe.train.seed), finished.device
    for number, first in enumerate(range(0, len(index), CHUNK)):
        part = index[first : first + CHUNK]
        slots, sizes = finished.images.take(part)
        slots, sizes = slots.to(device), None if sizes is None else sizes.to(device)
        clean = slots
        if sizes is not None and isinstance(views.weak, ResizedCrop):  # pictures in slots: their middle is judged
            clean = views.weak.apply(slots, views.weak.centre(sizes, finished.images.middle))
        draws = [("weak", views.weak_uniforms), *((str(view), views.strong_uniforms) for view in range(k))]
        weak, *strong = (
            torch.from_numpy(plan.uniforms(f"theory/{name}/{stream}", number, (CHUNK, count))[: len(part)]).to(device)
            for stream, count in draws
        )
        yield clean, [views.strong_views(slots, u[None], weak, sizes=sizes).images[0] for u in strong]


def _probabilities(finished: Finished, images: Tensor) -> Tensor:
    """No less than the least float, where softmax gives 0 and the loss no number: f may be that as well."""
    return torch.softmax(finished.logits(images).double(), -1).clamp_min(torch.finfo(torch.float64).tiny).cpu()

"""Unlabelled images and their K strong views as the saved model sees them: each view's loss, and what it was made by.

The views are those of `maxmatch predict --unlabeled`: drawn by the run's policy from an evaluation stream, so that the
page and the command say the same of an image. The loss of a view is the cross-entropy against what the model says of
the image itself; in training the weak view of a step has that part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from maxmatch.augment.ops import OPS
from maxmatch.data.plan import Plan
from maxmatch.train.finished import Finished
from maxmatch.train.unlabelled import CHUNK, by_worth, judged_images, view_draws


class Pool(NamedTuple):
    """N images of the pool: position, label and confidence of each (N,); loss and label of its K views (K, N).

    `truth` is the hidden label, -1 where there is none; `op` (K, N, n) are the operations of each view.
    """

    position: Tensor
    label: Tensor
    confidence: Tensor
    truth: Tensor
    view_loss: Tensor
    view_label: Tensor
    op: Tensor
    total: int  # how many images have no label in all

    @property
    def worst(self) -> Tensor:
        """The loss of the worst view (N,): how inconsistent an image is."""
        return self.view_loss.amax(0)

    @property
    def disagreement(self) -> Tensor:
        """The share of an image's views whose class is another one (N,)."""
        return (self.view_label != self.label).double().mean(0)

    @property
    def next_first(self) -> Tensor:
        """Places in this pool, what to label next first, as `predict --unlabeled` sorts them."""
        return by_worth(self.confidence, self.disagreement)

    def judged(self, finished: Finished, some: Tensor) -> Tensor:
        """Some of the images as the net judges them."""
        return judged_images(finished, self.position[some])[0]


class Fooled(NamedTuple):
    """One operation: how many views had it, how many of those changed the class, and their mean loss."""

    name: str
    views: int
    changed: int
    loss: float


class Shown(NamedTuple):
    """An image of the gallery: its place in the pool, its pixels, and the pixels and names of its K views."""

    place: int
    image: Tensor
    views: list[Tensor]
    names: list[list[str]]


def judge_pool(finished: Finished, position: npt.NDArray[np.int64], k: int, total: int) -> Pool:
    """Ask the model of images of the pool, in their order, and of k strong views of each."""
    plan = Plan(finished.recipe.train.seed)
    parts = [
        _judge_chunk(finished, plan, int(number), torch.from_numpy(position[position // CHUNK == number]), k)
        for number in np.unique(position // CHUNK)
    ]
    one = [torch.cat(columns) for columns in zip(*(part[:3] for part in parts), strict=True)]
    views = [torch.cat(columns, 1) for columns in zip(*(part[3:] for part in parts), strict=True)]
    where = torch.from_numpy(position)
    return Pool(where, one[1], one[2], finished.images.y[where], views[0], views[1], views[2], total)


def fooled_by(pool: Pool) -> list[Fooled]:
    """What each operation does to the class, the worst first. A view with two operations counts for both."""
    changed = pool.view_label != pool.label
    found = []
    for code in sorted(set(pool.op.flatten().tolist())):
        has = (pool.op == code).any(-1)
        if OPS[code] == "identity":
            has = (pool.op == code).all(-1)  # nothing was applied but flip, shift and cutout
        if has.any():
            loss = float(pool.view_loss[has].mean())
            name = "none" if OPS[code] == "identity" else OPS[code]
            found.append(Fooled(name, int(has.sum()), int((changed & has).sum()), loss))
    return sorted(found, key=lambda one: (-one.changed / one.views, -one.loss))


def show(finished: Finished, pool: Pool, places: list[int]) -> list[Shown]:
    """Images of the pool with the pixels of their views, made again from the same draws."""
    plan, k = Plan(finished.recipe.train.seed), len(pool.view_loss)
    found = []
    for place in places:
        index = pool.position[place : place + 1]
        number = int(index) // CHUNK
        image, slots, sizes = judged_images(finished, index)
        weak = view_draws(finished, plan, number, index, "weak")
        views, names = [], []
        for view in range(k):
            u = view_draws(finished, plan, number, index, str(view))
            strong = finished.views.strong_views(slots, u[None], weak, sizes=sizes).images[0, 0]
            draw = finished.views.strong.sample(u[:, finished.views.weak_uniforms :], (image.shape[2], image.shape[3]))
            views.append(strong.cpu())
            names.append(finished.views.strong.describe(draw)[0])
        found.append(Shown(place, image[0].cpu(), views, names))
    return found


def _judge_chunk(finished: Finished, plan: Plan, number: int, index: Tensor, k: int) -> tuple[Tensor, ...]:
    images, slots, sizes = judged_images(finished, index)
    confidence, label = torch.softmax(finished.logits(images).double(), -1).max(-1)
    weak = view_draws(finished, plan, number, index, "weak")
    losses, labels, ops = [], [], []
    for view in range(k):
        u = view_draws(finished, plan, number, index, str(view))[None]
        strong = finished.views.strong_views(slots, u, weak, sizes=sizes)
        logits = finished.logits(strong.images[0]).double()
        losses.append(functional.cross_entropy(logits, label, reduction="none").cpu())
        labels.append(logits.argmax(-1).cpu())
        ops.append(strong.op[0].cpu())
    return (index, label.cpu(), confidence.cpu(), torch.stack(losses), torch.stack(labels), torch.stack(ops))

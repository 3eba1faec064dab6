"""The world of the hand-worked tests: the net is the identity, so that an image is its own logits; two classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from maxmatch.methods.base import Batch, Method


class Table:
    """A run whose net is the identity; the teacher's is too, unless it is given. States are kept in float64."""

    def __init__(
        self,
        method: Method | None = None,
        images: int = 3,
        classes: int = 2,
        progress: float = 1.0,
        teacher: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> None:
        state = method.state(classes, images) if method else None
        self.state = state.double() if state is not None else None
        self.progress, self.step = torch.tensor(progress, dtype=torch.float64), torch.tensor(0)
        self._teacher = teacher

    def net(self, *groups: Tensor) -> list[Tensor]:
        return list(groups)

    def score(self, *groups: Tensor) -> list[Tensor]:
        return [group.detach() for group in groups]

    def teacher(self, *groups: Tensor) -> list[Tensor]:
        return [self._teacher(group.detach()) for group in groups]

    def mean(self, value: Tensor) -> Tensor:
        return value

    gather = share = pixels = mean

    def noise(self, images: Tensor) -> Tensor:
        return torch.randn_like(images)


class Watched(Table):
    """Notes which images the net and the teacher were shown."""

    def __init__(self, **options):
        super().__init__(**options)
        self.trained, self.taught, self.scored = [], [], []

    def net(self, *groups):
        self.trained.append(groups)
        return super().net(*groups)

    def score(self, *groups):
        self.scored.append(groups)
        return super().score(*groups)

    def teacher(self, *groups):
        self.taught.append(groups)
        return super().teacher(*groups)


def logits(*chances: float) -> Tensor:
    """Two logits an image, such that class 1 has the given probability."""
    p = torch.tensor(chances, dtype=torch.float64)
    return torch.stack([(1 - p).log(), p.log()], 1)


# Probabilities of class 1.
LABELLED, LABELS = (0.25, 0.5), (1, 0)
WEAK = (0.99, 0.02, 0.6)  # surely 1, surely 0, rather 1
STRONG = ((0.8, 0.3, 0.1), (0.45, 0.1, 0.2), (0.9, 0.6, 0.3))


def make_batch(k=3, weak=WEAK, strong=STRONG, labelled=LABELLED, labels=LABELS, index=None) -> Batch:
    views = torch.stack([logits(*view) for view in strong[:k]])
    index = torch.arange(views.shape[1]) if index is None else torch.tensor(index)
    return Batch(logits(*labelled), torch.tensor(labels), index, logits(*weak)[None], views)


def random_batch(seed: int, index: list[int], k: int = 1, classes: int = 3) -> Batch:
    """Random logits of as many images as the index has, some of them confident."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return 2 * torch.randn(*shape, classes, generator=generator, dtype=torch.float64)

    y = torch.randint(classes, (4,), generator=generator)
    return Batch(draw(4), y, torch.tensor(index), draw(1, len(index)), draw(k, len(index)))

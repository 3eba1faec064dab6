"""A run to work losses out by hand with: its net is the identity, an image (2, 1, 1) is its own two logits."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from maxmatch.methods.base import Batch, Mix


class Table:
    """Every pass reads the logits off; the teacher is twice as sure. `calls` says which passes were made, of what."""

    def __init__(self, progress: float = 1.0, state: nn.Module | None = None) -> None:
        self.progress, self.step, self.state = torch.tensor(progress), torch.tensor(0), state
        self.calls: list[tuple[str, tuple[Tensor, ...]]] = []

    def _read(self, name: str, groups: tuple[Tensor, ...]) -> list[Tensor]:
        self.calls.append((name, groups))
        return [group.flatten(1) for group in groups]

    def net(self, *groups: Tensor) -> list[Tensor]:
        return self._read("net", groups)

    def score(self, *groups: Tensor) -> list[Tensor]:
        return [logits.detach() for logits in self._read("score", groups)]

    def aside(self, *groups: Tensor) -> list[Tensor]:
        return self._read("aside", groups)

    def probe(self, *groups: Tensor) -> list[Tensor]:
        return self._read("probe", groups)

    def features(self, *groups: Tensor) -> list[Tensor]:
        return self._read("features", groups)

    def teacher(self, *groups: Tensor) -> list[Tensor]:
        return [2 * logits.detach() for logits in self._read("teacher", groups)]

    def mean(self, value: Tensor) -> Tensor:
        return value

    gather = share = pixels = mean

    def noise(self, images: Tensor) -> Tensor:
        return torch.randn_like(images)


def images(*chances: float) -> Tensor:
    """One image (2, 1, 1) for each chance of class 1; its logits sum to 0."""
    half = torch.tensor([log_odds(p) / 2 for p in chances], dtype=torch.float64)
    return torch.stack([-half, half], 1)[..., None, None]


def log_odds(p: float) -> float:
    return math.log(p / (1 - p))


def chance(odds: float) -> float:
    return 1 / (1 + math.exp(-odds))


def between(one: float, other: float, weight: float) -> float:
    return weight * one + (1 - weight) * other


def cross_entropy(q: float, t: float) -> float:
    """Of the chances q and t of class 1."""
    return -t * math.log(q) - (1 - t) * math.log(1 - q)


def sharper(p: float) -> float:
    """At temperature 0.5."""
    return p**2 / (p**2 + (1 - p) ** 2)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def order(*partners: int) -> Tensor:
    """Draws whose argsort makes the given image the partner of each."""
    drawn = torch.empty(len(partners))
    drawn[list(partners)] = torch.linspace(0, 0.9, len(partners))
    return drawn


X, Y = (0.25, 0.5), (1, 0)
WEAK = (0.99, 0.02, 0.6)
VIEWS = ((0.8, 0.3, 0.1), (0.5, 0.15, 0.95))


def make_batch(k: int, partners: tuple[int, ...] = (), weights: tuple[float, ...] = ()) -> Batch:
    mix = Mix(order(*partners), torch.tensor(weights, dtype=torch.float64))
    strong = torch.stack([images(*view) for view in VIEWS[:k]])
    x_strong = images(*(1 - p for p in X))
    return Batch(images(*X), torch.tensor(Y), torch.arange(3), images(*WEAK)[None], strong, x_strong, mix)

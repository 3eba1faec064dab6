"""MoCo v2 (Chen et al., 2020): tell the other view of an image from the views of thousands of others.

The query encoder is the run's net, with an MLP in place of its head; the momentum encoder is the run's average, which
`run.teacher` asks, and `train.ema_decay` is its momentum; the queue of past keys is the method's state. So a
pretraining is an ordinary run, by the ordinary loop. Its update of the average after each step is MoCo's before the
next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from maxmatch.methods.base import Batch, Losses, Method, Needs, Run
from maxmatch.methods.ranges import Count, Positive
from maxmatch.pretrain.shuffle import parts_of, shuffled_pass


class Queue(nn.Module):
    """The keys of the last steps, (size, dimension), the oldest replaced first; it begins with random directions."""

    keys: Tensor
    next: Tensor

    def __init__(self, size: int, dimension: int) -> None:
        super().__init__()
        self.register_buffer("keys", functional.normalize(torch.randn(size, dimension), dim=1))
        self.register_buffer("next", torch.zeros((), dtype=torch.int64))  # on the device: the host never asks

    @torch.no_grad()
    def push(self, keys: Tensor) -> None:
        """Put keys (B, dimension) in the places of the oldest; of more than the queue holds, the last."""
        size = len(self.keys)
        keys = keys[-size:]
        places = (self.next + torch.arange(len(keys), device=keys.device)) % size
        self.keys.index_copy_(0, places, keys.to(self.keys.dtype))
        self.next.copy_((self.next + len(keys)) % size)


@dataclass(frozen=True)
class MoCo(Method):
    """Cross-entropy of telling an image's key from the queue's, by the cosines with its query over `temperature`.

    The paper's augmentations are the policies `moco` and `moco-small`; its momentum is `train.ema_decay`. Weights of
    convolutions and linear layers alone decay, as everywhere here; the paper's code has decay on all parameters.
    """

    year: ClassVar[int] = 2020
    formula: ClassVar[str] = "mean_i -log exp(q_i k_i / T) / (exp(q_i k_i / T) + sum_j exp(q_i queue_j / T))"
    terms: ClassVar[tuple[str, ...]] = ("contrastive",)
    taught_by_average: ClassVar[bool] = True

    temperature: Positive = 0.2
    queue: Count = 65_536
    dimension: Count = 128
    companies: Count = 8  # in how many parts the keys of a step are normalised, whatever the ranks; the paper's GPUs

    @property
    def needs(self) -> Needs:
        return Needs(strong=2, labelled=False, mix=1.0)  # the order of `mix` deals the keys' images

    @property
    def projection(self) -> int:
        return self.dimension

    def state(self, classes: int, images: int, features: int = 0) -> nn.Module:
        return Queue(self.queue, self.dimension)

    def losses(self, run: Run, batch: Batch) -> Losses:
        assert isinstance(run.state, Queue)
        assert batch.mix is not None
        (queries,) = run.net(batch.strong[0])
        u = batch.mix.order[: len(batch.index) * run.ranks]
        keys = shuffled_pass(
            lambda images: run.teacher(images)[0], batch.strong[1], u, run.rank, run.ranks, run.gather,
            parts_of(len(batch.index), run.ranks, run.companies, self.companies),
        )  # fmt: skip
        queries, keys = unit(queries), unit(keys)
        loss = info_nce(queries, keys, run.state.keys.clone(), self.temperature).mean()
        run.state.push(run.gather(keys))
        return Losses({"contrastive": loss})


def info_nce(queries: Tensor, keys: Tensor, others: Tensor, temperature: float) -> Tensor:
    """Cross-entropy (B,) of telling keys (B, D) from `others` (N, D) by their products with queries (B, D).

    >>> q = torch.eye(2)
    >>> info_nce(q, q, -q, temperature=1.0)  # products 1 with the key, 0 and -1 with the others
    tensor([0.4076, 0.4076])
    """
    right = (queries * keys).sum(1, keepdim=True)
    wrong = queries @ others.to(queries.dtype).T
    logits = torch.cat([right, wrong], 1) / temperature
    return torch.logsumexp(logits, 1) - logits[:, 0]


def unit(points: Tensor) -> Tensor:
    """Points (B, D) at length 1, in float32 at least."""
    return functional.normalize(points.to(torch.promote_types(points.dtype, torch.float32)), dim=1)

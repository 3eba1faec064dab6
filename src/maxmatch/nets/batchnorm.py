"""BatchNorm with three modes that the loop controls: train, score and eval.

`score` is what select-then-train needs and torch has no name for: batch statistics as in training, running ones
untouched, so that they move once a step however many passes there are. Nets from elsewhere keep their nn.BatchNorm and
are scored the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Mode = Literal["train", "score", "eval"]


class BatchNorm(nn.Module):
    """Normalise (B, C, ...) per channel. `momentum` is torch's: the weight of the new statistics."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, momentum: float = 0.001, eps: float = 1e-3) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.mode: Mode = "train"
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = (None, None) if self.mode == "score" else (self.running_mean, self.running_var)
        return functional.batch_norm(x, mean, var, self.weight, self.bias, self.mode != "eval", self.momentum, self.eps)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, momentum={self.momentum:g}, eps={self.eps:g}"


def set_mode(net: nn.Module, mode: Mode) -> None:
    """Put a net into one of the three modes; all that is not BatchNorm (dropout) is on in `train` alone."""
    net.train(mode == "train")
    for module in net.modules():
        if isinstance(module, BatchNorm):
            module.mode = mode
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train(mode != "eval")
            module.track_running_stats = mode != "score"


@contextmanager
def still(net: nn.Module) -> Iterator[None]:
    """Within: `train` mode, dropout and all, but running statistics stay as they are."""
    set_mode(net, "score")
    net.train()
    try:
        yield
    finally:
        set_mode(net, "train")


@contextmanager
def scoring(net: nn.Module, afterwards: Mode = "train") -> Iterator[None]:
    """Within: `score` mode and no gradient. Afterwards: `train` again, or another mode."""
    set_mode(net, "score")
    try:
        with torch.no_grad():
            yield
    finally:
        set_mode(net, afterwards)

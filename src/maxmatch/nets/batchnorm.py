"""BatchNorm with three modes that the loop controls: train, score and eval.

`score` is what select-then-train needs and torch has no name for: batch statistics as in training, running ones
untouched, so that they move once a step however many passes there are. Nets from elsewhere keep their nn.BatchNorm and
are scored the same way. `synchronise` lets all processes of a run take the statistics of the whole batch, on a CPU too.
`freeze` keeps all BatchNorm of a net in `eval`, whichever mode is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from maxmatch.errors import UsageError

Mode = Literal["train", "score", "eval"]
FROZEN = "frozen"  # a mark that layers from elsewhere bear too
Stacked = Callable[[Tensor], Tensor]  # a tensor to those of all ranks (N, ...), with their gradients


class BatchNorm(nn.Module):
    """Normalise (B, C, ...) per channel. `momentum` is torch's: the weight of the new statistics."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, momentum: float = 0.001, eps: float = 1e-3) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.mode: Mode = "train"
        self.stacked: Stacked | None = None
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = (None, None) if self.mode == "score" else (self.running_mean, self.running_var)
        if self.stacked is not None and self.mode != "eval":
            return normalised(x, mean, var, self.weight, self.bias, self.momentum, self.eps, self.stacked)
        return functional.batch_norm(x, mean, var, self.weight, self.bias, self.mode != "eval", self.momentum, self.eps)

    def train(self, mode: bool = True) -> Self:
        """`net.train()` and `net.eval()` mean what they mean of any net: two of the three modes."""
        self.mode = "train" if mode else "eval"
        return super().train(mode)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, momentum={self.momentum:g}, eps={self.eps:g}"


class Synchronised(nn.modules.batchnorm._BatchNorm):
    """An nn.BatchNorm of a net from elsewhere, over all ranks."""

    stacked: Stacked

    def forward(self, x: Tensor) -> Tensor:
        """As nn.BatchNorm, but that the batch is that of all ranks."""
        if not self.training:
            return super().forward(x)
        mean, var, momentum = None, None, self.momentum
        if self.track_running_stats:
            mean, var = self.running_mean, self.running_var
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
                momentum = 1 / int(self.num_batches_tracked) if momentum is None else momentum  # as nn.BatchNorm has it
        momentum = 0.0 if momentum is None else momentum
        return normalised(x, mean, var, self.weight, self.bias, momentum, self.eps, self.stacked)

    def _check_input_dim(self, x: Tensor) -> None:
        pass


def synchronise(net: nn.Module, stacked: Stacked) -> None:
    """Let every BatchNorm of a net take the statistics of the whole batch, of which each rank sees an equal part."""
    for module in net.modules():
        if type(module) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            module.__class__ = Synchronised  # in place: whoever holds the module, and its names in a file, stay as is
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise UsageError(
                f"train.sync_batchnorm = true: this net has {type(module).__name__}, which can't be: leave it out"
            )
        if isinstance(module, BatchNorm | Synchronised):
            module.stacked = stacked


def normalised(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None, bias: Tensor | None,
    momentum: float, eps: float, stacked: Stacked,
) -> Tensor:  # fmt: skip
    """(B, C, ...) by the statistics of all ranks' images, which move the running ones where those are given."""
    exact = x if x.dtype == torch.float64 else x.float()
    var, mean = torch.var_mean(exact, [d for d in range(x.ndim) if d != 1], correction=0)
    parts = stacked(torch.stack([mean, var]))  # (N, 2, C): one message
    mean = parts[:, 0].mean(0)
    var = (parts[:, 1] + (parts[:, 0] - mean).square()).mean(0)
    if running_mean is not None and running_var is not None:
        many = len(parts) * x.numel() // x.shape[1]
        with torch.no_grad():
            running_mean.lerp_(mean.detach().to(running_mean.dtype), momentum)
            running_var.lerp_((var.detach() * (many / max(many - 1, 1))).to(running_var.dtype), momentum)
    shape = (1, -1, *[1] * (x.ndim - 2))
    y = (exact - mean.view(shape)) * torch.rsqrt(var + eps).view(shape)
    if weight is not None and bias is not None:
        y = y * weight.view(shape) + bias.view(shape)
    return y.to(x.dtype)


def has_batchnorm(net: nn.Module) -> bool:
    """Whether any layer of a net is a BatchNorm."""
    return any(isinstance(module, BatchNorm | nn.modules.batchnorm._BatchNorm) for module in net.modules())


def freeze(net: nn.Module) -> None:
    """Let every BatchNorm of a net normalise by its running statistics, and leave them as they are, in all modes."""
    for module in net.modules():
        if isinstance(module, BatchNorm | nn.modules.batchnorm._BatchNorm):
            setattr(module, FROZEN, True)


def is_frozen(module: nn.Module) -> bool:
    """Whether a layer is a BatchNorm that `freeze` was told of."""
    return bool(getattr(module, FROZEN, False))


def running_statistics(net: nn.Module) -> list[Tensor]:
    """All running means and variances of a net, the tensors themselves."""
    names = ("running_mean", "running_var")
    return [buffer for name, buffer in net.named_buffers() if name.rpartition(".")[2] in names]


def set_mode(net: nn.Module, mode: Mode) -> None:
    """Put a net into one of the three modes; all that is not BatchNorm (dropout) is on in `train` alone."""
    _set(net, mode, rest=mode == "train")


def _set(net: nn.Module, mode: Mode, rest: bool) -> None:
    """BatchNorm to a mode; the rest of the net as in training, or not."""
    net.train(rest)
    for module in net.modules():
        own: Mode = "eval" if is_frozen(module) else mode
        if isinstance(module, BatchNorm):
            module.mode = own
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train(own != "eval")
            module.track_running_stats = own != "score"


@contextmanager
def still(net: nn.Module) -> Iterator[None]:
    """Within: `train` mode, dropout and all, but running statistics stay as they are."""
    _set(net, "score", rest=True)
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

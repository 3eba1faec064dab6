"""What turns gradients into an update: SGD as in the papers, or Muon beside it, which learns more in a short run.

Both read the learning rate from a tensor, skip the update where they are told so by one, and have their momentum from
the start, so that a captured step replays them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor, nn

from maxmatch.train.recipe import TrainSettings

# Each round takes a singular value s to a s + b s^3 + c s^5; five of these (Jordan et al.) end between .7 and 1.2.
ROUNDS, COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)


class Optimizer:
    """SGD, with decay on the weights of convolutions and linear layers alone; with `muon` most convolutions are its."""

    def __init__(self, net: nn.Module, state: nn.Module | None, lr: Tensor, settings: TrainSettings) -> None:
        parameters = [*net.parameters(), *(state.parameters() if state is not None else ())]
        turned = orthogonal_weights(net) if settings.optimizer == "muon" else []
        self._muon = Muon(turned, lr, settings.momentum, settings.nesterov) if turned else None
        left = [p for p in parameters if not any(p is t for t in turned)]
        groups = [
            {"params": [p for p in left if p.ndim > 1], "weight_decay": settings.weight_decay},
            {"params": [p for p in left if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self._sgd = torch.optim.SGD(groups, lr=lr, momentum=settings.momentum, nesterov=settings.nesterov, fused=True)
        ordered = [p for group in groups for p in group["params"]]  # type: ignore[attr-defined]
        for parameter in ordered:
            self._sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self.momenta = [self._sgd.state[p]["momentum_buffer"] for p in ordered]  # for the checkpoint
        self.momenta += self._muon.momenta if self._muon else []

    def zero_grad(self) -> None:
        """Let go of all gradients."""
        self._sgd.zero_grad(set_to_none=True)
        for weight in self._muon.weights if self._muon else ():
            weight.grad = None

    def step(self, skip: Tensor) -> None:
        """Update the parameters from their gradients; where `skip` () is 1, don't."""
        # torch's gradient scaler speaks to the fused kernel the same way
        self._sgd.found_inf = skip  # type: ignore[attr-defined]
        self._sgd.step()
        if self._muon:
            self._muon.step(skip)


class Muon:
    """Momentum made orthogonal before it is taken as a step (Jordan et al., 2024).

    All directions of a weight matrix (outputs, inputs x 3 x 3) move alike then, not only those with large gradients.
    Here a weight also keeps the length that it began with, since BatchNorm makes any other pointless: for weights drawn
    after He et al. a step of `lr` turns it by about lr sqrt(outputs / 2 inputs).
    """

    def __init__(self, weights: Sequence[Tensor], lr: Tensor, momentum: float, nesterov: bool) -> None:
        self.weights = list(weights)
        self.momenta = [torch.zeros_like(weight) for weight in weights]
        self._lr, self._momentum, self._nesterov = lr, momentum, nesterov
        order = sorted(range(len(weights)), key=lambda i: tuple(weights[i].shape))
        self._alike = [list(group) for _, group in groupby(order, lambda i: weights[i].shape)]  # one product for each
        self._lengths = [_length(_stacked([weights[i] for i in alike])) for alike in self._alike]

    @torch.no_grad()
    def step(self, skip: Tensor) -> None:
        """Update the weights from their gradients; where `skip` () is 1, don't."""
        for alike, length in zip(self._alike, self._lengths, strict=True):
            places, buffers = [self.weights[i] for i in alike], [self.momenta[i] for i in alike]
            weights, gradients, before = _stacked(places), _stacked([_gradient(p) for p in places]), _stacked(buffers)
            momentum = self._momentum * before + gradients
            direction = gradients + self._momentum * momentum if self._nesterov else momentum
            moved = weights - self._lr.to(weights.dtype) * orthogonal(direction)
            moved *= length / _length(moved)
            _put(places, torch.where(skip > 0, weights, moved))
            _put(buffers, torch.where(skip > 0, before, momentum))


def orthogonal_weights(net: nn.Module) -> list[Tensor]:
    """The weights that Muon takes: those of convolutions without groups, but not of the one that sees the images."""
    return [m.weight for m in net.modules() if isinstance(m, nn.Conv2d) and m.in_channels > 4 and m.groups == 1]


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices (N, rows, columns) with the same singular vectors and all singular values near 1."""
    a, b, c = COEFFICIENTS
    x = matrices / _length(matrices).clamp_min(1e-12)
    x = x.bfloat16() if x.is_cuda and x.dtype == torch.float32 else x
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


def _length(matrices: Tensor) -> Tensor:
    length: Tensor = torch.linalg.matrix_norm(matrices, keepdim=True)
    return length


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Weights of one shape as (N, outputs, 3 x 3 x inputs): as channels-last has them in memory."""
    return torch.stack([t.detach().permute(0, 2, 3, 1).flatten(1) for t in tensors])


def _put(tensors: Sequence[Tensor], values: Tensor) -> None:
    """The reverse of `_stacked`, in place."""
    places = [t.detach().permute(0, 2, 3, 1) for t in tensors]
    torch._foreach_copy_(places, [v.view(p.shape) for p, v in zip(places, values, strict=True)])

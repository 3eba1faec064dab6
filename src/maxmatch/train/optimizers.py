"""What turns gradients into an update: SGD as in the papers, Muon beside it for short runs, AdamW for finetuning.

All read the learning rate from a tensor, skip the update where they are told so by one, and have their momentum from
the start, so that a captured step replays them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from maxmatch.errors import UsageError
from maxmatch.nets import head_prefixes
from maxmatch.nets.batchnorm import has_batchnorm
from maxmatch.train.recipe import TrainSettings

# Each round takes a singular value s to a s + b s^3 + c s^5; five of these (Jordan et al.) end between .7 and 1.2.
ROUNDS, COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)
SQUARES = 0.999  # AdamW's average of squared gradients, as everybody takes it
SMALL = 64  # rows: up to so many a product takes a GPU no longer than its launch


class Optimizer:
    """SGD or AdamW, with decay on what is a matrix or more, but for what the net excepts by `no_weight_decay`.

    With `muon` most convolutions are updated by Muon; with `head_lr` the head has a learning rate of its own.
    """

    def __init__(
        self,
        net: nn.Module,
        state: nn.Module | None,
        lr: Tensor,
        settings: TrainSettings,
        compiled: bool = False,
        head_lr: Tensor | None = None,
    ) -> None:
        parameters = [*net.parameters(), *(state.parameters() if state is not None else ())]
        turned = orthogonal_weights(net) if settings.optimizer == "muon" else []
        self._muon = Muon(turned, lr, settings.momentum, settings.nesterov, compiled) if turned else None
        head = _head(net) if head_lr is not None else []
        taken = {id(p) for p in (*turned, *head)}
        body = [p for p in parameters if id(p) not in taken]
        excepted = _excepted(net)
        decayed = {id(p) for p in (*body, *head) if p.ndim > 1 and id(p) not in excepted}
        groups: list[dict[str, Any]] = [
            {"params": [p for p in part if (id(p) in decayed) == decays], "weight_decay": decay, "lr": rate}
            for part, rate in ((body, lr), (head, head_lr))
            for decays, decay in ((True, settings.weight_decay), (False, 0.0))
            if part
        ]
        # Checkpoints know them by their places, which no exception may move.
        ordered = [p for part in (body, head) for whole in (True, False) for p in part if (p.ndim > 1) == whole]
        self._plain = _adamw(groups, lr, settings) if settings.optimizer == "adamw" else _sgd(groups, lr, settings)
        self.momenta = _begun(self._plain, ordered)  # for the checkpoint
        self.momenta += self._muon.momenta if self._muon else []

    def zero_grad(self) -> None:
        """Let go of all gradients."""
        self._plain.zero_grad(set_to_none=True)
        for weight in self._muon.weights if self._muon else ():
            weight.grad = None

    def step(self, skip: Tensor) -> None:
        """Update the parameters from their gradients; where `skip` () is 1, don't."""
        # torch's gradient scaler speaks to the fused kernels the same way
        self._plain.found_inf = skip  # type: ignore[attr-defined]
        self._plain.step()
        if self._muon:
            self._muon.step(skip)


def _sgd(groups: list[dict[str, Any]], lr: Tensor, settings: TrainSettings) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=lr, momentum=settings.momentum, nesterov=settings.nesterov, fused=True)


def _adamw(groups: list[dict[str, Any]], lr: Tensor, settings: TrainSettings) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=lr, betas=(settings.momentum, SQUARES), fused=True, capturable=lr.is_cuda)


def _begun(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """What an optimiser of torch's remembers of each parameter, from the start: the tensors themselves."""
    kept: list[Tensor] = []
    if isinstance(optimizer, torch.optim.SGD):
        for parameter in parameters:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return [optimizer.state[parameter]["momentum_buffer"] for parameter in parameters]
    for parameter in parameters:
        optimizer.state[parameter] |= {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        kept += optimizer.state[parameter].values()
    return kept


class Muon:
    """Momentum made orthogonal before it is taken as a step (Jordan et al., 2024).

    All directions of a weight matrix (outputs, 3 x 3 x inputs) move alike then, not only those with large gradients.
    Here a weight also keeps its length, since BatchNorm makes any other pointless: for weights drawn
    after He et al. a step of `lr` turns it by about lr sqrt(outputs / 2 inputs).
    """

    def __init__(
        self, weights: Sequence[Tensor], lr: Tensor, momentum: float, nesterov: bool, compiled: bool = False
    ) -> None:
        self.weights = list(weights)
        self._lr, self._momentum, self._nesterov = lr, momentum, nesterov
        ordered = sorted(weights, key=_rows)
        self._stacks = [Stack(list(alike)) for _, alike in groupby(ordered, lambda weight: max(SMALL, _rows(weight)))]
        self.momenta = [torch.zeros_like(stack.matrices) for stack in self._stacks]
        self._moved = torch.compile(self._move, dynamic=False) if compiled else self._move

    @torch.no_grad()
    def step(self, skip: Tensor) -> None:
        """Update the weights from their gradients; where `skip` () is 1, don't."""
        for stack, momentum in zip(self._stacks, self.momenta, strict=True):
            stack.load()
            moved, pushed = self._moved(stack.matrices, stack.gradients, momentum, skip)
            momentum.copy_(pushed)
            stack.matrices.copy_(moved)
            stack.store()

    def _move(self, weights: Tensor, gradients: Tensor, before: Tensor, skip: Tensor) -> tuple[Tensor, Tensor]:
        momentum = self._momentum * before + gradients
        direction = gradients + self._momentum * momentum if self._nesterov else momentum
        moved = weights - self._lr.to(weights.dtype) * orthogonal(direction)
        moved = moved * (_length(weights) / _length(moved).clamp_min(1e-12))
        return torch.where(skip > 0, weights, moved), torch.where(skip > 0, before, momentum)


class Stack:
    """Weights and their gradients as matrices (N, rows, columns) of one size, so that one product serves all of them.

    Turned so that rows are the fewer, and filled up with zeros, which change no other singular value.
    """

    def __init__(self, weights: list[Tensor]) -> None:
        self.weights = weights
        rows, columns = max(map(_rows, weights)), max(max(_shape(weight)) for weight in weights)
        self.matrices = weights[0].new_zeros(len(weights), rows, columns)
        self.gradients = torch.zeros_like(self.matrices)
        places = [_place(matrix, weight) for matrix, weight in zip(self.matrices, weights, strict=True)]
        # Copies of lists are one kernel where nothing is turned or filled up; the others go one by one.
        whole = [place.is_contiguous() for place in places]
        self._order = sorted(range(len(weights)), key=lambda i: not whole[i])
        self._whole = sum(whole)
        self._places = [places[i] for i in self._order]
        self._gradients = [_place(self.gradients[i], weights[i]) for i in self._order]

    def load(self) -> None:
        """Take in the weights and their gradients as they are now."""
        self._copy(self._places, self._ordered(self.weights))
        self._copy(self._gradients, self._ordered([_gradient(weight) for weight in self.weights]))

    def store(self) -> None:
        """Give the matrices back to the weights."""
        self._copy(self._ordered(self.weights), self._places)

    def _ordered(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [tensors[i].detach().permute(0, 2, 3, 1) for i in self._order]

    def _copy(self, to: list[Tensor], of: list[Tensor]) -> None:
        for part in (slice(self._whole), slice(self._whole, None)):
            if to[part]:
                torch._foreach_copy_(to[part], of[part])


def _place(matrix: Tensor, weight: Tensor) -> Tensor:
    """Where in a matrix a weight stands, as (outputs, 3, 3, inputs): as channels-last has it in memory."""
    outputs, columns = _shape(weight)
    part = matrix[: min(outputs, columns), : max(outputs, columns)]
    shape = weight.permute(0, 2, 3, 1).shape
    place: Tensor = torch.unflatten(part.mT if outputs > columns else part, 1, shape[1:])
    return place


def _excepted(net: nn.Module) -> set[int]:
    """The parameters that the net itself, or a part of it, wants without decay, such as embeddings of positions."""
    found: set[int] = set()
    for module in net.modules():
        if callable(names := getattr(module, "no_weight_decay", None)):
            wanted = set(names())
            found |= {id(parameter) for name, parameter in module.named_parameters() if name in wanted}
    return found


def _head(net: nn.Module) -> list[nn.Parameter]:
    prefixes = head_prefixes(net)
    return [parameter for name, parameter in net.named_parameters() if name.startswith(prefixes)]


def orthogonal_weights(net: nn.Module) -> list[Tensor]:
    """The weights that Muon takes: those of convolutions without groups, but not of the one that sees the images.

    Nor of a head: its length is how sure the net is. Where some have no bias, which is where BatchNorm follows, those
    that have one are left out. A weight that begins at 0 has no length to keep. SGD takes all that is left.
    """
    head = {id(p) for p in _head(net)} if hasattr(net, "pretrained_cfg") else set()  # a convolution in timm's alone
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d) and m.in_channels > 4 and m.groups == 1]
    convolutions = [m for m in convolutions if id(m.weight) not in head and m.weight.any()]
    unbiased = [m for m in convolutions if m.bias is None]
    if not convolutions or not has_batchnorm(net):
        raise UsageError(
            "train.optimizer = muon: it is for convolutions with BatchNorm, which this net lacks; type sgd"
        )
    return [m.weight for m in unbiased or convolutions]


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices (N, rows, columns) with the same singular vectors and all singular values but zeros near 1."""
    a, b, c = COEFFICIENTS
    x = matrices / _length(matrices).clamp_min(1e-12)
    x = x.bfloat16() if x.is_cuda and x.dtype == torch.float32 else x
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)


def _length(matrices: Tensor) -> Tensor:
    length: Tensor = torch.linalg.matrix_norm(matrices, keepdim=True)
    return length


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


def _shape(weight: Tensor) -> tuple[int, int]:
    return len(weight), weight[0].numel()


def _rows(weight: Tensor) -> int:
    return min(_shape(weight))

"""One step: draw the batch, let the method make its losses, update the net and its average.

`eager` is the truth and the default on the CPU. Nothing here waits for the device: the learning rate, the step number
and the skip of a non-finite update are tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from maxmatch.methods.base import Method
from maxmatch.nets.averaging import Average
from maxmatch.nets.batchnorm import scoring, set_mode
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train.batches import Batches
from maxmatch.train.draws import Draws, Row, Rows
from maxmatch.train.health import Health
from maxmatch.train.recipe import TrainSettings


class Runner:
    """What a method may touch: `methods.base.Run`, on one device."""

    def __init__(
        self,
        net: nn.Module,
        average: Average,
        preprocessing: Preprocessing,
        state: nn.Module | None,
        row: Row,
        bf16: bool,
    ) -> None:
        parameter = next(net.parameters())
        self.state = state
        self.progress, self.step = row["progress"], row["step"]
        self._net, self._average, self._preprocessing = net, average, preprocessing
        self._dtype = parameter.dtype
        device = parameter.device.type
        self._precision = (lambda: torch.autocast(device, torch.bfloat16)) if bf16 else nullcontext

    def net(self, *groups: Tensor) -> Sequence[Tensor]:
        return self._forward(self._net, groups)

    def score(self, *groups: Tensor) -> Sequence[Tensor]:
        with scoring(self._net):
            return self._forward(self._net, groups)

    def teacher(self, *groups: Tensor) -> Sequence[Tensor]:
        with torch.no_grad():
            return self._forward(self._average.net, groups)

    def pixels(self, images: Tensor) -> Tensor:
        return self._preprocessing(images, self._dtype)

    def mean(self, value: Tensor) -> Tensor:
        return value

    def gather(self, value: Tensor) -> Tensor:
        return value

    def _forward(self, net: nn.Module, groups: Sequence[Tensor]) -> Sequence[Tensor]:
        ready = [self.pixels(g) if g.dtype == torch.uint8 else g for g in groups]
        with self._precision():
            logits: Tensor = net(torch.cat(ready))
        return torch.split(logits, [len(g) for g in groups])


class Step:
    """Everything a step changes, and `step(t)`, which changes it."""

    def __init__(
        self,
        method: Method,
        batches: Batches,
        draws: Draws,
        net: nn.Module,
        preprocessing: Preprocessing,
        settings: TrainSettings,
        classes: int,
    ) -> None:
        device = next(net.parameters()).device
        self.method, self.batches, self.draws, self.net = method, batches, draws, net
        self.rows = Rows(draws, device)
        self.lr = self.rows.row["lr"]
        self.state = method.state(classes, len(batches.pool))
        if self.state is not None:
            self.state.to(device)
        assert not isinstance(settings.ema_decay, str)  # settled by recipe.resolve
        self.average = Average(net, settings.ema_decay)
        self.run = Runner(net, self.average, preprocessing, self.state, self.rows.row, settings.precision == "bf16")
        self.optimizer = _optimizer(net, self.state, self.lr, settings)
        views = max(k for k, _ in method.needs.choices())
        self.health = Health(method.terms, views, device)
        set_mode(net, "train")

    def __call__(self, t: int) -> None:
        self.rows.load(t)
        self._advance(self.draws.k(t))

    def _advance(self, k: int) -> None:
        """One step with k strong views, from the row that is loaded. Nothing here waits for the device."""
        batch, op = self.batches(self.rows.row, k)
        losses = self.method.losses(self.run, batch)
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(torch.stack(list(losses.terms.values())).sum())
        # The fused kernel skips the update where this is 1; torch's gradient scaler speaks to it the same way.
        self.optimizer.found_inf = self.health.guard(losses, self.run.step)  # type: ignore[attr-defined]
        self.optimizer.step()
        self.average.update()
        self.health.add(losses, op, self.batches.hidden[batch.index])

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint must hold, by name; the tensors themselves, so that loading can copy in place."""
        found = {f"net.{n}": t for n, t in self.net.state_dict().items()}
        found |= {f"average.{n}": t for n, t in self.average.net.state_dict().items()}
        if self.state is not None:
            found |= {f"state.{n}": t for n, t in self.state.state_dict().items()}
        for number, parameter in enumerate(p for group in self.optimizer.param_groups for p in group["params"]):
            found[f"momentum.{number}"] = self.optimizer.state[parameter]["momentum_buffer"]
        found |= {f"health.{n}": t for n, t in self.health.sums.items()}
        return found


def _optimizer(net: nn.Module, state: nn.Module | None, lr: Tensor, settings: TrainSettings) -> torch.optim.SGD:
    """SGD with decay on the weights of convolutions and linear layers alone. Momentum exists from the start.

    The fused kernel reads the learning rate from a tensor and skips the update where `found_inf` is 1.
    """
    parameters = [*net.parameters(), *(state.parameters() if state is not None else ())]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.SGD(groups, lr=lr, momentum=settings.momentum, nesterov=settings.nesterov, fused=True)
    for parameter in parameters:
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer

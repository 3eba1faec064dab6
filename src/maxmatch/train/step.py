"""One step: read the draws, make the batch, let the method make its losses, update the net, its average, the policy.

`eager` is the truth and the default on the CPU; `compiled` compiles the passes through the net and the making of the
batch; `captured` replays the whole compiled step as one CUDA graph. Nothing here waits for the device: the learning
rate, the step number and the skip of a non-finite update are tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from maxmatch.augment import proximity
from maxmatch.errors import UsageError
from maxmatch.methods.base import Batch, Losses, Method
from maxmatch.methods.functional import probabilities
from maxmatch.methods.mistakes import of_losses
from maxmatch.nets import num_features
from maxmatch.nets.averaging import Average
from maxmatch.nets.batchnorm import running_statistics, set_mode, synchronise
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train.batches import Batches
from maxmatch.train.capture import Captured
from maxmatch.train.distributed import Ranks, averaged_gradients
from maxmatch.train.draws import Draws, Row, Rows
from maxmatch.train.health import Health
from maxmatch.train.optimizers import Optimizer
from maxmatch.train.recipe import TrainSettings
from maxmatch.train.runner import Runner

Mode = Literal["eager", "compiled", "captured"]
MakeBatch = Callable[[Row, int], tuple[Batch, Tensor]]
AddHealth = Callable[[Losses, Tensor, Tensor], None]

# A product and a sum fused into one rounding would move pixels by a grey level; this keeps them apart, so that compiled
# views equal eager ones (tests/gpu).
EXACT: dict[str, str | int | bool | Callable[..., object]] = {"emulate_precision_casts": True}


def choose_mode(
    wanted: str, method: Method, device: torch.device, micro_batch: int | None = None, ranks: int = 1
) -> tuple[Mode, str | None]:
    """How the steps run, and a line for the log where that is not what was wanted.

    `auto` is captured on a GPU that Triton knows and eager elsewhere; what can't be captured runs compiled, as do the
    steps of several ranks.
    """
    if device.type != "cuda":
        if wanted == "captured":
            return "eager", f"train.step = captured: there is no CUDA graph on {device.type}; running eager"
        return ("compiled" if wanted == "compiled" else "eager"), None
    if torch.cuda.get_device_capability(device) < (7, 0):
        return "eager", None if wanted == "eager" else "this GPU is too old to compile for; running eager"
    if wanted in ("auto", "captured"):
        if ranks > 1:
            return (
                "compiled",
                f"{ranks} processes: a step is not captured; running compiled" if wanted != "auto" else None,
            )
        if method.capturable and micro_batch is None:
            return "captured", None
        what = type(method).__name__ if micro_batch is None else f"train.micro_batch = {micro_batch}"
        return "compiled", f"{what} can't be captured; running compiled"
    return ("compiled" if wanted == "compiled" else "eager"), None


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
        mode: Mode = "eager",
        ranks: Ranks = Ranks(),  # noqa: B008  frozen
    ) -> None:
        device, dtype = next(net.parameters()).device, next(net.parameters()).dtype
        self.method, self.batches, self.draws, self.net = method, batches, draws, net
        self.rows = Rows(draws, device)
        row = self.rows.row
        self.lr, self.head_lr = row["lr"], row["head_lr"] if settings.head_lr is not None else None
        self.state = method.state(classes, len(batches.hidden), num_features(net))
        if self.state is not None:
            self.state.to(device, dtype)
        assert not isinstance(settings.ema_decay, str)  # settled by recipe.resolve
        self.ranks, synchronised = ranks, settings.sync_batchnorm and ranks.count > 1
        if synchronised:
            synchronise(net, ranks.stacked)
        self.average = Average(net, settings.ema_decay, statistics=method.averages_statistics)
        # Each rank moves its own, and their mean over the ranks is kept.
        self._statistics = [] if synchronised else running_statistics(net)
        self.mode, self.last = mode, settings.steps - 1
        bf16, compiled = settings.precision == "bf16", mode != "eager"
        self.run = Runner(
            net, self.average, preprocessing, self.state, row["progress"], row["step"],
            bf16=bf16, compiled=compiled, fused=settings.kernels == "auto" and not synchronised,
            taught=method.taught_by_average, micro_batch=settings.micro_batch, ranks=ranks, synchronised=synchronised,
        )  # fmt: skip
        self.optimizer = Optimizer(net, self.state, self.lr, settings, compiled, self.head_lr)
        views = method.needs.most
        self.health = Health(method.terms, views, device, ranks, classes)
        set_mode(net, "train")
        self._losses = averaged_gradients(lambda batch: self.method.losses(self.run, batch), net, self.state, ranks)
        self._make_batch, self._add_health = self._makers(compiled)
        self.learner = batches.views.learner
        if self.learner is not None:
            probe = self.learner.probe
            self._make_probe = torch.compile(probe, dynamic=False, options=EXACT) if compiled else probe
        self._go: Callable[[int], None] = self._advance
        if mode == "captured":
            self._go = Captured(self._advance, self.tensors)

    def _makers(self, compiled: bool) -> tuple[MakeBatch, AddHealth]:
        def make_batch(row: Row, k: int) -> tuple[Batch, Tensor]:
            return self.batches(row, k)

        def add_health(losses: Losses, op: Tensor, truth: Tensor) -> None:
            self.health.add(losses, op, truth)

        if not compiled:
            return make_batch, add_health
        exact = torch.compile(make_batch, dynamic=False, options=EXACT)
        return exact, torch.compile(add_health, dynamic=False)

    def __call__(self, t: int) -> None:
        self.rows.load(t)
        feed = self.batches.feed
        if feed is None:
            self._go(self.draws.k(t))
            return
        feed.load(t, self.last)
        with feed.stages.stepping(feed.images):
            self._go(self.draws.k(t))

    def _advance(self, k: int) -> None:
        """One step with k strong views, from the row that is loaded. Nothing here waits for the device."""
        self.run.refresh()
        batch, op = self._make_batch(self.rows.row, k)
        losses = self._losses(batch)
        if wrong := of_losses(self.method, losses, len(batch.index)):
            raise UsageError(wrong)
        self.health.blind = losses.seen is None
        self.optimizer.zero_grad()
        torch.autograd.backward(torch.stack(list(losses.terms.values())).sum())
        losses = self._agreed(losses)
        self.optimizer.step(skip=self.health.guard(losses, self.run.step))
        self.ranks.average(self._statistics)
        self.average.update()
        self._teach_policy(batch)
        self._add_health(losses, op, self.batches.hidden[batch.index])

    def _agreed(self, losses: Losses) -> Losses:
        """The terms of the whole batch: one that is not finite on any rank is so on all, and all skip the update."""
        if self.ranks.count == 1:
            return losses
        terms = self.ranks.mean(torch.stack([term.detach() for term in losses.terms.values()]))
        return losses._replace(terms=dict(zip(losses.terms, terms.unbind(), strict=True)))

    def _teach_policy(self, batch: Batch) -> None:
        """A policy that learns is told what the averaged net makes of probes of the step's labelled images.

        Google's code runs this and the update of the net at once, in either order; here the update comes first.
        """
        if self.learner is None:
            return
        images, record = self._make_probe(batch.x, self.rows.row["labelled/probe"][0])
        with torch.no_grad():
            closeness = proximity(probabilities(self.run.evaluate(images)), batch.y)
        self.learner.update(self.run.gather(record), self.run.gather(closeness))

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint must hold, by name; the tensors themselves, so that loading can copy in place."""
        found = {f"net.{n}": t for n, t in self.net.state_dict().items()}
        found |= {f"average.{n}": t for n, t in self.average.net.state_dict().items()}
        if self.state is not None:
            found |= {f"state.{n}": t for n, t in self.state.state_dict().items()}
        if self.learner is not None:
            found |= {f"policy.{n}": t for n, t in self.learner.learned.state_dict().items()}
        found |= {f"momentum.{number}": momentum for number, momentum in enumerate(self.optimizer.momenta)}
        return found | {f"health.{n}": t for n, t in self.health.tensors().items()}

"""What a method may touch: the passes through the net, eager or compiled, and what the other ranks have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from maxmatch.errors import UsageError, said
from maxmatch.nets import features
from maxmatch.nets.averaging import Average
from maxmatch.nets.batchnorm import running_statistics, scoring, still
from maxmatch.nets.device import generator_state
from maxmatch.nets.fused import Fused, can_fuse
from maxmatch.nets.kernels import compile_for
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.nets.wide_resnet import WideResNet
from maxmatch.train.distributed import Ranks

Pass = Callable[[Tensor], Tensor]
OTHERS_EACH_TIME = "train.micro_batch passes images twice, and this net drops others each time: leave it out"


class Runner:
    """`methods.base.Run`. With `compiled` each pass is one compiled function of uint8 or float images."""

    def __init__(
        self,
        net: nn.Module,
        average: Average,
        preprocessing: Preprocessing,
        state: nn.Module | None,
        progress: Tensor,
        step: Tensor,
        *,
        bf16: bool = False,
        compiled: bool = False,
        fused: bool = False,
        taught: bool = False,
        micro_batch: int | None = None,
        ranks: Ranks = Ranks(),  # noqa: B008  frozen
        synchronised: bool = False,
    ) -> None:
        """`fused` allows the kernels of nets.fused, where they run; `notes` says where they should and don't.

        `taught`: the method asks the average, whose pass then takes the kernels too, but in eval mode, which they lack.

        With `micro_batch` at most so many images go through the net at a time, and nothing is kept for the backward
        pass, which passes them through once more. Each part has the same mix of images, and its own batch statistics.
        """
        parameter = next(net.parameters())
        self.state = state
        self.mean, self.gather, self.share = ranks.mean, ranks.gather, ranks.share
        self.progress, self.step = progress, step
        self.rank, self.ranks = ranks.rank, ranks.count
        self.companies = 1 if synchronised else ranks.count
        self._net, self._average, self._preprocessing = net, average.net, preprocessing
        self._eman, self._averages = average.statistics, average.decay > 0
        self._dtype = parameter.dtype
        device = parameter.device.type
        precision = partial(torch.autocast, device, torch.bfloat16) if bf16 else nullcontext
        self.notes: list[str] = []
        self._micro_batch = micro_batch
        if micro_batch is not None and any(_drops(module) for module in net.modules()):
            raise UsageError(OTHERS_EACH_TIME)
        self.fused = self._fused_average = None
        if fused and bf16 and compiled and can_fuse(net, preprocessing.shape, parameter.device):
            self.fused = self._try_fused(net, preprocessing)
        if self.fused is not None and taught and not average.statistics:
            assert isinstance(average.net, WideResNet)
            self._fused_average = Fused(average.net, preprocessing)
        self._train, self._score = (self._make_pass(net, precision, compiled, self.fused) for _ in range(2))
        self._aside = self._make_pass(net, precision, compiled, self.fused)
        self._probe = self._make_pass(net, nullcontext, compiled)
        self._features = self._make_pass(net, precision, compiled, head=False)
        self._teach = self._make_pass(average.net, precision, compiled, self._fused_average)
        self._in_parts = (self._train, self._score, self._aside, self._teach)
        # The averaged net as it will be used: in the precision of its weights, whatever training runs in.
        self.evaluate = self._make_pass(average.net, nullcontext, compiled)

    def refresh(self) -> None:
        """Take in the weights as they are now: once a step, before its passes."""
        for fused in (self.fused, self._fused_average):
            if fused is not None:
                fused.refresh()

    def net(self, *groups: Tensor) -> Sequence[Tensor]:
        return self._split(self._train, groups)

    def score(self, *groups: Tensor) -> Sequence[Tensor]:
        with scoring(self._net):
            return self._split(self._score, groups)

    def aside(self, *groups: Tensor) -> Sequence[Tensor]:
        with still(self._net):
            return self._split(self._aside, groups)

    def probe(self, *groups: Tensor) -> Sequence[Tensor]:
        with still(self._net):
            return self._split(self._probe, groups)

    def features(self, *groups: Tensor) -> Sequence[Tensor]:
        with still(self._net):
            return self._split(self._features, groups)

    def teacher(self, *groups: Tensor) -> Sequence[Tensor]:
        if not self._averages:
            raise UsageError("the method asks the average, but train.ema_decay = 0, which is none; give 0.999, or auto")
        if self._eman:  # its running statistics are averaged as its weights are, and fit them
            with torch.no_grad():
                return self._split(self._teach, groups)
        # Its own running statistics are the net's, which do not fit averaged weights: batch statistics do.
        with scoring(self._average, afterwards="eval"):
            return self._split(self._teach, groups)

    def pixels(self, images: Tensor) -> Tensor:
        return self._preprocessing(images, self._dtype) if images.dtype == torch.uint8 else images

    def noise(self, images: Tensor) -> Tensor:
        batch = images.ndim - 4
        shape = [many * self.ranks if dim == batch else many for dim, many in enumerate(images.shape)]
        return self.share(torch.randn(shape, dtype=images.dtype, device=images.device), batch)

    def _try_fused(self, net: nn.Module, preprocessing: Preprocessing) -> Fused | None:
        assert isinstance(net, WideResNet)

        def once() -> None:
            with still(net), torch.enable_grad(), torch.autocast("cuda", torch.bfloat16):
                torch.autograd.grad(fused(images).float().sum(), net.stem.weight)

        try:
            fused = Fused(net, preprocessing)
            images = torch.zeros(2, *preprocessing.shape, dtype=torch.uint8, device=net.stem.weight.device)
            compile_for(once)
            once()
            torch.cuda.synchronize()
        except Exception as problem:  # they rest on private parts of torch, which may change in any way
            self.notes.append(f"the fused kernels don't run here, torch's do: {said(problem)}")
            return None
        return fused

    def _make_pass(
        self,
        net: nn.Module,
        precision: Callable[[], AbstractContextManager[object]],
        compiled: bool,
        fused: Fused | None = None,
        head: bool = True,
    ) -> Pass:
        whole = net if head else partial(features, net)

        def forward(images: Tensor) -> Tensor:
            with precision():
                if fused is not None and images.dtype == torch.uint8:
                    return fused(images)
                logits: Tensor = whole(self.pixels(images))
            return logits

        return torch.compile(forward, dynamic=False) if compiled else forward

    def _split(self, forward: Pass, groups: Sequence[Tensor]) -> Sequence[Tensor]:
        if any(g.dtype != torch.uint8 for g in groups):
            groups = [self.pixels(g) for g in groups]
        images = torch.cat(list(groups))
        whole = self._micro_batch is None or len(images) <= self._micro_batch or forward not in self._in_parts
        logits = forward(images) if whole else self._by_parts(forward, images)
        return torch.split(logits, [len(g) for g in groups])

    def _by_parts(self, forward: Pass, images: Tensor) -> Tensor:
        assert self._micro_batch is not None
        # No part of one image: BatchNorm could not normalise it where the map is of one pixel.
        count = max(1, min(-(-len(images) // self._micro_batch), len(images) // 2))
        # Every count-th image: groups lie one behind the other, so that each part has the same mix of them.
        parts = [images[first::count] for first in range(count)]
        if not torch.is_grad_enabled():
            made = [forward(part) for part in parts]
        elif forward is self._train:
            made = self._trained_parts(parts)
        else:
            made = [self._part(forward, part) for part in parts]  # `still`: running statistics are not moved
        order = torch.cat([torch.arange(first, len(images), count) for first in range(count)])
        return torch.cat(made)[order.argsort().to(images.device)]

    def _part(self, forward: Pass, part: Tensor) -> Tensor:
        """One part, of which nothing is kept but its images; the backward pass makes it once more."""
        made: Tensor = Again.apply(part, next(self._net.parameters()), forward, self._again)
        return made

    def _trained_parts(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Each part moves the running statistics from where they were; kept is the mean: they move once a step.

        In place, so only where no earlier pass of the step needs them for its backward pass: `run.net` comes first.
        """
        statistics = running_statistics(self._net)
        before, sums = ([make(s) for s in statistics] for make in (torch.clone, torch.zeros_like))
        made = []
        for part in parts:
            for ours, theirs in zip(statistics, before, strict=True):
                ours.copy_(theirs)
            made.append(self._part(self._train, part))
            for total, ours in zip(sums, statistics, strict=True):
                total.add_(ours)
        for ours, total in zip(statistics, sums, strict=True):
            ours.copy_(total / len(parts))
        return made

    def _again(self, images: Tensor) -> Tensor:
        with still(self._net):
            return self._aside(images)


def _drops(module: nn.Module) -> bool:
    """Whether a module of a foreign net draws at random: torch's dropout, timm's drop path."""
    return any((getattr(module, name, 0) or 0) > 0 for name in ("p", "drop_prob")) and "Drop" in type(module).__name__


class Again(torch.autograd.Function):
    """A pass that keeps nothing but its images; the backward pass makes it once more, running statistics untouched."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, anchor: Tensor, once: Pass, again: Pass) -> Tensor:
        """`anchor` is any tensor with a gradient, so that the result has one."""
        ctx.save_for_backward(images)
        ctx.again = again
        before = generator_state(images.device)
        with torch.no_grad():
            made = once(images)
        if not torch.equal(before, generator_state(images.device)):  # by what `_drops` does not know
            raise UsageError(OTHERS_EACH_TIME)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        with torch.enable_grad():
            logits = ctx.again(*ctx.saved_tensors)
        torch.autograd.backward(logits, gradients[0])
        return None, None, None, None

"""Several processes that train as one: torchrun starts them, DDP averages their gradients, and this is the rest.

Every rank draws the plan of the whole batch and takes one of N equal parts of it that lie one behind the other. What is
gathered therefore stands in the order of a single process, and a mean over ranks of means over parts is the mean over
the batch. All ranks hold the same weights, memories and statistics, so that any number of them can go on from a
checkpoint, and rank 0 alone writes.
"""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from maxmatch.errors import UsageError, UserError
from maxmatch.methods.base import Batch, Losses
from maxmatch.nets.device import find_device
from maxmatch.train.launcher import ending_with_it
from maxmatch.train.recipe import TrainSettings

T = TypeVar("T")

LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun says to each process
PATIENCE = timedelta(hours=1)  # rank 0 evaluates and compiles while the others wait; a dead rank is noticed at once


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together; by default it is the only one."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this rank writes and speaks for all."""
        return self.rank == 0

    def part(self, many: int) -> slice:
        """Which of `many` rows of the whole batch are this rank's."""
        each = many // self.count
        return slice(self.rank * each, (self.rank + 1) * each)

    def share(self, value: Tensor, dim: int = 0) -> Tensor:
        """This rank's part of a value that all ranks have; the reverse of `gather`."""
        each = value.shape[dim] // self.count
        return value.narrow(dim, self.rank * each, each)

    def stacked(self, value: Tensor) -> Tensor:
        """All ranks' values (N, ...). Their gradients come back, summed over the ranks that used them."""
        if self.count == 1:
            return value[None]
        found: Tensor = _Stacked.apply(value, self.rank, self.count)
        return found

    def mean(self, value: Tensor) -> Tensor:
        """Mean over the ranks, the same bits on each."""
        return value if self.count == 1 else self.stacked(value).mean(0)

    def gather(self, value: Tensor) -> Tensor:
        """All ranks' values, one behind the other."""
        return value if self.count == 1 else self.stacked(value).flatten(0, 1)

    @torch.no_grad()
    def average(self, tensors: Sequence[Tensor]) -> None:
        """Put into each tensor its mean over the ranks: all of them, of one type, in one message."""
        if self.count == 1 or not tensors:
            return
        means = self.mean(torch.cat([t.flatten() for t in tensors]))
        parts = torch.split(means, [t.numel() for t in tensors])
        torch._foreach_copy_(list(tensors), [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)])

    @torch.no_grad()
    def copy(self, tensors: Mapping[str, Tensor]) -> None:
        """Put rank 0's values into the tensors of all ranks."""
        for tensor in tensors.values() if self.count > 1 else ():
            sent = tensor.contiguous()
            dist.broadcast(sent, 0)
            tensor.copy_(sent)

    def same(self, thing: T) -> T:
        """Rank 0's plain object, on all ranks."""
        if self.count == 1:
            return thing
        held = [thing]
        dist.broadcast_object_list(held, 0)
        return held[0]

    def everyones(self, thing: T) -> list[T]:
        """All ranks' plain objects."""
        if self.count == 1:
            return [thing]
        held: list[Any] = [None] * self.count
        dist.all_gather_object(held, thing)
        return held

    def largest(self, number: int) -> int:
        """The largest of all ranks' numbers. No rank is behind this line before all have come to it."""
        if self.count == 1:
            return number
        held = torch.tensor(number)
        dist.all_reduce(held, dist.ReduceOp.MAX)
        return int(held)

    @property
    def beside(self) -> int:
        """How many of the processes share this machine, this one included."""
        return 1 if self.count == 1 else max(1, int(os.environ.get("LOCAL_WORLD_SIZE", self.count)))

    @property
    def command(self) -> str:
        """How a command is begun on as many processes; on several machines it is typed on each."""
        if self.count == 1:
            return "maxmatch"
        machines = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
        where = f"--nnodes={machines} --rdzv_backend=c10d --rdzv_endpoint=HOST:29500 " if machines > 1 else ""
        return f"torchrun {where}--nproc_per_node={self.beside} -m maxmatch"


class _Stacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, rank: int, count: int) -> Tensor:
        ctx.rank = rank
        parts = [torch.empty_like(value, memory_format=torch.contiguous_format) for _ in range(count)]
        dist.all_gather(parts, value.contiguous())
        return torch.stack(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        summed = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed)
        return summed[ctx.rank], None, None


class Whole(nn.Module):
    """The one module that DDP wraps: its forward pass is the method's losses, heads of the method's own included.

    A net called past DDP would keep its gradients to itself, and nobody would be told.
    """

    def __init__(self, losses: Callable[[Batch], Losses], net: nn.Module, state: nn.Module | None) -> None:
        super().__init__()
        self.net, self.state = net, state
        self._losses = losses

    def forward(self, batch: Batch) -> Losses:
        """The losses of this rank's part of the batch."""
        return self._losses(batch)


def averaged_gradients(
    losses: Callable[[Batch], Losses], net: nn.Module, state: nn.Module | None, ranks: Ranks
) -> Callable[[Batch], Losses]:
    """`losses`, but with more than one rank their gradients are averaged while the backward pass runs."""
    if ranks.count == 1:
        return losses
    # Buffers are the same already: what moves them is gathered or averaged where it is moved.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch 2.14 has another name for it, 2.11 does not
        return DistributedDataParallel(Whole(losses, net, state), broadcast_buffers=False)


def check(settings: TrainSettings, ranks: Ranks, begun: bool = False) -> None:
    """Refuse what several processes can't do; a run that is begun keeps its batch, others may take another."""
    n, batch = ranks.count, settings.batch
    if n == 1:
        return
    if batch % n and begun:
        parts = [count for count in range(1, batch + 1) if batch % count == 0]
        fitting = {max(count for count in parts if count < n), min((c for c in parts if c > n), default=batch)}
        told = " or ".join(f"--nproc_per_node={count}" for count in sorted(fitting))
        raise UsageError(f"train.batch = {batch}: {n} processes can't have equal parts of it; type {told}")
    if batch % n:
        near = ", ".join(f"--set train.batch={b}" for b in sorted({max(n, batch // n * n), -(-batch // n) * n}))
        raise UsageError(f"train.batch = {batch}: {n} processes can't have equal parts of it; type {near}")
    if settings.micro_batch is not None:
        raise UsageError(
            f"train.micro_batch = {settings.micro_batch}: it needs one process, and {n} hold {n} times as many images: "
            "leave it out"
        )
    if settings.device == "mps":
        raise UsageError("device = mps: several processes train on cuda or cpu; type --device cpu")


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """Within: a process among those that torchrun started, on its own GPU; or the only one where nobody did."""
    MEETING.trainings += 1
    if dist.is_available() and dist.is_initialized():
        yield Ranks(dist.get_rank(), dist.get_world_size())
        return
    if any(name not in os.environ for name in LAUNCHED) or os.environ["WORLD_SIZE"] == "1":
        with ending_with_it():
            yield Ranks()
        return
    if device == "cuda":
        torch.cuda.set_device(_own_gpu(int(os.environ.get("LOCAL_RANK", "0"))))
    try:
        ranks = _meet("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
    except RuntimeError as error:
        at, why = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", " ".join(str(error).split())[:200]
        raise UserError(f"the processes of this run could not meet at {at}: {why}; start torchrun again") from None
    with ending_with_it():
        yield ranks
    # Not after an error: the others may be waiting for this rank, and would wait for each other in here.
    MEETING.store = None
    dist.destroy_process_group()


def _meet(backend: str) -> Ranks:
    store, rank, count = next(rendezvous("env://", timeout=PATIENCE))
    # A second training in these processes would find the addresses of the first.
    store = PrefixStore(f"training {MEETING.trainings}", store)
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        # Started again, ranks would find the addresses of the dead. (Several machines each count their own starts.)
        store = PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=PATIENCE)
    ranks = Ranks(rank, count)
    # Each machine counts its own starts, and the store outlives them: a new start must not find what a dead one wrote.
    MEETING.store = PrefixStore(ranks.same(secrets.token_hex(8)), store)
    return ranks


def _own_gpu(place: int) -> int:
    find_device("cuda")
    here = torch.cuda.device_count()
    if place < here:
        return place
    error = UsageError(f"process {place + 1} of this machine has no GPU of its own: type --nproc_per_node={here}")
    error.from_rank = place == here  # the first of those without one
    raise error


class Meeting:
    """Where the ranks of this process meet, and how many trainings it has begun: all ranks begin the same ones."""

    store: Any = None  # torchrun keeps it, so that it outlives any of them
    trainings = 0


MEETING = Meeting()


def first_to_fail() -> bool:
    """Whether no other rank has said that this training fails."""
    try:
        return MEETING.store is None or int(MEETING.store.add(f"failed {MEETING.trainings}", 1)) == 1
    except RuntimeError:  # the store itself is gone
        return True

"""Who decodes the pictures of the next steps: threads of this process, or processes that share the trays with it.

Every picture needs Python's lock for a moment, and threads queue for it: however many there are, an H200 then waits for
them. Processes have a lock each. They are forked, so that they begin at once and know the trays, which lie in memory
that all share; where a system can't fork safely, and beside a CPU that needs its cores for the step, it is threads.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from maxmatch.data.files import Files
from maxmatch.errors import UsageError, UserError

Kind = Literal["threads", "processes"]
PORTION = 16  # pictures that one of them decodes at a time, at most


class Read(NamedTuple):
    """A portion that was decoded: how many pictures, how long it took, and which files could not be read, and why."""

    pictures: int
    seconds: float
    broken: dict[str, str]


class Tray:
    """A batch of slots and sizes on the host, which may be filled again once its copy has arrived."""

    def __init__(self, slots: Tensor, sizes: Tensor, shared: bool) -> None:
        """With room for what these tensors hold; `shared` with the processes that are forked later."""
        self.cuda, self.shared = slots.is_cuda, shared
        self.slots, self.sizes = (_room(like, shared) for like in (slots, sizes))
        self.places, self.lengths = self.slots.numpy(), self.sizes.numpy()
        self._arrived = torch.cuda.Event() if self.cuda else None  # type: ignore[no-untyped-call]

    def send(self, slots: Tensor, sizes: Tensor) -> None:
        """Copy to the device, behind what it still has to do."""
        slots.copy_(self.slots, non_blocking=True)
        sizes.copy_(self.sizes, non_blocking=True)
        if self._arrived is not None:
            self._arrived.record()

    def clear(self) -> None:
        """Wait until the copy has arrived, which it has by far."""
        if self._arrived is not None:
            self._arrived.synchronize()

    def pin(self, locked: bool) -> None:
        """Lock shared pages in memory, so that copies from them wait for nothing, or let them go."""
        if not self.cuda or not self.shared:
            return
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        for tensor in (self.slots, self.sizes):  # where it is refused, copies are slower, and as right
            if locked:
                runtime.cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0)
            else:
                runtime.cudaHostUnregister(tensor.data_ptr())


Trays = Sequence[dict[str, Tray]]


class Decoders:
    """Threads or processes that fill trays."""

    def __init__(self, files: Files, trays: Trays, kind: Kind) -> None:
        self.files, self.kind, self._trays = files, kind, trays
        self._pool: ProcessPoolExecutor | ThreadPoolExecutor = ThreadPoolExecutor(files.workers)
        if kind == "processes":
            fork = multiprocessing.get_context("fork")
            self._pool = ProcessPoolExecutor(files.workers, fork, _begin, (files, trays, os.getpid()))
            self._pool.submit(os.getpid).result()  # all are forked by now, before the pages are locked
            self._pin(True)

    def send_for(self, tray: int, name: str, numbers: Sequence[int]) -> list[Future[Read]]:
        """Have the files of these numbers read into a tray's pool of that name."""
        size = max(1, min(PORTION, len(numbers) // (2 * self.files.workers)))
        parts = [(at, numbers[at : at + size]) for at in range(0, len(numbers), size)]
        if self.kind == "processes":
            try:
                return [self._pool.submit(_read_shared, tray, name, *part) for part in parts]
            except BrokenProcessPool:
                raise self._died() from None
        return [self._pool.submit(_read, self.files, self._trays[tray][name], *part) for part in parts]

    def receive(self, reads: Sequence[Future[Read]]) -> list[Read]:
        """Wait for portions, and note what was broken."""
        try:
            found = [read.result() for read in reads]
        except BrokenProcessPool:
            raise self._died() from None
        for read in found:
            self.files.broken.update(read.broken)
        return found

    def close(self) -> None:
        """Let them go."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self.kind == "processes":
            self._pin(False)

    def _pin(self, locked: bool) -> None:
        for tray in (tray for trays in self._trays for tray in trays.values()):
            tray.pin(locked)

    def _died(self) -> UserError:
        fewer = max(1, self.files.workers // 2)
        return UserError(
            "a process that decodes pictures was ended from outside, most likely for want of memory; nothing is lost: "
            f"go on with --resume and fewer of them, --set data.workers={fewer}"
        )


def choose(asked: Literal["auto"] | Kind, device: torch.device) -> Kind:
    """Processes beside a GPU, where they can be forked; else threads."""
    can_fork = sys.platform == "linux"  # on macOS a forked process may not call the system's libraries
    if asked == "processes" and not can_fork:
        raise UsageError("data.decoders = processes: they are forked, which only Linux does safely; type threads")
    if asked != "auto":
        return asked
    return "processes" if can_fork and device.type == "cuda" else "threads"


_shared: tuple[Files, Trays]  # of a forked process


def _begin(files: Files, trays: Trays, parent: int) -> None:
    """What a forked process does first: it leaves signals to its parent, and ends when that does."""
    global _shared
    _shared = files, trays
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _read_shared(tray: int, name: str, first: int, numbers: Sequence[int]) -> Read:
    files, trays = _shared
    return _read(files, trays[tray][name], first, numbers)


def _read(files: Files, tray: Tray, first: int, numbers: Sequence[int]) -> Read:
    begun = time.perf_counter()
    for at, number in enumerate(numbers, first):
        tray.lengths[at] = files.read_into(number, tray.places[at])
    names = [files.names[number] for number in numbers]
    broken = {name: files.broken[name] for name in names if name in files.broken}
    return Read(len(numbers), time.perf_counter() - begun, broken)


def _room(like: Tensor, shared: bool) -> Tensor:
    if not shared:
        return torch.zeros(like.shape, dtype=like.dtype, pin_memory=like.is_cuda)
    memory = mmap.mmap(-1, like.nbytes)  # without a name: no limit of /dev/shm holds for it
    return torch.frombuffer(memory, dtype=like.dtype).view(like.shape)

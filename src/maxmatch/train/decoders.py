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
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from maxmatch.data.files import Files
from maxmatch.errors import UsageError, UserError
from maxmatch.train.signals import stops

Kind = Literal["threads", "processes"]
PORTION = 16  # pictures that one of them decodes at a time, at most
LOOKS = 0.2  # seconds between two looks of a process whether it is still wanted


class Read(NamedTuple):
    """A portion that was decoded: how many pictures, how long it took, and which files could not be read, and why."""

    pictures: int
    seconds: float
    broken: dict[str, str]


class Died(UserError):
    """A process that decodes was killed; `instead` is a setting with which the run may go on better."""

    def __init__(self, workers: int) -> None:
        super().__init__("a process that decodes pictures was killed from outside, most likely for want of memory")
        self.instead = f"data.workers={workers // 2}" if workers > 1 else "data.decoders=threads"


class Tray:
    """A batch of slots and sizes on the host, which may be filled again once its copy has arrived."""

    def __init__(self, slots: Tensor, sizes: Tensor, shared: bool) -> None:
        """With room for what these tensors hold; `shared` with the processes that are forked later."""
        self.cuda, self.shared = slots.is_cuda, shared
        self.slots, self.sizes = (_room(like, shared) for like in (slots, sizes))
        self._locked: list[Tensor] = []
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
        self.clear()
        for tensor in self._locked:
            runtime.cudaHostUnregister(tensor.data_ptr())
        self._locked = []
        for tensor in (self.slots, self.sizes) if locked else ():
            if runtime.cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0) == runtime.cudaError.success:
                self._locked.append(tensor)
            else:  # copies are slower then, and as right
                _forget_refusal()


Trays = Sequence[dict[str, Tray]]


class Decoders:
    """Threads or processes that fill trays. They begin when they are told to, or needed, and end with `close`."""

    def __init__(self, files: Files, trays: Trays, kind: Kind) -> None:
        self.files, self.kind, self._trays = files, kind, trays
        self._pool: ProcessPoolExecutor | ThreadPoolExecutor | None = None
        self._over = mmap.mmap(-1, 1)  # shared: with 1 in it processes end

    def begin(self) -> ProcessPoolExecutor | ThreadPoolExecutor:
        """Start them. To be forked they are best begun before a thread that prints: they inherit what it holds."""
        if self._pool is None:
            self._pool = self._forked() if self.kind == "processes" else ThreadPoolExecutor(self.files.workers)
        return self._pool

    def send_for(self, tray: int, name: str, numbers: Sequence[int]) -> list[Future[Read]]:
        """Have the files of these numbers read into a tray's pool of that name."""
        size = max(1, min(PORTION, len(numbers) // (2 * self.files.workers)))
        parts = [(at, numbers[at : at + size]) for at in range(0, len(numbers), size)]
        pool = self.begin()
        if self.kind == "processes":
            with self._watched():
                return [pool.submit(_read_shared, tray, name, *part) for part in parts]
        return [pool.submit(_read, self.files, self._trays[tray][name], *part) for part in parts]

    def receive(self, reads: Sequence[Future[Read]]) -> list[Read]:
        """Wait for portions, and note what was broken."""
        with self._watched():
            found = [read.result() for read in reads]
        for read in found:
            self.files.broken.update(read.broken)
        return found

    def close(self) -> None:
        """Let them go."""
        self._over[0] = 1
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pin(False)

    def _forked(self) -> ProcessPoolExecutor:
        fork = multiprocessing.get_context("fork")
        known = self.files, self._trays, os.getpid(), self._over
        pool = ProcessPoolExecutor(self.files.workers, fork, _begin, known)
        try:
            with self._watched(), _held_signals():
                pool.submit(os.getpid).result()  # all are forked by now, before the pages are locked
        except BaseException:  # not all could be: those that were would wait for work
            self._over[0] = 1
            raise
        self._pin(True)
        return pool

    def _pin(self, locked: bool) -> None:
        for tray in (tray for trays in self._trays for tray in trays.values()):
            tray.pin(locked)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Within: that a process has died is said in our words. `close` ends the others, deaf to the pool's signal."""
        try:
            yield
        except BrokenProcessPool:
            raise Died(self.files.workers) from None


def choose(asked: Literal["auto"] | Kind, device: torch.device) -> Kind:
    """Processes beside a GPU, where they can be forked; else threads."""
    can_fork = sys.platform == "linux"  # on macOS a forked process may not call the system's libraries
    if asked == "processes" and not can_fork:
        raise UsageError(
            "data.decoders = processes: they are forked, which only Linux does safely; type --set data.decoders=threads"
        )
    if asked != "auto":
        return asked
    may_fork = can_fork and not multiprocessing.current_process().daemon  # a daemon of multiprocessing has no children
    return "processes" if may_fork and device.type == "cuda" else "threads"


_shared: tuple[Files, Trays]  # of a forked process


def _begin(files: Files, trays: Trays, parent: int, over: mmap.mmap) -> None:
    """What a forked process does first: it leaves signals to its parent, and ends when that says so or is gone.

    A signal often goes to a whole group: Ctrl-C, torchrun's end, a cluster's. The parent then still wants the pictures
    of its last step.
    """
    global _shared
    _shared = files, trays
    for number in stops():
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent, over), daemon=True).start()


@contextmanager
def _held_signals() -> Iterator[None]:
    """Within: who is forked inherits that signals wait, and by the time they would be heard it ignores them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stops())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with(parent: int, over: mmap.mmap) -> None:
    while os.getppid() == parent and not over[0]:
        time.sleep(LOOKS)
    os._exit(1)


def _read_shared(tray: int, name: str, first: int, numbers: Sequence[int]) -> Read:
    files, trays = _shared
    return _read(files, trays[tray][name], first, numbers)


def _read(files: Files, tray: Tray, first: int, numbers: Sequence[int]) -> Read:
    begun = time.perf_counter()
    for at, number in enumerate(numbers, first):
        tray.lengths[at] = files.read_again_into(number, tray.places[at])
    names = [files.names[number] for number in numbers]
    broken = {name: files.broken[name] for name in names if name in files.broken}
    return Read(len(numbers), time.perf_counter() - begun, broken)


def _forget_refusal() -> None:
    """CUDA keeps what it has refused for the next kernel, which would be blamed for it: launch one that is."""
    with suppress(RuntimeError):
        torch.ones(1, device="cuda")


def _room(like: Tensor, shared: bool) -> Tensor:
    if not shared:
        return torch.zeros(like.shape, dtype=like.dtype, pin_memory=like.is_cuda)
    memory = mmap.mmap(-1, like.nbytes)  # without a name: no limit of /dev/shm holds for it
    return torch.frombuffer(memory, dtype=like.dtype).view(like.shape)

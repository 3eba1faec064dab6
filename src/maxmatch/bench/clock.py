"""The clock and the scale of `maxmatch bench`: the times of a call, the memory of a row, a clear table between two."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from maxmatch.train.capture import Captured
from maxmatch.train.memory import trim

T = TypeVar("T")
Work = Callable[[], object]
GPU_WARM_UP = 0.5  # seconds; a GPU that waited for the compiler has let its clocks down


def as_run(work: Work, mode: str) -> Work:
    """`work` as a step of that mode runs it: of a captured one the replay of a CUDA graph, without Python's launches.

    Compile `work` itself where the step does. The graph goes with what is returned.
    """
    if mode != "captured":
        return work

    def advance(_: int) -> None:
        work()

    captured = Captured(advance, dict)
    return lambda: captured(0)


def warm_up(work: Work, device: torch.device) -> float:
    """Call until it runs as it will; returns the seconds of the first call, which compiles and captures."""
    begun = time.perf_counter()
    work()
    wait(device)
    first = time.perf_counter() - begun
    while device.type == "cuda" and time.perf_counter() - begun - first < GPU_WARM_UP:
        work()
        wait(device)
    return first


def times(work: Work, device: torch.device, repeats: int) -> list[float]:
    """Milliseconds of each of `repeats` calls, one behind the other, by the device's own clock where it has one."""
    wait(device)
    if device.type == "cuda":
        events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]  # type: ignore[no-untyped-call]
        for event in events[:-1]:
            event.record()
            work()
        events[-1].record()
        wait(device)
        return [float(a.elapsed_time(b)) for a, b in itertools.pairwise(events)]
    found = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        wait(device)
        found.append(1e3 * (time.perf_counter() - begun))
    return found


def typical(found: Sequence[float], device: torch.device) -> float:
    """The mean on a GPU, so that each step pays its share of what is done once a block of steps; the median elsewhere,
    since other programs disturb a CPU."""
    return statistics.mean(found) if device.type == "cuda" else statistics.median(found)


def wait(device: torch.device) -> None:
    """Until the device has done all that it was given."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


def release(device: torch.device, compiled: bool) -> None:
    """Give back what the row before held: compiled code, graphs with their pools, cached memory, workspaces."""
    if compiled:
        torch.compiler.reset()
    gc.collect()
    trim()
    if device.type == "cuda":
        _give_back(device)


def _give_back(device: torch.device) -> None:
    """All of the GPU's memory that nothing needs any more, cuBLAS' workspaces too: they hold on to whole segments."""
    wait(device)
    torch._C._cuda_clearCublasWorkspaces()  # one for each stream that a capture has used
    torch.cuda.empty_cache()


def with_peak(work: Callable[[], T], device: torch.device) -> tuple[T, float | None]:
    """What `work` returns, and the most GiB held meanwhile; None where the system does not say. Warm up first.

    On a GPU: what torch has *reserved*. A replayed graph asks for nothing, so its activations, which lie in the pool
    that its capture reserved, would be missing from the allocated bytes; and reserved is what no other program can
    have. The warm-up's leavings are given back before. On a CPU: the resident memory of the whole process, Python and
    torch included.
    """
    gc.collect()
    if device.type == "cuda":
        _give_back(device)
        torch.cuda.reset_peak_memory_stats()
        return work(), float(torch.cuda.max_memory_reserved()) / 2**30
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak of this process begins anew
        found = work()
        lines = Path("/proc/self/status").read_text().splitlines()
        peaks = [int(line.split()[1]) / 2**20 for line in lines if line.startswith("VmHWM")]
        return found, peaks[0] if peaks and device.type == "cpu" else None
    except OSError:
        return work(), None


def failure(error: Exception) -> str:
    """One line for what could not be measured."""
    full = isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
    line = next(iter(str(error).strip().splitlines()), "")
    return "out of memory" if full else f"{type(error).__name__}: {line}"

"""How many cores this process may use, a container's share of time counted, and how its threads share them."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

SYSTEM = Path("/sys/fs/cgroup")  # where Linux says what a container may use


def cores() -> int:
    """Those that the process is bound to, as far as its container's share of processor time reaches.

    More threads than that would wait for one another after every operation, each until its turn comes again.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(bound, _share())))


def _share() -> float:
    """Processor seconds a second that control groups allow, of the second version or the first."""
    try:
        if (both := SYSTEM / "cpu.max").exists():
            most, period = both.read_text().split()
        else:
            most, period = ((SYSTEM / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(most) / int(period) if most != "max" and int(most) > 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):  # another system, or no limit
        return math.inf


def wait_briefly() -> None:
    """Have threads that wait for one another free their core soon; before torch is there.

    By itself GNU's OpenMP, which torch has, keeps the core thirty times as long: time that the thread it waits for
    could use where other programs keep the cores busy. Alone a run is as fast either way (benchmarks/busy.py).
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")

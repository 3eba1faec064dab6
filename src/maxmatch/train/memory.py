"""Freed memory stays with the process while it trains on a CPU: the next step asks for the same again.

glibc gives a large block back to the system as soon as it is freed, and the system clears every page of the next one
anew. A step frees and asks for the same blocks over and over: for a small net that is a good part of its time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

# The parameters of glibc's mallopt: free memory kept at the end of the heap, and the size from which a block is the
# system's own. 32 MiB and twice that are as far as glibc goes by itself.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
MOST, USUAL = 2**31 - 1, 2**25


def keep_freed_memory() -> bool:
    """Have malloc keep what is freed, whatever its size, and say whether it does.

    Nothing changes where malloc is not glibc's, or where the user has set it up by environment variables.
    """
    if any(name in os.environ for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")):
        return False
    mallopt = _glibc("mallopt")
    if mallopt(MMAP_THRESHOLD, MOST) or mallopt(MMAP_THRESHOLD, USUAL):  # older ones refuse more than the usual
        return bool(mallopt(TRIM_THRESHOLD, MOST))
    return False


def give_freed_memory_back() -> None:
    """Back to the system what malloc kept; from now on it keeps what it would at most keep by itself."""
    mallopt = _glibc("mallopt")
    mallopt(MMAP_THRESHOLD, USUAL)
    mallopt(TRIM_THRESHOLD, 2 * USUAL)
    trim()


def trim() -> None:
    """Back to the system what is free."""
    _glibc("malloc_trim")(0)


def _glibc(name: str) -> Callable[..., Any]:
    try:
        found: Callable[..., Any] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return lambda *_: 0
    return found

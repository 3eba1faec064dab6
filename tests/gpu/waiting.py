"""For the tests on a GPU: a stretch of code in which no call may wait for the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def no_waiting(forbidden: bool = True) -> Iterator[None]:
    """Within, a call that synchronises with the device is an error, where that is `forbidden`."""
    torch.cuda.set_sync_debug_mode("error" if forbidden else "default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")

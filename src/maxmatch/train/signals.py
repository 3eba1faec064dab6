"""Signals that ask a run to stop: Ctrl-C, a cluster's SIGTERM, a terminal that is closed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


def stops() -> tuple[int, ...]:
    """The signals that ask a run to stop, and often go to a whole group of processes.

    A terminal that is closed sends SIGHUP, which `nohup` has ignored and Windows doesn't know.
    """
    hung_up = [number for number in signal.Signals if number.name == "SIGHUP"]
    return (signal.SIGINT, signal.SIGTERM, *(n for n in hung_up if signal.getsignal(n) != signal.SIG_IGN))


@contextmanager
def handled(handle: Callable[[int], None]) -> Iterator[None]:
    """Within: `handle` hears what asks to stop. It hears nothing in another thread than the main one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda heard, _: handle(heard)) for number in stops()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def collected(tell: bool) -> Iterator[list[int]]:
    """Collects what stops a run so that the loop can finish its step, which is told; a second one acts at once."""
    caught: list[int] = []
    usual = {number: signal.getsignal(number) for number in stops()}

    def catch(number: int) -> None:
        caught.append(number)
        signal.signal(number, usual[number])
        if tell:
            with suppress(OSError):  # who reads it may be gone; the plain call, since a line may just be printed
                os.write(2, b"\nstopping after this step, to save where it is; once more stops at once\n")

    with handled(catch):
        yield caught

"""How far long work has come, on standard error."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import Progress

from maxmatch.errors import tell

SILENCE = 10.0  # seconds between two lines where there is no terminal


def roughly(seconds: float) -> str:
    """A time to wait, no finer than an estimate is.

    >>> roughly(3), roughly(52), roughly(357), roughly(9000), roughly(300_000)
    ('10 s', '60 s', '6 min', '2.5 h', '3.5 days')
    """
    if seconds < 90:
        return f"{max(10, 10 * math.ceil(seconds / 10))} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


class Bar:
    """A bar on a terminal; elsewhere a line now and then, by `say`. `quiet` shows neither."""

    def __init__(self, what: str, total: int, quiet: bool = False, say: Callable[[str], None] = tell) -> None:
        console = Console(emoji=False, stderr=True)
        self.quiet, self.say = quiet, say
        self.what, self.total, self.done = what, total, 0
        self.begun = self.last = time.monotonic()
        # Left to itself, rich would take what goes to standard output to the bar's terminal, even out of a pipe.
        bar = Progress(console=console, transient=True, redirect_stdout=False)
        self.bar = bar if console.is_terminal and not quiet else None
        self.task = self.bar.add_task(what, total=total) if self.bar else None

    def __enter__(self) -> Bar:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def advance(self, count: int = 1) -> None:
        self.done += count
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=self.done)
        elif not self.quiet and (now := time.monotonic()) - self.last > SILENCE:
            self.last = now
            left = (now - self.begun) / max(self.done, 1) * (self.total - self.done)
            self.say(f"{self.what} {self.done}/{self.total}" + (f", about {roughly(left)} left" if left > 0 else ""))

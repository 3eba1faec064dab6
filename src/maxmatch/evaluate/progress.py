"""How far long work has come, on standard error."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import Progress

from maxmatch.errors import tell

SILENCE = 30.0  # seconds between two lines where there is no terminal


class Bar:
    """A bar on a terminal; elsewhere a line now and then, so that long work is not silent. `quiet` shows neither."""

    def __init__(self, what: str, total: int, quiet: bool = False) -> None:
        console = Console(emoji=False, stderr=True)
        self.quiet = quiet
        self.what, self.total, self.done, self.last = what, total, 0, time.monotonic()
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

    def advance(self, count: int) -> None:
        self.done += count
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=self.done)
        elif not self.quiet and time.monotonic() - self.last > SILENCE:
            self.last = time.monotonic()
            tell(f"{self.what} {self.done}/{self.total}")

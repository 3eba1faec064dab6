"""metrics.jsonl and what the terminal shows: data goes to files, words to standard error."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from maxmatch.errors import tell
from maxmatch.files import write_safely
from maxmatch.progress import roughly
from maxmatch.train.loggers import Logger

MINUTE = 60.0


class Metrics:
    """Appends one JSON object a line. Opened at a step, it first drops what lies behind that step or is torn."""

    def __init__(self, path: Path, step: int, loggers: Sequence[Logger] = ()) -> None:
        self.loggers = loggers
        kept = [line for line in _lines(path) if _step_of(line) <= step] if step else []
        write_safely(path, "".join(f"{line}\n" for line in kept).encode())
        self._file = open(path, "a", buffering=1)  # noqa: SIM115

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        self._file.write(json.dumps({"step": step, "kind": kind, **values}) + "\n")
        for logger in self.loggers:
            for name, value in values.items():
                if isinstance(value, float):
                    logger.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        self._file.close()
        for logger in self.loggers:
            logger.close()


class Unwritten:
    """Metrics of a rank that does not write."""

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All sound lines of a metrics.jsonl."""
    return [json.loads(line) for line in _lines(path) if math.isfinite(_step_of(line))]


def _lines(path: Path) -> list[str]:
    """Its lines; what is no text, after a power cut for example, becomes a line that is not sound."""
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


class Screen:
    """A progress bar on a terminal; elsewhere a line an evaluation, and a minute. `quiet` shows warnings alone."""

    def __init__(self, title: str, steps: int, quiet: bool = False, mute: bool = False) -> None:
        self.console = Console(emoji=False, stderr=True, quiet=mute)
        self.title, self.steps, self.quiet = title, steps, quiet or mute
        self._bar: Progress | None = None
        self._begun = self._told = time.monotonic()
        self._first: tuple[int, float] | None = None  # the first step of this process, which may compile, and its end
        if self.console.is_terminal and not quiet:
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
                TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
                console=self.console, transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task(title, total=steps, note="")

    def __enter__(self) -> Screen:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            with suppress(OSError):  # the terminal may be gone
                self._bar.stop()

    def advance(self, step: int) -> None:
        if self._bar:
            self._bar.update(self._task, completed=step)
            return
        now = time.monotonic()
        self._first = self._first or (step, now)
        if now - self._told > MINUTE:
            self._line(step, "")

    def note(self, step: int, text: str) -> None:
        """The latest figures."""
        if self._bar:
            self._bar.update(self._task, completed=step, note=text)
        else:
            self._line(step, f" {text}")

    def _line(self, step: int, text: str) -> None:
        now = self._told = time.monotonic()
        if self.quiet:
            return
        told = f"{self.title} {step}/{self.steps}{text}, {now - self._begun:.0f} s"
        first, since = self._first or (step, now)
        if first < step < self.steps:
            told += f", about {roughly((now - since) / (step - first) * (self.steps - step))} left"
        tell(told)

    def tell(self, text: str) -> None:
        """A line that stays, unless `quiet`."""
        if not self.quiet:
            self.say(text)

    def say(self, text: str) -> None:
        """A line that stays."""
        with suppress(OSError, ValueError, SystemExit):  # of a pipe that is closed rich makes an exit
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

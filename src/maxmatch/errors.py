"""The one exception users meet: a single line that names the value, the rule and what to type."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

FEW = 10  # so many names are told, and the rest counted


class UserError(Exception):
    """Something only the user can mend; the command line prints it as one line and exits with `code`."""

    code = 1
    from_rank = False  # True where one of several processes speaks for all


class Unsaid(UserError):
    """Another process of this run has said why it ends: exit with the same code, silently."""

    def __init__(self, code: int) -> None:
        super().__init__("another process of this run has said why it ends")
        self.code = code


class UsageError(UserError):
    """The words typed are wrong: exit code 2."""

    code = 2


class Interrupted(BaseException):
    """A signal ended the run after its checkpoint was saved: exit code 128 + signal.

    No `except Exception` around a run may take it for a run that failed, and begin the next.
    """

    from_rank = False

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.code = 128 + signal_number


# What other libraries call it.
ALIASES = {
    "learning_rate": "lr", "batch_size": "batch", "mu": "ratio", "iterations": "steps",
    "ema": "ema_decay", "wd": "weight_decay", "lambda": "weight", "p_cutoff": "threshold", "gpu": "cuda",
}  # fmt: skip


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """One line for a name that is not known, with the nearest right one or, failing that, all of them.

    >>> unknown("method", "fixmach", ["fixmatch", "maxmatch"])
    "unknown method 'fixmach': did you mean 'fixmatch'?"
    >>> unknown("setting", "train.lerning_rate", ["train.lr", "train.kernels"])
    "unknown setting 'train.lerning_rate': did you mean 'train.lr'?"
    >>> unknown("setting", "train.stesp", ["train.step", "train.steps"])
    "unknown setting 'train.stesp': did you mean 'train.steps'?"
    """
    names = sorted(known)
    section, dot, last = name.rpartition(".")
    alias = difflib.get_close_matches(last.replace("-", "_"), ALIASES, n=1, cutoff=0.8)
    meant = f"{section}{dot}{ALIASES[alias[0]] if alias else ''}"
    if meant in names:
        return f"unknown {what} '{name}': did you mean '{meant}'?"
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    # Letters in another order are one slip, nearer than one left out: `stesp` is `steps`, not `step`.
    near.sort(key=lambda other: sorted(other) != sorted(name))
    hint = f"did you mean '{near[0]}'?" if near else f"choose from {', '.join(names)}"
    return f"unknown {what} '{name}': {hint}"


def said(problem: Exception) -> str:
    """What went wrong in another's code, in one short line.

    >>> said(ValueError("two\\nlines"))
    'ValueError: two lines'
    """
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"


def tell(line: str) -> None:
    """A line on standard error. Nobody may read it any more, or the log's disk is full: no reason to end a training."""
    if sys.stderr is None:  # then Python would print it to standard output
        return
    with suppress(OSError, ValueError):  # ValueError: it was closed
        print(line.encode(errors="backslashreplace").decode(), file=sys.stderr, flush=True)  # of names that are no text


def counted(count: int, one: str, more: str) -> str:
    """A number of things, and what is said of one of them or of more.

    >>> counted(1, "file is", "files are"), counted(2000, "file is", "files are")
    ('1 file is', '2,000 files are')
    """
    return f"{count:,} {one if count == 1 else more}"


def listed(names: Sequence[str], few: int = FEW) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - few} more" if len(names) > few else ""
    return ", ".join(names[:few]) + more

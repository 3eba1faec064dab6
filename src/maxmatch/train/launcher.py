"""The torchrun that started this process: what its job has begun, which it may go on with, and that it ends with it.

torchrun starts all processes again when one has died, with the same words as before. Which run they may go on with is
in the run folder: `.job` names the launchers, one of each machine, that train in it. (torchrun's own
count of starts can't tell: each machine has one of its own, and a start that died before it reached the folder leaves
another job's run there.)
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from maxmatch.files import write_safely

NOTE = ".job"
LOOKS = 0.2  # seconds between two looks whether the launcher is still there


def launcher() -> str | None:
    """The torchrun above this process, by a name that no other has; None where there is none."""
    job = os.environ.get("TORCHELASTIC_RUN_ID")
    if job is None:
        return None
    above = os.getppid()
    while f"TORCHELASTIC_RUN_ID={job}".encode() in _environment(above):  # a script between torchrun and this process
        above = int(_stat(above, 1) or 0)
    return f"{job} {socket.gethostname()} {above} {_stat(above, 19)}"


def note_job(folder: Path, launchers: Sequence[str | None]) -> None:
    """Write into a run folder who trains in it now; who did before has no run in it any more."""
    found = sorted({name for name in launchers if name is not None})
    if found:
        write_safely(folder / NOTE, json.dumps(found).encode())
    else:
        (folder / NOTE).unlink(missing_ok=True)


def began(folder: Path) -> bool:
    """Whether the run in a folder was begun, or gone on with, by the job that this process belongs to."""
    mine = launcher()
    if mine is None or not (folder / "recipe.json").exists():
        return False
    try:
        return mine in json.loads((folder / NOTE).read_text())
    except (OSError, ValueError):
        return False


@contextmanager
def ending_with_it() -> Iterator[None]:
    """Within: a launcher that was killed can't say so; this process is then told to save where it is and end."""
    mine, over = launcher(), threading.Event()

    def watch() -> None:
        while not over.wait(LOOKS):
            if launcher() != mine:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    watching = threading.Thread(target=watch, daemon=True)
    if mine is not None:
        watching.start()
    try:
        yield
    finally:
        over.set()
        if mine is not None:
            watching.join()  # nobody is told to end for a run that is over


def _stat(process: int, field: int) -> str:
    """A field of what the system says of a process, behind its name: 1 is its parent, 19 when it began; else ''."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[field]
    except (OSError, IndexError):
        return ""


def _environment(process: int) -> list[bytes]:
    try:
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return []

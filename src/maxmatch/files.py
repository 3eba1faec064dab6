"""Files that a crash can't tear: written aside, synced, renamed."""

from __future__ import annotations

import csv
import io
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from maxmatch.errors import UsageError


def refuse_to_replace(path: Path, force: bool, option: str = "--out", ours: bytes | None = None) -> None:
    """A file that is there stays unless `force` says otherwise, or its beginning shows that it is `ours`."""
    if force or not path.is_file():
        return
    with open(path, "rb") as file:
        if ours is not None and ours in file.read(4096):
            return
    raise UsageError(f"{path} is there already: give another {option}, or type --force to write over it")


def refuse_other_things(folder: Path, ours: Collection[str], what: str) -> None:
    """A folder that holds something and none of `ours`, a folder of pictures for example, is no place for `what`."""
    held = [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    if held and not set(held) & set(ours):
        raise UsageError(f"{folder} is not empty and holds no {what}: give another --out")


def csv_lines(rows: Iterable[Sequence[object]]) -> bytes:
    """Rows as CSV with bare line feeds. Names of files may be no text, and hold whatever a line may end with."""
    text = io.StringIO(newline="")
    plain, quoted = (csv.writer(text, lineterminator="\n", quoting=q) for q in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    for row in rows:
        (quoted if any("\r" in str(cell) for cell in row) else plain).writerow(row)
    return text.getvalue().encode(errors="surrogateescape")


def write_safely(path: Path, content: bytes) -> None:
    """Write aside, sync, rename: a reader finds the old file or the new one, never half of one."""
    with written_aside(path) as aside:
        aside.write_bytes(content)


@contextmanager
def writing_safely(path: Path) -> Iterator[BinaryIO]:
    """The same for a file that is written piece by piece: it has its name when the block ends without an error."""
    with written_aside(path) as aside, open(aside, "wb") as file:
        yield file


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; at the end it takes the place of `path`, or is gone if something failed."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UsageError(f"{path} is no ordinary file: give the name of one")
    if path.is_symlink():
        path = Path(os.path.realpath(path))  # what it leads to is written, and the link stays
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}; make it, or give another name")
    with _own_name(path) as aside:
        try:
            yield aside
            with open(aside, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(aside, path)
        except BaseException as error:
            aside.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.filename in (None, str(aside), aside):
                error.filename = str(path)  # the name that the user gave; a full disk names none
            raise
    _sync_folder(path.parent)


@contextmanager
def _own_name(path: Path) -> Iterator[Path]:
    """A file beside `path` that is this writer's alone: who writes the same at the same time has another one.

    `.NAME.tmp`, by which data/shards.py knows what a kill has left, or another name where somebody writes to that.
    """
    usual = path.with_name(f".{path.name}.tmp")
    place = os.open(usual, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if _lock(place) and _is_file(place, usual):  # not renamed by who held it until now
            yield usual
            return
    finally:
        os.close(place)
    other = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(8)}.tmp")
    os.close(os.open(other, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    yield other


def _lock(place: int) -> bool:
    """Make the open file this writer's, as far as the system has locks; False where it is another's."""
    with suppress(ImportError, OSError):
        import fcntl

        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _is_file(place: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(place), path.stat())
    except OSError:
        return False


@contextmanager
def in_turn(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Within: no other process holds the lock file `path`. `waiting` is called once where another one does."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    place = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(place, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(place)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Within: no other process works in the folder. The lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another process is training in {folder}: wait for it, or give another --out") from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(place)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last; not every system lets a folder be synced."""
    with suppress(OSError):
        place = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)

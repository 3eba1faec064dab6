"""Files that a crash can't tear: written aside, synced, renamed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}; make it, or give another name")
    aside = path.with_name(f".{path.name}.tmp")
    try:
        yield aside
        with open(aside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
        _sync_folder(path.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


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

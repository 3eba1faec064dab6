"""Pictures in tar files: a million small files become some hundred large ones, each picture found by its offset.

A folder of shards holds 00000.tar, 00001.tar, ... and index.csv with path, label, test, shard, offset and size of every
picture. The plan says which picture a step draws, anywhere in the data; the offset finds it with one read, so a run on
shards sees what the same run on the folder sees, and goes on in the middle of an epoch. Formats that are read from
front to back can't do that. Each shard begins with labels.csv, path,label,test of its own members, so that any tar
reads it and a lost index is made again from the shards alone.
"""

from __future__ import annotations

import csv
import io
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from maxmatch.errors import UsageError, UserError
from maxmatch.files import csv_lines, write_safely, writing_safely

INDEX, LABELS = "index.csv", "labels.csv"
UNFINISHED = ".unfinished"  # stands in a folder until all its shards are written, and says what to type
HEAD = ("path", "label", "test", "shard", "offset", "size")
SIZE = 2**29  # of a shard, about: ImageNet has some 280, which may all be open at once


class Member(NamedTuple):
    """A picture to be written: its name, its label ("" where unknown), whether it is in the test, its size in bytes."""

    name: str
    label: str
    test: bool
    size: int


@dataclass(frozen=True, eq=False)
class Shards:
    """The index of a folder of shards, row by row, and their files, which stay open."""

    root: Path
    names: Sequence[str]
    labels: Sequence[str]
    tests: Sequence[bool]
    places: Sequence[tuple[str, int, int]]  # shard, offset, size
    _row: dict[str, int] = field(default_factory=dict)
    _files: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._row.update({name: row for row, name in enumerate(self.names)})
        for shard in sorted({shard for shard, _, _ in self.places}):
            self._files[shard] = os.open(self.root / shard, os.O_RDONLY)

    def __del__(self) -> None:
        for file in self._files.values():
            os.close(file)

    def open(self, name: str) -> IO[bytes]:
        """A picture's bytes as a file. Threads may do so at once: nothing is moved. Raises OSError where it is cut."""
        shard, offset, size = self.places[self._row[name]]
        content = os.pread(self._files[shard], size, offset)
        if len(content) != size:
            raise OSError(f"{self.root / shard}: cut off before the end of {name}")
        return io.BytesIO(content)

    def size(self, name: str) -> int:
        return self.places[self._row[name]][2]


def is_sharded(root: Path) -> bool:
    """Whether a folder holds shards, or what has been written of them."""
    if any((root / name).is_file() for name in ("00000.tar", UNFINISHED)):
        return True
    try:  # a user may have a file of that name
        with open(root / INDEX, encoding="utf-8", errors="surrogateescape") as file:
            return file.readline().strip() == ",".join(HEAD)
    except OSError:
        return False


def write_shards(
    root: Path,
    out: Path,
    members: Sequence[Member],
    size: int = SIZE,
    advance: Callable[[int], None] = lambda count: None,
    command: str = "maxmatch data shard",
) -> int:
    """Write the members, files below `root`, into shards of about `size` bytes, the index last; returns their count.

    The same files give the same bytes. One picture is held in memory at a time. `advance` hears of each. Until all is
    written a mark says that it is not, with the `command` to type; what such a one has left is written anew.
    """
    if not members:
        raise UsageError(f"{out}: there is no picture to put into shards")
    left = _left_over(out)
    out.mkdir(parents=True, exist_ok=True)
    write_safely(out / UNFINISHED, command.encode("utf-8", "surrogateescape"))
    for path in left:
        path.unlink()
    count = 0
    for number, held in enumerate(_portions(members, size)):
        with writing_safely(out / f"{number:05d}.tar") as file:
            for _ in _tar(root, held, file):
                advance(1)
        count = number + 1
    write_safely(out / INDEX, _table(HEAD, _scan(out)))
    (out / UNFINISHED).unlink()
    return count


def open_shards(root: Path) -> Shards:
    """The shards of a folder, by its index, or by the shards themselves where that is missing."""
    if (root / UNFINISHED).exists():
        command = (root / UNFINISHED).read_text("utf-8", "surrogateescape")
        raise UserError(f"{root}: not all its shards were written; type {command}")
    try:
        rows = _read_index(root / INDEX) if (root / INDEX).exists() else list(_scan(root))
        names, labels, tests, shards, offsets, sizes = zip(*rows, strict=True)
        whole = [(str(a), int(b), int(c)) for a, b, c in zip(shards, offsets, sizes, strict=True)]
        _refuse_short(root, whole)
        return Shards(root, names, labels, [str(test) == "1" for test in tests], whole)
    except FileNotFoundError as error:
        raise UserError(f"{error.filename}: a shard that the index names is missing; restore it") from None
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        again = "restore them, or make them again with maxmatch data shard"
        raise UserError(f"{root}: its shards can't be read ({error}); {again}") from None


def _refuse_short(root: Path, whole: Sequence[tuple[str, int, int]]) -> None:
    """A shard that ends before its last picture does was not copied to its end."""
    ends: dict[str, int] = {}
    for shard, offset, size in whole:
        ends[shard] = max(ends.get(shard, 0), offset + size)
    for shard, end in ends.items():
        found = (root / shard).stat().st_size
        if found < end:
            raise UserError(f"{root / shard} has {found:,} bytes, its pictures take {end:,}: copy it there again")


def _left_over(out: Path) -> list[Path]:
    """What a packing that was broken off has left, but its mark; a folder with anything else in it is refused."""
    held = [path for path in (out.iterdir() if out.exists() else ()) if path.name != UNFINISHED]
    ours = re.compile(rf"\.?(\d+\.tar|{re.escape(INDEX)}|{re.escape(UNFINISHED)})(\.\d+-[0-9a-f]+)?")
    marked = (out / UNFINISHED).exists()
    if not all(ours.fullmatch(path.name.removesuffix(".tmp")) and (marked or path.suffix == ".tmp") for path in held):
        raise UsageError(f"{out} is not empty: give a new folder for the shards")
    return held


Row = tuple[str, str, str | int, str, int | str, int | str]


def _portions(members: Iterable[Member], size: int) -> Iterator[list[Member]]:
    held: list[Member] = []
    filled = 0
    for member in members:
        if held and filled + member.size > size:
            yield held
            held, filled = [], 0
        held.append(member)
        filled += member.size
    if held:
        yield held


def _tar(root: Path, held: Sequence[Member], file: IO[bytes]) -> Iterator[Member]:
    """One shard: labels.csv, then the pictures, with no trace of who made it when; yields each that is written."""
    labels = _table(HEAD[:3], [(member.name, member.label, int(member.test)) for member in held])
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, LABELS, labels)
        for member in held:
            _add(tar, member.name, (root / member.name).read_bytes())
            yield member


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _scan(root: Path) -> Iterator[Row]:
    """The rows of the index, from the shards themselves."""
    for path in sorted(root.glob("[0-9]*.tar")):
        with tarfile.open(path) as tar:
            labels: dict[str, tuple[str, str]] = {}
            for entry in tar:
                if entry.name == LABELS:
                    content = tar.extractfile(entry)
                    assert content is not None
                    lines = csv.reader(io.TextIOWrapper(content, "utf-8", "surrogateescape", newline=""))
                    labels = {name: (label, test) for name, label, test in lines}
                    continue
                label, test = labels[entry.name]
                yield entry.name, label, test, path.name, entry.offset_data, entry.size


def _read_index(path: Path) -> list[Row]:
    with open(path, newline="", encoding="utf-8", errors="surrogateescape") as file:
        lines = csv.reader(file)
        if tuple(next(lines, ())) != HEAD:
            raise ValueError(f"{path.name} does not begin with {','.join(HEAD)}")
        return [(name, label, test, shard, offset, size) for name, label, test, shard, offset, size in lines]


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    return csv_lines([head, *rows])

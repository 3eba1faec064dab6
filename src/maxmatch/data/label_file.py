"""A CSV file of path,label: what it says of the pictures of a folder, as people and spreadsheets write it."""

from __future__ import annotations

import csv
import posixpath
from collections.abc import Iterator
from pathlib import Path

from maxmatch.errors import UsageError


def inside(root: Path, name: str) -> Iterator[str]:
    """The paths in the folder that one of the table may mean: as it stands, without detours, as Windows writes it."""
    yield _within(root, name)
    for text in (name, name.replace("\\", "/")):
        yield _within(posixpath.normpath(root), posixpath.normpath(text))


def _within(root: Path | str, name: str) -> str:
    path = Path(name)
    return path.relative_to(root).as_posix() if path.is_absolute() and path.is_relative_to(root) else path.as_posix()


def is_text(words: str) -> bool:
    """Whether words of the table were written in UTF-8."""
    return not any("\udc80" <= letter <= "\udcff" for letter in words)


def other_encoding(label_file: Path, words: str) -> UsageError:
    """What to say of words that were not."""
    shown = words.encode("utf-8", "surrogateescape").decode("latin-1")
    return UsageError(f"{label_file}: '{shown}' is not written in UTF-8; save the file as UTF-8")


def read_rows(label_file: Path) -> list[tuple[str, str]]:
    """Path and label of each row; spreadsheets write semicolons or tabs in some countries.

    A path may be no text, as names of files may; a label must be.
    """
    try:
        with open(label_file, newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
            first = file.readline()
            file.seek(0)
            lines = list(csv.reader(file, delimiter=next((mark for mark in ",;\t" if mark in first), ",")))
    except FileNotFoundError:
        raise UsageError(f"{label_file}: there is no such file; a CSV file of path,label is wanted") from None
    except (OSError, csv.Error) as error:
        raise UsageError(f"{label_file}: can't be read as CSV ({error}); two columns are wanted: path,label") from None
    if any("\0" in cell for line in lines for cell in line):
        raise UsageError(f"{label_file}: it is no CSV in UTF-8, as UTF-16 and spreadsheets are none; save it so")
    lines = [line for line in lines if any(cell.strip() for cell in line)]
    head = [cell.strip().lower() for cell in lines[0]] if lines else []
    if "path" in head:
        place = (head.index("path"), head.index("label") if "label" in head else None)
        if place[1] is None:
            raise UsageError(f"{label_file}: its first line has no column 'label'; path,label is wanted")
        lines = lines[1:]
    else:
        place = (0, 1)
    rows = []
    for line in lines:
        path = line[place[0]].strip() if len(line) > place[0] else ""
        label = line[place[1]].strip() if place[1] is not None and len(line) > place[1] else ""
        if not is_text(label):
            raise other_encoding(label_file, label)
        rows.append((path, label))
    if not rows:
        raise UsageError(f"{label_file}: no rows in it; path,label is wanted")
    return rows

"""A CSV file of path,label: what it says of the pictures of a folder, as people and spreadsheets write it."""

from __future__ import annotations

import csv
import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from maxmatch.data.folder import is_picture
from maxmatch.errors import UsageError

PATHS = ("path", "file", "filename", "file_name", "filepath", "image", "picture")  # what a first line calls them
LABELS = ("label", "class", "category", "target")
NOTHING = ("nan", "null", "n/a", "<na>", "unlabeled", "unlabelled")  # what tables write where there is no label,
DOUBTFUL = ("none", "na", "unknown", "?", "-")  # and what may as well be a class


class Nothing:
    """Words of a table that stand for no label."""

    def __init__(self, label_file: Path) -> None:
        self._label_file = label_file
        self._seen: Counter[str] = Counter()

    def or_label(self, label: str) -> str:
        """The label, or '' where a word says that there is none; -1 is that in arrays."""
        if label.casefold() in (*NOTHING, *DOUBTFUL):
            self._seen[label] += 1
        return "" if says_nothing(label) else label

    def hints(self) -> list[str]:
        """What to tell of such words."""
        return [
            f"{self._label_file}: {count:,} rows say '{word}', taken as "
            + ("unlabelled" if word.casefold() in NOTHING else "a class; leave the label blank where there is none")
            for word, count in self._seen.items()
        ]


def says_nothing(label: str) -> bool:
    """Whether a cell is no label: blank, -1 as in arrays, or a word for none."""
    return label in ("", "-1") or label.casefold() in NOTHING


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
            mark = next((mark for mark in ",;\t" if mark in first), ",")
            if said := re.fullmatch(r'"?sep=(.)"?[,;\t]*', first.strip("\r\n")):  # Excel's own, above the table
                mark = said[1]
                file.readline()
            lines = _lines(label_file, csv.reader(file, delimiter=mark, strict=True))
    except FileNotFoundError:
        raise UsageError(f"{label_file}: there is no such file; a CSV file of path,label is wanted") from None
    except (OSError, csv.Error) as error:
        raise UsageError(f"{label_file}: can't be read as CSV ({error}); two columns are wanted: path,label") from None
    if any("\0" in cell for line in lines for cell in line):
        raise UsageError(f"{label_file}: it is no CSV in UTF-8, as UTF-16 and spreadsheets are none; save it so")
    lines = [line for line in lines if any(cell.strip() for cell in line)]
    place = _columns(label_file, [cell.strip().lower() for cell in lines[0]]) if lines else None
    lines, (name_at, label_at) = (lines, (0, 1)) if place is None else (lines[1:], place)
    rows = []
    for line in lines:
        path, label = (line[at].strip() if len(line) > at else "" for at in (name_at, label_at))
        if not is_text(label):
            raise other_encoding(label_file, label)
        rows.append((path, label))
    if not rows:
        raise UsageError(f"{label_file}: no rows in it; path,label is wanted")
    return rows


def _lines(label_file: Path, reader: Any) -> list[list[str]]:
    """All lines, none of whose cells but paths goes on over the next: a quotation mark too many swallows the rest."""
    lines: list[list[str]] = []
    begins = 1
    try:
        for line in reader:
            if any("\n" in cell or "\r" in cell for cell in line[1:]):
                raise csv.Error("a cell goes on over the next line")
            lines.append(line)
            begins = reader.line_num + 1
    except csv.Error as error:
        what = f"line {begins} has a quotation mark too many or too few ({error})"
        raise UsageError(f"{label_file}: {what}; mend that line") from None
    return lines


def _columns(label_file: Path, head: list[str]) -> tuple[int, int] | None:
    """Where a first line says that paths and labels stand; None where it is a row like the others."""
    if {"path", "label", "confidence"} <= {*head}:
        what = "these are predictions, which nobody has checked"
        raise UsageError(f"{label_file}: {what}; keep the rows that you have, and no columns but path,label")
    name, label = (next((word for word in words if word in head), None) for words in (PATHS, LABELS))
    if name is None and label is not None and len(head) > 2 and not any(is_picture(cell) for cell in head):
        told_of = f"its first line has a column '{label}' and none for the pictures ({', '.join(head)})"
        raise UsageError(f"{label_file}: {told_of}; call that one path")
    if name == "path" and label is None:
        raise UsageError(f"{label_file}: its first line has no column 'label'; path,label is wanted")
    return None if name is None or label is None else (head.index(name), head.index(label))

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
            mark, above = next((mark for mark in ",;\t" if mark in first), ","), 0
            if said := re.fullmatch(r'"?sep=(.)"?[,;\t]*', first.strip("\r\n")):  # Excel's own, above the table
                mark, above = said[1], 1
                file.readline()
            lines = list(_numbered(csv.reader(file, delimiter=mark), above))
    except FileNotFoundError:
        raise UsageError(f"{label_file}: there is no such file; a CSV file of path,label is wanted") from None
    except (OSError, csv.Error) as error:
        raise UsageError(f"{label_file}: can't be read as CSV ({error}); two columns are wanted: path,label") from None
    if any("\0" in cell for _, line in lines for cell in line):
        raise UsageError(f"{label_file}: it is no CSV in UTF-8, as UTF-16 and spreadsheets are none; save it so")
    lines = [(number, line) for number, line in lines if any(cell.strip() for cell in line)]
    place = _columns(label_file, [cell.strip().lower() for cell in lines[0][1]]) if lines else None
    lines, (name_at, label_at) = (lines, (0, 1)) if place is None else (lines[1:], place)
    rows = []
    for number, line in lines:
        path, label = (line[at] if len(line) > at else "" for at in (name_at, label_at))
        if re.search("[\r\n]", label) or (re.search("[\r\n]", path) and mark in path):  # it swallowed other lines
            raise UsageError(f"{label_file}: line {number} has a quotation mark too many or too few; mend that line")
        path, label = path.strip(), label.strip()
        if not is_text(label):
            raise other_encoding(label_file, label)
        rows.append((path, label))
    if not rows:
        raise UsageError(f"{label_file}: no rows in it; path,label is wanted")
    return rows


def _numbered(reader: Any, above: int) -> Iterator[tuple[int, list[str]]]:
    """Each row with the number of the line that it begins on, where so many stand above."""
    begins = above + 1
    for row in reader:
        yield begins, row
        begins = above + reader.line_num + 1


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

"""Rows as CSV or JSON lines, written as they come: to a file that gets its name at the end, or to standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from maxmatch.errors import UsageError, unknown
from maxmatch.files import csv_lines, writing_safely

FORMATS = {"csv": (".csv", ".txt", ""), "jsonl": (".jsonl", ".ndjson")}
OTHERS = (".json", ".xlsx", ".xls", ".ods", ".parquet", ".tsv", ".feather")  # whose readers would not read CSV

Row = dict[str, Any]
Write = Callable[[Iterable[Row]], None]


class ReaderGone(Exception):
    """Who read our standard output has closed it, as `head` does: there is nothing left to do, and nothing is wrong."""


def choose_format(asked: str | None, out: Path | None) -> str:
    """The format asked for, else that of the file's ending, else CSV; never CSV under another format's name."""
    if asked is not None and asked not in FORMATS:
        raise UsageError(unknown("format", asked, FORMATS))
    ending = out.suffix.lower() if out else ""
    if asked is None and ending in OTHERS:
        raise UsageError(f"--out {out}: CSV and JSON lines are written; type a file that ends in .csv or .jsonl")
    return asked or next((name for name, endings in FORMATS.items() if ending in endings), "csv")


@contextmanager
def writing_rows(out: Path | None, format: str, columns: Sequence[str]) -> Iterator[Write]:
    """Within: a function that writes some rows. CSV has the `columns`; a JSON line has all that is in its row."""

    def spelled(rows: Iterable[Row]) -> bytes:
        if format == "jsonl":
            return "".join(f"{json.dumps(row)}\n" for row in rows).encode()
        return _csv([row[name] for name in columns] for row in rows)

    if out is None:
        _to_standard_output(b"" if format == "jsonl" else _csv([columns]))
        yield lambda rows: _to_standard_output(spelled(rows))
        return
    if not os.access(out.parent, os.W_OK):
        raise UsageError(f"--out {out}: its folder is not there or can't be written to")
    if out.is_dir():
        raise UsageError(f"--out {out}: that is a folder; give the file to write")
    with writing_safely(out) as file:
        file.write(b"" if format == "jsonl" else _csv([columns]))

        def write(rows: Iterable[Row]) -> None:
            file.write(spelled(rows))

        yield write


def _csv(lines: Iterable[Sequence[Any]]) -> bytes:
    return csv_lines([_cell(value) for value in line] for line in lines)


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _to_standard_output(content: bytes) -> None:
    """In UTF-8, whatever the terminal's encoding is: rows are for programs."""
    text = content.decode(errors="replace")
    raw = getattr(sys.stdout, "buffer", None)
    try:
        if raw is None:  # a notebook's has none
            sys.stdout.write(text)
        else:
            sys.stdout.flush()  # what was printed before comes first
            raw.write(text.encode())
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still held back would be tried again at the exit, and complained about.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise ReaderGone from None

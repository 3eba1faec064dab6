"""A record says how it came about: command, commit, versions, hardware, what was printed, and the raw numbers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from maxmatch.bench.origin import commit, hardware, versions

FOLDER = Path(os.environ.get("MAXMATCH_RECORDS", Path(__file__).parent / "records"))


class Record:
    """What a benchmark prints, kept, and written with its results to benchmarks/records/NAME.json."""

    def __init__(self, name: str) -> None:
        self.path = FOLDER / f"{name}.json"
        self.printed: list[str] = []

    def say(self, line: str) -> None:
        """Print a line and keep it."""
        print(line, flush=True)
        self.printed.append(line)

    def save(self, results: Any, threads: int | None = None) -> None:
        """Write the record; `threads` where worker processes had another count than this one."""
        record = {
            "command": " ".join(["python", *sys.argv]),
            "commit": commit(Path(__file__).parent / "*.py"),
            "versions": versions(),
            "hardware": hardware(threads),
            "printed": self.printed,
            "results": results,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(record, indent=1) + "\n")
        print(self.path)

"""A record says how it came about: command, commit, versions, hardware, what was printed, and the raw numbers."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import maxmatch

FOLDER = Path(__file__).parent / "records"


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
            "commit": _commit(),
            "versions": {
                "maxmatch": maxmatch.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
            "hardware": {
                "cpu": _cpu(),
                "cores": os.cpu_count(),
                "threads": threads or torch.get_num_threads(),
                "gpu": _gpu(),
            },
            "printed": self.printed,
            "results": results,
        }
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(record, indent=1) + "\n")
        print(self.path)


def git(*arguments: str) -> bytes | None:
    """What git prints when asked in this clone; None where it fails or there is no git."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, cwd=Path(__file__).parents[1], check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def _commit() -> str | None:
    """The commit that was measured, with a + where the code has changed since."""
    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "src", "benchmarks/*.py")
    return commit.decode().strip() + ("+" if changed else "") if commit else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _gpu() -> str | None:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None

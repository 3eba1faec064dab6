"""A record says how it came about: command, commit, versions, hardware, and the raw numbers."""

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


def save_record(name: str, results: Any, threads: int | None = None) -> Path:
    """Write benchmarks/records/NAME.json; `threads` where worker processes had another count than this one."""
    record = {
        "command": " ".join(["python", *sys.argv]),
        "commit": _git("rev-parse", "HEAD") + ("+" if _git("status", "--porcelain", "src") else ""),
        "versions": {"maxmatch": maxmatch.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "hardware": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "threads": threads or torch.get_num_threads(),
            "gpu": _gpu(),
        },
        "results": results,
    }
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=FOLDER.parent, check=False)
    return done.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _gpu() -> str | None:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None

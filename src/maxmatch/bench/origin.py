"""How a record came about: commit, versions, hardware."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from maxmatch import __version__

SOURCE = Path(__file__).parents[1]


def commit(*also: Path) -> str | None:
    """The commit of this source, with a + where it or `also` was changed since.

    MAXMATCH_COMMIT names it in a copy without its own .git, where it would be None.
    """
    if named := os.environ.get("MAXMATCH_COMMIT"):
        return named
    if git("ls-files", "--error-unmatch", str(SOURCE / "__init__.py")) is None:
        return None
    changed = git("status", "--porcelain", str(SOURCE), *map(str, also))
    return f"{(git('rev-parse', 'HEAD') or b'').decode().strip()}{'+' if changed else ''}"


def versions() -> dict[str, Any]:
    """Of all that a figure may hang on."""
    on_gpu = torch.cuda.is_available()
    return {
        "maxmatch": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda if on_gpu else None,
        "cudnn": torch.backends.cudnn.version() if on_gpu else None,  # type: ignore[no-untyped-call]
    }


def hardware(threads: int | None = None) -> dict[str, Any]:
    """The processor and, where there is one, the GPU; `threads` where worker processes had another count."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": threads or torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def git(*arguments: str) -> bytes | None:
    """What git prints when asked in the folder of the project; None where it fails or there is no git."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, cwd=SOURCE.parents[1], check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "CPU")

"""Which device: the fastest that is here, or the one that was named."""

from __future__ import annotations

from typing import Literal

import torch

from maxmatch.errors import UsageError, unknown

Device = Literal["auto", "cpu", "cuda", "mps"]


def best_device() -> Device:
    """The fastest device that is here."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def find_device(name: str) -> torch.device:
    """The device of that name, `auto` for the best, or one line that says that there is none."""
    available = {"auto": True, "cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name not in available:
        raise UsageError(unknown("device", name, available))
    if not available[name]:
        raise UsageError(f"device = {name}: there is none here; type --device auto or --device cpu")
    return torch.device(best_device() if name == "auto" else name)

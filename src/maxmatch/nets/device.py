"""Which device: the fastest that is here, or the one that was named."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from maxmatch.cores import cores
from maxmatch.errors import UsageError, unknown

Device = Literal["auto", "cpu", "cuda", "mps"]


def is_available(name: str) -> bool:
    """Whether a device of that name is here."""
    if name == "cuda":
        return torch.cuda.is_available()
    return name != "mps" or bool(torch.backends.mps.is_available())


def best_device() -> Device:
    """The fastest device that is here."""
    if is_available("cuda"):
        return "cuda"
    return "mps" if is_available("mps") else "cpu"


def best_threads() -> int:
    """As many threads as torch takes, and no more than there are cores for."""
    return min(torch.get_num_threads(), cores())


def find_device(name: str | torch.device) -> torch.device:
    """The device of that name, `auto` for the best, or one line that says that there is none."""
    name = str(name)
    if name not in ("auto", "cpu", "cuda", "mps"):
        raise UsageError(unknown("device", name, ("auto", "cpu", "cuda", "mps")))
    if not is_available(name):
        raise UsageError(f"device = {name}: there is none here; type --device auto or --device cpu")
    return torch.device(best_device() if name == "auto" else name)


def best_precision(name: str) -> Literal["bf16", "float32"]:
    """What trains fastest there with nothing lost: bf16 on a GPU that computes in it, else float32."""
    fast = name == "cuda" and is_available("cuda") and torch.cuda.get_device_capability() >= (8, 0)
    return "bf16" if fast else "float32"


def generator_state(device: torch.device) -> Tensor:
    """Where the generator stands that draws on a device."""
    return torch.cuda.get_rng_state() if device.type == "cuda" else torch.get_rng_state()


def set_generator(device: torch.device, state: Tensor) -> None:
    """Put it back there."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state)
    else:
        torch.set_rng_state(state)

"""CUDA source to a kernel, by the compiler that comes with torch (NVRTC): no CUDA toolkit need be installed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

_lock, _inside = threading.Lock(), 0


def can_compile() -> bool:
    """Whether this torch compiles kernels."""
    return hasattr(torch.cuda, "_compile_kernel")


def compile_kernel(source: str, name: str, capability: str | None = None, options: Sequence[str] = ()) -> Any:
    """The function `name` of a source, for GPUs of this capability or the current one; threads may call it at once."""
    with without_toolkit():
        return torch.cuda._compile_kernel(source, name, compute_capability=capability, nvcc_options=list(options))


@contextmanager
def without_toolkit() -> Iterator[None]:
    """Within: torch does without the folder of a toolkit, which it asks for, and our sources include nothing from."""
    from torch.utils import cpp_extension

    global _inside
    with _lock:
        absent = cpp_extension.CUDA_HOME is None or _inside > 0
        if absent:
            cpp_extension.CUDA_HOME, _inside = "no-toolkit", _inside + 1
    try:
        yield
    finally:
        with _lock:
            _inside -= absent
            if absent and not _inside:
                cpp_extension.CUDA_HOME = None

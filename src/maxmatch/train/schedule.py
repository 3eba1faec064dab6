"""The learning rate as a pure function of the step."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["cosine-7/16", "cosine", "cosine-epoch", "constant"]


def learning_rate(
    step: int, *, steps: int, lr: float, schedule: Schedule, warmup: int = 0, epochs: int | None = None
) -> float:
    """Linear warm-up over the first `warmup` steps, then lr cos(7 pi t / 16 T), lr (1 + cos(pi t / T)) / 2, or lr.

    `cosine-epoch` is `cosine` with one value for each of the `epochs`, that of its first step, as EMAN's code has it;
    without epochs the two are the same.

    >>> learning_rate(50, steps=100, lr=0.1, schedule="cosine")
    0.05
    """
    if step < warmup:
        return lr * (step + 1) / warmup
    if schedule == "cosine-epoch" and epochs is not None:
        length = steps // epochs
        step = max(warmup, step // length * length)
    t = (step - warmup) / max(1, steps - warmup)
    if schedule == "cosine-7/16":
        return lr * math.cos(7 * math.pi * t / 16)
    if schedule in ("cosine", "cosine-epoch"):
        return lr * (0.5 + 0.5 * math.cos(math.pi * t))
    return lr

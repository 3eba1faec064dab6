"""The learning rate as a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Schedule = Literal["cosine-7/16", "cosine", "cosine-epoch", "linear", "quadratic", "milestones", "constant"]
FALLING: tuple[Schedule, ...] = ("cosine", "cosine-epoch", "linear", "quadratic")  # to 0, or to a floor


def learning_rate(
    step: int,
    *,
    steps: int,
    lr: float,
    schedule: Schedule,
    warmup: int = 0,
    epochs: int | None = None,
    milestones: Sequence[float] = (),
    floor: float = 0.0,
) -> float:
    """Linear warm-up over the first `warmup` steps, then lr cos(7 pi t / 16 T), lr (1 + cos(pi t / T)) / 2, or lr.

    `linear` is lr (1 - t / T), which is small for a shorter time than `cosine`; `quadratic` is lr (1 - t / T)^2, which
    is large for a shorter time: half of the training is below a quarter of lr. `cosine-epoch` is `cosine` with one
    value for each of the `epochs`, that of its first step, as EMAN's code has it; without epochs the two are the same.
    `milestones` are shares of all steps: from each of them on the rate is a tenth of what it was. What would fall to 0
    (`FALLING`) falls to `floor` times lr.

    >>> learning_rate(50, steps=100, lr=0.1, schedule="cosine")
    0.05
    >>> [learning_rate(t, steps=50, lr=0.1, schedule="milestones", milestones=(0.6, 0.8)) for t in (29, 30, 40)]
    [0.1, 0.01, 0.001]
    >>> [learning_rate(t, steps=100, lr=0.4, schedule="linear", floor=0.25) for t in (0, 50, 100)]
    [0.4, 0.25, 0.1]
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
        return lr * (floor + (1 - floor) * (0.5 + 0.5 * math.cos(math.pi * t)))
    if schedule in ("linear", "quadratic"):
        return lr * (floor + (1 - floor) * (1 - t) ** (2 if schedule == "quadratic" else 1))
    if schedule == "milestones":
        return lr / 10.0 ** sum(step / steps >= milestone for milestone in milestones)
    return lr

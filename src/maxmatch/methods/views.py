"""How many strong views a step has: K as it is typed, and what it may be in any step."""

from __future__ import annotations

import math
from typing import Annotated, Any

from maxmatch.errors import UsageError

Choices = tuple[tuple[int, float], ...]  # of K, with probabilities or shares of the training


def parse_views(value: Any, name: str = "k") -> int | Choices | str:
    """The number of views K: an int, `1,2,3` (drawn) or `1:.5,2:.3,3:.2` (by weight), sorted and summing to one.

    `1..3` is a schedule: K = 1 for the first half of the training, then 3; with weights `1:.2..3:.8`. It stays words.

    >>> parse_views("3")
    3
    >>> parse_views("2,1")
    ((1, 0.5), (2, 0.5))
    >>> parse_views("1..3"), parse_views("3:1..1:3")
    ('1..3', '3:0.25..1:0.75')
    """
    typed, wrong = value, "type --k 3, --k 1,2,3, --k 1:.5,2:.3,3:.2, --k 1..3 or --k 1:.2..3:.8"
    in_order = isinstance(value, str) and ".." in value
    if isinstance(value, str) and not value.strip().isdigit():
        parts = [part.split(":") for part in value.split(".." if in_order else ",")]
        if len({len(part) for part in parts}) > 1:
            raise UsageError(f"{name} = {typed}: give each K a weight, or none; {wrong}")
        value = parts if len(parts[0]) > 1 else [(part[0], 1) for part in parts]
    elif isinstance(value, int | str) and not isinstance(value, bool):
        value = [(value, 1)]
    try:
        pairs = [(int(k), float(weight)) for k, weight in value]
    except (TypeError, ValueError):
        raise UsageError(f"{name} = {typed}: whole numbers are wanted; {wrong}") from None
    if not pairs or min(k for k, _ in pairs) < 1:
        raise UsageError(f"{name} = {typed}: at least one strong view is needed; type --k 3")
    if not all(0 < weight < math.inf for _, weight in pairs):
        raise UsageError(f"{name} = {typed}: a weight is a number above 0; {wrong}")
    if not in_order and len({k for k, _ in pairs}) < len(pairs):
        raise UsageError(f"{name} = {typed}: each K once; {wrong}")
    if len(pairs) == 1:
        return pairs[0][0]
    total = sum(weight for _, weight in pairs)
    if abs(total - 1) < 1e-9:  # already probabilities: they survive another reading unchanged
        total = 1.0
    if in_order:
        alike = len({weight for _, weight in pairs}) == 1
        return "..".join(f"{k}" if alike else f"{k}:{weight / total!r}" for k, weight in pairs)
    return tuple((k, weight / total) for k, weight in sorted(pairs))


Views = Annotated[int | Choices | str, parse_views]


def all_choices(views: int | Choices | str) -> Choices:
    """Every K that a step may have, with its probability or share.

    >>> all_choices(3), all_choices("1..3"), all_choices("1:0.2..3:0.8")
    (((3, 1.0),), ((1, 0.5), (3, 0.5)), ((1, 0.2), (3, 0.8)))
    """
    if isinstance(views, str):
        parts = [part.split(":") for part in views.split("..")]
        return tuple((int(part[0]), float(part[1]) if len(part) > 1 else 1 / len(parts)) for part in parts)
    return ((views, 1.0),) if isinstance(views, int) else views

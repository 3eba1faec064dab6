"""Options that are numbers within bounds: their type says so, and whatever makes a method is held to it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_type_hints

from maxmatch.errors import UsageError
from maxmatch.settings import convert

INFINITY = float("inf")


@dataclass(frozen=True)
class Bounds:
    """What a number must be, in words and as a test; called, it reads a value that was typed."""

    words: str
    hold: Callable[[float], bool]
    kind: type = float

    def __call__(self, value: Any, name: str) -> Any:
        number = convert(self.kind, value, name)
        if not self.hold(number):
            raise UsageError(f"{name} = {number:g}: {self.words} is wanted")
        return number


Weight = Annotated[float, Bounds("a number of 0 or more", lambda v: 0 <= v < INFINITY)]
Positive = Annotated[float, Bounds("a number above 0", lambda v: 0 < v < INFINITY)]
Share = Annotated[float, Bounds("a number from 0 to 1", lambda v: 0 <= v <= 1)]
Decay = Annotated[float, Bounds("a number from 0 to below 1", lambda v: 0 <= v < 1)]
Count = Annotated[int, Bounds("a whole number of at least 1", lambda v: v >= 1, int)]


@functools.cache
def bounded(cls: type) -> dict[str, Any]:
    """The fields of a dataclass that have bounds, with their types; one that is only float again keeps those it had."""
    found: dict[str, Any] = {}
    for each in reversed(cls.__mro__):
        try:
            hints = get_type_hints(each, include_extras=True)
        except NameError:  # a class within a function may have types that can't be found from outside
            continue
        for name, hint in hints.items():
            if _has_bounds(hint):
                found[name] = hint
            elif hint not in (float, int):
                found.pop(name, None)
    return found


def check(made: Any) -> None:
    """Refuse the first field of a dataclass that is out of its bounds."""
    kind: type = type(made)
    for name, hint in bounded(kind).items():
        convert(hint, getattr(made, name), name)


def _has_bounds(hint: Any) -> bool:
    return any(isinstance(word, Bounds) or _has_bounds(word) for word in get_args(hint))

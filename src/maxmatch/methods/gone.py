"""A method that can't be made any more, its file lost or its options others now: what its run's recipe said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from maxmatch.errors import UsageError
from maxmatch.methods.base import Batch, Losses, Method, Needs, Run
from maxmatch.methods.views import parse_views


@dataclass(frozen=True)
class Gone(Method):
    """It can't train. Who only reads its run, to judge or to show it, does without it."""

    place: str = ""  # the name that its class was found by
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs(self) -> Needs:
        try:
            return Needs(weak=1, strong=parse_views(self.options["k"]))
        except (KeyError, UsageError):
            return Needs(weak=1)

    def losses(self, run: Run, batch: Batch) -> Losses:
        raise UsageError(f"method '{self.place}' is not here as it was: restore its code, or train by another")

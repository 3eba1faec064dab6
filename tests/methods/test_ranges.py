"""The kinds of numbers that options are, at their bounds."""

from __future__ import annotations

from math import inf, nan

import pytest

from maxmatch.errors import UsageError
from maxmatch.methods.ranges import Count, Decay, Positive, Share, Weight
from maxmatch.settings import convert


@pytest.mark.parametrize(
    ("kind", "held", "refused"),
    [
        (Weight, [0.0, 1e9], [-1e-9, inf, nan]),
        (Positive, [1e-9, 1e9], [0.0, -1.0, inf, nan]),
        (Share, [0.0, 1.0], [-1e-9, 1.0001, nan]),
        (Decay, [0.0, 0.9999], [-1e-9, 1.0, nan]),
        (Count, [1, 10**6], [0, -1]),
    ],
    ids=["Weight", "Positive", "Share", "Decay", "Count"],
)
def test_a_number_is_held_to_its_bounds_and_to_no_more(kind, held, refused):
    assert [convert(kind, value, "option") for value in held] == held
    for value in refused:
        with pytest.raises(UsageError, match=rf"^option = {value:g}: a .* is wanted$"):
            convert(kind, value, "option")

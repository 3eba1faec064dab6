"""The figures of a benchmark: mean and deviation of each method, and differences between methods fold by fold.

Which images are labelled decides much of the error, for all methods alike. The difference between two methods on one
fold leaves that out, so the paired differences say more than the two means beside each other.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]
ERRORS = ("last", "median20", "best", "robust_error")
FIGURES = (*ERRORS, "top5_error", "steps_per_second")


def table(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """`methods`: mean and deviation of each. `paired`: each later method minus the first. Finished runs alone count."""
    labels = list(dict.fromkeys(row["method"] for row in rows))
    finished = {
        label: {row["fold"]: row for row in rows if row["method"] == label and row["state"] == "finished"}
        for label in labels
    }
    return {
        "methods": [
            {"method": label, "n": len(runs), **{name: spread(_values(runs.values(), name)) for name in FIGURES}}
            for label, runs in finished.items()
        ],
        "paired": [_paired(labels[0], label, finished[labels[0]], finished[label]) for label in labels[1:]],
    }


def spread(values: Sequence[float]) -> Row:
    """Mean and standard deviation as the papers give it (divided by n); None where there are too few values.

    >>> spread([1.0, 3.0])
    {'n': 2, 'mean': 2.0, 'std': 1.0}
    """
    return {
        "n": len(values),
        "mean": statistics.mean(values) if values else None,
        "std": statistics.pstdev(values) if len(values) > 1 else None,
    }


def difference(first: Sequence[float], other: Sequence[float]) -> Row:
    """Mean of other - first, its standard error, and on how many of the n folds `other` is lower.

    >>> difference([5.0, 9.0], [4.0, 6.0])
    {'n': 2, 'mean': -2.0, 'standard_error': 1.0, 'better': 2}
    """
    differences = [b - a for a, b in zip(first, other, strict=True)]
    count = len(differences)
    return {
        "n": count,
        "mean": statistics.mean(differences) if differences else None,
        "standard_error": statistics.stdev(differences) / count**0.5 if count > 1 else None,
        "better": sum(value < 0 for value in differences),
    }


def _paired(against: str, label: str, first: dict[int, Row], other: dict[int, Row]) -> Row:
    both = [(first[fold], other[fold]) for fold in first if fold in other]
    found: Row = {"method": label, "against": against, "n": len(both)}
    for name in ERRORS:
        pairs = [(a[name], b[name]) for a, b in both if a[name] is not None and b[name] is not None]
        found[name] = difference([a for a, _ in pairs], [b for _, b in pairs])
    return found


def _values(rows: Iterable[Row], name: str) -> list[float]:
    return [row[name] for row in rows if row.get(name) is not None]

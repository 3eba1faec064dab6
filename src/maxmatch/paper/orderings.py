"""Is an ordering that the paper states also ours? Each answer is `held`, `not held` or `not tested`, with the numbers.

Errors are compared by their means over the folds that both methods have; the difference is given with its standard
error, so that a reader sees what an answer is worth. One fold is one pair of runs: the answer then says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from maxmatch.benchmark.figures import difference, spread

Answer = Literal["held", "not held", "not tested"]
Folds = Mapping[int, float]  # error by fold
Errors = Mapping[tuple[int | str, str], Folds]  # by labels and method
Curves = Mapping[str, Sequence[float]]  # by name, the same steps for all


@dataclass(frozen=True)
class Verdict:
    answer: Answer
    why: str


def below(errors: Errors, labels: int | str, low: str, high: str) -> Verdict:
    """Whether the mean error of `low` is below that of `high`, over the folds that both have."""
    first, other = errors.get((labels, high), {}), errors.get((labels, low), {})
    both = sorted(set(first) & set(other))
    if not both:
        return Verdict("not tested", f"{low} and {high} share no finished fold")
    found = difference([first[fold] for fold in both], [other[fold] for fold in both])
    error = found["standard_error"]
    told = f"{low} - {high}: {found['mean']:+.2f}"
    told += " (n = 1: one pair of runs)" if error is None else f" ± {error:.2f} (paired, n = {found['n']})"
    return Verdict("held" if found["mean"] < 0 else "not held", told)


def tighter(errors: Errors, labels: int | str, low: str, high: str) -> Verdict:
    """Whether the errors of `low` spread less than those of `high` over the folds that both have, two or more."""
    first, other = errors.get((labels, low), {}), errors.get((labels, high), {})
    both = sorted(set(first) & set(other))
    if len(both) < 2:
        return Verdict("not tested", f"{low} and {high} share fewer than two finished folds")
    first_std, other_std = (spread([folds[fold] for fold in both])["std"] for folds in (first, other))
    told = f"{low} {first_std:.2f}, {high} {other_std:.2f} (n = {len(both)})"
    return Verdict("held" if first_std < other_std else "not held", told)


def lowest(errors: Errors, labels: int | str, best: str, others: Iterable[str]) -> Verdict:
    """Whether `best` is below each of the others."""
    return all_of([below(errors, labels, best, other) for other in others if other != best])


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Held if all are; one that is not held decides; one that is not tested leaves the rest open."""
    told = "; ".join(dict.fromkeys(verdict.why for verdict in verdicts))
    answers = [verdict.answer for verdict in verdicts]
    for answer in ("not held", "not tested"):
        if answer in answers:
            return Verdict(answer, told)
    return Verdict("held", told) if answers else Verdict("not tested", "nothing to compare")


def most_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Held if more than half are; as long as those not tested could decide it, it is not tested."""
    told = "; ".join(dict.fromkeys(verdict.why for verdict in verdicts))
    held, not_held = (sum(verdict.answer == answer for verdict in verdicts) for answer in ("held", "not held"))
    if 2 * held > len(verdicts):
        return Verdict("held", told)
    return Verdict("not held" if 2 * not_held >= len(verdicts) > 0 else "not tested", told or "nothing to compare")


def above_throughout(curves: Curves, high: str, low: str) -> Verdict:
    """Whether `high` lies above `low` in every tenth of the training, by the means over each."""
    parts = tenths(curves.get(high, ())), tenths(curves.get(low, ()))
    if not parts[0] or len(parts[0]) != len(parts[1]):
        return Verdict("not tested", "the losses were not logged at the same steps")
    above = [a > b for a, b in zip(*parts, strict=True)]
    last = f"{parts[0][-1]:.4f} against {parts[1][-1]:.4f}"
    told = f"in {sum(above)} of {len(above)} parts of the training; in the last {last}"
    return Verdict("held" if all(above) else "not held", told)


def gap_shrinks(curves: Curves, high: str, low: str) -> Verdict:
    """Whether high - low is smaller in the second half of the training than in the first, by the means.

    The first tenth is left out: there no image is confident yet, and both losses are near 0.
    """
    gap = [a - b for a, b in zip(curves.get(high, ()), curves.get(low, ()), strict=False)]
    gap = gap[len(gap) // 10 :]
    half = len(gap) // 2
    if half == 0:
        return Verdict("not tested", "the losses were logged at fewer than two steps")
    first, second = sum(gap[:half]) / half, sum(gap[half:]) / (len(gap) - half)
    told = f"first half {first:.4f}, second half {second:.4f}, without the first tenth"
    return Verdict("held" if second < first else "not held", told)


def rises_then_falls(curves: Curves, name: str) -> Verdict:
    """Whether the largest tenth is neither the first nor the last."""
    parts = tenths(curves.get(name, ()))
    if len(parts) < 3:
        return Verdict("not tested", "fewer than three parts of the training were logged")
    peak = parts.index(max(parts))
    told = f"{name}: {parts[0]:.4f}, {parts[peak]:.4f} in part {peak + 1} of {len(parts)}, {parts[-1]:.4f} at the end"
    return Verdict("held" if 0 < peak < len(parts) - 1 else "not held", told)


def tenths(values: Sequence[float]) -> list[float]:
    """Means over ten equal parts in order, fewer where there are fewer values.

    >>> tenths([1.0, 3.0, 5.0])
    [1.0, 3.0, 5.0]
    >>> tenths([float(n) for n in range(20)])[:2]
    [0.5, 2.5]
    """
    count = min(10, len(values))
    edges = [round(part * len(values) / count) for part in range(count + 1)] if count else []
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]

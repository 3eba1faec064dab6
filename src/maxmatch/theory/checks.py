"""Which numbers the bounds are about: a check is one line where a formula would give a math error or nonsense."""

from __future__ import annotations

import math

from maxmatch.errors import UsageError

LEAST = 1e-12  # of epsilon and delta: the constants grow with their inverses and would leave the floats
MOST_C0 = 1e100  # Theorem 2 multiplies it


def check_form(form: str) -> None:
    """A form that is not known would be computed as a mixture of the two that are."""
    if form not in ("printed", "corrected"):
        hint = "type printed or corrected; the sharp form is bounds.proposition_1_sharp"
        raise UsageError(f"form = {form!r}: {hint}")


def check_epsilon(classes: int, epsilon: float) -> None:
    """Outputs in [eps, 1 - eps] that sum to 1 need 0 < eps <= 1 / n_c; the paper also wants eps < 1/2."""
    check_counts(classes=classes)
    if not (LEAST <= epsilon < 0.5 and epsilon * classes <= 1 + 1e-12):
        top = f"at most {1 / classes:g}" if classes > 2 else "below 0.5"
        raise UsageError(f"epsilon = {epsilon:g}: with {classes} classes type a number of at least {LEAST:g} and {top}")


def check_delta(delta: float) -> None:
    if not LEAST <= delta < 1:
        rule = f"it is the probability that the bound fails, at least {LEAST:g} and below 1"
        raise UsageError(f"delta = {delta:g}: {rule}; type a number such as 0.05")


def check_c0(c0: float) -> None:
    if not 0 <= c0 <= MOST_C0:
        raise UsageError(f"C0 = {c0:g}: it is a constant of Theorem 2; type a number from 0 to {MOST_C0:g}")


def check_counts(**counts: float) -> None:
    """Images, views, classes, layers, steps: at least one of each."""
    for name, count in counts.items():
        if not (count >= 1 and math.isfinite(count)):
            raise UsageError(f"{name} = {count:g}: there must be at least one; give a number from 1 on")


def check_amounts(**amounts: float) -> None:
    """Norms, distances, ranges, numbers of parameters: none is negative."""
    for name, amount in amounts.items():
        if not (amount >= 0 and math.isfinite(amount)):
            raise UsageError(f"{name} = {amount:g}: it can't be negative or endless; give a number from 0 on")


def check_positive(**amounts: float) -> None:
    """What a formula divides by."""
    for name, amount in amounts.items():
        if not (amount > 0 and math.isfinite(amount)):
            raise UsageError(f"{name} = {amount:g}: the formula divides by it; give a number above 0")

"""Empirical Rademacher complexities, the paper's four, exact for a finite class or by Monte Carlo; Dudley's integral.

A class of H functions is its table of values. The expectation over signs is a mean over all 2^n of them where that can
be done, else over random ones. Covering numbers are logarithms; that of a network's class is the paper's closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maxmatch.errors import UsageError

Values = npt.NDArray[np.float64]
MOST_SIGNS = 20  # 2^20 rows of signs are a second; more wants Monte Carlo
CHUNK = 2**14


class Estimate(NamedTuple):
    """A complexity; `standard_error` is 0 where all signs were summed."""

    value: float
    standard_error: float


def supervised(losses: Values, draws: int | None = None, seed: int = 0) -> Estimate:
    """Rad_L: E_sigma sup_f 1/n sum_i sigma_i l(f(x_i), y_i), from losses (H, n).

    >>> supervised(np.array([[1.0, 1.0], [-1.0, -1.0]]))  # |sigma_1 + sigma_2| / 2 is 1 or 0
    Estimate(value=0.5, standard_error=0.0)
    """
    return _complexity(_table(losses, 2), draws, seed)


def unsupervised(losses: Values, draws: int | None = None, seed: int = 0) -> Estimate:
    """Rad_U: E_sigma sup_f 1/n sum_i sigma_i sup_{x'} l(f(x'), f(x_i)), from losses (H, K, n) of the K views.

    Views are inside the sum: for each function the worst view of each image, whatever its sign.
    """
    return _complexity(_table(losses, 3).max(1), draws, seed)


def multi_output(outputs: Values, draws: int | None = None, seed: int = 0) -> Estimate:
    """Rad_{n, n_c}: E_sigma sup_f 1/(n n_c) sum_ij sigma_i^(j) f^(j)(x_i), a sign for each output, from (H, n, n_c)."""
    table = _table(outputs, 3)
    return _complexity(table.reshape(len(table), -1), draws, seed)


def transformed(
    functions: list[Callable[[Values], float]],
    points: list[Values],
    transformations: list[Callable[[Values], Values]],
    draws: int | None = None,
    seed: int = 0,
) -> Estimate:
    """Rad_D(F o T_D): E_sigma sup_f 1/n sum_i sigma_i f(tau_i(x_i)); each point has a transformation of its own."""
    if len(points) != len(transformations):
        raise UsageError(f"{len(points)} points and {len(transformations)} transformations: give one for each point")
    moved = [tau(x) for tau, x in zip(transformations, points, strict=True)]
    return _complexity(_table(np.array([[f(x) for x in moved] for f in functions]), 2), draws, seed)


def all_signs(count: int) -> Values:
    """All 2^n rows of n signs."""
    if count > MOST_SIGNS:
        raise UsageError(f"{count} signs: 2^{count} rows are too many; give draws=10_000 for Monte Carlo")
    bits = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
    return np.asarray(2.0 * bits - 1, dtype=np.float64)


def cover_size(table: Values, epsilon: float) -> int:
    """The size of an epsilon-cover of the functions (H, n) in the largest distance over the points, found greedily.

    It is at least the covering number and at most the number of functions, so a bound that uses it still holds.
    """
    distances = _distances(table)
    open_ = np.ones(len(distances), dtype=bool)
    size = 0
    while open_.any():
        near = distances <= epsilon
        centre = int((near & open_).sum(1).argmax())
        open_ &= ~near[centre]
        size += 1
    return size


def smallest_cover(table: Values, epsilon: float) -> int:
    """The covering number itself, by trying all subsets: for classes of a dozen functions."""
    from itertools import combinations

    near = _distances(table) <= epsilon
    if len(near) > 16:
        raise UsageError(f"{len(near)} functions: all subsets of them are too many; take cover_size")
    sizes = range(1, len(near) + 1)
    return next(n for n in sizes if any(near[list(c)].any(0).all() for c in combinations(range(len(near)), n)))


def network_log_cover(epsilon: float, *, parameters: int, log_constant: float) -> float:
    """log N(eps) <= W log(C / eps), for a network's class; log C from `bounds.log_network_constant`."""
    return parameters * max(0.0, log_constant - math.log(epsilon))


def dudley_of_class(table: Values, points: int | None = None) -> float:
    """inf over alpha of 4 alpha + 12 / sqrt N by the integral from alpha to 1 of sqrt(log N(eps)), of a table (H, N).

    Values are to lie in an interval of length 1. The cover changes only at the distances that occur, so the integral is
    a sum; the infimum lies at one of its corners, since between them the expression is linear in alpha.
    """
    n = table.shape[1] if points is None else points
    corners = np.unique(np.clip(np.append(_distances(table).ravel(), [0.0, 1.0]), 0, 1))
    heights = np.array([math.sqrt(math.log(cover_size(table, left))) for left in corners[:-1]])
    areas = heights * np.diff(corners)
    beyond = np.append(areas[::-1].cumsum()[::-1], 0.0)  # the integral from each corner to 1
    return float((4 * corners + 12 / math.sqrt(n) * beyond).min())


def dudley_of_network(*, points: int, parameters: int, log_constant: float) -> float:
    """The same for a network's class, whose cover is the closed form; `points` is n n_c (Lemma 1) or n (Lemma 2).

    The best alpha is where 4 = 12 / sqrt N sqrt(W log(C / alpha)), or an end. Lemmas 1 and 2 take alpha = 1 / sqrt N
    and the integrand at its largest instead, so they are never smaller.
    """
    from scipy.integrate import quad

    def height(epsilon: float) -> float:
        return math.sqrt(network_log_cover(epsilon, parameters=parameters, log_constant=log_constant))

    log_best = min(0.0, log_constant - points / (9 * parameters))
    alpha = math.exp(log_best)  # may be 0: the integral is finite there too
    end = math.exp(min(0.0, log_constant))  # beyond C one ball covers all
    area = 0.0
    if alpha < end:
        area = quad(lambda t: height(math.exp(t)) * math.exp(t), max(log_best, -700.0), math.log(end), limit=200)[0]
    return 4 * alpha + 12 / math.sqrt(points) * area


def _complexity(table: Values, draws: int | None, seed: int) -> Estimate:
    """E_sigma max_f of the signed mean of a table (H, N)."""
    count = table.shape[1]
    if draws is None:
        signs = all_signs(count)
        total = sum((part @ table.T).max(1).sum() for part in np.array_split(signs, max(1, len(signs) // CHUNK)))
        return Estimate(float(total) / len(signs) / count, 0.0)
    if draws < 2:
        raise UsageError(f"draws = {draws}: a standard error needs two or more")
    generator = np.random.default_rng(seed)
    parts = []
    for first in range(0, draws, CHUNK):
        signs = generator.choice([-1.0, 1.0], (min(CHUNK, draws - first), count))
        parts.append((signs @ table.T).max(1) / count)
    found = np.concatenate(parts)
    return Estimate(float(found.mean()), float(found.std(ddof=1) / math.sqrt(draws)))


def _table(values: Values, axes: int) -> Values:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != axes or not table.size:
        raise UsageError(f"values of shape {table.shape}: {axes} axes are wanted, the first over the functions")
    return table


def _distances(table: Values) -> Values:
    return np.asarray(np.abs(table[:, None] - table[None]).max(-1))

"""Rademacher complexities against sums over all signs written out, and against known values; covers and Dudley's integral."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmatch.errors import UsageError
from maxmatch.theory import bounds, rademacher


def by_hand(rows, divisor):
    """E_sigma max over functions of the signed sum, in plain Python."""
    count = len(rows[0])
    sums = [max(sum(s * v for s, v in zip(signs, row, strict=True)) for row in rows)
            for signs in itertools.product((-1, 1), repeat=count)]  # fmt: skip
    return sum(sums) / 2**count / divisor


def test_supervised_by_hand():
    losses = np.random.default_rng(0).random((5, 6))
    assert rademacher.supervised(losses).value == pytest.approx(by_hand(losses.tolist(), 6))
    assert rademacher.supervised(losses).standard_error == 0
    assert rademacher.supervised(losses[:1]).value == pytest.approx(0)  # one function: nothing to choose


def test_unsupervised_takes_the_worst_view_inside_the_sum():
    losses = np.random.default_rng(1).random((4, 3, 6))
    worst = [[max(losses[h, k, i] for k in range(3)) for i in range(6)] for h in range(4)]
    assert rademacher.unsupervised(losses).value == pytest.approx(by_hand(worst, 6))
    signed_inside = by_hand(losses.transpose(0, 1, 2).reshape(12, 6).tolist(), 6)  # sup over views by function and sign
    assert rademacher.unsupervised(losses).value != pytest.approx(signed_inside)


def test_multi_output_has_a_sign_for_each_output_and_divides_by_both():
    outputs = np.random.default_rng(2).random((4, 3, 2))
    assert rademacher.multi_output(outputs).value == pytest.approx(by_hand(outputs.reshape(4, 6).tolist(), 6))
    shared = by_hand(outputs.sum(2).tolist(), 6)  # one sign for all outputs of an image is another thing
    assert rademacher.multi_output(outputs).value != pytest.approx(shared)


def test_transformed_moves_each_point_by_its_own_transformation():
    functions = [lambda x: float(x.sum()), lambda x: float(x[0]), lambda x: -1.0]
    points = [np.array([1.0, 2.0]), np.array([0.5, -1.0]), np.array([3.0, 0.0])]
    moves = [lambda x: x, lambda x: 2 * x, lambda x: -x]
    rows = [[f(t(x)) for t, x in zip(moves, points, strict=True)] for f in functions]
    assert rademacher.transformed(functions, points, moves).value == pytest.approx(by_hand(rows, 3))
    with pytest.raises(UsageError, match="one for each point"):
        rademacher.transformed(functions, points, moves[:2])


def test_two_opposite_functions_are_a_random_walk():
    ones = np.ones((1, 10))
    walk = sum(abs(10 - 2 * k) * math.comb(10, k) for k in range(11)) / 2**10 / 10
    assert rademacher.supervised(np.concatenate([ones, -ones])).value == pytest.approx(walk)


def test_monte_carlo_agrees_with_all_signs_within_its_error():
    losses = np.random.default_rng(3).random((20, 8))
    exact = rademacher.supervised(losses).value
    drawn = rademacher.supervised(losses, draws=20_000, seed=5)
    assert 0 < drawn.standard_error < 0.002
    assert abs(drawn.value - exact) < 4 * drawn.standard_error
    assert drawn == rademacher.supervised(losses, draws=20_000, seed=5)
    assert drawn != rademacher.supervised(losses, draws=20_000, seed=6)


def test_a_standard_error_by_hand_and_as_many_draws_as_are_asked_for(monkeypatch):
    monkeypatch.setattr(rademacher, "CHUNK", 4)
    losses = np.random.default_rng(3).random((5, 3))
    generator, found = np.random.default_rng(7), []
    for many in (4, 4, 2):
        found += [max(losses @ signs) / 3 for signs in generator.choice([-1.0, 1.0], (many, 3))]
    drawn = rademacher.supervised(losses, draws=10, seed=7)
    assert drawn.value == pytest.approx(sum(found) / 10)
    assert drawn.standard_error == pytest.approx(statistics.stdev(found) / math.sqrt(10))


def test_all_signs_are_listed_up_to_the_most_of_them(monkeypatch):
    monkeypatch.setattr(rademacher, "MOST_SIGNS", 3)
    assert sorted(map(tuple, rademacher.all_signs(3))) == list(itertools.product((-1, 1), repeat=3))
    with pytest.raises(UsageError, match="4 signs"):
        rademacher.all_signs(4)


def test_too_many_signs_and_wrong_tables_are_told():
    with pytest.raises(UsageError, match="draws=10_000"):
        rademacher.supervised(np.zeros((2, 21)))
    with pytest.raises(UsageError, match="3 axes are wanted"):
        rademacher.unsupervised(np.zeros((2, 4)))
    with pytest.raises(UsageError, match="two or more"):
        rademacher.supervised(np.zeros((2, 4)), draws=1)


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 8), st.floats(0.01, 0.9))
def test_a_greedy_cover_covers_and_is_not_smaller_than_the_smallest(seed, functions, epsilon):
    table = np.random.default_rng(seed).random((functions, 3))
    smallest = rademacher.smallest_cover(table, epsilon)
    assert smallest <= rademacher.cover_size(table, epsilon) <= functions


def test_covering_numbers_by_hand():
    line = np.array([[0.0], [0.1], [0.2], [0.6], [1.0]])
    assert rademacher.smallest_cover(line, 0.1) == 3  # .1 covers three of them
    assert rademacher.cover_size(line, 0.1) == 3
    assert rademacher.smallest_cover(line, 0.05) == 5
    assert rademacher.smallest_cover(line, 0.6) == 1
    square = np.array([[0.0, 0.0], [0.0, 1.0]])  # the largest distance over the points, not their mean
    assert rademacher.smallest_cover(square, 0.9) == 2


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 8), st.integers(1, 8), st.sampled_from([0.01, 0.3, 1.0]))
def test_dudleys_integral_is_above_the_complexity(seed, functions, points, spread):
    table = spread * np.random.default_rng(seed).random((functions, points))
    assert rademacher.dudley_of_class(table) >= rademacher.supervised(table).value - 1e-12


def test_dudley_of_two_functions_by_hand():
    """At distance d they need two balls below d and one above: min over alpha of 4 alpha + 12 / sqrt n sqrt(log 2) (d - alpha)."""
    table = np.zeros((2, 400))
    table[1] = 0.5
    by_end = [12 / 20 * math.sqrt(math.log(2)) * 0.5, 4 * 0.5]
    assert rademacher.dudley_of_class(table) == pytest.approx(min(by_end))
    assert rademacher.dudley_of_class(table, points=1600) == pytest.approx(by_end[0] / 2)


def brute_force_dudley(points, parameters, log_constant):
    """Trapezoids on a fine grid, and the best alpha of that grid."""
    grid = np.logspace(-9, 0, 200_001)
    height = np.sqrt(parameters * np.maximum(0, log_constant - np.log(grid)))
    areas = np.concatenate([[0], np.cumsum(np.diff(grid) * (height[1:] + height[:-1]) / 2)])
    return (4 * grid + 12 / math.sqrt(points) * (areas[-1] - areas)).min()


@pytest.mark.parametrize("points", [100, 10_000, 10**6, 10**8])
@pytest.mark.parametrize("log_constant", [-1.0, 0.5, 3.0, 30.0])
def test_dudley_of_a_network_against_a_grid_and_below_lemma_1(points, log_constant):
    found = rademacher.dudley_of_network(points=points, parameters=1000, log_constant=log_constant)
    assert found == pytest.approx(brute_force_dudley(points, 1000, log_constant), rel=1e-3)
    closed = bounds.lemma_1(samples=points, classes=1, parameters=1000, log_constant=log_constant)
    assert found <= closed * (1 + 1e-9)


def test_the_cover_of_a_network_by_hand_and_for_a_constant_beyond_floats():
    found = rademacher.network_log_cover(0.1, parameters=7, log_constant=math.log(5))
    assert found == pytest.approx(7 * math.log(50))
    assert rademacher.network_log_cover(0.9, parameters=7, log_constant=-3.0) == 0
    assert math.isfinite(rademacher.dudley_of_network(points=10**15, parameters=10**6, log_constant=5000.0))

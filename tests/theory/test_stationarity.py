"""Shortest vectors of hulls and of their sums against enumeration of all faces; the order of play against theory."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmatch.errors import UserError
from maxmatch.theory.convergence import flipped_nuisance, linear_problem
from maxmatch.theory.moreau import phi, weighted_loss, worst_weights
from maxmatch.theory.stationarity import (
    minimax_violation,
    order_of_play,
    shortest_in_hull,
    shortest_in_sum,
    stationarity,
    subdifferential,
)


def shortest_by_faces(points: np.ndarray) -> float:
    """The least norm over all simplices of up to d + 1 corners: the shortest vector of the plane through each, if inside."""
    best = math.inf
    for size in range(1, points.shape[1] + 2):
        for chosen in itertools.combinations(range(len(points)), size):
            face = points[list(chosen)]
            kkt = np.block([[face @ face.T, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
            weights = np.linalg.lstsq(kkt, np.append(np.zeros(size), 1.0), rcond=None)[0][:size]
            if weights.min() >= -1e-9:
                best = min(best, float(np.linalg.norm(weights @ face)))
    return best


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 3), st.floats(0, 3), st.sampled_from([1e-9, 1.0, 1e6]))
def test_the_shortest_vector_of_a_hull(seed, m, d, shift, scale):
    points = np.random.default_rng(seed).normal(size=(m, d)) + shift
    shortest = shortest_in_hull(scale * points) / scale
    assert np.linalg.norm(shortest) == pytest.approx(shortest_by_faces(points), abs=1e-7)
    assert (points @ shortest).min() >= shortest @ shortest - 1e-7  # optimal: no corner is further back


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 3), min_size=1, max_size=3), st.floats(0, 1.5))
def test_the_shortest_vector_of_a_sum_of_hulls(seed, sizes, shift):
    random = np.random.default_rng(seed)
    hulls = [random.normal(size=(m, 2)) + shift for m in sizes]
    corners = np.array([sum(choice) for choice in itertools.product(*hulls)])
    assert np.linalg.norm(shortest_in_sum(hulls)) == pytest.approx(shortest_by_faces(corners), abs=1e-7)


def test_the_shortest_vector_of_repeated_and_zero_points():
    assert shortest_in_hull(np.zeros((3, 2))).tolist() == [0, 0]
    assert np.allclose(shortest_in_sum([np.array([[3.0, 4.0]] * 5), np.zeros((2, 2))]), [3, 4])


def test_stationarity_away_from_a_kink_is_the_norm_of_the_gradient():
    problem, _ = flipped_nuisance(trade_off=0.6)
    theta = torch.tensor([0.4, -0.9], dtype=torch.float64)
    h = 1e-5
    slope = [
        float(phi(problem, theta + h * e) - phi(problem, theta - h * e)) / (2 * h)
        for e in torch.eye(2, dtype=torch.float64)
    ]
    assert stationarity(problem, theta) == pytest.approx(np.linalg.norm(slope), abs=1e-8)


def test_stationarity_on_a_kink_against_all_directions():
    problem, minimiser = flipped_nuisance(groups=3, seed=2)
    assert stationarity(problem, minimiser) == pytest.approx(0, abs=1e-9)
    gradient, hulls = subdifferential(problem, minimiser)
    assert all(len(hull) == 3 for hull in hulls)  # all K views tie
    assert (
        np.linalg.norm(gradient + sum(hull[hull[:, 1].argmax()] for hull in hulls)) > 0.05
    )  # a choice that is not zero
    # Elsewhere on the kink: minus the steepest directional derivative, from differences of phi alone.
    theta = torch.tensor([-0.5, 0.0], dtype=torch.float64)
    angles = torch.linspace(0, 2 * math.pi, 4001, dtype=torch.float64)
    steps = 1e-6 * torch.stack([angles.cos(), angles.sin()], -1)
    steepest = float((phi(problem, theta + steps) - phi(problem, theta)).min()) / 1e-6
    assert steepest < -0.1
    assert stationarity(problem, theta) == pytest.approx(-steepest, abs=1e-4)


def test_the_known_minimum_is_a_global_minimax_point_and_others_are_not():
    problem, minimiser = flipped_nuisance()
    axis = torch.linspace(-6, 6, 121, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    weights = worst_weights(problem, minimiser)
    assert minimax_violation(problem, minimiser, weights, grid) == pytest.approx(0, abs=1e-12)
    other = minimiser + torch.tensor([0.3, 0.4], dtype=torch.float64)
    worst = worst_weights(problem, other)
    value = float(phi(problem, other))
    assert minimax_violation(problem, other, worst, grid) == pytest.approx(value - float(phi(problem, grid).min()))
    best_view = problem.view_losses(other).argmin(-1, keepdim=True)
    wrong = torch.zeros_like(worst).scatter(-1, best_view, 1.0)  # not the adversary's best answer
    assert minimax_violation(problem, other, wrong, other[None]) > 0.01


def one_image(*views: float):
    none, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    return linear_problem(none, one, torch.tensor(views, dtype=torch.float64)[None, :, None], one, floor=0.1)


def test_max_min_differs_from_min_max():
    # One image, views 1 and -10, one pseudo-label. Whatever theta, one margin is <= 0, so min max = loss(0) = log 2 at
    # theta = 0. The adversary who moves first has no such weights: where v balances the slopes at 0 (v = 10/11 on view 1),
    # a large theta costs (10 log(1/.9) + log(1/.1)) / 11 = 0.31 only, because the bounded loss of view 2 stops growing.
    problem, thetas = one_image(1.0, -10.0), torch.arange(-600, 601, dtype=torch.float64)[:, None] / 20
    constant = math.log(2)  # the labelled image has x = 0
    game = order_of_play(problem, thetas)
    assert game.min_max == pytest.approx(constant + math.log(2), abs=1e-12)
    assert float(game.minimiser) == 0
    assert game.max_min < game.min_max - 0.05
    # Oracle: v on a fine grid.
    losses = problem.view_losses(thetas)[:, 0]
    v = torch.linspace(0, 1, 2001, dtype=torch.float64)
    by_hand = constant + float((losses[:, :1] * v + losses[:, 1:] * (1 - v)).amin(0).max())
    assert game.max_min == pytest.approx(by_hand, abs=1e-3)
    assert game.max_min >= by_hand - 1e-9
    answer = losses @ game.maximiser[0]
    assert constant + float(answer.min()) == pytest.approx(game.max_min, abs=1e-9)


def test_the_trade_off_weighs_the_views_in_both_orders_of_play():
    one = torch.ones(1, dtype=torch.float64)
    views = torch.tensor([1.0, -10.0], dtype=torch.float64)[None, :, None]
    problem = linear_problem(torch.ones(1, 1, dtype=torch.float64), one, views, one, trade_off=2.5, floor=0.1)
    thetas = torch.arange(-200, 201, dtype=torch.float64)[:, None] / 20
    game = order_of_play(problem, thetas)
    share = torch.linspace(0, 1, 2001, dtype=torch.float64)
    weights = torch.stack([share, 1 - share], -1)[:, None, None]  # (v, theta, image, view)
    least = weighted_loss(problem, thetas, weights).amin(-1)
    assert game.max_min == pytest.approx(float(least.max()), abs=2e-3)
    assert game.min_max == pytest.approx(float(phi(problem, thetas).min()))


def test_max_min_equals_min_max_where_the_views_are_mirror_images():
    game = order_of_play(one_image(1.0, -1.0), torch.arange(-600, 601, dtype=torch.float64)[:, None] / 20)
    assert game.max_min == pytest.approx(game.min_max, abs=1e-9)
    assert game.maximiser[0].tolist() == pytest.approx([0.5, 0.5], abs=0.02)


def test_max_min_with_several_images_never_exceeds_min_max():
    problem, _ = flipped_nuisance(groups=2, seed=1)
    axis = torch.linspace(-4, 4, 33, dtype=torch.float64)
    game = order_of_play(problem, torch.cartesian_prod(axis, axis))
    assert game.maximiser.sum(-1).tolist() == pytest.approx([1.0] * 8)
    assert game.max_min <= game.min_max + 1e-9
    with pytest.raises(UserError, match="give one row a point"):
        order_of_play(problem, axis)

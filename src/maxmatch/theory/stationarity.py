"""When a point of the minimax problem is good enough: e-stationary points of phi and global minimax points.

The paper's two definitions of optimality (lines 546-570). phi is a mean of maxima of smooth functions, so its
sub-differential at theta is the gradient of the labelled part plus the mean of one convex hull for each image: that of
the gradients of the views that attain its maximum. theta is e-stationary where the shortest vector of that set is
no longer than e.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog, nnls
from torch import Tensor

from maxmatch.errors import UserError
from maxmatch.theory.moreau import Problem, phi, weighted_loss, worst_weights

Array = NDArray[np.float64]


def stationarity(problem: Problem, theta: Tensor, tie: float = 1e-9) -> float:
    """The norm of the shortest subgradient of phi at theta (d,): theta is e-stationary for every e from here on."""
    return float(np.linalg.norm(nearest_subgradient(problem, theta, tie=tie)))


def nearest_subgradient(problem: Problem, theta: Tensor, to: Tensor | None = None, tie: float = 1e-9) -> Array:
    """The element of the sub-differential of phi at theta (d,) that is nearest to `to` (d,), or to zero.

    Views whose loss is within `tie` of their image's largest count as attaining it: a computed theta is never
    exactly on a kink. A larger tie makes the set larger and the result shorter.
    """
    gradient, hulls = subdifferential(problem, theta, tie)
    offset = gradient if to is None else gradient - to.numpy()
    nearest = shortest_in_sum([offset[None], *hulls])
    return nearest if to is None else nearest + to.numpy()


def subdifferential(problem: Problem, theta: Tensor, tie: float = 1e-9) -> tuple[Array, list[Array]]:
    """The gradient of the labelled part (d,) and for each image its active gradients (m_i, d), times gamma / n_u.

    The sub-differential of phi is the first plus every sum of one element of each hull.
    """
    theta = theta.detach()
    labelled = torch.func.jacrev(problem.labelled_losses)(theta).mean(0)
    losses, slopes = problem.view_losses(theta), torch.func.jacrev(problem.view_losses)(theta)
    active = losses >= losses.amax(-1, keepdim=True) - tie
    share = problem.trade_off / len(losses)
    return labelled.numpy(), [share * s[a].numpy() for s, a in zip(slopes, active, strict=True)]


def shortest_in_hull(points: Array) -> Array:
    """The shortest vector of the convex hull of points (m, d).

    Non-negative least squares finds it: for w >= 0 with sum s, |sum w_k p_k|^2 + (s - 1)^2 is least where w / s are the
    weights of the shortest vector: for fixed w / s the best s leaves r^2 / (1 + r^2), which grows with its norm r.
    """
    scale = float(np.linalg.norm(points, axis=1).max())
    if scale == 0:
        return np.zeros(points.shape[1])
    weights, _ = nnls(np.vstack([points.T / scale, np.ones(len(points))]), np.append(np.zeros(points.shape[1]), 1.0))
    shortest: Array = (weights / weights.sum()) @ points
    return shortest


def shortest_in_sum(hulls: Sequence[Array], accuracy: float = 1e-10) -> Array:
    """The shortest vector of the sum of the convex hulls, each of points (m_i, d): one element of each, added up.

    The sum has as many corners as there are choices of one point from each hull, too many to list. Fully corrective
    Frank-Wolfe asks for the corner furthest against the current vector, which each hull answers alone, and takes the
    shortest vector of the hull of the corners met so far. x is right to within sqrt(<x, x - corner>).
    """
    corners = [np.sum([hull[0] for hull in hulls], axis=0)]
    scale = sum(float(np.linalg.norm(hull, axis=1).max()) for hull in hulls)
    while True:
        shortest = shortest_in_hull(np.array(corners))
        corner = np.sum([hull[np.argmin(hull @ shortest)] for hull in hulls], axis=0)
        known = any(np.array_equal(corner, other) for other in corners)  # then only rounding is left
        if known or shortest @ (shortest - corner) <= (accuracy * scale) ** 2:
            return shortest
        corners.append(corner)


@dataclass(frozen=True)
class OrderOfPlay:
    """The value of the game when theta moves first, and when the weights do, over the same finite set of thetas."""

    min_max: float
    max_min: float
    minimiser: Tensor  # theta* of the min max, (d,)
    maximiser: Tensor  # v* of the max min, (n_u, K)


def order_of_play(problem: Problem, thetas: Tensor) -> OrderOfPlay:
    """min max and max min of L over thetas (m, d) and all weights: unequal in general, as the paper says.

    For a finite set both are exact: the first by looking, the second as a linear programme in v. Adding thetas
    lowers both, so over a subset of Theta that holds the minimiser of phi, max_min < min_max proves it for Theta.
    """
    if thetas.ndim != 2:
        raise UserError(f"thetas has shape {tuple(thetas.shape)}: give one row a point, (m, d)")
    values = phi(problem, thetas)
    labelled = problem.labelled_losses(thetas).mean(-1).numpy()
    losses = problem.view_losses(thetas)
    m, images, k = losses.shape
    # Variables (v, t): maximise t with t - gamma/n_u <v, l(theta)> <= labelled(theta), each image's v_i in the simplex.
    rows = np.hstack([-(problem.trade_off / images) * losses.reshape(m, -1).numpy(), np.ones((m, 1))])
    simplex = np.hstack([np.kron(np.eye(images), np.ones(k)), np.zeros((images, 1))])
    bounds = [(0, 1)] * (images * k) + [(None, None)]
    cost = np.append(np.zeros(images * k), -1.0)
    found = linprog(cost, A_ub=rows, b_ub=labelled, A_eq=simplex, b_eq=np.ones(images), bounds=bounds)
    if not found.success:
        raise UserError(f"the linear programme of max min was not solved: {found.message}")
    maximiser = torch.from_numpy(found.x[:-1].reshape(images, k))
    return OrderOfPlay(float(values.min()), float(-found.fun), thetas[values.argmin()], maximiser)


def minimax_violation(problem: Problem, theta: Tensor, weights: Tensor, others: Tensor) -> float:
    """How far (theta*, v*) is from a global minimax point, seen from the thetas in `others` (m, d); 0 where it is one.

    L(theta*, v) <= L(theta*, v*) <= max over v' of L(theta, v') for every v and theta.
    """
    value = weighted_loss(problem, theta, weights)
    best_answer = weighted_loss(problem, theta, worst_weights(problem, theta))
    return max(0.0, float(best_answer - value), float(value - phi(problem, others).min()))

"""The worst-case objective phi, its proximal point and its Moreau envelope, on problems small enough to solve exactly.

The paper's optimisation section: L(theta, v) and phi = max over v of it (lines 530-562), the envelope (574-577) and the
lemma on stationary points (597-599). Two things are wrong in print and are not implemented:

* The definition has 1/(2 lambda) before the square and calls the result phi_{1/2 lambda}; the proof (1490) has kappa.
  Here phi_mu(theta) = min phi(theta') + |theta' - theta|^2 / (2 mu), and mu = 1 / (2 kappa): the coefficient is kappa.
* "theta is e-stationary for the envelope, hence for phi" is false: see `nearly_stationary` for what is true.

Everything is a function of theta (..., d): leading dimensions are many points at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from maxmatch.errors import UserError


@dataclass(frozen=True)
class Problem:
    """min over theta of max over v of L(theta, v), with the constants that Theorem 3 speaks of.

    The targets of the consistency losses are constants, and each image has the same K views at every step.
    """

    labelled_losses: Callable[[Tensor], Tensor]  # theta (..., d) -> l_i (..., n_l)
    view_losses: Callable[[Tensor], Tensor]  # theta (..., d) -> l_ij (..., n_u, K)
    trade_off: float  # gamma, in Algorithm 1 lambda
    lipschitz: float  # L: no gradient of a batch's loss is longer
    gradient_lipschitz: float  # kappa: of theta -> L(theta, v), for every v
    value_range: float  # B: phi - min phi is never more
    minimum: float  # min phi, or a number below it: Theorem 3 then still holds

    @property
    def mu(self) -> float:
        """The paper's choice 1 / (2 kappa)."""
        return 1 / (2 * self.gradient_lipschitz)


def weighted_loss(problem: Problem, theta: Tensor, weights: Tensor) -> Tensor:
    """L(theta, v): the labelled mean plus gamma times the mean over images of sum_j v_ij l_ij; v (..., n_u, K)."""
    consistency = (weights * problem.view_losses(theta)).sum(-1).mean(-1)
    return problem.labelled_losses(theta).mean(-1) + problem.trade_off * consistency


def phi(problem: Problem, theta: Tensor) -> Tensor:
    """phi(theta) = max over v of L(theta, v): each image counts with its worst view. (..., d) -> (...).

    A maximum over [K] and one over the simplex are the same number: L is linear in v, so a corner is among the best.
    """
    consistency = problem.view_losses(theta).max(-1).values.mean(-1)
    return problem.labelled_losses(theta).mean(-1) + problem.trade_off * consistency


def worst_weights(problem: Problem, theta: Tensor) -> Tensor:
    """A maximiser v of L(theta, .), (..., n_u, K): weight one for the worst view of each image, one of them if tied."""
    losses = problem.view_losses(theta)
    return torch.zeros_like(losses).scatter(-1, losses.argmax(-1, keepdim=True), 1.0)


def value_and_subgradient(problem: Problem, theta: Tensor) -> tuple[Tensor, Tensor]:
    """phi (...) and the gradient of L(., worst view) (..., d), which is a subgradient of phi."""
    with torch.enable_grad():
        theta = theta.detach().requires_grad_()
        value = phi(problem, theta)
        (gradient,) = torch.autograd.grad(value.sum(), theta)
    return value.detach(), gradient


def prox(problem: Problem, theta: Tensor, mu: float | None = None, accuracy: float = 1e-6) -> Tensor:
    """argmin over theta' of phi(theta') + |theta' - theta|^2 / (2 mu), to within `accuracy`. (..., d) -> (..., d).

    For mu < 1 / kappa the function is strongly convex with constant 1 / mu - kappa, so a value within e of the
    minimum is a point within sqrt(2 e / (1 / mu - kappa)) of the minimiser: a proof of accuracy, not a hope. phi has
    kinks, at which descent methods stall; the ellipsoid method does not mind them, and few dimensions make it fast.
    """
    mu = _allowed(problem, mu)
    theta = theta.detach()

    def objective(point: Tensor) -> tuple[Tensor, Tensor]:
        value, subgradient = value_and_subgradient(problem, point)
        offset = point - theta
        return value + offset.square().sum(-1) / (2 * mu), subgradient + offset / mu

    # (theta - prox) / mu is a subgradient of phi at prox, and none is longer than L. This is also what frees the
    # second term of Theorem 3 from B.
    radius = mu * problem.lipschitz
    return _ellipsoid_minimum(objective, theta, radius, gap=(1 / mu - problem.gradient_lipschitz) * accuracy**2 / 2)


def envelope(problem: Problem, theta: Tensor, mu: float | None = None, accuracy: float = 1e-6) -> Tensor:
    """The envelope phi_mu(theta) = min over theta' of phi(theta') + |theta' - theta|^2 / (2 mu). (..., d) -> (...)."""
    mu = _allowed(problem, mu)
    nearest = prox(problem, theta, mu, accuracy)
    return phi(problem, nearest) + (nearest - theta).square().sum(-1) / (2 * mu)


def envelope_gradient(problem: Problem, theta: Tensor, mu: float | None = None, accuracy: float = 1e-6) -> Tensor:
    """The gradient (theta - prox(theta)) / mu of the envelope: 2 kappa (theta - prox) for the paper's mu. (..., d)."""
    mu = _allowed(problem, mu)
    return (theta - prox(problem, theta, mu, accuracy)) / mu


@dataclass(frozen=True)
class NearlyStationary:
    """What a small gradient of the envelope says: `point` is at `distance` and has the subgradient `subgradient`."""

    point: Tensor  # prox(theta), (..., d)
    distance: Tensor  # |point - theta| = mu |gradient of the envelope|
    subgradient: Tensor  # the gradient of the envelope at theta, an element of the sub-differential of phi at `point`


def nearly_stationary(problem: Problem, theta: Tensor, mu: float | None = None) -> NearlyStationary:
    """The lemma of lines 597-599, corrected: |grad phi_mu(theta)| <= e makes prox(theta) e-stationary, not theta.

    In print theta itself would be. For phi = |x|, kappa = 1, x = 0.1 the envelope has slope 0.2 and phi has slope 1;
    but 0 is within mu e = 0.1 of x and stationary.
    """
    mu = _allowed(problem, mu)
    point = prox(problem, theta, mu)
    return NearlyStationary(point, (theta - point).norm(dim=-1), (theta - point) / mu)


def _allowed(problem: Problem, mu: float | None) -> float:
    if mu is None:
        return problem.mu
    if not 0 < mu * problem.gradient_lipschitz < 1:
        limit = 1 / problem.gradient_lipschitz
        raise UserError(f"mu = {mu:g} is not in (0, 1/kappa) = (0, {limit:g}): leave it out for 1/(2 kappa)")
    return mu


def _ellipsoid_minimum(
    objective: Callable[[Tensor], tuple[Tensor, Tensor]], center: Tensor, radius: float, gap: float
) -> Tensor:
    """A point of a convex function's value within `gap` of its minimum, which lies within `radius` of the center.

    The minimum is in {c + u: u' P^-1 u <= 1}. A subgradient g at c cuts away the half where the function is larger; the
    smallest ellipsoid around the other half is the next one. sqrt(g' P g) bounds value - minimum at c.
    """
    d = center.shape[-1]
    shape = radius**2 * torch.eye(d, dtype=center.dtype).expand(*center.shape[:-1], d, d)
    best, best_value = center, torch.full(center.shape[:-1], torch.inf, dtype=center.dtype)
    proven = torch.full_like(best_value, torch.inf)
    growth = d * d / (d * d - 1) if d > 1 else 0.25
    for _ in range(200 + 100 * d * (d + 1)):  # each cut takes a factor exp(-1 / (2 (d + 1))) of the volume
        value, subgradient = objective(center)
        better = value < best_value
        best, best_value = torch.where(better[..., None], center, best), torch.where(better, value, best_value)
        stretched = (shape @ subgradient[..., None])[..., 0]
        width = (subgradient * stretched).sum(-1).clamp_min(0).sqrt()
        proven = torch.minimum(proven, width)
        if bool((proven <= gap).all()):
            return best
        direction = stretched / width.clamp_min(torch.finfo(center.dtype).tiny)[..., None]
        center = center - direction / (d + 1)
        cut = direction[..., :, None] * direction[..., None, :]
        shape = growth * (shape - 2 / (d + 1) * cut if d > 1 else shape)
    raise UserError(f"the proximal point was not found: {proven.max():.1e} > {gap:.1e}; ask for a larger accuracy")

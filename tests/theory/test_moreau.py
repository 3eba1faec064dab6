"""phi, prox and envelope against closed forms, grids and finite differences; the printed lemma's counterexample."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize

from maxmatch.errors import UserError
from maxmatch.theory.convergence import flipped_nuisance
from maxmatch.theory.moreau import (
    Problem,
    _ellipsoid_minimum,
    envelope,
    envelope_gradient,
    nearly_stationary,
    phi,
    prox,
    value_and_subgradient,
    weighted_loss,
    worst_weights,
)
from maxmatch.theory.stationarity import nearest_subgradient, stationarity


def absolute_value(kappa: float = 1.0) -> Problem:
    """phi = |x|: one image, the views x and -x. They are linear, so every kappa > 0 is right; nothing is labelled wrong."""
    return Problem(
        labelled_losses=lambda theta: 0 * theta,
        view_losses=lambda theta: torch.stack([theta, -theta], -1),
        trade_off=1.0, lipschitz=1.0, gradient_lipschitz=kappa, value_range=10.0, minimum=0.0,
    )  # fmt: skip


def points(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return 3 * torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_maximum_over_the_simplex_is_the_maximum_over_k():
    problem, _ = flipped_nuisance(trade_off=0.7)
    for theta in points(5, 2):
        losses = problem.view_losses(theta).numpy()
        n, k = losses.shape
        simplex = np.kron(np.eye(n), np.ones(k))
        found = linprog(
            -losses.ravel() / n, A_eq=simplex, b_eq=np.ones(n), bounds=(0, 1)
        )  # over all v, not corners alone
        value = float(problem.labelled_losses(theta).mean()) - 0.7 * found.fun
        assert float(phi(problem, theta)) == pytest.approx(value, abs=1e-12)
        worst = worst_weights(problem, theta)
        assert worst.sum(-1).tolist() == [1.0] * n
        assert float(weighted_loss(problem, theta, worst)) == pytest.approx(value, abs=1e-12)
        other = torch.rand(n, k, dtype=torch.float64)
        assert float(weighted_loss(problem, theta, other / other.sum(-1, keepdim=True))) < value


def test_phi_by_hand():
    problem = Problem(
        labelled_losses=lambda theta: torch.stack([theta[..., 0], 3 * theta[..., 0]], -1),
        view_losses=lambda theta: torch.stack([theta, theta.flip(-1)], -2) * torch.tensor([1.0, 2.0]),
        trade_off=0.5, lipschitz=1.0, gradient_lipschitz=1.0, value_range=1.0, minimum=0.0,
    )  # fmt: skip
    # labelled (2, 6) -> 4; views ((2, 10), (5, 4)) -> worst 10 and 5, mean 7.5
    assert float(phi(problem, torch.tensor([2.0, 5.0]))) == 4 + 0.5 * 7.5
    value, gradient = value_and_subgradient(problem, torch.tensor([2.0, 5.0]))
    assert float(value) == 7.75
    assert gradient.tolist() == [2.0, 0.5 * (2 + 1) / 2]


@pytest.mark.parametrize("kappa", [0.5, 1.0, 4.0])
def test_the_absolute_value_has_the_huber_function_as_envelope(kappa):
    problem, x = absolute_value(kappa), torch.linspace(-3, 3, 61, dtype=torch.float64)[:, None]
    half = 1 / (2 * kappa)
    soft = x.sign() * (x.abs() - half).clamp_min(0)
    huber = torch.where(x.abs() <= half, kappa * x.square(), x.abs() - half / 2)[:, 0]
    assert torch.allclose(prox(problem, x), soft, atol=1e-6)
    assert torch.allclose(envelope(problem, x), huber, atol=1e-10)
    assert torch.allclose(envelope_gradient(problem, x), (2 * kappa * x).clamp(-1, 1), atol=4e-6 * kappa)
    assert torch.allclose(envelope_gradient(problem, x, mu=half / 2), (x * 2 / half).clamp(-1, 1), atol=1e-5 * kappa)
    other = envelope(problem, x, mu=0.5 * half)
    assert torch.all(other >= huber - 1e-12)  # a smaller mu is a closer envelope
    assert torch.all(other <= x.abs()[:, 0] + 1e-12)


@pytest.mark.parametrize("d", [2, 3])
def test_prox_against_an_epigraph_programme(d):
    problem, _ = flipped_nuisance(groups=2, nuisances=d - 1, trade_off=1.5, seed=3)
    thetas = points(6, d, seed=1)
    ours, n = prox(problem, thetas), 8
    kappa = problem.gradient_lipschitz
    for theta, near in zip(thetas.numpy(), ours.numpy(), strict=True):
        # min labelled(y) + gamma mean(t) + kappa |y - theta|^2 with every view's loss at most t_i: smooth, another solver.
        def cost(z, theta=theta):
            labelled = problem.labelled_losses(torch.from_numpy(z[:d])).mean()
            return float(labelled) + 1.5 * z[d:].mean() + kappa * np.sum((z[:d] - theta) ** 2)

        def slack(z):
            return (torch.from_numpy(z[d:, None]) - problem.view_losses(torch.from_numpy(z[:d]))).numpy().ravel()

        start = np.concatenate([theta, np.full(n, 3.0)])
        found = minimize(
            cost,
            start,
            method="SLSQP",
            constraints={"type": "ineq", "fun": slack},
            options={"ftol": 1e-13, "maxiter": 300},
        )
        assert np.allclose(near, found.x[:d], atol=2e-4)
        assert (
            cost(np.concatenate([near, problem.view_losses(torch.from_numpy(near)).amax(-1).numpy()]))
            <= found.fun + 1e-9
        )


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_the_ellipsoid_method_keeps_the_minimum_inside(d):
    # Kinks of very different steepness whose minimum lies on the edge of the first ball: a set cut too small loses it.
    random = torch.Generator().manual_seed(d)
    minimum, kinks = (torch.randn(*s, dtype=torch.float64, generator=random) for s in ((200, d), (200, d, d)))
    minimum = 0.999 * minimum / minimum.norm(dim=-1, keepdim=True)
    kinks = kinks * torch.logspace(0, 1.5, d, dtype=torch.float64)

    def objective(point):
        away = point - minimum
        across = (kinks @ away[..., None])[..., 0]
        slope = (kinks.mT @ across.sign()[..., None])[..., 0]
        return across.abs().sum(-1) + away.square().sum(-1) / 2, slope + away

    found = _ellipsoid_minimum(objective, torch.zeros(200, d, dtype=torch.float64), 1.0, gap=1e-10)
    assert torch.allclose(found, minimum, atol=2e-5)  # sqrt(2 gap)


def test_prox_against_a_grid_and_the_envelope_lies_below_phi():
    problem, minimiser = flipped_nuisance()
    axis = torch.linspace(-1, 1, 201, dtype=torch.float64)
    around = torch.cartesian_prod(axis, axis)
    for theta in points(3, 2, seed=2):
        near = prox(problem, theta)
        values = phi(problem, near + around) + problem.gradient_lipschitz * (near + around - theta).square().sum(-1)
        assert values.argmin() == 201 * 100 + 100  # the centre of the grid
        assert float(envelope(problem, theta)) == pytest.approx(float(values.min()), abs=1e-12)
        assert problem.minimum <= float(envelope(problem, theta)) <= float(phi(problem, theta))
    assert torch.allclose(prox(problem, minimiser), minimiser, atol=1e-6)


def test_the_gradient_of_the_envelope_is_its_derivative():
    problem, _ = flipped_nuisance(nuisances=2)
    thetas, h = points(8, 3, seed=4), 1e-4
    numeric = torch.stack(
        [
            (envelope(problem, thetas + h * e) - envelope(problem, thetas - h * e)) / (2 * h)
            for e in torch.eye(3, dtype=torch.float64)
        ],
        -1,
    )
    assert torch.allclose(envelope_gradient(problem, thetas), numeric, atol=1e-5)
    assert float(numeric.norm(dim=-1).max()) > 0.1
    assert float(numeric.norm(dim=-1).max()) <= problem.lipschitz


def test_the_printed_lemma_is_false_and_the_corrected_one_holds_for_the_absolute_value():
    problem, x = absolute_value(kappa=1.0), torch.tensor([0.1], dtype=torch.float64)
    e = float(envelope_gradient(problem, x).norm())
    assert e == pytest.approx(0.2, abs=1e-5)
    assert stationarity(problem, x) == pytest.approx(1.0)  # as printed this would be at most 0.2
    near = nearly_stationary(problem, x)
    assert float(near.distance) == pytest.approx(problem.mu * e, abs=1e-5)
    assert stationarity(problem, near.point, tie=1e-5) == pytest.approx(0.0, abs=1e-9)


def test_the_corrected_lemma_on_a_classifier():
    problem, _ = flipped_nuisance(seed=5)
    # Some of these points have their proximal point on the kink where the views tie, some do not.
    thetas = torch.cat([points(6, 2, seed=6), points(6, 2, seed=7) * torch.tensor([1.0, 0.02])])
    kinks = 0
    for theta in thetas:
        near = nearly_stationary(problem, theta)
        e = float(envelope_gradient(problem, theta).norm())
        assert float(near.distance) <= problem.mu * e + 1e-6
        assert stationarity(problem, near.point, tie=1e-5) <= e + 1e-5
        # stronger: the envelope's gradient itself is a subgradient there
        back = nearest_subgradient(problem, near.point, to=near.subgradient, tie=1e-5)
        assert np.allclose(back, near.subgradient.numpy(), atol=1e-4)
        kinks += abs(float(near.point[1])) < 1e-5
    assert 0 < kinks < len(thetas)


def test_a_mu_for_which_the_envelope_need_not_exist_is_refused():
    with pytest.raises(UserError, match=r"mu = 1 is not in \(0, 1/kappa\) = \(0, 1\): leave it out for 1/\(2 kappa\)"):
        prox(absolute_value(), torch.zeros(1, dtype=torch.float64), mu=1.0)

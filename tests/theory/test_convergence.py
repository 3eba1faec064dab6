"""Theorem 3's two sides where every constant is known, the constants against samples, Algorithm 1 against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.func import jacrev

from maxmatch.errors import UserError
from maxmatch.methods.functional import cross_entropy
from maxmatch.theory.convergence import (
    algorithm_1,
    best_step_size,
    bounded_cross_entropy,
    flipped_nuisance,
    linear_problem,
    measure,
    theorem_3,
)
from maxmatch.theory.moreau import Problem, envelope, envelope_gradient, phi

CONSTANTS = {"gap": 2.0, "lipschitz": 3.0, "gradient_lipschitz": 0.5, "value_range": 4.0}
START = torch.tensor([-3.0, 4.0], dtype=torch.float64)


def test_the_right_hand_side_by_hand():
    bound = theorem_3(**CONSTANTS, steps=99, delta=math.exp(-2))
    assert bound.descent == pytest.approx(4 * 3 * math.sqrt(0.5 * 2 / 99))
    assert bound.chance == pytest.approx(8 * 3 * math.sqrt(2 * 4 * 0.5 * 2 / 100))
    assert bound.total == bound.descent + bound.chance
    free = theorem_3(**CONSTANTS, steps=99, delta=math.exp(-2), second_term="range_free")
    assert free.descent == bound.descent
    assert free.chance == pytest.approx(4 * 9 * math.sqrt(2 * 2 / 100))
    for steps, delta in ((0, 0.1), (5, 0.0), (5, 1.0)):
        with pytest.raises(UserError, match="Theorem 3 needs at least one step and 0 < delta < 1"):
            theorem_3(**CONSTANTS, steps=steps, delta=delta)


def test_the_best_step_minimises_the_first_term():
    best = best_step_size(2.0, 3.0, 0.5, 50)
    at = {c: theorem_3(**CONSTANTS, steps=50, delta=0.1, step_size=c * best).descent for c in (0.5, 0.9, 1.0, 1.1, 2.0)}
    assert at[1.0] == pytest.approx(theorem_3(**CONSTANTS, steps=50, delta=0.1).descent)
    assert min(at, key=at.get) == 1.0


def test_the_bounded_cross_entropy_is_that_of_the_bounded_outputs():
    z, eps = torch.linspace(-8, 8, 161, dtype=torch.float64), 0.03
    outputs = (1 - 2 * eps) * torch.softmax(torch.stack([z, torch.zeros_like(z)], -1), -1) + eps
    assert torch.allclose(
        bounded_cross_entropy(z, eps), cross_entropy(outputs.log(), torch.zeros(161, dtype=torch.long))
    )


@pytest.mark.parametrize("eps", [0.3, 0.05, 1e-3])
def test_the_constants_of_the_loss_are_those_of_its_formula(eps):
    z = torch.linspace(-30, 30, 60001, dtype=torch.float64)
    loss = bounded_cross_entropy(z, eps).numpy()
    slope, odds = np.gradient(loss, z.numpy()), math.log((1 - eps) / eps)
    assert np.abs(slope).max() == pytest.approx(math.tanh(odds / 4), rel=1e-5)
    assert float(z[np.abs(slope).argmax()]) == pytest.approx(-odds / 2, abs=2e-3)
    assert np.abs(np.gradient(slope, z.numpy())).max() <= 0.25
    assert np.gradient(slope, z.numpy()).min() < -0.01  # not convex
    assert loss[0] == pytest.approx(math.log(1 / eps), abs=1e-6)
    assert loss[-1] == pytest.approx(math.log(1 / (1 - eps)), abs=1e-6)
    if eps == 1e-3:
        assert np.gradient(slope, z.numpy()).max() > 0.245  # 1/4 is nearly reached


def random_problem(seed: int):
    random = torch.Generator().manual_seed(seed)
    x, views = (torch.randn(*shape, dtype=torch.float64, generator=random) for shape in ((5, 3), (4, 3, 3)))
    y, pseudo = (2.0 * torch.randint(2, (n,), generator=random).double() - 1 for n in (5, 4))
    return linear_problem(x, y, views, pseudo, trade_off=0.8, floor=0.02)


def test_the_constants_of_the_problem_hold_at_random_points():
    for seed in range(4):
        problem = random_problem(seed)
        thetas = 2 * torch.randn(200, 3, dtype=torch.float64)
        weights = torch.rand(4, 3, dtype=torch.float64)
        weights = weights / weights.sum(-1, keepdim=True)

        def one_batch(theta, problem=problem):  # the steepest batch: one labelled image, one view
            return problem.labelled_losses(theta)[0] + 0.8 * problem.view_losses(theta)[0].max()

        def mixed(theta, problem=problem, weights=weights):
            return problem.labelled_losses(theta).mean() + 0.8 * (weights * problem.view_losses(theta)).sum(-1).mean()

        slopes = torch.func.vmap(torch.func.grad(one_batch))(thetas).norm(dim=-1)
        curvature = torch.linalg.matrix_norm(torch.func.vmap(torch.func.hessian(mixed))(thetas), ord=2)
        values = phi(problem, torch.cat([thetas, 100 * thetas]))
        assert 0.05 * problem.lipschitz < float(slopes.max()) <= problem.lipschitz
        assert 0.05 * problem.gradient_lipschitz < float(curvature.max()) <= problem.gradient_lipschitz
        assert problem.minimum <= float(values.min())
        assert float(values.max()) - problem.minimum <= problem.value_range + 1e-12
    one = torch.ones(1, dtype=torch.float64)
    for floor in (0.0, 0.5):
        with pytest.raises(UserError, match=rf"floor = {floor:g} is not in \(0, 0.5\)"):
            linear_problem(one[None], one, one[None, None], one, floor=floor)


def test_the_constants_of_the_problem_by_hand():
    """One labelled image of length 5; two others with views of lengths 1 and 2, and 3 and 0."""
    x, y = torch.tensor([[3.0, 4.0]], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    views = torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [0.0, 0.0]]], dtype=torch.float64)
    problem = linear_problem(x, y, views, torch.tensor([1.0, -1.0], dtype=torch.float64), trade_off=0.5, floor=0.1)
    assert problem.lipschitz == pytest.approx(math.tanh(math.log(9) / 4) * (5 + 0.5 * 3))
    assert problem.gradient_lipschitz == pytest.approx((25 + 0.5 * (4 + 9) / 2) / 4)
    assert problem.minimum == pytest.approx(1.5 * math.log(1 / 0.9))
    assert problem.value_range == pytest.approx(1.5 * math.log(10) - problem.minimum)


@pytest.mark.parametrize(("nuisances", "k", "trade_off"), [(1, 3, 1.0), (2, 2, 0.4), (3, 5, 2.0)])
def test_the_minimum_of_the_worked_problem_is_where_it_is_said_to_be(nuisances, k, trade_off):
    problem, minimiser = flipped_nuisance(3, k, nuisances, trade_off)
    assert float(phi(problem, minimiser)) == pytest.approx(problem.minimum, abs=1e-12)
    mirrored = minimiser + torch.tensor([[0.5, *[1.0] * nuisances], [0.5, *[-1.0] * nuisances]], dtype=torch.float64)
    if k == 2:  # the views r and -r: which of them is worst depends on the sign of the weight, the loss does not
        one, other = problem.view_losses(mirrored).amax(-1)
        assert torch.allclose(one, other)
    random = torch.randn(20000, 1 + nuisances, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values = phi(problem, minimiser + torch.cat([1e-3 * random, 0.3 * random, 3 * random]))
    assert float(values.min()) > problem.minimum
    assert float(values.max()) - problem.minimum <= problem.value_range


def test_algorithm_1_against_numpy():
    problem, _ = flipped_nuisance(groups=1, trade_off=0.6, seed=4)
    ours = algorithm_1(problem, START, step_size=0.3, steps=6).numpy()

    def step(theta: np.ndarray) -> np.ndarray:
        """The full gradient by differences of the losses, each image's view chosen before, as in lines 6 and 7."""
        worst = problem.view_losses(torch.from_numpy(theta)).argmax(-1)[:, None]

        def value(at: np.ndarray) -> float:
            at = torch.from_numpy(at)
            return float(problem.labelled_losses(at).mean() + 0.6 * problem.view_losses(at).gather(-1, worst).mean())

        return theta - 0.3 * np.array([(value(theta + e) - value(theta - e)) / 2e-6 for e in 1e-6 * np.eye(2)])

    theirs = [START.numpy()]
    for _ in range(6):
        theirs.append(step(theirs[-1]))
    assert np.allclose(ours, theirs, atol=1e-8)


def test_the_batch_gradient_is_unbiased_and_no_longer_than_l():
    problem, _ = flipped_nuisance(seed=1)
    runs = algorithm_1(problem, START.expand(40000, -1), step_size=1.0, steps=1, labelled_batch=1, unlabelled_batch=2)
    full = algorithm_1(problem, START, step_size=1.0, steps=1)
    g, exact = runs[0] - runs[1], full[0] - full[1]
    error = g.std(0) / 200
    assert torch.all((g.mean(0) - exact).abs() < 4 * error)
    assert float(g.norm(dim=-1).max()) <= problem.lipschitz
    assert float(g.std(0).min()) > 0.05
    again = algorithm_1(
        problem, START.expand(3, -1), step_size=1.0, steps=2, labelled_batch=1, unlabelled_batch=1, seed=9
    )
    assert not torch.equal(again[2, 0], again[2, 1])  # each run has batches of its own


def test_each_kind_of_image_has_a_batch_of_its_own_size():
    """All labelled images and one of four groups of unlabelled ones, three alike and one other: eight gradients."""
    problem, _ = flipped_nuisance(seed=1, trade_off=0.6)
    points = algorithm_1(
        problem, START.expand(200, -1), step_size=1.0, steps=1, labelled_batch=None, unlabelled_batch=1
    )
    labelled = jacrev(problem.labelled_losses)(START).mean(0)
    possible = labelled + 0.6 * jacrev(lambda at: problem.view_losses(at).amax(-1))(START)
    apart = torch.cdist(points[0] - points[1], possible)
    assert float(apart.amin(1).max()) < 1e-6
    assert len(set(apart.argmin(1).tolist())) == 8


@pytest.mark.parametrize("steps", [1, 3, 10, 30, 100, 300, 1000])
def test_theorem_3_holds_at_every_t(steps):
    problem, _ = flipped_nuisance()
    drawn = measure(problem, START, steps, runs=20, delta=0.05, seed=steps)
    # Twenty runs, each of which may fail with probability 0.05; both forms of the second term.
    assert drawn.mean_squared_gradient.shape == (20,)
    for bound in (drawn.printed, drawn.range_free):
        assert float((drawn.mean_squared_gradient > bound.total).double().mean()) <= 0.05
    arguments = {
        "step_size": drawn.step_size,
        "steps": steps,
        "labelled_batch": 1,
        "unlabelled_batch": 1,
        "seed": steps,
    }
    assert torch.equal(drawn.last, algorithm_1(problem, START.expand(20, -1), **arguments)[-1])
    # With the full gradient there is no chance in it: the first term alone is the bound.
    full = measure(problem, START, steps, batch=None)
    assert 0 < float(full.mean_squared_gradient) <= full.printed.descent
    # The left-hand side from its parts.
    gap = float(envelope(problem, START)) - problem.minimum
    eta = best_step_size(gap, problem.lipschitz, problem.gradient_lipschitz, steps)
    points = algorithm_1(problem, START, step_size=eta, steps=steps)
    assert len(points) == steps + 1
    by_hand = float(envelope_gradient(problem, points).norm(dim=-1).square().sum()) / (steps + 1)
    assert float(full.mean_squared_gradient) == pytest.approx(by_hand, rel=1e-3)


def test_theorem_3_says_more_than_l_squared_when_t_is_large():
    problem, _ = flipped_nuisance()
    gap = float(envelope(problem, START)) - problem.minimum
    names = {"gap": gap, "lipschitz": problem.lipschitz, "gradient_lipschitz": problem.gradient_lipschitz}
    few, many = (theorem_3(**names, value_range=problem.value_range, steps=t, delta=0.05).total for t in (10, 10000))
    assert few > problem.lipschitz**2 > many  # |grad phi_mu| <= L always


def test_the_first_term_is_four_times_the_truth_for_the_absolute_value():
    # phi = |x| from x = D: eta* = sqrt(D / (kappa T)) nearly, so D / eta* = sqrt(D kappa T) steps of slope 1, then next to none.
    # The mean of the squared slopes is sqrt(D kappa / T): a quarter of 4 L sqrt(kappa gap / T). With eta* the rate is the true one.
    problem = Problem(lambda t: 0 * t, lambda t: torch.stack([t, -t], -1), 1.0, 1.0, 1.0, 60.0, 0.0)
    ratios = []
    for steps in (2500, 10000):
        full = measure(problem, torch.tensor([5.0], dtype=torch.float64), steps, batch=None)
        ratios.append(float(full.mean_squared_gradient) / full.printed.descent)
    assert ratios == pytest.approx([0.25, 0.25], abs=0.02)


def test_numbers_that_theorem_3_is_not_about_are_one_line():
    for name, value in (("gap", -1e-12), ("lipschitz", 0.0), ("gradient_lipschitz", 0.0), ("steps", 0)):
        wrong = {"gap": 2.0, "lipschitz": 3.0, "gradient_lipschitz": 0.5, "steps": 10, name: value}
        with pytest.raises(UserError, match=rf"^{name} = {value:g}: "):
            best_step_size(**wrong)
    for changed in ({"gap": -1.0}, {"value_range": -1.0}, {"gradient_lipschitz": -1.0}, {"step_size": 0.0}):
        with pytest.raises(UserError, match=rf"^{next(iter(changed))} = "):
            theorem_3(**{**CONSTANTS, "steps": 10, "delta": 0.05, **changed})
    with pytest.raises(UserError, match="second_term = 'sharp': give printed or range_free"):
        theorem_3(**CONSTANTS, steps=10, delta=0.05, second_term="sharp")

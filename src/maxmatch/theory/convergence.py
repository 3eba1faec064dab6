"""Algorithm 1 and Theorem 3 (lines 604-612 and 1464-1590), on a classifier whose L, kappa, B and min phi are known.

Theorem 3 is right in print for the constant step eta* of its proof, plain SGD, a fixed finite B_sem, an unbiased g_t,
targets that are constants, and phi_{1/2 kappa} with coefficient kappa. It bounds the *squared* norm, which falls
as T^(-1/2): the norm itself falls as T^(-1/4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot, softplus

from maxmatch.errors import UserError
from maxmatch.theory.checks import check_amounts, check_counts, check_positive
from maxmatch.theory.moreau import Problem, envelope, envelope_gradient

SecondTerm = Literal["printed", "range_free"]


def best_step_size(gap: float, lipschitz: float, gradient_lipschitz: float, steps: int) -> float:
    """eta* = sqrt(gap / (kappa L^2 T)) with gap = phi_{1/2 kappa}(theta_0) - min phi (line 1585)."""
    check_amounts(gap=gap)
    check_positive(lipschitz=lipschitz, gradient_lipschitz=gradient_lipschitz)
    check_counts(steps=steps)
    return math.sqrt(gap / (gradient_lipschitz * lipschitz**2 * steps))


@dataclass(frozen=True)
class TheoremThree:
    """The two terms of the right-hand side: their sum bounds the mean over t = 0..T of |grad phi_{1/2 kappa}|^2."""

    descent: float  # what the steps have not yet won; alone it bounds runs with g_t = the full gradient
    chance: float  # what the draw of the batches may cost, with probability 1 - delta

    @property
    def total(self) -> float:
        return self.descent + self.chance


def theorem_3(
    *,
    gap: float,
    lipschitz: float,
    gradient_lipschitz: float,
    value_range: float,
    steps: int,
    delta: float,
    step_size: float | None = None,
    second_term: SecondTerm = "printed",
) -> TheoremThree:
    """Theorem 3's right-hand side: 4 L sqrt(kappa gap / T) + 8 L sqrt(2 B kappa log(1/delta) / (T + 1)).

    With a `step_size` other than eta* the first term is that of the proof, 2 gap / (eta T) + 2 kappa eta L^2. The
    `range_free` second term 4 L^2 sqrt(2 log(1/delta) / (T + 1)) follows from |theta - prox| <= L / (2 kappa) where the
    paper has sqrt(B / kappa): it needs no compact Theta, and is the smaller one where L < 2 sqrt(B kappa).

    >>> bound = theorem_3(gap=1, lipschitz=1, gradient_lipschitz=1, value_range=2, steps=100, delta=0.05)
    >>> round(bound.descent, 3), round(bound.chance, 3)
    (0.4, 2.756)
    """
    if steps < 1 or not 0 < delta < 1:
        raise UserError(f"steps = {steps}, delta = {delta:g}: Theorem 3 needs at least one step and 0 < delta < 1")
    if second_term not in ("printed", "range_free"):
        raise UserError(f"second_term = {second_term!r}: give printed or range_free")
    check_amounts(gap=gap, lipschitz=lipschitz, gradient_lipschitz=gradient_lipschitz, value_range=value_range)
    if step_size is None:
        descent = 4 * lipschitz * math.sqrt(gradient_lipschitz * gap / steps)
    else:
        check_positive(step_size=step_size)
        descent = 2 * gap / (step_size * steps) + 2 * gradient_lipschitz * step_size * lipschitz**2
    luck = 2 * math.log(1 / delta) / (steps + 1)
    if second_term == "range_free":
        return TheoremThree(descent, 4 * lipschitz**2 * math.sqrt(luck))
    return TheoremThree(descent, 8 * lipschitz * math.sqrt(value_range * gradient_lipschitz * luck))


def algorithm_1(
    problem: Problem,
    theta_0: Tensor,
    *,
    step_size: float,
    steps: int,
    labelled_batch: int | None = None,
    unlabelled_batch: int | None = None,
    seed: int = 0,
) -> Tensor:
    """The points theta_0 .. theta_T of the paper's Algorithm 1, SGD on the worst view of each image. (T+1, ..., d).

    Batches are drawn uniformly with replacement; None is the whole set, so that g_t is the full gradient. The leading
    dimensions of theta_0 (..., d) are runs of their own, each with its own batches.
    """
    random = torch.Generator().manual_seed(seed)
    theta, points = theta_0.detach(), [theta_0.detach()]
    for _ in range(steps):
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_()
            labelled = problem.labelled_losses(leaf)
            worst = problem.view_losses(leaf).max(-1).values  # line 6: the largest consistency loss of each image
            batch_loss = (labelled * _batch_weights(labelled, labelled_batch, random)).sum(-1)  # lines 3 and 4
            batch_loss = batch_loss + problem.trade_off * (worst * _batch_weights(worst, unlabelled_batch, random)).sum(
                -1
            )
            (gradient,) = torch.autograd.grad(batch_loss.sum(), leaf)
        theta = theta - step_size * gradient  # line 7
        points.append(theta)
    return torch.stack(points)


@dataclass(frozen=True)
class Measured:
    """Both sides of Theorem 3 for one T: each run's mean squared gradient of the envelope, and the bounds."""

    steps: int
    step_size: float
    mean_squared_gradient: Tensor  # (runs,)
    last: Tensor  # theta_T, (runs, d)
    printed: TheoremThree
    range_free: TheoremThree


def measure(
    problem: Problem,
    theta_0: Tensor,
    steps: int,
    *,
    delta: float = 0.05,
    batch: int | None = 1,
    runs: int = 1,
    seed: int = 0,
) -> Measured:
    """Run Algorithm 1 for T steps of size eta*(T) from theta_0 (d,): the left of Theorem 3 beside its right."""
    gap = float(envelope(problem, theta_0)) - problem.minimum
    constants = {"gap": gap, "lipschitz": problem.lipschitz, "gradient_lipschitz": problem.gradient_lipschitz}
    eta = best_step_size(**constants, steps=steps)
    points = algorithm_1(
        problem,
        theta_0.expand(runs, -1),
        step_size=eta,
        steps=steps,
        labelled_batch=batch,
        unlabelled_batch=batch,
        seed=seed,
    )
    squared = envelope_gradient(problem, points, accuracy=1e-5).square().sum(-1)
    printed, range_free = (
        theorem_3(**constants, value_range=problem.value_range, steps=steps, delta=delta, second_term=second)
        for second in ("printed", "range_free")
    )
    return Measured(steps, eta, squared.mean(0), points[-1], printed, range_free)


def bounded_cross_entropy(margin: Tensor, floor: float) -> Tensor:
    """-log p of the right class of two, p = (1 - 2 eps) sigmoid(margin) + eps: the paper's outputs in [eps, 1 - eps].

    It is softplus(z) - softplus(z + c) + log(1/eps) with c = log((1 - eps)/eps), from which the constants can be read:
    it falls from log(1/eps) to log(1/(1 - eps)), is not convex, its slope sigmoid(z) - sigmoid(z + c) is steepest at
    z = -c/2, where it is -tanh(c/4), and its curvature is a difference of two numbers in (0, 1/4].
    """
    odds = math.log((1 - floor) / floor)
    return softplus(margin) - softplus(margin + odds) - math.log(floor)


def linear_problem(
    x: Tensor, y: Tensor, views: Tensor, pseudo_labels: Tensor, trade_off: float = 1.0, floor: float = 0.05,
    minimum: float | None = None,
) -> Problem:  # fmt: skip
    """Two classes, margin y <x, theta>, bounded cross-entropy: x (n_l, d), y +-1, views (n_u, K, d), pseudo_labels +-1.

    The constants hold on all of R^d, so Theta is R^d and no step can leave it (Algorithm 1 does not project):
    L = tanh(c/4) (max |x_i| + gamma max |x_ij|), for any batch; kappa = (mean |x_i|^2 + gamma mean max_j |x_ij|^2) / 4;
    B from phi <= (1 + gamma) log(1/eps). The minimum, where not given, is the bound (1 + gamma) log(1/(1 - eps)).
    """
    if not 0 < floor < 0.5:
        raise UserError(f"floor = {floor:g} is not in (0, 0.5): give the least probability of either class, say 0.05")
    labelled_margins, view_margins = x * y[:, None], views * pseudo_labels[:, None, None]
    steepest = math.tanh(math.log((1 - floor) / floor) / 4)
    lengths, view_lengths = x.norm(dim=-1), views.norm(dim=-1)
    least = (1 + trade_off) * math.log(1 / (1 - floor)) if minimum is None else minimum
    return Problem(
        labelled_losses=lambda theta: bounded_cross_entropy(theta @ labelled_margins.T, floor),
        view_losses=lambda theta: bounded_cross_entropy(torch.einsum("...d,ikd->...ik", theta, view_margins), floor),
        trade_off=trade_off,
        lipschitz=steepest * float(lengths.max() + trade_off * view_lengths.max()),
        gradient_lipschitz=float(lengths.square().mean() + trade_off * view_lengths.amax(-1).square().mean()) / 4,
        value_range=(1 + trade_off) * math.log(1 / floor) - least,
        minimum=least,
    )


def flipped_nuisance(
    groups: int = 4, k: int = 3, nuisances: int = 1, trade_off: float = 1.0, floor: float = 0.05, seed: int = 0
) -> tuple[Problem, Tensor]:
    """A linear problem whose min phi and minimiser are known too: the views flip what the class does not depend on.

    An image is (1, r); its views are (1, r), (1, -r) and (1, s r) with s in (-1, 1). Each r comes four times, and one
    label (or pseudo-label) of the four is wrong. The loss falls with the margin, so the worst of r and -r is no better
    than r = 0; and cross-entropy against labels of which 3/4 are +1 is least at p = 3/4. Hence min phi is (1 + gamma)
    times the entropy of (3/4, 1/4), at weight 0 for the nuisances; the K views tie there, and phi has a kink.
    """
    random = torch.Generator().manual_seed(seed)
    nuisance = torch.randn(groups, nuisances, dtype=torch.float64, generator=random).repeat_interleave(4, 0)
    scales = 2 * torch.rand(4 * groups, k, dtype=torch.float64, generator=random) - 1
    scales[:, 0], scales[:, 1] = 1, -1
    x = torch.cat([torch.ones(4 * groups, 1, dtype=torch.float64), nuisance], 1)
    views = torch.cat([torch.ones(4 * groups, k, 1, dtype=torch.float64), scales[..., None] * nuisance[:, None]], -1)
    y = torch.tensor([1.0, 1.0, 1.0, -1.0], dtype=torch.float64).repeat(groups)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    problem = linear_problem(x, y, views, y, trade_off, floor, minimum=(1 + trade_off) * entropy)
    sigmoid = (0.75 - floor) / (1 - 2 * floor)
    minimiser = torch.zeros(1 + nuisances, dtype=torch.float64)
    minimiser[0] = math.log(sigmoid / (1 - sigmoid))
    return problem, minimiser


def _batch_weights(losses: Tensor, size: int | None, random: torch.Generator) -> Tensor:
    """How much each image counts in the mean over a batch of `size`: (..., n), summing to one."""
    n = losses.shape[-1]
    if size is None:
        return torch.full_like(losses, 1 / n)
    drawn = torch.randint(n, (*losses.shape[:-1], size), generator=random)
    return one_hot(drawn, n).sum(-2).to(losses.dtype) / size

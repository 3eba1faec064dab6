"""VAT by hand, and the climb: it must beat random directions in float32, and stay in its ball."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from maxmatch.data.datasets import load_images
from maxmatch.errors import UsageError
from maxmatch.methods.base import Batch
from maxmatch.methods.vat import VAT
from maxmatch.nets import make_net
from maxmatch.nets.averaging import Average
from maxmatch.nets.batchnorm import set_mode
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train.runner import Runner
from methods.pictures import WEAK, Table, X, Y, chance, cross_entropy, log_odds, make_batch, mean

SEED = 3  # of the draws below: the worst of two restarts is the first for some images, the second for others


def draws(k: int) -> list[list[tuple[float, float]]]:
    """The random beginnings (K, B) of the climbs, two numbers an image."""
    torch.manual_seed(SEED)
    return [[tuple(d.flatten().tolist()) for d in torch.randn(3, 2, 1, 1, dtype=torch.float64)] for _ in range(k)]


def divergence(p: float, q: float) -> float:
    """KL(p || q) of two chances of class 1."""
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def by_hand(k: int, radius: float) -> list[list[float]]:
    """The slope of KL(p || q) in the two logits is q - p: it points along (-1, 1) or (1, -1), where the draw leans to."""
    per_view = []
    for drawn in draws(k):
        towards = [1 if one > zero else -1 for zero, one in drawn]
        # A step of length r along (-1, 1) / sqrt 2 moves the log odds, a difference of two, by sqrt(2) r.
        moved = [chance(log_odds(p) + s * math.sqrt(2) * radius) for p, s in zip(WEAK, towards, strict=True)]
        per_view.append([divergence(p, q) for p, q in zip(WEAK, moved, strict=True)])
    return per_view


@pytest.mark.parametrize(
    ("k", "over", "strategy"),
    [(1, "mean", "joint"), (2, "mean", "joint"), (1, "worst", "joint"), (2, "worst", "joint"), (2, "worst", "select")],
)
@pytest.mark.parametrize("climbs", [1, 3])
def test_all_three_terms_by_hand(k, over, strategy, climbs):
    method = VAT(k=k, over=over, strategy=strategy, radius=0.7, climbs=climbs, weight=3, entropy=5)
    per_view, reduce = by_hand(k, 0.7), max if over == "worst" else mean
    torch.manual_seed(SEED)
    losses = method.losses(Table(), make_batch(k))
    unlabeled = mean([reduce([view[image] for view in per_view]) for image in range(3)])
    assert {name: term.item() for name, term in losses.terms.items()} == pytest.approx(
        {
            "supervised": mean([cross_entropy(p, float(y)) for p, y in zip(X, Y, strict=True)]),
            "unlabeled": 3 * unlabeled,
            "entropy": 5 * mean([cross_entropy(p, p) for p in WEAK]),
        }
    )
    torch.testing.assert_close(losses.seen.per_view, torch.tensor(per_view, dtype=torch.float64))
    if over == "worst" and k == 2:
        assert len(set(losses.seen.winner.tolist())) == 2


@pytest.mark.parametrize("climbs", [1, 2])
def test_the_l_inf_ball_by_hand(climbs):
    """However many climbs: together they go as far as the ball reaches."""
    method = VAT(ball="linf", radius=0.7, step=0.1, climbs=climbs)
    torch.manual_seed(SEED)
    prepared = method.prepare(Table(), make_batch(1))
    for image, (zero, one) in enumerate(draws(1)[0]):
        length, towards = math.hypot(zero, one), 1 if one > zero else -1
        moved = [
            max(-0.7, min(0.7, 0.1 * start / length + 0.7 * sign)) for start, sign in ((zero, -towards), (one, towards))
        ]
        half = log_odds(WEAK[image]) / 2
        expected = [-half + moved[0], half + moved[1]]
        assert prepared.strong[0, image].flatten().tolist() == pytest.approx(expected)


def test_the_target_has_no_gradient_unless_asked_and_the_entropy_has():
    for target_gradient in (False, True):
        batch = make_batch(1)
        batch = replace(batch, weak=batch.weak.clone().requires_grad_())
        method = VAT(target_gradient=target_gradient)
        prepared = method.prepare(Table(), batch)
        # Cut the way over x + r: what is left is the target's.
        parts = replace(prepared, strong=prepared.strong.detach().requires_grad_())
        losses = method._joint(Table(), parts)
        (to_target,) = torch.autograd.grad(losses.terms["unlabeled"], batch.weak, allow_unused=True, retain_graph=True)
        assert (to_target is not None and to_target.abs().sum().item() > 0) == target_gradient
        (to_entropy,) = torch.autograd.grad(losses.terms["entropy"], batch.weak)
        assert to_entropy.abs().sum() > 0


DIGITS = load_images("digits")


def trained(dtype: torch.dtype = torch.float32, **options: bool) -> Runner:
    """A run around a net that has seen a few digits: its predictions differ from image to image."""
    torch.manual_seed(0)
    net = make_net("wrn-10-1", 10, 1)
    set_mode(net, "train")
    preprocessing = Preprocessing(1, 8, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for t in range(20):
        shown = slice(32 * t, 32 * t + 32)
        loss = functional.cross_entropy(net(preprocessing(DIGITS.x[shown])), DIGITS.y[shown])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.to(dtype)
    return Runner(net, Average(net, 0.9), preprocessing, None, torch.tensor(0.5), torch.tensor(5), **options)


def shown(k: int = 1) -> Batch:
    u = DIGITS.x[-64:]
    return Batch(DIGITS.x[:4], DIGITS.y[:4], torch.arange(64), u[None], u[None].repeat(k, 1, 1, 1, 1))


def change(method: VAT, run: Runner, batch: Batch, seed: int = 1) -> Tensor:
    """What the climb adds to the images, from the same beginnings in any precision."""
    torch.manual_seed(seed)
    starts = iter([torch.randn(64, 1, 8, 8) for _ in batch.strong])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "noise", lambda images: next(starts).to(images.dtype))
        return method.prepare(run, batch).strong - run.pixels(batch.weak[0])


def raised(run: Runner, batch: Batch, moved: Tensor) -> float:
    """The mean KL(f(x) || f(x + r)). Oracle: torch's."""
    images = run.pixels(batch.weak[0])
    with torch.no_grad():
        (before,), (after,) = run.probe(images), run.probe(images + moved)
    before, after = before.log_softmax(-1), after.log_softmax(-1)
    return functional.kl_div(after, before, reduction="batchmean", log_target=True).item()


def cosine(one: Tensor, other: Tensor) -> float:
    return functional.cosine_similarity(one.double().flatten(2), other.double().flatten(2), dim=-1).mean().item()


def test_the_settings_are_those_of_realistic_evaluation():
    method = VAT()
    assert (method.radius, method.weight, method.entropy, method.climbs, method.ball) == (6.0, 0.3, 0.06, 1, "l2")


@pytest.mark.parametrize("radius", [0.5, 6.0])
def test_the_found_direction_beats_random_ones_of_the_same_length_in_float32(radius):
    run, batch = trained(), shown()
    found = change(VAT(radius=radius), run, batch)
    assert found.dtype == torch.float32
    lengths = found.flatten(2).norm(dim=-1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, radius))
    random = []
    for _ in range(20):
        r = torch.randn(64, 64)
        random.append(raised(run, batch, (radius * r / r.norm(dim=1, keepdim=True)).view(64, 1, 8, 8)))
    assert raised(run, batch, found[0]) > 3 * max(random)


def test_a_step_of_1e_6_drowns_in_float32_and_ours_does_not():
    """Oracle: the same climb in float64."""
    run, exact, batch = trained(), trained(torch.float64), shown()
    ours, drowned = VAT(), VAT(step=1e-6)
    assert cosine(change(ours, run, batch), change(ours, exact, batch)) > 0.999
    assert cosine(change(drowned, run, batch), change(drowned, exact, batch)) < 0.8


def test_training_in_bfloat16_leaves_the_climb_its_digits():
    run, mixed, batch = trained(), trained(bf16=True), shown()
    assert cosine(change(VAT(), run, batch), change(VAT(), mixed, batch)) > 0.999


def test_more_climbs_raise_the_loss_further():
    run, batch = trained(), shown()
    one, four = (raised(run, batch, change(VAT(radius=0.5, climbs=n), run, batch)[0]) for n in (1, 4))
    assert four > 1.05 * one


def test_within_the_l_inf_ball_every_climb_raises_the_loss():
    run, batch = trained(), shown()
    found = []
    for climbs in (1, 2, 4):
        moved = change(VAT(ball="linf", radius=0.1, climbs=climbs), run, batch)[0]
        assert moved.abs().max().item() <= 0.1 + 1e-6
        assert moved.abs().mean() > 0.05
        found.append(raised(run, batch, moved))
    corner = raised(run, batch, 0.1 * torch.randn(64, 1, 8, 8).sign())
    assert corner * 3 < found[0] < found[1] < found[2]


def test_every_restart_is_another_and_the_worst_is_worse_than_one():
    run, batch = trained(), shown(3)
    moved = change(VAT(k=3), run, batch)
    assert not torch.allclose(moved[0], moved[1])
    assert not torch.allclose(moved[1], moved[2])
    worst = VAT(k=3, over="worst", strategy="joint").losses(run, batch).seen
    assert worst.unlabeled_loss > worst.per_view.mean()


def test_the_climb_leaves_the_running_statistics_and_the_gradients_alone():
    run, batch = trained(), shown()
    net = run._net
    net.zero_grad()
    before = [b.clone() for b in net.buffers()]
    prepared = VAT(climbs=2).prepare(run, batch)
    assert all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))
    assert all(p.grad is None for p in net.parameters())
    assert not prepared.strong.requires_grad


def test_refusals():
    for name, value in {"radius": 0.0, "step": math.inf, "climbs": 0, "entropy": -1.0}.items():
        with pytest.raises(UsageError, match=f"{name} = "):
            VAT(**{name: value})

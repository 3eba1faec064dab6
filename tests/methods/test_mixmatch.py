"""MixMatch by hand, and what public code gets wrong: the weight of each image, on which side it lies, BatchNorm."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from contract.world import make_batch as make_real_batch
from contract.world import make_world

from maxmatch.errors import UsageError
from maxmatch.methods.base import Mix
from maxmatch.methods.mixmatch import MixMatch
from maxmatch.train.fit import begin
from maxmatch.train.recipe import resolve
from methods.pictures import (
    VIEWS,
    Table,
    X,
    Y,
    between,
    chance,
    cross_entropy,
    images,
    log_odds,
    make_batch,
    mean,
    sharper,
)

# Of all eight: two labelled, three and three views. The weights lie on both sides of 1/2.
PARTNERS = (5, 3, 0, 7, 1, 2, 4, 6)
WEIGHTS = (0.9, 0.2, 0.7, 0.45, 0.6, 0.05, 0.8, 0.35)
FIVE = (4, 2, 0, 1, 3)  # partners where there is one view


def by_hand(k: int) -> tuple[float, list[list[float]]]:
    """The supervised loss and the loss of each mixed view (K, B)."""
    partners = PARTNERS if k == 2 else FIVE
    guess = [sharper(mean([view[image] for view in VIEWS[:k]])) for image in range(3)]
    odds = [log_odds(p) for p in (*X, *(p for view in VIEWS[:k] for p in view))]
    taught = [*map(float, Y), *guess * k]
    losses = []
    for image, partner in enumerate(partners):
        weight = max(WEIGHTS[image], 1 - WEIGHTS[image])
        q = chance(between(odds[image], odds[partner], weight))
        t = between(taught[image], taught[partner], weight)
        losses.append(cross_entropy(q, t) if image < 2 else (q - t) ** 2)
    return mean(losses[:2]), [losses[2 + 3 * view : 5 + 3 * view] for view in range(k)]


def case(k: int):
    return make_batch(k, PARTNERS if k == 2 else FIVE, WEIGHTS)


@pytest.mark.parametrize(
    ("k", "over", "strategy"),
    [(1, "mean", "joint"), (2, "mean", "joint"), (1, "worst", "joint"), (2, "worst", "joint"), (2, "worst", "select")],
)
def test_both_losses_by_hand(k, over, strategy):
    supervised, per_view = by_hand(k)
    losses = MixMatch(k=k, over=over, strategy=strategy, weight=10).losses(Table(), case(k))
    reduce = max if over == "worst" else mean
    unlabeled = mean([reduce([view[image] for view in per_view]) for image in range(3)])
    assert losses.terms["supervised"].item() == pytest.approx(supervised)
    assert losses.terms["unlabeled"].item() == pytest.approx(10 * unlabeled)
    torch.testing.assert_close(losses.seen.per_view, torch.tensor(per_view, dtype=torch.float64))
    if over == "worst" and k == 2:
        assert len(set(losses.seen.winner.tolist())) == 2


def test_the_weight_rises_over_the_first_64th():
    supervised, _ = by_hand(2)
    terms = [MixMatch().losses(Table(progress), case(2)).terms for progress in (0, 1 / 128, 1 / 64, 0.5)]
    assert [t["supervised"].item() for t in terms] == pytest.approx([supervised] * 4)
    full = terms[-1]["unlabeled"].item()
    assert [t["unlabeled"].item() for t in terms] == pytest.approx([0, full / 2, full, full])
    assert full == pytest.approx(75 * mean([v for view in by_hand(2)[1] for v in view]))


def test_every_image_has_a_weight_of_its_own_and_stays_nearer_to_itself():
    """One weight a batch, or weights below 1/2, would fail here."""
    batch = case(2)
    prepared = MixMatch().prepare(Table(), batch)
    before = torch.cat([batch.x, batch.strong.flatten(0, 1)])[:, 1, 0, 0]
    after = torch.cat([prepared.x, prepared.strong.flatten(0, 1)])[:, 1, 0, 0]
    partner = before[list(PARTNERS)]
    found = (after - partner) / (before - partner)
    assert found.tolist() == pytest.approx([0.9, 0.8, 0.7, 0.55, 0.6, 0.95, 0.8, 0.65])


def test_a_step_s_weights_differ_from_image_to_image(tiny, tmp_path):
    training = begin(resolve(tiny("mixmatch"), device="cpu", threads=1), tmp_path / "a", quiet=True)
    training.step.rows.load(0)
    batch, _ = training.step.batches(training.step.rows.row, 2)
    assert len(batch.mix.weight) == len(batch.mix.order) == 8 + 2 * 16
    assert batch.mix.weight.unique().numel() > 35
    assert sorted(batch.mix.order.argsort().tolist()) == list(range(40))


def test_all_views_of_an_image_are_taught_one_guess():
    batch = replace(case(2), mix=Mix(case(2).mix.order, torch.ones(8, dtype=torch.float64)))  # nothing is mixed
    prepared = MixMatch().prepare(Table(), batch)
    guess = [sharper((a + b) / 2) for a, b in zip(*VIEWS, strict=True)]
    assert prepared.target[:, :, 1].tolist() == [pytest.approx(guess)] * 2
    assert torch.equal(prepared.strong, batch.strong)
    assert prepared.y.tolist() == [[0, 1], [1, 0]]
    temperate = MixMatch(temperature=1.0).prepare(Table(), batch)
    assert temperate.target[0, :, 1].tolist() == pytest.approx([mean([a, b]) for a, b in zip(*VIEWS, strict=True)])


def test_no_gradient_reaches_the_guess():
    batch = case(2)
    batch = replace(batch, strong=batch.strong.clone().requires_grad_())
    assert not MixMatch().prepare(Table(), batch).target.requires_grad


@pytest.mark.parametrize("strategy", ["joint", "select"])
def test_unlabelled_images_leave_the_running_statistics_alone(strategy):
    """Oracle: a pass over the labelled images alone. Unmixed, the unlabelled ones may be anything."""
    base = make_real_batch()
    base = replace(base, mix=base.mix._replace(weight=torch.ones_like(base.mix.weight)))
    oracle, oracle_run = make_world("wrn")
    oracle_run.net(base.x)
    for batch in (base, replace(base, strong=5 * base.strong + 1)):
        net, run = make_world("wrn")
        MixMatch(k=3, over="worst", strategy=strategy).losses(run, batch)
        for ours, theirs in zip(net.buffers(), oracle.buffers(), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_refusals():
    for options, message in (
        ({"alpha": 0}, "alpha = 0"),
        ({"temperature": 0}, "temperature = 0"),
        ({"target_gradient": True}, "no gradient"),
    ):
        with pytest.raises(UsageError, match=message):
            MixMatch(**options)


def test_the_table_says_what_an_image_shows():
    assert torch.softmax(images(0.25, 0.9).flatten(1), -1)[:, 1].tolist() == pytest.approx([0.25, 0.9])


def test_the_guess_is_aligned_before_it_is_sharpened():
    """Class 1 is predicted three times as often as it should be; remembered is the prediction itself."""
    method = MixMatch(align=True)
    run = Table(state=method.state(2, 3).double())
    run.state["alignment"].predicted.copy_(torch.tensor([0.25, 0.75]))
    batch = replace(case(2), mix=Mix(case(2).mix.order, torch.ones(8, dtype=torch.float64)))  # nothing is mixed
    prepared = method.prepare(run, batch)
    p = [mean([a, b]) for a, b in zip(*VIEWS, strict=True)]
    guess = [sharper(q / (q + 3 * (1 - q))) for q in p]
    assert prepared.target[0, :, 1].tolist() == pytest.approx(guess, rel=1e-4)
    assert run.state["alignment"].predicted[1].item() == pytest.approx(0.75 + (mean(p) - 0.75) / 128)

"""Pi-Model by hand. With two classes the mean squared error of the probabilities is (p - q)^2 of either class."""

from __future__ import annotations

import pytest
import torch

from maxmatch.errors import UsageError
from maxmatch.methods.base import Needs
from maxmatch.methods.pi_model import PiModel
from methods.table import STRONG, WEAK, Table, make_batch

ONE_VIEW = 10 * ((0.99 - 0.8) ** 2 + (0.02 - 0.3) ** 2 + (0.6 - 0.1) ** 2) / 3
WORST_OF_THREE = 10 * ((0.99 - 0.45) ** 2 + (0.02 - 0.6) ** 2 + (0.6 - 0.1) ** 2) / 3


@pytest.mark.parametrize("strategy", ["joint", "select"])
@pytest.mark.parametrize(("k", "by_hand"), [(1, ONE_VIEW), (3, WORST_OF_THREE)])
def test_by_hand(k, by_hand, strategy):
    losses = PiModel(k=k, over="worst", strategy=strategy).losses(Table(), make_batch(k))
    assert losses.terms["unlabeled"].item() == pytest.approx(by_hand)


@pytest.mark.parametrize("strategy", ["joint", "select"])
@pytest.mark.parametrize("both", [False, True])
def test_whether_the_weak_side_learns_is_a_field(both, strategy):
    batch = make_batch(1)
    batch.weak.requires_grad_()
    batch.strong.requires_grad_()
    method = PiModel(over="worst", strategy=strategy, target_gradient=both)
    method.losses(Table(), batch).terms["unlabeled"].backward()
    # d p / d logit of class 1 = p (1 - p)
    to_weak = [10 / 3 * 2 * (p - q) * p * (1 - p) for p, q in zip(WEAK, STRONG[0], strict=True)]
    to_strong = [10 / 3 * 2 * (q - p) * q * (1 - q) for p, q in zip(WEAK, STRONG[0], strict=True)]
    assert batch.strong.grad[0, :, 1].tolist() == pytest.approx(to_strong)
    if both:
        assert batch.weak.grad[0, :, 1].tolist() == pytest.approx(to_weak)
    else:
        assert batch.weak.grad is None


def test_the_weight_rises_over_the_first_two_fifths():
    for progress, share in ((0.0, 0.0), (0.1, 0.25), (0.4, 1.0), (0.9, 1.0)):
        losses = PiModel().losses(Table(progress=progress), make_batch(1))
        assert losses.terms["unlabeled"].item() == pytest.approx(share * ONE_VIEW)
        assert losses.seen.unlabeled_loss.item() == pytest.approx(ONE_VIEW / 10)


def test_it_asks_for_two_different_weak_views():
    assert PiModel().needs == Needs(weak=1, strong=1, variants="weak")


def test_noise_makes_two_passes_over_one_view_differ():
    batch = make_batch(1, strong=[WEAK])
    assert PiModel().losses(Table(), batch).terms["unlabeled"].item() == 0
    torch.manual_seed(0)
    assert PiModel(noise=0.15).losses(Table(), batch).terms["unlabeled"].item() > 1e-4


def test_noise_is_on_every_image_and_as_large_as_is_asked():
    batch, run = make_batch(3), Table()
    run.noise = torch.ones_like
    prepared = PiModel(k=3, noise=0.15).prepare(run, batch)
    for name in ("x", "weak", "strong"):
        torch.testing.assert_close(getattr(prepared, name), getattr(batch, name) + 0.15)


def test_bad_values():
    with pytest.raises(UsageError, match="noise = -1"):
        PiModel(noise=-1.0)
    with pytest.raises(UsageError, match="weight = inf"):
        PiModel(weight=float("inf"))

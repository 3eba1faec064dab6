"""Distribution alignment by hand, and as an option of any consistency method."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from maxmatch.methods import METHODS, make_method
from maxmatch.methods.alignment import Alignment
from maxmatch.methods.base import Consistency
from maxmatch.methods.maxmatch import MaxMatch
from maxmatch.methods.pi_model import PiModel
from methods.table import Table, make_batch, random_batch

CONSISTENCY = [name for name in METHODS if isinstance(make_method({"name": name}), Consistency)]


def test_a_class_that_is_predicted_too_often_is_divided_down():
    alignment = Alignment(2).double()
    p = torch.tensor([[0.4, 0.6], [0.5, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(alignment(p), p)
    alignment.predicted.copy_(torch.tensor([0.25, 0.75]))
    alignment.labelled.copy_(torch.tensor([0.4, 0.6]))
    # Ratios .4 / .25 = 1.6 and .6 / .75 = .8.
    expected = [[0.64 / 1.12, 0.48 / 1.12], [0.8 / 1.2, 0.4 / 1.2]]
    np.testing.assert_allclose(alignment(p).numpy(), expected, rtol=1e-5)


def test_both_means_move_by_one_128th_of_the_way():
    alignment = Alignment(2).double()
    p = torch.tensor([[0.1, 0.9], [0.3, 0.7]], dtype=torch.float64)
    predicted, labelled = 0.5, 0.5
    for _ in range(3):
        alignment.update(p, torch.tensor([[0, 1], [0, 1], [1, 0], [0, 1]]), lambda value: value)
        predicted, labelled = predicted + (0.8 - predicted) / 128, labelled + (0.75 - labelled) / 128
    assert alignment.predicted.tolist() == pytest.approx([1 - predicted, predicted])
    assert alignment.labelled.tolist() == pytest.approx([1 - labelled, labelled])


def test_the_mean_is_taken_over_the_ranks():
    alignment = Alignment(2)
    alignment.update(torch.tensor([[0.0, 1.0]]), torch.tensor([[0, 1]]), lambda value: value / 2 + 0.25)
    assert alignment.predicted.tolist() == pytest.approx([0.5 - 0.25 / 128, 0.5 + 0.25 / 128])


def test_a_class_that_is_never_predicted_divides_by_more_than_zero():
    alignment = Alignment(2)
    alignment.predicted.copy_(torch.tensor([0.0, 1.0]))
    assert alignment(torch.tensor([[0.0, 1.0], [0.1, 0.9]])).isfinite().all()


@pytest.mark.parametrize("strategy", ["joint", "select"])
def test_maxmatch_with_alignment_by_hand(strategy):
    """Class 1 is three times as frequent as it should be: .99 becomes .97 and is kept, .6 becomes .33."""
    method = MaxMatch(align=True, strategy=strategy, threshold=0.6)
    run = Table(method)
    run.state["alignment"].predicted.copy_(torch.tensor([0.25, 0.75]))
    losses = method.losses(run, make_batch(3))
    assert losses.seen.target.tolist() == [1, 0, 0]
    by_hand = (-math.log(0.45) - math.log(0.4) - math.log(0.7)) / 3
    assert losses.terms["unlabeled"].item() == pytest.approx(by_hand)


@pytest.mark.parametrize("name", [n for n in CONSISTENCY if n not in ("vat", "ict", "mixmatch", "remixmatch")])
@pytest.mark.parametrize("strategy", ["joint", "select"])
def test_every_consistency_method_takes_it_and_updates_it_once_a_step(name, strategy):
    method = make_method({"name": name, "align": True, "k": 3, "over": "worst", "strategy": strategy})
    run = Table(method, images=6, classes=3)
    alignment = run.state["alignment"]
    calls = []
    original = alignment.update
    alignment.update = lambda *values: calls.append(values) or original(*values)
    for step in range(3):
        losses = method.losses(run, random_batch(step, [0, 1, 2, 3, 4, 5], k=3))
        assert all(term.isfinite() for term in losses.terms.values())
        assert len(calls) == step + 1
        assert alignment.predicted.sum().item() == pytest.approx(1)


def test_a_target_that_learns_is_aligned_alike_in_both_strategies():
    found = []
    for strategy in ("joint", "select"):
        method = PiModel(k=3, over="worst", strategy=strategy, align=True, target_gradient=True)
        run, batch = Table(method), make_batch(3)
        batch.weak.requires_grad_()
        method.losses(run, batch).terms["unlabeled"].backward()
        found.append((batch.weak.grad, run.state["alignment"].predicted))
    torch.testing.assert_close(*found)

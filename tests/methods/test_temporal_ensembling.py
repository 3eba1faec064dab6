"""Temporal Ensembling by hand, and several steps of its memory against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from maxmatch.errors import UsageError
from maxmatch.methods.base import Needs
from maxmatch.methods.temporal_ensembling import TemporalEnsembling
from methods.table import STRONG, Table, make_batch, random_batch


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("strategy", ["joint", "select"])
def test_by_hand(strategy):
    """The first visit has no target; the second is taught the first, the third their bias-corrected average."""
    method = TemporalEnsembling(over="worst", strategy=strategy)
    run = Table(method)
    first, second, third = STRONG
    found = [method.losses(run, make_batch(1, strong=[view])).terms["unlabeled"].item() for view in STRONG]
    average = [(0.6 * 0.4 * a + 0.4 * b) / (1 - 0.6**2) for a, b in zip(first, second, strict=True)]
    assert found[0] == 0
    assert found[1] == pytest.approx(30 * sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) / 3)
    assert found[2] == pytest.approx(30 * sum((a - b) ** 2 for a, b in zip(average, third, strict=True)) / 3)


@pytest.mark.parametrize("strategy", ["joint", "select"])
def test_the_worst_of_three_views_by_hand(strategy):
    method = TemporalEnsembling(k=3, over="worst", strategy=strategy)
    run = Table(method)
    method.losses(run, make_batch(3))
    mean = [sum(view[i] for view in STRONG) / 3 for i in range(3)]  # what is remembered of an image
    worst = [max((view[i] - mean[i]) ** 2 for view in STRONG) for i in range(3)]
    assert method.losses(run, make_batch(3)).terms["unlabeled"].item() == pytest.approx(30 * sum(worst) / 3)


@pytest.mark.parametrize("strategy", ["joint", "select"])
def test_which_view_of_an_image_never_seen_is_picked_is_no_matter_of_rounding(strategy):
    """It teaches nothing, but is trained on by `select`; from the mean of two views both are as far."""
    method = TemporalEnsembling(k=2, over="worst", strategy=strategy)
    for seed in range(5):
        losses = method.losses(Table(method, images=8, classes=3), random_batch(seed, range(8), k=2))
        assert not losses.seen.keep.any()
        assert losses.seen.winner.tolist() == [1] * 8
        assert losses.terms["unlabeled"] == 0


def test_without_bias_correction_the_second_visit_would_be_taught_four_tenths():
    method = TemporalEnsembling()
    run = Table(method)
    method.losses(run, make_batch(1))
    target = method.losses(run, make_batch(1)).seen.target
    assert target[:, 1].tolist() == pytest.approx(STRONG[0])
    assert run.state["past"].average[:, 1].tolist() == pytest.approx([0.64 * p for p in STRONG[0]])


def test_an_image_is_known_by_its_index_not_by_its_place():
    method = TemporalEnsembling()
    run = Table(method, images=9)
    method.losses(run, make_batch(1, index=[7, 2, 4]))
    seen = method.losses(run, make_batch(1, index=[4, 7, 0])).seen
    assert seen.keep.tolist() == [True, True, False]
    assert seen.target[:2, 1].tolist() == pytest.approx([STRONG[0][2], STRONG[0][0]])


def test_several_steps_against_numpy():
    method = TemporalEnsembling(k=2, momentum=0.7)
    run = Table(method, images=6, classes=3)
    average, visits = np.zeros((6, 3)), np.zeros(6)
    for step, index in enumerate([[0, 1, 2, 3], [3, 3, 1, 5], [5, 0, 3, 3], [2, 1, 0, 5], [3, 5, 5, 5]]):
        batch = random_batch(step, index, k=2)
        p = softmax(batch.strong.numpy())
        expected = 0.0
        for place, i in enumerate(index):
            if visits[i]:
                target = average[i] / (1 - 0.7 ** visits[i])
                expected += np.mean([np.mean((view[place] - target) ** 2) for view in p]) / len(index)
        for i in set(index):
            now = np.mean([p[:, place].mean(0) for place, j in enumerate(index) if j == i], axis=0)
            average[i] = 0.7 * average[i] + 0.3 * now
            visits[i] += 1
        losses = method.losses(run, batch)
        assert losses.terms["unlabeled"].item() == pytest.approx(30 * expected)
        np.testing.assert_allclose(run.state["past"].average.numpy(), average, atol=1e-12)
        assert run.state["past"].visits.tolist() == visits.tolist()


def test_two_ranks_remember_what_one_process_would():
    method = TemporalEnsembling()
    whole, half, gathered = Table(method, images=5), Table(method, images=5), []
    whole.gather = lambda value: gathered.append(value) or value
    half.gather = lambda value: gathered.pop(0)
    method.losses(whole, make_batch(1, index=[4, 1, 4]))
    method.losses(half, make_batch(1, strong=[STRONG[0][:2]], weak=(0.5, 0.5), index=[4, 1]))
    assert torch.equal(whole.state["past"].average, half.state["past"].average)


@pytest.mark.parametrize("k", [1, 3])
def test_it_can_be_aligned_from_the_first_step_on(k):
    method = TemporalEnsembling(k=k, align=True)
    run = Table(method, images=4)
    assert method.losses(run, make_batch(k)).terms["unlabeled"].item() == 0
    later = method.losses(run, make_batch(k, index=[0, 1, 3]))
    assert later.terms["unlabeled"].isfinite()
    assert later.seen.keep.tolist() == [True, True, False]


def test_the_weight_rises_over_the_first_two_fifths():
    found = []
    for progress in (0.0, 0.2, 0.4, 1.0):
        method = TemporalEnsembling()
        run = Table(method, progress=progress)
        for view in STRONG[:2]:
            term = method.losses(run, make_batch(1, strong=[view])).terms["unlabeled"].item()
        found.append(term)
    assert found == pytest.approx([0, found[3] / 2, found[3], found[3]])
    assert found[3] > 0


def test_it_asks_for_its_variants_and_no_other_view():
    assert TemporalEnsembling(k=2).needs == Needs(weak=0, strong=2, variants="weak")


def test_bad_values():
    with pytest.raises(UsageError, match="momentum = 1:"):
        TemporalEnsembling(momentum=1.0)
    with pytest.raises(UsageError, match="target_gradient = true"):
        TemporalEnsembling(target_gradient=True)

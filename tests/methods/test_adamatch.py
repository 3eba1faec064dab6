"""AdaMatch by hand: aligned to the predictions on labelled images, kept relative to their confidence."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from maxmatch.errors import UsageError
from maxmatch.methods.adamatch import AdaMatch
from methods.table import WEAK, Table, make_batch, random_batch


@pytest.mark.parametrize("strategy", ["joint", "select"])
@pytest.mark.parametrize(("k", "per_image"), [(1, (0.8, 0.7, 0.1)), (3, (0.45, 0.4, 0.1))])
def test_by_hand(k, per_image, strategy):
    """The labelled images, .25 and .5, have the mean confidence .625: the third image's .6 is .96 of it."""
    for threshold, kept in ((0.9, 3), (0.97, 2)):
        method = AdaMatch(k=k, over="worst", strategy=strategy, threshold=threshold)
        losses = method.losses(Table(method), make_batch(k))
        by_hand = sum(-math.log(p) for p in per_image[:kept]) / 3
        assert losses.terms["unlabeled"].item() == pytest.approx(by_hand)


@pytest.mark.parametrize("strategy", ["joint", "select"])
def test_alignment_comes_before_the_label_and_the_threshold(strategy):
    method = AdaMatch(over="worst", strategy=strategy)
    run = Table(method)
    run.state["alignment"].predicted.copy_(torch.tensor([0.2, 0.8]))
    # Class 0 is 4 times too rare: .6 becomes .6 / (.6 + 4 * .4) = .27, that is label 0 with confidence .73, and .98
    # becomes .98 / (.98 + 4 * .02) = .925. The threshold is .9 * (.75 + .5) / 2 = .5625, of labelled images as they are.
    seen = method.losses(run, make_batch(1, weak=(0.98, 0.75, 0.6))).seen
    assert seen.target.tolist() == [1, 0, 0]  # .75 becomes .43
    assert seen.keep.tolist() == [True, True, True]
    run.state["alignment"].predicted.copy_(torch.tensor([0.2, 0.8]))
    assert AdaMatch(strategy=strategy, over="worst").losses(
        run, make_batch(1, weak=(0.8, 0.75, 0.77))
    ).seen.keep.tolist() == [
        False,  # .5
        True,  # .43
        False,  # .456, that is .544
    ]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("strategy", ["joint", "select"])
def test_several_steps_against_numpy(strategy):
    method = AdaMatch(over="worst", strategy=strategy)
    run = Table(method, classes=3)
    predicted, labelled = np.full(3, 1 / 3), np.full(3, 1 / 3)
    for step in range(6):
        batch = random_batch(step, list(range(9)))
        p, q, x = (softmax(views.numpy()) for views in (batch.weak[0], batch.strong[0], batch.x))
        aligned = p * labelled / predicted
        aligned /= aligned.sum(-1, keepdims=True)
        mask = aligned.max(-1) >= 0.9 * x.max(-1).mean()
        per_image = -np.log(q[np.arange(9), aligned.argmax(-1)])
        losses = method.losses(run, batch)
        assert losses.terms["unlabeled"].item() == pytest.approx((mask * per_image).mean())
        predicted += (p.mean(0) - predicted) / 128
        labelled += (x.mean(0) - labelled) / 128  # their predictions, not their labels
        assert run.state["alignment"].predicted.tolist() == pytest.approx(predicted.tolist())
        assert run.state["alignment"].labelled.tolist() == pytest.approx(labelled.tolist())


def test_the_threshold_is_relative_to_the_labelled_images_of_all_ranks():
    method = AdaMatch(align=False)
    run = Table(method)
    assert method.losses(run, make_batch(1)).seen.keep.tolist() == [True, True, True]  # .9 * .625 is below .6
    run.mean = lambda mine: (mine + 0.9) / 2  # those of another rank are surer
    assert method.losses(run, make_batch(1)).seen.keep.tolist() == [True, True, False]


def test_without_alignment_only_the_threshold_is_left():
    method = AdaMatch(align=False)
    assert method.state(2, 3) is None
    losses = method.losses(Table(method), make_batch(1))
    assert losses.seen.target.tolist() == [round(p) for p in WEAK]


def test_bad_values():
    with pytest.raises(UsageError, match=r"threshold = 1\.1"):
        AdaMatch(threshold=1.1)
    with pytest.raises(UsageError, match="target_gradient = true"):
        AdaMatch(target_gradient=True)


def test_an_image_as_confident_as_the_labelled_ones_are_is_kept():
    method = AdaMatch(align=False, threshold=1.0)
    seen = method.losses(Table(method), make_batch(1, weak=(0.5, 0.5, 0.6), labelled=(0.5, 0.5))).seen
    assert seen.keep.tolist() == [True, True, True]

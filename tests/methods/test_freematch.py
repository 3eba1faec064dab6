"""FreeMatch by hand: self-adaptive thresholds and the fairness term; several steps against NumPy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from maxmatch.errors import UsageError
from maxmatch.methods.freematch import FreeMatch
from methods.table import Table, make_batch, random_batch

# Momentum .9, first step; weak views .99, .02, .6 have labels 1, 0, 1 and confidences .99, .98, .6.
TAU = 0.9 * 0.5 + 0.1 * (0.99 + 0.98 + 0.6) / 3
PREDICTED = 0.9 * 0.5 + 0.1 * (0.99 + 0.02 + 0.6) / 3  # of class 1
LABELS = 0.9 * 0.5 + 0.1 * 2 / 3


def share(one, zero):
    return one / (one + zero)


def fairness_by_hand(trained, predicted_as_one):
    """Three views that are kept, of which some are predicted as class 1: sum over the classes of wanted log found."""
    wanted = share(PREDICTED / LABELS, (1 - PREDICTED) / (1 - LABELS))
    mean, often = sum(trained) / 3, predicted_as_one / 3
    found = share(mean / often, (1 - mean) / (1 - often))
    return wanted * math.log(found) + (1 - wanted) * math.log(1 - found)


@pytest.mark.parametrize("strategy", ["joint", "select"])
@pytest.mark.parametrize(
    ("k", "per_image", "trained"), [(1, (0.8, 0.7, 0.1), (0.8, 0.3, 0.1)), (3, (0.45, 0.4, 0.1), (0.45, 0.6, 0.1))]
)
def test_by_hand(k, per_image, trained, strategy):
    """In both strategies the fairness of the worst case looks at the views that it trains on."""
    method = FreeMatch(k=k, over="worst", strategy=strategy, momentum=0.9, fairness=0.2)
    run = Table(method)
    losses = method.losses(run, make_batch(k))
    assert losses.seen.keep.all()
    assert losses.terms["unlabeled"].item() == pytest.approx(sum(-math.log(p) for p in per_image) / 3)
    assert losses.terms["fairness"].item() == pytest.approx(0.2 * fairness_by_hand(trained, 1))
    progress = run.state["progress"]
    assert progress.confidence.item() == pytest.approx(TAU)
    assert progress.predicted.tolist() == pytest.approx([1 - PREDICTED, PREDICTED])
    assert progress.labels.tolist() == pytest.approx([1 - LABELS, LABELS])


def test_the_threshold_of_a_class_follows_the_global_and_the_local_one():
    method = FreeMatch(momentum=0.0)
    seen = method.losses(Table(method), make_batch(1, weak=(0.9, 0.8, 0.4))).seen
    # tau = (.9 + .8 + .6) / 3 = .767; p~ = (.9 / 3, 2.1 / 3): class 0 has the threshold .767 * 3 / 7 = .329.
    assert seen.keep.tolist() == [True, True, True]
    seen = method.losses(Table(method), make_batch(1, weak=(0.9, 0.7, 0.1))).seen
    # tau = .833; p~ = (1.3 / 3, 1.7 / 3): the thresholds are .637 and .833.
    assert seen.keep.tolist() == [True, False, True]


def test_fairness_is_minus_a_cross_entropy_so_it_grows_as_predictions_even_out():
    """The paper minimises -H(p~ / h~, p_ / h_)."""
    method = FreeMatch(fairness=1.0)
    even = method.losses(Table(method), make_batch(1, strong=[(0.6, 0.4, 0.4)])).terms["fairness"].item()
    uneven = method.losses(Table(method), make_batch(1, strong=[(0.99, 0.4, 0.4)])).terms["fairness"].item()
    assert uneven < even < 0


def test_fairness_has_the_slope_of_its_values_in_every_view():
    method, batch = FreeMatch(k=3, fairness=1.0), make_batch(3)

    def fairness(strong):
        return method.losses(Table(method), replace(batch, strong=strong)).terms["fairness"]

    strong = batch.strong.clone().requires_grad_()
    assert torch.autograd.gradcheck(fairness, strong)
    (slope,) = torch.autograd.grad(fairness(strong), strong)
    assert (slope != 0).all()


def test_fairness_looks_at_kept_images_alone():
    method = FreeMatch(momentum=0.0, fairness=1.0)
    losses = method.losses(Table(method), make_batch(1, weak=(0.9, 0.7, 0.1), strong=[(0.8, 0.9, 0.3)]))
    wanted = share((1.7 / 3) / (2 / 3), (1.3 / 3) / (1 / 3))
    found = share(0.55 / 0.5, 0.45 / 0.5)  # the means of (.8, .3): the second image is masked
    by_hand = wanted * math.log(found) + (1 - wanted) * math.log(1 - found)
    assert losses.terms["fairness"].item() == pytest.approx(by_hand)


def test_fairness_is_zero_where_nothing_is_kept():
    method = FreeMatch()
    run = Table(method)
    run.state["progress"].confidence.fill_(1.0)
    losses = method.losses(run, make_batch(1, weak=(0.6, 0.4, 0.55)))
    assert not losses.seen.keep.any()
    assert losses.terms["fairness"].item() == losses.terms["unlabeled"].item() == 0


def test_a_label_that_is_never_predicted_has_no_share():
    """As in the paper's code: 1 / 0 is taken for 0, and the logarithm has 1e-12 added."""
    method = FreeMatch(fairness=1.0)
    run = Table(method)
    losses = method.losses(run, make_batch(1, strong=[(0.8, 0.9, 0.7)]))
    zero, one = (run.state["progress"].predicted / run.state["progress"].labels).tolist()
    assert losses.terms["fairness"].item() == pytest.approx((1 - share(one, zero)) * math.log(1e-12))
    run.state["progress"].labels[0] = 0.0
    assert method.losses(run, make_batch(1, weak=(0.9, 0.8, 0.9))).terms["fairness"].isfinite()


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_several_steps_against_numpy():
    momentum, classes = 0.8, 3
    method = FreeMatch(momentum=momentum)
    run = Table(method, classes=classes)
    tau, predicted, labels = 1 / 3, np.full(3, 1 / 3), np.full(3, 1 / 3)
    masks = []
    for step in range(10):
        batch = random_batch(step, list(range(9)))
        p, q = softmax(batch.weak[0].numpy()), softmax(batch.strong[0].numpy())
        tau = momentum * tau + (1 - momentum) * p.max(-1).mean()
        predicted = momentum * predicted + (1 - momentum) * p.mean(0)
        labels = momentum * labels + (1 - momentum) * np.bincount(p.argmax(-1), minlength=classes) / 9
        mask = p.max(-1) >= (tau * predicted / predicted.max())[p.argmax(-1)]
        often = np.bincount(q[mask].argmax(-1), minlength=classes) / mask.sum()
        found = np.divide(q[mask].mean(0), often, out=np.zeros(classes), where=often > 0)
        wanted = predicted / labels
        fairness = (wanted / wanted.sum() * np.log(found / found.sum() + 1e-12)).sum()
        losses = method.losses(run, batch)
        assert losses.seen.keep.tolist() == mask.tolist()
        assert losses.terms["fairness"].item() == pytest.approx(0.05 * fairness)
        per_image = -np.log(q[np.arange(9), p.argmax(-1)])
        assert losses.terms["unlabeled"].item() == pytest.approx((mask * per_image).mean())
        masks += mask.tolist()
    assert {True, False} == set(masks)


def test_bad_values():
    with pytest.raises(UsageError, match=r"momentum = 1\.5"):
        FreeMatch(momentum=1.5)
    with pytest.raises(UsageError, match="fairness = -1"):
        FreeMatch(fairness=-1.0)
    with pytest.raises(UsageError, match="target_gradient = true"):
        FreeMatch(target_gradient=True)


@pytest.mark.parametrize("chance", [0.5, 1.0])
def test_an_image_at_its_threshold_is_kept(chance):
    """Alike images, momentum 0: tau is their confidence, and their class the one that is predicted most."""
    method = FreeMatch(momentum=0.0)
    seen = method.losses(Table(method), make_batch(1, weak=(chance,) * 3)).seen
    assert seen.keep.tolist() == [True] * 3

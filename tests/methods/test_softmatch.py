"""SoftMatch by hand: a truncated Gaussian of the confidence; several steps against NumPy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from maxmatch.errors import UsageError
from maxmatch.methods.softmatch import SoftMatch
from methods.table import WEAK, Table, make_batch, random_batch


def weights_by_hand(momentum=0.9, n_sigma=2, uniform=True):
    """The first step, from the mean 1/2, the variance 1 and a uniform prediction."""
    predicted = momentum * 0.5 + (1 - momentum) * sum(WEAK) / 3 if uniform else 0.5
    fair = [p / predicted / (p / predicted + (1 - p) / (1 - predicted)) for p in WEAK]
    confidence = [max(p, 1 - p) for p in fair]
    mean = sum(confidence) / 3
    variance = sum((c - mean) ** 2 for c in confidence) / 2
    mu, sigma2 = momentum * 0.5 + (1 - momentum) * mean, momentum * 1 + (1 - momentum) * variance
    return [math.exp(-(min(c - mu, 0) ** 2) / (2 * sigma2 / n_sigma**2)) for c in confidence]


@pytest.mark.parametrize("strategy", ["joint", "select"])
@pytest.mark.parametrize(("k", "per_image"), [(1, (0.8, 0.7, 0.1)), (3, (0.45, 0.4, 0.1))])
@pytest.mark.parametrize("momentum", [0.9, 0.2])
def test_by_hand(k, per_image, strategy, momentum):
    method = SoftMatch(k=k, over="worst", strategy=strategy, momentum=momentum)
    weights = weights_by_hand(momentum)
    losses = method.losses(Table(method), make_batch(k))
    assert losses.seen.keep.tolist() == pytest.approx(weights)
    by_hand = sum(-w * math.log(p) for w, p in zip(weights, per_image, strict=True)) / 3
    assert losses.terms["unlabeled"].item() == pytest.approx(by_hand)


def test_above_the_mean_an_image_counts_fully_and_below_it_less():
    for n_sigma in (1.0, 3.0):
        method = SoftMatch(momentum=0.2, n_sigma=n_sigma, uniform=False)
        keep = method.losses(Table(method), make_batch(1)).seen.keep.tolist()
        assert keep == pytest.approx(weights_by_hand(0.2, n_sigma, uniform=False))
        assert keep[:2] == [1.0, 1.0]
        assert keep[2] < 0.95


def test_one_image_has_no_spread_but_counts():
    method = SoftMatch(momentum=0.9)
    batch = make_batch(1)
    run = Table(method)
    alone = replace(batch, index=batch.index[:1], weak=batch.weak[:, :1], strong=batch.strong[:, :1])
    assert method.losses(run, alone).seen.keep.isfinite().all()
    assert run.state["confidence"].variance.item() == pytest.approx(0.9)


def test_uniform_alignment_weighs_and_does_not_relabel():
    method = SoftMatch(momentum=0.999)
    run = Table(method)
    run.state["confidence"].predicted.copy_(torch.tensor([0.2, 0.8]))
    losses = method.losses(run, make_batch(1))
    assert losses.seen.target.tolist() == [1, 0, 1]  # aligned, the third, .6, would be .27


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_several_steps_against_numpy():
    momentum = 0.8
    method = SoftMatch(momentum=momentum, n_sigma=3.0)
    run = Table(method, classes=3)
    mu, variance, predicted = 1 / 3, 1.0, np.full(3, 1 / 3)
    for step in range(10):
        batch = random_batch(step, list(range(9)))
        p, q = softmax(batch.weak[0].numpy()), softmax(batch.strong[0].numpy())
        predicted = momentum * predicted + (1 - momentum) * p.mean(0)
        aligned = p / predicted / (p / predicted).sum(-1, keepdims=True)
        confidence = aligned.max(-1)
        mu = momentum * mu + (1 - momentum) * confidence.mean()
        variance = momentum * variance + (1 - momentum) * confidence.var(ddof=1)
        weight = np.where(confidence >= mu, 1.0, np.exp(-((confidence - mu) ** 2) * 9 / (2 * variance)))
        losses = method.losses(run, batch)
        assert losses.seen.keep.tolist() == pytest.approx(weight.tolist(), rel=1e-4)
        per_image = -np.log(q[np.arange(9), p.argmax(-1)])
        assert losses.terms["unlabeled"].item() == pytest.approx((weight * per_image).mean(), rel=1e-4)
    state = run.state["confidence"]
    assert [state.mean.item(), state.variance.item()] == pytest.approx([mu, variance], rel=1e-5)
    assert state.predicted.tolist() == pytest.approx(predicted.tolist())


def test_two_ranks_have_the_variance_of_their_common_batch():
    """The mean of two variances is not the variance of all."""
    method = SoftMatch(momentum=0.5, uniform=False)
    whole, half, gathered = Table(method), Table(method), []
    whole.gather = lambda value: gathered.append(value) or value
    half.gather = lambda value: gathered.pop(0)
    method.losses(whole, make_batch(1, weak=(0.9, 0.8, 0.6, 0.5), strong=[(0.5,) * 4]))
    method.losses(half, make_batch(1, weak=(0.9, 0.8), strong=[(0.5,) * 2]))
    assert half.state["confidence"].variance.item() == whole.state["confidence"].variance.item()
    assert half.state["confidence"].mean.item() == whole.state["confidence"].mean.item()


def test_equal_confidences_all_count():
    method = SoftMatch(momentum=0.0)
    losses = method.losses(Table(method), make_batch(1, weak=(0.9, 0.9, 0.9)))
    assert losses.seen.keep.tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_bad_values():
    with pytest.raises(UsageError, match="momentum = -1"):
        SoftMatch(momentum=-1.0)
    with pytest.raises(UsageError, match="n_sigma = 0:"):
        SoftMatch(n_sigma=0.0)
    with pytest.raises(UsageError, match="target_gradient = true"):
        SoftMatch(target_gradient=True)

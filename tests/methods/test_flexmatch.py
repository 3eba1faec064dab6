"""FlexMatch by hand, and several steps of its thresholds against NumPy."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

from maxmatch.errors import UsageError
from maxmatch.methods.flexmatch import FlexMatch
from methods.table import WEAK, Table, make_batch, random_batch


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("strategy", ["joint", "select"])
def test_by_hand(strategy):
    """Nothing is learned at first: both thresholds are 0. Then each class has one of three images: both are .95."""
    for k, per_image in {1: (0.8, 0.7, 0.1), 3: (0.45, 0.4, 0.1)}.items():
        method = FlexMatch(k=k, over="worst", strategy=strategy)
        run = Table(method)
        one, two, three = (-math.log(p) / 3 for p in per_image)
        assert method.losses(run, make_batch(k)).terms["unlabeled"].item() == pytest.approx(one + two + three)
        assert method.losses(run, make_batch(k)).terms["unlabeled"].item() == pytest.approx(one + two)


@pytest.mark.parametrize(
    ("learned", "thresholds"),
    [
        # Warm-up: 8 of 20 images have no label yet, more than the largest class has.
        ([0] * 7 + [1] * 5 + [-1] * 8, [0.95 * (7 / 8) / (2 - 7 / 8), 0.95 * (5 / 8) / (2 - 5 / 8)]),
        # Later the class that is learned best sets the scale.
        ([0] * 10 + [1] * 8 + [-1] * 2, [0.95, 0.95 * 0.8 / 1.2]),
        ([1] * 20, [0.0, 0.95]),
        ([-1] * 20, [0.0, 0.0]),
    ],
)
def test_a_class_is_kept_from_its_own_threshold_on(learned, thresholds):
    method = FlexMatch()
    run = Table(method, images=20)
    for gap, kept in ((0.001, True), (-0.001, False)):
        run.state["learned"].label.copy_(torch.tensor(learned))
        zero, one = (min(max(threshold + gap, 0.5001), 0.9999) for threshold in thresholds)
        seen = method.losses(run, make_batch(1, weak=(1 - zero, one, 0.5))).seen
        expected = [kept or threshold < 0.5 for threshold in thresholds]
        assert seen.target[:2].tolist() == [0, 1]
        assert seen.keep[:2].tolist() == expected


def test_several_steps_against_numpy():
    threshold, images, classes = 0.7, 7, 3
    method = FlexMatch(threshold=threshold)
    run = Table(method, images=images, classes=classes)
    learned = [-1] * images
    masks = []
    for step in range(12):
        index = np.random.default_rng(step).integers(0, images, 5).tolist()
        batch = random_batch(step, index)
        p, q = softmax(batch.weak[0].numpy()), softmax(batch.strong[0].numpy())
        count = Counter(learned)
        beta = [count[c] / max(max(count[c] for c in range(classes)), count[-1]) for c in range(classes)]
        label, confidence = p.argmax(-1), p.max(-1)
        mask = [confidence[b] >= threshold * beta[label[b]] / (2 - beta[label[b]]) for b in range(5)]
        for b, i in enumerate(index):
            if confidence[b] >= threshold:
                learned[i] = int(label[b])
        losses = method.losses(run, batch)
        assert losses.seen.keep.tolist() == mask
        expected = sum(-math.log(q[b, label[b]]) for b in range(5) if mask[b]) / 5
        assert losses.terms["unlabeled"].item() == pytest.approx(expected)
        assert run.state["learned"].label.tolist() == learned
        masks += mask
    assert {True, False} == set(masks)


def test_two_ranks_learn_what_one_process_would():
    method = FlexMatch()
    whole, half, gathered = Table(method, images=5), Table(method, images=5), []
    whole.gather = lambda value: gathered.append(value) or value
    half.gather = lambda value: gathered.pop(0)
    method.losses(whole, make_batch(1, index=[4, 1, 0]))
    method.losses(half, make_batch(1, weak=WEAK[:1], strong=[(0.5,)], index=[4]))
    assert half.state["learned"].label.tolist() == whole.state["learned"].label.tolist() == [-1, 0, -1, -1, 1]


def test_bad_values():
    with pytest.raises(UsageError, match="threshold = 2:"):
        FlexMatch(threshold=2.0)
    with pytest.raises(UsageError, match="target_gradient = true"):
        FlexMatch(target_gradient=True)


def test_an_image_at_the_threshold_is_learned_and_kept():
    """A threshold of 1, which a prediction that float rounds to 1 reaches: nothing passes it by more."""
    method = FlexMatch(threshold=1.0)
    run = Table(method)
    for _ in range(2):  # then each class has one of three images: both thresholds are 1
        seen = method.losses(run, make_batch(1, weak=(1.0, 0.0, 0.6))).seen
        assert run.state["learned"].label.tolist() == [1, 0, -1]
    assert seen.keep.tolist() == [True, True, False]

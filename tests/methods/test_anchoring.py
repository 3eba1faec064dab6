"""FixMatch with Augmentation Anchoring by hand: the mean over the views, where MaxMatch has their worst."""

from __future__ import annotations

import math

import pytest

from maxmatch.errors import UsageError
from maxmatch.methods.anchoring import FixMatchAnchoring
from methods.table import Table, make_batch

# Targets 1 and 0; the third image is masked.
FIRST = [-math.log(0.8), -math.log(0.45), -math.log(0.9)]
SECOND = [-math.log(0.7), -math.log(0.9), -math.log(0.4)]


def unlabelled(k, **options):
    return FixMatchAnchoring(k=k, **options).losses(Table(), make_batch(k)).terms["unlabeled"].item()


def test_by_hand():
    assert unlabelled(3) == pytest.approx((sum(FIRST) / 3 + sum(SECOND) / 3) / 3)
    assert unlabelled(1) == pytest.approx((FIRST[0] + SECOND[0]) / 3)


@pytest.mark.parametrize("strategy", ["joint", "select"])
def test_the_worst_of_three_is_one_option_away(strategy):
    assert unlabelled(3, over="worst", strategy=strategy) == pytest.approx((max(FIRST) + max(SECOND)) / 3)


def test_every_view_is_trained_on():
    method = FixMatchAnchoring()
    batch = make_batch(3)
    batch.strong.requires_grad_()
    method.losses(Table(), batch).terms["unlabeled"].backward()
    assert method.k == 3
    # d CE / d logit of class 1 = q - target
    assert batch.strong.grad[:, 0, 1].tolist() == pytest.approx([(q - 1) / 9 for q in (0.8, 0.45, 0.9)])


def test_a_mean_cannot_be_selected():
    with pytest.raises(UsageError, match="strategy = select: by 'mean' all views count"):
        FixMatchAnchoring(strategy="select")

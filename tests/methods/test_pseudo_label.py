"""Pseudo-Label by hand: at K = 1 a view is taught its own label; of several views the first teaches all."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from maxmatch.errors import UsageError
from maxmatch.methods.base import Needs
from maxmatch.methods.pseudo_label import PseudoLabel
from methods.table import Table, make_batch

# The first view's labels are 1, 0, 0 with confidence .8, .7, .9: a threshold of .75 leaves out the second image.
ONE_VIEW = (-math.log(0.8) - math.log(0.9)) / 3
WORST_OF_THREE = (-math.log(0.45) - math.log(0.7)) / 3


def unlabelled(batch, progress=1.0, **options):
    return PseudoLabel(threshold=0.75, **options).losses(Table(progress=progress), batch).terms["unlabeled"]


@pytest.mark.parametrize("strategy", ["joint", "select"])
@pytest.mark.parametrize(("k", "by_hand"), [(1, ONE_VIEW), (3, WORST_OF_THREE)])
def test_by_hand(k, by_hand, strategy):
    assert unlabelled(make_batch(k), k=k, over="worst", strategy=strategy).item() == pytest.approx(by_hand)


def test_an_image_is_masked_by_its_own_confidence_alone():
    """A mask (B, 1) times losses (B,) is (B, B), whose mean is mean(mask) mean(loss): another number."""
    broadcast = 2 / 3 * (-math.log(0.8) - math.log(0.7) - math.log(0.9)) / 3
    assert unlabelled(make_batch(1)).item() == pytest.approx(ONE_VIEW)
    assert pytest.approx(broadcast) != ONE_VIEW
    batch = make_batch(1)
    batch.strong.requires_grad_()
    unlabelled(batch).backward()
    assert batch.strong.grad[0].abs().sum(-1).gt(0).tolist() == [True, False, True]


def test_the_weight_rises_over_the_first_two_fifths():
    for progress, share in ((0.0, 0.0), (0.1, 0.25), (0.4, 1.0), (0.9, 1.0)):
        assert unlabelled(make_batch(1), progress).item() == pytest.approx(share * ONE_VIEW)


def test_it_asks_for_its_variants_and_no_other_view():
    assert PseudoLabel(k=2).needs == Needs(weak=0, strong=2, variants="weak")
    assert PseudoLabel(views="strong").needs.variants == "strong"


def test_soft_labels_that_learn_have_one_gradient_in_both_strategies():
    found = []
    for strategy in ("joint", "select"):
        batch = make_batch(3)
        batch = replace(batch, strong=batch.strong.requires_grad_())
        unlabelled(batch, k=3, over="worst", strategy=strategy, target="soft", target_gradient=True).backward()
        found.append(batch.strong.grad)
    torch.testing.assert_close(*found)


def test_by_joint_no_view_passes_twice():
    batch = make_batch(3)
    options = {"k": 3, "over": "worst", "target": "soft", "target_gradient": True}
    assert PseudoLabel(strategy="joint", **options).anchors(batch) == ()
    assert len(PseudoLabel(strategy="select", **options).anchors(batch)) == 1


def test_bad_values():
    with pytest.raises(UsageError, match=r"threshold = -0\.1"):
        PseudoLabel(threshold=-0.1)
    with pytest.raises(UsageError, match=r"ramp = 1\.5"):
        PseudoLabel(ramp=1.5)
    with pytest.raises(UsageError, match="weight = -1"):
        PseudoLabel(weight=-1.0)

"""Mean Teacher by hand: the teacher's logits are twice the net's, so its p is p^2 / (p^2 + (1 - p)^2)."""

from __future__ import annotations

import pytest
import torch

from maxmatch.errors import UsageError
from maxmatch.methods.base import Needs
from maxmatch.methods.mean_teacher import MeanTeacher
from methods.table import STRONG, WEAK, Table, make_batch


def taught(p):
    return p**2 / (p**2 + (1 - p) ** 2)


ONE_VIEW = 50 * sum((taught(p) - q) ** 2 for p, q in zip(WEAK, STRONG[0], strict=True)) / 3
WORST_OF_THREE = 50 * sum(max((taught(p) - view[i]) ** 2 for view in STRONG) for i, p in enumerate(WEAK)) / 3


def sharper():
    return Table(teacher=lambda x: 2 * x)


@pytest.mark.parametrize("strategy", ["joint", "select"])
@pytest.mark.parametrize(("k", "by_hand"), [(1, ONE_VIEW), (3, WORST_OF_THREE)])
def test_by_hand(k, by_hand, strategy):
    losses = MeanTeacher(k=k, over="worst", strategy=strategy).losses(sharper(), make_batch(k))
    assert losses.terms["unlabeled"].item() == pytest.approx(by_hand)


def test_the_term_is_not_identically_zero():
    """It is where the net teaches itself on one view: other weights must do, and so must another view."""
    same_view, other_view = make_batch(1, strong=[WEAK]), make_batch(1)
    other_weights = 50 * sum((taught(p) - p) ** 2 for p in WEAK) / 3
    assert MeanTeacher().losses(sharper(), same_view).terms["unlabeled"].item() == pytest.approx(other_weights)
    assert MeanTeacher().losses(Table(), other_view).terms["unlabeled"].item() > 1
    assert MeanTeacher().losses(Table(), same_view).terms["unlabeled"].item() == 0
    assert MeanTeacher().needs == Needs(weak=1, strong=1, variants="weak")


def test_the_teacher_looks_at_the_weak_view_and_learns_nothing():
    shown = []
    run = Table(teacher=lambda x: shown.append(x) or 2 * x)
    batch = make_batch(3)
    batch.weak.requires_grad_()
    batch.strong.requires_grad_()
    MeanTeacher(k=3).losses(run, batch).terms["unlabeled"].backward()
    assert len(shown) == 1
    assert torch.equal(shown[0], batch.weak[0])
    assert batch.weak.grad is None
    by_hand = [50 / 9 * 2 * (q - taught(p)) * q * (1 - q) for p, q in zip(WEAK, STRONG[0], strict=True)]
    assert batch.strong.grad[0, :, 1].tolist() == pytest.approx(by_hand)


def test_the_weight_rises_over_the_first_two_fifths():
    for progress, share in ((0.0, 0.0), (0.3, 0.75), (0.4, 1.0), (1.0, 1.0)):
        run = Table(progress=progress, teacher=lambda x: 2 * x)
        assert MeanTeacher().losses(run, make_batch(1)).terms["unlabeled"].item() == pytest.approx(share * ONE_VIEW)


def test_bad_values():
    with pytest.raises(UsageError, match="target_gradient = true: the teacher has no gradient"):
        MeanTeacher(target_gradient=True)
    with pytest.raises(UsageError, match=r"ramp = -0\.5"):
        MeanTeacher(ramp=-0.5)

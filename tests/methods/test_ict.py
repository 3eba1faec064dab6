"""ICT by hand: the teacher's predictions are mixed as the images are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from maxmatch.errors import UsageError
from maxmatch.methods.ict import ICT
from methods.pictures import VIEWS, Table, X, Y, between, chance, cross_entropy, log_odds, make_batch, mean

PARTNERS = ((2, 0, 1), (1, 2, 0))  # within each view
WEIGHTS = (0.9, 0.2, 0.55, 0.3, 0.75, 0.05)


def case(k: int):
    partners = (*PARTNERS[0], *(3 + p for p in PARTNERS[1]))
    return make_batch(k, partners, WEIGHTS)


def by_hand(k: int) -> list[list[float]]:
    per_view = []
    for number, (view, partners) in enumerate(zip(VIEWS[:k], PARTNERS, strict=False)):
        losses = []
        for image, partner in enumerate(partners):
            weight = WEIGHTS[3 * number + image]
            q = chance(between(log_odds(view[image]), log_odds(view[partner]), weight))
            taught = [chance(2 * log_odds(view[i])) for i in (image, partner)]  # the table's teacher
            losses.append((q - between(*taught, weight)) ** 2)
        per_view.append(losses)
    return per_view


@pytest.mark.parametrize(
    ("k", "over", "strategy"),
    [(1, "mean", "joint"), (2, "mean", "joint"), (1, "worst", "joint"), (2, "worst", "joint"), (2, "worst", "select")],
)
def test_the_loss_by_hand(k, over, strategy):
    losses = ICT(k=k, over=over, strategy=strategy, weight=10).losses(Table(), case(k))
    per_view, reduce = by_hand(k), max if over == "worst" else mean
    unlabeled = mean([reduce([view[image] for view in per_view]) for image in range(3)])
    assert losses.terms["unlabeled"].item() == pytest.approx(10 * unlabeled)
    supervised = mean([cross_entropy(p, float(y)) for p, y in zip(X, Y, strict=True)])
    assert losses.terms["supervised"].item() == pytest.approx(supervised)  # labelled images are not mixed
    torch.testing.assert_close(losses.seen.per_view, torch.tensor(per_view, dtype=torch.float64))
    if over == "worst" and k == 2:
        assert len(set(losses.seen.winner.tolist())) == 2


def test_the_weight_is_100_after_40_percent_of_the_training():
    terms = [ICT().losses(Table(progress), case(1)).terms["unlabeled"].item() for progress in (0, 0.2, 0.4, 1)]
    full = 100 * mean(by_hand(1)[0])
    assert terms == pytest.approx([0, full / 2, full, full])


def test_the_teacher_sees_the_views_that_are_mixed():
    """Unmixed, with a student as sure as the teacher, the loss is 0: both see one and the same view."""
    batch = case(1)
    batch = replace(batch, mix=batch.mix._replace(weight=torch.ones(6, dtype=torch.float64)))
    run = Table()
    run.teacher = run.score
    assert ICT().losses(run, batch).terms["unlabeled"].item() == pytest.approx(0)
    assert ICT().needs.weak == 0


def test_an_image_is_taken_for_what_the_teacher_says_of_its_views_on_average():
    guess = ICT(k=2).prepare(Table(), case(2)).guess[:, 1].tolist()
    assert guess == pytest.approx(
        [mean([chance(2 * log_odds(view[image])) for view in VIEWS[:2]]) for image in range(3)]
    )


def test_it_is_the_teacher_that_is_asked():
    run = Table()
    ICT(k=2).losses(run, case(2))
    assert [name for name, _ in run.calls] == ["teacher", "net"]


def test_no_gradient_reaches_the_teacher_s_side():
    batch = case(2)
    batch = replace(batch, strong=batch.strong.clone().requires_grad_())
    assert not ICT(k=2).prepare(Table(), batch).target.requires_grad


def test_refusals():
    for options, message in (({"alpha": 0}, "alpha = 0"), ({"target_gradient": True}, "teacher is not trained")):
        with pytest.raises(UsageError, match=message):
            ICT(**options)

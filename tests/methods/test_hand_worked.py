"""Losses worked out by hand: two classes, three images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch

from maxmatch.errors import UsageError
from maxmatch.methods.base import Batch, Target
from maxmatch.methods.fixmatch import FixMatch
from maxmatch.methods.functional import cross_entropy
from maxmatch.methods.maxmatch import MaxMatch
from maxmatch.methods.supervised import Supervised
from methods.table import Table, Watched, logits

X, Y = logits(0.25, 0.5), torch.tensor([1, 0])
WEAK = logits(0.99, 0.02, 0.6)  # confident 1, confident 0, doubtful
STRONG = torch.stack([logits(0.8, 0.3, 0.1), logits(0.5, 0.1, 0.1), logits(0.9, 0.6, 0.1)])
SUPERVISED = (-math.log(0.25) - math.log(0.5)) / 2
# -log p(target): image 0 has target 1, image 1 target 0, image 2 is masked
PER_VIEW = [
    [-math.log(0.8), -math.log(0.7)],
    [-math.log(0.5), -math.log(0.9)],
    [-math.log(0.9), -math.log(0.4)],
]


def batch(k: int) -> Batch:
    return Batch(X, Y, torch.arange(3), WEAK[None], STRONG[:k], X.flip(0))


@pytest.mark.parametrize("strategy", ["joint", "select"])
def test_maxmatch_takes_the_worst_view_of_each_image(strategy):
    losses = MaxMatch(k=3, strategy=strategy, weight=2.0).losses(Table(), batch(3))
    assert losses.terms["supervised"].item() == pytest.approx(SUPERVISED)
    # The masked third image counts as 0 in a mean over all three.
    worst = (-math.log(0.5) - math.log(0.4)) / 3
    assert losses.terms["unlabeled"].item() == pytest.approx(2 * worst)
    assert losses.seen.unlabeled_loss.item() == pytest.approx(worst)
    assert losses.seen.winner[:2].tolist() == [1, 2]
    assert losses.seen.keep.tolist() == [True, True, False]
    torch.testing.assert_close(losses.seen.per_view[:, :2], torch.tensor(PER_VIEW, dtype=torch.float64))


@dataclass(frozen=True)
class Second(MaxMatch):
    """The second image alone is trained on, by its worst view turned round."""

    def lesson(self, run, batch, taught, views, losses):
        assert losses.tolist() == [pytest.approx([-math.log(0.5), -math.log(0.4), -math.log(0.1)])]
        assert taught.keep.tolist() == [True, True, False]
        return views[:, 1:2].flip(-1), Target(taught.value[1:2], taught.keep[1:2])


def test_a_lesson_changes_what_select_trains_on_and_what_is_left_out_counts_as_nothing():
    run = Watched()
    losses = Second(k=3).losses(run, batch(3))
    ((_, shown),) = run.trained
    assert torch.equal(shown, logits(0.6).flip(-1))  # the worst view of the second image is the third
    assert losses.terms["unlabeled"].item() == pytest.approx(-math.log(0.6) / 3)
    assert losses.seen.unlabeled_loss.item() == pytest.approx(-math.log(0.6) / 3)
    assert losses.seen.keep.tolist() == [True, True, False]
    assert losses.seen.per_view.shape == (3, 3)
    with pytest.raises(UsageError, match="Second has a lesson of its own"):
        Second(k=3, target_gradient=True)


def test_fixmatch_takes_its_one_view():
    losses = FixMatch().losses(Table(), batch(1))
    assert losses.terms["unlabeled"].item() == pytest.approx((-math.log(0.8) - math.log(0.7)) / 3)


def test_weak_views_are_scored_in_company_even_where_there_is_no_choice():
    """By themselves BatchNorm would normalise them unlike all that the net learns from."""
    run = Watched()
    losses = FixMatch(over="worst", strategy="select").losses(run, batch(1))
    assert [[group.tolist() for group in groups] for groups in run.scored] == [[WEAK.tolist(), STRONG[0].tolist()]]
    assert losses.terms["unlabeled"].item() == pytest.approx((-math.log(0.8) - math.log(0.7)) / 3)
    torch.testing.assert_close(losses.seen.per_view[:, :2], torch.tensor(PER_VIEW[:1], dtype=torch.float64))


def test_anchoring_is_the_mean_and_u_min_the_best():
    for over, value in {"mean": sum(sum(row) for row in PER_VIEW) / 3, "best": -math.log(0.9) * 2}.items():
        losses = MaxMatch(over=over).losses(Table(), batch(3))
        assert losses.terms["unlabeled"].item() == pytest.approx(value / 3)


def test_the_paper_s_objective_before_its_instantiation():
    """Soft targets, no threshold: max over the views of CE(f(x'), f(x)), every image counted."""
    losses = MaxMatch(target="soft", threshold=0).losses(Table(), batch(3))
    expected = 0.0
    for image, p in enumerate((0.99, 0.02, 0.6)):
        q = STRONG.softmax(-1)[:, image, 1].tolist()
        expected += max(-p * math.log(v) - (1 - p) * math.log(1 - v) for v in q)
    assert losses.terms["unlabeled"].item() == pytest.approx(expected / 3)


def test_the_threshold_is_inclusive():
    """The paper prints ">"; the product follows every implementation."""
    p = torch.tensor([[0.05, 0.95], [0.06, 0.94]])
    assert FixMatch(threshold=float(p[0, 1])).targets(p).keep.tolist() == [True, False]


def test_supervised_uses_strong_views_unless_told():
    assert Supervised().losses(Table(), batch(1)).terms["supervised"].item() == pytest.approx(
        (-math.log(0.5) - math.log(0.75)) / 2
    )
    assert Supervised("weak").losses(Table(), batch(1)).terms["supervised"].item() == pytest.approx(SUPERVISED)


def test_cross_entropy_of_a_soft_target():
    value = cross_entropy(logits(0.25), torch.tensor([[0.4, 0.6]], dtype=torch.float64))
    assert value.item() == pytest.approx(-0.4 * math.log(0.75) - 0.6 * math.log(0.25))
    assert cross_entropy(logits(0.25).bfloat16(), torch.tensor([1])).dtype == torch.float32


def test_refusals_name_the_value_and_the_rule():
    with pytest.raises(UsageError, match=r"threshold = 1\.5"):
        FixMatch(threshold=1.5)
    with pytest.raises(UsageError, match="argmax has no gradient"):
        FixMatch(target_gradient=True)
    with pytest.raises(UsageError, match="k = 0"):
        MaxMatch(k=0)

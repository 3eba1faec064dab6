"""UDA by hand: sharpened soft targets, a mask by the unsharpened confidence, and the annealing of the labelled loss."""

from __future__ import annotations

import math

import pytest

from maxmatch.errors import UsageError
from maxmatch.methods.uda import UDA
from methods.table import STRONG, WEAK, Table, make_batch


def sharpened(p, temperature=0.4):
    one, zero = p ** (1 / temperature), (1 - p) ** (1 / temperature)
    return one / (one + zero)


def divergence(t, q):
    return t * math.log(t / q) + (1 - t) * math.log((1 - t) / (1 - q))


# The third weak view has confidence .6, below the threshold of .8.
ONE_VIEW = sum(divergence(sharpened(WEAK[i]), STRONG[0][i]) for i in (0, 1)) / 3
WORST_OF_THREE = sum(max(divergence(sharpened(WEAK[i]), view[i]) for view in STRONG) for i in (0, 1)) / 3


@pytest.mark.parametrize("strategy", ["joint", "select"])
@pytest.mark.parametrize(("k", "by_hand"), [(1, ONE_VIEW), (3, WORST_OF_THREE)])
def test_by_hand(k, by_hand, strategy):
    losses = UDA(k=k, over="worst", strategy=strategy).losses(Table(), make_batch(k))
    assert losses.terms["unlabeled"].item() == pytest.approx(by_hand)
    assert losses.terms["supervised"].item() == pytest.approx((-math.log(0.25) - math.log(0.5)) / 2)


def test_the_temperature_is_applied():
    batch = make_batch(1, weak=(0.85, 0.1, 0.6))
    for temperature in (0.4, 0.8, 1.0):
        losses = UDA(temperature=temperature).losses(Table(), batch)
        targets = [sharpened(p, temperature) for p in (0.85, 0.1)]
        by_hand = sum(divergence(t, q) for t, q in zip(targets, (0.8, 0.3), strict=True)) / 3
        assert losses.seen.target[:2, 1].tolist() == pytest.approx(targets)
        assert losses.terms["unlabeled"].item() == pytest.approx(by_hand)


def test_the_confidence_is_that_before_sharpening():
    assert sharpened(0.75) > 0.9
    losses = UDA().losses(Table(), make_batch(1, weak=(0.75, 0.2, 0.81)))
    assert losses.seen.keep.tolist() == [False, True, True]


def test_a_masked_image_counts_as_nothing_in_a_mean_over_all():
    losses = UDA(threshold=0.985).losses(Table(), make_batch(1))
    assert losses.terms["unlabeled"].item() == pytest.approx(divergence(sharpened(0.99), 0.8) / 3)


@pytest.mark.parametrize(
    ("annealing", "progress", "eta"),
    [
        ("linear", 0.0, 0.5),
        ("linear", 0.5, 0.75),
        ("linear", 1.0, 1.0),
        ("log", 0.1, 0.5 + 0.5 * (1 - math.exp(-0.5))),  # .697
        ("log", 0.5, 0.5 + 0.5 * (1 - math.exp(-2.5))),  # .959
        ("exp", 0.5, 0.5 + 0.5 * math.exp(-2.5)),  # .541
        ("exp", 0.9, 0.5 + 0.5 * math.exp(-0.5)),  # .803
        ("none", 0.0, 1.0),
    ],
)
def test_annealing_lets_labelled_images_in_until_they_are_likelier_than_eta(annealing, progress, eta):
    likelihood = (0.52, 0.6, 0.7, 0.9)
    batch = make_batch(1, labelled=likelihood, labels=(1, 1, 1, 1))
    counted = [-math.log(p) for p in likelihood if p <= eta]
    losses = UDA(annealing=annealing).losses(Table(progress=progress), batch)
    assert losses.terms["supervised"].item() == pytest.approx(sum(counted) / max(len(counted), 1))


def test_a_net_that_knows_nothing_is_taught_from_the_first_step():
    """Its likelihood 1/C is eta itself: the paper leaves out what is above eta."""
    batch = make_batch(1, labelled=(0.5, 0.5), labels=(1, 0))
    losses = UDA(annealing="linear").losses(Table(progress=0.0), batch)
    assert losses.terms["supervised"].item() == pytest.approx(math.log(2))


def test_bad_values():
    with pytest.raises(UsageError, match="temperature = 0:"):
        UDA(temperature=0.0)
    with pytest.raises(UsageError, match=r"threshold = 1\.2"):
        UDA(threshold=1.2)

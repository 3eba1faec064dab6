"""Calibration against sums done by hand, bin by bin."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from maxmatch.evaluate.calibration import reliability


def two(confidence: list[float]) -> torch.Tensor:
    """Probabilities of two classes, the first of them the likely one."""
    sure = torch.tensor(confidence, dtype=torch.float64)
    return torch.stack([sure, 1 - sure], 1)


def test_six_predictions_by_hand():
    # Bins of .1: (.5, .6] holds .55 right and .6 wrong; (.7, .8] holds .8 right; (.9, 1] holds .95 right, .95 wrong, 1 right.
    found = reliability(two([0.55, 0.6, 0.8, 0.95, 0.95, 1.0]), torch.tensor([0, 1, 0, 0, 1, 0]), bins=10)
    assert found.counts.tolist() == [0, 0, 0, 0, 0, 2, 0, 1, 0, 3]
    assert found.confidence[[5, 7, 9]].tolist() == pytest.approx([57.5, 80, 290 / 3])
    assert found.accuracy[[5, 7, 9]].tolist() == pytest.approx([50, 100, 200 / 3])
    assert found.ece == pytest.approx((2 * 7.5 + 1 * 20 + 3 * 30) / 6)
    assert found.overconfidence == pytest.approx(100 * (0.55 + 0.6 + 0.8 + 0.95 + 0.95 + 1 - 4) / 6)


def test_random_ones_by_a_loop():
    rng = np.random.default_rng(0)
    chances = rng.dirichlet([0.5] * 4, 500)
    labels = rng.integers(0, 4, 500)
    sure, guess = chances.max(1), chances.argmax(1)
    ece = 0.0
    for low, high in zip(np.arange(15) / 15, np.arange(1, 16) / 15, strict=True):
        here = (sure > low) & (sure <= high)
        if here.any():
            ece += here.sum() * abs(sure[here].mean() - (guess == labels)[here].mean()) / 500
    found = reliability(torch.from_numpy(chances), torch.from_numpy(labels))
    assert found.ece == pytest.approx(100 * ece)
    assert int(found.counts.sum()) == 500


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16])
def test_an_edge_belongs_to_the_bin_below_in_every_precision(kind):
    edges = torch.arange(8, 15, dtype=torch.float64) / 15
    found = reliability(torch.stack([edges, 1 - edges], 1).to(kind), torch.zeros(7, dtype=torch.long))
    assert found.counts[7:14].tolist() == [1] * 7


def test_honest_predictions_have_no_error():
    """Three of four right at confidence .75."""
    found = reliability(two([0.75] * 4), torch.tensor([0, 0, 0, 1]))
    assert found.ece == pytest.approx(0)
    assert found.overconfidence == pytest.approx(0)
    assert reliability(torch.zeros(0, 2), torch.zeros(0).long()).ece == 0

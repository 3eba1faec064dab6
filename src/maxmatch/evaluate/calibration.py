"""Calibration: is a prediction made with 90 % confidence right nine times out of ten?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Reliability(NamedTuple):
    """Predictions sorted into bins of equal width by their confidence; empty bins have mean 0.

    `confidence` and `accuracy` (bins,) are means in their bin, in percent; so are the numbers, over all images.
    """

    counts: Tensor
    confidence: Tensor
    accuracy: Tensor
    ece: float  # expected calibration error: the mean of |confidence - accuracy| over bins, by how many are in each
    overconfidence: float  # mean confidence minus accuracy: above 0 the net promises more than it keeps


def reliability(probabilities: Tensor, labels: Tensor, bins: int = 15) -> Reliability:
    """Of probabilities (N, C) and labels (N,). A confidence on an edge belongs to the bin below it (Guo et al., 2017).

    >>> found = reliability(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 1]), bins=2)
    >>> found.counts.tolist(), round(found.ece, 2)
    ([0, 2], 35.0)
    """
    confidence, label = probabilities.double().max(-1)
    right = (label == labels.to(label.device)).double()
    # The edges as the probabilities round them: 0.8 in float32 lies above 0.8 in float64.
    edges = (torch.arange(1, bins, dtype=torch.float64) / bins).to(probabilities.dtype).double()
    place = torch.bucketize(confidence, edges.to(confidence.device))
    count, sure, correct = (
        torch.zeros(bins, dtype=torch.float64, device=place.device).index_add_(0, place, values)
        for values in (torch.ones_like(confidence), confidence, right)
    )
    shared = count.clamp(min=1)
    gap = (sure / shared - correct / shared).abs()
    total = max(1, len(labels))
    return Reliability(
        count.long(),
        100 * sure / shared,
        100 * correct / shared,
        ece=100 * float((gap * count).sum()) / total,
        overconfidence=100 * float((confidence - right).sum()) / total,
    )

"""Pure functions of predictions that losses are made of: logits in, one number per image out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """-sum_c t_c log softmax(logits)_c per image, (B, C) -> (B,); the target is labels (B,) or probabilities (B, C).

    The paper's two cross-entropies in one: the hard one applies softmax to the scores, and so does this soft one,
    where the paper's takes the scores as probabilities already.

    >>> cross_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor([0.6931])
    """
    return functional.cross_entropy(logits.float() if logits.dtype.itemsize < 4 else logits, target, reduction="none")


def probabilities(logits: Tensor) -> Tensor:
    """softmax over the classes, never in less than float32: a threshold of .95 needs the digits."""
    return torch.softmax(logits.float() if logits.dtype.itemsize < 4 else logits, dim=-1)

"""Pure functions of predictions that losses are made of: logits in, one number per image out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from maxmatch.errors import UsageError


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


def squared_error(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the classes of (softmax(logits)_c - t_c)^2 per image, (B, C) -> (B,).

    >>> squared_error(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([0.2500])
    """
    _check_probabilities("squared_error", logits, target)
    difference: Tensor = probabilities(logits) - target
    return difference.square().mean(-1)


def kl_divergence(logits: Tensor, target: Tensor) -> Tensor:
    """sum_c t_c (log t_c - log softmax(logits)_c) per image: the cross-entropy less the target's own entropy."""
    _check_probabilities("kl_divergence", logits, target)
    return cross_entropy(logits, target) - entropy(target)


def entropy(p: Tensor) -> Tensor:
    """-sum_c p_c log p_c per image, 0 log 0 = 0; with a gradient there too, which `torch.special.xlogy` lacks."""
    product: Tensor = p * p.clamp_min(torch.finfo(p.dtype).tiny).log()
    return -product.sum(-1)


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """p^(1/T), normalised: T below 1 makes the likely likelier.

    >>> sharpen(torch.tensor([[0.2, 0.8]]), 0.5)
    tensor([[0.0588, 0.9412]])
    """
    powered = torch.pow(p / p.amax(-1, keepdim=True), 1 / temperature)  # a small power of a small p would be 0
    return powered / powered.sum(-1, keepdim=True)


def _check_probabilities(distance: str, logits: Tensor, target: Tensor) -> None:
    if target.ndim != logits.ndim:
        what = f"{distance} compares probabilities (B, C), and what is taught has shape {tuple(target.shape)}"
        raise UsageError(f"{what}: return Target(p, keep), or take cross_entropy, which takes labels")

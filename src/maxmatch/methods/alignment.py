"""Distribution alignment (Berthelot et al., ReMixMatch, 2020): predictions as frequent as the labels, class by class.

A model that predicts some classes too often teaches itself to go on. p~ = p p_data / p_model, normalised, where p_model
is the running mean of the predictions and p_data that of the labels, both as they were before the batch. Any
consistency method takes it: `align = true`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

HORIZON = 128  # batches, as in the paper; it has their plain mean, this one forgets exponentially
TINY = 1e-6  # as in the paper's code: a class that is never predicted must not divide by 0


class Alignment(nn.Module):
    """Running means of predictions and labels (C,), both uniform at the start."""

    predicted: Tensor
    labelled: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("predicted", torch.full((classes,), 1 / classes))
        self.register_buffer("labelled", torch.full((classes,), 1 / classes))

    def forward(self, p: Tensor) -> Tensor:
        """Probabilities (B, C), aligned."""
        aligned = p * ((self.labelled + TINY) / (self.predicted + TINY)).to(p.dtype)
        return aligned / aligned.sum(-1, keepdim=True)

    @torch.no_grad()
    def update(self, p: Tensor, labelled: Tensor, mean: Callable[[Tensor], Tensor]) -> None:
        """Take in a batch's predictions (B, C) and labels (L, C); `mean` is over the ranks."""
        for running, now in ((self.predicted, p), (self.labelled, labelled.to(p.dtype))):
            running.lerp_(mean(now.mean(0)).to(running.dtype), 1 / HORIZON)

"""What is remembered of each image, by its position in the pool. An image may occur twice in a batch.

Both occurrences then write the same value, so that the order of writing makes no difference: on a GPU it has none.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Ensemble(nn.Module):
    """Each image's past predictions, averaged with momentum, and how often it was seen."""

    average: Tensor  # (N, C), as if the predictions before the first were 0
    visits: Tensor  # (N,)

    def __init__(self, images: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(images, classes))
        self.register_buffer("visits", torch.zeros(images, dtype=torch.int64))

    def recall(self, index: Tensor, momentum: float) -> tuple[Tensor, Tensor]:
        """The bias-corrected averages (B, C) of images, and which (B,) were ever seen; zeros where not."""
        visits = self.visits[index]
        seen = visits > 0
        share = 1 - torch.pow(momentum, visits.to(self.average.dtype))
        return self.average[index] / torch.where(seen, share, 1.0)[:, None], seen

    @torch.no_grad()
    def update(self, index: Tensor, p: Tensor, momentum: float) -> None:
        """Take in predictions (B, C); those of one image in one batch are averaged first."""
        same = (index[:, None] == index).to(p.dtype)
        p = (same @ p / same.sum(1, keepdim=True)).to(self.average.dtype)
        self.average[index] = momentum * self.average[index] + (1 - momentum) * p
        self.visits[index] = self.visits[index] + 1


class Learned(nn.Module):
    """The last confident label of each image; -1 where there was none."""

    label: Tensor  # (N,)

    def __init__(self, images: int) -> None:
        super().__init__()
        self.register_buffer("label", torch.full((images,), -1, dtype=torch.int64))

    def counts(self, classes: int) -> Tensor:
        """How many images have each label (C,), and how many none, last: (C + 1,)."""
        shifted = torch.where(self.label < 0, classes, self.label)
        return torch.zeros(classes + 1, device=shifted.device).scatter_add_(
            0, shifted, torch.ones_like(shifted).float()
        )

    @torch.no_grad()
    def update(self, index: Tensor, label: Tensor, confident: Tensor) -> None:
        """Note the labels (B,) of the confident images; of an image that occurs twice, its last confident one."""
        order = torch.arange(1, len(index) + 1, device=index.device) * confident
        last = ((index[:, None] == index) * order).amax(1)  # 1 + the place that decides, 0 where none is confident
        self.label[index] = torch.where(last > 0, label[(last - 1).clamp_min(0)], self.label[index])

"""Error rates in percent, from the logits of a test set."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from maxmatch.nets.preprocess import Preprocessing


def predict_logits(net: nn.Module, images: Tensor, preprocessing: Preprocessing, batch: int = 512) -> Tensor:
    """Logits (N, C) of uint8 images (N, C, H, W) from a net in eval mode, on the net's device."""
    parameter = next(net.parameters())
    return in_batches(lambda part: net(preprocessing(part, parameter.dtype)), images.to(parameter.device), batch)


@torch.no_grad()
def in_batches(forward: Callable[[Tensor], Tensor], images: Tensor, batch: int) -> Tensor:
    """`forward` of all images, `batch` at a time. The last batch is filled up with its own first image: one shape only,
    which cuDNN is tuned for once, and no image depends on another in eval mode."""
    made = []
    for part in torch.split(images, min(batch, len(images))):
        missing = min(batch, len(images)) - len(part)
        filled = torch.cat([part, part[:1].expand(missing, *part.shape[1:])]) if missing else part
        made.append(forward(filled)[: len(part)])
    return torch.cat(made)


def error_rate(logits: Tensor, labels: Tensor) -> float:
    """Percent of images whose most likely class is not their label.

    >>> error_rate(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1]))
    50.0
    """
    return 100 * (logits.argmax(-1) != labels.to(logits.device)).double().mean().item()


def top5_error(logits: Tensor, labels: Tensor) -> float | None:
    """Percent of images whose label is not among the five most likely; None where there are five classes or fewer."""
    if logits.shape[1] <= 5:
        return None
    hit = (logits.topk(5).indices == labels.to(logits.device)[:, None]).any(1)
    return 100 * (~hit).double().mean().item()


def summary(errors: Sequence[float]) -> dict[str, float | None]:
    """The three error rates of a run's evaluations: `last`, `median20` (Google's) and `best` (picked on test data)."""
    if not errors:
        return {"last": None, "median20": None, "best": None}
    return {"last": errors[-1], "median20": statistics.median(errors[-20:]), "best": min(errors)}

"""The error on the unlabelled pool: what the evaluated net says, against labels that it never saw.

The images are a fixed sample of the pool, chosen by the run's seed among those whose label is known and was hidden,
read once as test pictures are. Their labels are used here alone: no batch holds them. The paper plots another
error, counted along with the training, on the weak views and by the net as it is in each step: `guess_error` in
health.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from maxmatch.data.datasets import Images
from maxmatch.data.plan import Plan
from maxmatch.data.split import Split
from maxmatch.evaluate.errors import error_rate, top5_error


class Pool:
    """Images (N, C, H, W) of the unlabelled pool on a device, and the labels that were hidden."""

    def __init__(self, images: Images, index: npt.NDArray[np.int64], device: torch.device) -> None:
        self.index = index
        self.x = _as_judged(images, index).to(device)
        self.y = images.y[torch.from_numpy(index)].to(device)

    def judge(self, logits: Callable[[Tensor], Tensor]) -> dict[str, float | int | None]:
        """Top-1 and top-5 error in percent, and of how many images."""
        said = logits(self.x)
        top1, top5 = error_rate(said, self.y), top5_error(said, self.y)
        return {"unlabelled_error": top1, "unlabelled_top5_error": top5, "unlabelled_images": len(self.y)}


def make_pool(images: Images, split: Split, count: int, seed: int, device: torch.device) -> Pool | None:
    """The pool of a run, None where none is wanted or no label was hidden."""
    index = choose_pool(images.y.numpy(), split, count, seed)
    return Pool(images, index, device) if len(index) else None


def choose_pool(y: npt.NDArray[np.int64], split: Split, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Positions of at most `count` images whose label is known and hidden, in the order of the pool."""
    hidden = np.setdiff1d(split.unlabelled, split.labelled)
    hidden = hidden[y[hidden] >= 0]
    if count == 0 or len(hidden) == 0:
        return hidden[:0]
    drawn = Plan(seed).indices("evaluate/pool", 0, min(count, len(hidden)), len(hidden))
    return np.sort(hidden[drawn])


def _as_judged(images: Images, index: npt.NDArray[np.int64]) -> Tensor:
    """The images as the test has them: files read anew and fitted, all else as it is."""
    if images.files is None or images.side is None:
        return images.take(index)[0]
    names = tuple(images.files.names[number] for number in index)
    files = replace(images.files, names=names, slot=images.side, fitted=True, middle=images.middle)
    return files.read_all()[0]

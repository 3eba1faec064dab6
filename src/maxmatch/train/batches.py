"""The batch of a step: the images that the plan names, with the views that the method needs."""

from __future__ import annotations

import torch
from torch import Tensor

from maxmatch.augment import Views, Weak, strong_policy
from maxmatch.data.datasets import Images
from maxmatch.data.split import Split
from maxmatch.methods.base import Batch, Mix, Needs
from maxmatch.train.draws import Row
from maxmatch.train.recipe import AugmentSettings


def make_views(settings: AugmentSettings) -> Views:
    """The weak and strong policies that the settings name."""
    names = ("n", "p", "levels", "ops", "cutout")
    changes = {name: value for name in names if (value := getattr(settings, name)) is not None}
    strong = strong_policy(settings.policy, **changes)
    return Views(Weak(settings.flip, settings.shift), strong, settings.shared_crop)


class Batches:
    """Makes a step's batch from its row of draws and the images, which live on the device."""

    def __init__(self, images: Images, split: Split, views: Views, needs: Needs, device: torch.device) -> None:
        self.views, self.needs = views.to(device), needs
        labelled, unlabelled = torch.from_numpy(split.labelled), torch.from_numpy(split.unlabelled)
        self.x, self.y = images.x[labelled].to(device), images.y[labelled].to(device)
        self.pool = images.x[unlabelled].to(device)
        self.hidden = images.y[unlabelled].to(device)  # for health figures alone; no method sees it

    def __call__(self, row: Row, k: int) -> tuple[Batch, Tensor]:
        """The batch with k strong views, and the operations (K, B, N) that made each of them."""
        rows, index = row["labelled"], row["unlabelled"]
        x, pool = self.x[rows], self.pool[index]
        x_draws, x_strong = row["labelled/weak"], None
        if self.needs.x_strong:
            x_strong = self.views.strong_views(x, row["labelled/strong"], x_draws[0]).images[0]
        x_weak = self.views.weak_views(x, x_draws)[0]
        weak = strong = pool.new_empty(0, *pool.shape)
        op = index.new_empty(0, len(pool), 0)
        if self.needs.weak:
            weak = self.views.weak_views(pool, row["weak"])
        if k and self.needs.variants == "weak":
            strong = self.views.weak_views(pool, row["strong"][:k])
            op = index.new_zeros(k, len(pool), 1)  # the identity
        elif k:
            strong, op = self.views.strong_views(pool, row["strong"][:k], row["weak"][0] if self.needs.weak else None)
        mix = Mix(row["mix/order"], row["mix/weight"]) if self.needs.mix is not None else None
        return Batch(x_weak, self.y[rows], index, weak, strong, x_strong, mix), op

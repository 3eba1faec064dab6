"""The batch of a step: the images that the plan names, with the views that the method needs."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from maxmatch.augment import RandAugment, ResizedCrop, Views, Weak, strong_policy
from maxmatch.augment.fused import can_fuse, fuse
from maxmatch.data.datasets import Images
from maxmatch.data.split import Split
from maxmatch.errors import said
from maxmatch.methods.base import Batch, Mix, Needs
from maxmatch.train.draws import Row
from maxmatch.train.feed import Feed
from maxmatch.train.recipe import AugmentSettings


def make_views(settings: AugmentSettings, side: int | None = None) -> Views:
    """The weak and strong policies that the settings name; `side` is that of views of pictures in slots."""
    names = ("n", "p", "levels", "ops", "cutout")
    changes = {name: value for name in names if (value := getattr(settings, name)) is not None}
    strong = strong_policy(settings.policy, **changes)
    if side is None and not settings.crop:
        return Views(Weak(settings.flip, settings.shift), strong, settings.shared_crop)
    crop = ResizedCrop(side, settings.scale, flip=settings.flip, middle=settings.middle)
    return Views(crop, strong, settings.shared_crop)


class Batches:
    """Makes a step's batch from its row of draws and the images, which live on the device, or come by a feed."""

    def __init__(
        self,
        images: Images,
        split: Split,
        views: Views,
        needs: Needs,
        device: torch.device,
        feed: Feed | None = None,
        *,
        fused: bool = False,
    ) -> None:
        """`fused` allows the kernel of augment.fused, where it runs; `notes` says where it should and doesn't."""
        self.notes: list[str] = []
        self.views, self.needs, self.feed, self.shape = views.to(device), needs, feed, images.shape
        asked = needs.x_strong or (needs.variants == "strong" and needs.most > 0)
        if fused and asked and can_fuse(views.strong, images.shape, device):
            self.views = self._try_fused(views.strong, device)
        labelled, unlabelled = torch.from_numpy(split.labelled), torch.from_numpy(split.unlabelled)
        self.y = images.y[labelled].to(device)
        # For health figures alone; no method sees it. A pseudo-label is no feat where the label was shown.
        shown = torch.isin(unlabelled, labelled)
        self.hidden = torch.where(shown, -1, images.y[unlabelled]).to(device)
        self.sizes: dict[str, Tensor] = {}
        if feed is None:
            everyone = torch.equal(unlabelled, torch.arange(len(images.x)))  # then nothing need be copied
            self.pool = (images.x if everyone else images.x[unlabelled]).to(device)
            self.x = images.x[labelled].to(device)
            if images.sizes is not None:
                self.sizes = {
                    "labelled": images.sizes[labelled].to(device),
                    "unlabelled": images.sizes[unlabelled].to(device),
                }

    def _try_fused(self, policy: RandAugment, device: torch.device) -> Views:
        fused, (channels, height, width) = fuse(policy), self.shape
        try:
            draw = fused.sample(torch.zeros(1, fused.uniforms, device=device), (height, width))
            fused.apply(torch.zeros(1, channels, height, width, dtype=torch.uint8, device=device), draw)
            torch.cuda.synchronize()
        except Exception as problem:  # it rests on private parts of torch, which may change in any way
            self.notes.append(f"RandAugment's kernel doesn't run here, torch's do: {said(problem)}")
            return self.views
        return replace(self.views, strong=fused)

    def _shown(self, name: str, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """The step's images of a pool, and their sizes where they lie in slots."""
        if self.feed is not None:
            return self.feed.slots[name], self.feed.sizes[name]
        sizes = self.sizes[name][rows] if self.sizes else None
        return (self.x if name == "labelled" else self.pool)[rows], sizes

    def __call__(self, row: Row, k: int) -> tuple[Batch, Tensor]:
        """The batch with k strong views, and the operations (K, B, N) that made each of them."""
        rows, index = row["labelled"], row["unlabelled"]
        none = torch.empty(0, *self.shape, dtype=torch.uint8, device=index.device)
        x_weak, x_strong = none, None
        if self.needs.labelled:
            x, x_sizes = self._shown("labelled", rows)
            x_draws = row["labelled/weak"]
            if self.needs.x_strong:
                x_strong = self.views.strong_views(x, row["labelled/strong"], x_draws[0], sizes=x_sizes).images[0]
            x_weak = self.views.weak_views(x, x_draws, x_sizes)[0]
        weak = strong = none.new_empty(0, len(index), *self.shape)
        op = index.new_empty(0, len(index), 0)
        if self.needs.unlabelled:
            pool, sizes = self._shown("unlabelled", index)
        if self.needs.weak:
            weak = self.views.weak_views(pool, row["weak"], sizes)
        if k and self.needs.variants == "weak":
            strong = self.views.weak_views(pool, row["strong"][:k], sizes)
            op = index.new_zeros(k, len(pool), 1)  # the identity
        elif k:
            u_weak = row["weak"][0] if self.needs.weak else None
            strong, op = self.views.strong_views(pool, row["strong"][:k], u_weak, sizes=sizes)
        mix = Mix(row["mix/order"], row["mix/weight"]) if self.needs.mix is not None else None
        return Batch(x_weak, self.y[rows], index, weak, strong, x_strong, mix), op

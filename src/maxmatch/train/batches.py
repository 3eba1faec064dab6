"""The batch of a step: the images that the plan names, with the views that the method needs."""

from __future__ import annotations

import torch
from torch import Tensor

from maxmatch.augment import Strong, Views, Weak, randaugment
from maxmatch.data.datasets import Images
from maxmatch.data.plan import Plan
from maxmatch.data.split import Split
from maxmatch.methods.base import Batch, Needs
from maxmatch.train.recipe import AugmentSettings


def make_views(settings: AugmentSettings) -> Views:
    """The weak and strong policies that the settings name."""
    names = ("n", "p", "levels", "ops", "cutout")
    changes = {name: value for name in names if (value := getattr(settings, name)) is not None}
    strong = randaugment(settings.policy, **changes)
    return Views(Weak(settings.flip, settings.shift), strong, settings.shared_crop)


class Batches:
    """Makes any step's batch from images that live on the device: a pure function of the step."""

    def __init__(
        self,
        images: Images,
        split: Split,
        views: Views,
        plan: Plan,
        needs: Needs,
        batch: int,
        ratio: int,
        device: torch.device,
    ) -> None:
        self.views, self.plan, self.needs, self.device = views, plan, needs, device
        self.batch, self.unlabelled_batch = batch, batch * ratio
        labelled, unlabelled = torch.from_numpy(split.labelled), torch.from_numpy(split.unlabelled)
        self.x, self.y = images.x[labelled].to(device), images.y[labelled].to(device)
        self.pool = images.x[unlabelled].to(device)
        self.hidden = images.y[unlabelled].to(device)  # for health figures alone; no method sees it

    def __call__(self, step: int) -> tuple[Batch, Tensor]:
        """The batch of a step, and the operations (K, B, N) that made each strong view."""
        rows = self._indices("labelled", step, self.batch, len(self.x))
        index = self._indices("unlabelled", step, self.unlabelled_batch, len(self.pool))
        x, pool = self.x[rows], self.pool[index]
        x_draws = self._views("labelled/weak", step, 1, len(x), self.views.weak_uniforms)
        x_strong = None
        if self.needs.x_strong:
            draws = self._views("labelled/strong", step, 1, len(x), self.views.strong_uniforms)
            x_strong = self.views.strong_views(x, draws, x_draws[0]).images[0]
        weak, strong = (
            pool.new_empty(0, *pool.shape),
            Strong(pool.new_empty(0, *pool.shape), index.new_empty(0, len(pool), 0)),
        )
        if self.needs.weak:
            weak_draws = self._views("weak", step, self.needs.weak, len(pool), self.views.weak_uniforms)
            weak = self.views.weak_views(pool, weak_draws)
        k = self.plan.choice("k", step, self.needs.choices())
        if k:
            draws = self._views("strong", step, k, len(pool), self.views.strong_uniforms)
            strong = self.views.strong_views(pool, draws, weak_draws[0] if self.needs.weak else None)
        x_weak = self.views.weak_views(x, x_draws)[0]
        return Batch(x_weak, self.y[rows], index, weak, strong.images, x_strong), strong.op

    def _indices(self, stream: str, step: int, batch: int, n: int) -> Tensor:
        return torch.from_numpy(self.plan.indices(stream, step, batch, n)).to(self.device)

    def _views(self, stream: str, step: int, count: int, batch: int, uniforms: int) -> Tensor:
        """Draws (count, batch, uniforms): each view has a stream of its own, so view 1 is the same whatever K is."""
        draws = [torch.from_numpy(self.plan.uniforms(f"{stream}/{v}", step, (batch, uniforms))) for v in range(count)]
        return torch.stack(draws).to(self.device)

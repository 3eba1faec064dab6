"""MixMatch (Berthelot et al., 2019): guess labels from several views, sharpen them, mix everything with everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from maxmatch.methods.base import Batch, Consistency, Distance, Needs, Run
from maxmatch.methods.functional import probabilities, sharpen, squared_error
from maxmatch.methods.perturb import mixed_up
from maxmatch.methods.ranges import Positive, Share, Weight
from maxmatch.methods.views import Views


@dataclass(frozen=True)
class MixMatch(Consistency):
    """Squared error on mixed unlabelled images whose labels are guessed; cross-entropy on mixed labelled ones.

    The guess is the mean prediction over the K views, sharpened. Labelled images and all views are shuffled together
    and each is mixed with its partner: w = max(w, 1 - w), w from Beta(alpha, alpha), one for each image, keeps it
    nearer to itself. `over` reduces the K mixed views of an image, the mean in the paper; the worst is our reading.
    """

    year: ClassVar[int] = 2019
    formula: ClassVar[str] = (
        "mean_i over_j |f(mix(view_j(u_i), .)) - mix(q_i, .)|^2 / C, q_i = sharpen(mean_j f(view_j(u_i)))"
    )
    fixed_target: ClassVar[str] = "a guessed label has no gradient"

    k: Views = 2
    weight: Weight = 75.0
    ramp: Share = 1 / 64
    temperature: Positive = 0.5
    alpha: Positive = 0.5
    views: Literal["weak", "strong"] = "weak"

    distance: ClassVar[Distance] = staticmethod(squared_error)

    @property
    def needs(self) -> Needs:
        return Needs(strong=self.k, variants=self.views, mix=self.alpha)

    def prepare(self, run: Run, batch: Batch) -> Batch:
        assert batch.mix is not None  # `needs` asked for it
        guess = torch.stack([probabilities(logits) for logits in self.guess(run, *batch.strong)]).mean(0)
        guess = sharpen(self.aligned(run, batch, guess), self.temperature)
        labels = functional.one_hot(batch.y, guess.shape[1]).to(guess.dtype)
        pixels, targets = mixed_up(run, [batch.x, *batch.strong], [labels, *[guess] * len(batch.strong)], batch.mix)
        shape, many = batch.strong.shape, len(batch.y)
        variants, taught = pixels[many:].view(shape), targets[many:].view(*shape[:2], -1)
        return replace(batch, x=pixels[:many], y=targets[:many], strong=variants, target=taught, guess=guess)

    def train_pass(self, run: Run, x: Tensor, *groups: Tensor) -> Sequence[Tensor]:
        # The labelled images alone move the running statistics, our reading: in the authors' code the first of
        # several batches does, and each has a share of every group.
        return [*run.net(x), *run.aside(*groups)]

    def anchors(self, batch: Batch) -> tuple[Tensor, ...]:
        return ()

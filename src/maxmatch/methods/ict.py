"""ICT (Verma et al., 2019): between two images the prediction should lie between theirs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from maxmatch.methods.base import Batch, Consistency, Distance, Needs, Run
from maxmatch.methods.functional import probabilities, squared_error
from maxmatch.methods.perturb import mixed
from maxmatch.methods.ranges import Positive, Share, Weight


@dataclass(frozen=True)
class ICT(Consistency):
    """Squared error between f(mix(u, u')) and mix(teacher(u), teacher(u')), with weights from Beta(alpha, alpha).

    K variants are K mixes of an image, each with a partner and a weight of its own; the worst of them is our reading.
    """

    year: ClassVar[int] = 2019
    formula: ClassVar[str] = "mean_i over_j |f(mix_j(u_i, u_i')) - mix_j(f_ema(u_i), f_ema(u_i'))|^2 / C"
    fixed_target: ClassVar[str] = "the teacher is not trained"
    taught_by_average: ClassVar[bool] = True

    weight: Weight = 100.0
    ramp: Share = 0.4
    alpha: Positive = 1.0

    distance: ClassVar[Distance] = staticmethod(squared_error)

    @property
    def needs(self) -> Needs:
        return Needs(strong=self.k, variants="weak", mix=self.alpha)

    def prepare(self, run: Run, batch: Batch) -> Batch:
        assert batch.mix is not None  # `needs` asked for it
        images, targets = [], []
        logits = torch.cat(list(run.teacher(*batch.strong)))  # of the very views that are mixed
        opinions = torch.split(self.aligned(run, batch, probabilities(logits)), len(batch.index))
        for view, (images_of_view, p) in enumerate(zip(batch.strong, opinions, strict=True)):
            others, theirs = run.gather(images_of_view), run.gather(p)  # a partner may be on another rank
            drawn = slice(view * len(others), (view + 1) * len(others))
            partner, weight = run.share(batch.mix.order[drawn].argsort()), run.share(batch.mix.weight[drawn])
            images.append(mixed(run.pixels(images_of_view), run.pixels(others[partner]), weight))
            targets.append(mixed(p, theirs[partner], weight))
        guess = torch.stack(opinions).mean(0)
        return replace(batch, strong=torch.stack(images), target=torch.stack(targets), guess=guess)

    def anchors(self, batch: Batch) -> tuple[Tensor, ...]:
        return ()

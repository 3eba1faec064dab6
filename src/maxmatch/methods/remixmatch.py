"""ReMixMatch (Berthelot et al., 2020): MixMatch with aligned guesses, anchored strong views and a rotation to tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from maxmatch.errors import UsageError
from maxmatch.methods.base import Batch, Consistency, Distance, Losses, Needs, Run, Target, part
from maxmatch.methods.functional import cross_entropy, probabilities, sharpen
from maxmatch.methods.perturb import mixed_up
from maxmatch.methods.ranges import Positive, Share, Weight
from maxmatch.methods.views import Views


@dataclass(frozen=True)
class ReMixMatch(Consistency):
    """Cross-entropy on mixed views with the aligned, sharpened guess of the weak view, and two more terms.

    `anchored`: the first strong view, not mixed, is taught the same guess. `rotation`: by how many quarters it was
    turned, told by a head of its own. Labelled images are strongly augmented. The weak view is mixed and taught beside
    the K strong ones. `over` reduces those K, the mean in the paper; the worst is our reading, and the weak view keeps
    its share of 1 / (K + 1). The paper has K = 8 and CTAugment (`augment.policy`).
    """

    year: ClassVar[int] = 2020
    formula: ClassVar[str] = (
        "mean_i over_j CE(f(mix(strong_j(u_i), .)), mix(q_i, .)) + anchored CE(f(strong_1(u_i)), q_i) + rotation"
    )
    fixed_target: ClassVar[str] = "a guessed label has no gradient"

    k: Views = 2
    weight: Weight = 1.5
    ramp: Share = 1 / 64
    align: bool = True
    temperature: Positive = 0.5
    alpha: Positive = 0.75
    anchored: Weight = 0.5
    rotation: Weight = 0.5
    views: Literal["weak", "strong"] = "strong"

    terms: ClassVar[tuple[str, ...]] = ("supervised", "unlabeled", "anchored", "rotation")
    distance: ClassVar[Distance] = staticmethod(cross_entropy)
    trains_anchors: ClassVar[bool] = True

    @property
    def needs(self) -> Needs:
        return Needs(weak=1, strong=self.k, x_strong=True, variants=self.views, mix=self.alpha)

    def parts(self, classes: int, images: int, features: int) -> dict[str, nn.Module]:
        if features < 1:
            raise UsageError(
                "remixmatch needs what the net's head sees: give your net forward_features(x) and num_features"
            )
        return {**super().parts(classes, images, features), "rotation": nn.Linear(features, 4)}

    def refuses(self, shape: tuple[int, int, int]) -> str:
        _, height, width = shape
        told = f"remixmatch turns images by quarters: they must be square, these have {height}x{width}"
        return told if height != width else ""

    def prepare(self, run: Run, batch: Batch) -> Batch:
        assert batch.mix is not None
        assert batch.x_strong is not None
        (logits,) = self.guess(run, batch.weak[0])
        guess = sharpen(self.aligned(run, batch, probabilities(logits)), self.temperature)
        labels = nn.functional.one_hot(batch.y, guess.shape[1]).to(guess.dtype)
        images = [batch.x_strong, *batch.strong, batch.weak[0]]
        first = run.pixels(batch.strong[0])
        pixels, targets = mixed_up(run, images, [labels, *[guess] * (len(images) - 1)], batch.mix)
        many = len(labels)
        views = pixels[many:].view(-1, *batch.weak[0].shape)  # K strong ones and the weak one
        taught = targets[many:].view(*views.shape[:2], -1)
        # What is to be anchored stands before the mixed weak view, whose target is the last.
        return replace(
            batch, x=pixels[:many], y=targets[:many], weak=torch.stack([first, views[-1]]), strong=views[:-1],
            target=taught, guess=guess,
        )  # fmt: skip

    def anchors(self, batch: Batch) -> tuple[Tensor, ...]:
        return tuple(batch.weak)

    def train_pass(self, run: Run, x: Tensor, *groups: Tensor) -> Sequence[Tensor]:
        # The labelled images alone move the running statistics: see `MixMatch`.
        return [*run.net(x), *run.aside(*groups)]

    def teach(self, p: Tensor, run: Run, batch: Batch, x: Tensor | None) -> Target:
        assert batch.target is not None
        return Target(batch.target[:-1], p.new_ones(len(p)))

    def losses(self, run: Run, batch: Batch) -> Losses:
        losses, share = super().losses(run, batch), 1 / (len(batch.strong) + 1)
        terms = dict(losses.terms)
        terms["unlabeled"] = (1 - share) * terms["unlabeled"] + share * terms.pop("weak")
        return losses._replace(terms=terms)

    def more_terms(
        self, run: Run, batch: Batch, target: Target, anchored: Sequence[Tensor], variants: Sequence[Tensor]
    ) -> dict[str, Tensor]:
        assert batch.target is not None
        assert batch.guess is not None
        anchor = cross_entropy(anchored[0], batch.guess).mean()
        quarters = run.share(torch.arange(len(run.gather(batch.index)), device=batch.index.device) % 4)
        turned = torch.stack([torch.rot90(batch.weak[0], turn, (2, 3)) for turn in range(4)])
        turned = turned[quarters, torch.arange(len(quarters), device=quarters.device)]
        (features,) = run.features(turned)
        head = part(run, nn.Linear, "rotation")
        told = head(features.to(head.weight.dtype))
        return {
            "weak": self.ramped(run, self.weight) * cross_entropy(anchored[1], batch.target[-1]).mean(),
            "anchored": self.ramped(run, self.anchored) * anchor,
            "rotation": self.rotation * cross_entropy(told, quarters).mean(),
        }

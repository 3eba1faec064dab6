"""AdaMatch (Berthelot et al., 2022), its semi-supervised half: a threshold relative to the labelled images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from maxmatch.methods.base import Batch, Consistency, Run, Target
from maxmatch.methods.functional import probabilities
from maxmatch.methods.ranges import Share


@dataclass(frozen=True)
class AdaMatch(Consistency):
    """Kept where the aligned confidence is at least `threshold` times the mean confidence on the labelled images.

    It aligns to the predictions on the labelled images, not to their labels. Two parts of the paper are left out:
    logits mixed at random with those of a labelled batch alone, and a weight that rises along a cosine over the first
    half of the training (`ramp = 0.5` is the straight line).
    """

    year: ClassVar[int] = 2022
    formula: ClassVar[str] = "mean_i 1[max p_i >= threshold mean_l max f(x_l)] over_j CE(f(strong_j(u_i)), argmax p_i)"
    fixed_target: ClassVar[str] = "an argmax has no gradient"

    align: bool = True
    threshold: Share = 0.9

    scores_labelled: ClassVar[bool] = True
    no_eman: ClassVar[str] = "its threshold and its alignment compare with the net's own predictions"

    def classes_of_labelled(self, x: Tensor | None, y: Tensor, classes: int) -> Tensor:
        assert x is not None  # `scores_labelled`
        return probabilities(x.detach())

    def teach(self, p: Tensor, run: Run, batch: Batch, x: Tensor | None) -> Target:
        assert x is not None  # `scores_labelled`
        confidence, label = p.max(-1)
        usual = run.mean(probabilities(x.detach()).amax(-1).mean())
        return Target(label, torch.ge(confidence, self.threshold * usual))

"""FreeMatch (Wang et al., 2023): thresholds that follow the model, and a push towards fair predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from maxmatch.methods.base import Batch, Consistency, Run, Target, part
from maxmatch.methods.functional import probabilities
from maxmatch.methods.ranges import Decay, Weight


class Progress(nn.Module):
    """Running means: the confidence, the prediction (C,), and how often each label was predicted (C,)."""

    confidence: Tensor
    predicted: Tensor
    labels: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("confidence", torch.tensor(1 / classes))
        self.register_buffer("predicted", torch.full((classes,), 1 / classes))
        self.register_buffer("labels", torch.full((classes,), 1 / classes))


@dataclass(frozen=True)
class FreeMatch(Consistency):
    """threshold_c = tau p~_c / max p~: tau and p~ are running means of the confidence and of the prediction.

    The fairness term is minus the cross-entropy of p_ / h_ under p~ / h~, each normalised: p_ is the mean prediction on
    the trained variants that are kept, h_ and h~ are how often each label is predicted, now and so far. As in the
    paper's code a label that is never predicted has share 0, and the term is 0 where nothing is kept.
    """

    year: ClassVar[int] = 2023
    formula: ClassVar[str] = "mean_i 1[max p_i >= tau p~_c / max p~] over_j CE(f(strong_j(u_i)), c) + fairness"
    fixed_target: ClassVar[str] = "an argmax has no gradient"

    momentum: Decay = 0.999
    fairness: Weight = 0.05

    terms: ClassVar[tuple[str, ...]] = ("supervised", "unlabeled", "fairness")

    def parts(self, classes: int, images: int, features: int) -> dict[str, nn.Module]:
        return {**super().parts(classes, images, features), "progress": Progress(classes)}

    def teach(self, p: Tensor, run: Run, batch: Batch, x: Tensor | None) -> Target:
        so_far = part(run, Progress, "progress")
        confidence, label = p.max(-1)
        labels = functional.one_hot(label, p.shape[1]).to(p.dtype).mean(0)
        now = {"confidence": confidence.mean(), "predicted": p.mean(0), "labels": labels}
        with torch.no_grad():
            for name, value in now.items():
                running = getattr(so_far, name)
                running.lerp_(run.mean(value).to(running.dtype), 1 - self.momentum)
        thresholds = so_far.confidence * so_far.predicted / so_far.predicted.amax()
        return Target(label, torch.ge(confidence, thresholds[label]))

    def more_terms(
        self, run: Run, batch: Batch, target: Target, anchored: Sequence[Tensor], variants: Sequence[Tensor]
    ) -> dict[str, Tensor]:
        so_far = part(run, Progress, "progress")
        p = torch.stack([probabilities(logits) for logits in variants]).mean(0)
        kept = target.keep.to(p.dtype)[:, None]
        kept_in_all = run.mean(kept.sum())
        many = torch.where(kept_in_all > 0, kept_in_all, 1)
        mean = run.mean((kept * p).sum(0)) / many
        often = run.mean((kept * functional.one_hot(p.argmax(-1), p.shape[1])).sum(0)) / many
        wanted, found = _shares(so_far.predicted, so_far.labels).to(p.dtype), _shares(mean, often)
        fairness = (wanted * torch.log(found + 1e-12)).sum()
        return {"fairness": self.fairness * fairness * torch.gt(kept_in_all, 0)}


def _shares(p: Tensor, often: Tensor) -> Tensor:
    ratio = p * torch.nan_to_num(1 / often, posinf=0.0)
    return ratio / ratio.sum().clamp_min(1e-12)

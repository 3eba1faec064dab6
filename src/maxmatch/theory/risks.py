"""The risks in Proposition 1, from a classifier's probabilities on images and on their K views.

The paper gives one f two cross-entropies. The soft one takes outputs as probabilities, the hard one as scores that
softmax is yet to be applied to; both are here under names of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from maxmatch.theory.bounds import Bound, proposition_1, proposition_1_sharp
from maxmatch.theory.checks import check_epsilon, check_form

Form = Literal["printed", "corrected", "sharp", "sharp, hard"]


class Risks(NamedTuple):
    """The consistency risk and both labelled risks of one f."""

    consistency: float
    labelled_log: float  # -log f_y
    labelled_score: float  # log sum exp(f_i - f_y), the paper's hard cross-entropy of the same outputs


def bounded(probabilities: Tensor, epsilon: float) -> Tensor:
    """f_eps = (1 - n_c eps) p + eps: a distribution with all values in [eps, 1 - eps], and with the same argmax.

    >>> bounded(torch.tensor([1.0, 0.0]), 0.1)
    tensor([0.9000, 0.1000])
    """
    classes = probabilities.shape[-1]
    check_epsilon(classes, epsilon)
    return (1 - classes * epsilon) * probabilities + epsilon


def soft_cross_entropy(prediction: Tensor, target: Tensor) -> Tensor:
    """CE(s, t) = -sum t_i log s_i over the last axis; s = f(x') is the view's output, t = f(x) the image's.

    Where t_i is 0 the term is 0, whatever s_i is.
    """
    return -torch.xlogy(target, prediction).sum(-1)


def log_loss(prediction: Tensor, labels: Tensor) -> Tensor:
    """-log f_y: what is trained."""
    return -prediction.gather(-1, labels[..., None])[..., 0].log()


def score_cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """log sum exp(s_i - s_y), the paper's hard cross-entropy: softmax is applied to s, probabilities or not."""
    return scores.logsumexp(-1) - scores.gather(-1, labels[..., None])[..., 0]


def consistency_losses(clean: Tensor, views: Tensor) -> Tensor:
    """CE(f(x'_k), f(x)) as (K, N), from probabilities (N, C) of images and (K, N, C) of their views."""
    return soft_cross_entropy(views, clean)


def consistency_risk(clean: Tensor, views: Tensor) -> float:
    """R_U: the mean over images of the largest of K cross-entropies."""
    return consistency_losses(clean, views).amax(0).mean().item()


def robust_risk(views: Tensor, labels: Tensor) -> float:
    """Definition 1 with B_sem: the share of images of which any of the K views is not given its label."""
    return (views.argmax(-1) != labels).any(0).double().mean().item()


def measure_risks(clean: Tensor, views: Tensor, labels: Tensor) -> Risks:
    """All risks of one f on images (N, C), their views (K, N, C) and labels (N,)."""
    return Risks(
        consistency_risk(clean, views),
        log_loss(clean, labels).mean().item(),
        score_cross_entropy(clean, labels).mean().item(),
    )


def proposition_1_on(form: Form, clean: Tensor, views: Tensor, labels: Tensor, epsilon: float) -> Bound:
    """Proposition 1 with the images at hand as the distribution: its right-hand side, to be held against `robust_risk`.

    The sharp forms take the probabilities as they are; the others need them in [eps, 1 - eps] (`bounded`). Any target
    with the label of f(x) may stand in the sharp form: `sharp, hard` has the label itself, as FixMatch and MaxMatch do.
    """
    if form in ("sharp", "sharp, hard"):
        risks = measure_risks(clean, views, labels)
        hard = one_hot(clean.argmax(-1), clean.shape[-1]).to(clean.dtype)
        consistency = risks.consistency if form == "sharp" else consistency_risk(hard, views)
        found = proposition_1_sharp(consistency_risk=consistency, labelled_risk=risks.labelled_log)
        return replace(found, form=form)
    check_form(form)
    risks = measure_risks(bounded(clean, epsilon), bounded(views, epsilon), labels)
    labelled = risks.labelled_score if form == "printed" else risks.labelled_log
    return proposition_1(
        "printed" if form == "printed" else "corrected",
        consistency_risk=risks.consistency,
        labelled_risk=labelled,
        classes=clean.shape[-1],
        epsilon=epsilon,
    )

"""The paper's robust risk (Definition 1), measured: does any of K strong views of an image change its class?

`robust_error` counts an image wrong if it or any of its K views is misclassified; `robust_error_paper` looks at the K
views alone, as the definition with B_sem does. The views have a stream of their own and never disturb training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from maxmatch.augment.views import Views
from maxmatch.data.plan import Plan

Predict = Callable[[Tensor], Tensor]  # uint8 images (N, C, H, W) -> labels (N,)


class Robust(NamedTuple):
    robust_error: float
    robust_error_paper: float


def robust_errors(predict: Predict, images: Tensor, labels: Tensor, views: Views, k: int, seed: int) -> Robust:
    """Both robust errors in percent, over K strong views drawn by `seed`."""
    plan = Plan(seed)
    wrong = torch.stack([predict(view) != labels for view in robust_views(images, views, k, plan)]).any(0)
    clean = predict(images) != labels
    return Robust(100 * (wrong | clean).double().mean().item(), 100 * wrong.double().mean().item())


def robust_views(images: Tensor, views: Views, k: int, plan: Plan, chunk: int = 4096) -> list[Tensor]:
    """K strong views (N, C, H, W) of the images, those of the evaluation stream."""
    weak = _draws(plan, "weak", images, views.weak_uniforms)
    made = []
    for view in range(k):
        strong = _draws(plan, str(view), images, views.strong_uniforms)
        parts = zip(*(torch.split(whole, chunk) for whole in (images, strong, weak)), strict=True)
        made.append(torch.cat([views.strong_views(x, u[None], u_weak).images[0] for x, u, u_weak in parts]))
    return made


def _draws(plan: Plan, stream: str, images: Tensor, uniforms: int) -> Tensor:
    drawn = plan.uniforms(f"evaluate/robust/{stream}", 0, (len(images), uniforms))
    return torch.from_numpy(drawn).to(images.device)

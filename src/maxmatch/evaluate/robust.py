"""The paper's robust risk (Definition 1), measured: does any of K strong views of an image change its class?

`robust_error` counts an image wrong if it or any of its K views is misclassified; `robust_error_paper` looks at the K
views alone, as the definition with B_sem does. The views have a stream of their own and never disturb training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from maxmatch.augment.views import Views
from maxmatch.data.plan import Plan

CHUNK = 512  # images at a time
Predict = Callable[[Tensor], Tensor]  # uint8 images (N, C, H, W) -> labels (N,)


class Robust(NamedTuple):
    robust_error: float
    robust_error_paper: float


def robust_errors(
    predict: Predict,
    images: Tensor,
    labels: Tensor,
    views: Views,
    k: int,
    seed: int,
    told: Callable[[int], None] = lambda count: None,
) -> Robust:
    """Both robust errors in percent, over K strong views drawn by `seed`; `told` hears how many more are done."""
    wrong, clean = [], []
    parts = torch.split(images, CHUNK), torch.split(labels, CHUNK), _parts(images, views, k, Plan(seed), CHUNK)
    for x, y, seen in zip(*parts, strict=True):
        wrong.append(torch.stack([predict(view) != y for view in seen]).any(0))
        clean.append(predict(x) != y)
        told(len(x))
    any_view, itself = torch.cat(wrong), torch.cat(clean)
    return Robust(100 * (any_view | itself).double().mean().item(), 100 * any_view.double().mean().item())


def robust_views(images: Tensor, views: Views, k: int, plan: Plan, chunk: int = CHUNK) -> list[Tensor]:
    """K strong views (N, C, H, W) of the images, those of the evaluation stream."""
    return [torch.cat(view) for view in zip(*_parts(images, views, k, plan, chunk), strict=True)]


def _parts(images: Tensor, views: Views, k: int, plan: Plan, chunk: int) -> Iterator[list[Tensor]]:
    """The K views of `chunk` images, then of the next."""
    weak = _draws(plan, "weak", images, views.weak_uniforms)
    strong = [_draws(plan, str(view), images, views.strong_uniforms) for view in range(k)]
    for x, u_weak, *draws in zip(*(torch.split(whole, chunk) for whole in (images, weak, *strong)), strict=True):
        yield [views.strong_views(x, u[None], u_weak).images[0] for u in draws]


def _draws(plan: Plan, stream: str, images: Tensor, uniforms: int) -> Tensor:
    drawn = plan.uniforms(f"evaluate/robust/{stream}", 0, (len(images), uniforms))
    return torch.from_numpy(drawn).to(images.device)

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
    advance: Callable[[int], None] = lambda count: None,
) -> Robust:
    """Both robust errors in percent, over K strong views drawn by `seed`; `advance` hears how many more are done."""
    parts = list(zip(torch.split(images, CHUNK), torch.split(labels, CHUNK), strict=True))
    passed, heard = 0, 0

    def wrong(x: Tensor, y: Tensor) -> Tensor:
        nonlocal passed, heard
        found = predict(x) != y
        passed += len(x)
        advance(passed // (k + 1) - heard)
        heard = passed // (k + 1)
        return found

    itself = torch.cat([wrong(x, y) for x, y in parts])
    any_view = torch.zeros_like(itself)
    for seen in _views(images, views, k, Plan(seed), CHUNK):
        any_view |= torch.cat([wrong(view, y) for view, (_, y) in zip(seen, parts, strict=True)])
    return Robust(100 * (any_view | itself).double().mean().item(), 100 * any_view.double().mean().item())


def robust_views(images: Tensor, views: Views, k: int, plan: Plan, chunk: int = CHUNK) -> Iterator[Tensor]:
    """K strong views (N, C, H, W) of the images, those of the evaluation stream, one after the other."""
    for seen in _views(images, views, k, plan, chunk):
        yield torch.cat(list(seen))


def _views(images: Tensor, views: Views, k: int, plan: Plan, chunk: int) -> Iterator[Iterator[Tensor]]:
    """The first view of `chunk` images, then of the next ones; then the second. Nothing is made before it is asked for.

    K may be in the thousands, so neither views nor their draws are held together.
    """
    weak = _draws(plan, "weak", images, views.weak_uniforms)
    for view in range(k):
        strong = _draws(plan, str(view), images, views.strong_uniforms)
        parts = zip(*(torch.split(whole, chunk) for whole in (images, strong, weak)), strict=True)
        yield (views.strong_views(x, u[None], u_weak).images[0] for x, u, u_weak in parts)


def _draws(plan: Plan, stream: str, images: Tensor, uniforms: int) -> Tensor:
    drawn = plan.uniforms(f"evaluate/robust/{stream}", 0, (len(images), uniforms))
    return torch.from_numpy(drawn).to(images.device, copy=True)  # the plan draws for 32 steps: the others are let go

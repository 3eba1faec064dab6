"""One unlabelled batch becomes its weak views and its K strong ones.

The paper writes a strong variant as B_sem(A_w(x)), a change of the weak view; every implementation, and
`shared_crop=False` here, gives each strong variant its own flip and shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from maxmatch.augment.ctaugment import CTAugment
from maxmatch.augment.ops import Path
from maxmatch.augment.policy import Weak


class Policy(Protocol):
    """A strong policy: uniforms become a draw, whose op (B, N) indexes `OPS`; a draw changes pixels and has names."""

    @property
    def uniforms(self) -> int:
        """How many uniform numbers one image needs."""

    def sample(self, u: Tensor, size: tuple[int, int]) -> Any: ...

    def apply(self, images: Tensor, draw: Any, path: Path = "auto") -> Tensor: ...

    def describe(self, draw: Any) -> list[list[str]]: ...


class Strong(NamedTuple):
    """Strong views: images (K, B, C, H, W), and behind them op (K, B, N), indices into `OPS`."""

    images: Tensor
    op: Tensor


@dataclass(frozen=True)
class Views:
    """Weak and strong views of a batch; `shared_crop` places the strong ones like the first weak one.

    >>> import torch
    >>> from maxmatch.augment import PRESETS
    >>> views = Views(Weak(), PRESETS["fixmatch"])
    >>> images = torch.zeros(5, 3, 32, 32, dtype=torch.uint8)
    >>> views.strong_views(images, torch.rand(3, 5, views.strong_uniforms)).images.shape
    torch.Size([3, 5, 3, 32, 32])
    """

    weak: Weak
    strong: Policy
    shared_crop: bool = False

    @property
    def learner(self) -> CTAugment | None:
        """The strong policy if it is one that learns."""
        return self.strong if isinstance(self.strong, CTAugment) else None

    def to(self, device: torch.device) -> Views:
        """These views, with what the policy has learned moved to the device of the images."""
        if self.learner is not None:
            self.learner.learned.to(device)
        return self

    @property
    def weak_uniforms(self) -> int:
        """How many uniform numbers one weak view of one image needs."""
        return self.weak.uniforms

    @property
    def strong_uniforms(self) -> int:
        """How many uniform numbers one strong view of one image needs: its placement's, then the policy's."""
        return self.weak.uniforms + self.strong.uniforms

    @property
    def probe_uniforms(self) -> int:
        """How many a probe of one labelled image needs: 0 where the policy has nothing to learn."""
        return self.learner.probe_uniforms if self.learner is not None else 0

    def uniforms(self, kind: Literal["weak", "strong"]) -> int:
        return self.weak_uniforms if kind == "weak" else self.strong_uniforms

    def weak_views(self, images: Tensor, u: Tensor) -> Tensor:
        """V weak views (V, B, C, H, W) of images (B, C, H, W) from uniforms u (V, B, 3)."""
        batch = _repeat(images, len(u))
        placement = self.weak.sample(u.flatten(0, 1), (images.shape[2], images.shape[3]))
        return self.weak.apply(batch, placement).view(len(u), *images.shape)

    def strong_views(self, images: Tensor, u: Tensor, u_weak: Tensor | None = None, path: Path = "auto") -> Strong:
        """K strong views of images (B, C, H, W) from uniforms u (K, B, R), done as one batch of K * B.

        Each is flipped and shifted by its own first 3 uniforms, or, with `shared_crop`, by u_weak (B, 3).
        """
        count, size = len(u), (images.shape[2], images.shape[3])
        flat = u.flatten(0, 1)
        if self.shared_crop:
            if u_weak is None:
                raise ValueError("shared_crop places the strong views like the weak one: pass u_weak (B, 3)")
            placement = self.weak.sample(_repeat(u_weak, count), size)
        else:
            placement = self.weak.sample(flat[:, : self.weak.uniforms], size)
        draw = self.strong.sample(flat[:, self.weak.uniforms :], size)
        changed = self.strong.apply(self.weak.apply(_repeat(images, count), placement), draw, path)
        return Strong(changed.view(count, *images.shape), draw.op.view(count, len(images), draw.op.shape[1]))


def _repeat(batch: Tensor, count: int) -> Tensor:
    return batch.expand(count, *batch.shape).flatten(0, 1)

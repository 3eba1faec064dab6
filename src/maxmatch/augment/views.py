"""One unlabelled batch becomes its weak views and its K strong ones.

The paper writes a strong variant as B_sem(A_w(x)), a change of the weak view; every implementation, and
`shared_crop=False` here, gives each strong variant its own flip and shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from maxmatch.augment.crop import ResizedCrop
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

    With `ResizedCrop` as the weak view images are slots, and `sizes` (B, 2) says how much of each is picture: all of it
    where nothing is said.

    >>> import torch
    >>> from maxmatch.augment import PRESETS
    >>> views = Views(Weak(), PRESETS["fixmatch"])
    >>> images = torch.zeros(5, 3, 32, 32, dtype=torch.uint8)
    >>> views.strong_views(images, torch.rand(3, 5, views.strong_uniforms)).images.shape
    torch.Size([3, 5, 3, 32, 32])
    """

    weak: Weak | ResizedCrop
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

    def weak_views(self, images: Tensor, u: Tensor, sizes: Tensor | None = None) -> Tensor:
        """V weak views (V, B, C, H, W) of images (B, C, H, W) from uniforms u (V, B, R)."""
        if isinstance(self.weak, ResizedCrop):  # slots are large: one view after the other, none of them copied
            parts = [self.weak.sample(draw, _whole(images) if sizes is None else sizes) for draw in u]
            return torch.stack([self.weak.apply(images, part) for part in parts])
        placement = self.weak.sample(u.flatten(0, 1), (images.shape[2], images.shape[3]))
        return self.weak.apply(_repeat(images, len(u)), placement).view(len(u), *images.shape)

    def strong_views(
        self,
        images: Tensor,
        u: Tensor,
        u_weak: Tensor | None = None,
        path: Path = "auto",
        sizes: Tensor | None = None,
    ) -> Strong:
        """K strong views of images (B, C, H, W) from uniforms u (K, B, R), done as one batch of K * B.

        Each is placed by its own first uniforms, as many as a weak view has, or, with `shared_crop`, by u_weak (B, R).
        """
        if self.shared_crop and u_weak is None:
            raise ValueError("shared_crop places the strong views like the weak one: pass u_weak")
        places = u[..., : self.weak.uniforms]
        if self.shared_crop and u_weak is not None:
            places = u_weak.expand_as(places)
        placed = self.weak_views(images, places, sizes)
        size = (placed.shape[3], placed.shape[4])
        draw = self.strong.sample(u[..., self.weak.uniforms :].flatten(0, 1), size)
        changed = self.strong.apply(placed.flatten(0, 1), draw, path)
        return Strong(changed.view(placed.shape), draw.op.view(*placed.shape[:2], draw.op.shape[1]))


def _whole(images: Tensor) -> Tensor:
    sides = [torch.full((len(images),), side, dtype=torch.int32, device=images.device) for side in images.shape[2:]]
    return torch.stack(sides, 1)


def _repeat(batch: Tensor, count: int) -> Tensor:
    return batch.expand(count, *batch.shape).flatten(0, 1)

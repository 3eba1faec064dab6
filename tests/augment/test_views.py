"""Weak and strong views of a batch: their order, their independence, and the shared crop."""

from __future__ import annotations

import pytest
import torch
from pil_oracle import pictures
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from maxmatch.augment import PRESETS, Views, Weak, randaugment

SIZE = (17, 40)


def uniforms(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_weak_views_are_the_weak_augmentation_of_each_row() -> None:
    views = Views(Weak(), PRESETS["fixmatch"])
    images = pictures(3, *SIZE)
    u = uniforms(2, len(images), views.weak_uniforms)
    out = views.weak_views(images, u)
    assert out.shape == (2, *images.shape)
    for view in range(2):
        placement = views.weak.sample(u[view], SIZE)
        assert torch.equal(out[view], views.weak.apply(images, placement))
    assert not torch.equal(out[0], out[1])


@pytest.mark.parametrize("preset", PRESETS)
def test_a_strong_view_is_its_own_placement_then_the_policy(preset: str) -> None:
    views = Views(Weak(), PRESETS[preset])
    images = pictures(3, *SIZE)
    u = uniforms(3, len(images), views.strong_uniforms)
    strong = views.strong_views(images, u)
    assert strong.op.shape == (3, len(images), views.strong.n)
    for view in range(3):
        placed = views.weak.apply(images, views.weak.sample(u[view, :, :3], SIZE))
        draw = views.strong.sample(u[view, :, 3:], SIZE)
        assert torch.equal(strong.images[view], views.strong.apply(placed, draw))
        assert torch.equal(strong.op[view], draw.op)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_view_does_not_depend_on_how_many_there_are(preset: str) -> None:
    views = Views(Weak(), PRESETS[preset])
    images = pictures(1, *SIZE)
    u = uniforms(3, len(images), views.strong_uniforms)
    three, one = views.strong_views(images, u), views.strong_views(images, u[:1])
    assert torch.equal(three.images[0], one.images[0])
    assert torch.equal(three.op[0], one.op[0])
    assert not torch.equal(three.images[0], three.images[1])


def test_shared_crop_places_every_variant_like_the_weak_view() -> None:
    nothing = randaugment("fixmatch", p=0.0, cutout=0)
    images = pictures(3, *SIZE)
    shared, own = Views(Weak(), nothing, shared_crop=True), Views(Weak(), nothing)
    u, u_weak = uniforms(3, len(images), shared.strong_uniforms), uniforms(2, len(images), 3, seed=1)
    weak = shared.weak_views(images, u_weak)[0]
    assert torch.equal(shared.strong_views(images, u, u_weak[0]).images, weak.expand(3, *weak.shape))
    assert not torch.equal(own.strong_views(images, u, u_weak[0]).images[0], weak)
    with pytest.raises(ValueError, match="u_weak"):
        shared.strong_views(images, u)


def test_counts_of_uniforms() -> None:
    views = Views(Weak(), PRESETS["usb"])
    assert (views.weak_uniforms, views.strong_uniforms) == (3, 3 + 3 * 4 + 3)


def test_sampling_and_views_trace_without_reading_a_value() -> None:
    views = Views(Weak(), PRESETS["usb"], shared_crop=True)
    images = pictures(3, 8, 8)
    u, u_weak = uniforms(2, len(images), views.strong_uniforms), uniforms(len(images), 3)

    def both(x: Tensor, numbers: Tensor, weak: Tensor) -> tuple[Tensor, Tensor]:
        return views.strong_views(x, numbers, weak, path="dense").images, views.weak_views(x, weak[None])

    traced = make_fx(both, tracing_mode="fake")(images, u, u_weak)
    assert not [node for node in traced.graph.nodes if node.op == "get_attr"]
    other = uniforms(2, len(images), views.strong_uniforms, seed=9)
    for got, expected in zip(traced(images, other, u_weak), both(images, other, u_weak), strict=True):
        assert torch.equal(got, expected)

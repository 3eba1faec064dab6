"""Random parts of pictures in slots: torch's own bilinear resize is the oracle, to a grey level and a half."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from maxmatch.augment import PRESETS, Boxes, ResizedCrop, Views
from maxmatch.augment.crop import _resized
from maxmatch.errors import UsageError


def pictures(*sizes, slot=40):
    generator = torch.Generator().manual_seed(0)
    slots = torch.zeros(len(sizes), 3, slot, slot, dtype=torch.uint8)
    for place, (height, width) in zip(slots, sizes, strict=True):
        coarse = torch.rand(1, 3, 6, 6, generator=generator)
        place[:, :height, :width] = (255 * functional.interpolate(coarse, (height, width), mode="bilinear"))[0].to(
            torch.uint8
        )
    return slots, torch.tensor(sizes, dtype=torch.int32)


def boxes(*rows, flip=False):
    top, left, height, width = torch.tensor(rows, dtype=torch.int32).T
    return Boxes(top, left, height, width, torch.full((len(rows),), flip))


@pytest.mark.parametrize("flip", [False, True])
def test_a_box_is_resized_as_torch_does_it(flip):
    slots, _ = pictures((40, 30), (25, 40), (8, 8))
    chosen = [(5, 3, 30, 20), (0, 0, 25, 40), (1, 2, 7, 5)]
    made = ResizedCrop(16).apply(slots, boxes(*chosen, flip=flip))
    for slot, image, (top, left, height, width) in zip(slots, made, chosen, strict=True):
        part = slot[None, :, top : top + height, left : left + width].float()
        wanted = functional.interpolate(part, (16, 16), mode="bilinear", align_corners=False)[0]
        wanted = wanted.flip(2) if flip else wanted
        assert (image.float() - wanted).abs().max() < 1.5


def test_a_box_of_the_size_itself_is_copied():
    slots, _ = pictures((40, 40))
    assert torch.equal(ResizedCrop(16).apply(slots, boxes((3, 5, 16, 16)))[0], slots[0, :, 3:19, 5:21])


def test_boxes_lie_in_their_picture_and_have_the_area_and_shape_that_are_asked_for():
    torch.manual_seed(0)
    sizes = torch.tensor([[40, 30], [12, 40], [9, 9]], dtype=torch.int32).repeat(500, 1)
    crop = ResizedCrop(16, scale=(0.5, 0.8), shape=1.5)
    b = crop.sample(torch.rand(len(sizes), 5), sizes)
    assert (b.top >= 0).all()
    assert (b.left >= 0).all()
    assert (b.top + b.height <= sizes[:, 0]).all()
    assert (b.left + b.width <= sizes[:, 1]).all()
    square = sizes[:, 0] == 9
    share = (b.height * b.width)[square] / 81
    assert 0.4 < share.min() < share.max() < 0.9
    upright = sizes[:, 1] == 30
    log_ratio = (b.width / b.height)[upright].log()
    assert log_ratio.abs().max() < math.log(1.5) + 0.1
    assert abs(log_ratio.mean().item()) < 0.05
    assert {0, 1} <= set((b.top - (sizes[:, 0] - b.height)).clamp(-1).add(1).tolist())  # the last row is reached
    assert 0.4 < b.flip.double().mean() < 0.6


def test_a_box_by_hand():
    """Flip, area, shape, rows, columns: each has a number of its own."""
    u = torch.tensor([[0.9, 0.5, 0.75, 0.2, 0.97], [0.1, 0.5, 0.25, 0.97, 0.2]])
    b = ResizedCrop(16, scale=(0.05, 0.2), shape=4.0).sample(u, torch.tensor([[40, 40], [40, 40]]))
    # An eighth of 1600 pixels at a ratio of 4^(1/2) = 2: 10 by 20, and one of the 31 and of the 21 places there are.
    assert torch.stack(b[:4], 1).tolist() == [[6, 20, 10, 20], [20, 6, 20, 10]]
    assert b.flip.tolist() == [False, True]


def test_a_picture_of_one_pixel_is_shown_whole():
    b = ResizedCrop(16, scale=(0.1, 0.1)).sample(torch.rand(8, 5), torch.ones(8, 2))
    assert torch.stack(b[:4], 1).unique(dim=0).tolist() == [[0, 0, 1, 1]]


def test_views_of_slots_show_the_picture_and_nothing_of_the_slot():
    slots, sizes = pictures((40, 20), (15, 40))
    for slot, (height, width) in zip(slots, sizes.tolist(), strict=True):
        slot.clamp_(min=1)
        slot[:, height:] = 0
        slot[:, :, width:] = 0
    torch.manual_seed(0)
    views = Views(ResizedCrop(16), PRESETS["fixmatch"])
    weak = views.weak_views(slots, torch.rand(50, 2, views.weak_uniforms), sizes)
    assert weak.shape == (50, 2, 3, 16, 16)
    assert weak.min() > 0
    strong = views.strong_views(slots, torch.rand(3, 2, views.strong_uniforms), sizes=sizes)
    assert strong.images.shape == (3, 2, 3, 16, 16)
    whole = views.weak_views(slots, torch.rand(50, 2, views.weak_uniforms))
    assert (whole == 0).any()


def test_strong_views_may_share_the_weak_crop():
    slots, sizes = pictures((40, 20), (15, 40))
    views = Views(ResizedCrop(16), PRESETS["fixmatch"], shared_crop=True)
    u, u_weak = torch.rand(3, 2, views.strong_uniforms), torch.rand(2, views.weak_uniforms)
    shared = views.strong_views(slots, u, u_weak, sizes=sizes).images
    (weak,) = views.weak_views(slots, u_weak[None], sizes)
    draw = views.strong.sample(u[..., views.weak_uniforms :].flatten(0, 1), (16, 16))
    assert torch.equal(shared.flatten(0, 1), views.strong.apply(weak.repeat(3, 1, 1, 1), draw))


def test_the_middle_is_the_largest_square():
    b = ResizedCrop(16).centre(torch.tensor([[40, 30], [12, 41]]))
    assert torch.stack(b[:4], 1).tolist() == [[5, 0, 30, 30], [0, 14, 12, 12]]
    b = ResizedCrop(16).centre(torch.tensor([[25, 40], [31, 27]]), 0.875)  # 21.9 and 23.6 pixels
    assert torch.stack(b[:4], 1).tolist() == [[1, 9, 22, 22], [3, 1, 24, 24]]


def test_a_scale_that_is_none():
    with pytest.raises(UsageError, match="the smaller first"):
        ResizedCrop(16, scale=(0.9, 0.1))


def test_the_middle_is_no_random_part_and_only_mirrored():
    """Oracle: the middle cut out with numpy, 7/8 of the short side."""
    pictures = torch.randint(0, 256, (6, 3, 40, 40), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    sizes = torch.tensor([[16, 24], [32, 16], [40, 40], [8, 8], [24, 40], [16, 16]])
    for flip in (True, False):
        crop = ResizedCrop(side=14, middle=0.875, flip=flip)
        u = torch.rand(6, 5, generator=torch.Generator().manual_seed(1))
        u[:, 0] = torch.tensor([0.1, 0.9, 0.1, 0.9, 0.1, 0.9])  # below 1/2 is mirrored
        views = crop.apply(pictures, crop.sample(u, sizes))
        again = crop.apply(pictures, crop.sample(torch.cat([u[:, :1], torch.rand(6, 4)], 1), sizes))
        assert torch.equal(views, again)  # of what is drawn the flip alone matters
        for number, (height, width) in enumerate(sizes.tolist()):
            side = round(0.875 * min(height, width))
            top, left = (height - side) // 2, (width - side) // 2
            part = pictures[number, :, top : top + side, left : left + side]
            if flip and number % 2 == 0:
                part = part.flip(2)
            if side == 14:  # nothing to resize
                assert torch.equal(views[number], part)
            whole = ResizedCrop(side=14, scale=(1.0, 1.0), shape=1.0, flip=False)
            slot = torch.zeros(1, 3, 40, 40, dtype=torch.uint8)
            slot[0, :, :side, :side] = part
            alone = whole.apply(slot, whole.centre(torch.tensor([[side, side]])))[0]
            assert (alone.int() - views[number].int()).abs().max() <= 1  # mirrored before or after resizing


def test_a_side_and_a_picture_in_the_thousands_are_resized_without_overflow():
    ramp = (torch.arange(6000) * 255 // 5999).to(torch.uint8).expand(1, 1, 1, 6000)
    row = _resized(ramp, *(torch.tensor([n], dtype=torch.int32) for n in (0, 6000)), 768, torch.tensor([False]))
    assert (row.flatten().int().diff() >= 0).all()
    assert row.flatten()[[0, 383, -1]].tolist() == [0, 127, 254]

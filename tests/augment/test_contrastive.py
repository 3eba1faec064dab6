"""MoCo v2's augmentations: torchvision's operations on PIL pictures are the oracle, equal to the pixel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from pil_oracle import pictures
from torchvision.transforms import functional

from maxmatch.augment import CONTRASTIVE, ResizedCrop, Views, strong_policy
from maxmatch.augment.contrastive import JITTERS, Contrastive
from maxmatch.augment.photometry import gaussian_blur, turn_hue
from maxmatch.errors import UsageError

MOCO = CONTRASTIVE["moco"]


def to_pil(image):
    return Image.fromarray(image.permute(1, 2, 0).squeeze(2).contiguous().numpy())


def from_pil(picture):
    array = np.array(picture)
    return torch.from_numpy(array.reshape(*array.shape[:2], -1)).permute(2, 0, 1)


def by_pil(image, order, factors, grey, sigma):
    """One image (C, H, W) changed by torchvision and PIL, in the order drawn."""
    picture = to_pil(image)
    adjust = [
        functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation, functional.adjust_hue,
    ]  # fmt: skip
    for number in order:
        if number >= 0:
            picture = adjust[number](picture, factors[number])
    if grey:
        picture = functional.to_grayscale(picture, num_output_channels=image.shape[0])
    return from_pil(picture.filter(ImageFilter.GaussianBlur(sigma)) if sigma else picture)


def uniforms(count, seed=0):
    return torch.rand(count, Contrastive.uniforms, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("path", ["dense", "grouped"])
@pytest.mark.parametrize("channels", [3, 1])
def test_a_drawn_batch_equals_pil_on_each_picture(channels, path):
    images = torch.cat([pictures(channels, 20, 17, seed) for seed in range(8)])
    draw = MOCO.sample(uniforms(len(images)), (20, 17))
    changed = MOCO.apply(images, draw, path)
    assert not torch.equal(changed, images)
    for number, image in enumerate(images):
        values = [part[number].tolist() for part in draw[1:]]
        assert torch.equal(changed[number], by_pil(image, *values)), (number, values)


def test_hue_of_every_colour_equals_pil():
    levels = torch.tensor([0, 1, 2, 50, 85, 100, 127, 128, 170, 171, 200, 254, 255], dtype=torch.uint8)
    colours = torch.cartesian_prod(levels, levels, levels).T.reshape(1, 3, 13, -1)
    for turn in (-0.5, -0.1, -0.003, 0.0, 0.0333, 0.1, 0.4999):
        expected = from_pil(functional.adjust_hue(to_pil(colours[0]), turn))
        assert torch.equal(turn_hue(colours, torch.tensor([turn], dtype=torch.float64))[0], expected), turn


def test_blur_of_every_width_equals_pil():
    images = pictures(3, 9, 14)[[0, 5, 6]]
    for sigma in (0.1, 0.3, 0.577, 0.9, 1.0, 1.41, 1.7, 2.0, *np.random.default_rng(0).uniform(0.1, 2, 40).tolist()):
        blurred = gaussian_blur(images, torch.full((3,), sigma), largest=2.0)
        for image, found in zip(images, blurred, strict=True):
            assert torch.equal(found, from_pil(to_pil(image).filter(ImageFilter.GaussianBlur(sigma)))), sigma


def test_probabilities_ranges_and_orders_are_the_paper_s():
    many = 40_000
    draw = MOCO.sample(uniforms(many), (32, 32))
    jittered = draw.order[:, 0] >= 0
    for found, wanted in ((jittered, 0.8), (draw.grey, 0.2), (draw.sigma > 0, 0.5)):
        assert found.float().mean().item() == pytest.approx(wanted, abs=0.01)
    assert torch.equal(jittered, (draw.order >= 0).all(1))
    for number in range(3):
        low, high = draw.factor[:, number].aminmax()
        assert (low.item(), high.item()) == pytest.approx((0.6, 1.4), abs=1e-3)
    low, high = draw.factor[:, 3].aminmax()
    assert (low.item(), high.item()) == pytest.approx((-0.1, 0.1), abs=1e-3)
    low, high = draw.sigma[draw.sigma > 0].aminmax()
    assert (low.item(), high.item()) == pytest.approx((0.1, 2.0), abs=1e-3)
    orders, counts = draw.order[jittered].unique(dim=0, return_counts=True)
    assert [tuple(order) for order in orders.tolist()] == sorted(itertools.permutations(range(4)))
    assert counts.float().std() < 0.06 * counts.float().mean()  # 4 standard deviations of a fair draw: .11
    assert (MOCO.sample(uniforms(9), (8, 8)).factor.std(0) > 0).all()  # each image has its own


def test_small_pictures_are_not_blurred_and_words_say_what_was_done():
    draw = CONTRASTIVE["moco-small"].sample(uniforms(500), (8, 8))
    assert (draw.sigma == 0).all()
    u = torch.tensor([[0.1, 0.3, 0.1, 0.4, 0.2, 0.5, 0.75, 1.0, 0.0, 0.1, 0.2, 0.6], [0.9] * 12])
    first, second = MOCO.describe(MOCO.sample(u, (8, 8)))
    assert first == ["contrast 1.2", "hue -0.1", "brightness 1", "saturation 1.4", "grey", "blur 1.2"]
    assert second == []
    assert JITTERS[3] == "hue"


def test_a_blur_and_a_grey_picture_are_drawn_apart_from_each_other():
    u = torch.full((2, Contrastive.uniforms), 0.9)
    u[0, 9] = u[1, 10] = 0.1
    draw = MOCO.sample(u, (8, 8))
    assert draw.grey.tolist() == [True, False]
    assert draw.sigma.tolist() == pytest.approx([0, 0.1 + 1.9 * 0.9])


def test_it_is_a_policy_by_name_and_views_of_it_are_crops_of_the_image_s_own_size():
    views = Views(ResizedCrop(None, scale=(0.2, 1.0)), strong_policy("moco"))
    images = pictures(3, 16, 12)
    u = torch.rand(2, len(images), views.strong_uniforms)
    made = views.strong_views(images, u)
    assert made.images.shape == (2, *images.shape)
    assert made.op.shape == (2, len(images), 0)
    sides = Views(ResizedCrop(16, scale=(0.2, 1.0)), strong_policy("moco"))
    square = pictures(3, 16, 16)
    assert torch.equal(views.strong_views(square, u).images, sides.strong_views(square, u).images)
    with pytest.raises(UsageError, match="cutout = 3: policy moco has its own"):
        strong_policy("moco", cutout=3)
    with pytest.raises(UsageError, match="did you mean 'moco'"):
        strong_policy("moc")
    with pytest.raises(UsageError, match="blur = 2 is not a probability"):
        Contrastive("mine", blur=2)

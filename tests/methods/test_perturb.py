"""MixUp and Gaussian noise by hand."""

from __future__ import annotations

import pytest
import torch

from maxmatch.methods.base import Mix
from maxmatch.methods.perturb import mixed, mixed_up, noisy


class Run:
    """One rank, whose images are pixels."""

    def gather(self, value):
        return value

    share = pixels = gather

    def noise(self, images):
        return torch.randn_like(images)


def test_images_are_mixed_one_by_one():
    one, other = torch.zeros(2, 1, 2, 2), torch.ones(2, 1, 2, 2)
    found = mixed(one, other, torch.tensor([0.25, 1.0]))
    assert found[0].unique().tolist() == [0.75]
    assert found[1].unique().tolist() == [0.0]


def test_a_set_is_mixed_with_its_own_shuffle_and_each_image_stays_nearest_to_itself():
    images, targets = torch.tensor([[0.0], [10.0], [20.0]]), torch.eye(3)
    order = torch.tensor([0.9, 0.1, 0.5, 0.0])  # more than three were drawn: the first three count
    weight = torch.tensor([0.2, 0.5, 1.0, 0.7])
    found, taught = mixed_up(Run(), [images[:1], images[1:]], [targets[:1], targets[1:]], Mix(order, weight))
    # argsort of .9 .1 .5 is 1 2 0: image 0 meets image 1, 1 meets 2, 2 meets 0; .2 counts as .8
    assert found.flatten().tolist() == pytest.approx([0.8 * 0 + 0.2 * 10, 0.5 * 10 + 0.5 * 20, 20])
    assert taught.flatten().tolist() == pytest.approx([0.8, 0.2, 0, 0, 0.5, 0.5, 0, 0, 1])


def test_noise_has_its_deviation_and_is_new_at_each_call():
    torch.manual_seed(0)
    pixels = torch.full((4, 3, 64, 64), 0.5)
    one, two = noisy(Run(), pixels, 0.15), noisy(Run(), pixels, 0.15)
    assert one.mean().item() == pytest.approx(0.5, abs=0.005)
    assert one.std().item() == pytest.approx(0.15, rel=0.02)
    assert abs(torch.corrcoef(torch.stack([one.flatten(), two.flatten()]))[0, 1].item()) < 0.02

"""Shuffling BatchNorm with a group of threads: dealt over the ranks by the plan's permutation, and dealt back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch

from maxmatch.pretrain.shuffle import parts_of, shuffled_pass

RANKS, EACH = 3, 4


class Group:
    """As many threads as ranks; `gather` waits for all of them."""

    def __init__(self):
        self.held, self.barrier = [None] * RANKS, Barrier(RANKS, timeout=20)

    def gather(self, rank):
        def everyone(value):
            self.held[rank] = value
            self.barrier.wait()
            found = torch.cat(self.held)
            self.barrier.wait()
            return found

        return everyone


def run(forward, images, u):
    group = Group()

    def rank(number):
        mine = images[number * EACH : (number + 1) * EACH]
        return shuffled_pass(forward, mine, u, number, RANKS, group.gather(number))

    with ThreadPoolExecutor(RANKS) as pool:
        return torch.cat(list(pool.map(rank, range(RANKS))))


def make():
    generator = torch.Generator().manual_seed(3)
    shape = (RANKS * EACH, 5)
    return torch.randn(shape, generator=generator, dtype=torch.float64), torch.rand(shape[0], generator=generator)


def test_what_looks_at_one_image_is_not_changed_by_the_shuffle():
    images, u = make()
    assert torch.equal(run(lambda x: 2 * x + 1, images, u), 2 * images + 1)


def test_what_looks_at_the_batch_sees_the_batches_of_the_permutation():
    images, u = make()
    order = np.argsort(u.numpy(), kind="stable")
    expected = np.empty(images.shape)
    for place in order.reshape(RANKS, EACH):  # the images that meet on one rank
        expected[place] = images.numpy()[place] - images.numpy()[place].mean(0)
    found = run(lambda x: x - x.mean(0), images, u)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)
    alone = torch.cat([part - part.mean(0) for part in images.split(EACH)])
    assert not torch.allclose(found, alone)


def test_one_rank_normalises_the_companies_of_the_permutation():
    images, u = make()
    order = np.argsort(u.numpy(), kind="stable")
    expected = np.empty(images.shape)
    for company in (order[0::5], order[1::5], order[2::5], order[3::5], order[4::5]):  # 12 images: of three and of two
        expected[company] = images.numpy()[company] - images.numpy()[company].mean(0)
    found = shuffled_pass(lambda x: x - x.mean(0), images, u, 0, 1, gather=None, parts=5)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)


def test_synchronised_ranks_make_the_companies_of_one_process():
    """Each rank passes its parts; part by part all ranks are normalised together, as by synchronised BatchNorm."""
    images, u = make()
    group, together = Group(), Group()

    def rank(number):
        gather = together.gather(number)
        mine = images[number * EACH : (number + 1) * EACH]
        forward = lambda x: x - gather(x).mean(0)  # noqa: E731
        return shuffled_pass(forward, mine, u, number, RANKS, group.gather(number), parts=2)

    with ThreadPoolExecutor(RANKS) as pool:
        found = torch.cat(list(pool.map(rank, range(RANKS))))
    alone = shuffled_pass(lambda x: x - x.mean(0), images, u, 0, 1, gather=None, parts=2)
    torch.testing.assert_close(found, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("images", "ranks", "companies", "wanted", "parts"),
    [
        (256, 1, 1, 8, 8),  # one GPU
        (32, 8, 8, 8, 1),  # the paper's eight
        (128, 2, 2, 8, 4),
        (128, 2, 1, 8, 8),  # synchronised: a part is one of all ranks
        (85, 3, 3, 8, 3),  # nine companies are no fewer than eight
        (12, 1, 1, 8, 6),  # at least two images in each
        (6, 2, 1, 8, 6),  # the same with two ranks
        (1, 1, 1, 8, 1),
        (2, 8, 1, 8, 2),  # synchronised: a rank has an image for each part
        (256, 1, 1, 1, 1),
    ],
)
def test_how_many_parts(images, ranks, companies, wanted, parts):
    assert parts_of(images, ranks, companies, wanted) == parts


def test_parts_hide_whose_company_a_key_kept():
    """A query and its key are told by the mean of their company alone: 1 where both have the whole batch, else less.

    The means of B numbers and of B / P of them correlate by 1 / sqrt(P).
    """
    rng = np.random.default_rng(0)
    signs = {1: [], 8: []}
    for _ in range(1500):
        images, u = torch.from_numpy(rng.normal(size=(64, 1))), torch.from_numpy(rng.random(64))
        for parts, seen in signs.items():
            company = shuffled_pass(lambda x: x.mean(0).expand(len(x), 1), images, u, 0, 1, gather=None, parts=parts)
            seen.append((images.mean().item(), company[0].item()))
    whole, apart = (np.corrcoef(np.array(seen).T)[0, 1] for seen in signs.values())
    assert whole > 0.999
    assert apart == pytest.approx(8**-0.5, abs=0.08)


def test_one_rank_asks_nobody_and_keeps_its_order():
    images, u = make()
    seen = []
    made = shuffled_pass(lambda x: seen.append(x) or x, images, u, 0, 1, gather=None)
    assert made is images
    assert seen[0] is images

"""Shuffling BatchNorm with a group of threads: dealt over the ranks by the plan's permutation, and dealt back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import torch

from maxmatch.pretrain.shuffle import shuffled_pass

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


def test_one_rank_asks_nobody_and_keeps_its_order():
    images, u = make()
    seen = []
    made = shuffled_pass(lambda x: seen.append(x) or x, images, u, 0, 1, gather=None)
    assert made is images
    assert seen[0] is images

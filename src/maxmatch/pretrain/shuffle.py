"""Shuffling BatchNorm (MoCo, section 3.3): keys are normalised among other images than their queries.

Where each rank normalises its own images, a query and its key would share their company, and the net could tell a pair
by its batch statistics. So the images of the keys are dealt anew over the ranks, and the keys dealt back. With one rank
the company is the same in any order, and nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Gather = Callable[[Tensor], Tensor]  # this rank's (B, ...) to everyone's (ranks * B, ...), rank by rank


def shuffled_pass(
    forward: Callable[[Tensor], Tensor], images: Tensor, u: Tensor, rank: int, ranks: int, gather: Gather
) -> Tensor:
    """What `forward` makes of this rank's images (B, ...), in batches mixed over the ranks by uniforms u (ranks * B,).

    u is of the plan, so all ranks have the same; argsort makes a permutation of it.
    """
    if ranks == 1:
        return forward(images)
    order = u.argsort()
    mine = order.view(ranks, -1)
    made = gather(forward(gather(images)[mine[rank]]))  # in the order dealt
    back = order.argsort().view(ranks, -1)
    return made[back[rank]]

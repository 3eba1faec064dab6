"""Shuffling BatchNorm (MoCo, section 3.3): keys are normalised among other images than their queries.

Images that are normalised together share their batch statistics. Where a query and its key do, and the keys of the
queue do not, the net can tell a pair by them and need not look at the images. So the images of the keys are dealt anew
by a permutation: over the ranks, and on each rank into parts that pass one by one, as on several GPUs; then the keys
are dealt back. With one part on one rank nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Gather = Callable[[Tensor], Tensor]  # this rank's (B, ...) to everyone's (ranks * B, ...), rank by rank
Pass = Callable[[Tensor], Tensor]


def shuffled_pass(
    forward: Pass, images: Tensor, u: Tensor, rank: int, ranks: int, gather: Gather, parts: int = 1
) -> Tensor:
    """What `forward` makes of this rank's images (B, ...), in `parts` mixed over the ranks by uniforms u (ranks * B,).

    u is of the plan, so all ranks have the same; argsort makes a permutation of it.
    """
    if ranks == 1 and parts == 1:
        return forward(images)
    order = u.argsort()
    everyone = images if ranks == 1 else gather(images)
    made = in_parts(forward, everyone[order.view(ranks, -1)[rank]], parts)
    made = made if ranks == 1 else gather(made)  # in the order dealt
    return made[order.argsort().view(ranks, -1)[rank]]


def in_parts(forward: Pass, images: Tensor, parts: int) -> Tensor:
    """What `forward` makes of every `parts`-th image from the first on, from the second on, ..., in the images' order.

    With synchronised BatchNorm several ranks thus form the same companies as one process does, if `parts` divides the
    number of images of each rank.
    """
    made = [forward(images[first::parts]) for first in range(parts)]
    whole = made[0].new_empty(len(images), *made[0].shape[1:])
    for first, part in enumerate(made):
        whole[first::parts] = part
    return whole


def parts_of(images: int, ranks: int, companies: int, wanted: int) -> int:
    """In how many parts a rank with so many images passes them, so that all ranks make `wanted` companies of them.

    `companies` is how many they make as it is. A company has at least two images.

    >>> parts_of(256, ranks=1, companies=1, wanted=8), parts_of(64, ranks=4, companies=4, wanted=8)
    (8, 2)
    """
    return max(1, min(-(-wanted // companies), images, images * ranks // companies // 2))

"""The plan: everything random in a step is a pure function of (seed, step, stream name).

Image indices, K and every augmentation parameter are drawn here on the host, for the whole batch, by a counter-based
generator, and nowhere else. Hence a run can be resumed from its step number alone; eager, compiled and captured steps
see the same numbers; a view can be replayed; and evaluation, which has streams of its own, never disturbs training.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

BLOCK = 32  # steps drawn at a time: the generator's set-up is paid once a block


class Plan:
    """The draws of one seed.

    >>> plan = Plan(seed=1)
    >>> bool((plan.uniforms("weak", 7, (2,)) == Plan(1).uniforms("weak", 7, (2,))).all())
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._order = functools.lru_cache(maxsize=8)(self._draw_order)

    def uniforms(self, stream: str, step: int, shape: Sequence[int]) -> Floats:
        """Numbers in [0, 1) of the given shape for one step of a stream."""
        number, row = divmod(step, BLOCK)
        drawn: Floats = self.block(stream, number, shape)[row]
        return drawn

    def block(self, stream: str, number: int, shape: Sequence[int]) -> Floats:
        """The same for all steps of a block, (BLOCK, *shape)."""
        drawn = self._generator(stream, number).random((BLOCK, math.prod(shape)), dtype=np.float32)
        return drawn.reshape(BLOCK, *shape)

    def betas(self, stream: str, number: int, count: int, alpha: float) -> Floats:
        """Numbers of Beta(alpha, alpha) for all steps of a block, (BLOCK, count): more of them begin with the same."""
        return self._generator(f"{stream}/beta", number).beta(alpha, alpha, (count, BLOCK)).astype(np.float32).T

    def indices(self, stream: str, step: int, batch: int, n: int) -> Indices:
        """The step's `batch` positions in an endless stream over n images, shuffled anew each time round."""
        first = step * batch
        positions = np.arange(first, first + batch)
        rounds = positions // n
        drawn = np.empty(batch, np.int64)
        for turn in range(int(rounds[0]), int(rounds[-1]) + 1):
            here = rounds == turn
            drawn[here] = self._order(stream, turn, n)[positions[here] % n]
        return drawn

    def choice(self, stream: str, step: int, choices: Sequence[tuple[int, float]]) -> int:
        """One of the (value, probability) pairs, by inverse distribution."""
        return pick(float(self.uniforms(stream, step, ())) if len(choices) > 1 else 0.0, choices)

    def _draw_order(self, stream: str, turn: int, n: int) -> Indices:
        return self._generator(f"{stream}/order", turn).permutation(n)

    def _generator(self, stream: str, counter: int) -> np.random.Generator:
        key = np.frombuffer(hashlib.sha256(f"{self.seed}/{stream}".encode()).digest()[:16], np.uint64)
        return np.random.Generator(np.random.Philox(counter=[0, 0, counter, 0], key=key))


def pick(u: float, choices: Sequence[tuple[int, float]]) -> int:
    """The value whose part of [0, 1), as long as its probability, u lies in.

    >>> [pick(u, [(3, 0.25), (1, 0.75)]) for u in (0.0, 0.2, 0.25, 0.99)]
    [3, 3, 1, 1]
    """
    for value, probability in choices:
        u -= probability
        if u < 0:
            return value
    return choices[-1][0]

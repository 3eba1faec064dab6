"""Pictures that are read anew in every step: threads decode ahead of the plan, and the step finds them in one place.

The tensors that a step reads stay where they are, so a captured graph can be replayed; what arrives in them follows the
plan, however many threads there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from maxmatch.data.files import Files
from maxmatch.data.plan import BLOCK
from maxmatch.train.draws import Draws
from maxmatch.train.stages import Stages

AHEAD = 4  # steps whose pictures are on their way
Read = Future[tuple[Tensor, tuple[int, int]]]


class Feed:
    """The slots and sizes of a step's labelled and unlabelled pictures; `load` fills them."""

    def __init__(
        self, files: Files, places: dict[str, npt.NDArray[np.int64]], draws: Draws, device: torch.device
    ) -> None:
        """`places` are the positions among the files of the pictures of each pool that is read."""
        self.files, self.places, self.draws, self.device = files, places, draws, device
        self._pool = ThreadPoolExecutor(files.workers)
        self._coming: deque[tuple[int, dict[str, list[Read]]]] = deque()
        self._pinned = device.type == "cuda"
        self.stages = Stages(files.workers, device)
        self._block: tuple[int, dict[str, npt.NDArray[np.int64]]] = (-1, {})
        self.slots: dict[str, Tensor] = {}
        self.sizes: dict[str, Tensor] = {}
        self.images = sum(draws.pools[name][0] for name in places)  # a step
        for name in places:
            batch, _ = draws.pools[name]
            shape = (batch, files.channels, files.slot, files.slot)
            self.slots[name] = torch.zeros(shape, dtype=torch.uint8, device=device)
            self.sizes[name] = torch.ones(batch, 2, dtype=torch.int32, device=device)

    def load(self, step: int, last: int) -> None:
        """Fill the tensors with the pictures of `step`, and send for those of the next steps, up to `last`."""
        if self._coming and self._coming[0][0] != step:
            self._drop()
        first = self._coming[-1][0] + 1 if self._coming else step
        for wanted in range(first, min(step + AHEAD, last) + 1):
            self._coming.append((wanted, self._send_for(wanted)))
        _, reads = self._coming.popleft()
        for name, futures in reads.items():
            if not futures:
                continue
            with self.stages.during("wait"):
                read = [future.result() for future in futures]
            with self.stages.during("copy"):
                self._fill(name, read)

    def close(self) -> None:
        """Let the threads go."""
        self._drop()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _send_for(self, step: int) -> dict[str, list[Read]]:
        number, row = divmod(step, BLOCK)
        if number != self._block[0]:
            self._block = (number, {name: self.draws.indices(name, number) for name in self.places})
        wanted = {name: self.places[name][drawn[row]] for name, drawn in self._block[1].items()}
        return {name: [self._pool.submit(self._read, int(i)) for i in found] for name, found in wanted.items()}

    def _read(self, number: int) -> tuple[Tensor, tuple[int, int]]:
        with self.stages.during("decode"):
            return self.files.read(number)

    def _fill(self, name: str, read: Sequence[tuple[Tensor, tuple[int, int]]]) -> None:
        slots = torch.stack([slot for slot, _ in read])
        sizes = torch.tensor([size for _, size in read], dtype=torch.int32)
        if self._pinned:
            slots, sizes = slots.pin_memory(), sizes.pin_memory()
        self.slots[name].copy_(slots, non_blocking=True)
        self.sizes[name].copy_(sizes, non_blocking=True)

    def _drop(self) -> None:
        while self._coming:
            for futures in self._coming.popleft()[1].values():
                for future in futures:
                    future.cancel()

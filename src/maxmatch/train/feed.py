"""Pictures that are read anew in every step: threads decode ahead of the plan, and the step finds them in one place.

The tensors that a step reads stay where they are, so a captured graph can be replayed; what arrives in them follows the
plan, however many threads there are. Threads write into trays, a ring of page-locked batches, from which one copy goes
to the device while the host reads on.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from maxmatch.data.files import Files
from maxmatch.data.plan import BLOCK
from maxmatch.train.draws import Draws
from maxmatch.train.stages import Stages

AHEAD = 4  # steps whose pictures are on their way
Read = Future[None]


class Tray:
    """A batch of slots and sizes on the host, which may be filled again once its copy has arrived."""

    def __init__(self, slots: Tensor, sizes: Tensor) -> None:
        """With room for what these tensors hold."""
        self.cuda = slots.is_cuda
        self.slots = torch.zeros(slots.shape, dtype=slots.dtype, pin_memory=self.cuda)
        self.sizes = torch.ones(sizes.shape, dtype=sizes.dtype, pin_memory=self.cuda)
        self.places, self.lengths = self.slots.numpy(), self.sizes.numpy()
        self._arrived = torch.cuda.Event() if self.cuda else None  # type: ignore[no-untyped-call]

    def send(self, slots: Tensor, sizes: Tensor) -> None:
        """Copy to the device, behind what it still has to do."""
        slots.copy_(self.slots, non_blocking=True)
        sizes.copy_(self.sizes, non_blocking=True)
        if self._arrived is not None:
            self._arrived.record()

    def clear(self) -> None:
        """Wait until the copy has arrived, which it has by far."""
        if self._arrived is not None:
            self._arrived.synchronize()


class Feed:
    """The slots and sizes of a step's labelled and unlabelled pictures; `load` fills them."""

    def __init__(
        self, files: Files, places: dict[str, npt.NDArray[np.int64]], draws: Draws, device: torch.device
    ) -> None:
        """`places` are the positions among the files of the pictures of each pool that is read."""
        self.files, self.places, self.draws, self.device = files, places, draws, device
        self._pool = ThreadPoolExecutor(files.workers)
        self._coming: deque[tuple[int, dict[str, list[Read]]]] = deque()
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
        # One more than are on their way: the copy of the step before may still be waiting for the device.
        self._trays = [
            {name: Tray(self.slots[name], self.sizes[name]) for name in self.slots} for _ in range(AHEAD + 2)
        ]

    def load(self, step: int, last: int) -> None:
        """Fill the tensors with the pictures of `step`, and send for those of the next steps, up to `last`."""
        if self._coming and self._coming[0][0] != step:
            self._drop()
        first = self._coming[-1][0] + 1 if self._coming else step
        for wanted in range(first, min(step + AHEAD, last) + 1):
            self._coming.append((wanted, self._send_for(wanted)))
        _, reads = self._coming.popleft()
        with self.stages.during("wait"):
            for future in (future for futures in reads.values() for future in futures):
                future.result()
        with self.stages.on_device("copy"):
            for name, tray in self._tray_of(step).items():
                tray.send(self.slots[name], self.sizes[name])

    def close(self) -> None:
        """Let the threads go."""
        self._drop()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _send_for(self, step: int) -> dict[str, list[Read]]:
        number, row = divmod(step, BLOCK)
        if number != self._block[0]:
            self._block = (number, {name: self.draws.indices(name, number) for name in self.places})
        trays, reads = self._tray_of(step), dict[str, list[Read]]()
        for name, drawn in self._block[1].items():
            trays[name].clear()
            numbers = self.places[name][drawn[row]].tolist()
            reads[name] = [self._pool.submit(self._read, n, trays[name], at) for at, n in enumerate(numbers)]
        return reads

    def _tray_of(self, step: int) -> dict[str, Tray]:
        return self._trays[step % len(self._trays)]

    def _read(self, number: int, tray: Tray, at: int) -> None:
        with self.stages.during("decode"):
            tray.lengths[at] = self.files.read_into(number, tray.places[at])

    def _drop(self) -> None:
        """No thread may write into a tray that is used anew."""
        reads = [future for _, step in self._coming for futures in step.values() for future in futures]
        self._coming.clear()
        wait([future for future in reads if not future.cancel()])

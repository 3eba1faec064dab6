"""Pictures that are read anew in every step: they are decoded ahead of the plan, and the step finds them in one place.

The tensors that a step reads stay where they are, so a captured graph can be replayed; what arrives in them follows the
plan, whoever decodes it. It is decoded into trays, a ring of page-locked batches, from which one copy goes to the
device while the host reads on.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, wait
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from maxmatch.data.files import Files
from maxmatch.data.plan import BLOCK
from maxmatch.train.decoders import Decoders, Read, Tray, choose
from maxmatch.train.draws import Draws
from maxmatch.train.stages import Stages

AHEAD = 4  # steps whose pictures are on their way


class Feed:
    """The slots and sizes of a step's labelled and unlabelled pictures; `load` fills them."""

    def __init__(
        self,
        files: Files,
        places: dict[str, npt.NDArray[np.int64]],
        draws: Draws,
        device: torch.device,
        decoders: Literal["auto", "threads", "processes"] = "auto",
    ) -> None:
        """`places` are the positions among the files of the pictures of each pool that is read."""
        self.files, self.places, self.draws, self.device = files, places, draws, device
        self._coming: deque[tuple[int, list[Future[Read]]]] = deque()
        self.stages = Stages(files.workers, device)
        self._block: tuple[int, dict[str, npt.NDArray[np.int64]]] = (-1, {})
        self.slots: dict[str, Tensor] = {}
        self.sizes: dict[str, Tensor] = {}
        self.images = sum(draws.batch[name] for name in places)  # a step
        for name in places:
            batch = draws.batch[name]
            shape = (batch, files.channels, files.slot, files.slot)
            self.slots[name] = torch.zeros(shape, dtype=torch.uint8, device=device)
            self.sizes[name] = torch.ones(batch, 2, dtype=torch.int32, device=device)
        # One more than are on their way: the copy of the step before may still be waiting for the device.
        kind = choose(decoders, device)
        self._trays = [
            {name: Tray(self.slots[name], self.sizes[name], kind == "processes") for name in self.slots}
            for _ in range(AHEAD + 2)
        ]
        self.decoders = Decoders(files, self._trays, kind)

    def __enter__(self) -> Feed:
        self.decoders.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self, step: int, last: int) -> None:
        """Fill the tensors with the pictures of `step`, and send for those of the next steps, up to `last`."""
        if self._coming and self._coming[0][0] != step:
            self._drop()
        first = self._coming[-1][0] + 1 if self._coming else step
        for wanted in range(first, min(step + AHEAD, last) + 1):
            self._coming.append((wanted, self._send_for(wanted)))
        _, reads = self._coming.popleft()
        with self.stages.during("wait"):
            for read in self.decoders.receive(reads):
                self.stages.add_decoded(read.pictures, read.seconds)
        with self.stages.on_device("copy"):
            for name, tray in self._trays[self._tray_of(step)].items():
                tray.send(self.slots[name], self.sizes[name])

    def close(self) -> None:
        """Let the decoders go."""
        self._drop()
        self.decoders.close()

    def _send_for(self, step: int) -> list[Future[Read]]:
        number, row = divmod(step, BLOCK)
        if number != self._block[0]:
            self._block = (number, {name: self.draws.indices(name, number) for name in self.places})
        reads, tray = list[Future[Read]](), self._tray_of(step)
        for name, drawn in self._block[1].items():
            self._trays[tray][name].clear()
            reads += self.decoders.send_for(tray, name, self.places[name][drawn[row]].tolist())
        return reads

    def _tray_of(self, step: int) -> int:
        return step % len(self._trays)

    def _drop(self) -> None:
        """Nobody may write into a tray that is used anew."""
        reads = [read for _, coming in self._coming for read in coming]
        self._coming.clear()
        wait([read for read in reads if not read.cancel()])

"""Picture files read into slots of one shape, in the order they are asked for, by as many threads as one likes.

A slot is (C, side, side) uint8 with the picture in its upper left corner, shrunk to fit, beside its height and width.
Decoders let go of Python's lock for most of their work, and nothing depends on how many threads there are. (Beside a
GPU processes read step by step: train/decoders.py.) They write where the pictures are wanted, with numpy: a copy by
torch would share itself among all cores, in each of the threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from maxmatch.cores import cores
from maxmatch.data.folder import is_picture
from maxmatch.data.picture_file import open_image, read_image
from maxmatch.data.shards import Shards

GREY = 127
Slot = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Files:
    """The files of a folder, and the slots they are read into. `fitted`: each fills its slot, scaled and cropped.

    In a folder of shards the names are those of members, which `shards` opens.
    """

    root: Path
    names: tuple[str, ...]
    channels: int
    slot: int
    fitted: bool = False
    workers: int = 2
    middle: float = 1.0  # the share of the short side that a fitted picture shows
    shards: Shards | None = None
    broken: dict[str, str] = field(default_factory=dict)  # met while reading: the name, and why

    def read(self, number: int) -> tuple[Tensor, tuple[int, int]]:
        """One slot, and the height and width of its picture."""
        slot = torch.empty(self.channels, self.slot, self.slot, dtype=torch.uint8)
        return slot, self.read_into(number, slot.numpy())

    def read_into(self, number: int, slot: Slot) -> tuple[int, int]:
        """Fill a slot; the height and width of its picture. A file that can't be read is grey, and noted."""
        try:
            return self._fill(self.names[number], slot)
        except OSError as error:
            return self._grey(number, slot, error)

    def read_again_into(self, number: int, slot: Slot) -> tuple[int, int]:
        """The same while training. Raises OSError where the system has lost the file and those beside it.

        A picture that was deleted, or damaged, is grey. A disk that was pulled out is no reason to learn from grey.
        """
        try:
            return self._fill(self.names[number], slot)
        except OSError as error:
            cause = error if error.errno is not None else error.__cause__
            place = self.root / self.names[number]
            if isinstance(cause, OSError) and not (self.shards is None and _is_alone(place, cause)):
                where = place if self.shards is None else self.root
                raise OSError(cause.errno, os.strerror(cause.errno or 0), str(where)) from None
            return self._grey(number, slot, error)

    def _fill(self, name: str, slot: Slot) -> tuple[int, int]:
        file = self.root / name if self.shards is None else self.shards.open(name)
        if not self.fitted:
            return fill_slot(file, slot)
        slot[:] = read_image(file, (self.channels, self.slot, self.slot), self.middle).numpy()
        return self.slot, self.slot

    def _grey(self, number: int, slot: Slot, error: OSError) -> tuple[int, int]:
        self.broken.setdefault(self.names[number], str(error))
        slot[:] = GREY
        return self.slot, self.slot

    def read_all(self, advance: Callable[[], None] = lambda: None) -> tuple[Tensor, Tensor]:
        """All slots (N, C, side, side) and sizes (N, 2); `advance` is called after each."""
        count = len(self.names)
        slots = torch.empty(count, self.channels, self.slot, self.slot, dtype=torch.uint8)
        sizes = torch.empty(count, 2, dtype=torch.int32)
        places = slots.numpy()
        with ThreadPoolExecutor(self.workers) as pool:
            read = ahead(pool, lambda n: self.read_into(n, places[n]), range(count), 4 * self.workers)
            for number, size in enumerate(read):
                sizes[number] = torch.tensor(size, dtype=torch.int32)
                advance()
        return slots, sizes

    def try_all(self, advance: Callable[[], None] = lambda: None) -> None:
        """Read every file once and keep nothing but the names of those that are `broken`."""
        with ThreadPoolExecutor(self.workers) as pool:
            for _ in ahead(pool, self.read, range(len(self.names)), 4 * self.workers):
                advance()


def _is_alone(place: Path, error: OSError) -> bool:
    """Whether it is this file alone that is gone, or may not be read: a picture beside it can be."""
    if not isinstance(error, FileNotFoundError | PermissionError):
        return False
    try:
        with os.scandir(place.parent) as beside:
            others = (entry for entry in beside if is_picture(entry.name) and entry.name != place.name)
            return any(os.access(other.path, os.R_OK) for other in others)
    except OSError:
        return False


def fill_slot(file: Path | IO[bytes], slot: Slot) -> tuple[int, int]:
    """Put a file into a slot: upright, grey or RGB, shrunk if it is larger than the slot, never enlarged."""
    channels, side, _ = slot.shape
    picture = open_image(file, channels, (side, side))
    width, height = picture.size
    pixels = torch.from_numpy(np.array(picture).reshape(height, width, channels)).permute(2, 0, 1)
    if (longer := max(height, width)) > side:
        height, width = (max(1, round(length * side / longer)) for length in (height, width))
        # PIL's to a rounding, and faster.
        pixels = interpolate(pixels[None], (height, width), mode="bicubic", antialias=True)[0]
    slot[:, :height, :width] = pixels.numpy()
    slot[:, height:], slot[:, :height, width:] = 0, 0
    return height, width


Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(pool: ThreadPoolExecutor, work: Callable[[Item], Made], items: Sequence[Item], count: int) -> Iterator[Made]:
    """What `work` makes of the items, in their order, at most `count` of them ahead of the one that is asked for."""
    waiting: list[Future[Made]] = []
    for item in items:
        waiting.append(pool.submit(work, item))
        if len(waiting) > count:
            yield waiting.pop(0).result()
    while waiting:
        yield waiting.pop(0).result()


def default_workers() -> int:
    """As many threads as this process has cores, 16 at most."""
    return min(16, cores())

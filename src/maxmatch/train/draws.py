"""What a step draws, laid out flat: one row of floats and one of whole numbers a step, made on the host in blocks.

A step on the device reads its row and nothing else, so that Python can run ahead of it and a captured graph can be
replayed with other numbers. The learning rate and the progress travel in the same row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from maxmatch.augment import Views
from maxmatch.data.plan import BLOCK, Indices, Plan, pick
from maxmatch.methods.base import Needs
from maxmatch.train.distributed import Ranks

Layout = dict[str, tuple[slice, tuple[int, ...]]]


class Draws:
    """Names, shapes and places of a step's draws, and the rows of any block of steps.

    Every view has a stream of its own, so that the first view is the same whatever K is. All is drawn for the whole
    batch; of what belongs to an image, a rank among several keeps its part.
    """

    def __init__(
        self,
        plan: Plan,
        needs: Needs,
        views: Views,
        labelled: tuple[int, int],
        unlabelled: tuple[int, int],
        scalars: Mapping[str, Callable[[int], float]],
        ranks: Ranks = Ranks(),  # noqa: B008  frozen
    ) -> None:
        """`labelled` and `unlabelled` are (images a step, images in all); `scalars` are functions of the step."""
        self.whole = {"labelled": labelled, "unlabelled": unlabelled}
        self.batch = {name: many // ranks.count for name, (many, _) in self.whole.items()}  # this rank's part
        self._mine = {name: ranks.part(many) for name, (many, _) in self.whole.items()}
        mine_labelled, mine_unlabelled = self.batch.values()
        self.plan, self.choices, self.scalars = plan, needs.choices(), dict(scalars)
        self.in_order = needs.in_order
        most = needs.most
        counts: dict[str, tuple[int, ...]] = {
            "labelled/weak": (1, mine_labelled, views.weak_uniforms),
            "labelled/strong": (int(needs.x_strong), mine_labelled, views.strong_uniforms),
            "weak": (needs.weak, mine_unlabelled, views.weak_uniforms),
            "strong": (most, mine_unlabelled, views.uniforms(needs.variants)),
            "labelled/probe": (int(views.learner is not None), mine_labelled, views.probe_uniforms),
        }
        mixing = labelled[0] + (needs.weak + most) * unlabelled[0] if needs.mix is not None else 0
        counts |= {"mix/order": (mixing,), "mix/weight": (mixing,)}
        self.alpha = needs.mix
        self.floats = _layout({**dict.fromkeys(self.scalars, ()), **counts})
        self.ints = _layout({"step": (), **{name: (many,) for name, many in self.batch.items()}})

    def k(self, step: int) -> int:
        """How many strong views the step has: drawn, or by schedule."""
        if self.in_order:
            return pick(self.scalars["progress"](step) + 1e-9, self.choices)  # .2 + .5 must reach .7 in binary too
        return self.plan.choice("k", step, self.choices)

    def block(self, number: int) -> tuple[Tensor, Tensor]:
        """The rows (BLOCK, F) and (BLOCK, I) of the steps number * BLOCK and on."""
        first = number * BLOCK
        floats = np.empty((BLOCK, _width(self.floats)), np.float32)
        for name, (place, shape) in self.floats.items():
            if name in self.scalars:
                floats[:, place] = [[self.scalars[name](step)] for step in range(first, first + BLOCK)]
                continue
            if name.startswith("mix/"):
                if self.alpha is not None:
                    alpha = self.alpha if name == "mix/weight" else 1.0  # Beta(1, 1) is uniform
                    floats[:, place] = self.plan.betas(name, number, shape[0], alpha)
                continue
            for view, part in enumerate(np.split(floats[:, place], shape[0], axis=1) if shape[0] else ()):
                pool = "labelled" if name.startswith("labelled/") else "unlabelled"
                drawn = self.plan.block(f"{name}/{view}", number, (self.whole[pool][0], *shape[2:]))
                part[:] = drawn[:, self._mine[pool]].reshape(BLOCK, -1)
        ints = np.empty((BLOCK, _width(self.ints)), np.int64)
        ints[:, self.ints["step"][0]] = np.arange(first, first + BLOCK)[:, None]
        for name in self.batch:
            ints[:, self.ints[name][0]] = self.indices(name, number)
        return torch.from_numpy(floats), torch.from_numpy(ints)

    def indices(self, name: str, number: int) -> Indices:
        """Which images of a pool the steps of a block see, (BLOCK, batch): this rank's part of them."""
        batch, n = self.whole[name]
        if not batch:
            return np.empty((BLOCK, 0), np.int64)
        return self.plan.indices(name, number, BLOCK * batch, n).reshape(BLOCK, batch)[:, self._mine[name]]


class Rows:
    """The row of the step that is running, in tensors that stay where they are: `row` is read, `load` fills it."""

    def __init__(self, draws: Draws, device: torch.device) -> None:
        self.draws, self.device = draws, device
        self._number = -1
        self._floats = torch.zeros(_width(draws.floats), device=device)
        self._ints = torch.zeros(_width(draws.ints), dtype=torch.int64, device=device)
        self._block = (self._floats[None], self._ints[None])
        self.row = Row(draws, self._floats, self._ints)

    def load(self, step: int) -> None:
        """Make the row that of `step`; once a block, the block's rows are drawn and sent to the device."""
        number, place = divmod(step, BLOCK)
        if number != self._number:
            floats, ints = self.draws.block(number)
            self._block = (self._send(floats), self._send(ints))
            self._number = number
        self._floats.copy_(self._block[0][place])
        self._ints.copy_(self._block[1][place])

    def _send(self, rows: Tensor) -> Tensor:
        """From pinned memory, so that neither side waits for the other."""
        return (
            rows.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else rows.to(self.device)
        )


class Row:
    """One step's draws by name, read from its flat rows."""

    def __init__(self, draws: Draws, floats: Tensor, ints: Tensor) -> None:
        self._places = {name: (floats, *place) for name, place in draws.floats.items()}
        self._places |= {name: (ints, *place) for name, place in draws.ints.items()}

    def __getitem__(self, name: str) -> Tensor:
        row, place, shape = self._places[name]
        return row[place].view(shape)


def _layout(shapes: Mapping[str, tuple[int, ...]]) -> Layout:
    layout, start = {}, 0
    for name, shape in shapes.items():
        end = start + math.prod(shape)
        layout[name] = (slice(start, end), shape)
        start = end
    return layout


def _width(layout: Layout) -> int:
    return int(max(place.stop for place, _ in layout.values()))

"""A whole step as one CUDA graph for each K: Python replays it and never waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

WARM_UP = 3


class Captured:
    """Calls `advance(k)` by replaying a graph of it, captured when k is first met.

    Warming up on a side stream runs real steps, so what they change is put back, in place, before the capture: the
    graph reads and writes the tensors that are there, and nothing is reallocated afterwards.
    """

    def __init__(self, advance: Callable[[int], None], tensors: Callable[[], Mapping[str, Tensor]]) -> None:
        self._advance, self._tensors = advance, tensors
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, k: int) -> None:
        if k not in self._graphs:
            self._graphs[k] = self._capture(k)
        self._graphs[k].replay()

    def _capture(self, k: int) -> torch.cuda.CUDAGraph:
        held = {name: tensor.clone() for name, tensor in self._tensors().items()}
        generator = torch.cuda.get_rng_state()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._advance(k)
        torch.cuda.current_stream().wait_stream(side)
        with torch.no_grad():
            for name, tensor in self._tensors().items():
                tensor.copy_(held[name])
        torch.cuda.set_rng_state(generator)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._advance(k)
        return graph

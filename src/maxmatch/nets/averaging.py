"""The exponential moving average of a net: it evaluates, and teaches where a method asks for a teacher.

torch's AveragedModel synchronises with the host at every update, so this is by hand: one fused lerp over fixed lists
of parameters, and a copy of the buffers (BatchNorm's running statistics are taken as they are, not averaged). EMAN (Cai
et al., 2021) averages the statistics by the same decay, so that they fit the averaged weights, and such an average can
teach in eval mode. AveragedModel is the oracle in the tests.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from maxmatch.nets.batchnorm import set_mode


class Average:
    """`average.net` follows `net`: parameters by `decay`, buffers copied. `decay = 0` keeps an exact copy.

    With `statistics` buffers of floats follow by `decay` too, which is EMAN; whole numbers are copied.
    """

    def __init__(self, net: nn.Module, decay: float, statistics: bool = False) -> None:
        self.decay, self.statistics = decay, statistics
        self.net = copy.deepcopy(net).requires_grad_(False)
        set_mode(self.net, "eval")
        averaged = [(p.data, q.data) for p, q in zip(self.net.parameters(), net.parameters(), strict=True)]
        copied: list[tuple[Tensor, Tensor]] = []
        for ours, theirs in zip(self.net.buffers(), net.buffers(), strict=True):
            (averaged if statistics and ours.is_floating_point() else copied).append((ours, theirs))
        self._averaged, self._followed = [a for a, _ in averaged], [b for _, b in averaged]
        self._copied, self._originals = [a for a, _ in copied], [b for _, b in copied]

    @torch.no_grad()
    def update(self) -> None:
        """Take one step towards the net, as it is now."""
        torch._foreach_lerp_(self._averaged, self._followed, 1 - self.decay)
        if self._copied:
            torch._foreach_copy_(self._copied, self._originals)

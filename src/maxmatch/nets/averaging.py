"""The exponential moving average of a net: it evaluates, and teaches where a method asks for a teacher.

torch's AveragedModel synchronises with the host at every update, so this is by hand: one fused lerp over fixed lists
of parameters, and a copy of the buffers (BatchNorm's running statistics are taken as they are, not averaged).
AveragedModel is the oracle in the tests.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

from maxmatch.nets.batchnorm import set_mode


class Average:
    """`average.net` follows `net`: parameters by `decay`, buffers copied. `decay = 0` keeps an exact copy."""

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.decay = decay
        self.net = copy.deepcopy(net).requires_grad_(False)
        set_mode(self.net, "eval")
        self._parameters = [p.data for p in self.net.parameters()]
        self._followed = [p.data for p in net.parameters()]
        self._buffers = list(self.net.buffers())
        self._followed_buffers = list(net.buffers())

    @torch.no_grad()
    def update(self) -> None:
        """Take one step towards the net, as it is now."""
        torch._foreach_lerp_(self._parameters, self._followed, 1 - self.decay)
        if self._buffers:
            torch._foreach_copy_(self._buffers, self._followed_buffers)

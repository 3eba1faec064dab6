"""The Wide ResNet of the FixMatch family, faithful to Google's code: pre-activation blocks, LeakyReLU 0.1.

Names are `wrn-DEPTH-WIDTH`, where the depth counts the shortcut convolutions too: 28 = 1 + 3 stages * 4 blocks * 2 + 3.
WRN-28-2 (CIFAR-10, SVHN) has 1.47 M parameters, WRN-28-8 (CIFAR-100) 23.4 M, WRN-37-2 (STL-10) 5.93 M in four stages;
WRN-10-1 is the small one for tiny images. Several public PyTorch ports feed the un-normalised input to the first
convolution of stages 2 and 3; here, as in the original, every block normalises first and only the very first block
takes its shortcut after that.
"""

from __future__ import annotations

import re

from torch import Tensor, nn
from torch.nn import functional

from maxmatch.nets.batchnorm import BatchNorm

SLOPE = 0.1


class Block(nn.Module):
    """BN, activation, 3x3; BN, activation, (dropout,) 3x3; plus a shortcut, 1x1 where the width changes."""

    def __init__(
        self, width_in: int, width: int, stride: int, dropout: float, momentum: float, activate_shortcut: bool
    ) -> None:
        super().__init__()
        self.norm1 = BatchNorm(width_in, momentum)
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.norm2 = BatchNorm(width, momentum)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(width_in, width, 1, stride, bias=False) if width_in != width else None
        self.dropout, self.activate_shortcut = dropout, activate_shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = functional.leaky_relu(self.norm1(x), SLOPE)
        if self.activate_shortcut:
            x = y
        y = functional.leaky_relu(self.norm2(self.conv1(y)), SLOPE)
        if self.dropout:
            y = functional.dropout(y, self.dropout, self.training)
        out: Tensor = self.conv2(y) + (x if self.shortcut is None else self.shortcut(x))
        return out


class WideResNet(nn.Module):
    """`stages` of `blocks` blocks with widths 16 w, 32 w, 64 w, ..., halving the side between stages."""

    def __init__(
        self,
        classes: int,
        channels: int = 3,
        *,
        width: int = 2,
        blocks: int = 4,
        stages: int = 3,
        dropout: float = 0.0,
        momentum: float = 0.001,
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        layers, inner = [], 16
        for stage in range(stages):
            for block in range(blocks):
                outer, stride = 16 * width << stage, 2 if stage and not block else 1
                layers.append(Block(inner, outer, stride, dropout, momentum, activate_shortcut=not stage and not block))
                inner = outer
        self.blocks = nn.Sequential(*layers)
        self.norm = BatchNorm(inner, momentum)
        self.head = nn.Linear(inner, classes)
        self.num_features = inner
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.xavier_normal_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) to the last feature map (B, F, h, w)."""
        return functional.leaky_relu(self.norm(self.blocks(self.stem(x))), SLOPE)

    def forward_head(self, features: Tensor) -> Tensor:
        """Feature map to logits: global average pool and one linear layer."""
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def shape_of(name: str) -> tuple[int, int, int] | None:
    """(stages, blocks, width) of `wrn-DEPTH-WIDTH`, or None if no such net exists.

    >>> shape_of("wrn-28-2"), shape_of("wrn-37-2"), shape_of("wrn-11-2")
    ((3, 4, 2), (4, 4, 2), None)
    """
    match = re.fullmatch(r"wrn-(\d+)-(\d+)", name)
    if not match:
        return None
    depth, width = int(match[1]), int(match[2])
    for stages in (3, 4):
        blocks, rest = divmod(depth - 1 - stages, 2 * stages)
        if blocks >= 1 and rest == 0 and width >= 1:
            return stages, blocks, width
    return None

"""The networks of the paper, the BatchNorm whose modes the loop controls, and the average that evaluates."""

from __future__ import annotations

from torch import nn

from maxmatch.errors import UsageError
from maxmatch.nets.wide_resnet import WideResNet, shape_of

RESNETS = ("resnet18", "resnet34", "resnet50")


def make_net(name: str, classes: int, channels: int, *, dropout: float = 0.0, momentum: float = 0.001) -> nn.Module:
    """A net by name.

    >>> sum(p.numel() for p in make_net("wrn-28-2", classes=10, channels=3).parameters())
    1467610
    """
    if name in RESNETS:
        return _resnet(name, classes, channels)
    shape = shape_of(name)
    if shape is None:
        raise UsageError(
            f"net.name = '{name}': type wrn-DEPTH-WIDTH, for example wrn-28-2 or wrn-10-1, or {', '.join(RESNETS)}"
        )
    stages, blocks, width = shape
    return WideResNet(classes, channels, width=width, blocks=blocks, stages=stages, dropout=dropout, momentum=momentum)


def _resnet(name: str, classes: int, channels: int) -> nn.Module:
    """torchvision's ResNet; it keeps its own BatchNorm."""
    from torchvision import models

    if channels != 3:
        raise UsageError(f"net.name = '{name}': it takes colour images, these have {channels} channel")
    net: nn.Module = getattr(models, name)(weights=None, num_classes=classes)
    return net

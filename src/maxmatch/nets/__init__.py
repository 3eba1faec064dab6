"""The networks of the paper, the BatchNorm whose modes the loop controls, and the average that evaluates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

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


def features(net: Any, x: Tensor) -> Tensor:
    """What a net's head sees of images, (B, F)."""
    if not hasattr(net, "forward_features"):  # torchvision's
        x = net.maxpool(net.relu(net.bn1(net.conv1(x))))
        for layer in (net.layer1, net.layer2, net.layer3, net.layer4):
            x = layer(x)
        return torch.flatten(net.avgpool(x), 1)
    found: Tensor = net.forward_features(x)
    return found.mean((2, 3)) if found.ndim == 4 else found


def num_features(net: Any) -> int:
    """How many features a net's head sees."""
    return int(net.num_features if hasattr(net, "num_features") else net.fc.in_features)

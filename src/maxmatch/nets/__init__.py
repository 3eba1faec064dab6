"""The networks of the paper, the BatchNorm whose modes the loop controls, and the average that evaluates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from maxmatch.errors import UsageError
from maxmatch.nets.foreign import PLAIN, RESNETS, TIMM, Size, make_foreign
from maxmatch.nets.head import empty_head, head_names, with_projection
from maxmatch.nets.plain_conv import PlainConv
from maxmatch.nets.wide_resnet import WideResNet, shape_of

__all__ = ["RESNETS", "features", "head_prefixes", "make_net", "num_features"]


def make_net(
    name: str,
    classes: int,
    channels: int,
    *,
    dropout: float = 0.0,
    momentum: float = 0.001,
    pretrained: bool = False,
    size: Size | None = None,
    projection: int | None = None,
) -> nn.Module:
    """A net by name: ours, torchvision's, timm's or your own `module:Class`.

    On nets that are not ours two images of `size` are tried.

    With `projection` it has an MLP of so many outputs in place of its head, and no classes.

    >>> sum(p.numel() for p in make_net("wrn-28-2", classes=10, channels=3).parameters())
    1467610
    """
    if projection is not None:
        plain = make_net(name, 1, channels, dropout=dropout, momentum=momentum, pretrained=pretrained, size=size)
        return with_projection(plain, projection, num_features(plain))
    shape = shape_of(name)
    if pretrained and (shape is not None or name == PLAIN):
        raise UsageError(
            f"net.pretrained = true: {name} has no published weights; type --set net.name=resnet18, or --init RUN"
        )
    if name == PLAIN:
        if dropout:
            raise UsageError(f"net.dropout = {dropout:g}: {name} has no dropout; set it to 0")
        return PlainConv(classes, channels)
    if shape is None:
        net: nn.Module = make_foreign(name, classes, channels, size, dropout, pretrained)
        if name in RESNETS or ":" not in name or name.startswith(TIMM):  # a class of your own decides for itself
            for module in net.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.momentum = momentum
        if pretrained:
            empty_head(net, num_features(net))
        return net
    stages, blocks, width = shape
    return WideResNet(classes, channels, width=width, blocks=blocks, stages=stages, dropout=dropout, momentum=momentum)


def features(net: Any, x: Tensor) -> Tensor:
    """What a net's head sees of images, (B, F)."""
    if hasattr(net, "pretrained_cfg"):  # timm's
        seen: Tensor = net.forward_head(net.forward_features(x), pre_logits=True)
        return seen
    if not hasattr(net, "forward_features"):  # torchvision's
        x = net.maxpool(net.relu(net.bn1(net.conv1(x))))
        for layer in (net.layer1, net.layer2, net.layer3, net.layer4):
            x = layer(x)
        return torch.flatten(net.avgpool(x), 1)
    found: Tensor = net.forward_features(x)
    return found.mean((2, 3)) if found.ndim == 4 else found


def head_prefixes(net: nn.Module) -> tuple[str, ...]:
    """What the names of the weights of a net's head begin with; few nets have two."""
    return tuple(f"{name}." for name in head_names(net, num_features(net)))


def num_features(net: Any) -> int:
    """How many features a net's head sees; 0 for a net of your own without `forward_features` and `num_features`."""
    if hasattr(net, "pretrained_cfg"):  # timm's
        return int(getattr(net, "head_hidden_size", net.num_features))
    if hasattr(net, "forward_features"):
        return int(getattr(net, "num_features", 0))
    return int(net.fc.in_features) if hasattr(net, "layer4") and hasattr(net, "fc") else 0

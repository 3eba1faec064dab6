"""A net whose head gives a point to compare in place of logits: MoCo v2's and SimCLR's MLP, for pretraining."""

from __future__ import annotations

from torch import nn

from maxmatch.errors import UsageError


class Projection(nn.Sequential):
    """Two linear layers with a ReLU between, as wide as the features."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, outputs))
        self.in_features = features


def with_projection(net: nn.Module, outputs: int, features: int) -> nn.Module:
    """The net with a `Projection` in the place of its head, which sees `features` numbers."""
    parent, _, last = head_name(net, features).rpartition(".")
    setattr(net.get_submodule(parent), last, Projection(features, outputs))
    return net


def head_name(net: nn.Module, features: int) -> str:
    """Where a net's head is: the projection if it has one, else the last linear layer that sees the features."""
    modules = dict(net.named_modules())
    found: list[str] = [name for name, module in modules.items() if isinstance(module, Projection)]
    if not found:
        found = [n for n, module in modules.items() if isinstance(module, nn.Linear) and module.in_features == features]
    if not found or not features:
        raise UsageError(
            f"{type(net).__name__} has no linear head to replace: give your net forward_features(x), num_features and "
            "a head of one nn.Linear(num_features, classes)"
        )
    return found[-1]

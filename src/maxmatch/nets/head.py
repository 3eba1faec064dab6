"""The head of a net, which makes logits of features: where it is, an MLP in its place, or one that says nothing yet."""

from __future__ import annotations

from torch import nn

from maxmatch.errors import UsageError


class Projection(nn.Sequential):
    """MoCo v2's and SimCLR's head, a point to compare in place of logits: two linear layers with a ReLU between."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, outputs))
        self.in_features = features


def with_projection(net: nn.Module, outputs: int, features: int) -> nn.Module:
    """The net with a `Projection` in the place of its head, which sees `features` numbers."""
    names = head_names(net, features)
    heads = [net.get_submodule(name) for name in names]
    if not all(isinstance(head, nn.Linear) and head.in_features == features for head in heads) or len(heads) != 1:
        raise UsageError(f"the head of {type(net).__name__} is no single linear layer to replace; choose another net")
    parent, _, last = names[0].rpartition(".")
    setattr(net.get_submodule(parent), last, Projection(features, outputs))
    return net


def empty_head(net: nn.Module, features: int) -> None:
    """A head that says nothing yet: what a drawn one says of features that are learned already would spoil them."""
    for name in head_names(net, features):
        for layer in _last_layers(net.get_submodule(name)):
            for parameter in layer.parameters():
                nn.init.zeros_(parameter)


def head_names(net: nn.Module, features: int) -> list[str]:
    """Where a net's heads are, of which few have two: the projection if there is one, what timm calls its classifier.

    Elsewhere the last linear layer that sees the features.
    """
    modules = dict(net.named_modules())
    found = [name for name, module in modules.items() if isinstance(module, Projection)]
    if not found and hasattr(net, "pretrained_cfg"):  # timm's
        given = net.get_classifier()  # type: ignore[operator]
        heads = given if isinstance(given, tuple | list) else (given,)
        found = [name for name, module in modules.items() if any(module is head for head in heads)]
    elif not found and features:
        seeing = [n for n, m in modules.items() if isinstance(m, nn.Linear) and m.in_features == features]
        found = seeing[-1:]
    if not found:
        raise UsageError(
            f"{type(net).__name__} has no linear head to replace: give your net forward_features(x), num_features and "
            "a head of one nn.Linear(num_features, classes)"
        )
    return found


def _last_layers(head: nn.Module) -> list[nn.Module]:
    """What a head ends with: itself, the last layer of an MLP, several of one shape, or those of each of its parts."""
    if isinstance(head, nn.ModuleList):
        return [layer for part in head for layer in _last_layers(part)]
    layers = [m for m in head.modules() if isinstance(m, nn.Linear | nn.modules.conv._ConvNd)]
    return [layer for layer in layers if layer.weight.shape == layers[-1].weight.shape]

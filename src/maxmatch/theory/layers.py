"""A net as Theorem 2 sees it: linear layers in a row, eval-mode BatchNorm folded into them, and what does not fit in.

The theorem's class has convolutions and matrices, 1-Lipschitz activations and pooling between them that keep 0 at 0,
no bias and no shortcut. The graph of the net (torch.fx) says what of that it has.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.nn import functional

from maxmatch.errors import UserError, said
from maxmatch.nets.batchnorm import BatchNorm

Shape = tuple[int, ...]
NORMS = (BatchNorm, nn.modules.batchnorm._BatchNorm)


@dataclass(frozen=True)
class Layer:
    """A linear map with its weight and, outside the theorem, its bias. `kind` is convolution, linear or scale.

    A BatchNorm that follows no convolution directly (one after a sum) is a layer of its own, a diagonal one: scale.
    """

    name: str
    kind: str
    module: nn.Module
    weight: Tensor
    bias: Tensor | None
    takes: Shape  # of one input, without the batch

    def apply(self, weight: Tensor, x: Tensor) -> Tensor:
        """The map with another weight of the same shape, without bias, on inputs (B, *takes)."""
        if self.kind == "scale":
            return x * weight.view(1, -1, *[1] * (x.ndim - 2))
        parameters = {"weight": weight}
        if self.module.bias is not None:
            parameters["bias"] = torch.zeros(len(weight), dtype=weight.dtype)
        found: Tensor = functional_call(self.module, parameters, (x,))
        return found

    @property
    def parameters(self) -> int:
        return self.weight.numel() + (0 if self.bias is None else self.bias.numel())


@dataclass(frozen=True)
class Reading:
    """The layers of a net in the order of its graph; what is outside the theorem; what was looked at and is covered."""

    layers: tuple[Layer, ...]
    outside: tuple[str, ...]
    covered: tuple[str, ...]


def read_net(net: nn.Module, shape: Shape) -> Reading:
    """The layers of a net in eval mode that takes images of `shape`, in float64, BatchNorm folded."""
    graph = _trace(net)
    modules = dict(graph.named_modules())
    sizes = _sizes(graph, torch.zeros(1, *shape, dtype=next(net.parameters()).dtype))
    folded: dict[fx.Node, fx.Node] = {}
    for node in graph.graph.nodes:
        if isinstance(_module(node, modules), NORMS):
            before = node.args[0]
            if isinstance(_module(before, modules), nn.Conv2d | nn.Linear) and len(before.users) == 1:
                folded[before] = node
    layers, seen = [], _Seen()
    for node in graph.graph.nodes:
        module = _module(node, modules)
        takes = sizes.get(node.args[0], ()) if node.args and isinstance(node.args[0], fx.Node) else ()
        if isinstance(module, nn.Conv2d | nn.Linear):
            norm = modules[str(folded[node].target)] if node in folded else None
            kind = "linear" if isinstance(module, nn.Linear) else "convolution"
            layers.append(Layer(str(node.target), kind, module, *fold(module, norm), takes))
        elif isinstance(module, NORMS) and node not in folded.values():
            layers.append(Layer(str(node.target), "scale", module, *batchnorm_as_scale(module), takes))
        elif not isinstance(module, NORMS):
            seen.look(node, module, takes, sizes.get(node, ()))
    return Reading(tuple(layers), *_said(layers, len(folded), seen))


def batchnorm_as_scale(norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Eval-mode BatchNorm as scale a and shift b, (C,) each: a x + b."""
    norm_: Any = norm
    mean, variance = norm_.running_mean.double(), norm_.running_var.double()
    weight = torch.ones_like(mean) if norm_.weight is None else norm_.weight.detach().double()
    bias = torch.zeros_like(mean) if norm_.bias is None else norm_.bias.detach().double()
    scale = weight / (variance + norm_.eps).sqrt()
    return scale, bias - scale * mean


def fold(layer: nn.Conv2d | nn.Linear, norm: nn.Module | None) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a layer with the BatchNorm behind it, if any, made part of it."""
    weight = layer.weight.detach().double()
    bias = None if layer.bias is None else layer.bias.detach().double()
    if norm is None:
        return weight, bias
    scale, shift = batchnorm_as_scale(norm)
    return weight * scale.view(-1, *[1] * (weight.ndim - 1)), shift if bias is None else scale * bias + shift


class _Seen:
    """What a graph has between its layers: each node is covered by the theorem, or outside it, under a name."""

    def __init__(self) -> None:
        self.covered: dict[str, int] = {}
        self.outside: dict[str, int] = {}

    def look(self, node: fx.Node, module: nn.Module | None, takes: Shape, makes: Shape) -> None:
        if node.op in ("placeholder", "output", "get_attr"):
            return
        what = module if module is not None else node.target
        name, inside = _judge(what, node, takes, makes)
        if name:
            found = self.covered if inside else self.outside
            found[name] = found.get(name, 0) + 1


def _judge(what: Any, node: fx.Node, takes: Shape, makes: Shape) -> tuple[str, bool]:
    """The name of an operation and whether the theorem's class has it; no name for what changes nothing.

    It makes values of one shape from those of another; the theorem's pooling never lengthens a vector.
    """
    kind: Any = what if isinstance(what, str) or not isinstance(what, nn.Module) else type(what)
    if kind in (nn.Identity, nn.Flatten, nn.Dropout, torch.flatten, functional.dropout, "flatten", "view", "reshape"):
        return "", True
    if kind in (nn.ReLU, functional.relu, torch.relu, "relu", "relu_"):
        return "ReLU", True
    if kind in (nn.Tanh, torch.tanh, "tanh"):
        return "tanh", True
    if kind in (nn.LeakyReLU, functional.leaky_relu):
        argument: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("negative_slope", 0.01)
        slope: float = what.negative_slope if isinstance(what, nn.LeakyReLU) else float(argument)
        return f"leaky ReLU of slope {slope:g}", abs(slope) <= 1
    if kind in (nn.AdaptiveAvgPool2d, functional.adaptive_avg_pool2d, "mean", torch.mean):
        repeats = len(takes) == len(makes) and any(after > before for before, after in zip(takes, makes, strict=True))
        return ("pooling that repeats values", False) if repeats else ("average pooling", True)
    if kind in (nn.MaxPool2d, nn.AvgPool2d):
        name = "max pooling" if kind is nn.MaxPool2d else "average pooling"
        return (f"overlapping {name}", False) if _overlap(what) else (name, True)
    if kind in (operator.add, operator.iadd, torch.add, "add", "add_"):
        return "shortcuts", False
    return f"{kind if isinstance(kind, str) else getattr(kind, '__name__', kind)} (not looked into)", False


def _said(layers: list[Layer], folded: int, seen: _Seen) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sentences: what is outside, what is covered."""
    outside = [f"{name}: {count}" for name, count in seen.outside.items()]
    biases = [layer for layer in layers if layer.bias is not None]
    if biases:
        made = f", {folded} of them made by folding BatchNorm" if folded else ""
        outside.append(f"biases: {len(biases)} of {len(layers)} layers have one{made}")
    scales = sum(layer.kind == "scale" for layer in layers)
    if scales:
        outside.append(f"BatchNorm after a sum: {scales}, not foldable, counted as diagonal layers")
    names = [layer.name for layer in layers]
    shared = sorted({name for name in names if names.count(name) > 1})
    if shared:
        outside.append(f"layers used more than once: {', '.join(shared)}")
    covered = [f"{name}: {count}" for name, count in seen.covered.items()]
    if folded:
        covered.append(f"BatchNorm folded into the layer before it: {folded}")
    return tuple(outside), tuple(covered)


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, NORMS) or super().is_leaf_module(m, module_qualified_name)


def _trace(net: nn.Module) -> fx.GraphModule:
    net.eval()
    try:
        return fx.GraphModule(net, _Tracer().trace(net))
    except Exception as error:  # nets refuse to be traced in every way there is
        what = f"{type(net).__name__}: torch.fx can't read its layers ({said(error)})"
        raise UserError(f"{what}; take a wrn-..., a resnet or plain-conv") from None


class _Sizes(fx.Interpreter):
    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.sizes: dict[fx.Node, Shape] = {}

    def run_node(self, n: fx.Node) -> Any:
        found = super().run_node(n)
        if isinstance(found, Tensor):
            self.sizes[n] = tuple(found.shape[1:])
        return found


def _sizes(graph: fx.GraphModule, x: Tensor) -> dict[fx.Node, Shape]:
    interpreter = _Sizes(graph)
    with torch.no_grad():
        interpreter.run(x)
    return interpreter.sizes


def _module(node: Any, modules: dict[str, nn.Module]) -> nn.Module | None:
    return modules[str(node.target)] if isinstance(node, fx.Node) and node.op == "call_module" else None


def _overlap(pool: nn.MaxPool2d | nn.AvgPool2d) -> bool:
    """Whether a value lies in two windows: along an axis, one that is a whole number of strides further."""
    axes = zip(*map(_pair, (pool.kernel_size, pool.stride, getattr(pool, "dilation", 1))), strict=True)
    return any(apart * place % stride == 0 for size, stride, apart in axes for place in range(1, size))


def _pair(size: int | tuple[int, ...]) -> tuple[int, ...]:
    return (size, size) if isinstance(size, int) else size

"""The norms that Theorem 2 asks of a network, read off a run: nu, beta = d_N(theta, theta_0), W, W_g, layer by layer.

The operator norm of a convolution is that of its matrix for its own stride and padding on images of its own size, found
by power iteration: the transposed map is the gradient of the map itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from maxmatch.errors import UserError
from maxmatch.nets.model_file import load_model
from maxmatch.theory.layers import Layer, Reading, Shape, read_net

TOLERANCE = 1e-6  # relative change of the norm in one iteration
CALM = 5  # so many small changes in a row: vectors that hardly have the largest direction in them also change slowly
LEAST_ITERATIONS = 30  # for it to grow
BLOCK = 8  # vectors: one alone stays long at the second largest norm where it begins nearer to that
MOST_ITERATIONS = 1000


class LayerNorms(NamedTuple):
    """Operator norms of one layer: as initialised, as trained, and of the difference."""

    name: str
    kind: str
    parameters: int
    initial: float
    trained: float
    distance: float


@dataclass(frozen=True)
class Capacity:
    """The class O_{beta, nu} that just holds a trained network."""

    layers: tuple[LayerNorms, ...]
    classes: int
    outside: tuple[str, ...]
    covered: tuple[str, ...]

    @property
    def depth(self) -> int:
        """L_N"""
        return len(self.layers)

    @property
    def excess_norm(self) -> float:
        """nu: the initial layers have operator norms of at most 1 + nu."""
        return max(0.0, *(layer.initial - 1 for layer in self.layers))

    @property
    def radius(self) -> float:
        """beta = d_N(theta, theta_0), the sum of the layers' distances."""
        return math.fsum(layer.distance for layer in self.layers)

    @property
    def parameters(self) -> int:
        """W: what is left to learn after folding, biases too where there are any."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def one_output_parameters(self) -> int:
        """W_g: the same for a network whose last layer has one output."""
        last = self.layers[-1].parameters
        return self.parameters - last + last // self.classes


def operator_norm(
    apply: Callable[[Tensor], Tensor], takes: Shape, dtype: torch.dtype = torch.float64, seed: int = 0
) -> float:
    """The largest |A x| / |x| of a linear map on inputs (B, *takes), by iterating A^T A on a few vectors at once.

    They are made orthonormal each time; the largest norm in their span comes from below, and is taken when five
    iterations in a row changed it by less than a millionth of itself each.

    >>> round(operator_norm(lambda x: x * torch.tensor([3.0, -4.0]), (2,)), 4)
    4.0
    """
    generator = torch.Generator().manual_seed(seed)
    size = math.prod(takes)
    x = torch.randn(min(BLOCK, size), size, generator=generator, dtype=dtype)
    norm, calm = 0.0, 0
    for iteration in range(1, MOST_ITERATIONS + 1):
        x = torch.linalg.qr(x.T).Q.T.reshape(-1, *takes).requires_grad_()
        y = apply(x)
        if not y.requires_grad:  # no path from x: the map is 0
            return 0.0
        image = y.detach().flatten(1).double()
        products = image @ image.T
        if not products.isfinite().all():
            return math.nan
        before, norm = norm, max(0.0, torch.linalg.eigvalsh(products)[-1].item()) ** 0.5
        calm = calm + 1 if abs(norm - before) <= TOLERANCE * norm else 0
        if norm == 0 or (calm >= CALM and iteration >= LEAST_ITERATIONS):
            break
        (x,) = torch.autograd.grad(y.square().sum() / 2, x)  # A^T A x
        x = x.flatten(1)
    return norm


def layer_norm(layer: Layer, weight: Tensor) -> float:
    """The operator norm of a layer with this weight: exact for matrices and scales, by iteration for convolutions."""
    if layer.kind == "scale":
        return weight.abs().max().item()
    if layer.kind == "linear":
        return float(torch.linalg.matrix_norm(weight, 2))
    single = weight.float()  # three times as fast as float64, and its rounding is far below the tolerance
    return operator_norm(lambda x: layer.apply(single, x), layer.takes, single.dtype)


def capacity(
    trained: nn.Module,
    initial: nn.Module,
    shape: Shape,
    classes: int,
    advance: Callable[[int], None] = lambda count: None,
) -> Capacity:
    """The norms of a network and of the one it began as; `advance` is called with 1 after each layer."""
    now, then = read_net(trained, shape), read_net(initial, shape)
    if not now.layers:
        raise UserError(f"{type(trained).__name__} has no convolution and no matrix: there is nothing to bound")
    found = []
    for layer, before in zip(now.layers, then.layers, strict=True):
        norms = (layer_norm(layer, weight) for weight in (before.weight, layer.weight, layer.weight - before.weight))
        found.append(LayerNorms(layer.name, layer.kind, layer.parameters, *norms))
        advance(1)
    return Capacity(tuple(found), classes, now.outside, now.covered)


def distance(now: Reading, then: Reading) -> float:
    """d_N(theta, theta~): the sum over layers of the operator norm of the difference."""
    pairs = zip(now.layers, then.layers, strict=True)
    return math.fsum(layer_norm(layer, layer.weight - before.weight) for layer, before in pairs)


def capacity_of_run(folder: Path, advance: Callable[[int], None] = lambda count: None) -> Capacity:
    """The capacity of a run folder, from model.safetensors (the evaluated weights) and initial.safetensors (step 0)."""
    trained, info = load_model(folder / "model.safetensors")
    initial, _ = load_model(folder / "initial.safetensors")
    return capacity(trained, initial, info.preprocessing.shape, len(info.classes), advance)


def count_layers(folder: Path) -> int:
    """How many layers `capacity_of_run` will look at."""
    net, info = load_model(folder / "model.safetensors")
    return len(read_net(net, info.preprocessing.shape).layers)


def largest_input(images: Tensor) -> float:
    """chi, or chi_tau of views: the largest Euclidean norm of images as the net sees them, (N, C, H, W)."""
    return float(images.flatten(1).double().norm(dim=1).max())

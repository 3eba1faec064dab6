"""Operator norms against dense matrices, BatchNorm folded against the net itself, and the Lipschitz lemma on small nets."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from maxmatch.errors import UserError
from maxmatch.nets import make_net
from maxmatch.nets.batchnorm import BatchNorm, set_mode
from maxmatch.theory import bounds
from maxmatch.theory.layers import read_net
from maxmatch.theory.norms import capacity, distance, largest_input, layer_norm, operator_norm


def dense(apply, takes):
    """The matrix of a linear map, column by column."""
    size = math.prod(takes)
    return torch.stack([apply(row.view(1, *takes)).flatten() for row in torch.eye(size, dtype=torch.float64)], 1)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": 3, "padding": 0},
        {"kernel_size": 3, "padding": 1, "stride": 2},
        {"kernel_size": 5, "padding": 2, "stride": 3},
        {"kernel_size": 3, "padding": 2, "dilation": 2, "bias": True},
        {"kernel_size": 3, "padding": 1, "groups": 2},
        {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
        {"kernel_size": 3, "padding": "same", "padding_mode": "reflect"},
        {"kernel_size": 1},
    ],
    ids=str,
)
def test_the_norm_of_a_convolution_is_that_of_its_dense_matrix(options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, **{"bias": False, **options}), nn.ReLU())
    (layer,) = read_net(net, (2, 7, 6)).layers
    matrix = dense(lambda x: layer.apply(layer.weight, x), layer.takes)
    assert layer_norm(layer, layer.weight) == pytest.approx(torch.linalg.matrix_norm(matrix, 2).item(), rel=1e-3)


def test_the_norm_of_a_kernel_as_a_matrix_is_not_the_norm_of_the_convolution():
    """The kernel reshaped to a matrix, which is often taken for it, is something else."""
    torch.manual_seed(0)
    (layer,) = read_net(nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, bias=False)), (2, 8, 8)).layers
    flat = torch.linalg.matrix_norm(layer.weight.flatten(1), 2).item()
    assert abs(layer_norm(layer, layer.weight) - flat) > 0.2


def test_the_iteration_does_not_stop_where_the_largest_direction_has_yet_to_grow():
    """One singular value of 1.05 among 100,000 of 1: a random vector hardly has it, and at first changes very little."""
    scale = torch.ones(100_001, dtype=torch.float64)
    scale[7] = 1.05
    assert operator_norm(lambda x: scale * x, (100_001,)) == pytest.approx(1.05, rel=1e-3)


def test_the_iteration_does_not_stay_at_the_second_largest_norm():
    """Two that are apart by half a percent, as trained layers have; a single vector stops at the second for some seeds."""
    scale = torch.linspace(0.5, 0.9, 1024, dtype=torch.float64)
    scale[3], scale[5] = 1.0, 0.995
    for seed in range(20):
        assert operator_norm(lambda x: scale * x, (1024,), seed=seed) == pytest.approx(1.0, rel=1e-5)


def test_a_weight_that_is_no_number_has_a_norm_that_is_none():
    assert math.isnan(operator_norm(lambda x: math.nan * x, (3,)))


def test_the_norm_of_nothing_is_nothing():
    assert operator_norm(lambda x: 0 * x, (3,)) == 0
    assert operator_norm(lambda x: torch.zeros(1, 2, dtype=x.dtype), (3,)) == 0


def chain(generator):
    """A small net of the theorem's class, but for BatchNorm, which folding removes."""
    layers, inner = [], 2
    for _ in range(2):
        layers += [nn.Conv2d(inner, 3, 3, padding=1, stride=1, bias=False), BatchNorm(3), nn.ReLU()]
        inner = 3
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 4, bias=False)).double()
    for parameter in net.parameters():
        parameter.data = 0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return net


def test_folded_batchnorm_computes_what_the_net_does():
    generator = torch.Generator().manual_seed(0)
    net = chain(generator)
    for module in net.modules():
        if isinstance(module, BatchNorm):
            module.running_mean = torch.randn(3, generator=generator, dtype=torch.float64)
            module.running_var = torch.rand(3, generator=generator, dtype=torch.float64) + 0.1
    set_mode(net, "eval")
    found = read_net(net, (2, 5, 5))
    assert [layer.kind for layer in found.layers] == ["convolution", "convolution", "linear"]
    x = torch.randn(6, 2, 5, 5, generator=generator, dtype=torch.float64)
    y = x
    for layer in found.layers[:2]:
        y = torch.relu(layer.apply(layer.weight, y) + layer.bias.view(1, -1, 1, 1))
    last = found.layers[2]
    torch.testing.assert_close(last.apply(last.weight, y.mean((2, 3))), net(x))
    assert "BatchNorm folded into the layer before it: 2" in found.covered
    assert found.outside == ("biases: 2 of 3 layers have one, 2 of them made by folding BatchNorm",)


@pytest.mark.parametrize("affine", [True, False])
def test_a_bias_before_batchnorm_is_folded_too(affine):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, affine=affine)).double()
    net[1].running_mean.normal_()
    net[1].running_var.uniform_(0.1, 4.0)
    if affine:
        nn.init.normal_(net[1].weight)
        nn.init.normal_(net[1].bias)
    set_mode(net, "eval")
    (layer,) = read_net(net, (2, 5, 5)).layers
    x = torch.randn(4, 2, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(layer.apply(layer.weight, x) + layer.bias.view(1, -1, 1, 1), net(x))
    assert layer.parameters == 2 * 3 * 9 + 3


def test_a_batchnorm_whose_convolution_is_used_elsewhere_too_is_not_folded():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2)

        def forward(self, x):
            y = self.conv(x)
            return y + self.norm(y)

    found = read_net(Twice(), (2, 4, 4))
    assert [layer.kind for layer in found.layers] == ["convolution", "scale"]
    assert found.outside[0] == "shortcuts: 1"
    norm = found.layers[1]
    matrix = dense(lambda x: norm.apply(norm.weight, x), norm.takes)
    assert layer_norm(norm, norm.weight) == pytest.approx(torch.linalg.matrix_norm(matrix, 2).item())


def test_what_a_wide_resnet_has_outside_the_theorem_is_named():
    net = make_net("wrn-10-1", 10, 1)
    set_mode(net, "eval")
    found = read_net(net, (1, 8, 8))
    assert found.outside[0] == "shortcuts: 3"
    assert any("biases: 8 of 13" in what for what in found.outside)
    assert any("BatchNorm after a sum: 3" in what for what in found.outside)
    assert "leaky ReLU of slope 0.1: 7" in found.covered
    names = [layer.name for layer in found.layers]
    assert names[:3] == ["stem", "blocks.0.conv1", "blocks.0.conv2"]


@pytest.mark.parametrize(
    ("module", "named"),
    [
        (nn.LeakyReLU(2.0), "leaky ReLU of slope 2"),
        (nn.MaxPool2d(3, 2), "overlapping max pooling"),
        (nn.MaxPool2d(2, (2, 1)), "overlapping max pooling"),
        (nn.AvgPool2d((2, 3), 2), "overlapping average pooling"),
        (nn.MaxPool2d(2, 2, dilation=2), "overlapping max pooling"),
        (nn.AdaptiveAvgPool2d((7, 4)), "pooling that repeats values"),
        (nn.Sigmoid(), "Sigmoid (not looked into)"),
    ],
)
def test_other_parts_outside_the_theorem_are_named_too(module, named):
    found = read_net(nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), module), (1, 8, 8))
    assert found.outside == (f"{named}: 1",)


@pytest.mark.parametrize(
    "module",
    [
        nn.MaxPool2d(2), nn.AvgPool2d(3), nn.AvgPool2d((2, 3), (2, 3)), nn.MaxPool2d(2, 3, dilation=2),
        nn.AdaptiveAvgPool2d((6, 3)),
    ],
    ids=str,
)  # fmt: skip
def test_pooling_whose_windows_lie_side_by_side_is_covered(module):
    found = read_net(nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), module), (1, 8, 8))
    assert found.outside == ()
    assert found.covered == (f"{'max' if isinstance(module, nn.MaxPool2d) else 'average'} pooling: 1",)


def test_a_layer_that_is_used_twice_is_named():
    layer = nn.Linear(3, 3, bias=False)
    found = read_net(nn.Sequential(layer, nn.ReLU(), layer), (3,))
    assert found.outside == ("layers used more than once: 0",)


def test_plain_conv_is_inside_the_theorem_and_starts_at_nu_0():
    torch.manual_seed(0)
    net = make_net("plain-conv", 10, 3)
    found = capacity(net, net, (3, 16, 16), 10)
    assert found.outside == ()
    assert found.excess_norm == pytest.approx(0, abs=1e-4)
    assert found.radius == 0
    assert found.parameters == sum(p.numel() for p in net.parameters())
    assert found.one_output_parameters == found.parameters - 9 * net.head.in_features


def test_a_net_that_cannot_be_traced_is_told_in_one_line():
    class Moody(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x) if x.sum() > 0 else x

    with pytest.raises(UserError, match="torch.fx can't read its layers"):
        read_net(Moody(), (2,))
    with pytest.raises(UserError, match="nothing to bound"):
        capacity(nn.PReLU(), nn.PReLU(), (2,), 2)


def test_capacity_by_hand():
    first, second = (nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False)) for _ in "ab")
    for net, weights in ((first, ([3.0, 1.0], [1.0, 2.0])), (second, ([1.5, 1.0], [1.0, 1.25]))):
        for layer, diagonal in zip((net[0], net[2]), weights, strict=True):
            layer.weight.data = torch.diag(torch.tensor(diagonal))
    found = capacity(first, second, (2,), 2)
    assert found.excess_norm == pytest.approx(0.5)
    assert found.radius == pytest.approx(1.5 + 0.75)
    assert (found.depth, found.parameters, found.one_output_parameters) == (2, 8, 6)
    assert [(layer.initial, layer.trained, layer.distance) for layer in found.layers] == [
        pytest.approx((1.5, 3.0, 1.5)),
        pytest.approx((1.25, 2.0, 0.75)),
    ]


def test_a_net_that_begins_small_has_nu_0_and_a_negative_scale_counts_by_its_size():
    first = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    for layer in (first[0], first[2]):
        layer.weight.data = torch.eye(2) / 2
    assert capacity(first, first, (2,), 2).excess_norm == 0
    norm = BatchNorm(2, eps=0.0)
    norm.weight.data = torch.tensor([1.0, -3.0])
    (scale,) = read_net(nn.Sequential(nn.ReLU(), norm), (2, 4, 4)).layers
    assert (scale.kind, layer_norm(scale, scale.weight)) == ("scale", 3)


def test_a_net_in_training_is_read_as_it_is_evaluated():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), BatchNorm(2), nn.ReLU())
    net(torch.randn(4, 1, 8, 8))
    before = [buffer.clone() for buffer in net.buffers()]
    (found,) = read_net(net.train(), (1, 8, 8)).layers
    assert all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))
    scale = net[1].weight / (net[1].running_var + net[1].eps).sqrt()
    torch.testing.assert_close(found.weight.float(), net[0].weight * scale.view(-1, 1, 1, 1))


def test_the_largest_input_by_hand():
    images = torch.tensor([[[[3.0, 4.0]]], [[[0.0, -1.0]]]])
    assert largest_input(images) == 5


def aligned(norms, directions):
    """Layers of rank one whose outputs point where the next one looks: ReLU changes nothing, and the norms multiply."""
    *inner, last = (norm * torch.outer(p, q) for norm, q, p in zip(norms, directions[:-1], directions[1:], strict=True))
    layers = []
    for weight in inner:
        convolution = nn.Conv2d(3, 3, 1, bias=False)
        convolution.weight.data = weight[:, :, None, None]
        layers += [convolution, nn.ReLU()]
    head = nn.Linear(3, 3, bias=False)
    head.weight.data = last
    return nn.Sequential(*layers, nn.Flatten(), head)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 8), st.floats(0.0, 0.4), st.floats(0.1, 2.0), st.floats(0.1, 5.0))
@example(0, 28, 0.2, 1.0, 3.0)  # here the printed exponential is far too small
def test_the_lipschitz_lemma(seed, depth, nu, radius, chi):
    """|f_theta(x) - f_theta~(x)| <= chi (1 + nu + beta / L)^L d_N(theta, theta~) for both within beta of theta_0.

    On nets where it is nearly an equality: all layers but the last have moved, alike, and the last one differs.
    """
    random = torch.rand(depth + 1, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    directions = random / random.norm(dim=1, keepdim=True)
    apart = 0.02 * radius
    moved_to = 1 + nu + (radius - apart) / (depth - 1)
    origin, one, two = (
        aligned(norms, directions)
        for norms in (
            [1 + nu] * depth,
            [moved_to] * (depth - 1) + [1 + nu],
            [moved_to] * (depth - 1) + [1 + nu + apart],
        )
    )
    a, b, start = (read_net(net, (3, 1, 1)) for net in (one, two, origin))
    assert max(distance(a, start), distance(b, start)) <= radius * (1 + 1e-5)
    assert max(layer_norm(layer, layer.weight) for layer in start.layers) == pytest.approx(1 + nu)
    x = chi * directions[:1, :, None, None]
    with torch.no_grad():
        moved = (one(x) - two(x)).norm().item()
    lipschitz = bounds.log_lipschitz(input_norm=largest_input(x), excess_norm=nu, radius=radius, depth=depth)
    assert 0.3 < moved / (math.exp(lipschitz) * distance(a, b)) <= 1 + 1e-3


def test_the_lipschitz_lemma_needs_its_power():
    """Layers of norm 1 + nu, one of them changed: outputs change by (1 + nu)^(L-1), which the printed exponential forgets."""
    depth, nu, step = 28, 0.2, 1e-3
    outputs = [(1 + nu) ** (depth - 1) * (1 + nu + change) for change in (0.0, step)]
    rate = (outputs[1] - outputs[0]) / step
    arguments = {"input_norm": 1.0, "excess_norm": nu, "radius": step, "depth": depth}
    assert rate <= math.exp(bounds.log_lipschitz(**arguments))
    printed = math.exp(step / (1 + nu))
    assert rate > 100 * printed


class Shaped(nn.Module):
    """A net that asks for its images' shape, as transformers do: a node of its graph that holds no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.head = nn.Conv2d(2, 3, 3), nn.Linear(3 * 5 * 5, 4)

    def forward(self, x):
        return self.head(self.convolution(x).reshape(x.shape[0], -1))


def test_a_net_that_asks_for_a_shape_is_read():
    found = read_net(Shaped().eval(), (2, 7, 7))
    assert [(layer.name, layer.kind) for layer in found.layers] == [("convolution", "convolution"), ("head", "linear")]

"""plain-conv is what it says: layers in a row without bias, BatchNorm or shortcut, and it learns."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from maxmatch.errors import UsageError
from maxmatch.nets import features, make_net, num_features


def test_it_is_its_layers_in_a_row():
    net = make_net("plain-conv", 7, 3)
    x = torch.randn(2, 3, 16, 16)
    y = x
    for layer in (module for module in net.modules() if isinstance(module, nn.Conv2d)):
        y = torch.relu(nn.functional.conv2d(y, layer.weight, stride=layer.stride, padding=1))
    torch.testing.assert_close(net(x), y.mean((2, 3)) @ net.head.weight.T)
    assert not [name for name, _ in net.named_parameters() if "bias" in name]
    assert list(net.buffers()) == []
    assert features(net, x).shape == (2, num_features(net))
    assert net(torch.zeros(2, 3, 16, 16)).abs().max() == 0  # no bias: 0 stays 0


def test_the_second_and_the_fourth_layer_halve_the_side():
    net, sides = make_net("plain-conv", 7, 3), []
    for layer in net.layers:
        layer.register_forward_hook(
            lambda layer, _, y: sides.append(y.shape[-1]) if isinstance(layer, nn.Conv2d) else None
        )
    net(torch.zeros(1, 3, 32, 32))
    assert sides == [32, 16, 16, 8, 8]


def test_the_first_weights_keep_lengths():
    """Each kernel is an orthogonal matrix at its middle, so 1 is its operator norm."""
    for layer in (module for module in make_net("plain-conv", 10, 3).modules() if isinstance(module, nn.Conv2d)):
        middle = layer.weight[:, :, 1, 1]
        assert torch.linalg.svdvals(middle).sub(1).abs().max() < 1e-5
        assert layer.weight.norm().item() == pytest.approx(middle.norm().item(), rel=1e-5)  # of float32


def test_every_kernel_gets_a_gradient_at_the_start():
    net = make_net("plain-conv", 10, 1)
    net(torch.rand(4, 1, 8, 8)).logsumexp(1).sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad.abs().max() > 0, name


def test_what_it_has_not_is_refused():
    with pytest.raises(UsageError, match="plain-conv has no dropout"):
        make_net("plain-conv", 10, 3, dropout=0.5)
    with pytest.raises(UsageError, match="no published weights"):
        make_net("plain-conv", 10, 3, pretrained=True)

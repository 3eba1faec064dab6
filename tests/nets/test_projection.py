"""The head of a pretraining: where it is put, and what it computes."""

from __future__ import annotations

import torch
from torch import nn

from maxmatch.nets.projection import Projection, head_name, with_projection


def test_a_projection_is_two_layers_with_a_relu_between():
    torch.manual_seed(0)
    made, x = Projection(5, 3), torch.randn(4, 5)
    first, _, last = made
    hidden = (x @ first.weight.T + first.bias).clamp(min=0)
    assert (hidden == 0).any()
    torch.testing.assert_close(made(x), hidden @ last.weight.T + last.bias)


def test_the_head_is_the_last_layer_that_sees_the_features():
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 2)), nn.Linear(2, 6))
    assert head_name(net, 6) == "3.0"
    with_projection(net, outputs=4, features=6)
    assert [type(module) for module in net] == [nn.Linear, nn.ReLU, nn.Linear, nn.Sequential, nn.Linear]
    assert isinstance(net[3][0], Projection)
    assert (net[3][0][0].in_features, net[3][0][2].out_features) == (6, 4)
    assert head_name(net, 6) == "3.0"  # it is found again, though its own layers see as many

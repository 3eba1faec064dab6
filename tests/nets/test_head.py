"""The head of a net: where it is, an MLP in its place and what that computes, and one that says nothing yet."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from maxmatch.errors import UsageError
from maxmatch.nets import head_prefixes, make_net, num_features
from maxmatch.nets.head import Projection, empty_head, head_names, with_projection


def test_a_projection_is_two_layers_with_a_relu_between():
    torch.manual_seed(0)
    made, x = Projection(5, 3), torch.randn(4, 5)
    first, _, last = made
    hidden = (x @ first.weight.T + first.bias).clamp(min=0)
    assert (hidden == 0).any()
    torch.testing.assert_close(made(x), hidden @ last.weight.T + last.bias)


def test_the_head_is_the_last_layer_that_sees_the_features():
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 2)), nn.Linear(2, 6))
    assert head_names(net, 6) == ["3.0"]
    with_projection(net, outputs=4, features=6)
    assert [type(module) for module in net] == [nn.Linear, nn.ReLU, nn.Linear, nn.Sequential, nn.Linear]
    assert isinstance(net[3][0], Projection)
    assert (net[3][0][0].in_features, net[3][0][2].out_features) == (6, 4)
    assert head_names(net, 6) == ["3.0"]  # it is found again, though its own layers see as many


# By what their last layers are: a linear one, two of them, a convolution, that of an MLP behind a ReLU squared.
LAST = {
    "timm:test_resnet": ["fc"],
    "timm:deit_tiny_distilled_patch16_224": ["head", "head_dist"],
    "timm:resnetv2_18": ["head.fc"],
    "timm:repvit_m0_9": ["head.head.l", "head.head_dist.l"],
    "timm:caformer_s18": ["head.fc.fc2"],
}


@pytest.mark.parametrize("name", LAST)
def test_an_empty_head_is_its_last_layers_and_nothing_else(name):
    """timm's kinds of heads. Oracle: the net as it was; and a last layer at 0 learns."""
    pytest.importorskip("timm")
    torch.manual_seed(0)
    net = make_net(name, 5, 3, size=None).train()
    before = {name: value.detach().clone() for name, value in net.named_parameters()}
    empty_head(net, num_features(net))
    changed = {n.rpartition(".")[0] for n, p in net.named_parameters() if before[n].any() and not p.any()}
    assert sorted(changed) == LAST[name]
    assert all(torch.equal(p, before[n]) for n, p in net.named_parameters() if n.rpartition(".")[0] not in changed)
    assert {n for n in before if n.rpartition(".")[0] in changed} <= {
        n for n in before if n.startswith(head_prefixes(net))
    }
    last = [parameter for n, parameter in net.named_parameters() if n.rpartition(".")[0] in changed]
    side = 224 if "224" in name else 64
    x, y = torch.randn(2, 3, side, side), torch.tensor([0, 1])
    logits = net(x)
    logits = logits[0] if isinstance(logits, tuple) else logits
    assert not logits.any()
    nn.functional.cross_entropy(logits, y).backward()
    assert all(parameter.grad.any() for parameter in last)


def test_a_head_that_is_no_single_linear_layer_is_not_replaced():
    pytest.importorskip("timm")
    for name in ("timm:resnetv2_18", "timm:deit_tiny_distilled_patch16_224", "timm:caformer_s18"):
        with pytest.raises(UsageError, match="is no single linear layer to replace; choose another net"):
            make_net(name, 1, 3, projection=8)

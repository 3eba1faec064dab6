"""The fused pass equals the net: values, gradients and running statistics. The kernels themselves: tests/gpu.

Here the two kernels are stood in for by torch, in float64, so that what is tested is everything around them: the
packing of the weights, the statistics, and the backward formulas.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional

from maxmatch.nets import make_net
from maxmatch.nets.batchnorm import freeze, set_mode
from maxmatch.nets.fused import Fused, can_fuse, layout
from maxmatch.nets.kernels import side_of
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.nets.wide_resnet import SLOPE


def unpack(packed):
    """The inverse of `layout`, column by column as convolution.cu's comment has it."""
    taps, chunks, outputs, _ = packed.shape
    group = min(outputs, 32)
    weight = packed.new_empty(outputs, chunks * 8, taps)
    for column in range(outputs):
        place, within = divmod(column, group)
        j, rest = divmod(within, 8)
        q, e = divmod(rest, 2)
        weight[place * group + q * group // 4 + 2 * j + e] = packed[:, :, column].reshape(taps, -1).T
    side = 3 if taps == 9 else 1
    return weight.reshape(outputs, chunks * 8, side, side)


def normed(x, moments, gamma, beta):
    if x.dtype == torch.uint8:
        return x.double() * gamma + beta
    return images((x.double() - moments[0]) * moments[1] * gamma + beta)


def images(x):
    """(B, H W, C) to (B, C, H, W)."""
    return x.transpose(1, 2).unflatten(2, (side_of(x), side_of(x)))


def pixels(x):
    return x.flatten(2).transpose(1, 2).contiguous()


def convolve(x, packed, before, gamma, beta, other, eps):
    moments = None
    if before is not None:
        total = before.double().sum(0) / (x.numel() // x.shape[-1])
        moments = torch.stack([total[0], (total[1] - total[0] ** 2 + eps) ** -0.5])
    y = normed(x, moments, gamma, beta)
    y = y if before is None else functional.leaky_relu(y, SLOPE)
    weight = unpack(packed).double()[:, : y.shape[1]]
    out = pixels(functional.conv2d(y, weight, padding=weight.shape[-1] // 2))
    out = out if other is None else out + other
    sums = torch.stack([out.sum((0, 1)), out.square().sum((0, 1))])[None]
    return out, sums, torch.zeros(2, 16) if moments is None else moments


def convolve_back(delta, packed, moments, gamma, beta, x):
    weight = unpack(packed).double()
    out = functional.conv2d(images(delta.double()), weight, padding=weight.shape[-1] // 2)
    out = pixels(out * torch.where(normed(x, moments, gamma, beta) > 0, 1.0, SLOPE))
    return out, torch.stack([out.sum((0, 1)), (out * (x - moments[0])).sum((0, 1))])[None]


def weight_gradient(x, moments, gamma, beta, delta, taps):
    y = normed(x, moments, gamma, beta)
    y = y if moments is None else functional.leaky_relu(y, SLOPE)
    side = 3 if taps == 9 else 1
    weight = torch.zeros(delta.shape[-1], y.shape[1], side, side, dtype=torch.float64)
    found = torch.func.grad(lambda w: (functional.conv2d(y, w, padding=side // 2) * images(delta)).sum())
    return found(weight).flatten(2).transpose(1, 2)[None].contiguous()


@pytest.fixture(scope="module", autouse=True)
def stand_ins():
    library = torch.library.Library("maxmatch", "IMPL")
    library.impl("convolve", convolve, "CPU")
    library.impl("convolve_back", convolve_back, "CPU")
    library.impl("weight_gradient", weight_gradient, "CPU")
    yield
    library._destroy()


def rounded(net):
    """The net with weights that bf16 holds exactly: packing them loses nothing."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(parameter.bfloat16())
            if parameter.ndim == 1:
                parameter.add_(torch.linspace(-0.5, 0.5, len(parameter)).bfloat16())
    return net.double()


@pytest.mark.parametrize(("name", "side"), [("wrn-10-2", 16), ("wrn-16-1", 8), ("wrn-10-4", 8)])
@pytest.mark.parametrize("mode", ["train", "score"])
def test_the_fused_pass_is_the_net(name, side, mode):
    torch.manual_seed(0)
    plain = rounded(make_net(name, classes=7, channels=3))
    fused = copy.deepcopy(plain)
    given = torch.randint(0, 256, (6, 3, side, side), dtype=torch.uint8)
    preprocessing = Preprocessing(3, side, side)
    weights = torch.randn(6, 7, dtype=torch.float64)
    for net in (plain, fused):
        set_mode(net, mode)
    wanted = plain(preprocessing(given, torch.float64))
    found = Fused(fused, preprocessing)(given)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    (wanted * weights).sum().backward()
    (found * weights).sum().backward()
    for (key, a), b in zip(plain.named_parameters(), fused.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-4, atol=1e-5 * a.grad.abs().max().item(), msg=key)
    for (key, a), b in zip(plain.named_buffers(), fused.buffers(), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6, msg=key)


@pytest.mark.parametrize("shape", [(16, 16, 3, 3), (32, 16, 1, 1), (64, 32, 3, 3)])
def test_the_layout_loses_no_weight(shape):
    weight = torch.randn(shape)
    assert torch.equal(unpack(layout(weight)), weight)


def test_the_fused_pass_is_for_wide_resnets_on_hopper_gpus():
    net, device = make_net("wrn-10-1", classes=10, channels=3), torch.device("cpu")
    assert not can_fuse(net, (3, 32, 32), device)


def test_the_fused_pass_is_not_for_frozen_statistics(monkeypatch):
    """It normalises by those of the batch. A GPU is stood in for."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr("maxmatch.nets.fused.can_compile", lambda: True)
    net, device = make_net("wrn-10-1", classes=10, channels=3), torch.device("cuda")
    assert can_fuse(net, (3, 32, 32), device)
    freeze(net)
    assert not can_fuse(net, (3, 32, 32), device)

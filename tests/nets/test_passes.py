"""The passes beside the training pass: batch statistics are used, running ones stay, gradient flows, dropout is on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from maxmatch.nets import features, make_net, num_features
from maxmatch.nets.averaging import Average
from maxmatch.nets.batchnorm import set_mode, still
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train import runner
from maxmatch.train.runner import Runner

PASSES = ("aside", "probe", "features")
NETS = {"wrn-10-1": (1, 8), "resnet18": (3, 32)}


def make(name: str, dropout: float = 0.0, **options: bool) -> tuple[nn.Module, Runner, torch.Tensor]:
    torch.manual_seed(0)
    channels, side = NETS[name]
    net = make_net(name, 7, channels, dropout=dropout)
    set_mode(net, "train")
    shape = Preprocessing(channels, side, side)
    run = Runner(net, Average(net, 0.9), shape, None, torch.tensor(0.5), torch.tensor(5), **options)
    return net, run, torch.randn(6, channels, side, side)


def head(net: nn.Module) -> nn.Linear:
    return net.head if hasattr(net, "head") else net.fc


@pytest.mark.parametrize("name", NETS)
def test_still_is_training_but_for_the_running_statistics(name):
    net, _, x = make(name)
    before = [b.clone() for b in net.buffers()]
    with still(net):
        logits = net(x)
        assert net.training
    assert all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))
    assert logits.requires_grad
    gradient = torch.autograd.grad(logits.square().sum(), list(net.parameters()))
    trained = net(x)  # train mode again: the same batch statistics, and the running ones move
    torch.testing.assert_close(logits, trained)
    assert any(not torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))
    for ours, theirs in zip(gradient, torch.autograd.grad(trained.square().sum(), list(net.parameters())), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_still_ends_after_an_error_too():
    net, _, _ = make("wrn-10-1")
    with pytest.raises(RuntimeError), still(net):
        net(torch.zeros(2, 5, 8, 8))
    assert net.norm.mode == "train"


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("kind", PASSES)
def test_a_pass_aside_uses_batch_statistics_and_leaves_the_running_ones(name, kind):
    net, run, x = make(name)
    before = [b.clone() for b in net.buffers()]
    forward = getattr(run, kind)
    (alone,) = forward(x[:3])
    (together, _) = forward(x[:3], 5 * x[3:])
    assert all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))
    assert not torch.allclose(alone, together)  # the statistics are those of the whole batch
    images = x.clone().requires_grad_()
    (out,) = forward(images)
    wanted = [images, *(p for p in net.parameters() if kind != "features" or p not in set(head(net).parameters()))]
    assert all(g.abs().sum() > 0 for g in torch.autograd.grad(out.square().sum(), wanted))


@pytest.mark.parametrize("kind", PASSES)
def test_dropout_is_on_in_a_pass_aside_and_off_where_it_is_scored(kind):
    _, run, x = make("wrn-10-1", dropout=0.5)
    forward = getattr(run, kind)
    assert not torch.equal(forward(x)[0], forward(x)[0])
    assert torch.equal(run.score(x)[0], run.score(x)[0])
    assert not torch.equal(run.net(x)[0], run.net(x)[0])


@pytest.mark.parametrize("name", NETS)
def test_the_head_on_the_features_gives_the_logits(name):
    net, run, x = make(name)
    (seen,), (logits,) = run.features(x), run.aside(x)
    assert seen.shape == (6, num_features(net)) == (6, head(net).in_features)
    torch.testing.assert_close(head(net)(seen), logits)
    set_mode(net, "eval")
    torch.testing.assert_close(head(net)(features(net, x)), net(x))


def test_the_passes_agree_with_the_training_pass_and_take_uint8():
    _, run, _ = make("wrn-10-1")
    x = torch.randint(256, (6, 1, 8, 8), dtype=torch.uint8)
    expected = torch.cat(list(run.net(x[:2], x[2:])))
    for forward in (run.aside, run.probe, run.score):
        two, four = forward(x[:2], x[2:])
        assert len(two) == 2
        torch.testing.assert_close(torch.cat([two, four]), expected)
        torch.testing.assert_close(torch.cat(list(forward(run.pixels(x[:2]), x[2:]))), expected)


def test_a_probe_has_the_precision_of_the_weights():
    _, run, x = make("wrn-10-1", bf16=True)
    _, exact, _ = make("wrn-10-1")
    assert run.aside(x)[0].dtype == run.net(x)[0].dtype == torch.bfloat16
    assert run.probe(x)[0].dtype == torch.float32
    assert torch.equal(run.probe(x)[0], exact.probe(x)[0])


class Kernels:
    """Stands for `Fused`, which runs on a Hopper GPU alone."""

    def __init__(self, net, preprocessing):
        self.net, self.fresh, self.asked = net, 0, 0

    def refresh(self):
        self.fresh += 1

    def __call__(self, images):
        self.asked += 1
        return torch.zeros(len(images), 7)


@pytest.mark.parametrize(("taught", "eman", "expected"), [(True, False, 1), (False, False, 0), (True, True, 0)])
def test_the_average_passes_through_the_kernels_where_it_is_asked(monkeypatch, taught, eman, expected):
    """In eval mode, as EMAN asks it, they don't run."""
    made = []
    monkeypatch.setattr(runner, "can_fuse", lambda *_: True)
    monkeypatch.setattr(runner, "Fused", lambda *given: made.append(Kernels(*given)) or made[-1])
    monkeypatch.setattr(Runner, "_try_fused", lambda _, *given: runner.Fused(*given))
    monkeypatch.setattr(torch, "compile", lambda forward, **_: forward)
    net = make_net("wrn-10-1", 7, 1)
    average, shape = Average(net, 0.9, eman), Preprocessing(1, 8, 8)
    run = Runner(
        net, average, shape, None, torch.tensor(0.5), torch.tensor(5), bf16=True, compiled=True, fused=True,
        taught=taught,
    )  # fmt: skip
    assert [kernels.net for kernels in made] == [net, average.net][: 1 + expected]
    run.refresh()
    run.teacher(torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    assert [(kernels.fresh, kernels.asked) for kernels in made] == [(1, 0), (1, 1)][: 1 + expected]
    assert average.net.norm.mode == "eval"

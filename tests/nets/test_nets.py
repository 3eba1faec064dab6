"""The Wide ResNet's size and wiring, BatchNorm's three modes, the average against torch's own."""

from __future__ import annotations

import copy
import json
from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from maxmatch.errors import UsageError
from maxmatch.nets import make_net
from maxmatch.nets.averaging import Average
from maxmatch.nets.batchnorm import BatchNorm, freeze, running_statistics, scoring, set_mode, still, synchronise
from maxmatch.nets.device import best_precision
from maxmatch.nets.model_file import ModelInfo, load_model, read_tensors, save_model
from maxmatch.nets.preprocess import Preprocessing


@pytest.mark.parametrize(
    ("name", "classes", "millions"), [("wrn-28-2", 10, 1.47), ("wrn-28-8", 100, 23.4), ("wrn-37-2", 10, 5.93)]
)
def test_parameter_counts_are_the_published_ones(name, classes, millions):
    count = sum(p.numel() for p in make_net(name, classes, 3).parameters())
    assert count / 1e6 == pytest.approx(millions, rel=2e-3)


def reference_forward(net, x, dropout=0.0):
    """Google's residual block, written from the protocol: every block normalises first, the first shortcut too."""

    def normed(module, value):
        return nn.functional.leaky_relu(module(value), 0.1)

    y = net.stem(x)
    for number, block in enumerate(net.blocks):
        activated = normed(block.norm1, y)
        shortcut = activated if number == 0 else y
        out = block.conv2(nn.functional.dropout(normed(block.norm2, block.conv1(activated)), dropout))
        if block.conv1.in_channels != block.conv1.out_channels:
            shortcut = block.shortcut(shortcut)
        y = shortcut + out
    return net.head(normed(net.norm, y).mean((2, 3)))


def test_the_wiring_is_google_s():
    torch.manual_seed(0)
    net = make_net("wrn-16-2", 10, 3)
    x = torch.randn(4, 3, 32, 32)
    torch.testing.assert_close(net(x), reference_forward(net, x))


def test_stages_halve_the_side_and_double_the_width():
    net = make_net("wrn-37-2", 10, 3)
    assert net.forward_features(torch.zeros(1, 3, 96, 96)).shape == (1, 256, 12, 12)
    assert net.num_features == 256
    assert make_net("wrn-10-1", 3, 1)(torch.zeros(2, 1, 8, 8)).shape == (2, 3)


def test_initial_weights_have_the_stated_spread():
    torch.manual_seed(0)
    net = make_net("wrn-28-8", 100, 3)
    conv = net.blocks[-1].conv2.weight
    assert conv.std().item() == pytest.approx((2 / (9 * conv.shape[0])) ** 0.5, rel=0.02)
    widening = net.blocks[4].conv1.weight  # from 128 to 256: it is the outputs that count
    assert widening.std().item() == pytest.approx((2 / (9 * 256)) ** 0.5, rel=0.02)
    assert net.head.weight.std().item() == pytest.approx((2 / (512 + 100)) ** 0.5, rel=0.05)
    assert net.head.bias.abs().sum() == 0


def test_dropout_acts_in_training_alone():
    torch.manual_seed(0)
    net = make_net("wrn-10-1", 10, 1, dropout=0.5)
    x = torch.randn(4, 1, 8, 8)
    set_mode(net, "train")
    assert not torch.equal(net(x), net(x))
    with scoring(net):
        assert torch.equal(net(x), net(x))
    set_mode(net, "eval")
    assert torch.equal(net(x), net(x))


def test_dropout_drops_the_share_that_is_asked_for_between_the_convolutions():
    net, x = make_net("wrn-10-1", 10, 1, dropout=0.2), torch.randn(4, 1, 8, 8)
    set_mode(net, "train")
    torch.manual_seed(0)
    found = net(x)
    torch.manual_seed(0)
    torch.testing.assert_close(found, reference_forward(net, x, dropout=0.2))


@pytest.mark.parametrize("name", ["wrn-11-2", "resnet", "wrn-28-0", "wrn-28", "wrn-4-2"])
def test_unknown_nets_are_refused(name):
    with pytest.raises(UsageError, match="type wrn-DEPTH-WIDTH"):
        make_net(name, 10, 3)


class Foreign(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        return self.norm(x)


@pytest.mark.parametrize("make", [lambda: BatchNorm(3, momentum=0.1, eps=1e-5), Foreign])
def test_the_three_modes_of_batchnorm(make):
    """Oracle: nn.BatchNorm2d in train and eval mode."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 8, 3, 4, 4).unbind(0)
    oracle, ours = nn.BatchNorm2d(3), make()
    state = [b for b in ours.buffers() if b.ndim]
    set_mode(ours, "train")
    torch.testing.assert_close(ours(x), oracle(x))
    before = [b.clone() for b in ours.buffers()]
    with scoring(ours):
        scored = ours(y)
    assert all(torch.equal(a, b) for a, b in zip(before, ours.buffers(), strict=True))
    fresh = nn.BatchNorm2d(3)
    torch.testing.assert_close(scored, fresh(y))
    set_mode(ours, "eval")
    oracle.eval()
    torch.testing.assert_close(ours(y), oracle(y))
    torch.testing.assert_close(state[0], oracle.running_mean)
    torch.testing.assert_close(state[1], oracle.running_var)
    set_mode(ours, "train")
    ours(y)
    assert not torch.equal(before[0], next(ours.buffers()))


@pytest.mark.parametrize("make", [lambda: BatchNorm(3), Foreign, lambda: copy.deepcopy(frozen(Foreign()))])
def test_frozen_statistics_normalise_in_every_mode_and_stay(make):
    """Oracle: nn.BatchNorm2d in eval mode."""
    torch.manual_seed(0)
    x, ours = torch.randn(8, 3, 4, 4), frozen(make())
    oracle = nn.BatchNorm2d(3, eps=next(m.eps for m in ours.modules() if hasattr(m, "eps"))).eval()
    for module in (m for net in (ours, oracle) for m in net.modules() if hasattr(m, "running_mean")):
        module.running_mean.copy_(torch.tensor([0.5, -1.0, 2.0]))
        module.running_var.copy_(torch.tensor([0.5, 2.0, 1.0]))
    before = [b.clone() for b in ours.buffers()]
    for mode in ("train", "score", "eval"):
        set_mode(ours, mode)
        torch.testing.assert_close(ours(x), oracle(x))
    for within in (scoring, still):
        with within(ours):
            torch.testing.assert_close(ours(x), oracle(x))
    assert all(torch.equal(a, b) for a, b in zip(before, ours.buffers(), strict=True))


def frozen(net):
    freeze(net)
    return net


def test_train_and_eval_of_torch_are_two_of_the_modes():
    """As of any net: by eval() a picture is judged by itself, whatever is beside it; train() goes back."""
    torch.manual_seed(0)
    net, x = make_net("wrn-10-1", 10, 1), torch.randn(6, 1, 8, 8)
    net(x)
    before = [b.clone() for b in net.buffers()]
    net.eval()
    torch.testing.assert_close(net(x)[:2], net(x[:2]))
    assert all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))
    net.train()
    net(x)
    assert not any(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))
    with still(net):
        assert net.training
        before = [b.clone() for b in net.buffers()]
        apart = net(x[:2])
    assert all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))
    net.eval()
    assert not torch.allclose(apart, net(x[:2]), atol=1e-3)  # it had normalised by the two


def test_scoring_gives_no_gradient_and_goes_back_to_training():
    net = make_net("wrn-10-1", 10, 1)
    with scoring(net):
        assert not net(torch.zeros(2, 1, 8, 8)).requires_grad
    assert net.training
    assert net.norm.mode == "train"


def test_scoring_goes_back_to_the_mode_that_is_asked_for():
    net = nn.Sequential(BatchNorm(2), nn.BatchNorm1d(2))
    for error in (None, ZeroDivisionError):
        with suppress(ZeroDivisionError), scoring(net, "eval"):
            assert (net[0].mode, net[1].training) == ("score", True)
            if error:
                raise error
        assert (net[0].mode, net[1].training, net.training) == ("eval", False, False)


def test_a_variance_of_nothing_is_google_s_epsilon():
    """1e-3, where torch's own has 1e-5: running statistics of published weights are read with it."""
    norm = BatchNorm(1)
    set_mode(norm, "eval")
    norm.running_var.zero_()
    assert norm(torch.ones(1, 1, 1, 1)).item() == pytest.approx(1e-3**-0.5)


def test_the_average_follows_like_torch_s_averaged_model():
    torch.manual_seed(0)
    net = make_net("wrn-10-1", 10, 1)
    ours = Average(net, 0.9)
    oracle = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=False)
    oracle.n_averaged.fill_(1)
    for _ in range(5):
        with torch.no_grad():
            for p in net.parameters():
                p.add_(torch.randn_like(p))
            for b in net.buffers():
                b.add_(1)
        ours.update()
        oracle.update_parameters(net)
    for a, b in zip(ours.net.parameters(), oracle.module.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(ours.net.buffers(), net.buffers(), strict=True):
        assert torch.equal(a, b)


def test_with_statistics_the_average_is_torch_s_with_buffers():
    """EMAN: running means and variances follow by the decay; a count of batches, a whole number, is copied."""
    torch.manual_seed(0)
    net = nn.Sequential(make_net("wrn-10-1", 4, 1), nn.BatchNorm1d(4)).double()
    ours = Average(net, 0.9, statistics=True)
    oracle = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    oracle.n_averaged.fill_(1)
    for _ in range(5):
        with torch.no_grad():
            for p in net.parameters():
                p.add_(torch.randn_like(p))
        net(torch.randn(8, 1, 8, 8, dtype=torch.float64))  # moves the running statistics
        ours.update()
        oracle.update_parameters(net)
    expected = dict(oracle.module.named_buffers()) | dict(oracle.module.named_parameters())
    averaged = [*ours.net.named_parameters(), *ours.net.named_buffers()]
    for name, found in averaged:
        if found.is_floating_point():
            torch.testing.assert_close(found, expected[name], msg=name)
            if "running" in name:
                assert not torch.allclose(found, dict(net.named_buffers())[name]), name
    assert ours.net[1].num_batches_tracked == net[1].num_batches_tracked == 5


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_part_of_a_batch_is_normalised_by_the_whole_one(momentum, dtype):
    """As one rank of two does, whose statistics stand here for what `stacked` would bring."""
    torch.manual_seed(0)
    whole, part = nn.BatchNorm2d(3, momentum=momentum), nn.BatchNorm2d(3, momentum=momentum)
    theirs: list[torch.Tensor] = []
    synchronise(part, lambda own: torch.stack([own, theirs[-1]]))
    for _ in range(3):
        x = torch.randn(8, 3, 4, 4).mul(2).add(5).to(dtype)
        mine, others = x.chunk(2)
        theirs.append(torch.stack([others.float().mean((0, 2, 3)), others.float().var((0, 2, 3), correction=0)]))
        found, expected = part(mine), whole(x.float())[:4]
        assert found.dtype == dtype
        torch.testing.assert_close(found, expected.to(dtype))
    torch.testing.assert_close(part.running_mean, whole.running_mean, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(part.running_var, whole.running_var, atol=1e-5, rtol=1e-5)
    assert part.num_batches_tracked == 3


@pytest.mark.parametrize("make", [BatchNorm, nn.BatchNorm2d])
def test_a_synchronised_net_judges_each_image_by_itself_and_asks_nobody(make):
    torch.manual_seed(0)
    alone, many = make(3), make(3)
    alone(x := torch.randn(8, 3, 4, 4).mul(2).add(5))
    many.load_state_dict(alone.state_dict())
    asked: list[torch.Tensor] = []
    synchronise(many, lambda own: asked.append(own) or own[None])
    for net in (alone, many):
        set_mode(net, "eval")
    torch.testing.assert_close(many(x[:1]), alone(x)[:1])
    assert all(torch.equal(a, b) for a, b in zip(many.buffers(), alone.buffers(), strict=True))
    assert not asked


def test_running_statistics_are_all_means_and_variances_themselves():
    net = nn.Sequential(BatchNorm(2), nn.BatchNorm1d(2))
    found = running_statistics(net)
    wanted = [part for norm in net for part in (norm.running_mean, norm.running_var)]
    assert [id(tensor) for tensor in found] == [id(tensor) for tensor in wanted]


def test_a_decay_of_zero_is_a_copy():
    net = make_net("wrn-10-1", 10, 1)
    average = Average(net, 0.0)
    with torch.no_grad():
        net.head.weight.add_(1)
    average.update()
    assert torch.equal(average.net.head.weight, net.head.weight)


def test_torchvision_s_resnets_are_scored_like_ours():
    torch.manual_seed(0)
    net = make_net("resnet18", 7, 3)
    x = torch.randn(4, 3, 32, 32)
    before = [b.clone() for b in net.buffers()]
    with scoring(net):
        scored = net(x)
    assert all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))
    torch.testing.assert_close(scored, net(x))  # the same batch statistics in training
    assert not torch.equal(before[0], next(net.buffers()))
    with pytest.raises(UsageError, match="takes colour images"):
        make_net("resnet50", 10, 1)


def test_a_model_is_loaded_in_the_precision_it_was_saved_in(tmp_path):
    torch.manual_seed(0)
    net = make_net("wrn-10-1", 2, 1).double()
    info = ModelInfo(("a", "b"), Preprocessing(1, 8, 8), {"name": "wrn-10-1"})
    save_model(tmp_path / "model.safetensors", net, info)
    found, _ = load_model(tmp_path / "model.safetensors")
    assert not found.training
    for name, tensor in net.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name
        assert found.state_dict()[name].dtype == tensor.dtype


@pytest.mark.parametrize(("capability", "precision"), [((8, 0), "bf16"), ((9, 0), "bf16"), ((7, 5), "float32")])
def test_bf16_from_the_first_gpu_that_computes_in_it(monkeypatch, capability, precision):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert best_precision("cuda") == precision
    assert best_precision("cpu") == "float32"


def test_equal_models_are_equal_files(tmp_path):
    """safetensors alone writes its metadata in another order every time."""
    net = make_net("wrn-10-1", classes=2, channels=1, size=(8, 8))
    info = ModelInfo(("a", "\u00e4"), Preprocessing(1, 8, 8), {"name": "wrn-10-1", "dropout": 0.0, "momentum": 0.1})
    for number in range(8):
        save_model(tmp_path / str(number), net, info, {"other": "word", "more": "1"})
    assert len({(tmp_path / str(number)).read_bytes() for number in range(8)}) == 1
    tensors, metadata = read_tensors(tmp_path / "0")
    assert metadata["other"] == "word"
    assert json.loads(metadata["classes"]) == ["a", "\u00e4"]
    assert all(torch.equal(tensors[name], value) for name, value in net.state_dict().items())


def test_a_model_is_loaded_without_a_draw(tmp_path, monkeypatch):
    """By the generator that is torch's one, another thread may be training."""
    for name, channels in (("wrn-10-1", 1), ("plain-conv", 1), ("resnet18", 3), ("timm:test_resnet", 3)):
        net = make_net(name, 2, channels)
        save_model(
            tmp_path / "m.safetensors", net, ModelInfo(("a", "b"), Preprocessing(channels, 32, 32), {"name": name})
        )
        before = torch.get_rng_state()
        with monkeypatch.context() as patched:
            patched.setattr(torch.random, "fork_rng", lambda *_: pytest.fail("it draws"))
            found, _ = load_model(tmp_path / "m.safetensors")
        assert torch.equal(before, torch.get_rng_state())
        images = torch.randn(2, channels, 32, 32)
        set_mode(net, "eval")
        assert torch.equal(found(images), net(images)), name
        found.load_state_dict({key: torch.zeros_like(value) for key, value in found.state_dict().items()})
        assert load_model(tmp_path / "m.safetensors")[0](images).abs().sum() > 0  # the file is as it was


class Tabled(torch.nn.Linear):
    """A net with a table that is not saved."""

    def __init__(self, classes, channels):
        super().__init__(channels, classes)
        self.register_buffer("table", torch.arange(3.0), persistent=False)

    def forward(self, x):
        return super().forward(x.mean((2, 3))) + self.table.sum()


def test_a_net_with_more_than_its_weights_is_made_whole(tmp_path):
    net = Tabled(2, 1)
    info = ModelInfo(("a", "b"), Preprocessing(1, 8, 8), {"name": "nets.test_nets:Tabled"})
    save_model(tmp_path / "m.safetensors", net, info)
    before = torch.get_rng_state()
    found, _ = load_model(tmp_path / "m.safetensors")
    assert torch.equal(before, torch.get_rng_state())
    images = torch.randn(2, 1, 8, 8)
    assert torch.equal(found(images), net(images))

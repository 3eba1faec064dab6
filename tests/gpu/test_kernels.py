"""The fused kernels on a Hopper GPU, held to the net in float64: as exact as torch's own bf16 pass, and deterministic."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch.nn import functional

from maxmatch.nets import make_net
from maxmatch.nets.averaging import Average
from maxmatch.nets.batchnorm import set_mode
from maxmatch.nets.fused import Fused, can_fuse
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train.fit import fit
from maxmatch.train.recipes import compose
from maxmatch.train.runner import Runner

pytestmark = pytest.mark.gpu
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
if torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("the fused kernels are for Hopper GPUs", allow_module_level=True)

DEVICE = torch.device("cuda")


def distance(found, wanted):
    return ((found.double() - wanted).norm() / wanted.norm()).item()


def passed(net, images, labels, preprocessing, kind, mode):
    """Logits, gradients and buffers after one pass; gradients None in `score` mode."""
    net = copy.deepcopy(net)
    set_mode(net, mode)
    with torch.set_grad_enabled(mode == "train"):
        if kind == "exact":
            logits = net.double()(preprocessing(images, torch.float64))
        else:
            with torch.autocast("cuda", torch.bfloat16):
                logits = Fused(net, preprocessing)(images) if kind == "fused" else net(preprocessing(images))
        if mode == "train":
            functional.cross_entropy(logits.double(), labels).backward()
    gradients = {f"gradient of {name}": p.grad for name, p in net.named_parameters()} if mode == "train" else {}
    moved = dict(net.named_buffers()) if mode == "train" else {}
    assert mode == "train" or all(not b.any() for name, b in net.named_buffers() if name.endswith("mean"))
    return {"logits": logits.detach(), **gradients, **moved}


@pytest.mark.parametrize("mode", ["train", "score"])
@pytest.mark.parametrize(
    ("name", "channels", "side", "count"),
    [
        ("wrn-28-2", 3, 32, 300),
        ("wrn-10-2", 3, 64, 20),
        ("wrn-10-1", 1, 8, 64),
        ("wrn-10-4", 3, 16, 33),
        ("wrn-10-4", 2, 24, 9),
        ("wrn-13-1", 4, 16, 5),
    ],
)
def test_the_fused_pass_is_as_exact_as_torchs_own_in_bf16(name, channels, side, count, mode):
    torch.manual_seed(0)
    net = make_net(name, classes=10, channels=channels).to(DEVICE, memory_format=torch.channels_last)
    assert can_fuse(net, (channels, side, side), DEVICE)
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    images = torch.randint(0, 256, (count, channels, side, side), device=DEVICE)
    images = (images * torch.rand(count, channels, 1, 1, device=DEVICE)).to(torch.uint8)  # some dark, some bright
    labels = torch.arange(count, device=DEVICE) % 10
    preprocessing = Preprocessing(channels, side, side)
    exact, plain, fused = (
        passed(net, images, labels, preprocessing, kind, mode) for kind in ("exact", "plain", "fused")
    )
    off = {key: (distance(fused[key], exact[key]), distance(plain[key], exact[key])) for key in exact}
    worse = {key: pair for key, pair in off.items() if pair[0] > 1.5 * pair[1] + 0.003}
    assert not worse, worse
    assert sum(ours for ours, _ in off.values()) < 1.1 * sum(theirs for _, theirs in off.values())


def test_the_fused_pass_repeats_to_the_bit():
    torch.manual_seed(0)
    net = make_net("wrn-10-2", classes=10, channels=3).to(DEVICE, memory_format=torch.channels_last)
    images = torch.randint(0, 256, (64, 3, 32, 32), dtype=torch.uint8, device=DEVICE)
    labels = torch.arange(64, device=DEVICE) % 10
    one, two = (passed(net, images, labels, Preprocessing(3, 32, 32), "fused", "train") for _ in range(2))
    fused = [key for key in one if "blocks.0" in key or "stem" in key or "blocks.1.conv2" in key]
    assert all(torch.equal(one[key], two[key]) for key in fused)


def test_refresh_takes_in_new_weights():
    net = make_net("wrn-10-2", classes=10, channels=3).to(DEVICE, memory_format=torch.channels_last)
    set_mode(net, "score")
    preprocessing = Preprocessing(3, 32, 32)
    images = torch.randint(0, 256, (64, 3, 32, 32), dtype=torch.uint8, device=DEVICE)
    fused = Fused(net, preprocessing)
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        before = fused(images)
        net.blocks[0].conv1.weight.neg_()
        fused.refresh()
        after = fused(images)
        assert distance(after, net(preprocessing(images)).double()) < 0.02 < distance(before, after.double())


def test_the_average_is_asked_through_the_kernels_as_through_torch():
    torch.manual_seed(0)
    net = make_net("wrn-10-2", classes=10, channels=3).to(DEVICE, memory_format=torch.channels_last)
    set_mode(net, "train")
    average, preprocessing = Average(net, 0.9), Preprocessing(3, 32, 32)
    step = torch.zeros((), device=DEVICE)
    ours, theirs = (
        Runner(net, average, preprocessing, None, step, step, bf16=True, compiled=True, fused=fused, taught=True)
        for fused in (True, False)
    )
    groups = torch.randint(0, 256, (2, 32, 3, 32, 32), dtype=torch.uint8, device=DEVICE)
    before = torch.cat(list(ours.teacher(*groups)))
    statistics = [value.clone() for value in average.net.buffers()]
    with torch.no_grad():
        average.net.blocks[0].conv1.weight.neg_()
    ours.refresh()
    after, wanted = (torch.cat(list(run.teacher(*groups))) for run in (ours, theirs))
    assert distance(after, wanted.double()) < 0.02 < distance(before, after.double())
    assert all(torch.equal(a, b) for a, b in zip(statistics, average.net.buffers(), strict=True))


def run(folder, kernels, steps=30, **train):
    """Losses of a captured bf16 run on digits, scaled up to a net that has fused layers of every kind."""
    settings = {
        "steps": steps, "device": "cuda", "precision": "bf16", "kernels": kernels, "batch": 16, "ratio": 4, "lr": 0.02,
        "log_every": 5, "evaluate_every": 15, "checkpoint_every": 15, **train,
    }  # fmt: skip
    recipe = compose("digits", given={"train": settings, "net": {"name": "wrn-10-2"}, "method": {"threshold": 0.3}})
    result = fit(recipe, folder, quiet=True, resume=(folder / "recipe.json").exists())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return result, [line["supervised_loss"] for line in lines if line["kind"] == "train"]


def test_captured_steps_learn_alike_with_and_without_the_kernels(tmp_path):
    (ours, fused), (theirs, plain) = (run(tmp_path / name, name) for name in ("auto", "torch"))
    assert (ours["kernels"], theirs["kernels"]) == ("fused", "torch")
    assert fused == pytest.approx(plain, rel=0.05)  # bf16 rounds otherwise from the first step on
    assert fused[-1] < 0.7 * fused[0]

"""Parts of a batch through the net one after the other: the same mix in each, and the gradient of them all."""

from __future__ import annotations

import copy

import pytest
import torch

from maxmatch.data.datasets import from_arrays
from maxmatch.errors import UsageError, UserError
from maxmatch.nets import make_net
from maxmatch.nets.averaging import Average
from maxmatch.nets.batchnorm import set_mode, still
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train.fit import fit
from maxmatch.train.runner import Runner

PREPROCESSING = Preprocessing(1, 8, 8)


def world(micro_batch):
    torch.manual_seed(0)
    net = make_net("wrn-10-1", classes=4, channels=1).double()
    set_mode(net, "train")
    return net, Runner(
        net, Average(net, 0.9), PREPROCESSING, None, torch.tensor(0.5), torch.tensor(0), micro_batch=micro_batch
    )


@pytest.fixture
def groups():
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, 256, (n, 1, 8, 8), dtype=torch.uint8, generator=generator) for n in (4, 10, 9)]


def test_logits_gradients_and_statistics_are_those_of_the_parts(groups):
    net, run = world(micro_batch=8)
    oracle = copy.deepcopy(net)
    logits = run.net(*groups)
    weight = torch.randn(23, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (torch.cat(list(logits)) * weight).square().sum().backward()
    images = PREPROCESSING(torch.cat(groups), torch.float64)
    wanted = torch.empty(23, 4, dtype=torch.float64)
    moved = [copy.deepcopy(oracle) for _ in range(3)]
    for first in range(3):  # 23 images, at most 8 at a time: every third one
        wanted[first::3] = oracle(images[first::3])
        moved[first](images[first::3])
    (wanted * weight).square().sum().backward()
    torch.testing.assert_close(torch.cat(list(logits)), wanted)
    for (name, ours), theirs in zip(net.named_parameters(), oracle.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, msg=name)
    for ours, *of_parts in zip(*(one.buffers() for one in (net, *moved)), strict=True):
        # Once a step and not again in the backward pass, however many parts there are.
        torch.testing.assert_close(ours, torch.stack(of_parts).mean(0))


def test_little_is_kept_for_the_backward_pass(groups):
    kept = {}
    for micro_batch in (None, 4):
        _, run = world(micro_batch)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, sizes=sizes: sizes.append(t.numel()) or t, lambda t: t):
            run.net(*groups)
        kept[micro_batch] = sum(sizes)
    assert kept[4] < kept[None] / 10


def test_few_images_pass_as_one_and_scoring_takes_parts_too(groups):
    net, run = world(micro_batch=100)
    whole = torch.cat(list(run.score(*groups)))
    assert torch.equal(whole, torch.cat(list(world(None)[1].score(*groups))))
    _, parts = world(micro_batch=8)
    found = torch.cat(list(parts.score(*groups)))
    with torch.no_grad():
        set_mode(net, "score")
        torch.testing.assert_close(found[1::3], net(PREPROCESSING(torch.cat(groups), torch.float64)[1::3]))
    assert not found.requires_grad


@pytest.mark.parametrize("method", ["maxmatch", "fixmatch", "mixmatch", "remixmatch", "vat", "mean-teacher"])
def test_methods_train_in_parts(tiny, tmp_path, method):
    result = fit(tiny(method, train={"micro_batch": 7, "steps": 4}), tmp_path / "a", quiet=True)
    assert 0 < result["supervised_loss"] < 10


@pytest.mark.parametrize(("library", "layer"), [("torch.nn", "Dropout"), ("timm.layers", "DropPath")])
def test_nets_from_elsewhere_that_drop_are_refused(library, layer):
    dropping = getattr(pytest.importorskip(library), layer)(0.5)
    net = torch.nn.Sequential(torch.nn.Flatten(), dropping, torch.nn.Linear(64, 4)).double()
    rest = (Average(net, 0.9), PREPROCESSING, None, torch.tensor(0.5), torch.tensor(0))
    with pytest.raises(UsageError, match="drops others each time"):
        Runner(net, *rest, micro_batch=8)
    Runner(net, *rest)


class Dropping(torch.nn.Module):
    """It drops by a function, of which no module tells."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(64, 4)

    def forward(self, images):
        return torch.nn.functional.dropout(self.head(images.flatten(1)), 0.5, self.training)


def test_a_net_that_drops_by_a_function_is_refused_when_it_does(groups):
    net = Dropping().double()
    rest = (Average(net, 0.9), PREPROCESSING, None, torch.tensor(0.5), torch.tensor(0))
    with pytest.raises(UsageError, match="drops others each time"):
        Runner(net, *rest, micro_batch=8).net(*groups)
    net.eval()
    Runner(net, *rest, micro_batch=8).net(*groups)


RESNET = {"net": {"name": "resnet18"}, "data": {"labels": 4}}


def colours():
    """Pictures of which a ResNet leaves one pixel."""
    x = torch.randint(0, 256, (12, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return from_arrays(x, torch.arange(12) % 2)


def test_no_part_has_one_image_alone(tiny, tmp_path):
    """9 images by 2 are parts of 3, 2, 2 and 2: BatchNorm could not normalise the pixel that is left of one."""
    given = {"batch": 3, "ratio": 1, "micro_batch": 2, "steps": 1}
    fit(tiny("fixmatch", train=given, **RESNET), tmp_path / "a", colours(), quiet=True)


def test_one_image_in_a_pass_is_told_in_a_line(tiny, tmp_path):
    line = "train.batch = 1: a pass has one image alone.* --force --set train.batch=2"
    with pytest.raises(UserError, match=line):
        fit(tiny("supervised", train={"batch": 1}, **RESNET), tmp_path / "a", colours(), quiet=True)


def test_dropout_would_differ_between_the_two_passes(tiny):
    with pytest.raises(UsageError, match="left out where net.dropout is set"):
        tiny(train={"micro_batch": 8}, net={"name": "wrn-10-1", "dropout": 0.1})


def test_a_pass_aside_leaves_the_statistics_to_the_pass_that_learns(groups):
    """As MixMatch and ReMixMatch have it: few labelled images whole, all others beside them in parts."""
    net, run = world(micro_batch=8)
    labelled, *others = groups
    (first,), rest = run.net(labelled), run.aside(*others)
    moved = [buffer.clone() for buffer in net.buffers()]
    (first.square().sum() + torch.cat(list(rest)).square().sum()).backward()
    found = [parameter.grad.clone() for parameter in net.parameters()]
    oracle, _ = world(None)
    (oracle(PREPROCESSING(labelled, torch.float64))).square().sum().backward()
    for ours, theirs in zip(moved, oracle.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    images = PREPROCESSING(torch.cat(others), torch.float64)
    with still(oracle):
        for part in range(3):  # 19 images, at most 8 at a time
            oracle(images[part::3]).square().sum().backward()
    for ours, theirs in zip(found, oracle.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.grad)
    for ours, theirs in zip(net.buffers(), oracle.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)  # nor does the backward pass move them


def test_the_average_is_asked_in_parts_too(groups, monkeypatch):
    _, run = world(micro_batch=8)
    sizes, passing = [], torch.nn.Conv2d.forward
    monkeypatch.setattr(torch.nn.Conv2d, "forward", lambda self, x: sizes.append(len(x)) or passing(self, x))
    run.teacher(*groups)
    assert 0 < max(sizes) <= 8

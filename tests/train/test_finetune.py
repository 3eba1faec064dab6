"""Finetuning: a learning rate of the head's own and milestones, by hand, by torch's schedule, in a run and resumed."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from maxmatch.errors import UsageError
from maxmatch.train.epochs import settle_epochs
from maxmatch.train.fit import begin, draw_split, fit
from maxmatch.train.pictures import load_data
from maxmatch.train.recipe import TrainSettings, learning_rates, resolve
from maxmatch.train.recipes import compose
from maxmatch.train.result import warnings_of
from maxmatch.train.schedule import learning_rate
from maxmatch.train.step import Step

TRAIN = {"steps": 10, "lr": 0.002, "head_lr": 0.3, "schedule": "milestones", "milestones": [0.6, 0.8], "ema_decay": 0.0}
FACTORS = [1, 1, 1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01]


def test_milestones_by_hand_and_by_torch():
    for steps, milestones in ((10, (0.6, 0.8)), (50, (0.6, 0.8)), (7, (0.5,))):
        sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        places = [next(t for t in range(steps) if t >= steps * share - 1e-9) for share in milestones]
        theirs = torch.optim.lr_scheduler.MultiStepLR(sgd, places)
        for t in range(steps):
            found = learning_rate(t, steps=steps, lr=0.1, schedule="milestones", milestones=milestones)
            assert found == pytest.approx(theirs.get_last_lr()[0]), (steps, t)
            sgd.step()
            theirs.step()
    rates = learning_rates(TrainSettings(**{**TRAIN, "milestones": (0.6, 0.8)}))
    assert [rates["lr"](t) for t in range(10)] == pytest.approx([0.002 * factor for factor in FACTORS])
    assert [rates["head_lr"](t) for t in range(10)] == pytest.approx([0.3 * factor for factor in FACTORS])
    warm = learning_rates(TrainSettings(**{**TRAIN, "milestones": (0.6, 0.8), "warmup": 4}))["head_lr"]
    assert [warm(t) for t in (0, 3, 4, 6)] == pytest.approx([0.075, 0.3, 0.3, 0.03])
    assert list(learning_rates(TrainSettings())) == ["lr"]


@pytest.mark.parametrize(
    ("net", "optimizer"),
    [("wrn-10-1", "sgd"), ("timm:resnet10t", "sgd"), ("wrn-10-1", "adamw"), ("timm:resnetv2_18", "adamw")],
)
def test_head_and_body_move_by_their_own_rates(tiny, tmp_path, net, optimizer):
    """Against torch's optimisers with two groups, given the gradients of the run; a head may be a convolution."""
    size = {"name": "fixmatch", "threshold": 0.2}
    train = {**TRAIN, "precision": "float64", "batch": 4, "optimizer": optimizer}
    recipe = tiny("fixmatch", net={"name": net}, method=size, train=train)
    step = begin(resolve(recipe, device="cpu", threads=1), tmp_path, quiet=True).step
    names = dict(step.net.named_parameters())
    head = {name for name in names if name.startswith(("head.", "fc."))}
    assert len(head) == 2
    copies = {name: torch.nn.Parameter(value.detach().clone()) for name, value in names.items()}
    groups = [
        {"params": [copies[n] for n in names if (n in head) == of_head and (names[n].ndim > 1) == decays],
         "lr": rate, "weight_decay": recipe.train.weight_decay if decays else 0.0}
        for of_head, rate in ((False, 0.002), (True, 0.3)) for decays in (True, False)
    ]  # fmt: skip
    theirs = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[optimizer](
        groups, **({"momentum": 0.9, "nesterov": True} if optimizer == "sgd" else {"betas": (0.9, 0.999)})
    )
    places = {group["lr"].data_ptr() for group in step.optimizer._plain.param_groups}
    for t in range(10):
        step(t)
        for number, group in enumerate(theirs.param_groups):
            group["lr"] = float(np.float32((0.002 if number < 2 else 0.3) * FACTORS[t]))  # as a row holds it
        for name, parameter in names.items():
            copies[name].grad = parameter.grad.clone()
        theirs.step()
        for name, parameter in names.items():
            torch.testing.assert_close(parameter.detach(), copies[name].detach(), rtol=1e-6, atol=1e-9, msg=name)
    # Both rates are read where the row of draws lies, so that a captured step replays with others.
    assert places == {step.lr.data_ptr(), step.head_lr.data_ptr()}
    assert {group["lr"].data_ptr() for group in step.optimizer._plain.param_groups} == places


def test_frozen_statistics_are_those_that_the_run_started_from(tiny, tmp_path):
    """And a step is then the same by `select` and by `joint`, since no image is normalised by those beside it."""
    train = {"steps": 3, "ema_decay": 0, "evaluate_every": 3, "precision": "float64", "init": str(tmp_path / "first")}
    fit(
        tiny("supervised", net={"batchnorm_momentum": 0.3}, train={**train, "init": None}),
        train_first := tmp_path / "first",
        quiet=True,
    )
    before = load_file(train_first / "model.safetensors")
    made = {}
    for name, frozen, strategy in (("select", True, "select"), ("joint", True, "joint"), ("moved", False, "select")):
        method = {"name": "maxmatch", "threshold": 0.2, "strategy": strategy}
        recipe = tiny("maxmatch", net={"batchnorm_frozen": frozen}, method=method, train=train)
        fit(recipe, tmp_path / name, quiet=True)
        made[name] = load_file(tmp_path / name / "model.safetensors")
    statistics = [name for name in before if "running_" in name]
    assert statistics
    for name in statistics:
        assert torch.equal(before[name], made["select"][name])
        assert not torch.equal(before[name], made["moved"][name])
    for name in before:
        torch.testing.assert_close(made["select"][name], made["joint"][name], atol=1e-12, rtol=1e-9)
    assert not torch.equal(before["head.weight"], made["select"]["head.weight"])


def test_a_rate_for_the_head_of_a_net_that_begins_anew_is_warned_of(tiny):
    """`--config imagenet-finetune` without `--init` would train a drawn net at a rate of .001 in silence."""
    recipe = tiny("supervised", train=TRAIN)
    images = load_data(recipe)
    split = draw_split(resolve(recipe, device="cpu", threads=1), images)
    for changed, count in ((recipe, 1), (replace(recipe, train=replace(recipe.train, init="runs/p")), 0),
                           (replace(recipe, train=replace(recipe.train, head_lr=None)), 0)):  # fmt: skip
        assert (
            sum("--init RUN, or --set net.pretrained=true" in line for line in warnings_of(changed, images, split))
            == count
        )


def test_a_rate_that_published_weights_are_lost_by_is_warned_of(tiny):
    """Of a known data set, whose recipe knows nothing of them; what is advised is a training without the warning."""
    net = {"name": "resnet18", "pretrained": True}

    def told(**train):
        recipe = tiny("supervised", net={**net, "batchnorm_frozen": True}, train=train)
        images = load_data(recipe)
        return warnings_of(recipe, images, draw_split(resolve(recipe, device="cpu", threads=1), images))

    line = next(line for line in told(lr=0.4) if "train.lr = 0.4 is for weights that are drawn" in line)
    typed = dict(re.findall(r"--set train\.(\w+)=(\S+)", line))
    assert typed == {"optimizer": "adamw", "lr": "0.0001", "head_lr": "0.001", "weight_decay": "0.01"}
    assert line.endswith("--set net.batchnorm_frozen=true")
    better = {name: value if name == "optimizer" else float(value) for name, value in typed.items()}
    assert not any("is for weights that are drawn" in line for line in told(**better))
    assert not any("is for weights that are drawn" in line for line in told(lr=0.4, init="runs/p"))
    assert any("train.lr = 0.03 is for weights that are drawn" in line for line in told(lr=0.03))  # the papers'


@pytest.mark.parametrize("optimizer", ["sgd", "muon", "adamw"])
def test_a_run_that_died_goes_on_with_both_rates(tiny, tmp_path, monkeypatch, optimizer):
    recipe = tiny("supervised", train={**TRAIN, "optimizer": optimizer, "log_every": 1})
    fit(recipe, tmp_path / "whole", quiet=True)
    advance = Step.__call__

    def dies(self, t):
        if t == 7:
            raise KeyboardInterrupt
        advance(self, t)

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", dies)
        with pytest.raises(KeyboardInterrupt):
            fit(recipe, tmp_path / "cut", quiet=True)
    fit(recipe, tmp_path / "cut", resume=True, quiet=True)
    whole, cut = (load_file(tmp_path / name / "checkpoint/000000010.safetensors") for name in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    lines = [json.loads(line) for line in (tmp_path / "cut/metrics.jsonl").read_text().splitlines()]
    logged = [(line["lr"], line["head_lr"]) for line in lines if line["kind"] == "train"]
    assert [lr for lr, _ in logged] == pytest.approx([0.002 * factor for factor in FACTORS])
    assert [lr for _, lr in logged] == pytest.approx([0.3 * factor for factor in FACTORS])


def test_the_recipe_is_the_protocols():
    recipe = compose("imagenet", "supervised", config="imagenet-finetune", given={"train": {"init": "runs/p"}})
    assert compose("imagenet", config="imagenet-finetune", given={"train": {"init": "runs/p"}}) == recipe
    train = recipe.train
    assert (train.lr, train.head_lr, train.batch, train.epochs, train.warmup_epochs) == (0.001, 0.1, 256, 50, 0)
    assert (train.momentum, train.nesterov, train.weight_decay, train.ema_decay) == (0.9, False, 1e-4, 0.0)
    assert (recipe.method.augmentation, recipe.net.name, recipe.data.labels) == ("weak", "resnet50", "10%")
    assert (recipe.augment.middle, recipe.augment.scale) == (None, (0.08, 1.0))
    settled = settle_epochs(resolve(recipe, device="cpu", threads=1), 1_153_050, 128_117).train
    assert settled.steps == 25_000
    by_epoch = {epoch: [r(500 * epoch + at) for r in learning_rates(settled).values() for at in (0, 499)]
                for epoch in (0, 29, 30, 39, 40, 49)}  # fmt: skip
    for epoch, factor in ((0, 1), (29, 1), (30, 0.1), (39, 0.1), (40, 0.01), (49, 0.01)):
        assert by_epoch[epoch] == pytest.approx([0.001 * factor] * 2 + [0.1 * factor] * 2)


def test_an_epoch_of_labelled_images_alone_is_a_pass_over_them(tiny, tmp_path):
    given = {"epochs": 2, "batch": 4, "evaluate_every": 0, "checkpoint_every": 0}
    recipe = tiny("supervised", labels=30, train=given)
    step = begin(resolve(recipe, device="cpu", threads=1), tmp_path / "a", quiet=True).step
    assert step.last + 1 == 2 * (30 // 4)
    step.rows.load(0)
    batch, _ = step.batches(step.rows.row, 0)
    assert (len(batch.x), len(batch.index)) == (4, 0)  # no unlabelled picture is read for nothing
    other = begin(
        resolve(tiny("fixmatch", labels=30, train=given), device="cpu", threads=1), tmp_path / "b", quiet=True
    )
    assert other.step.last + 1 == 2 * (1195 // 8)


@pytest.mark.parametrize(
    ("train", "line"),
    [
        ({"head_lr": 0}, "train.head_lr = 0.0: it must be above 0"),
        ({"lr_floor": 1.0}, r"train.lr_floor = 1.0: it must be in \[0, 1\)"),
        ({"schedule": "constant", "lr_floor": 0.1}, "left out where train.schedule is constant: only cosine,"),
        ({"schedule": "milestones"}, r"train.milestones = \(\): it must be shares of the training such as 0.6,0.8"),
        ({"milestones": [0.5]}, "left out elsewhere"),
        ({"schedule": "milestones", "milestones": [0.8, 0.6]}, "each larger than the one before"),
        ({"schedule": "milestones", "milestones": [30, 40]}, "above 0 and below 1"),
    ],
)
def test_wrong_rates_are_one_line(tiny, train, line):
    with pytest.raises(UsageError, match=line):
        tiny(train=train)

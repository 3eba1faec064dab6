"""Epochs: steps, warm-up and intervals by the data's size, the schedule by hand, and runs that go on in epochs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from maxmatch.cli import run
from maxmatch.data.datasets import from_arrays
from maxmatch.errors import UsageError
from maxmatch.train.epochs import settle_epochs
from maxmatch.train.fit import fit
from maxmatch.train.recipe import learning_rate, resolve
from maxmatch.train.recipes import compose
from maxmatch.train.resume import resumed_recipe


def eman(step: int, length: int, epochs: int, warmup: int, lr: float) -> float:
    """The learning rate as the public ImageNet code sets it: step by step in the warm-up, then once an epoch."""
    epoch, i = divmod(step, length)
    if epoch < warmup:
        return lr * (epoch * length + i + 1) / (warmup * length)
    return lr * 0.5 * (1 + math.cos(math.pi * (epoch - warmup) / (epochs - warmup)))


def test_imagenet_has_3603_steps_an_epoch_and_the_learning_rate_of_the_public_code():
    recipe = settle_epochs(resolve(compose("imagenet"), device="cpu", threads=1), 1_153_050)
    train = recipe.train
    assert (train.steps, train.warmup, train.evaluate_every, train.checkpoint_every) == (1_080_900, 18_015, 3603, 3603)
    for step in (0, 1, 18_014, 18_015, 18_016, 21_617, 21_618, 500_000, 1_080_899):
        assert learning_rate(train, step) == pytest.approx(eman(step, 3603, 300, 5, 0.02), abs=1e-12)


@pytest.mark.parametrize(("epochs", "warmup", "length"), [(3, 1, 7), (4, 0, 5), (2, 2, 3), (1, 0, 1)])
def test_the_schedule_of_any_length(epochs, warmup, length):
    given = {"train": {"epochs": epochs, "warmup_epochs": warmup, "batch": 2, "ratio": 5, "lr": 0.1}}
    train = settle_epochs(resolve(compose("imagenet", given=given), device="cpu", threads=1), 10 * length + 9).train
    assert train.steps == epochs * length
    expected = [eman(step, length, epochs, warmup, 0.1) for step in range(train.steps)]
    assert [learning_rate(train, step) for step in range(train.steps)] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "method", "k", "strategy", "ema", "middle", "lr"),
    [
        ("imagenet-paper", "maxmatch", ((1, 1 / 3), (2, 1 / 3), (3, 1 / 3)), "select", 0.999, 0.875, 0.02),
        ("imagenet-paper", "fixmatch", 1, "joint", 0.999, 0.875, 0.03),
        ("imagenet-authors", "maxmatch", ((1, 0.5), (2, 0.3), (3, 0.2)), "joint", 0.0, None, 0.02),
        ("imagenet-authors", "fixmatch", 1, "joint", 0.0, None, 0.03),
    ],
)
def test_the_two_recipes_are_those_of_the_protocol(name, method, k, strategy, ema, middle, lr):
    recipe = compose("imagenet", method, config=name)
    train = recipe.train
    assert (train.batch, train.batch * train.ratio, train.momentum, train.nesterov) == (64, 320, 0.9, False)
    assert (train.weight_decay, train.epochs, train.warmup_epochs, train.lr) == (1e-4, 300, 5, lr)
    assert (recipe.method.weight, recipe.method.threshold, recipe.method.resolved_strategy) == (10, 0.7, strategy)
    assert recipe.method.k == k
    assert (train.ema_decay, recipe.augment.middle, recipe.augment.policy) == (ema, middle, "imagenet")
    assert recipe.augment.scale == (0.08, 1.0)
    assert (recipe.net.name, recipe.net.batchnorm_momentum) == ("resnet50", 0.1)
    data = recipe.data
    assert (data.labels, data.exclude_labelled, data.side, data.middle) == ("10%", True, 224, 0.875)
    if name == "imagenet-paper":
        assert compose("imagenet", method) == recipe  # the one that is meant where none is named


@pytest.mark.parametrize("method", ["maxmatch", "fixmatch"])
def test_eman_keeps_an_average_in_the_authors_recipe(tmp_path, method):
    eman = {"method": {"teacher": "eman"}, "data": {"name": "imagenet"}}
    recipe = compose("imagenet", method, config="imagenet-authors", given=eman)
    assert (recipe.train.ema_decay, recipe.method.teacher) == (0.999, "eman")
    other = {**eman, "train": {"ema_decay": 0.99}}
    assert compose("imagenet", method, config="imagenet-authors", given=other).train.ema_decay == 0.99
    with pytest.raises(UsageError, match="ema_decay = 0.0: it must be above 0"):
        compose("imagenet", method, config="imagenet-authors", given={**eman, "train": {"ema_decay": 0}})
    saved = settle_epochs(resolve(recipe, device="cpu", threads=1), 400)
    (tmp_path / "recipe.json").write_text(saved.to_json())
    for given in ({}, eman):
        assert resumed_recipe(tmp_path, given, "imagenet-authors") == saved


@pytest.mark.parametrize("method", ["mean-teacher", "ict"])
def test_whose_teacher_is_the_average_has_one_in_the_authors_recipe(method):
    assert compose("imagenet", method, config="imagenet-authors").train.ema_decay == 0.999


def test_steps_that_are_typed_replace_the_epochs():
    train = compose("imagenet", given={"train": {"steps": 600}}).train
    assert (train.epochs, train.steps, train.warmup, train.evaluate_every) == (None, 600, 10, 30)
    assert learning_rate(train, 11) < learning_rate(train, 10) == 0.02  # then every step has its own value
    assert compose("imagenet", given={"data": {"side": 32}}).data.canvas == 48


def test_horizons_wait_for_the_steps():
    given = {"train": {"epochs": 4, "ema_decay": "auto", "warmup_epochs": 0, "batch": 1}}
    recipe = resolve(compose("imagenet", given=given), device="cpu", threads=1)
    assert recipe.train.ema_decay == "auto"
    assert settle_epochs(recipe, 500).train.ema_decay == pytest.approx(1 - 1 / (0.05 * 400))


def test_intervals_that_are_typed_stay_and_a_pool_below_a_batch_has_epochs_of_one_step():
    every = {"evaluate_every": 7, "log_every": 0, "checkpoint_every": 0}
    given = {"train": {"epochs": 4, "warmup_epochs": 0, "batch": 8, "ratio": 5, **every}}
    recipe = resolve(compose("imagenet", given=given), device="cpu", threads=1)
    settled = settle_epochs(recipe, 400)
    train = settled.train
    assert (train.steps, train.evaluate_every, train.log_every, train.checkpoint_every) == (40, 7, 10, 10)
    assert set(settled.settled) - set(recipe.settled) >= {"train.log_every", "train.checkpoint_every"}
    assert "train.evaluate_every" not in settled.settled
    assert settle_epochs(recipe, 39).train.steps == 4


def tiny(tmp_path, **train):
    given = {
        "data": {"labels": 4, "exclude_labelled": True}, "net": {"name": "wrn-10-1"}, "evaluate": {"unlabelled": 5},
        "train": {"epochs": 2, "warmup_epochs": 1, "batch": 2, "ratio": 2, "evaluate_every": 0, "checkpoint_every": 0,
                  "schedule": "cosine-epoch", **train},
    }  # fmt: skip
    rng = np.random.default_rng(0)
    data = from_arrays(rng.integers(0, 255, (26, 8, 8), np.uint8), [0, 1] * 13, name="mine")
    return compose("arrays", given=given), data


def test_a_run_in_epochs_goes_on_and_may_be_made_longer(tmp_path):
    recipe, data = tiny(tmp_path)
    result = fit(recipe, tmp_path / "a", data, quiet=True)
    assert result["steps"] == 2 * (22 // 4)
    lines = [json.loads(line) for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "evaluate"] == [5, 10]  # the pool alone: no test set
    assert fit(recipe, tmp_path / "a", data, quiet=True, resume=True) == result  # finished
    longer, _ = tiny(tmp_path, epochs=3)
    assert fit(longer, tmp_path / "a", data, quiet=True, resume=True)["steps"] == 15
    saved = json.loads((tmp_path / "a/recipe.json").read_text())["train"]
    assert (saved["epochs"], saved["steps"], saved["warmup"], saved["evaluate_every"]) == (3, 15, 5, 5)
    with pytest.raises(UsageError, match=r"train.epochs = 2: .* is to have 3; only more"):
        fit(recipe, tmp_path / "a", data, quiet=True, resume=True)


def test_epochs_and_steps_are_not_mixed_on_resume(tmp_path, capsys):
    recipe, data = tiny(tmp_path)
    fit(recipe, tmp_path / "a", data, quiet=True)
    assert run(["train", "--resume", "--out", str(tmp_path / "a"), "--steps", "99"]) == 2
    assert "counts in epochs: type --epochs" in capsys.readouterr().err
    for words in ([], ["--steps", "99"]):
        assert run(["train", "--resume", "--out", str(tmp_path / "a"), "--set", "train.epochs=unset", *words]) == 2
        assert "counts in epochs: type --epochs" in capsys.readouterr().err
    quick = ["train", "digits@20", "--steps", "1", "--set", "train.batch=4", "--out", str(tmp_path / "b")]
    assert run(quick) == 0
    assert run(["train", "--resume", "--out", str(tmp_path / "b"), "--set", "train.epochs=unset"]) == 0  # as it is
    assert run(["train", "--resume", "--out", str(tmp_path / "b"), "--epochs", "9"]) == 2
    assert "counts in steps: type --steps" in capsys.readouterr().err


def test_a_saved_recipe_counts_anew_for_other_data(tmp_path):
    recipe, data = tiny(tmp_path)
    fit(recipe, tmp_path / "a", data, quiet=True)
    again = compose(config=str(tmp_path / "a/recipe.json"), dataset="arrays")
    settled = settle_epochs(resolve(again, device="cpu", threads=1), 400).train
    assert (settled.steps, settled.warmup, settled.evaluate_every) == (200, 100, 100)


@pytest.mark.parametrize("config", ["imagenet-authors", "imagenet-finetune"])
@pytest.mark.parametrize("length", [{"epochs": 2, "warmup_epochs": 1}, {"steps": 60}])
def test_the_words_that_began_a_run_go_on_with_it(tmp_path, length, config):
    given = {"data": {"name": "imagenet", "side": 32}, "train": {"batch": 4, **length}}
    begun = resolve(compose(config=config, given=given), device="cpu", threads=1)
    saved = settle_epochs(begun, 400, 40)
    (tmp_path / "recipe.json").write_text(saved.to_json())
    assert resumed_recipe(tmp_path, given, config) == saved


@pytest.mark.parametrize(
    ("train", "line"),
    [
        ({"epochs": 0}, "train.epochs = 0: it must be at least 1"),
        ({"epochs": 2, "warmup_epochs": 3}, "from 0 to train.epochs"),
        ({"evaluate_every": 0}, "train.evaluate_every = 0: it must be at least 1"),
    ],
)
def test_wrong_epochs_are_one_line(train, line):
    with pytest.raises(UsageError, match=line):
        compose("digits", given={"train": train})

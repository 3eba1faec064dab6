"""The command that makes a run: typed again, it gives the recipe of the run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from maxmatch.cli.options import given
from maxmatch.report.folder import RunFolder
from maxmatch.report.repeat import command
from maxmatch.train.recipe import Recipe, resolve
from maxmatch.train.recipes import compose

FLAGS = {"--method": "method", "--k": "k", "--over": "over", "--strategy": "strategy", "--steps": "steps", "--seed": "seed",
         "--fold": "fold", "--device": "device", "--init": "init", "--protocol": "protocol"}  # fmt: skip


def run_of(recipe: Recipe, path: str = "runs/a b") -> RunFolder:
    return RunFolder(Path(path), recipe, {}, [], 20, 1175)


def typed_again(line: str) -> Recipe:
    """What the command line makes of the words."""
    words = shlex.split(line)
    assert words[0] == "maxmatch"
    assert words[1] in ("train", "pretrain")
    assert words[-2] == "--out"
    data, rest = (words[2], words[3:-2]) if not words[2].startswith("--") else (None, words[2:-2])
    pairs = list(zip(rest[::2], rest[1::2], strict=True))
    config = dict(pairs).get("--config")
    sets = [value for flag, value in pairs if flag == "--set"]
    flags = {FLAGS[flag]: value for flag, value in pairs if flag not in ("--set", "--config")}
    flags = {name: int(value) if name in ("steps", "seed", "fold") else value for name, value in flags.items()}
    if words[1] == "pretrain":
        assert flags.keys() <= {"steps", "seed", "device", "init"}
        assert "@" not in (data or "")
    return compose(method="moco" if words[1] == "pretrain" else None, config=config, given=given(data, sets, **flags))


@pytest.mark.parametrize(
    ("data", "method", "settings"),
    [
        ("digits", "maxmatch", {}),
        ("digits", "fixmatch", {"train": {"seed": 3, "steps": 50, "lr": 0.1}, "data": {"labels": 40}}),
        ("digits", "maxmatch", {"method": {"k": "1:.5,2:.3,7:.2", "over": "fraction:0.5"}}),
        ("digits", "maxmatch", {"method": {"k": "1,2,3"}, "train": {"nesterov": False}}),
        ("digits", "maxmatch", {"method": {"k": "1:.2..3:.8"}}),
        ("digits", "mixmatch", {"augment": {"ops": ["rotate", "invert"], "policy": "imagenet"}, "train": {"fold": 2}}),
        ("cifar10", "uda", {"data": {"labels": 4000}, "net": {"dropout": 0.1}}),
        ("svhn", "remixmatch", {"data": {"protocol": "usb"}}),
        ("digits", "supervised", {"data": {"labels": "10%"}, "train": {"device": "cpu"}}),
        ("digits", "moco", {"train": {"steps": 7, "seed": 2, "fold": 3}, "method": {"queue": 256}}),
        ("svhn", "moco", {"data": {"protocol": "usb"}, "train": {"device": "cpu", "init": "runs/p"}}),
    ],
)
def test_the_command_makes_the_recipe_again(data, method, settings):
    recipe = compose(data, method, given=settings)
    settled = resolve(recipe, device="cpu", threads=2)
    line = command(run_of(settled))
    assert "--config" not in line
    assert typed_again(line) == recipe
    assert line.endswith("--out 'runs/a b'")


def test_what_goes_without_saying_is_not_said():
    assert command(run_of(compose("digits"), "runs/a")) == "maxmatch train digits@20 --method maxmatch --out runs/a"


def test_a_pretraining_is_typed_without_labels_and_method():
    assert command(run_of(compose("digits", "moco"), "runs/p")) == "maxmatch pretrain digits --out runs/p"
    slower = command(run_of(compose("digits", "moco"), "runs/p"), {"train": {"lr": 0.01}}, "slower")
    assert slower == "maxmatch pretrain digits --set train.lr=0.01 --out runs/p-slower"
    some = compose("digits", "moco", given={"data": {"labels": 40}})  # a config may say so, the command line may not
    assert command(run_of(some, "runs/p")) == "maxmatch pretrain --config runs/p/recipe.json --out runs/p"


def test_a_change_is_made_and_nothing_else():
    recipe = compose("digits", "fixmatch", given={"train": {"lr": 0.1}, "method": {"threshold": 0.8}})
    changed = typed_again(command(run_of(recipe), {"method": {"k": 5}}, "k5"))
    assert changed.to_dict()["method"] == {**recipe.to_dict()["method"], "k": 5}
    assert changed.train == recipe.train
    other = typed_again(command(run_of(recipe), {"method": {"name": "maxmatch"}}, "maxmatch"))
    assert (other.method, other.train) == (compose("digits", "maxmatch").method, recipe.train)


def test_what_no_command_says_is_a_config(tmp_path):
    """Data of one's own, or a folder that has gone: then the recipe's own file is given."""
    recipe = compose("digits", given={"train": {"lr": 0.1}})
    values = recipe.to_dict()
    values["data"] |= {"name": "folder", "path": str(tmp_path / "gone")}
    gone = Recipe.from_dict(values)
    line = command(run_of(gone, str(tmp_path)), {"method": {"k": 5}}, "k5")
    assert f"--config {tmp_path}/recipe.json --k 5 --out {tmp_path}-k5" in line
    (tmp_path / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    assert typed_again(line).method.k == 5

"""Training on a folder of pictures: chosen settings, the same weights however they are read, and a run that goes on."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from safetensors.torch import load_file

from maxmatch.cli import run
from maxmatch.data.copies import digest_of
from maxmatch.data.files import Files
from maxmatch.data.pictures import Look
from maxmatch.errors import Interrupted, UsageError, UserError
from maxmatch.methods.fixmatch import FixMatch
from maxmatch.methods.freematch import FreeMatch
from maxmatch.methods.maxmatch import MaxMatch
from maxmatch.report.compare import paired
from maxmatch.report.folder import read_run
from maxmatch.report.measure import measure
from maxmatch.train import pictures
from maxmatch.train.checkpoint import checkpoints
from maxmatch.train.data_word import read_data
from maxmatch.train.decoders import Decoders
from maxmatch.train.distributed import Ranks
from maxmatch.train.epochs import settle_epochs
from maxmatch.train.finished import open_run
from maxmatch.train.fit import fit
from maxmatch.train.judge import judge
from maxmatch.train.loop import _without_effect
from maxmatch.train.pictures import describe
from maxmatch.train.recipe import DataSettings, resolve
from maxmatch.train.recipes import compose
from maxmatch.train.step import Step
from maxmatch.train.suited import suited
from maxmatch.train.unlabelled import label_unlabelled

QUICK = {"train": {"steps": 6, "batch": 4, "ratio": 2, "evaluate_every": 3, "checkpoint_every": 3, "log_every": 3}}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Discs and squares of all sizes and colours: 12 labelled, 12 not, 6 to test."""
    root = tmp_path_factory.mktemp("shapes") / "photos"
    rng = np.random.default_rng(0)
    for number in range(30):
        kind = ("disc", "square")[number % 2]
        place = ("labeled", "labeled", "unlabeled", "unlabeled", "test")[number // 6]
        path = root / place / ("" if place == "unlabeled" else kind) / f"{kind} {number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        width, height = (int(side) for side in rng.integers(40, 80, 2))
        picture = Image.new("RGB", (width, height), tuple(int(c) for c in rng.integers(0, 100, 3)))
        pen, fill = ImageDraw.Draw(picture), tuple(int(c) for c in rng.integers(150, 256, 3))
        box = (10, 10, 30, 30)
        pen.ellipse(box, fill) if kind == "disc" else pen.rectangle(box, fill)
        picture.save(path)
    return root


def recipe_of(photos, method="maxmatch", **sections):
    given = {"data": {"path": str(photos), **sections.pop("data", {})}, "net": {"name": "wrn-10-1"}, **QUICK}
    given["train"] = {**QUICK["train"], **sections.pop("train", {})}
    given["method"] = sections.pop("options", {})
    return compose("folder", method, given={**given, **sections})


def weights(folder):
    return load_file(folder / "model.safetensors")


def test_what_suits_a_folder_is_chosen_and_open_to_change(photos):
    recipe = compose("folder", given={"data": {"path": str(photos)}, "train": {"device": "cpu"}})
    assert (recipe.data.labels, recipe.data.side, recipe.data.canvas, recipe.data.channels) == ("all", 32, 48, 3)
    assert (recipe.net.name, recipe.train.steps) == ("wrn-10-1", 1000)
    for side, canvas in ((64, 96), (48, 64), (24, 32)):  # as the run itself says it can be changed
        changed = compose("folder", given={"data": {"path": str(photos), "side": side}, "train": {"device": "cpu"}})
        assert (changed.data.side, changed.data.canvas) == (side, canvas)
    mixed = compose("folder", "remixmatch", given={"data": {"path": str(photos)}})
    assert (mixed.augment.policy, mixed.method.k) == ("cta", 8)
    other = compose("folder", given={"data": {"path": str(photos), "side": 24}, "train": {"device": "cpu", "steps": 9}})
    assert (other.data.side, other.train.steps, other.train.lr) == (24, 9, recipe.train.lr)
    named = compose("folder", config="paper", given={"data": {"path": str(photos)}, "train": {"device": "cpu"}})
    assert (named.net.name, named.train.steps, named.data.side) == ("wrn-28-2", 2**20, 32)


def test_a_folder_has_a_method_unless_one_is_asked_for(tmp_path):
    for number in range(12):
        place = tmp_path / "labeled" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 20 * number, np.uint8)).save(place / f"{number}.png")
    method = compose(str(tmp_path)).method
    assert method == FreeMatch(k=3, over="worst")
    assert "Chosen: freematch by the worst of 3 views (--method)" in describe(compose(str(tmp_path)))
    assert compose(str(tmp_path), given={"method": {"k": 5}}).method == FreeMatch(k=5, over="worst")
    assert compose(str(tmp_path), "maxmatch").method == MaxMatch()
    assert compose(str(tmp_path), "fixmatch").method == FixMatch()
    assert "Chosen: fixmatch (--method)" in describe(compose(str(tmp_path), "fixmatch"))
    wrong = "unknown setting 'method.threshold': freematch has no such option, .*; type --method maxmatch, or leave it"
    with pytest.raises(UsageError, match=wrong):
        compose(str(tmp_path), given={"method": {"threshold": 0.8}})


def test_tiny_pictures_of_one_size_are_taken_as_they_are():
    chosen = suited(Look(pictures=2000, classes=10, short_side=28, same_size=True, grey=True), on_gpu=False)
    assert (chosen["data"]["side"], chosen["data"]["canvas"], chosen["data"]["channels"]) == (28, None, 1)


@pytest.mark.parametrize(
    ("short_side", "on_gpu", "side", "net"),
    [
        (32, False, 96, "resnet18"),
        (480, False, 96, "resnet18"),
        (150, True, 128, "resnet18"),
        (480, True, 224, "resnet50"),
    ],
)
def test_published_weights_get_what_suits_them(short_side, on_gpu, side, net):
    look = Look(pictures=2000, classes=10, short_side=short_side, same_size=True, grey=True)
    chosen = suited(look, on_gpu, published=True, steps=250)
    assert chosen["net"] == {"name": net, "batchnorm_frozen": True, "batchnorm_momentum": "auto"}
    data = chosen["data"]
    assert (data["side"], data["channels"]) == (side, 3)  # they know colours
    assert data["canvas"] > side
    train = chosen["train"]
    assert (train["optimizer"], train["warmup"], train["steps"]) == ("adamw", 25, 250)
    assert (train["lr"], train["head_lr"], train["weight_decay"]) == (1e-4, 1e-3, 0.01)
    assert (train.get("batch", 64), train.get("ratio", 7)) == ((64, 7) if on_gpu else (16, 4))
    assert suited(look, on_gpu, published=True)["train"]["steps"] == (4000 if on_gpu else 300)
    assert suited(look, on_gpu, asked=64, published=True)["data"]["side"] == 64


@pytest.mark.parametrize("place", ["given", "file"])
def test_a_folder_is_trained_otherwise_where_published_weights_are_asked_for(photos, tmp_path, place):
    """As it would be typed, or by a file; what is typed beside it holds."""
    (tmp_path / "mine.toml").write_text("[net]\npretrained = true\n")
    config = str(tmp_path / "mine.toml") if place == "file" else None
    given = {"net": {"pretrained": True}} if place == "given" else {}
    recipe = compose(str(photos), config=config, given=given)
    assert (recipe.net.name, recipe.net.batchnorm_frozen, recipe.train.optimizer) == ("resnet18", True, "adamw")
    assert recipe.method == MaxMatch()
    typed = {"train": {"optimizer": "sgd", "lr": 0.01}, "net": {"batchnorm_frozen": False}}
    other = compose(
        str(photos), "freematch", config=config, given={**typed, "net": {**typed["net"], **given.get("net", {})}}
    )
    assert (other.train.optimizer, other.train.lr, other.net.batchnorm_frozen) == ("sgd", 0.01, False)
    assert other.method == FreeMatch()
    assert compose(str(photos)).net.name != "resnet18"


def test_what_a_folder_chose_for_a_net_that_has_no_use_for_it_is_no_warning(photos):
    recipe = compose(str(photos), given={"net": {"name": "timm:test_vit", "pretrained": True}})
    recipe = resolve(recipe, device="cpu", threads=1)
    asked = (torch.nn.Linear(3, 2), torch.device("cpu"), Ranks())
    assert recipe.net.batchnorm_frozen
    assert not _without_effect(recipe, *asked)
    assert "net.batchnorm_frozen = true" in _without_effect(replace(recipe, data=DataSettings()), *asked)[0]


def test_runs_with_views_of_other_sizes_are_compared_on_the_test_pictures_they_share(photos, tmp_path):
    """By their files: pixels of 24 and 32 px differ. A test that was changed is another one."""
    here = tmp_path / "photos"
    shutil.copytree(photos, here)
    for name, side in (("a", 24), ("b", 32)):
        fit(recipe_of(here, data={"side": side, "canvas": 48}), tmp_path / name, quiet=True)

    def asked(name):
        return measure(read_run(tmp_path / name), 0.1, mapped=False).test

    one, other = asked("a"), asked("b")
    ((pair,), refused) = paired([("a", one), ("b", other)])
    assert (pair.n, refused) == (6, [])
    next((here / "test").rglob("*.png")).unlink()
    fit(recipe_of(here), tmp_path / "c", quiet=True)
    assert paired([("a", one), ("c", asked("c"))]) == ([], ["a and c: they have other test images"])


def test_another_optimiser_has_other_rates_and_epochs_their_own_warm_up(photos):
    published = {"net": {"pretrained": True}}
    sgd = compose(str(photos), given={**published, "train": {"optimizer": "sgd"}}).train
    assert (sgd.lr, sgd.head_lr, sgd.weight_decay) == (3e-3, None, 5e-4)
    assert not compose(str(photos), given={**published, "train": {"optimizer": "muon"}}).net.batchnorm_frozen
    epochs = compose(str(photos), given={**published, "train": {"epochs": 40, "device": "cpu"}})
    settled = settle_epochs(epochs, unlabelled=640).train
    assert (settled.steps, settled.warmup) == (400, 40)  # a tenth
    drawn = settle_epochs(compose(str(photos), given={"train": {"epochs": 40, "device": "cpu"}}), unlabelled=640).train
    assert (drawn.steps, drawn.warmup) == (200, 0)


def test_a_pretraining_from_published_weights_is_as_long_as_any(photos):
    given = {"net": {"pretrained": True}, "train": {"device": "cpu"}}
    recipe = compose(str(photos), "moco", given=given)
    assert (recipe.train.steps, recipe.net.name, recipe.data.side) == (1000, "resnet18", 96)


def test_a_run_that_starts_from_another_has_its_net_and_what_suits_that(photos, tmp_path):
    """Whether that began with published weights or with a run that did; what is typed holds."""
    given = {"net": {"name": "timm:test_resnet", "pretrained": True}}
    for name, begun in (("p", given), ("q", {"train": {"init": str(tmp_path / "p")}})):
        recipe = compose(str(photos), given=begun)
        assert (recipe.net.name, recipe.net.batchnorm_frozen) == ("timm:test_resnet", True), name
        assert (recipe.train.optimizer, recipe.train.lr, recipe.data.side) == ("adamw", 1e-4, 96)
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.json").write_text(recipe.to_json())
    again = {"train": {"init": str(tmp_path / "q"), "lr": 0.01}, "net": {"name": "wrn-16-1"}}
    typed = compose(str(photos), given=again)
    assert (typed.net.name, typed.train.lr, typed.net.pretrained) == ("wrn-16-1", 0.01, False)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "recipe.json").write_text(recipe_of(photos, net={"name": "wrn-16-2"}).to_json())
    drawn = compose(str(photos), given={"train": {"init": str(tmp_path / "d")}})
    assert (drawn.net.name, drawn.train.optimizer) == ("wrn-16-2", "sgd")
    assert compose(str(photos), given={"train": {"init": "lost"}}).net.name != "wrn-16-2"
    (tmp_path / "q" / "model.safetensors").touch()
    by_file = compose(str(photos), given={"train": {"init": str(tmp_path / "q" / "model.safetensors")}})
    assert (by_file.net.name, by_file.train.optimizer) == ("timm:test_resnet", "adamw")
    for damaged in ("{", "[]", '{"net": 3}'):
        (tmp_path / "d" / "recipe.json").write_text(damaged)
        assert compose(str(photos), given={"train": {"init": str(tmp_path / "d")}}).train.optimizer == "sgd"


def test_runs_that_start_from_one_another_come_of_published_weights_or_do_not(photos, tmp_path):
    """By whatever they were trained: a pretraining, or one whose BatchNorm learned; also where one starts from itself."""
    begun = [
        ("moco", {"net": {"pretrained": True}}), ("maxmatch", {"train": {"optimizer": "muon"}}),
        ("maxmatch", {"net": {"batchnorm_frozen": False}}),
    ]  # fmt: skip
    init = None
    for number, (method, given) in enumerate(begun):
        given = {**given, "train": {**given.get("train", {}), "init": init}}
        recipe = compose(str(photos), method, given=given)
        init = str(tmp_path / str(number))
        Path(init).mkdir()
        (Path(init) / "recipe.json").write_text(recipe.to_json())
    recipe = compose(str(photos), given={"train": {"init": init}})
    assert (recipe.train.optimizer, recipe.net.name, recipe.data.side) == ("adamw", "resnet18", 96)
    drawn = tmp_path / "drawn"
    drawn.mkdir()
    (drawn / "recipe.json").write_text(recipe_of(photos).to_json())
    with pytest.raises(UsageError, match="train.init = .*drawn: it did not begin with published weights"):
        compose(str(photos), given={"net": {"pretrained": True}, "train": {"init": str(drawn)}})
    itself = recipe_of(photos, train={"init": str(tmp_path / "0")})
    (tmp_path / "0" / "recipe.json").write_text(itself.to_json())
    assert compose(str(photos), given={"train": {"init": str(tmp_path / "0")}}).train.optimizer == "sgd"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "wrn-10-1 from random weights, or published ones (--set net.pretrained=true --set net.name=resnet18)"),
        ({"net": {"name": "resnet18"}}, "resnet18 from random weights, or published ones (--set net.pretrained=true)"),
        ({"net": {"pretrained": True}}, "resnet18 with published weights"),
        ({"net": {"pretrained": True}, "train": {"init": "runs/p"}}, "resnet18 from runs/p"),
    ],
)
def test_what_a_net_begins_with_is_said(photos, given, told):
    given = {**given, "train": {"device": "cpu", **given.get("train", {})}}
    assert f", {told}, another net (" in describe(compose(str(photos), given=given))


def test_kept_or_streamed_with_any_number_of_workers_the_weights_are_the_same(photos, tmp_path):
    fit(recipe_of(photos, data={"labels": 4}), tmp_path / "kept", quiet=True)
    for workers, decoders in ((0, "threads"), (3, "threads"), (2, "processes")):
        # Some of the labels: positions are not in a row.
        data = {"resident": False, "workers": workers, "decoders": decoders, "labels": 4}
        out = tmp_path / f"{workers} {decoders}"
        fit(recipe_of(photos, data=data), out, quiet=True)
        assert not multiprocessing.active_children()
        ours, theirs = weights(out), weights(tmp_path / "kept")
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_method_that_uses_no_unlabelled_pictures_reads_none(photos, tmp_path, monkeypatch):
    read, whole = set(), Decoders.send_for
    monkeypatch.setattr(
        Decoders, "send_for", lambda self, tray, name, numbers: read.update(numbers) or whole(self, tray, name, numbers)
    )
    decoders = "processes" if sys.platform == "linux" else "threads"  # a tray that they share can't be empty
    for name, resident in (("streamed", False), ("kept", True)):
        data = {"labels": 6, "resident": resident, "decoders": decoders}
        fit(recipe_of(photos, "supervised", data=data), tmp_path / name, quiet=True)
    split = json.loads((tmp_path / "streamed" / "split.json").read_text())
    assert read == set(split["labelled"])
    ours, theirs = weights(tmp_path / "streamed"), weights(tmp_path / "kept")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_run_is_judged_without_reading_the_pictures_that_it_learned_from(photos, tmp_path, monkeypatch):
    fit(recipe_of(photos), tmp_path / "run", quiet=True)
    read, whole = [], Files.read_into
    monkeypatch.setattr(Files, "read_into", lambda self, n, slot: read.append(self.names[n]) or whole(self, n, slot))
    judged = judge(tmp_path / "run")
    assert {Path(name).parts[0] for name in read} == {"test"}
    assert 0 <= judged["error"] <= 100
    pool = open_run(tmp_path / "run").images
    some = np.array([3, 0, 5])
    slots, sizes = pool.take(some)  # several threads, and in the order they were asked for
    for slot, size, number in zip(slots, sizes, some, strict=True):
        alone, side = pool.files.read(int(number))
        assert torch.equal(slot, alone)
        assert tuple(size.tolist()) == side


def test_a_file_is_read_once_for_its_digest_and_again_when_it_has_changed(tmp_path, monkeypatch):
    file = tmp_path / "a.png"
    file.write_bytes(b"one")
    first = digest_of(file)
    assert first == hashlib.sha256(b"one").hexdigest()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda self: pytest.fail("read twice"))
        assert digest_of(file) == first
    file.write_bytes(b"three")
    assert digest_of(file) == hashlib.sha256(b"three").hexdigest()


@dataclass(frozen=True)
class Beside(Ranks):
    """One of several ranks, of which another has found so much memory."""

    others: int = 2**40

    def everyones(self, thing):
        return [thing, self.others]


def test_ranks_keep_the_pictures_if_all_have_room_share_their_cores_and_the_first_has_the_test(photos, monkeypatch):
    monkeypatch.setattr(pictures, "default_workers", lambda: 8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    recipe = recipe_of(photos)
    alone = pictures.load_data(recipe)
    assert (alone.streamed, alone.files.workers, len(alone.test_x)) == (False, 8, 6)
    first, other = (pictures.load_data(recipe, ranks=Beside(rank, 4)) for rank in range(2))
    assert not first.streamed
    assert torch.equal(first.test_x, alone.test_x)
    assert (other.test_x, other.test_y, other.files.workers) == (None, None, 2)
    assert torch.equal(other.x, alone.x)
    assert other.sha256() == alone.sha256()  # a rank that goes on knows the split by it
    assert pictures.load_data(recipe, ranks=Beside(0, 4, others=10**4)).streamed
    assert pictures.load_data(recipe_of(photos, data={"workers": 3}), ranks=Beside(0, 4)).files.workers == 3
    assert pictures._room("cpu", 4) < pictures._room("cpu") / 2


def test_a_damaged_file_is_left_out_by_a_rank_without_the_test_too(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    victim = tmp_path / "photos" / "unlabeled" / "square 13.png"
    victim.write_bytes(victim.read_bytes()[:100])
    found = pictures.load_data(recipe_of(tmp_path / "photos"), ranks=Beside(1, 2))
    assert (len(found.x), found.left_out) == (23, ("unlabeled/square 13.png",))


@pytest.mark.parametrize("method", ["remixmatch", "mean-teacher", "flexmatch"])
def test_other_methods_take_pictures_too(photos, tmp_path, method):
    result = fit(recipe_of(photos, method, data={"resident": False}), tmp_path / "a", quiet=True)
    assert result["steps"] == 6
    assert result["error"]["last"] is not None


def test_a_damaged_file_is_left_out_kept_or_streamed_and_the_run_goes_on_without_it(photos, tmp_path, capsys):
    shutil.copytree(photos, tmp_path / "photos")
    for victim in ("labeled/disc/disc 0.png", "unlabeled/square 13.png"):
        whole = (tmp_path / "photos" / victim).read_bytes()
        (tmp_path / "photos" / victim).write_bytes(whole[: len(whole) * 2 // 3])  # its head is sound
    for name, resident in (("kept", True), ("streamed", False)):
        fit(recipe_of(tmp_path / "photos", data={"resident": resident}), tmp_path / name, quiet=True)
    splits = [json.loads((tmp_path / name / "split.json").read_text()) for name in ("kept", "streamed")]
    assert splits[0] == splits[1]
    assert len(splits[0]["left_out"]) == 2
    ours, theirs = weights(tmp_path / "streamed"), weights(tmp_path / "kept")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert judge(tmp_path / "streamed")["classes"] == ["disc", "square"]
    with pytest.raises(UsageError, match="2 files can't be read"):
        fit(recipe_of(tmp_path / "photos", data={"resident": False, "strict": True}), tmp_path / "strict", quiet=True)


def test_a_streamed_run_goes_on_where_it_was_stopped(photos, tmp_path):
    fit(recipe_of(photos, data={"resident": False}), tmp_path / "whole", quiet=True)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    checkpoints(tmp_path / "cut/checkpoint")[-1].unlink()  # as if it had been killed after its third step
    for name in ("result.json", "model.safetensors"):
        (tmp_path / "cut" / name).unlink()
    moved = tmp_path / "elsewhere"
    moved.symlink_to(photos)  # the same pictures at another place
    assert run(["train", str(moved), "--resume", "--out", str(tmp_path / "cut")]) == 0
    ours, theirs = weights(tmp_path / "cut"), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert str(moved) in (tmp_path / "cut/recipe.json").read_text()


def test_the_command_line_takes_a_folder_and_uses_the_run(photos, tmp_path, capsys):
    out = tmp_path / "run"
    sets = [f"train.{name}={value}" for name, value in QUICK["train"].items() if name != "steps"]
    words = [word for text in [*sets, "net.name=wrn-10-1"] for word in ("--set", text)]
    assert run(["train", f"{photos}@4", "--steps", "6", "--out", str(out), *words]) == 0
    said = capsys.readouterr()
    assert (
        "24 pictures to learn from, 12 with a label (4 of them shown) of 2 classes (disc, square), 6 for the test"
        in said.err
    )
    assert "--set data.side=" in said.err
    result = json.loads(said.out)
    assert (result["labels"], result["dataset"]) == (4, "folder")
    assert run(["evaluate", str(out)]) == 0
    assert run(["predict", str(out), str(photos / "unlabeled"), "--out", str(tmp_path / "l.csv")]) == 0
    assert len((tmp_path / "l.csv").read_text().splitlines()) == 13
    assert run(["preview", str(photos), "--out", str(tmp_path / "sheet.png"), "--images", "2", "--k", "2"]) == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size[0] > 300
    assert judge(out)["classes"] == ["disc", "square"]


def test_pseudo_labels_are_judged_by_hidden_labels_alone(photos, tmp_path):
    sure = {"threshold": 0.0}
    shown = fit(recipe_of(photos, "fixmatch", options=sure), tmp_path / "shown", quiet=True)
    assert shown["pseudo_label_accuracy"] is None  # only labelled pictures have a label, and it was shown
    hidden = fit(recipe_of(photos, "fixmatch", options=sure, data={"labels": 4}), tmp_path / "hidden", quiet=True)
    assert 0 <= hidden["pseudo_label_accuracy"] <= 1


def test_without_a_test_the_error_is_not_measured(photos, tmp_path):
    few = tmp_path / "few"
    for kind in ("disc", "square"):
        (few / kind).mkdir(parents=True)
        for path in sorted((photos / "labeled" / kind).iterdir())[:3]:
            (few / kind / path.name).write_bytes(path.read_bytes())
    result = fit(recipe_of(few), tmp_path / "run", quiet=True)
    assert result["error"] == {"last": None, "median20": None, "best": None}


def test_imagenet_is_such_a_folder(photos, tmp_path, monkeypatch):
    for top, source in (("train", "labeled"), ("val", "test")):
        shutil.copytree(photos / source, tmp_path / "imagenet" / top)
    monkeypatch.setenv("MAXMATCH_DATA", str(tmp_path))
    given = {"data": {"labels": "50%", "side": 32, "canvas": 48}, "net": {"name": "wrn-10-1"}, **QUICK}
    result = fit(compose("imagenet", given=given), tmp_path / "run", quiet=True)
    assert (result["dataset"], result["labels"]) == ("imagenet", 6)
    split = json.loads((tmp_path / "run/split.json").read_text())
    assert not set(split["labelled"]) & set(split["unlabelled"])  # a share of each class, out of the pool
    assert compose("imagenet").data.side == 224


def test_a_folder_by_its_bare_name_and_in_python(photos, monkeypatch):
    monkeypatch.chdir(photos.parent)
    assert read_data("photos") == read_data("./photos") == ("folder", str(photos), None)
    assert read_data("photos@2") == read_data("photos/@2") == ("folder", str(photos), "2")
    for word in (str(photos), photos, "photos", Path("photos")):
        assert compose(word).data.path == str(photos)
    assert compose("photos@2").data.labels == 2
    with pytest.raises(UsageError, match="data.labels is given twice, as 2 and as 3"):
        compose("photos@2", given={"data": {"labels": 3}})
    with pytest.raises(UsageError, match="no folder photo and no data set of that name"):
        compose("photo")


def test_a_folder_that_is_called_as_a_data_set_is_one_by_its_path(photos, tmp_path, monkeypatch, capsys):
    shutil.copytree(photos, tmp_path / "digits")
    monkeypatch.chdir(tmp_path)
    assert read_data("digits") == ("digits", None, None)
    assert read_data("digits@40") == ("digits", None, "40")
    assert read_data("./digits@40") == ("folder", str(tmp_path / "digits"), "40")
    assert compose("digits").data.name == "digits"
    assert run(["settings", "digits@40"]) == 0
    assert "digits is the data set of that name; the folder beside is ./digits" in capsys.readouterr().err
    assert compose("./digits").data.name == compose(Path("digits")).data.name == "folder"


def test_a_folder_that_is_not_there_is_not_taken_for_a_data_set_alone(photos, monkeypatch):
    monkeypatch.chdir(photos.parent)
    with pytest.raises(UsageError, match=r"no folder photo and no data set of that name: did you mean \./photos\?"):
        read_data("photo")
    with pytest.raises(
        UsageError, match="there is no folder cifar_10; unknown data set 'cifar_10': did you mean 'cifar10'"
    ):
        read_data("cifar_10")


def test_what_can_be_refused_is_refused_before_pictures_are_read(photos, tmp_path, monkeypatch):
    def unread(*_, **__):
        raise AssertionError("pictures were read")

    (tmp_path / "notes").write_text("mine")
    fit(recipe_of(photos), tmp_path / "a", quiet=True)
    monkeypatch.setattr("maxmatch.train.fit.load_data", unread)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="already holds a run"):
        fit(recipe_of(photos), tmp_path / "a", quiet=True)
    with pytest.raises(UsageError, match="notes is a file"):
        fit(recipe_of(photos), tmp_path / "notes", quiet=True)
    with pytest.raises(UserError, match="nowhere"):
        fit(recipe_of(photos, train={"init": str(tmp_path / "nowhere")}), tmp_path / "b", quiet=True)
    with pytest.raises(UserError, match="cuda"):
        fit(recipe_of(photos, train={"device": "cuda"}), tmp_path / "b", quiet=True)


def test_a_broken_test_picture_is_taken_off_their_number(photos, tmp_path, capsys):
    shutil.copytree(photos, tmp_path / "photos")
    victim = next((tmp_path / "photos/test/disc").iterdir())
    victim.write_bytes(victim.read_bytes()[:100])
    fit(recipe_of(tmp_path / "photos"), tmp_path / "a")
    assert "which leaves 24 to learn from, 12 with a label, 5 for the test" in capsys.readouterr().err


def test_a_table_of_labels_is_previewed_and_its_settings_listed(photos, tmp_path, capsys):
    table = tmp_path / "labels.csv"
    rows = [f"{path.relative_to(photos).as_posix()},{path.parent.name}" for path in (photos / "labeled").rglob("*.png")]
    table.write_text("\n".join(rows))
    assert run(["preview", str(photos), "--labels", str(table), "--out", str(tmp_path / "p.png")]) == 0
    assert (tmp_path / "p.png").exists()
    assert run(["settings", str(photos), "--labels", str(table)]) == 0
    assert str(table) in capsys.readouterr().out


def test_a_run_is_asked_about_its_folder_as_it_is_now(photos, tmp_path, capsys):
    """Label a little more: who was labelled since is not listed again, and the error is still measured."""
    root = tmp_path / "photos"
    shutil.copytree(photos, root)
    fit(recipe_of(root), tmp_path / "a", quiet=True)
    error = judge(tmp_path / "a")["error"]
    (root / "unlabeled/disc 12.png").rename(root / "labeled/disc/disc 12.png")
    shutil.copy(root / "unlabeled/square 13.png", root / "unlabeled/new.png")
    assert run(["predict", "--unlabeled", str(tmp_path / "a"), "--out", str(tmp_path / "next.csv")]) == 0
    assert "were changed since it was trained; taken as they are now" in capsys.readouterr().err
    listed = (tmp_path / "next.csv").read_text()
    assert len(listed.splitlines()) == 1 + 12
    assert "unlabeled/new.png" in listed
    assert "disc 12.png" not in listed
    assert judge(tmp_path / "a")["error"] == error
    assert "learned from them" not in capsys.readouterr().err
    assert run(["train", str(root), "--resume", "--out", str(tmp_path / "a")]) == 0
    said = capsys.readouterr().err
    assert f"labels were changed since: type maxmatch train DATA --init {tmp_path / 'a'} --out OTHER" in said
    (root / "unlabeled/square 15.png").rename(root / "test/square/square 15.png")
    judge(tmp_path / "a")
    assert "1 of 7 test pictures were not in the test" in capsys.readouterr().err
    (root / "labeled/ring").mkdir()
    (root / "unlabeled/new.png").rename(root / "labeled/ring/new.png")
    with pytest.raises(UserError, match="belongs to other images"):  # a class that the net does not know
        judge(tmp_path / "a")
    (root / "labeled/disc").rename(root / "labeled/circle")
    (root / "test/disc").rename(root / "test/circle")
    line = (
        r"the classes differ \(disc gone, circle and ring new\): name them as they were, or train anew, without --init"
    )
    with pytest.raises(UserError, match=line.replace(" and ", ", ")):
        judge(tmp_path / "a")


def test_a_run_without_a_test_says_where_to_put_one(photos, tmp_path, capsys):
    """And what it says helps."""
    root = tmp_path / "photos"
    shutil.copytree(photos, root)
    shutil.rmtree(root / "test")
    for kind in ("disc", "square"):
        for path in sorted((root / "labeled" / kind).iterdir())[4:]:  # of five one would be held out
            path.rename(root / "unlabeled" / path.name)
    for name, labels, after in (("a", "all", "type it again"), ("b", 4, "train anew")):
        fit(recipe_of(root, data={"labels": labels}), tmp_path / name, quiet=True)
        assert run(["evaluate", str(tmp_path / name)]) == 1
        told = f"its error can't be measured; put pictures into {root}/test/CLASS/ and {after}\n"
        assert capsys.readouterr().err.endswith(told)
    assert run(["data", "shard", str(root), str(tmp_path / "shards")]) == 0
    fit(recipe_of(tmp_path / "shards"), tmp_path / "c", quiet=True)
    assert run(["evaluate", str(tmp_path / "c")]) == 1
    assert "test/CLASS/ of the folder that was packed, and pack it anew: maxmatch data shard" in capsys.readouterr().err
    shutil.copytree(photos / "test", root / "test")
    assert run(["evaluate", str(tmp_path / "a")]) == 0


def test_grey_pictures_are_told_of_where_a_run_is_stopped_too(photos, tmp_path, capsys, monkeypatch):
    root = tmp_path / "photos"
    shutil.copytree(photos, root)
    whole = Step.__call__

    def deleting(self, t):
        if t == 0:
            for path in sorted((root / "unlabeled").iterdir())[1:]:  # one is left: no disk was pulled out
                path.unlink()
        if t == 1:
            os.kill(os.getpid(), signal.SIGINT)
        whole(self, t)

    monkeypatch.setattr(Step, "__call__", deleting)
    with pytest.raises(Interrupted, match="stopped after step 2 of 60"):
        fit(
            recipe_of(root, data={"resident": False, "workers": 1}, train={"steps": 60, "log_every": 50}),
            tmp_path / "a",
        )
    assert "files could not be read and were shown as grey: unlabeled/" in " ".join(capsys.readouterr().err.split())


def test_other_classes_than_those_of_init_are_named(photos, tmp_path):
    fit(recipe_of(photos), tmp_path / "a", quiet=True)
    shutil.copytree(photos, tmp_path / "photos")
    for top in ("labeled", "test"):
        (tmp_path / "photos" / top / "disc").rename(tmp_path / "photos" / top / "coin")
    with pytest.raises(UsageError, match="it has the class disc, this run has the class coin; mend"):
        fit(recipe_of(tmp_path / "photos", train={"init": str(tmp_path / "a")}), tmp_path / "b", quiet=True)


def test_a_test_that_the_first_run_may_have_learned_from_is_said(photos, tmp_path, capsys):
    root = tmp_path / "photos"
    shutil.copytree(photos, root)
    shutil.rmtree(root / "test")  # a fifth of each class is held out
    fit(recipe_of(root), tmp_path / "a", quiet=True)
    tested = json.loads((tmp_path / "a" / "split.json").read_text())["tested"]
    assert tested
    assert all(name.startswith("labeled/") for name in tested)
    fit(recipe_of(root, train={"init": str(tmp_path / "a")}), tmp_path / "b")
    assert "were not in the test of" not in capsys.readouterr().err
    for path in sorted((root / "unlabeled").iterdir()):
        path.rename(root / "labeled" / path.name.split()[0] / path.name)
    fit(recipe_of(root, train={"init": str(tmp_path / "a")}), tmp_path / "c")
    now = json.loads((tmp_path / "c" / "split.json").read_text())["tested"]
    others = len(set(now) - set(tested))
    assert others
    line = f"{others} of {len(now)} test pictures were not in the test of {tmp_path / 'a'}, which has learned from"
    assert line in capsys.readouterr().err


def test_labels_by_a_csv_file(photos, tmp_path):
    table = tmp_path / "labels.csv"
    names = sorted(path.relative_to(photos).as_posix() for path in photos.glob("unlabeled/*"))
    table.write_text(
        "path,label\n" + "".join(f"{name},{name.split('/')[1].split()[0]}\n" for name in names[:2] + names[-2:])
    )
    sets = [f"train.{name}={value}" for name, value in QUICK["train"].items()]
    words = [word for text in [*sets, "net.name=wrn-10-1"] for word in ("--set", text)]
    assert run(["train", str(photos), "--labels", str(table), "--out", str(tmp_path / "run"), *words]) == 0
    assert json.loads((tmp_path / "run/result.json").read_text())["labels"] == 4


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["./nowhere"], "no such folder"),
        (["."], "no picture has a label"),
        (["PHOTOS@1"], "at least one a class"),
        (["PHOTOS", "--labels", "none.csv"], "no such file"),
        (["PHOTOS", "--set", "data.side=4"], "at least 8"),
        (["PHOTOS", "--set", "data.canvas=16"], "larger than data.side"),
        (["PHOTOS", "--set", "data.scale=1"], "did you mean"),
        (["digits@20", "--labels", "some.csv"], "it is for a folder of pictures"),
        (["digits", "--labels", "40"], "the number of labels stands behind an @; type digits@40"),
        (["digits@20", "--strict"], "it is for a folder of pictures"),
        (["digits@20", "--set", "data.side=64"], "it is for a folder of pictures"),
    ],
)
def test_mistakes_are_one_line(photos, tmp_path, monkeypatch, capsys, words, line):
    monkeypatch.chdir(tmp_path)
    words = [word.replace("PHOTOS", str(photos)) for word in words]
    assert run(["train", *words, "--out", "run"]) in (1, 2)
    said = capsys.readouterr().err.strip().splitlines()
    assert line in said[-1]
    assert said[-1].startswith("maxmatch: ")
    assert not (tmp_path / "run").exists()


def test_a_share_is_one_of_the_labels_that_there_are(photos, tmp_path):
    result = fit(recipe_of(photos, data={"labels": "50%"}), tmp_path / "a", quiet=True)
    assert result["labels"] == 6  # 12 of 24 pictures have one


def test_pictures_that_were_moved_are_asked_for_and_found_again(photos, tmp_path, capsys):
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(photos, here)
    fit(recipe_of(here), tmp_path / "a run", quiet=True)
    error = judge(tmp_path / "a run")["error"]
    here.rename(there)
    out = str(tmp_path / "a run")
    for words in (
        ["evaluate", out],
        ["predict", "--unlabeled", out],
        ["train", "--steps", "9", "--resume", "--out", out],
    ):
        assert run(words) == 2
        err = capsys.readouterr().err
        assert f"the pictures of {out} are not there any more" in err
        assert f"type maxmatch train FOLDER --resume --out '{out}'" in err
    saved = json.loads((tmp_path / "a run" / "recipe.json").read_text())
    other = tmp_path / "other"
    shutil.copytree(there, other)
    next((other / "unlabeled").iterdir()).unlink()
    assert run(["train", str(other), "--resume", "--out", out]) == 1
    assert "belongs to other images" in capsys.readouterr().err
    assert run(["train", str(there), "--resume", "--out", out]) == 0
    assert judge(tmp_path / "a run")["error"] == error
    saved["data"]["path"] = str(there)
    assert json.loads((tmp_path / "a run" / "recipe.json").read_text()) == saved


def test_a_table_that_was_moved_is_asked_for_and_found_again(photos, tmp_path, capsys):
    names = [path.relative_to(photos).as_posix() for path in sorted(photos.rglob("*.png")) if "test" not in path.parts]
    table = tmp_path / "labels.csv"
    table.write_text("".join(f"{name},{'disc' if 'disc' in name else 'square'}\n" for name in names))
    fit(recipe_of(photos, data={"label_file": str(table)}), tmp_path / "a", quiet=True)
    table.rename(tmp_path / "moved.csv")
    assert run(["evaluate", str(tmp_path / "a")]) == 2
    assert f"type maxmatch train FOLDER --labels FILE --resume --out {tmp_path / 'a'}" in capsys.readouterr().err
    words = ["train", str(photos), "--labels", str(tmp_path / "moved.csv"), "--resume", "--out", str(tmp_path / "a")]
    assert run(words) == 0
    assert run(["evaluate", str(tmp_path / "a")]) == 0


def test_a_run_goes_on_with_its_own_pictures_or_is_refused_before_one_is_read(photos, tmp_path, monkeypatch):
    root = tmp_path / "my photos"
    shutil.copytree(photos, root)
    fit(recipe_of(root, train={"steps": 2, "checkpoint_every": 1}), tmp_path / "a", quiet=True)
    first = next((root / "unlabeled").iterdir())
    shutil.copy(first, first.with_name("another" + first.suffix))
    monkeypatch.setattr("maxmatch.train.fit.load_data", lambda *_: pytest.fail("pictures are read"))
    line = f"type maxmatch train '{root}' --init {tmp_path / 'a'} --out ANOTHER"
    with pytest.raises(UserError, match=re.escape(line)):
        fit(recipe_of(root, train={"steps": 4, "checkpoint_every": 1}), tmp_path / "a", resume=True, quiet=True)


def test_intervals_are_those_of_the_steps_that_are_asked_for(photos):
    recipe = compose(str(photos), given={"train": {"steps": 60, "device": "cpu"}})
    assert (recipe.train.evaluate_every, recipe.train.log_every, recipe.train.checkpoint_every) == (3, 3, 6)
    assert compose(str(photos), given={"train": {"device": "cpu"}}).train.evaluate_every == 50


def test_only_who_is_judged_by_the_test_reads_it_and_says_how_far_it_is(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("maxmatch.progress.SILENCE", -1.0)
    fit(recipe_of(photos, train={"steps": 2}), tmp_path / "a", quiet=True)
    read = []
    whole = Files.read_all
    monkeypatch.setattr(Files, "read_all", lambda self, *given: (read.extend(self.names), whole(self, *given))[1])
    label_unlabelled(tmp_path / "a", tmp_path / "next.csv")
    assert not [name for name in read if name.startswith("test/")]
    capsys.readouterr()
    judge(tmp_path / "a", quiet=True)
    assert capsys.readouterr().err == ""
    judge(tmp_path / "a")
    tests = [name for name in read if name.startswith("test/")]
    assert f"reading test pictures 1/{len(tests) // 2}, about 10 s left" in capsys.readouterr().err

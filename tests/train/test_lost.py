"""What is lost on the way ends no run and blocks none: a reader, a log's disk, a line of the log, the model's file."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import maxmatch
from maxmatch.cli import run
from maxmatch.errors import UsageError, UserError
from maxmatch.methods.gone import Gone
from maxmatch.train.fit import fit
from maxmatch.train.judge import judge
from maxmatch.train.resume import read_recipe

SRC = Path(maxmatch.__file__).parents[1]
WORDS = ["train", "digits@20", "--steps", "40", "--set", "train.evaluate_every=4", "--no-report", "--device", "cpu"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("stderr", ["closed", "/dev/full"])
def test_a_line_that_nobody_can_read_ends_no_training(tmp_path, stderr):
    """As by `2>&1 | head -1`, or with the log on a disk that is full."""
    command = [sys.executable, "-m", "maxmatch", *WORDS, "--out", str(tmp_path / "run")]
    if stderr == "closed":
        ear, mouth = os.pipe()
        os.close(ear)
    else:
        mouth = os.open(stderr, os.O_WRONLY)
    found = {**os.environ, "PYTHONPATH": str(SRC)}
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=mouth, env=found, check=False)
    os.close(mouth)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 40


def test_a_line_of_the_log_that_is_no_text_is_dropped(tiny, tmp_path):
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    fit(tiny(), whole, quiet=True)
    fit(tiny(), torn, quiet=True)
    (torn / "result.json").unlink()
    with (torn / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\xfe\x00")
    fit(tiny(), torn, resume=True, quiet=True)
    assert (torn / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_a_model_that_is_gone_is_made_again_from_the_last_checkpoint(tiny, tmp_path, capsys):
    fit(tiny(), tmp_path / "run", quiet=True)
    model = tmp_path / "run" / "model.safetensors"
    before = {name: tensor.clone() for name, tensor in load_file(model).items()}  # the file is mapped
    model.write_bytes(model.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"is damaged .*delete it and type maxmatch train --resume --out"):
        judge(tmp_path / "run", quiet=True)
    model.unlink()
    assert run(["train", "--resume", "--out", str(tmp_path / "run"), "--no-report"]) == 0
    assert "is finished" not in capsys.readouterr().err
    after = load_file(model)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_weights_of_images_of_another_size_are_one_line(tmp_path):
    """A transformer's places are as many as its patches."""
    pytest.importorskip("timm")
    small = {"train": {"steps": 1, "batch": 4, "ratio": 1}, "net": {"name": "timm:test_vit"}}
    rng = np.random.default_rng(0)

    def images(side):
        x, y = rng.integers(0, 256, (12, side, side, 3), np.uint8), np.arange(12) % 2
        return maxmatch.from_arrays(x, y, x, y, classes=("a", "b"))

    given = {**small, "data": {"labels": "all"}}
    fit(maxmatch.compose("arrays", "supervised", given=given), tmp_path / "a", images(32), quiet=True)
    given["train"] = {**small["train"], "init": str(tmp_path / "a")}
    with pytest.raises(UsageError, match="its weights are for images of 32 px, .* --set data.side=32"):
        fit(maxmatch.compose("arrays", "supervised", given=given), tmp_path / "b", images(48), quiet=True)


def test_a_checkpoint_is_no_weight_file_and_a_weight_file_is_a_classifier(tiny, tmp_path):
    fit(tiny(), tmp_path / "run", quiet=True)
    newest = sorted((tmp_path / "run" / "checkpoint").iterdir())[-1]
    with pytest.raises(UsageError, match=f"is a checkpoint: give the folder of its run, {tmp_path / 'run'}"):
        maxmatch.load(newest)
    images = maxmatch.load_images("digits").test_x[:9]
    torch.manual_seed(0)
    drawn = torch.rand(3)
    torch.manual_seed(0)
    of_file = maxmatch.load(tmp_path / "run" / "model.safetensors")
    assert torch.equal(torch.rand(3), drawn)  # the caller's generator is where it was
    assert list(of_file.predict(images)) == list(maxmatch.load(tmp_path / "run").predict(images))


OWN = """
from dataclasses import dataclass
from maxmatch.methods.fixmatch import FixMatch

@dataclass(frozen=True)
class Own(FixMatch):
    margin: float = 0.5
"""


@pytest.mark.parametrize("change", ["renamed", "gone"])
def test_a_run_is_read_though_its_method_is_not_what_it_was(tmp_path, monkeypatch, capsys, change):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    name = f"own_{change}"
    (tmp_path / f"{name}.py").write_text(OWN)
    words = "train digits@20 --steps 4 --no-report --set train.threads=1 --k 2 --over worst --method"
    assert run([*words.split(), f"{name}:Own", "--out", "a"]) == 0
    before = json.loads(Path("a/result.json").read_text())
    sys.modules.pop(name)
    (tmp_path / f"{name}.py").unlink()
    if change == "renamed":
        (tmp_path / f"{name}.py").write_text(OWN.replace("margin", "edge"))
    importlib.invalidate_caches()
    capsys.readouterr()
    lost = {
        "renamed": f"a/recipe.json has margin, which {name}:Own has no longer: restore its code as it was",
        "gone": f"method '{name}:Own': No module named '{name}'",
    }[change]
    assert judge("a", quiet=True)["error"] == before["error"]["last"]
    told = capsys.readouterr().err
    assert lost in told
    assert len(told.splitlines()) == 1
    for words in ("evaluate a --k 1", "predict --unlabeled a --out next.csv", "report a"):
        assert run(words.split()) == 0, words
        told = capsys.readouterr().err
        assert lost in told
        assert "Traceback" not in told
    assert "Own (K = 2) on digits" in Path("a/report.html").read_text()
    assert run(["train", "--resume", "--steps", "8", "--out", "a"]) == 2
    assert lost in capsys.readouterr().err
    assert Gone(options={"k": "many"}).needs.most == 0
    assert read_recipe(Path("a")).to_dict()["method"] == json.loads(Path("a/recipe.json").read_text())["method"]
    with pytest.raises(UsageError, match="is not here as it was"):
        Gone(f"{name}:Own").losses(None, None)


def test_a_report_that_was_not_made_is_made_by_going_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["train", "digits@20", "--steps", "2", "--set", "train.threads=1", "--no-report", "--out", "a"]) == 0
    assert not Path("a/report.html").exists()
    assert run(["train", "--resume", "--out", "a", "--no-report"]) == 0
    assert not Path("a/report.html").exists()
    assert run(["train", "--resume", "--out", "a"]) == 0
    assert Path("a/report.html").exists()
    assert "a is finished: 2 steps" in capsys.readouterr().err


def test_a_momentum_that_does_nothing_is_told(tmp_path, capsys):
    for net, momentum, told in (("plain-conv", 0.5, 1), ("wrn-10-1", 0.5, 0), ("plain-conv", "auto", 0)):
        net_values = {"name": net, "batchnorm_momentum": momentum}
        fit(
            maxmatch.compose("digits@20", given={"net": net_values, "train": {"steps": 1, "threads": 1}}),
            tmp_path / "run", force=True,
        )  # fmt: skip
        line = "net.batchnorm_momentum = 0.5: plain-conv has no BatchNorm, so it does nothing; leave it out"
        assert capsys.readouterr().err.count(line) == told


def test_statistics_that_are_frozen_and_not_there_are_told(tmp_path, capsys):
    given = {"net": {"name": "plain-conv"}, "train": {"steps": 1, "threads": 1}}
    fit(maxmatch.compose("digits@20", given=given), tmp_path / "first", quiet=True)
    frozen = {
        "net": {"name": "plain-conv", "batchnorm_frozen": True},
        "train": {**given["train"], "init": str(tmp_path / "first")},
    }
    fit(maxmatch.compose("digits@20", given=frozen), tmp_path / "run")
    line = "net.batchnorm_frozen = true: plain-conv has no BatchNorm, so it does nothing; leave it out"
    assert capsys.readouterr().err.count(line) == 1

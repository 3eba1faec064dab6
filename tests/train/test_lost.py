"""What is lost on the way ends no run and blocks none: a reader, a log's disk, a line of the log, the model's file."""

from __future__ import annotations

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
from maxmatch.train.fit import fit
from maxmatch.train.judge import judge

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

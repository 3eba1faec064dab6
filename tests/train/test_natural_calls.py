"""Natural calls in Python: paths and numpy's numbers are taken, what can't be is told in one line."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import maxmatch
from maxmatch.errors import UsageError
from maxmatch.evaluate.classifier import Classifier
from maxmatch.train.step import Step


@pytest.fixture
def photos(tmp_path):
    for number in range(12):
        place = tmp_path / "photos" / "labeled" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 20 * number, np.uint8)).save(place / f"{number}.png")
    return tmp_path / "photos"


def test_a_path_and_the_numbers_of_numpy(photos):
    recipe = maxmatch.compose(photos, given={"train": {"steps": np.int64(3), "lr": np.float32(0.5)}})
    assert (recipe.data.path, recipe.train.steps, recipe.train.lr) == (str(photos), 3, 0.5)
    assert type(recipe.train.steps) is int
    with pytest.raises(UsageError, match=r"train.steps = 3.5: a whole number is wanted"):
        maxmatch.compose("digits", given={"train": {"steps": np.float32(3.5)}})


def test_paths_of_files_and_of_given_are_whole(photos, monkeypatch):
    monkeypatch.chdir(photos.parent)
    Path("mine.toml").write_text('[data]\nname = "folder"\npath = "photos"\nlabel_file = "labels.csv"\n')
    Path("labels.csv").write_text("path,label\nlabeled/a/0.png,a\nlabeled/b/1.png,b\n")
    for recipe in (
        maxmatch.compose(config="mine.toml"),
        maxmatch.compose("folder", given={"data": {"path": "photos", "label_file": "labels.csv"}}),
    ):
        assert recipe.data.path == os.path.abspath("photos")
        assert recipe.data.label_file == os.path.abspath("labels.csv")


def test_a_config_may_be_a_path(tmp_path):
    (tmp_path / "mine.toml").write_text("[train]\nsteps = 7\n")
    assert maxmatch.compose(config=tmp_path / "mine.toml") == maxmatch.compose(config=str(tmp_path / "mine.toml"))
    assert maxmatch.compose(config=Path("fast-10min")) == maxmatch.compose(config="fast-10min")


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: maxmatch.compose(3), r"compose\(3\): type it as compose"),
        (lambda: maxmatch.compose("digits", given="train.steps=3"), "given = 'train.steps=3': type it as"),
        (lambda: maxmatch.fit("digits@40", "runs/a"), r"fit\('digits@40'\): a recipe is wanted, such as maxmatch.co"),
        (lambda: maxmatch.fit(maxmatch.compose("digits"), "a", ([1], [2])), r"from_arrays\(x, y\)"),
        (lambda: maxmatch.fit(maxmatch.compose("digits"), "a", resume=True, force=True), "leave one of them out"),
        (lambda: maxmatch.compose("digits", given={"augment": {"scale": 3}}), "2 values are wanted"),
        (
            lambda: Classifier(torch.nn.Identity(), (), None).predict([]),
            "no images were given: give arrays, or the paths",
        ),
    ],
)
def test_what_can_not_be_is_one_line(call, line):
    with pytest.raises(UsageError, match=line) as told:
        call()
    assert "\n" not in str(told.value)


def test_a_run_is_the_same_in_whatever_mode_it_is_called(tiny, tmp_path):
    """Oracle: the run in none. Afterwards the caller has his modes again."""
    maxmatch.fit(tiny(), tmp_path / "plain", quiet=True)
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            maxmatch.fit(tiny(), tmp_path / "within", quiet=True)
            assert torch.is_autocast_enabled("cpu")
            assert torch.is_autocast_cache_enabled()
            assert torch.is_inference_mode_enabled()
        assert torch.get_default_dtype() == torch.float64
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
    plain, within = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "within"))
    assert all(torch.equal(plain[name], within[name]) for name in plain)


def test_all_warnings_go_where_they_are_asked_to(tiny, tmp_path, capfd):
    said = []
    maxmatch.fit(tiny(method={"threshold": 1.0}), tmp_path / "a", quiet=True, warn=said.append)
    assert said == ["no unlabelled image taught anything in the last steps, the method kept none"]
    assert capfd.readouterr().err == ""


def test_a_stop_is_taken_for_no_failure(tiny, tmp_path, monkeypatch):
    whole = Step.__call__

    def stopped(self, t):
        os.kill(os.getpid(), signal.SIGINT)
        whole(self, t)

    monkeypatch.setattr(Step, "__call__", stopped)
    with pytest.raises(BaseException, match="nothing is lost") as raised:
        maxmatch.fit(tiny(), tmp_path / "a", quiet=True)
    assert not isinstance(raised.value, Exception)


@pytest.mark.parametrize("stream", [None, "closed"])
def test_a_standard_error_that_is_gone_ends_nothing(tiny, tmp_path, monkeypatch, capsys, stream):
    if stream is not None:
        stream = (tmp_path / "log").open("w")
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    assert maxmatch.fit(tiny(), tmp_path / "a")["steps"] == 12
    assert capsys.readouterr().out == ""

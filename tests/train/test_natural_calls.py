"""Natural calls in Python: paths and numpy's numbers are taken, what can't be is told in one line."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import maxmatch
from maxmatch.errors import UsageError
from maxmatch.evaluate.classifier import Classifier


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

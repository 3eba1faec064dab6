"""What result.json says and what may be read back from one; the warnings that a run does not begin with."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from maxmatch.data.split import Split
from maxmatch.nets.model_file import load_model
from maxmatch.train.fit import fit
from maxmatch.train.pictures import load_data
from maxmatch.train.recipes import compose
from maxmatch.train.result import is_result, warnings_of

RESULT = {"error": {"last": 3.0, "median20": 3.5, "best": 2}, "steps": 5, "seconds": 2.5, "robust": {"k": 3}}


def test_numbers_that_were_not_measured_are_no_damage():
    assert is_result(RESULT)
    assert is_result({**RESULT, "error": {"last": None}})
    assert is_result({"error": {"last": None, "median20": None, "best": None}})


@pytest.mark.parametrize(
    "damage",
    [
        {"error": None}, {"error": {"best": 3.0}}, {"error": {"last": math.nan}}, {"error": {"last": 3.0, "best": math.inf}},
        {"error": {"last": 3.0, "median20": "3"}}, {"steps": None}, {"steps": "5"}, {"seconds": math.nan}, {"robust": 3},
        {"versions": []}, {"recipe_sha256": 7},
    ],
    ids=str,
)  # fmt: skip
def test_what_no_run_writes_is_no_result(damage):
    assert not is_result({**RESULT, **damage})


def test_parameters_are_counted_without_what_batchnorm_only_remembers(tiny, tmp_path):
    result = fit(tiny("supervised", train={"steps": 2}), tmp_path / "a", quiet=True)
    net, _ = load_model(tmp_path / "a" / "model.safetensors")
    assert result["parameters"] == sum(parameter.numel() for parameter in net.parameters())
    assert result["parameters"] < sum(tensor.numel() for tensor in net.state_dict().values())


def test_a_usual_run_begins_without_a_warning(tiny):
    recipe = tiny()
    images = load_data(recipe)
    everyone = np.arange(len(images.y))
    assert warnings_of(recipe, images, Split(everyone[:20], everyone)) == []
    published = replace(
        recipe, net=replace(recipe.net, pretrained=True), train=replace(recipe.train, lr=0.001, head_lr=0.1)
    )
    assert warnings_of(published, images, Split(everyone[:20], everyone)) == []


def test_who_needs_no_label_is_not_told_that_classes_lack_one(tiny):
    images = load_data(tiny())
    nobody = Split(np.arange(0), np.arange(len(images.y)))
    assert "no image of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 has a label" in warnings_of(tiny(), images, nobody)[0]
    assert warnings_of(compose("digits", "moco"), images, nobody) == []

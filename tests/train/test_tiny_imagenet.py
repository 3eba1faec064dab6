"""The whole ImageNet recipe on a generated ImageFolder of 20 classes: killed, resumed, and equal to the unkilled run.

By torchrun, whose processes must end with it, the same is in test_ranks_jobs.py, where they run already.
"""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from maxmatch.cli import run
from maxmatch.data.picture_file import read_image
from maxmatch.train.finished import open_run

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("tiny_imagenet", ROOT / "benchmarks" / "tiny_imagenet.py")
tiny = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tiny)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    place = tmp_path_factory.mktemp("tiny")
    words = tiny.recipe_words(tiny.make_folder(place / "pictures", train=10), epochs=3)
    assert run(["train", *words, "--out", str(place / "whole")]) == 0
    return words, place / "whole"


def test_killed_twice_and_resumed_it_ends_as_the_unkilled_run(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words, unkilled = whole
    assert tiny.run_killed(words, tmp_path / "killed", checkpoints=1) == [143, -9, 0]
    assert tiny.differences(unkilled, tmp_path / "killed") == []


def test_its_lists_are_disjoint_a_tenth_of_each_class_and_its_figures_are_there(whole):
    _, folder = whole
    split = json.loads((folder / "split.json").read_text())
    classes = np.repeat(np.arange(20), 10)  # sorted by class, ten pictures each
    assert np.bincount(classes[split["labelled"]]).tolist() == [1] * 20
    assert np.bincount(classes[split["unlabelled"]]).tolist() == [9] * 20
    assert not set(split["labelled"]) & set(split["unlabelled"])
    recipe, result = (json.loads((folder / name).read_text()) for name in ("recipe.json", "result.json"))
    assert (result["steps"], recipe["train"]["warmup"]) == (3 * (180 // 20), 9)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    judged = [line for line in lines if line["kind"] == "evaluate"]
    assert [line["step"] for line in judged] == [9, 18, 27]  # once an epoch
    for line in judged:
        assert line["top5_error"] <= line["error"]
        assert line["unlabelled_top5_error"] <= line["unlabelled_error"]
        assert line["unlabelled_images"] == 100
    assert judged[-1]["top5_error"] == result["top5_error"]


def test_predict_and_export_show_the_net_what_the_evaluation_showed_it(whole, tmp_path, capsys):
    """Their errors on val/ are the run's own: the same middle of each picture is cut out."""
    words, folder = whole
    val, labels = Path(words[0]) / "val", tmp_path / "labels.csv"
    assert run(["predict", str(folder), str(val), "--out", str(labels)]) == 0
    with labels.open() as file:
        rows = list(csv.DictReader(file))
    wrong = np.mean([row["path"].split("/")[0] != row["label"] for row in rows])
    result = json.loads((folder / "result.json").read_text())
    assert len(rows) == 40
    assert 100 * wrong == pytest.approx(result["error"]["last"])
    finished = open_run(folder)
    shown = finished.images.test_x  # in the order of the names, as predict has them
    sure = finished.classifier.predict_proba(shown).max(1)
    assert [float(row["confidence"]) for row in rows] == pytest.approx(sure.tolist(), abs=1e-4)
    paths = [val / row["path"] for row in rows]
    assert torch.equal(finished.classifier.pixels(paths), shown)
    assert not torch.equal(torch.stack([read_image(path, (3, 32, 32)) for path in paths]), shown)
    assert run(["export", str(folder), str(tmp_path / "model.pt2")]) == 0  # refused where it does not agree with torch


def test_of_many_classes_the_most_frequent_mistakes_are_shown(whole, capsys):
    _, folder = whole
    capsys.readouterr()
    assert run(["evaluate", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    matrix = np.array(found["confusion"])
    mistakes = matrix - np.diag(np.diag(matrix))
    truth, predicted = np.unravel_index(mistakes.argmax(), mistakes.shape)  # the first of the largest
    assert run(["evaluate", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "the most frequent mistakes" in " ".join(out.split())
    first = [cell.strip() for cell in next(line for line in out.splitlines() if line[:1] == "│").strip("│").split("│")]
    count, of = str(mistakes.max()), str(matrix[truth].sum())
    assert first == [found["classes"][truth], found["classes"][predicted], count, of]

"""Pseudo-labels of a run's own pool: who is in it, what is said of each image, and what comes first."""

from __future__ import annotations

import csv
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import maxmatch
from maxmatch import progress
from maxmatch.augment import Views, Weak, randaugment
from maxmatch.cli import run as run_command
from maxmatch.data.files import Files
from maxmatch.data.plan import Plan
from maxmatch.errors import UserError
from maxmatch.train import unlabelled
from maxmatch.train.finished import open_run
from maxmatch.train.unlabelled import CHUNK, PseudoLabels, label_unlabelled, pseudo_labels


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    given = {"net": {"name": "wrn-10-1"}, "train": {"steps": 30, "batch": 16, "ratio": 2, "threads": 1}}
    folder = tmp_path_factory.mktemp("unlabelled") / "run"
    maxmatch.fit(maxmatch.compose("digits", "fixmatch", given=given), folder, quiet=True)
    return folder


def test_every_image_without_a_label_has_one_row_and_the_doubtful_come_first(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "SILENCE", -1.0)
    count = label_unlabelled(run, tmp_path / "a.csv", k=4)
    assert capsys.readouterr().err.splitlines()[-1] == "labelling 1175/1175"
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert list(rows[0]) == ["index", "label", "confidence", "disagreement"]
    labelled = json.loads((run / "split.json").read_text())["labelled"]
    assert sorted(int(row["index"]) for row in rows) == sorted(set(range(1195)) - set(labelled))
    assert len(rows) == count == 1175
    scores = [1 - float(row["confidence"]) + float(row["disagreement"]) for row in rows]
    assert all(a >= b - 2e-4 for a, b in itertools.pairwise(scores))  # four digits are written
    assert scores[0] > 1
    chances = maxmatch.load(run).predict_proba(maxmatch.load_images("digits").x)
    for row in rows[::50]:
        chance = chances[int(row["index"])]
        assert row["label"] == str(chance.argmax())
        assert float(row["confidence"]) == pytest.approx(chance.max(), abs=1e-4)
        assert float(row["disagreement"]) in (0, 0.25, 0.5, 0.75, 1)


def test_disagreement_is_that_of_the_run_s_own_views(run):
    """Oracle: the views of a chunk made at once, from the plan by hand, and the classifier's own labels of them."""
    finished = open_run(run)
    found = pseudo_labels(finished, 3)
    chunk, plan, views = 1, Plan(finished.recipe.train.seed), finished.views
    images = finished.images.x[CHUNK : 2 * CHUNK]
    drawn = [
        torch.from_numpy(plan.uniforms(f"evaluate/unlabelled/{view}", chunk, (CHUNK, views.strong_uniforms)))
        for view in range(3)
    ]
    classifier = finished.classifier
    itself = classifier.predict(images)
    others = np.stack([classifier.predict(view) for view in views.strong_views(images, torch.stack(drawn)).images])
    expected = (others != itself).mean(0)
    here = (found.position >= CHUNK) & (found.position < 2 * CHUNK)
    assert 400 < int(here.sum()) < CHUNK
    np.testing.assert_allclose(found.disagreement[here].numpy(), expected[found.position[here].numpy() - CHUNK])
    assert 0 < expected.mean() < 1


def test_views_that_turn_every_answer_around_disagree_wholly(run, monkeypatch):
    """A classifier that calls bright images 1, and views that invert."""
    finished = open_run(run)
    bright = torch.where(torch.arange(1195)[:, None, None, None] % 2 == 0, 200, 20).to(torch.uint8)
    turned = Views(Weak(flip=False, shift=0.0), randaugment("imagenet", ops=["invert"], n=1))
    made = finished._replace(images=replace(finished.images, x=bright.expand(-1, 1, 8, 8).contiguous()), views=turned)

    def logits(self, x):
        light = x.float().mean((1, 2, 3)) > 127
        return torch.stack([~light, light], 1).double()

    monkeypatch.setattr(unlabelled.Finished, "logits", logits)
    found = pseudo_labels(made, 2)
    assert found.label.tolist() == [1 - int(p) % 2 for p in found.position]
    assert set(found.disagreement.tolist()) == {1.0}
    assert found.confidence[0].item() == pytest.approx(np.e / (1 + np.e))


def test_the_order_by_hand():
    columns = ([0, 1, 2, 3, 4], [0] * 5, [0.9, 0.6, 0.9, 0.6, 0.5], [0.5, 0.2, 0.5, 0.0, 1.0])
    found = PseudoLabels(*map(torch.tensor, columns)).next_first()
    assert found.position.tolist() == [4, 0, 2, 1, 3]  # scores .6 .6 .6 .4 1.5; equals in the order of the pool


def test_images_with_names_are_told_by_them(run, tmp_path, monkeypatch):
    finished = open_run(run)

    files = Files(tmp_path, tuple(f"pictures/{number}.png" for number in range(1195)), 1, 8, fitted=True)
    named = finished._replace(images=replace(finished.images, files=files))
    monkeypatch.setattr(unlabelled, "open_run", lambda *_, **__: named)
    label_unlabelled(str(run), str(tmp_path / "a.jsonl"), k=1)
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert list(lines[0]) == ["path", "label", "confidence", "disagreement"]
    assert all(line["path"].startswith("pictures/") for line in lines)


def test_a_run_on_arrays_is_told_what_to_type_and_takes_them(tiny, tmp_path):
    digits = maxmatch.load_images("digits")
    data = maxmatch.from_arrays(digits.x[:200], digits.y[:200].numpy(), name="mine")
    maxmatch.fit(tiny("fixmatch", train={"steps": 1}), tmp_path / "a", data, quiet=True)
    with pytest.raises(UserError, match=r"label_unlabelled\(folder, out, data=...\)"):
        label_unlabelled(tmp_path / "a", None)
    assert label_unlabelled(tmp_path / "a", tmp_path / "a.csv", data=data) == 180


def test_where_all_are_labelled_that_is_said(tiny, tmp_path, capsys):
    maxmatch.fit(tiny("supervised", labels="all", train={"steps": 1}), tmp_path / "a", quiet=True)
    assert run_command(["predict", "--unlabeled", str(tmp_path / "a"), "--out", str(tmp_path / "next.csv")]) == 0
    said = capsys.readouterr().err
    assert "has no picture without a label that can be read: there is none to label" in said
    assert "Label some" not in said
    assert (tmp_path / "next.csv").read_text().splitlines() == ["index,label,confidence,disagreement"]

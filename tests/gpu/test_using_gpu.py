"""On a GPU: evaluate, predict and predict --unlabeled say what they say on a CPU. Run with -m gpu."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import torch
from PIL import Image

from maxmatch.data.datasets import load_images
from maxmatch.evaluate.label import label_folder
from maxmatch.train.fit import fit
from maxmatch.train.judge import judge
from maxmatch.train.recipes import compose
from maxmatch.train.unlabelled import label_unlabelled

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")]

DEVICE = "cuda"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("using") / "run"
    train = {"steps": 60, "device": "cpu", "precision": "float32", "batch": 16}
    fit(compose("digits", given={"train": train}), folder, quiet=True)
    return folder


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_is_judged_alike_on_both(run):
    there, here = judge(run, device=DEVICE, quiet=True), judge(run, device="cpu", quiet=True)
    assert there["confusion"] == here["confusion"]
    for name in ("error", "robust_error", "robust_error_paper"):
        assert there[name] == pytest.approx(here[name], abs=0.2)  # one image of 602


def test_pictures_are_labelled_alike_on_both(run, tmp_path):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number, pixels in enumerate(load_images("digits").test_x[:40]):
        Image.fromarray(np.asarray(pixels[0])).save(pictures / f"{number:02d}.png")
    for device in (DEVICE, "cpu"):
        assert label_folder(run, pictures, tmp_path / f"{device}.csv", device) == 0
    there, here = rows(tmp_path / f"{DEVICE}.csv"), rows(tmp_path / "cpu.csv")
    assert len(here) == 40
    assert [(row["path"], row["label"]) for row in there] == [(row["path"], row["label"]) for row in here]
    assert [float(row["confidence"]) for row in there] == pytest.approx(
        [float(r["confidence"]) for r in here], abs=1e-3
    )


def test_what_to_label_next_is_alike_on_both(run, tmp_path):
    for device in (DEVICE, "cpu"):
        label_unlabelled(run, tmp_path / f"{device}.csv", device)
    there, here = ({next(iter(row.values())): row for row in rows(tmp_path / f"{d}.csv")} for d in (DEVICE, "cpu"))
    assert there.keys() == here.keys()
    alike = np.mean([there[path]["label"] == here[path]["label"] for path in here])
    assert alike > 0.995

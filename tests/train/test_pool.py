"""The error on the unlabelled pool: which images, against which labels, and that training never sees them."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

from maxmatch.data.datasets import from_arrays, load_images
from maxmatch.data.picture_file import read_image
from maxmatch.data.pictures import load_pictures
from maxmatch.data.split import Split
from maxmatch.train.finished import open_run
from maxmatch.train.fit import fit
from maxmatch.train.pool import Pool, choose_pool
from maxmatch.train.recipes import compose

QUICK = {"steps": 4, "batch": 4, "ratio": 2, "evaluate_every": 2, "checkpoint_every": 4, "log_every": 2}


def test_the_sample_is_fixed_by_the_seed_and_holds_hidden_labels_alone():
    y = np.where(np.arange(100) % 10 == 0, -1, np.arange(100) % 3)
    split = Split(np.arange(20), np.arange(100))
    hidden = {i for i in range(20, 100) if y[i] >= 0}
    found = choose_pool(y, split, 30, seed=3)
    assert len(set(found.tolist())) == 30
    assert set(found.tolist()) < hidden
    assert (found == choose_pool(y, split, 30, seed=3)).all()
    assert (found != choose_pool(y, split, 30, seed=4)).any()
    assert set(choose_pool(y, split, 1000, seed=3).tolist()) == hidden
    assert len(choose_pool(y, split, 0, seed=3)) == 0
    assert len(choose_pool(np.full(100, -1), split, 5, seed=3)) == 0


def test_its_errors_by_hand():
    x = np.arange(8, dtype=np.uint8)[:, None, None] * np.ones((1, 8, 8), np.uint8)
    data = from_arrays(x, list(range(8)))
    pool = Pool(data, np.arange(8), torch.device("cpu"))

    def logits(images):  # image n says class n, then n - 1, n - 2, ...; images 6 and 7 say 0, then 1, 2, ...
        n = images[:, 0, 0, 0].long()
        places = torch.arange(8)
        said = -((n[:, None] - places) % 8).float()
        return torch.where((n > 5)[:, None], -places.float(), said)

    found = pool.judge(logits)
    assert found == {"unlabelled_error": 25.0, "unlabelled_top5_error": 25.0, "unlabelled_images": 8}


def test_a_run_judges_it_with_the_net_it_saves_and_never_trains_on_it(tmp_path):
    given = {"data": {"labels": 20, "exclude_labelled": True}, "train": QUICK, "evaluate": {"unlabelled": 64}}
    recipe, images = compose("digits", given=given), load_images("digits")
    fit(recipe, tmp_path / "a", images, quiet=True)
    finished = open_run(tmp_path / "a", data=images)
    index = torch.from_numpy(choose_pool(images.y.numpy(), finished.split, 64, seed=1))
    said = finished.logits(images.x[index])
    lines = [json.loads(line) for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["kind"] == "evaluate"][-1]
    assert last["unlabelled_error"] == 100 * (said.argmax(1) != images.y[index]).double().mean().item()
    ranks = (said > said.gather(1, images.y[index][:, None])).sum(1)
    assert last["unlabelled_top5_error"] == 100 * (ranks >= 5).double().mean().item()
    result = json.loads((tmp_path / "a/result.json").read_text())
    assert (result["unlabelled_error"], result["unlabelled_images"]) == (last["unlabelled_error"], 64)
    # Other hidden labels, and no judging at all: the same weights.
    other = images.y.clone()
    other[finished.split.unlabelled] = (other[finished.split.unlabelled] + 1) % 10
    (tmp_path / "b").mkdir()
    changed = dataclasses.replace(images, y=other)
    split = tmp_path / "b" / "split.json"
    finished.split.save(split, changed.sha256())
    without = compose("digits", given={**given, "evaluate": {"unlabelled": 0}})
    from maxmatch.train.recipe import resolve

    plain = resolve(without, device="cpu", threads=torch.get_num_threads())
    (tmp_path / "b" / "recipe.json").write_text(plain.to_json())
    fit(without, tmp_path / "b", changed, quiet=True, resume=True)
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert json.loads((tmp_path / "b/result.json").read_text())["unlabelled_error"] is None


def test_pictures_of_the_pool_are_judged_as_test_pictures_are(tmp_path):
    """Their middle, read anew, and not the slot that views are made of."""
    rng = np.random.default_rng(0)
    for number in range(8):
        path = tmp_path / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (30 + number, 40, 3), np.uint8)).save(path)
    images = load_pictures(tmp_path, side=16, slot=24, channels=3, middle=0.5)
    index = np.array([1, 4, 6])
    expected = [read_image(tmp_path / images.files.names[number], (3, 16, 16), 0.5) for number in index]
    assert torch.equal(Pool(images, index, torch.device("cpu")).x, torch.stack(expected))

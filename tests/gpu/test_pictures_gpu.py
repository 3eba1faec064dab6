"""On a GPU: pictures kept on the device and pictures read step by step go through the same captured step. Run with -m gpu."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from maxmatch.augment import ResizedCrop
from maxmatch.train.fit import begin, fit
from maxmatch.train.recipe import resolve
from maxmatch.train.recipes import compose
from maxmatch.train.step import EXACT

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")]


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(40):
        place = "unlabeled" if number % 2 else f"labeled/{'ab'[number % 4 // 2]}"
        path = tmp_path / "photos" / place / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        height, width = rng.integers(40, 80, 2)
        Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).save(path)
    return tmp_path / "photos"


def recipe(photos, **data):
    train = {"steps": 12, "batch": 8, "ratio": 2, "device": "cuda", "precision": "float64", "deterministic": True}
    train |= {"evaluate_every": 6, "checkpoint_every": 6, "log_every": 6}
    given = {
        "data": {"path": str(photos), "side": 32, "canvas": 48, **data},
        "net": {"name": "wrn-10-1"},
        "train": train,
    }
    return compose("folder", given=given)


def test_kept_and_streamed_captured_runs_end_with_the_same_weights(photos, tmp_path):
    results = {}
    for name, data in {
        "kept": {},
        "one thread": {"resident": False, "workers": 0, "decoders": "threads"},
        "processes": {"resident": False, "workers": 8},
    }.items():
        results[name] = fit(recipe(photos, **data), tmp_path / name, quiet=True)
        assert results[name]["mode"] == "captured"
    weights = {name: load_file(tmp_path / name / "model.safetensors") for name in results}
    for name in ("one thread", "processes"):
        assert all(torch.equal(weights[name][key], weights["kept"][key]) for key in weights["kept"])


@pytest.mark.parametrize("decoders", ["threads", "processes"])
def test_pictures_come_from_locked_pages(photos, tmp_path, decoders):
    chosen = resolve(recipe(photos, resident=False, workers=2, decoders=decoders), device="cuda", threads=1)
    feed = begin(chosen, tmp_path / "a", quiet=True).step.batches.feed
    assert feed.decoders.kind == decoders
    feed.decoders.begin()
    trays = [tray for trays in feed._trays for tray in trays.values()]
    assert all(tray.slots.is_pinned() and tray.sizes.is_pinned() for tray in trays)
    feed.load(0, 3)
    torch.cuda.synchronize()
    assert all(torch.equal(feed.slots[name].cpu(), tray.slots) for name, tray in feed._trays[0].items())
    assert all(slots.float().std() > 0 for slots in feed.slots.values())
    feed.close()
    if decoders == "processes":
        assert not any(tray.slots.is_pinned() for tray in trays)


def test_compiled_crops_equal_eager_ones_to_the_bit():
    torch.manual_seed(0)
    crop = ResizedCrop(32)
    slots = torch.randint(0, 256, (64, 3, 48, 48), dtype=torch.uint8, device="cuda")
    sizes = torch.randint(20, 49, (64, 2), dtype=torch.int32, device="cuda")
    u = torch.rand(64, 5, device="cuda")

    def made(u):
        return crop.apply(slots, crop.sample(u, sizes))

    assert torch.equal(torch.compile(made, dynamic=False, options=EXACT)(u), made(u))
    assert torch.equal(made(u).cpu(), crop.apply(slots.cpu(), crop.sample(u.cpu(), sizes.cpu())))


@pytest.mark.parametrize("method", ["maxmatch", "remixmatch"])
def test_micro_batches_run_compiled_and_say_so(photos, tmp_path, method, capsys):
    chosen = recipe(photos).to_dict()
    chosen["train"] |= {"micro_batch": 8, "steps": 4}
    result = fit(compose("folder", method, given={**chosen, "method": {"name": method}}), tmp_path / "a")
    assert result["mode"] == "compiled"
    assert "train.micro_batch = 8 can't be captured" in capsys.readouterr().err

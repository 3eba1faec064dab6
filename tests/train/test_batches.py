"""Which kernels make a step's views: RandAugment's own where it runs, torch's elsewhere, and that a run says so."""

from __future__ import annotations

import pytest
import torch

from maxmatch.augment import RandAugment, ResizedCrop, Weak
from maxmatch.augment.fused import FusedRandAugment
from maxmatch.train import batches, loop
from maxmatch.train.batches import make_views
from maxmatch.train.fit import begin
from maxmatch.train.recipe import AugmentSettings, resolve


@pytest.fixture
def gpu_in_words(monkeypatch):
    """Steps run as they would on a GPU with the kernel, but eager; the kernel's work is done by tensors."""
    monkeypatch.setattr(batches, "can_fuse", lambda policy, shape, device: type(policy) is RandAugment)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(loop, "choose_mode", lambda *given: ("compiled", None))
    monkeypatch.setattr(FusedRandAugment, "apply", RandAugment.apply)


def begun(tiny, tmp_path, **train):
    return begin(resolve(tiny(train=train), device="cpu", threads=1), tmp_path / "a", quiet=True)


def test_the_kernel_makes_the_strong_views_where_it_runs(tiny, tmp_path, gpu_in_words):
    training = begun(tiny, tmp_path)
    assert type(training.step.batches.views.strong) is FusedRandAugment
    assert type(training.views.strong) is RandAugment  # what is measured at the end is measured as anywhere
    assert training.notes == []


def test_a_kernel_that_does_not_run_is_told_and_torch_s_do(tiny, tmp_path, gpu_in_words, monkeypatch):
    def broken(self, images, draw, path="auto"):
        raise RuntimeError("no NVRTC\nfor this GPU")

    monkeypatch.setattr(FusedRandAugment, "apply", broken)
    training = begun(tiny, tmp_path)
    assert type(training.step.batches.views.strong) is RandAugment
    assert training.notes == ["RandAugment's kernel doesn't run here, torch's do: RuntimeError: no NVRTC for this GPU"]


@pytest.mark.parametrize(("method", "strong"), [("mean-teacher", False), ("vat", False), ("supervised", True)])
def test_it_is_tried_only_where_a_view_is_strong(tiny, tmp_path, gpu_in_words, method, strong):
    training = begin(resolve(tiny(method), device="cpu", threads=1), tmp_path / "a", quiet=True)
    assert (type(training.step.batches.views.strong) is FusedRandAugment) == strong


def test_torch_s_kernels_can_be_asked_for(tiny, tmp_path, gpu_in_words):
    training = begun(tiny, tmp_path, kernels="torch")
    assert type(training.step.batches.views.strong) is RandAugment


def test_eager_steps_are_torch_s_own(tiny, tmp_path, gpu_in_words, monkeypatch):
    monkeypatch.setattr(loop, "choose_mode", lambda *given: ("eager", None))
    training = begun(tiny, tmp_path)
    assert type(training.step.batches.views.strong) is RandAugment


def test_the_settings_reach_the_weak_view():
    part = {"flip": False, "scale": (0.2, 0.5), "middle": 0.75}
    assert make_views(AugmentSettings(crop=True, **part)).weak == ResizedCrop(None, (0.2, 0.5), flip=False, middle=0.75)
    assert make_views(AugmentSettings(**part), side=64).weak == ResizedCrop(64, (0.2, 0.5), flip=False, middle=0.75)
    assert make_views(AugmentSettings(flip=False, shift=0.25)).weak == Weak(flip=False, shift=0.25)
    assert make_views(AugmentSettings(shared_crop=True)).shared_crop


def test_weak_variants_are_told_as_the_identity(tiny, tmp_path):
    step = begin(resolve(tiny("pi-model"), device="cpu", threads=1), tmp_path / "a", quiet=True).step
    step(0)
    assert list(step.health.read()["op_wins"]) == ["identity"]

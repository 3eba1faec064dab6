"""One step against an optimiser and an average written out by hand, and how a step is chosen to run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from maxmatch.methods.base import Losses
from maxmatch.methods.fixmatch import FixMatch
from maxmatch.methods.maxmatch import MaxMatch
from maxmatch.nets.batchnorm import BatchNorm
from maxmatch.train import step as module
from maxmatch.train.fit import begin
from maxmatch.train.recipe import learning_rate, resolve
from maxmatch.train.step import choose_mode


@pytest.mark.parametrize("nesterov", [True, False])
def test_sgd_with_decay_on_weights_alone_and_the_average_by_hand(tiny, tmp_path, nesterov):
    settings = {"nesterov": nesterov, "weight_decay": 0.1, "momentum": 0.8, "ema_decay": 0.7, "precision": "float64"}
    recipe = resolve(tiny(train=settings, method={"threshold": 0.2}), device="cpu", threads=1)
    step = begin(recipe, tmp_path / "a", quiet=True).step
    names = dict(step.net.named_parameters())
    weights = {n: p.detach().clone() for n, p in names.items()}
    average = {n: w.clone() for n, w in weights.items()}
    momentum = {n: torch.zeros_like(w) for n, w in weights.items()}
    decayed = {
        n for n in weights if n.endswith("weight") and ("conv" in n or "stem" in n or "shortcut" in n or "head" in n)
    }
    assert 0 < len(decayed) < len(weights)
    for t in range(3):
        for parameter in names.values():
            parameter.grad = torch.full_like(parameter, math.nan)  # what is left of an earlier step is let go
        step(t)
        lr = step.lr.item()
        assert lr == pytest.approx(learning_rate(recipe.train, t))
        for name, parameter in names.items():
            gradient = parameter.grad + (0.1 * weights[name] if name in decayed else 0)
            momentum[name] = 0.8 * momentum[name] + gradient
            weights[name] = weights[name] - lr * (gradient + 0.8 * momentum[name] if nesterov else momentum[name])
            average[name] = 0.7 * average[name] + 0.3 * weights[name]
            torch.testing.assert_close(parameter.detach(), weights[name], rtol=1e-6, atol=1e-9)
    for name, parameter in step.average.net.named_parameters():
        torch.testing.assert_close(parameter, average[name], rtol=1e-6, atol=1e-9)
    for ours, followed in zip(step.average.net.buffers(), step.net.buffers(), strict=True):
        assert torch.equal(ours, followed)


def test_labelled_images_are_augmented_weakly_and_their_labels_follow(tiny, tmp_path):
    training = begin(resolve(tiny(), device="cpu", threads=1), tmp_path / "a", quiet=True)
    rows = training.step.rows
    rows.load(0)
    batch, op = training.step.batches(rows.row, 3)
    picked = rows.row["labelled"]
    images, labels = training.step.batches.x[picked], training.step.batches.y[picked]
    assert torch.equal(batch.y, labels)
    placement = training.views.weak.sample(rows.row["labelled/weak"][0], (8, 8))
    assert torch.equal(batch.x, training.views.weak.apply(images, placement))
    assert not torch.equal(batch.x, images)
    assert batch.strong.shape == (3, 16, 1, 8, 8)
    assert op.shape == (3, 16, 2)
    assert not torch.equal(batch.strong[0], batch.strong[1])


def test_the_k_views_may_share_their_weak_crop(tiny, tmp_path):
    """With no operation and no cutout a strong view is its crop: shared, all K and the weak view are one."""
    for shared in (True, False):
        augment = {"ops": ["identity"], "cutout": 0, "shared_crop": shared}
        recipe = resolve(tiny(augment=augment), device="cpu", threads=1)
        training = begin(recipe, tmp_path / str(shared), quiet=True)
        training.step.rows.load(0)
        batch, _ = training.step.batches(training.step.rows.row, 3)
        same = all(torch.equal(view, batch.weak[0]) for view in batch.strong)
        assert same == shared


@dataclass(frozen=True)
class Stubborn(FixMatch):
    capturable: ClassVar[bool] = False


def test_how_a_step_runs_where_there_is_no_gpu():
    cpu = torch.device("cpu")
    assert choose_mode("auto", MaxMatch(), cpu) == ("eager", None)
    assert choose_mode("compiled", MaxMatch(), cpu) == ("compiled", None)
    mode, note = choose_mode("captured", MaxMatch(), cpu)
    assert mode == "eager"
    assert "no CUDA graph on cpu" in note


def test_how_a_step_runs_on_a_gpu(monkeypatch):
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert choose_mode("auto", MaxMatch(), gpu) == ("captured", None)
    assert choose_mode("eager", MaxMatch(), gpu) == ("eager", None)
    mode, note = choose_mode("auto", Stubborn(), gpu)
    assert mode == "compiled"
    assert "Stubborn can't be captured" in note
    assert choose_mode("auto", MaxMatch(), gpu, micro_batch=64) == (
        "compiled",
        "train.micro_batch = 64 can't be captured; running compiled",
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))  # the first that Triton knows
    assert choose_mode("auto", MaxMatch(), gpu) == ("captured", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (6, 1))
    mode, note = choose_mode("auto", MaxMatch(), gpu)
    assert mode == "eager"
    assert "too old" in note


@pytest.mark.parametrize("elsewhere", [3.0, math.nan])
def test_the_terms_are_those_of_all_ranks_so_that_all_skip_what_is_not_finite_on_one(tiny, tmp_path, elsewhere):
    step = begin(resolve(tiny("supervised"), device="cpu", threads=1), tmp_path / "a", quiet=True).step
    step.ranks = SimpleNamespace(count=2, mean=lambda mine: (mine + elsewhere) / 2)
    agreed = step._agreed(Losses({"supervised": torch.tensor(1.0, requires_grad=True)}))
    assert agreed.terms["supervised"].item() == pytest.approx(2.0 if elsewhere == 3 else math.nan, nan_ok=True)
    assert step.health.guard(agreed, torch.tensor(5)).item() == (elsewhere != 3)


def test_a_run_that_cannot_be_captured_here_says_so(tiny, tmp_path, capsys):
    from maxmatch.train.fit import fit

    fit(tiny(train={"step": "captured", "steps": 2}), tmp_path / "a", quiet=True)
    assert "running eager" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("method", ["supervised", "remixmatch"])
def test_strong_views_of_labelled_images_may_share_their_weak_crop(tiny, tmp_path, method):
    for shared in (True, False):
        augment = {"policy": "fixmatch", "ops": ["identity"], "cutout": 0, "shared_crop": shared}
        recipe = resolve(tiny(method, augment=augment), device="cpu", threads=1)
        step = begin(recipe, tmp_path / str(shared), quiet=True).step
        step.rows.load(0)
        batch, _ = step.batches(step.rows.row, step.draws.k(0))
        assert torch.equal(batch.x_strong, batch.x) == shared


def test_dropout_and_the_momentum_of_batchnorm_reach_the_net(tiny, tmp_path):
    recipe = resolve(tiny(net={"dropout": 0.3, "batchnorm_momentum": 0.07}), device="cpu", threads=1)
    net = begin(recipe, tmp_path / "a", quiet=True).step.net
    assert {module.momentum for module in net.modules() if isinstance(module, BatchNorm)} == {0.07}
    assert {module.dropout for module in net.modules() if hasattr(module, "dropout")} == {0.3}


@pytest.mark.parametrize("method", ["freematch", "remixmatch"])
def test_what_a_method_holds_has_the_precision_of_the_run(tiny, tmp_path, method):
    recipe = resolve(tiny(method, train={"precision": "float64"}), device="cpu", threads=1)
    step = begin(recipe, tmp_path / "a", quiet=True).step
    assert {tensor.dtype for tensor in step.state.state_dict().values()} == {torch.float64}


@pytest.mark.parametrize(("method", "taught"), [("mean-teacher", True), ("fixmatch", False)])
def test_the_passes_know_whether_the_average_is_asked(tiny, tmp_path, monkeypatch, method, taught):
    given = []
    runner = module.Runner
    monkeypatch.setattr(module, "Runner", lambda *parts, **options: given.append(options) or runner(*parts, **options))
    begin(resolve(tiny(method), device="cpu", threads=1), tmp_path / "a", quiet=True)
    assert [options["taught"] for options in given] == [taught]

"""On a GPU: captured, compiled and eager steps give the same losses, also after a resume. Run with -m gpu."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gpu.waiting import no_waiting
from safetensors.torch import load_file

from maxmatch.augment import PRESETS
from maxmatch.augment.fused import FusedRandAugment, can_fuse, fuse
from maxmatch.train.checkpoint import checkpoints
from maxmatch.train.fit import begin, fit
from maxmatch.train.recipe import resolve
from maxmatch.train.recipes import compose
from maxmatch.train.resume import resumed_recipe
from maxmatch.train.step import EXACT

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")]

# Recipes whose steps agree in every mode; tests/test_project.py makes them where there is no GPU.
AGREE = [
    {},
    {"k": "1,2,3"},
    {"k": "3..1"},
    {"over": "mean"},
    {"strategy": "joint"},
    {"optimizer": "muon"},
    {"optimizer": "adamw", "lr": 0.001},
]


def recipe(
    mode: str,
    method: str = "maxmatch",
    steps: int = 50,
    precision: str = "float64",
    optimizer: str = "sgd",
    lr: float = 0.02,
    **options,
):
    train = {
        "steps": steps, "step": mode, "device": "cuda", "batch": 16, "ratio": 4, "precision": precision,
        "checkpoint_every": 25, "log_every": 5, "evaluate_every": 25, "lr": lr,
        "optimizer": optimizer,
    }  # fmt: skip
    options = {"threshold": 0.3, **options} if method in ("maxmatch", "uda") else options
    given = {"train": train, "net": {"name": "wrn-10-1"}, "method": options}
    return compose("digits", method, given=given)


def with_policy(chosen, policy: str):
    return replace(chosen, augment=replace(chosen.augment, policy=policy))


def losses(folder: Path) -> dict[str, list[float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["kind"] == "train"]
    return {name: [line[name] for line in trained] for name in ("supervised_loss", "unlabeled_loss", "mask_rate")}


@pytest.fixture(autouse=True)
def no_tf32(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)


@pytest.mark.parametrize("options", AGREE, ids=str)
def test_captured_compiled_and_eager_steps_agree_over_50_steps(tmp_path, options):
    found = {}
    for mode in ("eager", "compiled", "captured"):
        fit(recipe(mode, **options), tmp_path / mode, quiet=True)
        found[mode] = losses(tmp_path / mode)
    for mode in ("compiled", "captured"):
        # In float64, so that rounding has no time to move an argmax: in float32 correct steps drift apart.
        for name in ("supervised_loss", "unlabeled_loss", "mask_rate"):
            assert found[mode][name] == pytest.approx(found["eager"][name], rel=1e-6), (mode, name)


@pytest.mark.parametrize("policy", ["gentle", "cta-fixed"])
def test_compiled_views_equal_eager_ones_to_the_bit(tmp_path, policy):
    """And eager ones equal PIL's: tests/augment."""
    chosen = resolve(with_policy(recipe("eager"), policy), device="cuda", threads=1)
    step = begin(chosen, tmp_path / "a", quiet=True).step
    compiled = torch.compile(step.batches, dynamic=False, options=EXACT)
    for t in range(40):
        step.rows.load(t)
        (ours, op), (theirs, their_op) = compiled(step.rows.row, 3), step.batches(step.rows.row, 3)
        assert torch.equal(op, their_op)
        assert all(torch.equal(getattr(ours, name), getattr(theirs, name)) for name in ("x", "weak", "strong"))


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 96, 96), (3, 17, 40)], ids=str)
def test_the_kernel_s_views_equal_torch_s_to_the_bit(preset, shape):
    policy = replace(PRESETS[preset], n=4, p=1.0)
    assert can_fuse(policy, shape, torch.device("cuda"))
    noise = torch.rand(1000, *shape, device="cuda")
    images = (256 * noise * torch.rand(1000, shape[0], 1, 1, device="cuda")).to(torch.uint8)
    draw = policy.sample(torch.rand(1000, policy.uniforms, device="cuda"), shape[1:])
    expected = policy.apply(images, draw)
    for _ in range(3):
        assert torch.equal(fuse(policy).apply(images, draw), expected)


def test_a_step_takes_the_kernel_s_views(tmp_path):
    chosen = resolve(recipe("compiled"), device="cuda", threads=1)
    training = begin(chosen, tmp_path / "a", quiet=True)
    assert type(training.step.batches.views.strong) is FusedRandAugment
    assert training.notes == []
    plain = begin(replace(chosen, train=replace(chosen.train, kernels="torch")), tmp_path / "b", quiet=True)
    for t in range(5):
        (ours, op), (theirs, their_op) = (
            (one.step.rows.load(t), one.step._make_batch(one.step.rows.row, 3))[1] for one in (training, plain)
        )
        assert torch.equal(op, their_op)
        assert torch.equal(ours.strong, theirs.strong)


@pytest.mark.parametrize(("precision", "close"), [("float64", 1e-6), ("bf16", 0.05)])
def test_a_captured_run_goes_on_after_a_stop(tmp_path, precision, close):
    fit(recipe("captured", steps=50, precision=precision), tmp_path / "whole", quiet=True)
    short = recipe("captured", steps=50, precision=precision)
    training = begin(resolve(short, device="cuda", threads=1), tmp_path / "cut", quiet=True)
    for t in range(25):
        training.step(t)
        training.progress.step = t + 1
        if (t + 1) % 5 == 0:
            training.step.health.read()
    training._save()
    (tmp_path / "cut" / "metrics.jsonl").write_text("")
    fit(resumed_recipe(tmp_path / "cut", {}), tmp_path / "cut", resume=True, quiet=True)
    whole, cut = losses(tmp_path / "whole"), losses(tmp_path / "cut")
    for name in ("supervised_loss", "unlabeled_loss"):
        assert cut[name] == pytest.approx(whole[name][5:], rel=close)


def test_replaying_changes_the_weights_and_reads_the_learning_rate(tmp_path):
    training = begin(resolve(recipe("captured"), device="cuda", threads=1), tmp_path / "a", quiet=True)
    before = training.step.net.head.weight.detach().clone()
    training.step(0)
    moved = (training.step.net.head.weight - before).abs().max().item()
    assert moved > 0
    # The warm-up's own steps were undone: one step moves as far as one eager step.
    eager = begin(resolve(recipe("eager"), device="cuda", threads=1), tmp_path / "b", quiet=True)
    eager.step(0)
    assert moved == pytest.approx((eager.step.net.head.weight - before).abs().max().item(), rel=1e-2)
    assert training.step.health.sums["steps"].item() == 1


def test_a_policy_learns_the_same_in_every_mode(tmp_path):
    rates = {}
    for mode in ("eager", "compiled", "captured"):
        fit(with_policy(recipe(mode, steps=25), "cta"), tmp_path / mode, quiet=True)
        rates[mode] = load_file(checkpoints(tmp_path / mode / "checkpoint")[-1])["policy.rates"]
    assert int(((rates["eager"] > 0) & (rates["eager"] < 1)).sum()) > 100
    for mode in ("compiled", "captured"):
        torch.testing.assert_close(rates[mode], rates["eager"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("policy", ["gentle", "cta"])
def test_the_step_waits_for_nothing(tmp_path, policy):
    """Between two logs no call may synchronise with the device."""
    chosen = resolve(with_policy(recipe("captured"), policy), device="cuda", threads=1)
    training = begin(chosen, tmp_path / "a", quiet=True)
    for t in range(3):
        training.step(t)
    with no_waiting():
        for t in range(3, 49):  # over the edge of a block of draws
            training.step(t)


@pytest.mark.parametrize(
    "method", ["uda", "mean-teacher", "remixmatch", "freematch", "flexmatch", "temporal-ensembling", "vat", "ict"]
)
def test_other_methods_are_captured_and_wait_for_nothing(tmp_path, method):
    found = {}
    for mode in ("eager", "captured"):
        chosen = resolve(recipe(mode, method), device="cuda", threads=1)
        training = begin(chosen, tmp_path / mode, quiet=True)
        assert not training.notes
        for t in range(3):
            training.step(t)
        with no_waiting(mode == "captured"):
            for t in range(3, 20):
                training.step(t)
        found[mode] = training.step.health.read()
    for name in ("supervised_loss", "unlabeled_loss"):
        assert found["captured"][name] == pytest.approx(found["eager"][name], rel=1e-6), name
    assert found["captured"]["unlabeled_loss"] > 0


def test_deterministic_runs_repeat_to_the_bit(tmp_path):
    for name in ("a", "b"):
        chosen = recipe("captured", steps=20)
        fit(replace(chosen, train=replace(chosen.train, deterministic=True)), tmp_path / name, quiet=True)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("a", "b"))
    apart = {name: (a[name] - b[name]).abs().max().item() for name in a if not torch.equal(a[name], b[name])}
    assert not apart


@pytest.mark.parametrize("precision", ["bf16", "float32"])
def test_other_precisions_train_on_the_gpu(tmp_path, precision):
    chosen = recipe("captured", steps=20)
    result = fit(
        compose("digits", given={**chosen.to_dict(), "train": {**chosen.to_dict()["train"], "precision": precision}}),
        tmp_path / "a",
        quiet=True,
    )
    assert result["steps"] == 20
    assert 0 < result["supervised_loss"] < 3

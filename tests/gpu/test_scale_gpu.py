"""On a GPU: captured and eager steps agree for an EMAN teacher and for a MoCo pretraining. Run with -m gpu."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gpu.waiting import no_waiting
from safetensors.torch import load_file

from maxmatch.train.checkpoint import checkpoints
from maxmatch.train.fit import begin, fit
from maxmatch.train.recipe import resolve
from maxmatch.train.recipes import compose

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")]

DEVICE, MODES = "cuda", ("eager", "captured")
METHODS = {
    "maxmatch": {"teacher": "eman", "threshold": 0.3},
    "moco": {"queue": 200, "dimension": 16},  # not a multiple of the batch: its end is crossed within a step
}
LOGGED = {"maxmatch": ("supervised_loss", "unlabeled_loss", "mask_rate"), "moco": ("contrastive_loss",)}


def recipe(mode: str, method: str, steps: int):
    train = {
        "steps": steps, "step": mode, "device": DEVICE, "batch": 16, "ratio": 4 if method == "maxmatch" else 1,
        "precision": "float64", "checkpoint_every": 25, "log_every": 5, "evaluate_every": 25, "lr": 0.02,
        "ema_decay": 0.9,
    }  # fmt: skip
    given = {"train": train, "net": {"name": "wrn-10-1"}, "method": METHODS[method]}
    return compose("digits", method, given=given)


def logged(folder: Path, names: tuple[str, ...]) -> dict[str, list[float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["kind"] == "train"]
    return {name: [line[name] for line in trained] for name in names}


@pytest.mark.parametrize(("method", "steps"), [("maxmatch", 50), ("moco", 30)])
def test_captured_and_eager_steps_agree(tmp_path, method, steps):
    """Losses over the run; at its end the weights, the average with its statistics, and MoCo's queue."""
    lines, ends = {}, {}
    for mode in MODES:
        result = fit(recipe(mode, method, steps), tmp_path / mode, quiet=True)
        assert result["steps"] == steps
        lines[mode] = logged(tmp_path / mode, LOGGED[method])
        ends[mode] = load_file(checkpoints(tmp_path / mode / "checkpoint")[-1])
    eager, other = (ends[mode] for mode in MODES)
    for name in LOGGED[method]:
        assert len(lines["eager"][name]) == steps // 5
        assert lines[MODES[1]][name] == pytest.approx(lines["eager"][name], rel=1e-6), name
    kept = [name for name in eager if name.startswith(("net.", "average.", "state."))]
    assert any("average." in name and "running_mean" in name for name in kept)
    if method == "moco":
        assert {"state.keys", "state.next"} <= set(kept)
        assert int(eager["state.next"]) == steps * 16 % 200
    for name in kept:
        torch.testing.assert_close(other[name], eager[name], rtol=1e-6, atol=1e-7, msg=name)


def test_captured_and_eager_steps_agree_on_two_learning_rates_over_milestones(tmp_path):
    """The captured step must read both rates anew in every replay."""
    own = {"head_lr": 0.3, "schedule": "milestones", "milestones": (0.4, 0.8)}
    for mode in MODES:
        chosen = recipe(mode, "maxmatch", 20)
        fit(replace(chosen, train=replace(chosen.train, **own)), tmp_path / mode, quiet=True)
    eager, other = (load_file(checkpoints(tmp_path / mode / "checkpoint")[-1]) for mode in MODES)
    for name in eager:
        if name.startswith(("net.", "average.")):
            torch.testing.assert_close(other[name], eager[name], rtol=1e-6, atol=1e-7, msg=name)


@pytest.mark.parametrize("method", ["maxmatch", "moco"])
def test_the_step_waits_for_nothing(tmp_path, method):
    """Between two logs no call may synchronise with the device."""
    training = begin(resolve(recipe("captured", method, 50), device="cuda", threads=1), tmp_path, quiet=True)
    assert not training.notes
    for t in range(3):
        training.step(t)
    with no_waiting():
        for t in range(3, 49):  # over the edge of a block of draws
            training.step(t)

"""The loop: what a run folder holds, exact resume, kills, signals, and k = 1 as FixMatch."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import maxmatch
import maxmatch.train.loop as loop_module
import maxmatch.train.result as result_module
from maxmatch.data.datasets import from_arrays, load_images
from maxmatch.data.split import Split
from maxmatch.errors import Interrupted, UsageError, UserError
from maxmatch.evaluate.robust import robust_errors
from maxmatch.methods.fixmatch import FixMatch
from maxmatch.nets.model_file import load_model, save_model
from maxmatch.train.checkpoint import checkpoints
from maxmatch.train.claim import PARTS
from maxmatch.train.finished import open_run
from maxmatch.train.fit import begin, finished_result, fit, torch_settings
from maxmatch.train.judge import judge
from maxmatch.train.log import Metrics, Screen, read_metrics
from maxmatch.train.loop import Training
from maxmatch.train.recipe import resolve
from maxmatch.train.recipes import compose
from maxmatch.train.result import warnings_of
from maxmatch.train.resume import resumed_recipe
from maxmatch.train.step import Step

RESULT_KEYS = [
    "dataset",
    "labels",
    "method",
    "method_code",
    "k",
    "over",
    "strategy",
    "net",
    "seed",
    "fold",
    "steps",
    "seconds",
    "seconds_compiling",
    "mode",
    "kernels",
    "ranks",
    "seconds_total",
    "steps_per_second",
    "device",
    "parameters",
    "error",
    "top5_error",
    "supervised_loss",
    "unlabeled_loss",
    "unlabeled_loss_min",
    "mask_rate",
    "pseudo_label_accuracy",
    "robust_error",
    "robust_error_paper",
    "versions",
    "threads",
    "recipe_sha256",
]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(first: Path, second: Path) -> bool:
    a, b = weights(first), weights(second)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def without_time(folder: Path) -> list[dict]:
    return read_metrics(folder / "metrics.jsonl")


def test_a_run_folder_is_complete_and_plain(tiny, tmp_path):
    recipe = tiny()
    result = fit(recipe, tmp_path / "a", quiet=True)
    held = {p.name for p in (tmp_path / "a").iterdir()}
    assert held == {*PARTS} - {"tensorboard", "wandb", "report.html"}
    assert json.loads((tmp_path / "a" / "result.json").read_text()) == result
    assert [key for key in RESULT_KEYS if key not in result] == []
    assert result["error"].keys() == {"last", "median20", "best"}
    assert (result["method"], result["k"], result["over"], result["strategy"]) == (
        "maxmatch",
        3,
        "worst",
        "select",
    )
    assert (result["labels"], result["steps"], result["seed"], result["fold"]) == (20, 12, 1, 1)
    assert [p.name for p in checkpoints(tmp_path / "a" / "checkpoint")] == [
        "000000008.safetensors",
        "000000012.safetensors",
    ]
    saved = maxmatch.Recipe.from_dict(json.loads((tmp_path / "a" / "recipe.json").read_text()))
    assert saved.sha256() == result["recipe_sha256"]
    initial = load_file(tmp_path / "a" / "initial.safetensors")
    assert initial.keys() == weights(tmp_path / "a").keys()
    assert not torch.equal(initial["head.weight"], weights(tmp_path / "a")["head.weight"])


def test_the_metrics_tell_the_health_of_the_run(tiny, tmp_path):
    fit(tiny(method={"threshold": 0.15}), tmp_path / "a", quiet=True)
    lines = read_metrics(tmp_path / "a" / "metrics.jsonl")
    trained = [line for line in lines if line["kind"] == "train"]
    assert [line["step"] for line in trained] == [3, 6, 9, 12]
    assert [line["step"] for line in lines if line["kind"] == "evaluate"] == [6, 12]
    for line in trained:
        assert 0 < line["mask_rate"] <= 1
        assert 0 <= line["pseudo_label_accuracy"] <= 1
        assert sum(line["view_wins"]) == pytest.approx(1)
        assert len(line["view_wins"]) == 3
        assert all(0 <= share <= 1 for share in line["op_wins"].values())
        assert "rotate" in line["op_wins"]


def test_the_best_case_is_below_the_worst_and_both_are_in_the_log(tiny, tmp_path):
    fit(tiny(method={"threshold": 0.15, "strategy": "joint"}), tmp_path / "a", quiet=True)
    trained = [line for line in read_metrics(tmp_path / "a" / "metrics.jsonl") if line["kind"] == "train"]
    assert all(0 < line["unlabeled_loss_min"] < line["unlabeled_loss"] for line in trained)


def test_the_same_seed_gives_the_same_run_and_another_another(tiny, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        fit(tiny(train={"seed": seed}), tmp_path / name, quiet=True)
    assert same(tmp_path / "a", tmp_path / "b")
    assert without_time(tmp_path / "a") == without_time(tmp_path / "b")
    assert not same(tmp_path / "a", tmp_path / "c")


def test_maxmatch_with_one_view_is_fixmatch_bit_for_bit_over_50_steps(tiny, tmp_path):
    for name in ("fixmatch", "maxmatch"):
        recipe = tiny(name, method={"k": 1, "threshold": 0.3}, train={"steps": 50, "evaluate_every": 50})
        fit(recipe, tmp_path / name, quiet=True)
    assert same(tmp_path / "fixmatch", tmp_path / "maxmatch")
    assert without_time(tmp_path / "fixmatch") == without_time(tmp_path / "maxmatch")


def test_two_views_are_not_fixmatch(tiny, tmp_path):
    for k in (1, 2):
        fit(tiny(method={"k": k, "threshold": 0.15}), tmp_path / str(k), quiet=True)
    assert not same(tmp_path / "1", tmp_path / "2")


class Killed(BaseException):
    """As sudden as SIGKILL: nothing in the loop may catch it."""


def cut_off(monkeypatch, recipe, folder: Path, step: int) -> None:
    """Begin a run and kill it at a step."""
    whole = Step.__call__

    def stopping(self, t):
        if t == step:
            raise Killed
        whole(self, t)

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", stopping)
        with pytest.raises(Killed):
            fit(recipe, folder, quiet=True)


# VAT draws on the device, ReMixMatch has a head and running means of its own.
@pytest.mark.parametrize("method", ["supervised", "fixmatch", "maxmatch", "vat", "remixmatch"])
@pytest.mark.parametrize("step", [1, 4, 7, 11])
def test_stopped_anywhere_and_resumed_is_as_if_never_stopped(tiny, tmp_path, monkeypatch, capsys, method, step):
    muon = {"optimizer": "muon", "lr": 0.05} if method == "maxmatch" and step == 7 else {}
    recipe = tiny(method, net={"dropout": 0.1, "name": "wrn-10-1"}, train=muon)
    fit(recipe, tmp_path / "whole", quiet=True)
    cut_off(monkeypatch, recipe, tmp_path / "cut", step=step)
    assert not (tmp_path / "cut" / "result.json").exists()
    torch.manual_seed(123)  # the resumed process has another state of its own
    capsys.readouterr()
    fit(resumed_recipe(tmp_path / "cut", {}), tmp_path / "cut", resume=True)
    saved = step - step % recipe.train.checkpoint_every
    said = capsys.readouterr().err
    assert (f"going on after step {saved} of {recipe.train.steps}" in said) == (saved > 0)
    assert ("no checkpoint yet: it begins at step 0" in said) == (saved == 0)
    assert "top-5" not in said  # of ten classes it says little
    assert same(tmp_path / "whole", tmp_path / "cut")
    assert without_time(tmp_path / "whole") == without_time(tmp_path / "cut")
    one, other = (json.loads((tmp_path / n / "result.json").read_text()) for n in ("whole", "cut"))
    for key in ("error", "robust_error", "supervised_loss", "unlabeled_loss", "mask_rate", "recipe_sha256"):
        assert one[key] == other[key], key


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "maxmatch", *map(str, arguments)]


LONG = ["train", "digits@20", "--set", "net.name=wrn-10-1", "--set", "train.batch=8", "--set", "train.ratio=2",
        "--set", "train.threads=1", "--set", "train.checkpoint_every=10", "--steps", "200"]  # fmt: skip


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(maxmatch.__file__).parents[1])}


def wait_for(path: Path, process: subprocess.Popen) -> None:
    for _ in range(1200):
        if path.exists() or process.poll() is not None:
            return
        time.sleep(0.05)


def start(out: Path) -> subprocess.Popen:
    return subprocess.Popen(
        command(*LONG, "--out", out),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def test_no_signal_loses_anything(tmp_path):
    """Real processes, stopped at a random step by each signal and resumed, against one left alone."""
    whole = tmp_path / "whole"
    subprocess.run(command(*LONG, "--out", whole), check=True, capture_output=True, env=ENVIRONMENT)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        out = tmp_path / number.name
        process = start(out)
        wait_for(out / "checkpoint" / f"{random.randrange(10, 100, 10):09d}.safetensors", process)
        time.sleep(random.random() * 0.05)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode == {9: -9, 15: 143, 2: 130, 1: 129}[number], said
        if number != signal.SIGKILL:
            assert "nothing is lost: type maxmatch train --resume --out" in said
            assert said.count("Traceback") == 0
        assert not (out / "result.json").exists()
        subprocess.run(command("train", "--resume", "--out", out), check=True, capture_output=True, env=ENVIRONMENT)
        assert same(whole, out), number


def test_a_run_that_may_not_hear_of_a_closed_terminal_goes_on(tiny, tmp_path, monkeypatch):
    """As `nohup` has it."""
    whole = Step.__call__

    def with_signal(self, t):
        os.kill(os.getpid(), signal.SIGHUP)
        whole(self, t)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        monkeypatch.setattr(Step, "__call__", with_signal)
        assert fit(tiny(), tmp_path / "a", quiet=True)["steps"] == tiny().train.steps
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_long_run_saves_by_the_clock_too(tiny, tmp_path, monkeypatch):
    assert loop_module.SAVED_AFTER == 300  # the five minutes of docs/settings.md
    saved = []
    monkeypatch.setattr(loop_module, "save_checkpoint", lambda folder, tensors, progress: saved.append(progress.step))
    rarely = tiny(train={"steps": 7, "checkpoint_every": 100})
    fit(rarely, tmp_path / "a", quiet=True)
    assert saved == [7]
    saved.clear()
    ticks = iter(range(0, 10**6, loop_module.SAVED_AFTER // 2 + 1))  # two looks at the clock are more than it
    monkeypatch.setattr(loop_module.time, "monotonic", lambda: next(ticks))
    fit(rarely, tmp_path / "b", quiet=True)
    assert len(saved) > 2
    assert saved[-1] == 7


def test_ctrl_c_saves_and_raises(tiny, tmp_path, monkeypatch):
    whole = Step.__call__

    def with_signal(self, t):
        if t == 5:
            os.kill(os.getpid(), signal.SIGINT)
        whole(self, t)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(Step, "__call__", with_signal)
    with pytest.raises(Interrupted) as caught:
        fit(tiny(), tmp_path / "a", quiet=True)
    assert caught.value.code == 130
    assert checkpoints(tmp_path / "a" / "checkpoint")[-1].stem == "000000006"
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("where", "done"), [
    ("_evaluate", "stopped after step 12 of 12, nothing is lost"),
    ("_finish", "stopped: all 12 steps are done and saved, the result is not measured yet"),
])  # fmt: skip
def test_ctrl_c_after_the_last_step_is_heeded_and_the_run_goes_on_from_there(tiny, tmp_path, monkeypatch, where, done):
    whole = getattr(Training, where)

    def with_signal(self, *rest):
        if self.progress.step == 12:
            os.kill(os.getpid(), signal.SIGINT)
        return whole(self, *rest)

    monkeypatch.setattr(Training, where, with_signal)
    with pytest.raises(Interrupted, match=f"{done}.* type maxmatch train --resume --out") as caught:
        fit(tiny(), tmp_path / "a", quiet=True)
    assert caught.value.code == 130
    assert not (tmp_path / "a" / "result.json").exists()
    monkeypatch.setattr(Training, where, whole)
    assert fit(tiny(), tmp_path / "a", resume=True, quiet=True)["steps"] == 12


def test_a_second_ctrl_c_says_what_is_kept(tiny, tmp_path, monkeypatch, capfd):
    whole, sent = Step.__call__, []

    def with_signals(self, t):
        if t == at:
            for _ in range(2):
                sent.append(t)
                os.kill(os.getpid(), signal.SIGINT)
        whole(self, t)

    monkeypatch.setattr(Step, "__call__", with_signals)
    for at, kept in ((2, "no step is kept"), (5, "kept is what there was after step 4")):
        out = tmp_path / str(at)
        with pytest.raises(Interrupted, match=f"stopped at once, {kept}: to go on, type maxmatch train --resume --out"):
            fit(tiny(), out)
        assert (
            capfd.readouterr().err.count("stopping after this step, to save where it is; once more stops at once") == 1
        )
        assert [path.stem for path in checkpoints(out / "checkpoint")] == ["000000004"][: at // 5]
    assert sent == [2, 2, 5, 5]
    monkeypatch.setattr(Step, "__call__", whole)
    fit(tiny(), tmp_path / "5", resume=True, quiet=True)
    fit(tiny(), tmp_path / "whole", quiet=True)
    assert same(tmp_path / "whole", tmp_path / "5")


def test_ctrl_c_saves_where_nobody_reads_what_is_said(tiny, tmp_path, monkeypatch):
    """As in `maxmatch train ... 2>&1 | tee log`, where tee is stopped too."""
    whole, write = Step.__call__, os.write

    def with_signal(self, t):
        if t == 5:
            os.kill(os.getpid(), signal.SIGINT)
        whole(self, t)

    def gone(place, what):
        if place == 2:
            raise BrokenPipeError
        return write(place, what)

    monkeypatch.setattr(Step, "__call__", with_signal)
    monkeypatch.setattr(os, "write", gone)
    with pytest.raises(Interrupted, match="nothing is lost"):
        fit(tiny(), tmp_path / "a")
    assert checkpoints(tmp_path / "a" / "checkpoint")[-1].stem == "000000006"


def test_a_damaged_checkpoint_falls_back_and_says_so(tiny, tmp_path, monkeypatch, capsys):
    recipe = tiny()
    fit(recipe, tmp_path / "whole", quiet=True)
    cut_off(monkeypatch, recipe, tmp_path / "cut", step=10)
    newest = checkpoints(tmp_path / "cut" / "checkpoint")[-1]
    content = bytearray(newest.read_bytes())
    content[-20] ^= 1
    newest.write_bytes(bytes(content))
    fit(resumed_recipe(tmp_path / "cut", {}), tmp_path / "cut", resume=True, quiet=True)
    assert "falling back" in capsys.readouterr().err
    assert same(tmp_path / "whole", tmp_path / "cut")


def test_a_changed_step_number_in_a_checkpoint_is_damage(tiny, tmp_path, monkeypatch, capsys):
    recipe = tiny()
    fit(recipe, tmp_path / "whole", quiet=True)
    cut_off(monkeypatch, recipe, tmp_path / "cut", step=10)
    newest = checkpoints(tmp_path / "cut" / "checkpoint")[-1]
    content = newest.read_bytes()
    assert content.count(b'\\"step\\": 8') == 1
    newest.write_bytes(content.replace(b'\\"step\\": 8', b'\\"step\\": 2'))
    fit(recipe, tmp_path / "cut", resume=True, quiet=True)
    assert "falling back" in capsys.readouterr().err
    assert same(tmp_path / "whole", tmp_path / "cut")


def test_resuming_from_python_checks_the_recipe_too(tiny, tmp_path):
    fit(tiny(), tmp_path / "a", quiet=True)
    before = (tmp_path / "a" / "recipe.json").read_text()
    for wrong in (tiny(train={"seed": 5}), tiny(labels=40), tiny(method={"k": 2})):
        with pytest.raises(UsageError, match="was begun with"):
            fit(wrong, tmp_path / "a", resume=True, quiet=True)
    assert (tmp_path / "a" / "recipe.json").read_text() == before
    with pytest.raises(UsageError, match="there is no folder .*none; .* type the same words without --resume"):
        fit(tiny(), tmp_path / "none", resume=True, quiet=True)
    with pytest.raises(UsageError, match="holds no run"):
        fit(tiny(), tmp_path, resume=True, quiet=True)


def test_two_processes_never_train_in_one_folder(tiny, tmp_path):
    from maxmatch.files import alone_in

    fit(tiny(), tmp_path / "a", quiet=True)
    longer = tiny(train={"steps": 20})
    with alone_in(tmp_path / "a"):
        with pytest.raises(UsageError, match="another process is training"):
            fit(longer, tmp_path / "a", resume=True, quiet=True)
        with pytest.raises(UsageError, match="another process is training"):
            fit(tiny(), tmp_path / "a", force=True, quiet=True)
    assert (tmp_path / "a" / "result.json").exists()
    assert fit(longer, tmp_path / "a", resume=True, quiet=True)["steps"] == 20


@pytest.mark.parametrize("how", [{"resume": True}, {"force": True}, {}])
def test_who_is_refused_beside_another_process_has_written_nothing(tiny, tmp_path, how):
    from maxmatch.files import alone_in

    folder = tmp_path / "a"
    if how:
        fit(tiny(), folder, quiet=True)
    else:
        folder.mkdir()  # both begin at once, and the other was first
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    other = tiny(train={"steps": 20}) if "resume" in how else tiny(train={"seed": 2})
    with alone_in(folder), pytest.raises(UsageError, match="another process is training"):
        fit(other, folder, quiet=True, **how)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_weights_that_are_not_finite_are_never_saved(tiny, tmp_path):
    wild = tiny(
        "fixmatch", method={"weight": 1e30, "threshold": 0.0}, train={"lr": 1e20, "steps": 1, "checkpoint_every": 1}
    )
    with pytest.raises(UserError, match=r"weights are not finite after step 1; .*none yet.*--force"):
        fit(wild, tmp_path / "a", quiet=True)
    assert checkpoints(tmp_path / "a" / "checkpoint") == []
    assert not (tmp_path / "a" / "model.safetensors").exists()
    # nor where nothing is evaluated before they would be
    later = replace(wild, train=replace(wild.train, steps=3, evaluate_every=100))
    with pytest.raises(UserError, match="weights are not finite after step 1; .*none yet"):
        fit(later, tmp_path / "b", quiet=True)
    assert checkpoints(tmp_path / "b" / "checkpoint") == []


def test_a_torn_checkpoint_falls_back_too(tiny, tmp_path, monkeypatch, capsys):
    cut_off(monkeypatch, tiny(), tmp_path / "a", step=10)
    for path in checkpoints(tmp_path / "a" / "checkpoint"):
        path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match="no sound checkpoint is left"):
        fit(resumed_recipe(tmp_path / "a", {}), tmp_path / "a", resume=True, quiet=True)
    assert capsys.readouterr().err.count("falling back") == 2


def test_a_run_is_never_overwritten_unasked(tiny, tmp_path):
    fit(tiny(), tmp_path / "a", quiet=True)
    before = weights(tmp_path / "a")
    with pytest.raises(UsageError, match="--resume to go on with it, --force to replace it"):
        fit(tiny(train={"seed": 2}), tmp_path / "a", quiet=True)
    assert all(torch.equal(before[n], t) for n, t in weights(tmp_path / "a").items())
    (tmp_path / "a" / "mine.txt").write_text("a note of the user's own")
    fit(tiny(train={"seed": 2}), tmp_path / "a", force=True, quiet=True)
    assert not torch.equal(before["head.weight"], weights(tmp_path / "a")["head.weight"])
    assert (tmp_path / "a" / "mine.txt").exists()


def test_a_finished_run_says_so_and_can_be_made_longer(tiny, tmp_path):
    first = fit(tiny(), tmp_path / "a", quiet=True)
    stamp = (tmp_path / "a" / "result.json").stat().st_mtime_ns
    assert fit(resumed_recipe(tmp_path / "a", {}), tmp_path / "a", resume=True, quiet=True) == first
    assert (tmp_path / "a" / "result.json").stat().st_mtime_ns == stamp
    longer = resumed_recipe(tmp_path / "a", {"train": {"steps": 16}})
    assert fit(longer, tmp_path / "a", resume=True, quiet=True)["steps"] == 16


def test_what_is_typed_again_must_agree(tiny, tmp_path):
    fit(tiny(), tmp_path / "a", quiet=True)
    assert resumed_recipe(tmp_path / "a", {"method": {"k": "3"}, "data": {"labels": "20"}}).method.k == 3
    assert resumed_recipe(tmp_path / "a", {"train": {"log_every": 1}}).train.log_every == 1
    for section, name, value in (
        ("method", "k", 5),
        ("train", "seed", 2),
        ("train", "steps", 6),
        ("data", "labels", 40),
    ):
        with pytest.raises(UsageError, match=f"{section}.{name}"):
            resumed_recipe(tmp_path / "a", {section: {name: value}})
    with pytest.raises(UsageError, match="did you mean 'train.seed'"):
        resumed_recipe(tmp_path / "a", {"train": {"sead": 2}})
    with pytest.raises(UsageError, match="method.name = fixmatch"):
        resumed_recipe(tmp_path / "a", {"method": {"name": "fixmatch"}})


def test_a_loss_that_is_not_finite_stops_the_run_with_a_sound_checkpoint(tiny, tmp_path, monkeypatch):
    whole = Step.__call__

    def poisoned(self, t):
        if t == 9:
            with torch.no_grad():
                self.net.head.weight.fill_(float("nan"))
        whole(self, t)

    monkeypatch.setattr(Step, "__call__", poisoned)
    with pytest.raises(
        UserError, match=r"supervised loss is not finite at step 10; .*000000008\.safetensors; .*train\.lr="
    ):
        fit(tiny(), tmp_path / "a", quiet=True)
    newest = load_file(checkpoints(tmp_path / "a" / "checkpoint")[-1])
    assert all(t.isfinite().all() for t in newest.values())


def test_a_loss_that_was_never_finite_is_no_matter_of_the_learning_rate(tiny, tmp_path):
    wild = tiny("fixmatch", method={"weight": 1e308, "threshold": 0.0})
    with pytest.raises(UserError, match=r"unlabeled loss is not finite at step 1, .* how fixmatch makes it") as told:
        fit(wild, tmp_path / "a", quiet=True)
    assert "lr" not in str(told.value)


def test_a_bad_step_is_skipped_not_taken(tiny, tmp_path):
    """The update of a step whose loss is not finite must not reach the weights."""
    run = begin(resolve(tiny("fixmatch"), device="cpu", threads=1), tmp_path / "a", quiet=True)
    before = run.step.net.head.weight.detach().clone()
    run.step.method = replace(run.step.method, threshold=0.0, weight=1e308)
    run.step(0)
    assert run.step.health.failure() == ("unlabeled", 0)
    assert torch.equal(before, run.step.net.head.weight)


def test_arrays_of_ones_own_train_and_have_no_error_without_a_test_set(tiny, tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (60, 3, 12, 12), generator=generator, dtype=torch.uint8)
    y = torch.arange(60) % 3
    y[12:] = -1
    recipe = tiny(labels="all")
    result = fit(recipe, tmp_path / "a", data=from_arrays(x, y), quiet=True)
    assert result["error"] == {"last": None, "median20": None, "best": None}
    assert result["robust_error"] is None
    assert result["labels"] == 12
    assert result["dataset"] == "arrays"
    longer = replace(recipe, train=replace(recipe.train, steps=20))
    with pytest.raises(UserError, match="other images"):
        fit(longer, tmp_path / "a", data=from_arrays(x.flip(0), y), resume=True, quiet=True)
    with pytest.raises(UserError, match="data of your own"):
        judge(tmp_path / "a")
    tested = from_arrays(x, y, x[:9], torch.arange(9) % 3)
    assert sum(map(sum, judge(tmp_path / "a", data=tested)["confusion"])) == 9
    alone = judge(tmp_path / "a", data=from_arrays(x, y, x[:1], y[:1]))["confusion"]
    assert [len(row) for row in alone] == [3, 3, 3]  # classes that nothing is of, and is taken for, have theirs too


def test_a_checkpoint_of_another_device_goes_on_here(tiny, tmp_path, monkeypatch):
    """A generator belongs to a device; everything else is taken over."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    from maxmatch.train.checkpoint import digest

    cut_off(monkeypatch, tiny(), tmp_path / "a", step=10)
    for path in checkpoints(tmp_path / "a" / "checkpoint"):
        held = load_file(path)
        held["generator.cuda"] = held.pop("generator.cpu")[:16].clone()
        with safe_open(path, framework="pt") as file:
            metadata = {name: text for name, text in file.metadata().items() if name != "sha256"}
        save_file(held, path, {**metadata, "sha256": digest(held, metadata)})
    assert fit(resumed_recipe(tmp_path / "a", {}), tmp_path / "a", resume=True, quiet=True)["steps"] == 12


def test_the_ema_can_be_off(tiny, tmp_path):
    fit(tiny(train={"ema_decay": 0}), tmp_path / "a", quiet=True)
    newest = load_file(checkpoints(tmp_path / "a" / "checkpoint")[-1])
    assert torch.equal(weights(tmp_path / "a")["head.weight"], newest["net.head.weight"])


def test_init_starts_from_another_run_s_weights(tiny, tmp_path):
    fit(tiny(), tmp_path / "a", quiet=True)
    fit(tiny(train={"seed": 5, "init": str(tmp_path / "a")}), tmp_path / "b", quiet=True)
    initial = load_file(tmp_path / "b" / "initial.safetensors")
    assert all(torch.equal(initial[name], tensor) for name, tensor in weights(tmp_path / "a").items())
    with pytest.raises(UsageError, match="this run has wrn-16-1.*: type --set net.name=wrn-10-1, or another --init"):
        fit(tiny(net={"name": "wrn-16-1"}, train={"init": str(tmp_path / "a")}), tmp_path / "c", quiet=True)


def test_init_takes_what_an_unfinished_run_has_learned_so_far(tiny, tmp_path, monkeypatch, capsys):
    cut_off(monkeypatch, tiny(), tmp_path / "a", step=10)
    newest = checkpoints(tmp_path / "a" / "checkpoint")[-1]
    held = load_file(newest)
    fit(tiny(train={"seed": 5, "init": str(tmp_path / "a")}), tmp_path / "b", quiet=True)
    told = f"--init {tmp_path / 'a'}: that run has not finished; its weights after step {int(newest.stem)} are taken"
    assert told in " ".join(capsys.readouterr().err.split())
    initial = load_file(tmp_path / "b" / "initial.safetensors")
    assert all(torch.equal(tensor, held[f"average.{name}"]) for name, tensor in initial.items())
    assert not torch.equal(initial["head.weight"], held["net.head.weight"])
    for path in checkpoints(tmp_path / "a" / "checkpoint"):
        path.write_bytes(b"torn")
    with pytest.raises(UserError, match="checkpoint: no sound checkpoint .* is in it; give another --init"):
        fit(tiny(train={"init": str(tmp_path / "a")}), tmp_path / "c", quiet=True)
    for path in checkpoints(tmp_path / "a" / "checkpoint"):
        path.unlink()
    with pytest.raises(UsageError, match="model.safetensors is missing: the run has not finished; wait for it"):
        fit(tiny(train={"init": str(tmp_path / "a")}), tmp_path / "c", quiet=True)


def test_init_takes_the_weight_file_itself_too(tiny, tmp_path):
    fit(tiny(), tmp_path / "a", quiet=True)
    file = tmp_path / "a" / "model.safetensors"
    fit(tiny(train={"seed": 5, "init": str(file)}), tmp_path / "b", quiet=True)
    initial = load_file(tmp_path / "b" / "initial.safetensors")
    assert all(torch.equal(initial[name], tensor) for name, tensor in load_file(file).items())
    with pytest.raises(UsageError, match="a run can't replace the one it starts from"):
        fit(tiny(train={"init": str(file)}), tmp_path / "a", force=True, quiet=True)
    assert file.exists()


def test_an_init_run_stopped_before_its_first_checkpoint_still_starts_from_those_weights(tiny, tmp_path, monkeypatch):
    fit(tiny(), tmp_path / "a", quiet=True)
    recipe = tiny(train={"seed": 5, "init": str(tmp_path / "a")})
    fit(recipe, tmp_path / "whole", quiet=True)
    cut_off(monkeypatch, recipe, tmp_path / "cut", step=2)
    fit(recipe, tmp_path / "cut", resume=True, quiet=True)
    assert same(tmp_path / "whole", tmp_path / "cut")


def test_global_randomness_is_left_alone(tiny, tmp_path):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    fit(tiny(), tmp_path / "a", quiet=True)
    assert torch.equal(torch.rand(3), expected)


def test_a_class_without_labels_and_nothing_unlabelled_are_warned_of(tiny, tmp_path, capsys):
    x = torch.randint(0, 256, (20, 1, 8, 8), dtype=torch.uint8)
    data = from_arrays(x, torch.arange(20) % 2, classes=["cat", "dog", "bird"])
    fit(tiny(labels="all"), tmp_path / "a", data=data, quiet=True)
    said = " ".join(capsys.readouterr().err.split())
    assert "no image of bird has a label" in said
    assert "nothing is unlabelled" in said
    fit(tiny(labels=18, data={"labels": 18, "exclude_labelled": True}), tmp_path / "b", data=data, quiet=True)
    assert "nothing is unlabelled" not in capsys.readouterr().err


def test_the_caller_s_thread_count_is_left_alone(tiny, tmp_path):
    before = torch.get_num_threads()
    fit(tiny(train={"threads": 2}), tmp_path / "a", quiet=True)
    assert torch.get_num_threads() == before
    assert json.loads((tmp_path / "a" / "result.json").read_text())["threads"] == 2


def test_deterministic_is_switched_on_for_the_run_alone(tiny, tmp_path, monkeypatch):
    seen = []
    whole = Step.__call__

    def looking(self, t):
        seen.append((torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark))
        whole(self, t)

    monkeypatch.setattr(Step, "__call__", looking)
    before = (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark)
    for deterministic in (True, False):
        fit(tiny(train={"deterministic": deterministic, "steps": 2}), tmp_path / str(deterministic), quiet=True)
    assert seen == [(True, False)] * 2 + [(False, True)] * 2
    assert (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark) == before


def test_too_little_memory_is_one_line(tiny, tmp_path):
    with pytest.raises(UserError, match=r"out of memory with train.batch = .*--set train.micro_batch="):
        fit(tiny(train={"batch": 10**10}), tmp_path / "a", quiet=True)


def test_a_torn_line_of_the_metrics_is_left_out(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"step": 3, "kind": "train"}\n{"step": 4, "ki')
    assert read_metrics(tmp_path / "m.jsonl") == [{"step": 3, "kind": "train"}]


def test_warnings_name_what_is_probably_not_meant(tiny, tmp_path, capsys):
    fit(tiny(method={"k": 1}), tmp_path / "a", quiet=True)
    assert "MaxMatch with --k 1 is FixMatch" in " ".join(capsys.readouterr().err.split())
    fit(tiny("fixmatch", method={"over": "worst"}), tmp_path / "b", quiet=True)
    assert "that view: type --k 3" in " ".join(capsys.readouterr().err.split())
    fit(tiny("fixmatch", method={"over": "worst", "strategy": "select"}), tmp_path / "c", quiet=True)
    assert "worst of one view" not in capsys.readouterr().err


def test_another_k_compiles_when_it_is_first_met_and_that_is_said(tiny, tmp_path, monkeypatch):
    told, steps = [], []
    recipe = tiny(train={"steps": 8}, method={"k": "1..3", "threshold": 0.0})
    training = begin(resolve(recipe, device="cpu", threads=1), tmp_path / "a", quiet=True)
    monkeypatch.setattr(training.step, "mode", "compiled")
    monkeypatch.setattr(training.step, "_go", lambda k, go=training.step._go: (steps.append(k), go(k)))
    monkeypatch.setattr(training.screen, "tell", told.append)
    result = training.run(time.time())
    assert steps == [1, 1, 1, 1, 3, 3, 3, 3]
    assert told == [f"compiling the step with K = {k}: a minute or so" for k in (1, 3)]
    assert result["k"] == "1..3"


def test_a_schedule_of_k_has_no_more_steps_than_it_was_begun_with(tiny, tmp_path):
    fit(tiny(train={"steps": 4}, method={"k": "1..3"}), tmp_path / "a", quiet=True)
    with pytest.raises(UsageError, match=r"its K = 1\.\.3 follows the steps .* begin another run"):
        resumed_recipe(tmp_path / "a", {"train": {"steps": 8}})
    assert resumed_recipe(tmp_path / "a", {"train": {"steps": 4, "log_every": 2}}).train.log_every == 2


@pytest.mark.parametrize("precision", ["float64", "bf16"])
def test_other_precisions_run_and_are_saved_as_they_are(tiny, tmp_path, precision):
    result = fit(tiny(train={"precision": precision, "steps": 6}), tmp_path / "a", quiet=True)
    assert weights(tmp_path / "a")["head.weight"].dtype == (torch.float64 if precision == "float64" else torch.float32)
    assert maxmatch.load(tmp_path / "a").predict_proba(torch.zeros(1, 1, 8, 8, dtype=torch.uint8)).shape == (
        1,
        10,
    )
    assert result["supervised_loss"] > 0


def test_the_step_that_compiles_is_said_once_and_not_counted(tiny, tmp_path, monkeypatch):
    told, slow = [], iter([0.5])
    recipe = tiny(train={"steps": 4}, method={"threshold": 0.0})
    training = begin(resolve(recipe, device="cpu", threads=1), tmp_path / "a", quiet=True)
    step = training.step
    monkeypatch.setattr(step, "mode", "compiled")
    monkeypatch.setattr(step, "_go", lambda k, go=step._go: (time.sleep(next(slow, 0)), go(k)))
    monkeypatch.setattr(training.screen, "tell", told.append)
    result = training.run(time.time())
    assert told == ["compiling the step: a minute or so"]
    assert 0.5 <= result["seconds_compiling"] < result["seconds"]
    clock = training.progress  # result.json rounds both to a millisecond, a fiftieth of what is left here
    assert result["steps_per_second"] == pytest.approx(4 / (clock.seconds - clock.seconds_compiling), rel=1e-4)


def test_the_whole_time_is_counted_and_what_takes_long_is_said(tiny, tmp_path, monkeypatch, capsys):
    """seconds_total ends where result.json begins; the robust error is in it."""
    measure = result_module.robust_errors

    begun, ended = time.time(), []

    def slowly(*given):
        found = measure(*given)
        ended.append(time.time())
        return found

    monkeypatch.setattr(result_module, "robust_errors", slowly)
    monkeypatch.setattr(loop_module, "MANY", 1)
    monkeypatch.setattr("maxmatch.progress.SILENCE", -1.0)
    result = fit(tiny(train={"steps": 2}), tmp_path / "a", started=begun)
    assert result["seconds_total"] >= round(ended[0] - begun, 3)
    images = result["test_images"]
    assert images > 0
    told = capsys.readouterr().err
    assert f"measuring the robust error: 3 strong views of {images} test images" in told
    assert f"robust error {images}/{images}" in told


def test_without_a_terminal_a_run_tells_once_a_minute_how_far_it_is(monkeypatch, capsys):
    now = iter([0.0, 10.0, 61.0, 61.0, 100.0, 122.0, 122.0])
    monkeypatch.setattr("maxmatch.train.log.time.monotonic", lambda: next(now))
    screen = Screen("digits@20 maxmatch", 9)
    for step in (1, 2, 3, 4):
        screen.advance(step)
    assert capsys.readouterr().err.splitlines() == [
        "digits@20 maxmatch 2/9, 61 s, about 6 min left",  # 7 steps of 51 s
        "digits@20 maxmatch 4/9, 122 s, about 3 min left",  # 5 of 37
    ]


def test_the_time_left_is_told_by_this_process_s_own_steps(monkeypatch, capsys):
    """As after --resume: 500 steps were another's, and the first here compiles."""
    clock = [0.0]
    monkeypatch.setattr("maxmatch.train.log.time.monotonic", lambda: clock[0])
    screen = Screen("a", 1000)
    for step, clock[0], error in ((501, 100.0, 9), (521, 140.0, 8), (1000, 160.0, 7)):
        screen.advance(step)
        screen.note(step, f"error {error:.2f} %")
    first, then, last = (line for line in capsys.readouterr().err.splitlines() if "%" in line)
    assert first == "a 501/1000 error 9.00 %, 100 s"  # nothing is known yet
    assert then == "a 521/1000 error 8.00 %, 140 s, about 16 min left"  # 479 steps of 2 s
    assert last == "a 1000/1000 error 7.00 %, 160 s"


def test_many_compiled_runs_have_room_and_find_what_others_compiled(tiny):
    import torch._dynamo

    usual, kept = torch._dynamo.config.recompile_limit, torch._functorch.config
    with torch_settings(resolve(tiny(train={"step": "compiled"}), device="cpu", threads=1)):
        assert torch._dynamo.config.recompile_limit > 100
        assert kept.autograd_cache_allow_custom_autograd_functions
    assert torch._dynamo.config.recompile_limit == usual
    assert not kept.autograd_cache_allow_custom_autograd_functions


def test_while_a_step_compiles_torch_s_advice_on_precision_is_not_shown_and_other_warnings_are(tiny):
    advice = "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled."  # as 2.11 has it
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with torch_settings(resolve(tiny(train={"step": "compiled"}), device="cpu", threads=1)):
            warnings.warn(advice, UserWarning, stacklevel=1)
            warnings.warn("something else", UserWarning, stacklevel=1)
        warnings.warn(advice, UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in shown] == ["something else", advice]


@pytest.mark.parametrize(
    "text",
    ["[]", '{"steps": "x"}', '{"error": {}}', "{", '{"steps": 12, "error": null}', '{"steps": 12, "error": {}}',
     '{"steps": 12, "error": {"last": 3.0}, "seconds": "long"}'],
)  # fmt: skip
def test_a_damaged_result_is_as_good_as_none(tiny, tmp_path, text):
    recipe = tiny()
    (tmp_path / "result.json").write_text(text)
    assert finished_result(tmp_path, recipe.train.steps) is None
    (tmp_path / "result.json").write_text(json.dumps({"steps": recipe.train.steps, "error": {"last": None}}))
    assert finished_result(tmp_path, recipe.train.steps) is not None


def test_the_robust_errors_are_of_views_drawn_by_the_run_s_own_seed(tiny, tmp_path):
    result = fit(tiny(train={"steps": 6, "seed": 3}), tmp_path / "a", quiet=True)
    finished = open_run(tmp_path / "a")
    x, y = finished.images.test_x, finished.images.test_y
    by_seed = {
        seed: robust_errors(lambda view: finished.logits(view).argmax(-1), x, y, finished.views, 3, seed)
        for seed in (1, 3)
    }
    assert by_seed[1] != by_seed[3]
    for found in (result, judge(tmp_path / "a")):
        assert (found["robust_error"], found["robust_error_paper"]) == pytest.approx(by_seed[3])


def test_the_confusion_has_a_row_for_each_class_as_it_is(tiny, tmp_path):
    fit(tiny(train={"steps": 2}), tmp_path / "a", quiet=True)
    finished, found = open_run(tmp_path / "a"), judge(tmp_path / "a")
    truth = torch.bincount(finished.images.test_y, minlength=10).tolist()
    said = torch.bincount(finished.logits(finished.images.test_x).argmax(-1), minlength=10).tolist()
    assert truth != said
    assert [sum(row) for row in found["confusion"]] == truth
    assert [sum(column) for column in zip(*found["confusion"], strict=True)] == said


def test_a_run_is_judged_by_as_many_views_as_are_asked_for(tiny, tmp_path):
    fit(tiny(train={"steps": 2}), tmp_path / "a", quiet=True)
    few, many = judge(tmp_path / "a", k=1), judge(tmp_path / "a", k=np.int64(6))
    assert (few["robust"]["k"], many["robust"]["k"]) == (1, 6)
    assert few["robust_error_paper"] < many["robust_error_paper"]
    for wrong in (0, -1, 2.5):
        with pytest.raises(UsageError, match=f"k = {wrong}: how many strong views"):
            judge(tmp_path / "a", k=wrong)


def test_the_seconds_of_a_run_that_was_stopped_are_counted(tiny, tmp_path):
    recipe = resolve(tiny(train={"steps": 4}), device="cpu", threads=1)
    training = begin(recipe, tmp_path / "a", quiet=True)
    training.progress.seconds, training.progress.seconds_total = 100.0, 200.0
    result = training.run(time.time())
    assert 100 < result["seconds"] < 200 < result["seconds_total"]


def test_what_was_logged_at_the_step_of_the_checkpoint_stays(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with closing(Metrics(path, 0)) as metrics:
        for step in (2, 4, 6):
            metrics.write("train", step, {"supervised_loss": 1.0})
    Metrics(path, 4).close()
    assert [line["step"] for line in read_metrics(path)] == [2, 4]


def test_with_init_pixels_become_numbers_as_they_did_in_that_run(tiny, tmp_path):
    fit(tiny(train={"steps": 2}), tmp_path / "a", quiet=True)
    net, info = load_model(tmp_path / "a" / "model.safetensors")
    theirs = replace(info, preprocessing=replace(info.preprocessing, mean=0.2, std=0.3))
    save_model(tmp_path / "a" / "model.safetensors", net, theirs)
    fit(tiny(train={"steps": 2, "init": str(tmp_path / "a")}), tmp_path / "b", quiet=True)
    found = maxmatch.load(tmp_path / "b").preprocessing
    assert (found.mean, found.std) == (0.2, 0.3)


def arrays_of(seed=0, classes=2, shape=(8, 8), test=True):
    generator = np.random.default_rng(seed)
    x = generator.integers(0, 256, (40, *shape)).astype(np.uint8)
    y = np.arange(40) % classes
    return from_arrays(x, y, *((x[:10], generator.permutation(y[:10])) if test else ()))


def test_a_run_goes_on_with_its_own_test_set_alone(tmp_path):
    def recipe(steps):
        train = {"steps": steps, "batch": 4, "ratio": 1, "threads": 1, "checkpoint_every": 2}
        return compose("arrays", given={"data": {"labels": 10}, "net": {"name": "wrn-10-1"}, "train": train})

    images = arrays_of()
    fit(recipe(2), tmp_path / "a", images, quiet=True)
    other = replace(images, test_y=1 - images.test_y)
    with pytest.raises(UserError, match=r"a run with another test set.*: give the same one, or judge the finished run"):
        fit(recipe(4), tmp_path / "a", other, quiet=True, resume=True)
    assert judge(str(tmp_path / "a"), data=other)["error"] == 100 - judge(tmp_path / "a", data=images)["error"]
    fit(recipe(4), tmp_path / "a", replace(images, test_x=None, test_y=None), quiet=True, resume=True)
    fit(recipe(6), tmp_path / "a", images, quiet=True, resume=True)
    empty = replace(images, test_x=images.test_x[:0], test_y=images.test_y[:0])
    with pytest.raises(UserError, match="its data has no test set"):
        judge(tmp_path / "a", data=empty)


def test_one_class_and_shapes_that_a_method_can_t_learn_from_leave_no_folder(tiny, tmp_path):
    recipe = tiny("remixmatch", labels=10)
    with pytest.raises(UsageError, match="all labels are '0': at least two classes are needed"):
        fit(recipe, tmp_path / "a", arrays_of(classes=1), quiet=True)
    with pytest.raises(UsageError, match="they must be square, these have 8x10"):
        fit(recipe, tmp_path / "b", arrays_of(shape=(8, 10)), quiet=True)
    assert not list(tmp_path.iterdir())


def test_a_run_that_nothing_unlabelled_taught_says_so(tiny, tmp_path, capsys):
    fit(tiny("fixmatch", method={"threshold": 1.0}, train={"steps": 3}), tmp_path / "a")
    assert "warning: no unlabelled image taught anything in the last steps" in capsys.readouterr().err


@dataclass(frozen=True)
class Rooted(FixMatch):
    """Its loss is finite, its gradient at 0 is not."""

    def supervised(self, run, x, y):
        return super().supervised(run, x, y) + (0 * x).sum().sqrt()


def test_a_gradient_that_is_not_finite_is_told_as_the_method_s(tiny, tmp_path):
    with pytest.raises(
        UserError, match="look at the gradient of Rooted, a root or a logarithm at 0 has none, or begin"
    ):
        fit(replace(tiny("fixmatch"), method=Rooted()), tmp_path / "a", quiet=True)


def test_weights_that_are_not_finite_are_judged_by_nobody(tiny, tmp_path):
    """Their error would be a number like any other: the first class's."""
    recipe = replace(tiny("fixmatch", train={"steps": 1, "evaluate_every": 1}), method=Rooted())
    with pytest.raises(UserError, match="the weights are not finite after step 1"):
        fit(recipe, tmp_path / "a", quiet=True)
    assert "evaluate" not in (tmp_path / "a" / "metrics.jsonl").read_text()


def test_a_method_of_a_script_is_told_where_it_could_be_read_again(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Rooted, "__module__", "__main__")
    notes = begin(resolve(replace(tiny("fixmatch"), method=Rooted()), device="cpu", threads=1), tmp_path / "b").notes
    assert notes[-1].startswith("Rooted was written in a script or notebook: in a file of its own the command line")


def test_a_class_that_no_test_image_is_of_is_told():
    images = load_images("digits")
    split = Split(np.arange(20), np.arange(len(images.y)))
    recipe = compose("digits")
    assert not any("no test image" in line for line in warnings_of(recipe, images, split))
    kept = images.test_y != 3
    fewer = replace(images, test_x=images.test_x[kept], test_y=images.test_y[kept])
    assert "no test image is of 3: the error says nothing of it" in " ".join(warnings_of(recipe, fewer, split))
    without = replace(images, test_x=None, test_y=None)
    assert not any("no test image" in line for line in warnings_of(recipe, without, split))


def test_many_steps_on_a_cpu_are_told():
    """`train cifar10@250` has the paper's 2^20 of them: weeks, if nobody says so."""
    images, split = load_images("digits"), Split(np.arange(20), np.arange(1195))
    told = {
        (device, steps): " ".join(warnings_of(resolve(recipe, device=device, threads=1), images, split))
        for steps in (800, 2**20)
        for device in ("cpu", "cuda")
        for recipe in [compose("digits", given={"train": {"steps": steps}})]
    }
    line = "1,048,576 steps are for a GPU, and this is a CPU: begin with --steps 1000"
    assert [where for where, lines in told.items() if line in lines] == [("cpu", 2**20)]

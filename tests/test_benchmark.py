"""`maxmatch benchmark`: its figures against numpy, its runs against ordinary ones, and what a stop or a failure leaves."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from rich.table import Table
from safetensors.torch import load_file

import maxmatch
from maxmatch.benchmark import command as benchmark_command
from maxmatch.benchmark import runs as benchmark_runs
from maxmatch.benchmark.figures import table
from maxmatch.benchmark.report import Record
from maxmatch.benchmark.wanted import Planned, _refuse_twins, parse_folds, parse_methods, plan
from maxmatch.cli import run
from maxmatch.errors import UsageError
from maxmatch.train.step import Step

SMALL = ["--steps", "4", *(word for text in ("batch=8", "ratio=1", "threads=1", "checkpoint_every=2", "evaluate_every=2")
                           for word in ("--set", f"train.{text}"))]  # fmt: skip
COMMAND = ["benchmark", "digits@20", "--methods", "fixmatch,maxmatch:k=2", "--folds", "2", *SMALL]
CLOCK = ("seconds", "steps_per_second", "commit")
BROKEN = """
from dataclasses import dataclass
from maxmatch.methods.fixmatch import FixMatch

@dataclass(frozen=True)
class Broken(FixMatch):
    def losses(self, run, batch):
        raise ValueError("it never worked\\nat all")
"""


def call(capsys, *typed: object) -> tuple[int, str, str]:
    code = run([str(word) for word in typed])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def record(folder: Path) -> dict:
    return json.loads((folder / "benchmark.json").read_text())


def numbers(folder: Path) -> list[dict]:
    """The rows of a benchmark without what no two runs share."""
    return [{key: value for key, value in row.items() if key not in CLOCK} for row in record(folder)["runs"]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A benchmark that was never stopped."""
    out = tmp_path_factory.mktemp("benchmark") / "whole"
    assert run([*COMMAND, "--out", str(out)]) == 0
    return out


@pytest.fixture
def broken(tmp_path, monkeypatch) -> Path:
    """A module with a method that raises."""
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    yield path
    sys.modules.pop("broken", None)


@pytest.fixture
def steps(monkeypatch) -> list[int]:
    """The steps done in this process."""
    done, step = [], Step.__call__

    def counting(self, t):
        done.append(t)
        step(self, t)

    monkeypatch.setattr(Step, "__call__", counting)
    return done


def rows(label: str, values: dict[int, float | None]) -> list[dict]:
    names = ("last", "median20", "best", "robust_error", "steps_per_second")
    return [{"method": label, "fold": f, "state": "finished", **dict.fromkeys(names, v)} for f, v in values.items()]


def test_the_figures_are_numpy_s():
    draws = np.random.default_rng(0).normal(10, 3, (3, 5))
    found = table(
        [row for label, line in zip("abc", draws.tolist(), strict=True) for row in rows(label, dict(enumerate(line)))]
    )
    for line, values in zip(found["methods"], draws, strict=True):
        assert line["n"] == 5
        assert line["median20"]["mean"] == pytest.approx(np.mean(values))
        assert line["median20"]["std"] == pytest.approx(np.std(values))
    for line, values in zip(found["paired"], draws[1:], strict=True):
        differences = values - draws[0]
        assert (line["against"], line["n"], line["last"]["n"]) == ("a", 5, 5)
        assert line["last"]["mean"] == pytest.approx(np.mean(differences))
        assert line["last"]["standard_error"] == pytest.approx(np.std(differences, ddof=1) / np.sqrt(5))
        assert line["last"]["better"] == (differences < 0).sum()


def test_only_folds_that_both_have_finished_are_paired():
    first, other = rows("a", {1: 1.0, 2: 2.0, 3: 4.0, 4: None}), rows("b", {2: 5.0, 3: 3.0, 4: 9.0, 5: 70.0})
    first[0]["state"] = "failed"
    found = table([*first, *other])
    assert [line["n"] for line in found["methods"]] == [3, 4]
    assert found["methods"][0]["last"] == {"n": 2, "mean": 3.0, "std": 1.0}
    (paired,) = found["paired"]
    assert paired["n"] == 3
    assert paired["last"] == {"n": 2, "mean": 1.0, "standard_error": pytest.approx(2.0), "better": 1}


def test_an_equal_error_is_not_a_lower_one_and_0_is_an_error():
    (paired,) = table([*rows("a", {1: 5.0, 2: 2.0, 3: 1.0}), *rows("b", {1: 5.0, 2: 0.0, 3: 2.0})])["paired"]
    assert (paired["last"]["n"], paired["last"]["better"]) == (3, 1)
    assert paired["last"]["mean"] == pytest.approx(-1 / 3)


def test_specs_that_a_file_system_may_take_for_one_are_refused():
    """Not every file system tells `Mine` from `mine`: one run would be written over the other."""
    other = maxmatch.compose(given={"train": {"steps": 4}})
    with pytest.raises(UsageError, match="own:Mine and own:mine would share a folder"):
        _refuse_twins({"own:Mine": maxmatch.compose(), "own:mine": other})
    _refuse_twins({"own:Mine": maxmatch.compose(), "own:yours": other})


def test_specs_and_folds_are_read():
    found = parse_methods("fixmatch, Mean_Teacher:k=2,maxmatch:k=1,2,3:over=fraction:0.5,maxmatch:k=1:.5,2:.5")
    assert found == {
        "fixmatch": {"name": "fixmatch"},
        "mean-teacher:k=2": {"name": "mean-teacher", "k": 2},
        "maxmatch:k=1,2,3:over=fraction:0.5": {"name": "maxmatch", "k": "1,2,3", "over": "fraction:0.5"},
        "maxmatch:k=1:.5,2:.5": {"name": "maxmatch", "k": "1:.5,2:.5"},
    }
    own = "maxmatch.methods.uda:UDA:k=2"
    assert parse_methods(own) == {own: {"name": "maxmatch.methods.uda:UDA", "k": 2}}
    assert (parse_folds("2"), parse_folds("1,3,5"), parse_folds("4,")) == ([1, 2], [1, 3, 5], [4])


def test_seed_and_fold_of_each_run():
    _, runs = plan("fixmatch,uda", "1,3", {}, None, Path("x"))
    assert [(r.label, r.fold, r.recipe.train.seed) for r in runs] == [
        ("fixmatch", 1, 1), ("uda", 1, 1), ("fixmatch", 3, 3), ("uda", 3, 3),
    ]  # fmt: skip
    assert {r.recipe.train.fold for r in runs} == {1, 3}
    _, runs = plan("fixmatch", "2", {"train": {"seed": 7}, "method": {"threshold": 0.5}}, None, Path("x"))
    assert [(r.recipe.train.seed, r.recipe.train.fold) for r in runs] == [(7, 1), (7, 2)]
    assert runs[0].recipe.method.threshold == 0.5


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("fixmatch,fixmatch", "twice"),
        ("maxmatch,maxmatch:k=3", "the same method"),
        ("maxmatch:5", "type maxmatch:k=5"),
        ("maxmatch:k=2:k=3", "k is given twice"),
        ("fixmatch:treshold=0.5", "did you mean 'method.threshold'"),
        ("", "name comes first"),
        ("k=3,fixmatch", "name comes first"),
    ],
)
def test_wrong_specs_are_one_line(methods, message):
    with pytest.raises(UsageError, match=message):
        plan(methods, "2", {}, None, Path("x"))


def test_what_is_stored_is_what_the_runs_say(whole, capsys):
    found = record(whole)
    assert [(r["method"], r["fold"], r["seed"]) for r in found["runs"]] == [
        ("fixmatch", 1, 1), ("maxmatch:k=2", 1, 1), ("fixmatch", 2, 2), ("maxmatch:k=2", 2, 2),
    ]  # fmt: skip
    results = {
        (r["method"], r["fold"]): json.loads((whole / r["folder"] / "result.json").read_text()) for r in found["runs"]
    }
    assert results["maxmatch:k=2", 2]["k"] == 2
    for row in found["runs"]:
        result = results[row["method"], row["fold"]]
        assert row["state"] == "finished"
        assert {name: row[name] for name in ("last", "median20", "best")} == result["error"]
        for name in ("robust_error", "steps", "seconds", "recipe_sha256", "device", "threads"):
            assert row[name] == result[name]
    last = np.array([[results[label, fold]["error"]["last"] for fold in (1, 2)] for label in found["methods"]])
    for line, values in zip(found["table"]["methods"], last, strict=True):
        assert line["last"]["mean"] == pytest.approx(values.mean())
        assert line["last"]["std"] == pytest.approx(values.std())
    assert found["table"]["paired"][0]["last"]["mean"] == pytest.approx((last[1] - last[0]).mean())
    assert {"command", "commit", "versions", "hardware"} <= set(found)
    assert found["command"].startswith(
        "maxmatch benchmark digits@20 --methods fixmatch,maxmatch:k=2 --folds 2 --steps 4"
    )
    with open(whole / "benchmark.csv", newline="") as file:
        kept = list(csv.DictReader(file))
    assert [(r["method"], float(r["last"])) for r in kept] == [(r["method"], r["last"]) for r in found["runs"]]


def test_a_run_of_a_benchmark_is_what_train_makes(whole, tmp_path, capsys):
    typed = ["train", "digits@20", "--method", "maxmatch", "--k", "2", "--seed", "2", *SMALL, "--out", tmp_path / "a"]
    assert call(capsys, *typed)[0] == 0
    alone, ours = (
        json.loads((f / "result.json").read_text()) for f in (tmp_path / "a", whole / "maxmatch-k=2" / "fold-2")
    )
    assert (alone["error"], alone["robust_error"]) == (ours["error"], ours["robust_error"])


def test_a_finished_benchmark_shows_its_table_at_once(whole, capsys, steps):
    before = record(whole)["runs"]
    code, out, err = call(capsys, *COMMAND, "--out", whole)
    assert (code, steps, err) == (0, [], "4 of 4 runs are finished already\n")
    line = record(whole)["table"]["methods"][1]["last"]
    assert f"{line['mean']:.2f} +- {line['std']:.2f}" in out
    assert "minus fixmatch" in out
    assert record(whole)["runs"] == before
    code, out, err = call(capsys, *COMMAND, "--out", whole, "--only-table", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["runs"] == before
    assert call(capsys, "benchmark", "--only-table", "--out", whole, "--json")[:2] == (0, out)  # nothing else is typed
    code, out, err = call(capsys, "benchmark", "digits@20", "--only-table", "--out", whole)
    assert (code, out) == (2, "")
    assert f"for the table alone: maxmatch benchmark --only-table --out {whole}" in err
    assert "holds no record of a benchmark" in call(capsys, "benchmark", "--only-table", "--out", whole.parent)[2]


def test_only_the_table_trains_nothing_and_writes_nothing(whole, capsys, steps):
    times = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    typed = ["benchmark", "digits@20", "--methods", "fixmatch,uda", "--folds", "3", *SMALL, "--only-table"]
    code, out, _ = call(capsys, *typed, "--out", whole)
    assert (code, steps) == (0, [])
    assert "2 of 6 runs" in out
    cells = [line.split() for line in out.splitlines() if line.strip().startswith("uda")]
    assert cells == [["uda", "0", *"-----"], ["uda", "0", *"-----"]]
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == times


def test_other_settings_are_refused_before_anything_is_trained(whole, capsys, steps):
    code, out, err = call(capsys, *COMMAND, "--set", "train.lr=0.1", "--out", whole)
    assert (code, out, steps, err.count("\n")) == (2, "", [], 1)
    assert "train.lr = 0.1, but" in err
    longer = list(COMMAND)
    longer[longer.index("--steps") + 1] = "9"
    code, out, err = call(capsys, *longer, "--out", whole)
    assert (code, out, steps, err.count("\n")) == (2, "", [], 1)
    assert "train.steps = 9, but" in err
    code, _, err = call(capsys, *COMMAND, "--out", whole / "fixmatch" / "fold-1")
    assert code == 2
    assert "holds a run, not a benchmark" in err


def test_killed_in_the_second_run_it_goes_on_and_ends_the_same(whole, tmp_path, capsys, steps):
    """A process of its own gets SIGTERM in the second step of the second of four runs."""
    script = """
import os, signal, sys
from maxmatch.cli import run
from maxmatch.train.step import Step
step, done = Step.__call__, []
def stopping(self, t):
    done.append(t)
    if len(done) == 6:
        os.kill(os.getpid(), signal.SIGTERM)
    step(self, t)
Step.__call__ = stopping
sys.exit(run(sys.argv[1:]))
"""
    out = tmp_path / "stopped"
    environment = os.environ | {"PYTHONPATH": str(Path(maxmatch.__file__).parents[1])}
    typed = [sys.executable, "-c", script, *COMMAND, "--out", str(out)]
    done = subprocess.run(typed, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 143, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last == f"maxmatch: stopped with 1 of 4 runs ended, nothing is lost: to go on, type {record(out)['command']}"
    assert [row["state"] for row in record(out)["runs"]] == ["finished", *["unfinished"] * 3]
    code, _, err = call(capsys, *COMMAND, "--out", out)
    assert code == 0
    assert "maxmatch:k=2, fold 1: goes on (run 2 of 4)" in err
    assert len(steps) == 16 - 6  # none is done twice
    assert numbers(out) == numbers(whole)
    ours, theirs = (load_file(folder / "maxmatch-k=2" / "fold-1" / "model.safetensors") for folder in (out, whole))
    assert all(ours[name].equal(theirs[name]) for name in theirs)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_between_two_runs_is_one_line_too(tmp_path, capsys, monkeypatch, number):
    monkeypatch.setattr(benchmark_runs, "fit", lambda *_, **__: os.kill(os.getpid(), number))
    before = signal.getsignal(number)
    code, out, err = call(capsys, *COMMAND, "--out", tmp_path)
    assert (code, out) == (128 + number, "")
    assert "to go on, type maxmatch benchmark digits@20" in err.splitlines()[-1]
    assert signal.getsignal(number) is before


def test_two_jobs_give_the_same_and_a_failing_run_leaves_the_others(whole, broken, tmp_path, capfd):
    typed = ["benchmark", "digits@20", "--methods", "broken:Broken,fixmatch", "--folds", "1,", *SMALL, "--jobs", "2"]
    code, out, err = call(capfd, *typed, "--out", tmp_path / "b")
    assert code == 1
    failed, fine = numbers(tmp_path / "b")
    assert fine == numbers(whole)[0]
    assert (failed["state"], failed["last"]) == ("failed", None)
    assert "ValueError: it never worked" in failed["failed"]
    assert len([line for line in err.splitlines() if "it never worked" in line]) == 1
    assert err.splitlines()[-1].startswith("maxmatch: 1 of 2 runs failed")
    assert f"{fine['last']:.2f} +- -" in out  # one fold has no deviation


def test_runs_in_processes_of_their_own_are_told_of(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(benchmark_runs, "SILENCE", 0.05)
    typed = ["benchmark", "digits@20", "--methods", "fixmatch", "--folds", "2", *SMALL, "--jobs", "2"]
    code, _, err = call(capfd, *typed, "--out", tmp_path / "b")
    assert code == 0
    assert f"fixmatch, fold 1: 0 of {numbers(tmp_path / 'b')[0]['steps']} steps" in err.splitlines()


def test_folds_of_a_folder_whose_labels_are_all_shown_are_told_of(tmp_path, capsys, steps):
    for number in range(24):
        place = tmp_path / "photos" / ("labeled", "test")[number > 11] / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 10 * number, np.uint8)).save(place / f"{number}.png")
    typed = ["--methods", "fixmatch", *SMALL, "--steps", "1"]
    line = "all labels are shown: folds have the same labelled pictures"
    for data, folds, told in (("photos", "2", True), ("photos", "1,", False), ("photos@4", "2", False)):
        words = ["benchmark", tmp_path / data, *typed, "--folds", folds, "--out", tmp_path / f"{data}-{folds}"]
        assert (line in call(capsys, *words)[2]) is told


def test_a_folder_with_other_things_in_it_is_refused(tmp_path, capsys, steps):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "mine.png").touch()
    code, _, err = call(capsys, *COMMAND, "--out", tmp_path / "photos")
    assert code == 2
    assert "photos is not empty and holds no benchmark: give another --out" in err
    assert not steps


def test_a_failing_run_in_this_process_leaves_the_others_and_can_be_mended(whole, broken, tmp_path, capsys):
    typed = [
        "benchmark",
        "digits@20",
        "--methods",
        "broken:Broken,fixmatch",
        "--folds",
        "1,",
        *SMALL,
        "--out",
        tmp_path / "b",
    ]
    code, _, err = call(capsys, *typed)
    assert code == 1
    assert [row["state"] for row in record(tmp_path / "b")["runs"]] == ["failed", "finished"]
    assert "broken:Broken, fold 1: failed: ValueError: it never worked; to see where" in err
    sys.modules["broken"].Broken.losses = maxmatch.FixMatch.losses
    code, out, err = call(capsys, *typed)
    assert code == 0
    mended, fine = numbers(tmp_path / "b")
    assert fine == numbers(whole)[0]
    assert mended["last"] == fine["last"]  # it is FixMatch now
    assert [line.split()[-4:] for line in out.splitlines() if "+0.00" in line] == [["+0.00", "+-", "-", "0/1"]]


def test_without_a_test_set_there_are_dashes(whole, tmp_path, capsys, monkeypatch):
    result = json.loads((whole / "fixmatch/fold-1/result.json").read_text())
    result |= {"error": {"last": None, "median20": None, "best": None}, "robust_error": None, "top5_error": None}
    monkeypatch.setattr(benchmark_runs, "fit", lambda *_, **__: result)
    code, out, err = call(capsys, *COMMAND, "--out", tmp_path / "a")
    assert code == 0
    assert "error not measured, there is no test set" in err
    cells = [line.split() for line in out.splitlines() if line.strip().startswith("maxmatch:k=2")]
    assert cells[0][:6] == ["maxmatch:k=2", "2", *"----"]
    assert cells[1] == ["maxmatch:k=2", "2", *"-----"]


def test_a_process_that_is_killed_is_one_line():
    from multiprocessing import Pipe

    class Killed:
        exitcode = -9

    ear, mouth = Pipe(duplex=False)
    mouth.close()
    assert benchmark_runs._hear(ear) is None
    assert "was killed by signal 9" in benchmark_runs._unheard(Killed()).failed


def test_a_signal_ends_the_processes_of_all_jobs(tmp_path, monkeypatch, capsys):
    (tmp_path / "sleeper.py").write_text("import time\ndef work(run, threads, mouth):\n    time.sleep(300)\n")
    monkeypatch.syspath_prepend(tmp_path)
    import sleeper

    begun, started, start = [], [], benchmark_runs._start

    def begins(name):
        begun.append(name)
        if len(begun) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    def starting(*words):
        process, ear = start(*words)
        started.append(process)
        return process, ear

    monkeypatch.setattr(benchmark_runs, "_work", sleeper.work)
    monkeypatch.setattr(benchmark_runs, "_start", starting)
    with pytest.raises(benchmark_runs.Stopped):
        benchmark_runs.run_all(["a", "b", "c"], 2, begins, None)
    assert len(started) == 1
    assert started[0].exitcode == -signal.SIGTERM
    sys.modules.pop("sleeper")


SWEEP = ["benchmark", "digits@20", "--folds", "1,", *SMALL, "--sweep", "train.lr=.1,0.2"]


def test_a_sweep_runs_each_method_with_each_value(tmp_path, capsys):
    code, out, err = call(capsys, *SWEEP, "--methods", "fixmatch,maxmatch:k=2", "--out", tmp_path / "a")
    assert code == 0
    record = json.loads((tmp_path / "a/benchmark.json").read_text())
    labels = ["fixmatch:train.lr=.1", "fixmatch:train.lr=0.2", "maxmatch:k=2:train.lr=.1", "maxmatch:k=2:train.lr=0.2"]
    assert [row["method"] for row in record["runs"]] == labels
    for row, lr in zip(record["runs"], (0.1, 0.2, 0.1, 0.2), strict=True):
        recipe = json.loads((tmp_path / "a" / row["folder"] / "recipe.json").read_text())
        assert (recipe["train"]["lr"], recipe["method"]["name"]) == (lr, row["method"].split(":")[0])
        assert row["top5_error"] is not None
        mean = next(m["top5_error"]["mean"] for m in record["table"]["methods"] if m["method"] == row["method"])
        assert f"{row['method']} {mean:.2f}" in out
    assert "--sweep train.lr=.1,0.2" in record["command"]
    code, _, err = call(capsys, *record["command"].split()[1:])  # what it says to type goes on with it
    assert "4 of 4 runs are finished already" in err


def test_several_sweeps_are_all_combinations():
    from maxmatch.benchmark.wanted import parse_sweep

    grid = parse_sweep(["train.lr=.1,.2", "method.threshold=0.5,0.9"])
    assert list(grid) == [f":train.lr={a}:method.threshold={b}" for a in (".1", ".2") for b in ("0.5", "0.9")]
    assert grid[":train.lr=.2:method.threshold=0.5"] == {("train", "lr"): 0.2, ("method", "threshold"): 0.5}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--sweep", "train.lr="], "write it as section.field=value,value"),
        (["--sweep", "lr=.1,.2"], "write it as section.field=value,value"),
        (["--sweep", "train.lr=.1,.1"], "each once"),
        (["--sweep", "train.fold=1,2"], "type --folds or --methods"),
        (["--sweep", "train.lr=.1", "--sweep", "train.lr=.2"], "is swept twice"),
        (["--sweep", "train.lr=.1", "--set", "train.lr=.1"], "leave it out beside --sweep"),
        (["--sweep", "train.learning=.1"], "unknown setting 'train.learning'"),
        (["--sweep", "train.lr=.1,0.10"], "are the same method"),
        (["--sweep", "method.k=2,3", "--methods", "maxmatch:k=4"], "given twice"),
    ],
)
def test_mistakes_in_a_sweep_are_one_line(tmp_path, capsys, words, line):
    code, _, err = call(capsys, "benchmark", "digits@20", *words, "--out", tmp_path / "a")
    assert code == 2
    assert line in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--sweep", "data.labels=20,99999"], "99999"),
        (["--sweep", "net.name=wrn-10-1,nosuch"], "nosuch"),
    ],
)
def test_every_value_of_a_sweep_is_looked_at_before_the_first_run(tmp_path, capsys, steps, words, line):
    code, _, err = call(capsys, "benchmark", "digits", *words, "--folds", "1", *SMALL, "--out", tmp_path / "a")
    assert code != 0
    assert line in err.splitlines()[-1]
    assert steps == []


def pictures(folder: Path, classes: str = "ab", test: str = "ab") -> Path:
    """Grey squares in the layout of one's own pictures."""
    for place, names, first in (("labeled", classes, 0), ("test", test, 100)):
        for number, name in enumerate(names):
            for copy in range(3):
                path = folder / place / name / f"{copy}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("L", (8, 8), first + 20 * number + 5 * copy).save(path)
    for copy in range(4):
        (folder / "unlabeled").mkdir(exist_ok=True)
        Image.new("L", (8, 8), 200 + copy).save(folder / "unlabeled" / f"{copy}.png")
    return folder


def test_runs_on_other_pictures_are_not_taken_for_its_own(tmp_path, capsys, steps):
    one, other = pictures(tmp_path / "one" / "pics"), pictures(tmp_path / "other" / "pics", classes="abc")
    words = ["--methods", "supervised", "--folds", "1", *SMALL, "--out", tmp_path / "out"]
    assert call(capsys, "benchmark", one, *words)[0] == 0
    before = (tmp_path / "out" / "benchmark.json").read_text()
    steps.clear()
    for more in ([], ["--only-table"]):
        code, _, err = call(capsys, "benchmark", other, *words, *more)
        assert (code, steps) == (1, [])
        assert "belongs to other images than these" in err
    # Moved, they are the same; with other test pictures they are not.
    one.rename(tmp_path / "moved")
    assert call(capsys, "benchmark", tmp_path / "moved", *words)[0] == 0
    shutil.rmtree(tmp_path / "moved" / "test" / "b")
    code, _, err = call(capsys, "benchmark", tmp_path / "moved", *words[:3], "2", *words[4:])
    assert (code, steps) == (1, [])
    assert "belongs to other images than these" in err
    assert json.loads(before)["runs"] == record(tmp_path / "out")["runs"]


def test_a_narrower_benchmark_keeps_how_the_other_runs_came_about(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "a")
    narrow = [*COMMAND[:3], "fixmatch", "--folds", "1,", *SMALL]
    code, out, _ = call(capsys, *narrow, "--out", tmp_path / "a")
    assert (code, "maxmatch" in out) == (0, False)
    assert [(row["method"], row["fold"]) for row in record(tmp_path / "a")["runs"]] == [("fixmatch", 1)]
    assert call(capsys, *COMMAND, "--out", tmp_path / "a")[0] == 0
    assert record(tmp_path / "a")["runs"] == record(whole)["runs"]


def test_a_method_that_has_much_to_say_does_not_stop_the_others(broken, tmp_path, capfd, monkeypatch):
    broken.write_text(BROKEN.replace('"it never worked\\nat all"', '"loud " * 100_000'))
    typed = ["benchmark", "digits@20", "--methods", "broken:Broken,fixmatch", "--folds", "1,", *SMALL, "--jobs", "2"]
    code, _, _ = call(capfd, *typed, "--out", tmp_path / "b")
    assert code == 1
    failed, fine = numbers(tmp_path / "b")
    assert (failed["state"], fine["state"]) == ("failed", "finished")
    assert 100 < len(failed["failed"]) < 2000
    # Whatever is sent is heard before the process is waited for.
    ear, mouth = multiprocessing.Pipe(duplex=False)
    loud = threading.Thread(target=lambda: mouth.send(benchmark_runs.Outcome(None, "loud " * 100_000)))
    loud.start()
    assert ear.poll(20)

    assert len(benchmark_runs._hear(ear).failed) == 500_000
    loud.join()


@pytest.mark.parametrize(("digest", "known"), [("as it was", "abc"), ("another", None)])
def test_the_commit_of_a_run_that_was_there_is_the_one_noted_for_that_recipe(tmp_path, digest, known):
    before = {"method": "fixmatch", "fold": 1, "commit": "abc", "recipe_sha256": "as it was"}
    (tmp_path / "benchmark.json").write_text(json.dumps({"runs": [before]}))
    planned = Planned("fixmatch", 1, maxmatch.compose("digits", "fixmatch"), tmp_path / "fixmatch")
    noted = Record(tmp_path, [planned], "maxmatch benchmark")
    noted.found(planned, {"recipe_sha256": digest})
    assert [(row["state"], row["commit"]) for row in noted.rows] == [("finished", known)]


@pytest.mark.parametrize(("jobs", "each"), [(2, 4), (3, 2), (20, 1)])
def test_jobs_share_the_threads(tmp_path, monkeypatch, jobs, each):
    given: list[int] = []

    def start(run: Planned, threads: int) -> tuple[SimpleNamespace, Connection]:
        given.append(threads)
        ear, mouth = multiprocessing.Pipe(duplex=False)
        sentinel, end = os.pipe()
        mouth.send(benchmark_runs.Outcome({}))
        os.close(end)
        return SimpleNamespace(sentinel=sentinel, exitcode=0, join=lambda: None), ear

    monkeypatch.setattr(benchmark_runs, "_start", start)
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    monkeypatch.setattr("maxmatch.nets.device.cores", lambda: 8)
    runs = [Planned(label, 1, maxmatch.compose("digits"), tmp_path / label) for label in "ab"]
    benchmark_runs.run_all(runs, jobs, lambda run: None, lambda run, outcome: None)
    assert given == [each, each]


def test_a_process_that_is_slow_to_end_keeps_nobody_waiting(tmp_path, monkeypatch):
    """The first has spoken and does not end before the second, and the third, have been told of."""
    ends: dict[str, int] = {}
    told: list[str] = []

    def start(run: Planned, threads: int) -> tuple[SimpleNamespace, Connection]:
        ear, mouth = multiprocessing.Pipe(duplex=False)
        sentinel, ends[run.label] = os.pipe()
        mouth.send(benchmark_runs.Outcome({}, run.label))
        if run.label != "slow":
            os.close(ends[run.label])
        return SimpleNamespace(sentinel=sentinel, exitcode=0, join=lambda: None), ear

    def ended(run: Planned, outcome: benchmark_runs.Outcome) -> None:
        told.append(outcome.failed)
        if run.label == "third":
            os.close(ends["slow"])

    monkeypatch.setattr(benchmark_runs, "_start", start)
    runs = [Planned(label, 1, maxmatch.compose("digits"), tmp_path / label) for label in ("slow", "second", "third")]
    benchmark_runs.run_all(runs, 2, lambda run: None, ended)
    assert told == ["second", "third", "slow"]


@pytest.mark.parametrize("words", [["--methods", "fixmatch"], ["--folds", "1,"], ["--set", "train.lr=1"]])
def test_the_saved_table_alone_refuses_what_it_would_ignore(whole, capsys, words):
    code, out, err = call(capsys, "benchmark", "--only-table", "--out", whole, *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"maxmatch: {words[0]}: --only-table with nothing but --out shows the last table")


def test_runs_of_a_method_that_was_changed_since_are_not_taken_for_its_own(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    text = BROKEN.replace("Broken", "Mine").split("    def losses")[0] + '    """Mine."""\n    threshold: float = 0.5\n'
    changed = text + "\n    def targets(self, p):\n        return super().targets(p.square())\n"
    (tmp_path / "changing.py").write_text(text)
    typed = ["benchmark", "digits@20", "--methods", "changing:Mine", "--folds", "1,", *SMALL, "--out", tmp_path / "out"]

    def edited(to: str, *more: object) -> tuple[int, str, str]:
        (tmp_path / "changing.py").write_text(to)
        sys.modules.pop("changing", None)
        return call(capsys, *typed, *more)

    whole = Step.__call__

    def while_it_trains(self, t):
        (tmp_path / "changing.py").write_text(changed)
        whole(self, t)

    monkeypatch.setattr(Step, "__call__", while_it_trains)
    assert edited(text)[0] == 0
    monkeypatch.setattr(Step, "__call__", whole)
    assert edited(text.replace("Mine.", "Mine, in other words.") + "# a comment\n")[0] == 0
    code, _, err = edited(changed)
    assert code == 2
    assert "was trained by other code of changing:Mine than there is now: give another --out" in err

    def dies(self, t):
        if t == 3:
            raise RuntimeError
        whole(self, t)

    typed[-1] = tmp_path / "died"
    monkeypatch.setattr(Step, "__call__", dies)
    assert edited(text)[0] == 1
    monkeypatch.setattr(Step, "__call__", whole)
    code, _, err = edited(changed)  # a run half of one code and half of another is no part of a table
    assert code == 2
    assert "was trained by other code" in err
    sys.modules.pop("changing", None)
    code, _, err = call(capsys, "train", "--resume", "--out", tmp_path / "died" / "changing-Mine" / "fold-1")
    assert code == 0  # who asks for it gets it, and is told
    assert "warning: the code of changing:Mine has changed since this run was begun" in err
    assert "was trained by other code" in edited(changed)[2]
    assert "was trained by other code" in edited(text)[2]
    typed[-1] = tmp_path / "died again"
    monkeypatch.setattr(Step, "__call__", dies)
    assert edited(text)[0] == 1
    monkeypatch.setattr(Step, "__call__", whole)
    for damaged in (tmp_path / "died again").rglob("checkpoint/*"):
        damaged.write_bytes(b"")
    code, _, err = edited(changed)
    assert (code, "failed: no sound checkpoint is left" in err) == (1, True)  # that run; others would go on
    sys.modules.pop("changing")


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_second_signal_is_not_said_to_lose_nothing(tmp_path, capsys, monkeypatch, jobs):
    def attempt(run, *_):
        raise benchmark_runs.Stopped(signal.SIGINT)

    if jobs == 1:
        monkeypatch.setattr(benchmark_runs, "fit", lambda *_, **__: attempt(None))
    else:

        def waiting(processes):
            for process in processes:
                process.kill()
            raise benchmark_runs.Stopped(signal.SIGINT, at_once=True)

        monkeypatch.setattr(benchmark_runs, "wait", attempt)
        monkeypatch.setattr(benchmark_runs, "_stop", waiting)
    code, _, err = call(capsys, *COMMAND, "--jobs", jobs, "--out", tmp_path / "out")
    assert code == 130
    assert "stopped with 0 of 4 runs ended; others go on from their last checkpoints: to go on, type" in err


def test_processes_that_are_not_let_save_are_told_of(capsys):
    class Slow:
        def __init__(self):
            self.killed = False

        def terminate(self):
            pass

        def join(self):
            raise benchmark_runs.Stopped(signal.SIGTERM)

        def kill(self):
            self.killed = True

    processes = [Slow(), Slow()]
    with pytest.raises(benchmark_runs.Stopped) as stopped:
        benchmark_runs._stop(processes)
    assert (stopped.value.number, stopped.value.at_once) == (signal.SIGTERM, True)
    assert all(process.killed for process in processes)


def test_a_method_s_name_is_no_emoji(capsys, monkeypatch):
    name = "mine:running:k=3"
    shown = Table("method")
    shown.add_row(name)
    monkeypatch.setattr(benchmark_command, "page", lambda _: [name, shown])
    benchmark_command._show({}, as_json=False)
    assert capsys.readouterr().out.count(name) == 2


def test_a_report_of_a_benchmark_is_told_where_its_runs_are(whole, capsys):
    code, _, err = call(capsys, "report", whole)
    assert (code, f"there are some in {whole}/*/*" in " ".join(err.split())) == (2, True)


def test_an_option_that_is_refused_is_told_with_its_method(capsys):
    code, _, err = call(capsys, "benchmark", "digits@20", "--methods", "maxmatch,fixmatch:strategy=select")
    assert code == 2
    assert "--methods fixmatch:strategy=select: strategy = select" in err


def test_runs_that_are_compared_start_from_no_run_that_goes_on(tmp_path, capsys):
    begun = tmp_path / "begun"
    given = {"train": {"steps": 4, "batch": 8, "ratio": 1, "checkpoint_every": 2, "threads": 1}}
    maxmatch.fit(maxmatch.compose("digits@20", "fixmatch", given=given), begun, quiet=True)
    (begun / "model.safetensors").unlink()  # as if it were still training
    (begun / "result.json").unlink()
    words = ["benchmark", "digits@20", "--methods", "fixmatch", "--folds", "1,", "--steps", "2"]
    assert run([*words, "--set", f"train.init={begun}", "--out", str(tmp_path / "b")]) == 2
    assert f"train.init = {begun}: that run has not finished" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


def test_a_run_that_was_lengthened_is_no_run_of_that_length(tmp_path, capsys):
    out, short = tmp_path / "b", ["--methods", "fixmatch", "--folds", "1,", *SMALL]
    assert run(["benchmark", "digits@20", *short, "--out", str(out)]) == 0
    folder = out / "fixmatch" / "fold-1"
    assert json.loads((folder / "result.json").read_text())["begun_with"] == 4
    assert run(["train", "--resume", "--out", str(folder), "--steps", "8"]) == 0
    assert json.loads((folder / "result.json").read_text())["begun_with"] == 4
    long = ["8" if word == "4" else word for word in short]
    told = "was begun with 4 steps and lengthened to 8, which is not the same as 8 from the start: give another --out"
    for unfinished in (False, True):
        if unfinished:
            (folder / "result.json").unlink()
        capsys.readouterr()
        assert run(["benchmark", "digits@20", *long, "--out", str(out)]) == 2
        assert told in capsys.readouterr().err


NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, classes, channels):
        super().__init__(nn.Flatten(), nn.Linear(64 * channels, 16), nn.ReLU(), nn.Linear(16, classes))
"""


def test_a_run_by_another_net_of_the_same_name_is_refused(tmp_path):
    (tmp_path / "nets_of_mine.py").write_text(NET)

    def benchmark():
        words = ["benchmark", "digits@20", "--methods", "fixmatch", "--folds", "1,", *SMALL, "--out", "b"]
        command = [sys.executable, "-m", "maxmatch", *words, "--set", "net.name=nets_of_mine:Net"]
        src = str(Path(maxmatch.__file__).parents[1])
        path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), src])}
        return subprocess.run(command, cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, check=False)

    assert benchmark().returncode == 0
    (tmp_path / "nets_of_mine.py").write_text(NET + "# a comment\n")
    assert benchmark().returncode == 0
    (tmp_path / "nets_of_mine.py").write_text(NET.replace("ReLU", "Tanh"))
    again = benchmark()
    assert again.returncode == 2
    assert "was trained by other code of nets_of_mine:Net than there is now: give another --out" in again.stderr

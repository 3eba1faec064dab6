"""`maxmatch paper run`: every target at smoke, equal runs once, CSV against the run folders, resume, missing data."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from maxmatch.benchmark import runs as benchmark_runs
from maxmatch.cli import run
from maxmatch.data import fetch as data_fetch
from maxmatch.data.datasets import load_images
from maxmatch.data.download import Unreachable
from maxmatch.paper.targets import TARGETS
from maxmatch.paper.wanted import plan
from maxmatch.train.step import Step

RUNNABLE = [target for target in TARGETS.values() if target.trains]
PAIR = ["paper", "run", "fig-losses", "--budget", "short", "--data", "digits", "--labels", "20", "--steps", "6"]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """All targets made at once, as a user would, and the folders that were trained, in order."""
    out, trained = tmp_path_factory.mktemp("paper"), []
    fit = benchmark_runs.fit

    def counting(recipe, folder, **options):
        trained.append(folder)
        return fit(recipe, folder, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark_runs, "fit", counting)
        patch.setattr(benchmark_runs, "release", lambda *_, **__: None)  # looking for garbage takes as long as a run
        assert run(["paper", "run", "all", "--budget", "smoke", "--out", str(out)]) == 0
    return out, trained


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def result_of(out: Path, row: dict[str, str]) -> dict:
    return json.loads((out / row["folder"] / "result.json").read_text())


@pytest.mark.parametrize("target", RUNNABLE, ids=lambda target: target.name)
def test_every_target_runs_and_its_figure_and_page_say_smoke(smoke, target):
    out, _ = smoke
    stem = f"{target.name}-smoke"
    page = (out / f"{stem}.md").read_text()
    assert "**SMOKE" in page
    assert f"![{target.title}]({stem}.png)" in page
    assert "**held**" not in page
    assert "**not held**" not in page
    words = [text.text for text in ElementTree.parse(out / f"{stem}.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert "SMOKE" in words
    assert any("10 steps" in str(word) for word in words)
    with Image.open(out / f"{stem}.png") as picture:
        assert picture.format == "PNG"
        red = sum(
            1 for r, g, b in picture.convert("RGB").resize((200, 100)).get_flattened_data() if r > g + 25 and r > b + 25
        )
    assert red > 500  # the word lies across it
    assert {row["state"] for row in rows(out / f"{stem}-runs.csv")} == {"finished"}


def test_equal_recipes_are_run_once_for_all_targets(smoke):
    out, trained = smoke
    plans = [plan(target, "smoke", out) for target in RUNNABLE]
    wanted = {run.recipe.to_json() for one in plans for run in (*one.runs, *one.before)}
    assert len(trained) == len(set(trained)) == len(wanted)
    assert len(wanted) < sum(len(plan(target, "smoke", out).runs) for target in RUNNABLE)


def test_the_csv_holds_what_the_runs_found(smoke):
    out, _ = smoke
    for name in ("fig-cifar10", "fig-k", "table-augment", "fig-anchoring"):
        by_run = {(row["shown"], row["method"]): row for row in rows(out / f"{name}-smoke-runs.csv")}
        table = rows(out / f"{name}-smoke.csv")
        assert len(table) == len(by_run)
        for row in table:
            result = result_of(out, by_run[row["labels"], row["method"]])
            assert float(row["error"]) == result["error"]["last"]
            assert float(row["robust_error"]) == result["robust_error"]
            assert (row["n"], row["std"], row["steps"]) == ("1", "", "10")
            assert row["same_data"] == "False"
            assert row["data"] == result["dataset"] == "digits"
            assert int(row["labels"]) == result["labels"]


def test_the_losses_are_those_of_the_metrics(smoke):
    out, _ = smoke
    table = rows(out / "fig-losses-smoke.csv")
    for row in rows(out / "fig-losses-smoke-runs.csv"):
        lines = [json.loads(line) for line in (out / row["folder"] / "metrics.jsonl").read_text().splitlines()]
        logged = [line for line in lines if line["kind"] == "train"]
        method = row["method"]
        assert [int(line["step"]) for line in table] == [line["step"] for line in logged] == list(range(1, 11))
        assert [float(line[f"{method}-L"]) for line in table] == [line["supervised_loss"] for line in logged]
        assert [float(line[f"{method}-U"]) for line in table] == [line["unlabeled_loss"] for line in logged]
        if method == "MaxMatch":
            assert [float(line["MaxMatch-U-min"]) for line in table] == [line["unlabeled_loss_min"] for line in logged]
            assert any(line["unlabeled_loss"] > line["unlabeled_loss_min"] > 0 for line in logged)


def test_tsne_shows_the_test_images(smoke):
    out, _ = smoke
    table = rows(out / "fig-tsne-smoke.csv")
    images = load_images("digits")
    assert [row["class"] for row in table] == [images.classes[label] for label in images.test_y[:150].tolist()]
    assert len({(row["x"], row["y"]) for row in table}) == 150


def test_drawings_have_figures_and_words_have_none(smoke):
    out, _ = smoke
    for name in ("fig-framework", "fig-proximity"):
        assert {path.suffix for path in out.glob(f"{name}*")} == {".png", ".svg", ".md"}
    assert not list(out.glob("table-notation*"))


def test_a_page_is_made_again_without_training(smoke, capsys, monkeypatch):
    out, _ = smoke
    monkeypatch.setattr(benchmark_runs, "fit", None)  # nobody may call it
    pictures = {path: path.read_bytes() for path in out.glob("fig-k-smoke.*")}
    assert run(["paper", "run", "fig-k", "--out", str(out), "--only-page"]) == 0
    assert run(["paper", "run", "fig-k", "--out", str(out)]) == 0
    assert "all 8 runs are finished already" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in pictures} == pictures


def test_stopped_after_the_first_run_it_goes_on_with_the_second(tmp_path, capsys, monkeypatch):
    done, step = [], Step.__call__

    def counting(self, t):
        done.append(t)
        if len(done) == 6 + 3:  # the third step of the second run
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, t)

    monkeypatch.setattr(Step, "__call__", counting)
    assert run([*PAIR, "--out", str(tmp_path)]) == 130
    err = capsys.readouterr().err
    again = err.strip().splitlines()[-1]
    assert "stopped with 1 of 2 runs ended, nothing is lost: to go on, type maxmatch paper run fig-losses" in again
    words = again.partition("type maxmatch ")[2].split()
    first = next(tmp_path.glob("runs/**/result.json"))
    before = first.stat().st_mtime_ns
    assert not list(tmp_path.glob("*.md"))
    done.clear()
    done.append(-100)  # the signal comes no more
    assert run(words) == 0
    assert done == [-100, 3, 4, 5]  # the second run alone, from where it was
    assert first.stat().st_mtime_ns == before
    assert (tmp_path / "fig-losses-short-digits-20-6-steps.md").exists()
    page = (tmp_path / "fig-losses-short-digits-20-6-steps.md").read_text()
    assert page.count("**held**") + page.count("**not held**") == 4


def test_missing_data_is_one_line_and_nothing_is_begun(tmp_path, capsys, monkeypatch):
    def unreachable(*_, **__):
        raise Unreachable("no network")

    monkeypatch.setenv("MAXMATCH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(data_fetch, "download", unreachable)
    assert run(["paper", "run", "fig-cifar100", "--budget", "short", "--out", str(tmp_path / "out")]) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("maxmatch: cifar100 can't be had")
    assert "then type maxmatch data fetch cifar100" in last
    assert not (tmp_path / "out").exists()


def test_a_run_that_fails_leaves_a_page_of_the_others(tmp_path, capsys, monkeypatch):
    fit = benchmark_runs.fit

    def failing(recipe, folder, **options):
        if recipe.method.over.name == "worst":
            raise ValueError("it broke\nbadly")
        return fit(recipe, folder, **options)

    monkeypatch.setattr(benchmark_runs, "fit", failing)
    assert run([*PAIR, "--out", str(tmp_path)]) == 1
    assert "1 of 2 runs failed, see above; to try again, type maxmatch paper run" in capsys.readouterr().err
    page = (tmp_path / "fig-losses-short-digits-20-6-steps.md").read_text()
    assert "1 of 2 runs are missing (1 failed)" in page
    assert "not tested" in page


def test_other_labels_have_a_page_of_their_own(tmp_path):
    target = TARGETS["fig-k"]
    assert plan(target, "smoke", tmp_path).stem.name == "fig-k-smoke"
    assert plan(target, "smoke", tmp_path, labels=[250, 4000]).stem.name == "fig-k-smoke"
    assert plan(target, "smoke", tmp_path, labels=[40]).stem.name == "fig-k-smoke-40"
    assert plan(target, "smoke", tmp_path, steps=5).stem.name == "fig-k-smoke-5-steps"
    other = plan(TARGETS["fig-anchoring"], "short", tmp_path, data="cifar10", labels=[250])
    assert other.stem.name == "fig-anchoring-short-cifar10-250"


def test_the_words_for_a_run_tell_it_from_the_others(tmp_path):
    said = [str(run) for run in plan(TARGETS["fig-k"], "smoke", tmp_path).runs]
    assert said[0] == "K = 1, digits@40, fold 1"
    assert len(said) == len(set(said)) == 8


def test_times_of_runs_that_shared_the_machine_are_refused(tmp_path, capsys):
    words = ["--data", "digits", "--labels", "20", "--steps", "2", "--device", "cpu", "--out", str(tmp_path)]
    shared = ["paper", "run", "fig-losses", *words]
    assert run([*shared, "--jobs", "2"]) == 0
    assert run(["paper", "run", "table-runtime", *words]) == 2
    assert (
        "was trained with --jobs 2, so its time says nothing: give another --out, or delete it"
        in capsys.readouterr().err
    )


def test_of_all_targets_those_of_times_come_first_and_alone(tmp_path, monkeypatch):
    import maxmatch.paper.command as command

    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(command, "run_target", lambda one, jobs, only: asked.append((one.target.name, jobs)) or [])
    assert run(["paper", "run", "all", "--jobs", "3", "--out", str(tmp_path)]) == 0
    assert asked[0] == ("table-runtime", 1)
    assert {jobs for _, jobs in asked[1:]} == {3}

"""The ImageNet tables and figures: plans, pages of hand-made results, curves of runs, and a tiny ImageNet at smoke."""

from __future__ import annotations

import csv
import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from maxmatch.cli import run
from maxmatch.data.split import share_split
from maxmatch.paper import command, found
from maxmatch.paper.imagenet import curves_of, judge
from maxmatch.paper.published import FINETUNE_STEPS, IMAGENET, IMAGENET_STEPS, LEARNING_RATES
from maxmatch.paper.targets import find
from maxmatch.paper.wanted import plan
from maxmatch.train.epochs import settle_epochs
from maxmatch.train.log import read_metrics
from maxmatch.train.recipe import resolve
from maxmatch.train.recipes import compose

NAMES = ("table-imagenet", "table-imagenet-lr", "fig-imagenet-unlabelled", "fig-imagenet-curves")


def result(planned, error: float, top5: float) -> dict:
    steps = {None: planned.recipe.train.steps, 300: IMAGENET_STEPS, 50: FINETUNE_STEPS}[planned.recipe.train.epochs]
    return {
        "error": {"last": error, "median20": error, "best": error}, "robust_error": error, "steps_per_second": 9.0,
        "net": "resnet50", "device": "a GPU", "strategy": "select", "k": 3, "over": "worst", "top5_error": top5,
        "steps": steps, "recipe_sha256": "0", "seconds": 1.0, "threads": 1,
    }  # fmt: skip


@pytest.fixture
def made(monkeypatch, tmp_path):
    """What is found, and the page, of a target whose runs have the top-1 and top-5 errors and the curves we say."""

    def make(name, errors, curves=None, budget="full", **asked):
        wanted = plan(find(name), budget, tmp_path, **asked)
        for planned in wanted.runs:
            planned.folder.mkdir(parents=True, exist_ok=True)
            lines = [
                {"step": at, "kind": kind, **line}
                for at, *both in (curves or {}).get(planned.label, ())
                for kind, line in zip(("train", "evaluate")[-len(both) :], both, strict=True)
            ]
            (planned.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        monkeypatch.setattr(found, "find_result", lambda planned: result(planned, *errors(planned.label)))
        files = command.run_target(wanted, only_page=True)
        page = next(path for path in files if path.suffix == ".md").read_text()
        return found.collect(wanted, {}, {}), page

    return make


def cells(page: str, *words: str) -> list[str]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    (line,) = [line for line in lines if line[: len(words)] == list(words)]
    return line


def test_full_is_the_recipe_of_the_paper_and_both_tables_share_their_runs():
    by_name = {name: plan(find(name), "full", Path("paper")).runs for name in NAMES}
    fix, best, *pretrained = by_name["table-imagenet"]
    (moco,) = plan(find("table-imagenet"), "full", Path("paper")).before
    assert moco.recipe == compose("imagenet", "moco", given={"train": {"seed": 1}})
    assert [run.recipe.train.init for run in pretrained] == [str(moco.folder)] * 5
    assert [getattr(run.recipe.method, "teacher", "-") for run in pretrained] == ["-", "own", "own", "eman", "eman"]
    assert best.recipe == compose("imagenet", "maxmatch", given={"train": {"seed": 1, "fold": 1}})
    assert fix.recipe == compose("imagenet", "fixmatch", given={"train": {"seed": 1, "fold": 1}})
    assert [run.recipe.train.lr for run in by_name["table-imagenet-lr"]] == [0.01, 0.01, 0.02, 0.02, 0.03, 0.03]
    assert {run.folder for run in by_name["fig-imagenet-unlabelled"]} == {fix.folder, best.folder}
    assert {fix.folder, best.folder} < {run.folder for run in by_name["table-imagenet-lr"]}
    assert {run.folder for run in by_name["fig-imagenet-curves"]} == {
        run.folder for run in by_name["table-imagenet-lr"]
    }
    y = np.repeat(np.arange(1000), np.where(np.arange(1000) < 167, 1282, 1281))  # 1,281,167 images
    pool = share_split(y, 10, seed=1, exclude_labelled=True).unlabelled
    settled = settle_epochs(resolve(best.recipe, device="cpu", threads=1), len(pool))
    assert settled.train.steps == IMAGENET_STEPS == plan(find("table-imagenet"), "full", Path("paper")).steps


def test_finetune_is_run_by_its_own_recipe():
    (full,) = [run for run in plan(find("table-imagenet"), "full", Path("paper")).runs if "Finetune" in run.label]
    start = {"train": {"seed": 1, "fold": 1, "init": full.recipe.train.init}}
    assert full.recipe == compose("imagenet", "supervised", config="imagenet-finetune", given=start)
    assert full.recipe.train.epochs * (128_117 // full.recipe.train.batch) == FINETUNE_STEPS
    for budget, data in (("short", "imagenet"), ("short", "cifar10"), ("smoke", "digits")):
        runs = plan(find("table-imagenet"), budget, Path("paper"), data=data).runs
        (short,) = [run.recipe for run in runs if "Finetune" in run.label]
        others = {run.recipe.net.name for run in runs}
        assert others == {short.net.name}  # that of the pretraining too
        train = short.train
        assert (train.lr, train.head_lr, train.schedule, train.milestones) == (0.001, 0.1, "milestones", (0.6, 0.8))
        assert (train.optimizer, train.ema_decay, short.method.augmentation) == ("sgd", 0.0, "weak")
        assert (train.batch, train.steps, train.epochs) == (
            {"imagenet": 256, "cifar10": 64, "digits": 8}[data], 10 if budget == "smoke" else 4000, None,
        )  # fmt: skip


def test_a_row_without_runs_has_the_steps_that_they_would_have(tmp_path):
    for budget, others, finetune in (("full", IMAGENET_STEPS, FINETUNE_STEPS), ("short", 4000, 4000)):
        rows = found.summary(found.collect(plan(find("table-imagenet"), budget, tmp_path), {}, {}))
        assert {row["steps"] for row in rows if "Finetune" not in row["method"]} == {others}
        assert [row["steps"] for row in rows if "Finetune" in row["method"]] == [finetune]
    wanted = plan(find("table-imagenet"), "full", tmp_path, data="cifar10")  # there by its rates alone
    rows = found.summary(found.collect(wanted, {}, {}))
    assert {row["steps"] for row in rows} == {wanted.steps}


def test_a_run_from_a_pretraining_has_one_name_wherever_it_lies():
    by_place = {
        (out, fold): plan(find("table-imagenet"), "smoke", Path(out), folds=[fold]).runs
        for out in ("a", "/b/c")
        for fold in (1, 2)
    }
    names = [[run.folder.parent.name for run in runs] for runs in by_place.values()]
    assert names[0] == names[1] == names[2] == names[3]
    assert len(set(names[0])) == 7
    assert len({run.recipe.train.init for runs in by_place.values() for run in runs} - {None}) == 4


def test_a_page_has_both_errors_and_the_published_ones(made):
    values = {f"{name}{start}": (30.0, 11.0) for name in ("FixMatch", "FixMatch+EMAN") for start in ("", ", MoCo v2")}
    values |= {"MaxMatch": (29.0, 12.0), "MaxMatch, MoCo v2": (28.0, 10.0), "MaxMatch+EMAN, MoCo v2": (31.0, 10.0)}
    values |= {"Finetune, MoCo v2": (30.5, 14.0)}
    _, page = made("table-imagenet", values.__getitem__)
    steps = f"{IMAGENET_STEPS:,}"
    assert cells(page, "MaxMatch")[1:] == [
        "29.00", "12.00", "1", steps, "select", "27.83", "10.46", steps, "MaxMatch (Jiang et al.), Table 1",
    ]  # fmt: skip
    pretrained = {name: row for name, *row in ((f"{m}, {p}", a, b) for m, p, a, b in IMAGENET if p != "none")}
    assert len(pretrained) == 5
    for name, (top1, top5) in pretrained.items():
        row = cells(page, name)
        assert row[1:3] == [f"{error:.2f}" for error in values[name]]
        assert row[6:8] == [f"{top1:.2f}", f"{top5:.2f}"]
    assert cells(page, "MaxMatch is below FixMatch from scratch, top-1")[1] == "**held**"
    assert cells(page, "MaxMatch is below FixMatch from scratch, top-5")[1] == "**not held**"
    assert cells(page, "MaxMatch is below FixMatch from MoCo v2, top-1")[1] == "**held**"
    assert cells(page, "MaxMatch is below FixMatch with EMAN from MoCo v2, top-1")[1] == "**not held**"
    assert cells(page, "All semi-supervised methods are below Finetune")[1] == "**not held**"
    assert cells(page, "images a step")[1:] == ["64 + 320, 256", "64 + 320"]
    assert cells(page, "Finetune, MoCo v2")[4] == cells(page, "Finetune, MoCo v2")[8] == "25,000"
    assert cells(page, "n, folds")[1:] == ["1", "1"]


def test_the_published_rates_keep_their_own_orderings(made):
    printed = {f"{method}, lr {lr:g}": (top1, top5) for method, lr, top1, top5 in LEARNING_RATES}
    seen, page = made("table-imagenet-lr", printed.__getitem__)
    assert [one.verdict.answer for one in judge(seen)] == ["held"] * 8
    assert cells(page, "FixMatch, lr 0.01")[1:3] == ["29.70", "11.78"] == cells(page, "FixMatch, lr 0.01")[6:8]
    turned = {name: (100 - top1, 100 - top5) for name, (top1, top5) in printed.items()}
    seen, _ = made("table-imagenet-lr", turned.__getitem__)
    assert [one.verdict.answer for one in judge(seen)] == ["not held"] * 8


@pytest.mark.parametrize("better", [0.01, 0.03])
def test_the_best_rate_is_below_both_others(made, better):
    printed = {f"{method}, lr {lr:g}": (top1, top5) for method, lr, top1, top5 in LEARNING_RATES}
    printed[f"MaxMatch, lr {better:g}"] = (1.0, 1.0)
    answers = {one.claim: one.verdict.answer for one in judge(made("table-imagenet-lr", printed.__getitem__)[0])}
    assert answers.pop("MaxMatch is best with lr 0.02") == "not held"
    assert set(answers.values()) == {"held"}


def test_curves_are_means_at_the_steps_that_all_have_and_are_judged(made):
    def line(top1, top5):
        """What is counted while training, and an evaluation beside it that says something else."""
        return {"guess_error": top1, "guess_top5_error": top5}, {"unlabelled_error": 3, "error": 4}

    curves = {
        "FixMatch": [(1, *line(90, 60)), (2, *line(80, 50)), (3, *line(70, 41))],
        "MaxMatch": [(1, *line(85, 58)), (3, *line(60, 40)), (4, *line(1, 1))],
    }
    seen, page = made("fig-imagenet-unlabelled", lambda label: (1.0, 1.0), curves)
    steps, found_curves = curves_of(seen)
    assert steps == [1, 3]
    assert found_curves == {
        "FixMatch, top-1": [90, 70], "FixMatch, top-5": [60, 41], "MaxMatch, top-1": [85, 60], "MaxMatch, top-5": [58, 40],
    }  # fmt: skip
    assert [one.verdict.answer for one in judge(seen)] == ["held"] * 3
    assert cells(page, "3")[1:] == ["70.00", "41.00", "60.00", "40.00"]
    assert "on the weak views of its unlabelled images, confident or not" in page
    curves["MaxMatch"][1] = (3, *line(75, 30))  # above in the end, and its gap in top-5 is the larger one
    seen, _ = made("fig-imagenet-unlabelled", lambda label: (1.0, 1.0), curves)
    assert [one.verdict.answer for one in judge(seen)] == ["not held", "held", "not held"]


def test_in_most_of_the_training_is_more_than_half(made):
    labels = [arm.label for arm in find("fig-imagenet-curves").arms]
    curves = {label: [(at, {"error": 50.0}) for at in (1, 2, 3, 4)] for label in labels}
    curves["MaxMatch, lr 0.01"] = [(at, {"error": 50.0 - (at > 1)}) for at in (1, 2, 3, 4)]
    curves["MaxMatch, lr 0.02"] = [(at, {"error": 50.0 - (at > 2)}) for at in (1, 2, 3, 4)]
    seen, _ = made("fig-imagenet-curves", lambda label: (1.0, 1.0), curves)
    assert [one.verdict.answer for one in judge(seen)] == ["held", "not held", "not held"]
    without = replace(seen, rows=tuple(row for row in seen.rows if row["method"] != "FixMatch, lr 0.03"))
    assert judge(without)[2].verdict.answer == "not tested"


def test_a_pretraining_is_run_once_and_first_and_its_weights_are_taken(tmp_path, capsys):
    words = ["paper", "run", "table-imagenet", "--steps", "4", "--device", "cpu", "--out"]
    assert run([*words, str(tmp_path / "begun")]) == 0
    tmp_path = (tmp_path / "begun").rename(tmp_path / "moved")
    capsys.readouterr()
    assert run([*words, str(tmp_path)]) == 0  # found again
    assert "all 7 runs are finished already" in capsys.readouterr().err
    recipes = [json.loads(path.read_text()) for path in tmp_path.rglob("recipe.json")]
    assert len(recipes) == 8
    (moco,) = tmp_path.glob("runs/smoke/digits/moco*/fold-1")
    started = [path.parent for path in tmp_path.rglob("recipe.json") if json.loads(path.read_text())["train"]["init"]]
    assert len(started) == 5
    encoder = load_file(moco / "model.safetensors")
    for folder in started:
        assert torch.equal(load_file(folder / "initial.safetensors")["stem.weight"], encoder["stem.weight"])
    page = (tmp_path / "table-imagenet-smoke-4-steps.md").read_text()
    assert "MoCo v2" not in [row[0] for row in (line.split(" | ") for line in page.splitlines())]


def test_a_tiny_imagenet_runs_at_smoke_as_a_user_types_it(tmp_path, monkeypatch, capsys):
    root = Path(__file__).parents[2] / "benchmarks" / "tiny_imagenet.py"
    spec = importlib.util.spec_from_file_location("tiny_imagenet", root)
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    tiny.make_folder(tmp_path / "data" / "imagenet", classes=6, train=10, val=2)
    monkeypatch.setenv("MAXMATCH_DATA", str(tmp_path / "data"))
    words = ["--data", "imagenet", "--steps", "4", "--device", "cpu", "--out", str(tmp_path / "out")]
    assert run(["paper", "run", "fig-imagenet-unlabelled", *words]) == 0
    rows = list(csv.DictReader((tmp_path / "out/fig-imagenet-unlabelled-smoke-4-steps.csv").open()))
    assert [row["step"] for row in rows] == ["2", "4"]
    figures = {"top-1": "guess_error", "top-5": "guess_top5_error"}
    for folder in (path.parent for path in (tmp_path / "out/runs").rglob("result.json")):
        found_result = json.loads((folder / "result.json").read_text())
        label = "MaxMatch" if found_result["method"] == "maxmatch" else "FixMatch"
        logged = [line for line in read_metrics(folder / "metrics.jsonl") if line["kind"] == "train"]
        for name, figure in figures.items():
            each = [line[figure] for line in logged]
            since = [(each[0] + each[1]) / 2, (each[2] + each[3]) / 2]  # the evaluation before
            assert [float(row[f"{label}, {name}"]) for row in rows] == pytest.approx(since)
        assert (found_result["unlabelled_images"], found_result["labels"]) == (54, 6)
    page = (tmp_path / "out/fig-imagenet-unlabelled-smoke-4-steps.md").read_text()
    assert "**SMOKE" in page
    assert len(cells(page, "4")) == 5

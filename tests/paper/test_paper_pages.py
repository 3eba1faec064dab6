"""Plans and pages: recipes against the paper's own, pages of hand-made results, what is published and how it is shown."""

from __future__ import annotations

import csv
import math
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from maxmatch.cli import run
from maxmatch.errors import UsageError
from maxmatch.paper import command, found
from maxmatch.paper.budgets import DEFAULT_STEPS, settings
from maxmatch.paper.draw import draw
from maxmatch.paper.drawings import distant_relatives, nearest_strangers
from maxmatch.paper.published import ERRORS
from maxmatch.paper.style import styled
from maxmatch.paper.targets import TARGETS, find
from maxmatch.paper.wanted import plan, run_name
from maxmatch.train.recipes import compose

ROOT = Path(__file__).parents[2]


def result(planned, error: float | None, speed: float = 100.0) -> dict:
    """What a finished run would have left."""
    return {
        "error": {"last": error, "median20": error, "best": error}, "robust_error": error, "steps_per_second": speed,
        "net": planned.recipe.net.name, "device": "a GPU", "strategy": "select", "k": 3, "over": "worst",
        "steps": planned.recipe.train.steps, "recipe_sha256": "0", "seconds": 1.0, "threads": 1,
    }  # fmt: skip


@pytest.fixture
def hand_made(monkeypatch, tmp_path):
    """The files of a target whose runs found what we say: by method, labels and fold; None is a run not finished."""

    def make(name: str, errors, budget="short", **asked) -> dict[str, str]:
        wanted = plan(find(name), budget, tmp_path, **asked)
        tmp_path.mkdir(exist_ok=True)

        def told(planned):
            error = errors(planned.label, planned.recipe.data.labels, planned.fold)
            return None if error is None else result(planned, error)

        monkeypatch.setattr(found, "find_result", told)
        files = command.run_target(wanted, only_page=True)
        return {path.suffix if "-runs" not in path.name else "runs": path.read_text() if path.suffix != ".png" else ""
                for path in files}  # fmt: skip

    return make


def table_row(page: str, *words: str) -> list[str]:
    """The cells of the one line that begins with these words."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")
    ]
    (line,) = [line for line in lines if line[: len(words)] == list(words)]
    return line


def test_full_is_the_papers_recipe():
    runs = plan(find("fig-k"), "full", Path("paper")).runs
    assert len(runs) == 2 * 4 * 5
    mine = next(r for r in runs if r.label == "K = 3" and r.fold == 2 and r.recipe.data.labels == 4000)
    given = {"data": {"labels": 4000}, "method": {"k": 3}, "train": {"seed": 2, "fold": 2}}
    assert mine.recipe == compose("cifar10", "maxmatch", given=given)
    assert (mine.recipe.train.steps, mine.recipe.net.name) == (2**20, "wrn-28-2")
    nets = {
        name: plan(find(name), "full", Path("paper")).runs[0].recipe.net.name for name in ("fig-cifar100", "fig-stl10")
    }
    assert nets == {"fig-cifar100": "wrn-28-8", "fig-stl10": "wrn-37-2"}
    assert plan(find("fig-svhn"), "full", Path("paper")).runs[0].recipe.data.protocol == "paper"
    for name in ("fig-losses", "fig-tsne", "table-runtime"):
        assert {r.fold for r in plan(find(name), "full", Path("paper")).runs} == {1}


def test_short_is_shorter_and_ends_at_zero():
    (fix, best) = plan(find("fig-losses"), "short", Path("paper")).runs
    assert best.recipe.train.steps == 4_000 == DEFAULT_STEPS["short"]
    assert (best.recipe.train.schedule, best.recipe.train.ema_decay) == ("cosine", "auto")
    assert best.recipe.train.optimizer == "muon"
    assert (best.recipe.data.name, best.recipe.net.name, best.recipe.method.k) == ("cifar10", "wrn-28-2", 3)
    assert fix.recipe.augment == best.recipe.augment
    assert plan(find("fig-losses"), "short", Path("paper"), steps=500).runs[0].recipe.train.evaluate_every == 25
    nine = plan(find("fig-cifar10"), "short", Path("paper")).runs
    mixed = next(r.recipe for r in nine if r.label == "ReMixMatch")
    assert (mixed.augment.policy, mixed.method.k) == ("cta", 8)
    with pytest.raises(UsageError, match="--budget short --steps 500"):
        plan(find("fig-k"), "full", Path("paper"), steps=500)


def test_equal_recipes_share_a_folder_and_others_do_not():
    folders, recipes = set(), set()
    for budget in ("smoke", "short", "full"):
        for target in TARGETS.values():
            for planned in plan(target, budget, Path("paper"), folds=[1, 2]).runs:
                folders.add(planned.folder)
                recipes.add(planned.recipe.to_json())
    assert len(folders) == len(recipes)
    (fix, anchoring, best) = plan(find("fig-anchoring"), "short", Path("paper"), data="cifar10", labels=[4000]).runs
    assert {fix.folder, best.folder} == {r.folder for r in plan(find("fig-losses"), "short", Path("paper")).runs}
    on_gpu = plan(find("fig-losses"), "short", Path("paper"), device="cuda").runs
    assert [r.folder for r in on_gpu] == [fix.folder, best.folder]
    assert run_name(best.recipe) != run_name(plan(find("fig-losses"), "short", Path("paper"), steps=9).runs[1].recipe)
    assert anchoring.recipe.method.over.name == "mean"


def test_a_published_number_beside_ours_shows_steps_and_n(hand_made):
    made = hand_made("fig-k", lambda method, labels, fold: float(method[-1]) + labels / 1000)
    page = made[".md"]
    ours = table_row(page, "250", "K = 1")
    assert ours[2:5] == ["1.25", "1", "4,000"]  # one fold: no deviation, least of all one of 0
    assert ours[7:] == ["5.07 ± 0.65", "5", "1,048,576", "FixMatch (Sohn et al., 2020), Table 2"]
    assert table_row(page, "250", "K = 3")[7] == "no number printed"
    assert table_row(page, "K = 3 is best at 250 labels")[1:] == [
        "**not held**", "K = 3 - K = 1: +2.00 (n = 1: one pair of runs); K = 3 - K = 5: -2.00 (n = 1: one pair of runs); "
        "K = 3 - K = 7: -4.00 (n = 1: one pair of runs)",
    ]  # fmt: skip
    assert table_row(page, "steps of each run")[1:] == ["4,000", "1,048,576"]
    assert table_row(page, "n, folds")[1:] == ["1", "5"]
    assert "0.38 % of the paper's 1,048,576" in page
    assert "SMOKE" not in page + made[".svg"]
    assert "4,000 steps" in made[".svg"]
    assert "n = 1 fold" in made[".svg"]


def test_folds_give_mean_and_deviation(hand_made):
    values = {1: 3.0, 2: 4.0, 3: 8.0}
    made = hand_made("fig-svhn", lambda method, labels, fold: values[fold] + (method == "FixMatch"), folds=[1, 2, 3])
    expected = f"{np.mean(list(values.values())):.2f} ± {np.std(list(values.values())):.2f}"
    row = table_row(made[".md"], "40", "MaxMatch")
    assert row[2:4] == [expected, "3"]
    assert row[7] == "1.75 ± 0.09"
    assert table_row(made[".md"], "40", "UDA")[7] == "52.63 [R]"
    assert "[R]: recalled" in made[".md"]
    assert table_row(made[".md"], "MaxMatch is below FixMatch at 40 labels")[1] == "**held**"
    assert (
        table_row(made[".md"], "MaxMatch spreads less over the folds than FixMatch at 40 labels")[1] == "**not held**"
    )
    (line,) = [r for r in csv.DictReader(made[".csv"].splitlines()) if (r["labels"], r["method"]) == ("40", "MaxMatch")]
    assert float(line["error"]) == pytest.approx(5.0)
    assert float(line["std"]) == pytest.approx(math.sqrt(14 / 3))
    assert (line["n"], line["published"], line["published_steps"]) == ("3", "1.75", str(2**20))
    assert len(list(csv.DictReader(made["runs"].splitlines()))) == 3 * 9 * 3


def test_another_data_set_is_said_and_published_numbers_stand_apart(hand_made):
    made = hand_made("table-augment", lambda method, labels, fold: float(len(method)), data="cifar10", labels=[250])
    page = made[".md"]
    assert "**Another data set than the paper's: this was run on cifar10, Table 3 of the paper is on svhn." in page
    assert len(table_row(page, "250", "FixMatch (RA)")) == 7  # no published columns beside ours
    assert table_row(page, "svhn@250", "FixMatch (RA)")[2] == "2.48 ± 0.38"
    assert page.index("not comparable") < page.index("svhn@250 | FixMatch (RA)")
    assert table_row(page, "FixMatch: RandAugment is below CTAugment at 250 labels")[1] == "**held**"
    assert "Judged on cifar10, not on the paper's svhn." in page
    assert "here on cifar10" in made[".svg"]
    assert "published" not in made[".svg"]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("fig-cifar10", {"folds": [1, 2]}),
        ("fig-stl10", {}),
        ("fig-k", {"folds": [1, 2]}),
        ("fig-anchoring", {"data": "cifar10"}),
        ("table-augment", {"data": "cifar10", "labels": [250]}),
        ("table-runtime", {}),
        ("table-imagenet", {}),
        ("table-imagenet-lr", {"data": "cifar10"}),
    ],
)
def test_no_word_of_a_figure_is_cut_off(monkeypatch, tmp_path, name, asked):
    monkeypatch.setattr(found, "find_result", lambda run: result(run, 90.0 + run.fold))
    with styled():
        figure = draw(found.collect(plan(find(name), "short", tmp_path, **asked), {}, {}))
        FigureCanvasAgg(figure).draw()
        ticks = [(tick, axis) for a in figure.axes for axis in (a.xaxis, a.yaxis) for tick in axis.get_major_ticks()]
        beyond = [
            t.label1
            for t, axis in ticks
            if not min(axis.get_view_interval()) <= t.get_loc() <= max(axis.get_view_interval())
        ]
        for text in figure.findobj(Text):
            if text.get_text() and text.get_visible() and text not in beyond:  # beyond the axis: not drawn
                box = text.get_window_extent()
                assert box.x0 >= -1, text
                assert box.y0 >= -1, text
                assert box.x1 <= figure.bbox.x1 + 1, text
                assert box.y1 <= figure.bbox.y1 + 1, text


def test_recalled_numbers_are_marked_in_the_figure(hand_made):
    assert "× such a number recalled" in " ".join(
        re.findall(r">([^<]+)</text>", hand_made("fig-svhn", lambda *_: 5.0)[".svg"])
    )
    made = hand_made("fig-anchoring", lambda *_: 5.0)[".svg"]
    assert "◇ published" in made
    assert "recalled" not in made


def test_a_page_that_is_not_whole_says_so(hand_made):
    made = hand_made("fig-anchoring", lambda method, labels, fold: None if method == "MaxMatch" else 5.0)
    assert "3 of 9 runs are missing (0 failed)" in made[".md"]
    assert table_row(made[".md"], "40", "MaxMatch")[2:4] == ["-", "0"]
    assert table_row(made[".md"], "MaxMatch is below FixMatch+Anchoring at 40 labels")[1] == "**not tested**"


def test_hours_an_epoch_come_from_steps_a_second(hand_made):
    made = hand_made("table-runtime", lambda method, labels, fold: 5.0)
    rows = list(csv.DictReader(made[".csv"].splitlines()))
    ours = {r["method"]: float(r["hours_an_epoch"]) for r in rows if r["who"] == "ours"}
    assert ours == pytest.approx({"FixMatch": 1024 / 100 / 3600, "MaxMatch": 1024 / 100 / 3600})
    printed = {(r["data"], r["method"]): float(r["hours_an_epoch"]) for r in rows if r["who"] == "published"}
    assert printed["cifar10", "MaxMatch"] == 0.147
    assert table_row(made[".md"], "MaxMatch (K = 3) is slower than FixMatch")[1] == "**not held**"


def test_losses_are_means_over_the_folds_at_the_steps_that_all_have(monkeypatch):
    logs = {"a": {1: 1.0, 2: 2.0, 3: 9.0}, "b": {1: 3.0, 3: 5.0}, "c": {1: 8.0, 2: 1.0, 3: 4.0}}

    def logged(folder: Path) -> dict[int, dict[str, float]]:
        return {step: {"supervised_loss": at, "unlabeled_loss": 10 * at, "unlabeled_loss_min": 0.0}
                for step, at in logs[folder.name].items()}  # fmt: skip

    monkeypatch.setattr(found, "_logged", logged)
    rows = [{"method": name, "folder": run} for run, name in (("a", "FixMatch"), ("b", "FixMatch"), ("c", "MaxMatch"))]
    steps, curves = found.loss_curves(SimpleNamespace(finished=rows, wanted=SimpleNamespace(out=Path("x"))))
    assert steps == [1, 3]
    assert (curves["FixMatch-L"], curves["FixMatch-U"]) == ([2.0, 7.0], [20.0, 70.0])
    assert (curves["MaxMatch-L"], curves["MaxMatch-U-min"]) == ([8.0, 4.0], [0.0, 0.0])


def test_hours_are_of_the_mean_speed_over_the_folds():
    speeds = {"FixMatch": (50.0, 150.0), "MaxMatch": (40.0, 60.0)}
    rows = [{"method": method, "steps_per_second": speed} for method, pair in speeds.items() for speed in pair]
    hours = found.hours_an_epoch(SimpleNamespace(finished=rows))
    assert hours == pytest.approx({"FixMatch": 1024 / 100 / 3600, "MaxMatch": 1024 / 50 / 3600})


def test_published_errors_fall_with_more_labels():
    by_method: dict[tuple[str, str], dict[int, float]] = {}
    for (data, count, method), number in ERRORS.items():
        by_method.setdefault((data, method), {})[count] = number.mean
    assert sum(len(errors) > 1 for errors in by_method.values()) > 20
    for name, errors in by_method.items():
        falling = [errors[count] for count in sorted(errors)]
        assert all(more <= few + 0.1 for few, more in pairwise(falling)), name  # MaxMatch on SVHN: 1.92, 1.97, 1.89


def test_every_recalled_number_is_marked_and_every_number_has_a_source():
    assert len(ERRORS) == 3 * 7 + 4 * 10 + 2 * 3 + 10
    assert all(number.source for number in ERRORS.values())
    recalled = {key for key, number in ERRORS.items() if number.recalled}
    assert ("cifar10", 250, "Mean Teacher") in recalled
    assert ("cifar10", 40, "MixMatch") not in recalled
    assert str(ERRORS["cifar100", 400, "MixMatch"]) == "67.61 [R]"


def test_list_names_all_and_so_does_the_page_in_docs(capsys):
    assert run(["paper", "list"]) == 0
    listed, page = capsys.readouterr().out, (ROOT / "docs" / "paper" / "README.md").read_text()
    for target in TARGETS.values():
        assert f" {target.name} " in listed
        assert f"| `{target.name}` | {target.where} |" in page
    assert run(["paper", "list", "fig-k"]) == 0
    assert "K = 1, 3, 5, 7" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_pairs_of_the_drawing_by_brute_force():
    generator = np.random.default_rng(0)
    images, labels = generator.random((30, 5)), generator.integers(0, 3, 30)
    pairs = [(i, j) for i in range(30) for j in range(30) if i != j]
    apart = {pair: np.linalg.norm(images[pair[0]] - images[pair[1]]) for pair in pairs}
    near = min(apart[i, j] for i, j in pairs if labels[i] != labels[j])
    far = max(apart[i, j] for i, j in pairs if labels[i] == labels[j])
    assert apart[nearest_strangers(images, labels)] == pytest.approx(near)
    assert apart[distant_relatives(images, labels)] == pytest.approx(far)


def test_smoke_sets_no_threshold_where_there_is_none():
    assert "method" not in settings("smoke", 10, "supervised")
    assert settings("smoke", 10, "maxmatch")["method"] == {"threshold": 0.2}


def test_the_page_of_targets_says_what_list_says():
    page = (Path(__file__).parents[2] / "docs" / "paper" / "README.md").read_text()
    for target in TARGETS.values():
        assert f"| `{target.name}` | {target.where} | {target.title}: {target.setting}. |" in page

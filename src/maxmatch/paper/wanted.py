"""From a target and a budget to its runs: one recipe and one folder each. Equal recipes are one run, in all targets."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maxmatch.benchmark.wanted import Planned, folder_name
from maxmatch.data import DATASETS
from maxmatch.errors import UsageError, unknown
from maxmatch.methods import method_name
from maxmatch.paper import budgets
from maxmatch.paper.budgets import Budget
from maxmatch.paper.targets import Arm, Target
from maxmatch.settings import overlay, plain
from maxmatch.train.imagenet import FINETUNE
from maxmatch.train.recipe import Recipe
from maxmatch.train.recipes import compose
from maxmatch.train.resume import saved_recipe


@dataclass(frozen=True)
class Panel:
    """One number of labels: the paper's, that of our runs, the runs themselves, fold by fold, and those before them."""

    labels: int | str
    shown: int | str
    runs: tuple[Planned, ...]
    before: tuple[Planned, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """All that a target is to be run with."""

    target: Target
    budget: Budget
    data: str
    steps: int
    folds: tuple[int, ...]
    panels: tuple[Panel, ...]
    out: Path
    command: str

    @property
    def same_data(self) -> bool:
        """Whether it runs on the data set of the paper: only then does a published number stand beside ours."""
        return self.data == self.target.data

    @property
    def stem(self) -> Path:
        """Where its files go, without their endings."""
        words = [self.target.name]
        if self.target.trains:
            words += [self.budget] + ([] if self.same_data or self.budget == "smoke" else [self.data])
            labels = tuple(panel.labels for panel in self.panels)
            words += [] if labels == self.target.labels else [str(count) for count in labels]
            usual = budgets.default_steps(self.budget, self.target.steps)
            words += [] if self.steps == usual else [f"{self.steps}-steps"]
        return self.out / "-".join(words)

    @property
    def before(self) -> list[Planned]:
        """The pretrainings that some runs start from, each once."""
        return list({run.folder: run for panel in self.panels for run in panel.before}.values())

    @property
    def runs(self) -> list[Planned]:
        """Each run once, those of one fold beside one another."""
        found = {run.folder: run for panel in self.panels for run in panel.runs}
        return list(found.values())


def plan(
    target: Target,
    budget: Budget,
    out: Path,
    *,
    data: str | None = None,
    labels: Sequence[int] | None = None,
    steps: int | None = None,
    folds: Sequence[int] | None = None,
    device: str | None = None,
) -> Wanted:
    """The runs of a target. `data` and `labels` stand in for the paper's own."""
    if data is not None and data not in DATASETS:
        raise UsageError(unknown("data set", data, DATASETS))
    steps = budgets.find_steps(budget, steps, target.steps)
    chosen = data or (budgets.SMOKE_DATA if budget == "smoke" else target.data)
    numbers = tuple(folds or budgets.folds(budget, target.folds))
    if labels is not None and len(labels) > 1 and target.trains and len(target.labels) == 1 and target.kind != "bars":
        raise UsageError(f"--labels: {target.name} has one number of labels; type --labels {labels[0]}")
    panels = []
    for count in (labels or target.labels) if target.trains else ():
        shown = budgets.labels_for(budget, count, chosen) if labels is None else count
        made = [
            _planned(arm, fold, budget, chosen, shown, steps, device, out, target.data == "imagenet")
            for fold in numbers
            for arm in target.arms
        ]
        before = tuple(start for start, _ in made if start is not None)
        panels.append(Panel(count, shown, tuple(run for _, run in made), before))
    asked = {"data": data, "labels": labels and ",".join(map(str, labels)), "steps": steps, "device": device}
    asked |= {"folds": folds and ",".join(map(str, folds)) + ","[: len(folds) == 1]}
    if steps == budgets.default_steps(budget, target.steps):
        del asked["steps"]
    return Wanted(target, budget, chosen, steps, numbers, tuple(panels), out, command(target.name, budget, asked, out))


def command(name: str, budget: str, asked: Mapping[str, object], out: Path) -> str:
    """What to type for the same again."""
    words = [word for key, value in asked.items() if value is not None for word in (f"--{key}", str(value))]
    place = [] if out == Path("paper") else ["--out", str(out)]
    return shlex.join(["maxmatch", "paper", "run", name, "--budget", budget, *words, *place])


def _planned(
    arm: Arm,
    fold: int,
    budget: Budget,
    data: str,
    labels: int | str,
    steps: int,
    device: str | None,
    out: Path,
    curves: bool,
) -> tuple[Planned | None, Planned]:
    """The pretraining that a run starts from, if it does, and the run.

    With `curves` a smoke run is evaluated twice, so that there is a line to draw.
    """
    protocol = {"protocol": "paper"} if data in ("svhn", "stl10") else {}
    given: dict[str, dict[str, Any]] = overlay(
        budgets.settings(budget, steps, arm.method, data),
        {"train": {"evaluate_every": max(1, steps // 2)}} if curves and budget == "smoke" else {},
        {"data": {"labels": labels, **protocol}, "train": {"seed": fold, "fold": fold}},
        arm.settings,
        {"train": FINETUNE} if arm.finetuned else {},
        {"train": {"device": device}} if device else {},
    )
    config = "imagenet-finetune" if arm.finetuned and data == "imagenet" else None
    recipe = compose(data, arm.method, config=config, given=given)
    start = _pretraining(recipe, fold, budget, steps, out) if arm.pretrained else None
    if start is not None:
        recipe = replace(recipe, train=replace(recipe.train, init=str(start.folder)))
    on = f"{data}@{labels}"
    folder = _folder(out, budget, on, recipe, fold)
    if start is not None and (folder / "recipe.json").exists():  # the folders may have been moved since
        begun = replace(recipe.train, init=saved_recipe(folder).train.init)
        recipe = replace(recipe, train=begun)
    return start, Planned(arm.label, fold, recipe, folder, on)


def _pretraining(recipe: Recipe, fold: int, budget: Budget, steps: int, out: Path) -> Planned:
    """MoCo v2 for the net and the data of a recipe; in `full` as long as its own recipe is."""
    short = {"steps": steps, "checkpoint_every": max(1, steps // 8), "log_every": max(1, steps // 100)}
    own = {"data": {"side": recipe.data.side, "canvas": recipe.data.canvas}} if recipe.data.name == "imagenet" else {}
    given: dict[str, dict[str, Any]] = overlay(
        {"net": {"name": recipe.net.name}, "train": {"seed": fold, "device": recipe.train.device}},
        own,
        {} if budget == "full" else {"train": short},
        {"train": {"batch": 16}} if budget == "smoke" else {},
    )
    made = compose(recipe.data.name, "moco", given=given)
    return Planned("MoCo v2", fold, made, _folder(out, budget, recipe.data.name, made, fold))


def _folder(out: Path, budget: Budget, data: str, recipe: Recipe, fold: int) -> Path:
    return out / "runs" / budget / data / run_name(recipe) / f"fold-{fold}"


def run_name(recipe: Recipe) -> str:
    """A folder's name that equal recipes share and unequal ones do not; folds and devices are left out of it.

    Of a pretraining that it starts from the same is said: its name, not where it lies.
    """
    start = recipe.train.init and Path(recipe.train.init).parent.name
    same = replace(recipe, train=replace(recipe.train, seed=0, fold=0, device="auto", init=start))
    k = plain(getattr(recipe.method, "k", None))
    words = [method_name(recipe.method), *([f"k={k}"] if k is not None else []), recipe.augment.policy]
    return folder_name("-".join([*words, same.sha256()[:8]]))

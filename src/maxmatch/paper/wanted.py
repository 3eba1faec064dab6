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
from maxmatch.settings import plain
from maxmatch.train.recipe import Recipe
from maxmatch.train.recipes import compose, overlay


@dataclass(frozen=True)
class Panel:
    """One number of labels: the paper's, that of our runs, and the runs themselves, fold by fold."""

    labels: int | str
    shown: int | str
    runs: tuple[Planned, ...]


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
        return self.out / "-".join(words)

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
        runs = [
            _planned(arm, fold, budget, chosen, shown, steps, device, out, target.data == "imagenet")
            for fold in numbers
            for arm in target.runnable
        ]
        panels.append(Panel(count, shown, tuple(runs)))
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
) -> Planned:
    """One run; with `curves` a smoke run is evaluated twice, so that there is a line to draw."""
    protocol = {"protocol": "paper"} if data in ("svhn", "stl10") else {}
    given: dict[str, dict[str, Any]] = overlay(
        budgets.settings(budget, steps, arm.method, data),
        {"train": {"evaluate_every": max(1, steps // 2)}} if curves and budget == "smoke" else {},
        {"data": {"labels": labels, **protocol}, "train": {"seed": fold, "fold": fold}},
        arm.settings,
        {"train": {"device": device}} if device else {},
    )
    recipe = compose(data, arm.method, given=given)
    place = out / "runs" / budget / f"{data}@{labels}" / run_name(recipe) / f"fold-{fold}"
    return Planned(arm.label, fold, recipe, place)


def run_name(recipe: Recipe) -> str:
    """A folder's name that equal recipes share and unequal ones do not; folds and devices are left out of it."""
    same = replace(recipe, train=replace(recipe.train, seed=0, fold=0, device="auto"))
    k = plain(getattr(recipe.method, "k", None))
    words = [method_name(recipe.method), *([f"k={k}"] if k is not None else []), recipe.augment.policy]
    return folder_name("-".join([*words, same.sha256()[:8]]))

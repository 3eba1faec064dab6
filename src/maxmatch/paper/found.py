"""What the runs of a target found, read from their folders: one row a run, one row a method, and loss curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from maxmatch.benchmark.figures import Row, table
from maxmatch.benchmark.report import row_of
from maxmatch.benchmark.runs import find_result
from maxmatch.paper.orderings import Curves, Errors
from maxmatch.paper.published import EPOCH, ERRORS, IMAGENET_ERRORS, RUNTIME, Number
from maxmatch.paper.targets import Arm
from maxmatch.paper.wanted import Panel, Wanted
from maxmatch.train.log import read_metrics

OF_RUN = ("k", "over", "strategy", "net")
SOURCES = {"L": "supervised_loss", "U": "unlabeled_loss", "U-min": "unlabeled_loss_min"}


@dataclass(frozen=True)
class Found:
    """The rows of all runs, with the paper's number of labels in `labels` and that of the run in `shown`."""

    wanted: Wanted
    rows: tuple[Row, ...]

    def of_panel(self, panel: Panel) -> list[Row]:
        return [row for row in self.rows if row["labels"] == panel.labels]

    @property
    def finished(self) -> list[Row]:
        return [row for row in self.rows if row["state"] == "finished"]

    @property
    def errors(self) -> Errors:
        """The last error of every finished run, by the paper's labels, the method and the fold."""
        return self.figures("last")

    def figures(self, name: str) -> Errors:
        """Another figure of the runs in the same way."""
        found: dict[tuple[int | str, str], dict[int, float]] = {}
        for row in self.finished:
            if row[name] is not None:
                found.setdefault((row["labels"], row["method"]), {})[row["fold"]] = row[name]
        return found

    @property
    def most_folds(self) -> int:
        return max((len(folds) for folds in self.errors.values()), default=0)


def collect(wanted: Wanted, failed: Mapping[Path, str], commits: Mapping[str, str | None]) -> Found:
    """Read every run of a target; `failed` and `commits` say what a folder does not."""
    rows = []
    for panel in wanted.panels:
        for run in panel.runs:
            result = find_result(run)
            why = failed.get(run.folder)
            row = row_of(run, wanted.out, "finished" if result else "failed" if why else "unfinished", result)
            more = {name: (result or {}).get(name) for name in OF_RUN}
            more |= {"policy": run.recipe.augment.policy, "failed": why, "commit": commits.get(row["folder"])}
            rows.append({"data": wanted.data, "labels": panel.labels, "shown": panel.shown, **row, **more})
    return Found(wanted, tuple(rows))


def summary(found: Found) -> list[Row]:
    """One row a method and number of labels: ours over the folds, and the published number where there is one."""
    made = []
    for panel in found.wanted.panels:
        rows = found.of_panel(panel)
        for figures in table(rows)["methods"]:
            arm = next(arm for arm in found.wanted.target.arms if arm.label == figures["method"])
            one = next((row for row in rows if row["method"] == arm.label and row["state"] == "finished"), {})
            made.append(_row(found.wanted, panel, arm, figures, one))
    return made


def _row(wanted: Wanted, panel: Panel, arm: Arm, figures: Row, one: Mapping[str, Any]) -> Row:
    shows_errors = wanted.target.kind in ("bars", "k") and isinstance(panel.labels, int)
    printed = ERRORS.get((wanted.target.data, int(panel.labels), arm.published)) if shows_errors else None
    top5: Number | None = None
    if wanted.target.kind == "imagenet":
        printed, top5 = IMAGENET_ERRORS[arm.published]
    return {
        "data": wanted.data,
        "labels": panel.shown,
        "method": arm.label,
        **{name: one.get(name) for name in (*OF_RUN, "policy", "device")},
        "steps": one.get("steps") or (wanted.budget == "full" and wanted.same_data and arm.steps) or wanted.steps,
        "n": figures["last"]["n"],
        "error": figures["last"]["mean"],
        "std": figures["last"]["std"],
        "median20": figures["median20"]["mean"],
        "best": figures["best"]["mean"],
        "top5_error": figures["top5_error"]["mean"],
        "robust_error": figures["robust_error"]["mean"],
        "steps_per_second": figures["steps_per_second"]["mean"],
        **_published(wanted, panel, arm, printed),
        "published_top5": top5.mean if top5 else None,
    }


def _published(wanted: Wanted, panel: Panel, arm: Arm, printed: Number | None) -> Row:
    same = wanted.same_data and wanted.budget != "smoke"
    return {
        "published_data": wanted.target.data,
        "published_labels": panel.labels,
        "published": printed.mean if printed else None,
        "published_std": printed.std if printed else None,
        "published_steps": (arm.steps or wanted.target.steps) if printed else None,
        "published_n": wanted.target.folds if printed else None,
        "published_source": printed.source if printed else None,
        "published_recalled": printed.recalled if printed else None,
        "same_data": same,
    }


def loss_curves(found: Found) -> tuple[list[int], Curves]:
    """Steps and the losses by the paper's names, each the mean over the folds, at the steps that all have."""
    logs = [(row["method"], _logged(found.wanted.out / row["folder"])) for row in found.finished]
    steps = sorted(set.intersection(*(set(log) for _, log in logs))) if logs else []
    curves: dict[str, list[float]] = {}
    for name in ("FixMatch-L", "FixMatch-U", "MaxMatch-L", "MaxMatch-U", "MaxMatch-U-min"):
        method, _, loss = name.partition("-")
        of_method = [log for label, log in logs if label == method]
        if of_method:
            curves[name] = [mean(log[step][SOURCES[loss]] for log in of_method) for step in steps]
    return steps, curves


def _logged(folder: Path) -> dict[int, dict[str, float]]:
    return {line["step"]: line for line in read_metrics(folder / "metrics.jsonl") if line["kind"] == "train"}


def hours_an_epoch(found: Found) -> dict[str, float]:
    """Hours for 1,024 steps by method, from the steps/s of our runs, which leave compiling out."""
    speeds: dict[str, list[float]] = {}
    for row in found.finished:
        speeds.setdefault(row["method"], []).append(row["steps_per_second"])
    return {method: EPOCH / mean(values) / 3600 for method, values in speeds.items()}


def runtime_rows(found: Found) -> list[Row]:
    """Table 4: ours and the printed hours, each with its hardware; they are never the same one."""
    ours = hours_an_epoch(found)
    rows = []
    for row in summary(found):
        hours = ours.get(row["method"])
        rows.append({"who": "ours", "data": row["data"], "method": row["method"], "strategy": row["strategy"],
                     "hardware": row["device"], "n": row["n"], "steps_per_second": row["steps_per_second"],
                     "hours_an_epoch": hours})  # fmt: skip
    for (data, method), printed in RUNTIME.items():
        hardware = "one RTX 3090" if data == "cifar10" else "eight RTX 3090, summed"
        rows.append({"who": "published", "data": data, "method": method, "strategy": None, "hardware": hardware,
                     "n": None, "steps_per_second": None, "hours_an_epoch": printed})  # fmt: skip
    return rows

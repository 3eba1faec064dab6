"""What a benchmark found, to be kept and to be read: benchmark.json, benchmark.csv, and two tables."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from maxmatch.bench.origin import commit, hardware, versions
from maxmatch.benchmark.figures import ERRORS, Row, table
from maxmatch.benchmark.wanted import Planned
from maxmatch.files import write_safely
from maxmatch.train.pictures import title

FROM_RESULT = (
    "top5_error", "robust_error", "robust_error_paper", "steps", "seconds", "steps_per_second", "device", "threads",
    "recipe_sha256",
)  # fmt: skip
HEADS = {"last": "last", "median20": "median20", "best": "best", "robust_error": "robust error"}


class Record:
    """The record of a benchmark: one row a run, and how all came about."""

    def __init__(self, folder: Path, runs: list[Planned], command: str) -> None:
        self.folder = folder
        self._commit = commit()
        self._before = {(row["method"], row["fold"]): row for row in read_rows(folder / "benchmark.json")}
        named = {(run.label, run.fold) for run in runs}
        self._others = [row for key, row in self._before.items() if key not in named]
        self._rows = {run: self._row(run, "unfinished") for run in runs}
        first = runs[0].recipe
        self._origin: Row = {
            "command": command,
            "commit": self._commit,
            "versions": versions(),
            "hardware": hardware(),
            "dataset": title(first.data),
            "labels": first.data.labels,
            "methods": {run.label: run.recipe.to_dict()["method"] for run in runs},
            "folds": list(dict.fromkeys(run.fold for run in runs)),
        }

    def found(self, run: Planned, result: dict[str, Any]) -> None:
        """A run that was finished before; its commit is known if a benchmark had noted it."""
        before = self._before.get((run.label, run.fold), {})
        known = before.get("commit") if before.get("recipe_sha256") == result["recipe_sha256"] else None
        self._rows[run] = self._row(run, "finished", result) | {"commit": known}

    def ended(self, run: Planned, result: dict[str, Any] | None, failed: str | None) -> None:
        row = self._row(run, "failed" if result is None else "finished", result or {})
        self._rows[run] = row | {"failed": failed, "commit": self._commit}

    @property
    def runs(self) -> list[Planned]:
        return list(self._rows)

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def to_dict(self) -> dict[str, Any]:
        """`others` are runs of the folder that this benchmark does not name: how they came about is kept."""
        others = {"others": self._others} if self._others else {}
        return {**self._origin, "runs": self.rows, "table": table(self.rows), **others}

    def save(self) -> None:
        """Both files, each of them whole at any time."""
        write_safely(self.folder / "benchmark.json", (json.dumps(self.to_dict(), indent=1) + "\n").encode())
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_safely(self.folder / "benchmark.csv", text.getvalue().encode())

    def _row(self, run: Planned, state: str, result: dict[str, Any] | None = None) -> Row:
        return row_of(run, self.folder, state, result)


def row_of(run: Planned, folder: Path, state: str, result: dict[str, Any] | None = None) -> Row:
    """A run as a row: what it was, how it ended, what it found; its place is given from `folder`."""
    result = result or {}
    errors = result.get("error", {})
    return {
        "method": run.label,
        "fold": run.fold,
        "seed": run.recipe.train.seed,
        "state": state,
        **{name: errors.get(name) for name in ("last", "median20", "best")},
        **{name: result.get(name) for name in FROM_RESULT},
        "folder": run.folder.relative_to(folder).as_posix(),
        "failed": None,
        "commit": None,
    }


def read_rows(path: Path) -> list[Row]:
    """The rows of an earlier benchmark.json, with the runs that it did not name; none where there is no sound one."""
    try:
        found = json.loads(path.read_text())
        return [row for row in [*found["runs"], *found.get("others", [])] if {"method", "fold"} <= set(row)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def page(found: dict[str, Any]) -> list[str | Table]:
    """The record to be read: the methods beside one another, and their differences to the first."""
    methods, paired = found["table"]["methods"], found["table"]["paired"]
    finished = sum(row["state"] == "finished" for row in found["runs"])
    title = f"{found['dataset']}@{found['labels']}, {finished} of {len(found['runs'])} runs: error in percent, mean"
    main = _table("method", "n", *HEADS.values(), "steps/s")
    for row in methods:
        speed = row["steps_per_second"]["mean"]
        cells = [_both(row[name]["mean"], row[name]["std"]) for name in ERRORS]
        main.add_row(row["method"], str(row["n"]), *cells, "-" if speed is None else f"{speed:.3g}")
    made: list[str | Table] = [f"{title} +- standard deviation over folds", main]
    top5 = [f"{row['method']} {row['top5_error']['mean']:.2f}" for row in methods if row["top5_error"]["n"]]
    made += [f"top-5 error of the last evaluation, mean: {', '.join(top5)}"] if top5 else []  # a column too many
    if paired:
        against = _table("method", "n", *HEADS.values(), "lower")
        for row in paired:
            cells = [_both(row[name]["mean"], row[name]["standard_error"], "+") for name in ERRORS]
            lower = f"{row['last']['better']}/{row['last']['n']}" if row["last"]["n"] else "-"
            against.add_row(row["method"], str(row["n"]), *cells, lower)
        words = "mean +- standard error; lower: folds whose last is lower"
        made += ["", f"minus {methods[0]['method']} on the same fold: {words}", against]
    return [*made, "", "best is picked by the test set: compare last or median20"]


def _both(mean: float | None, deviation: float | None, sign: str = "") -> str:
    """`5.32 +- 1.20`, with a dash for what there is not."""
    if mean is None:
        return "-"
    return f"{mean:{sign}.2f} +- {'-' if deviation is None else f'{deviation:.2f}'}"


def _table(*heads: str) -> Table:
    made = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)  # narrow: six figures fit into 80 columns
    made.add_column(heads[0], overflow="fold")
    for head in heads[1:]:
        made.add_column(head, justify="right", no_wrap=True)
    return made

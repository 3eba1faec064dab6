"""From the words of `maxmatch benchmark` to its runs, its tables and its record."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from maxmatch.benchmark.report import Record, page
from maxmatch.benchmark.runs import (
    Outcome,
    Stopped,
    check,
    find_result,
    is_begun,
    refuse_other_pictures,
    refuse_unfinished_start,
    run_all,
)
from maxmatch.benchmark.wanted import Planned
from maxmatch.errors import Interrupted, UsageError, UserError, tell
from maxmatch.files import alone_in, refuse_other_things


def run_benchmark(
    folder: Path,
    runs: list[Planned],
    command: str,
    jobs: int = 1,
    only_table: bool = False,
    as_json: bool = False,
) -> None:
    """Do the runs that are left, keep the record after each, and show it. `command` goes on with the benchmark."""
    if is_begun(Planned("", 0, runs[0].recipe, folder)):
        raise UsageError(f"{folder} holds a run, not a benchmark: give another --out")
    try:
        results = {run: find_result(run) for run in runs}  # a run begun with other settings is refused here
    except UsageError as error:
        if only_table:
            raise UsageError(f"{error}; for the table alone: maxmatch benchmark --only-table --out {folder}") from None
        raise
    refuse_other_pictures(runs)
    if not any(result is not None or is_begun(run) for run, result in results.items()):
        refuse_other_things(folder, {"benchmark.json"}, "benchmark")
    record = Record(folder, runs, command)
    for run, result in results.items():
        if result is not None:
            record.found(run, result)
    left = [run for run, result in results.items() if result is None]
    if only_table:
        if len(left) == len(runs):
            raise UserError(f"no run of this benchmark is finished in {folder}: type it without --only-table")
    else:
        if left:
            refuse_unfinished_start(left)
            check(left)
            _tell_of_folds(runs)
        folder.mkdir(parents=True, exist_ok=True)
        with alone_in(folder):
            _do(left, record, command, jobs)
    _show(record.to_dict(), as_json)
    failed = sum(row["state"] == "failed" for row in record.rows)
    if failed:
        raise UserError(f"{failed} of {len(runs)} runs failed, see above; to try them again, type {command}")


def _tell_of_folds(runs: Sequence[Planned]) -> None:
    """Folds are labelled sets, but where all labels are shown there is only one."""
    data = runs[0].recipe.data
    if data.labels == "all" and data.of_pictures and len({run.fold for run in runs}) > 1:
        shown = f"folds have the same labelled pictures and differ in their seed alone; {data.path}@N shows N labels"
        tell(f"all labels are shown: {shown}, others in each fold")


def show_saved(folder: Path, as_json: bool = False) -> None:
    """The tables of a benchmark as its record has them, without a word on what it was begun with."""
    try:
        found = json.loads((folder / "benchmark.json").read_text())
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or not {"table", "runs"} <= set(found):
        raise UsageError(f"{folder} holds no record of a benchmark: give its folder as --out")
    _show(found, as_json)


def _do(left: list[Planned], record: Record, command: str, jobs: int) -> None:
    record.save()  # a folder that can't be written is refused before anything is trained

    def note(run: Planned, outcome: Outcome) -> None:
        record.ended(run, outcome.result, outcome.failed)
        record.save()

    train_left(left, record.runs, note, command, jobs)


def train_left(
    left: Sequence[Planned],
    runs: Sequence[Planned],
    note: Callable[[Planned, Outcome], None],
    command: str,
    jobs: int = 1,
) -> None:
    """Run what is left of `runs` and say so: which, how many are left, how it ended; `note` hears of each."""
    count = len(runs)
    if len(left) < count:
        tell(f"{count - len(left)} of {count} runs are finished already")
    ended: list[Planned] = []

    def begin(run: Planned) -> None:
        tell(f"{run}: {'goes on' if is_begun(run) else 'begins'} (run {runs.index(run) + 1} of {count})")

    def end(run: Planned, outcome: Outcome) -> None:
        ended.append(run)
        note(run, outcome)
        tell(f"{run}: {_tell(outcome)}; {len(left) - len(ended)} left")

    try:
        run_all(left, jobs, begin, end)
    except Stopped as stopped:
        done = count - len(left) + len(ended)
        lost = "; others go on from their last checkpoints" if stopped.at_once else ", nothing is lost"
        raise Interrupted(
            f"stopped with {done} of {count} runs ended{lost}: to go on, type {command}", stopped.number
        ) from None


def _tell(outcome: Outcome) -> str:
    if outcome.result is None:
        return f"failed: {' '.join(str(outcome.failed).split())}"
    error, seconds = outcome.result["error"]["last"], outcome.result["seconds"]
    told = "error not measured, there is no test set" if error is None else f"error {error:.2f} %"
    return f"{told}, {seconds:.0f} s"


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
        return
    console = Console(emoji=False, width=None if sys.stdout.isatty() else 120)
    for part in page(found):
        console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str))

"""Digits with 20 labels: FixMatch and MaxMatch, each with the best of the same changes to one recipe.

    python benchmarks/equal_search.py            about two hours on 2 cores

Every change is tried with either method on seeds 11 to 15, the best of each and what they make together on 11 to 20,
and what is lowest there is judged on seeds 1 to 10, which had no part in the choice, beside the recipe as it is. The
record is written after each of the three; a search that was cut off goes on from it, and from the file of `--rows`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from record import Record

METHODS = ("fixmatch", "maxmatch")
FIRST, SECOND, JUDGED = range(11, 16), range(11, 21), range(1, 11)
AS_IT_IS = "as it is"
Setting = dict[str, Any]  # "train.lr" to a value
CHANGES: dict[str, Setting] = {
    AS_IT_IS: {},
    "lr .1": {"train.lr": 0.1},
    "lr .2": {"train.lr": 0.2},
    "lr .8": {"train.lr": 0.8},
    "linear": {"train.schedule": "linear"},
    "cosine-7/16": {"train.schedule": "cosine-7/16"},
    "momentum .95": {"train.momentum": 0.95},
    "muon .02": {"train.optimizer": "muon", "train.lr": 0.02},
    "muon .05": {"train.optimizer": "muon", "train.lr": 0.05},
    "decay .0005": {"train.weight_decay": 0.0005},
    "decay .005": {"train.weight_decay": 0.005},
    "16 + 64": {"train.batch": 16},
    "64 + 256": {"train.batch": 64},
    "32 + 64": {"train.ratio": 2},
    "32 + 224": {"train.ratio": 7},
    "ema .99": {"train.ema_decay": 0.99},
    "threshold .7": {"method.threshold": 0.7},
    "threshold .8": {"method.threshold": 0.8},
    "threshold .9": {"method.threshold": 0.9},
    "threshold .98": {"method.threshold": 0.98},
    "weight .5": {"method.weight": 0.5},
    "weight 2": {"method.weight": 2.0},
    "ramp .4": {"method.ramp": 0.4},
    "align": {"method.align": True},
    "soft": {"method.target": "soft"},
    "one operation": {"augment.n": 1},
    "three operations": {"augment.n": 3},
    "no cutout": {"augment.cutout": 0},
    "fixmatch's views": {"augment.policy": "fixmatch-paper"},
}
Job = tuple[str, str, Setting, int, int]  # method, change, setting, labels, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, default=Path("runs/equal-search.jsonl"), help="every run so far")
    parser.add_argument("--jobs", type=int, default=2, help="processes, one thread each")
    given = parser.parse_args()
    given.rows.parent.mkdir(parents=True, exist_ok=True)
    record = Record("digits-equal-search")
    with multiprocessing.get_context("spawn").Pool(given.jobs) as workers:
        rows = Rows(given.rows, record.path, workers)
        rows.add((m, c, s, 20, seed) for m in METHODS for c, s in CHANGES.items() for seed in FIRST)
        say_changes(record, rows)
        candidates = {m: finalists(rows, m) for m in METHODS}
        rows.add((m, c, s, 20, seed) for m in METHODS for c, s in candidates[m].items() for seed in SECOND)
        say_finalists(record, rows, candidates)
        best = {m: rows.lowest(m, candidates[m]) for m in METHODS}
        wanted = {m: {AS_IT_IS: {}, best[m]: candidates[m][best[m]]} for m in METHODS}
        rows.add((m, c, s, n, seed) for m in METHODS for c, s in wanted[m].items() for n in (20, 40) for seed in JUDGED)
        say_judged(record, rows, best)


class Rows:
    """Every run that has ended, in a file that grows by a line each: a search that was cut off goes on."""

    def __init__(self, path: Path, record: Path, workers: Any) -> None:
        self.path, self.workers = path, workers
        before = json.loads(record.read_text())["results"] if record.exists() else []
        lines = path.read_text().splitlines() if path.exists() else []
        each = {_key(row): row for row in (*before, *map(json.loads, lines))}
        self.kept: list[dict[str, Any]] = list(each.values())

    def add(self, jobs: Iterable[Job]) -> None:
        """Train what has not been trained yet."""
        done = {_key(row) for row in self.kept}
        new = [job for job in jobs if (job[0], job[1], job[3], job[4]) not in done]
        for number, row in enumerate(self.workers.imap_unordered(run, new), 1):
            self.kept.append(row)
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{number}/{len(new)} {row['method']}, {row['change']}: {row['error']['last']:.2f} %", flush=True)

    def errors(self, method: str, change: str, labels: int, seeds: Sequence[int]) -> list[float]:
        """In percent, seed by seed."""
        found = {
            r["seed"]: r["error"]["last"]
            for r in self.kept
            if (r["method"], r["change"], r["labels"]) == (method, change, labels)
        }
        return [found[seed] for seed in seeds]

    def mean(self, method: str, change: str, labels: int, seeds: Sequence[int]) -> float:
        return statistics.mean(self.errors(method, change, labels, seeds))

    def lowest(self, method: str, candidates: Iterable[str]) -> str:
        return min(candidates, key=lambda change: self.mean(method, change, 20, SECOND))


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["method"], row["change"], row["labels"], row["seed"]


def run(job: Job) -> dict[str, Any]:
    """One training, without its folder."""
    import torch

    from maxmatch import compose, fit

    method, change, setting, labels, seed = job
    torch.set_num_threads(1)
    recipe = compose("digits", method, given=sections(setting, labels, seed))
    with tempfile.TemporaryDirectory() as folder:
        result = fit(recipe, folder, quiet=True)
    kept = ("error", "robust_error", "mask_rate", "pseudo_label_accuracy", "seconds", "recipe_sha256")
    row = {"method": method, "change": change, "setting": setting, "labels": labels, "seed": seed}
    return row | {name: result[name] for name in kept} | {"torch": torch.__version__}


def sections(setting: Setting, labels: int, seed: int) -> dict[str, dict[str, Any]]:
    """`train.lr = .1` and the like as `compose` takes them."""
    given: dict[str, dict[str, Any]] = {"data": {"labels": labels}, "train": {"seed": seed, "threads": 1}}
    for name, value in setting.items():
        section, _, field = name.partition(".")
        given.setdefault(section, {})[field] = value
    return given


def finalists(rows: Rows, method: str) -> dict[str, Setting]:
    """The recipe as it is, the eight best changes, and what the three best of different settings make together."""
    ranked = sorted(CHANGES, key=lambda change: rows.mean(method, change, 20, FIRST))
    best = [change for change in ranked if change != AS_IT_IS]
    found = {AS_IT_IS: CHANGES[AS_IT_IS]} | {change: CHANGES[change] for change in best[:8]}
    apart: list[str] = []
    for change in best:
        if len(apart) < 3 and not any(CHANGES[change].keys() & CHANGES[other].keys() for other in apart):
            apart.append(change)
    for many in (2, 3):
        for together in itertools.combinations(apart, many):
            found[" and ".join(together)] = {k: v for change in together for k, v in CHANGES[change].items()}
    return found


def say_changes(record: Record, rows: Rows) -> None:
    record.say(f"digits, 20 labels, error in percent, mean of seeds {FIRST[0]} to {FIRST[-1]}: {', '.join(METHODS)}")
    for change in CHANGES:
        record.say(f"  {change:<20}" + "".join(f"{rows.mean(m, change, 20, FIRST):8.2f}" for m in METHODS))
    record.save(rows.kept, threads=1)


def say_finalists(record: Record, rows: Rows, candidates: Mapping[str, Mapping[str, Setting]]) -> None:
    for method in METHODS:
        record.say(f"the best of {method}, seeds {SECOND[0]} to {SECOND[-1]}")
        for change in candidates[method]:
            record.say(f"  {change:<44}{rows.mean(method, change, 20, SECOND):8.2f}")
    record.save(rows.kept, threads=1)


def say_judged(record: Record, rows: Rows, best: Mapping[str, str]) -> None:
    """The difference of the two methods, seed by seed: as the recipe is, and each with its best."""
    for labels in (20, 40):
        record.say(f"{labels} labels, seeds {JUDGED[0]} to {JUDGED[-1]}, which chose nothing")
        for title, chosen in ((AS_IT_IS, dict.fromkeys(METHODS, AS_IT_IS)), ("each with its best", best)):
            errors = {m: rows.errors(m, chosen[m], labels, JUDGED) for m in METHODS}
            for method in METHODS:
                record.say(f"  {title}: {method}, {chosen[method]}: {statistics.mean(errors[method]):.2f}")
            difference = [m - f for f, m in zip(*(errors[m] for m in METHODS), strict=True)]
            spread = statistics.stdev(difference) / len(difference) ** 0.5
            record.say(
                f"  maxmatch - fixmatch, paired: {statistics.mean(difference):+.2f} +- {spread:.2f} (standard error)"
            )
    record.save(rows.kept, threads=1)


if __name__ == "__main__":
    main()

"""When does the worst case help? Methods with and without it, the same steps, labels and seed: errors and steps/s.

    maxmatch benchmark cifar10@250 --methods "$(python benchmarks/worst_case.py)" --folds 1, --steps 12000 \\
        --config fast-10min --set train.lr=0.03 --jobs 5 --out runs/worst   # without a folder it names methods
    python benchmarks/worst_case.py runs/worst

The errors are those of the runs in the folder, which may have shared the GPU. Then every run's step is timed alone, one
after the other, by its recipe and the clock of `maxmatch bench`, when all is compiled. Typed again, it goes on with the
runs that the record does not have yet.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from record import Record

from maxmatch.bench.clock import release, times, typical, warm_up
from maxmatch.bench.origin import hardware, versions
from maxmatch.benchmark.wanted import folder_name
from maxmatch.train.fit import begin, torch_settings
from maxmatch.train.recipe import Recipe
from maxmatch.train.resume import resumed_recipe

METHODS = (
    "fixmatch", "fixmatch-anchoring", "maxmatch:k=2", "maxmatch", "maxmatch:k=5", "maxmatch:strategy=joint",
    "uda", "uda:k=3:over=worst", "mean-teacher", "mean-teacher:k=3:over=worst",
    "freematch", "freematch:k=3:over=worst",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="?", help="the folder of a maxmatch benchmark")
    parser.add_argument("--steps", type=int, default=320, help="of each that are timed")
    parser.add_argument("--name", default="worst-case", help="of the record")
    asked = parser.parse_args()
    if asked.runs is None:
        print(",".join(METHODS))
        return
    record = Record(asked.name)
    trained = json.loads((asked.runs / "benchmark.json").read_text())
    before = timed(record, trained, asked.steps)
    found: list[dict[str, Any]] = []
    record.say(
        f"{trained['dataset']}, {trained['labels']} labels, fold {trained['folds'][0]}: error in percent, steps/s"
    )
    record.say(f"{'method':<30}{'error':>8}{'steps/s':>10}{'time of a step':>17}")
    for run in trained["runs"]:
        if run["state"] != "finished" or run["fold"] != trained["folds"][0]:
            continue
        recipe = resumed_recipe(asked.runs / folder_name(run["method"]) / f"fold-{run['fold']}", {})
        device = torch.device(str(recipe.train.device))
        found.append({**run, "milliseconds": before.get(run["method"]) or milliseconds(recipe, device, asked.steps)})
        release(device, compiled=False)
        first, each = (typical(row["milliseconds"], device) for row in (found[0], found[-1]))
        record.say(f"{run['method']:<30}{run['last']:>8.2f}{1e3 / each:>10.1f}{each / first:>10.2f} times")
        record.save({"trained_by": trained["command"], "commit": trained["commit"], "rows": found})


def timed(record: Record, trained: dict[str, Any], steps: int) -> dict[str, list[float]]:
    """The times by method that an earlier call has found for the same benchmark, on the same machine."""
    if not record.path.exists():
        return {}
    before = json.loads(record.path.read_text())
    held = [before["results"][name] for name in ("trained_by", "commit")] + [before["versions"], before["hardware"]]
    if held != [trained["command"], trained["commit"], versions(), hardware()]:
        return {}
    rows = before["results"]["rows"]
    return {row["method"]: row["milliseconds"] for row in rows if len(row["milliseconds"]) == steps}


def milliseconds(recipe: Recipe, device: torch.device, repeats: int) -> list[float]:
    """Of each of so many steps by a recipe, alone, when all is compiled."""
    with torch_settings(recipe), tempfile.TemporaryDirectory() as folder:
        step, number = begin(recipe, Path(folder) / "run", quiet=True).step, itertools.count()

        def work() -> None:
            step(next(number))

        warm_up(work, device)
        return times(work, device, repeats)


if __name__ == "__main__":
    main()

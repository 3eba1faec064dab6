"""When does the worst case help? Methods with and without it, the same steps, labels and seed: errors and steps/s.

    maxmatch benchmark cifar10@250 --methods "$(python benchmarks/worst_case.py)" --folds 1, --steps 12000 \\
        --config fast-10min --jobs 5 --out runs/worst          # without a folder it names the methods of its table
    python benchmarks/worst_case.py runs/worst

The errors are those of the runs in the folder, which may have shared the GPU. Then every run's step is timed alone, one
after the other, by its recipe: the median of five stretches of steps, when all is compiled.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from record import Record

from maxmatch.benchmark.wanted import folder_name
from maxmatch.train.fit import begin, torch_settings
from maxmatch.train.recipe import Recipe
from maxmatch.train.resume import resumed_recipe

METHODS = (
    "fixmatch", "fixmatch-anchoring", "maxmatch:k=2", "maxmatch", "maxmatch:k=5", "maxmatch:strategy=joint",
    "uda", "uda:k=3:over=worst", "mean-teacher", "mean-teacher:k=3:over=worst",
    "freematch", "freematch:k=3:over=worst",
)  # fmt: skip
STRETCHES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="?", help="the folder of a maxmatch benchmark")
    parser.add_argument("--steps", type=int, default=60, help="in each of the five stretches that are timed")
    parser.add_argument("--name", default="worst-case", help="of the record")
    asked = parser.parse_args()
    if asked.runs is None:
        print(",".join(METHODS))
        return
    record, found = Record(asked.name), []
    trained = json.loads((asked.runs / "benchmark.json").read_text())
    record.say(
        f"{trained['dataset']}, {trained['labels']} labels, fold {trained['folds'][0]}: error in percent, steps/s"
    )
    record.say(f"{'method':<30}{'error':>8}{'steps/s':>10}{'time of a step':>17}")
    for run in trained["runs"]:
        if run["state"] != "finished" or run["fold"] != trained["folds"][0]:
            continue
        folder = asked.runs / folder_name(run["method"]) / f"fold-{run['fold']}"
        row = {**run, "seconds_of_stretches": stretches(resumed_recipe(folder, {}), asked.steps)}
        row["steps_per_second_alone"] = asked.steps / statistics.median(row["seconds_of_stretches"])
        found.append(row)
        times = found[0]["steps_per_second_alone"] / row["steps_per_second_alone"]
        rate = row["steps_per_second_alone"]
        record.say(f"{run['method']:<30}{run['last']:>8.2f}{rate:>10.1f}{times:>10.2f} times")
        record.save({"trained_by": trained["command"], "commit": trained["commit"], "rows": found})


def stretches(recipe: Recipe, steps: int, warm: int = 6) -> list[float]:
    """Seconds of so many steps by a recipe, five times."""
    with torch_settings(recipe), tempfile.TemporaryDirectory() as folder:
        step: Any = begin(recipe, Path(folder) / "run", quiet=True).step
        found, t = [], warm
        for number in range(warm):
            step(number)
        for _ in range(STRETCHES + 1):  # the first fills the queue, and is not kept
            step.health.failure()  # waits for the device
            begun = time.perf_counter()
            for number in range(t, t + steps):
                step(number)
            step.health.failure()
            found.append(time.perf_counter() - begun)
            t += steps
        return found[1:]


if __name__ == "__main__":
    main()

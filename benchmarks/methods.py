"""Every method on digits with 40 labels, plain and with the worst case of three views: errors and times of a step.

    python benchmarks/methods.py                    seeds 1 to 3; half an hour on 2 cores
    python benchmarks/methods.py --only uda,vat     some of them; no record is written
    python benchmarks/methods.py --times            milliseconds a step alone, one method after the other: three minutes

All take the digits recipe, which was chosen for MaxMatch: the table says what the worst case changes in each method,
not which method is best.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from record import Record

from maxmatch.methods import METHODS, make_method
from maxmatch.methods.base import Consistency

WORST = {"k": 3, "over": "worst"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--only", default=",".join(METHODS))
    parser.add_argument("--labels", type=int, default=40)
    parser.add_argument("--times", action="store_true", help="the times alone, on an idle machine")
    parser.add_argument("--jobs", type=int, default=2, help="processes, one thread each")
    given = parser.parse_args()
    names, seeds = given.only.split(","), [int(seed) for seed in given.seeds.split(",")]
    variants = [(name, worst) for name in names for worst in (False, True) if not worst or _can(name)]
    if given.times:
        times(variants, given.labels)
        return
    jobs = [(name, worst, given.labels, seed) for name, worst in variants for seed in seeds]
    record = Record("methods")
    with multiprocessing.get_context("spawn").Pool(given.jobs) as workers:
        results = []
        for job, result in zip(jobs, workers.imap(run, jobs), strict=True):
            results.append(result)
            seen = f"{job[0]}{' worst' if job[1] else ''}, seed {job[3]}: {result['error']['last']:.2f} %"
            print(f"{len(results)}/{len(jobs)} {seen}", file=sys.stderr, flush=True)
    found = dict(zip(jobs, results, strict=True))
    record.say(f"digits, {given.labels} labels, seeds {given.seeds}: mean error in percent, milliseconds a step")
    record.say(f"{'method':<22}{'plain':>8}{'ms':>7}{'worst of 3':>13}{'ms':>7}{'change':>9}")
    for name in names:
        cells = {
            worst: [found[name, worst, given.labels, s] for s in seeds]
            for _, worst in variants
            if (name, worst) in variants
        }
        plain, cost = _mean(cells[False])
        line = f"{name:<22}{plain:>8.2f}{cost:>7.1f}"
        if True in cells:
            worst, worst_cost = _mean(cells[True])
            line += f"{worst:>13.2f}{worst_cost:>7.1f}{worst - plain:>+9.2f}"
        record.say(line)
    if given.only == ",".join(METHODS) and given.seeds == "1,2,3":
        record.save(results, threads=1)


def run(job: tuple[str, bool, int, int]) -> dict[str, Any]:
    """One method with one seed."""
    import torch

    from maxmatch import compose, fit

    name, worst, labels, seed = job
    torch.set_num_threads(1)
    settings = {"data": {"labels": labels}, "train": {"seed": seed, "threads": 1}, "method": WORST if worst else {}}
    with tempfile.TemporaryDirectory() as folder:
        return fit(compose("digits", name, given=settings), folder, quiet=True)


def times(variants: list[tuple[str, bool]], labels: int, warm_up: int = 10, steps: int = 40) -> None:
    """The median time of a step of each method, one after the other, on all threads."""
    import torch

    from maxmatch import compose
    from maxmatch.train.fit import begin, torch_settings
    from maxmatch.train.recipe import resolve

    record, found = Record("methods-times"), {}
    record.say(f"digits, {labels} labels, {torch.get_num_threads()} threads: milliseconds a step, median of {steps}")
    record.say(f"{'method':<22}{'plain':>8}{'worst of 3':>13}{'ratio':>9}")
    for name, worst in variants:
        settings = {"data": {"labels": labels}, "method": WORST if worst else {}}
        recipe = resolve(compose("digits", name, given=settings), device="cpu", threads=torch.get_num_threads())
        with torch_settings(recipe), tempfile.TemporaryDirectory() as folder:
            step = begin(recipe, Path(folder) / "run", quiet=True).step
            raw = []
            for t in range(warm_up + steps):
                begun = time.perf_counter()
                step(t)
                raw.append(1e3 * (time.perf_counter() - begun))
        found[f"{name}{' worst' if worst else ''}"] = raw[warm_up:]
    for name in dict.fromkeys(name for name, _ in variants):
        plain, worst_times = statistics.median(found[name]), found.get(f"{name} worst")
        line = f"{name:<22}{plain:>8.1f}"
        if worst_times:
            line += f"{statistics.median(worst_times):>13.1f}{statistics.median(worst_times) / plain:>9.2f}"
        record.say(line)
    if {name for name, _ in variants} == set(METHODS):
        record.save(found)


def _can(name: str) -> bool:
    """Whether the worst case is something else than the method itself."""
    method = make_method({"name": name})
    return isinstance(method, Consistency) and not (method.k == 3 and method.over.name == "worst")


def _mean(results: list[dict[str, Any]]) -> tuple[float, float]:
    errors, steps = [r["error"]["last"] for r in results], [1e3 / r["steps_per_second"] for r in results]
    return statistics.mean(errors), statistics.mean(steps)


if __name__ == "__main__":
    main()

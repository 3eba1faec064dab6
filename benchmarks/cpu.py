"""What the worst case costs on a CPU, what a step of the demo gained, and what batched augmentation gives: ratios from
one run.

    make bench                                  all parts; some ten minutes on 2 cores
    python benchmarks/cpu.py --steps 3          fewer repeats
    python benchmarks/cpu.py --before COMMIT    against another state of the code

Steps/s of the demo's recipe by the code of a commit and by the working tree's, in turns; the share of its step that
makes the batch; seconds per step of `joint` and `select` at K = 1, 3, 5, 7 against FixMatch, for WRN-28-2 at 32 px with
16 + 112 images and for the digits net; images/s of both paths of the batched RandAugment against PIL, per core.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import Record
from turns import before_and_after

from maxmatch.augment import OPS, PRESETS, Views, Weak
from maxmatch.bench.origin import git
from maxmatch.data.datasets import Images, from_arrays, load_images
from maxmatch.train.fit import begin
from maxmatch.train.loop import Training
from maxmatch.train.recipe import resolve
from maxmatch.train.recipes import compose

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "augment"))
from pil_oracle import change

Say = Callable[[str], None]

BEFORE = "206629f"  # the state before steps on the CPU were made faster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=7, help="timed steps for each row")
    parser.add_argument("--before", default=BEFORE, help="the commit that the demo's step is compared with")
    given = parser.parse_args()
    noise = np.random.default_rng(0).integers(0, 256, (2000, 32, 32, 3), np.uint8)
    pool = from_arrays(noise, np.arange(2000) % 10)
    wide = {"net": {"name": "wrn-28-2"}, "train": {"batch": 16, "ratio": 7}, "augment": {"policy": "fixmatch"}}
    record = Record("cpu")
    say = record.say
    say("the demo's recipe: digits, MaxMatch, K = 3")
    results = {"demo, before and after": before_and_after(given.before, git, say), "demo, share": batch_share(say)}
    say("RandAugment and cutout, 448 colour images of 32 px, one core")
    results["randaugment, one core"] = rates_of_one_core(say)
    say(f"the same on {torch.get_num_threads()} threads")
    results["randaugment"] = augmentation_rates(say)
    say("digits net, 32 + 128 images")
    results["digits net, 32 + 128"] = step_times(load_images("digits"), {}, given.steps * 4, say)
    say("WRN-28-2 at 32 px, 16 + 112 images")
    results["wrn-28-2 at 32 px, 16 + 112"] = step_times(pool, wide, given.steps, say)
    record.save(results)


def batch_share(say: Say, steps: int = 200) -> dict[str, float]:
    """Median milliseconds of a step of the demo, of making its batch, and of the strong views within that."""
    run = _begin(load_images("digits"), "maxmatch", {})
    batches, row = run.step.batches, run.step.rows.row
    k = run.step.draws.k(0)
    pool = batches.pool[row["unlabelled"]]
    parts: dict[str, Callable[[], object]] = {
        "batch": lambda: batches(row, k),
        "strong views": lambda: batches.views.strong_views(pool, row["strong"][:k]),
    }
    times: dict[str, list[float]] = {"step": [], **{name: [] for name in parts}}
    for t in range(steps):
        times["step"].append(_seconds(partial(run.step, t)))
        for name, part in parts.items():
            times[name].append(_seconds(part))
    found = {f"{name}, ms": 1000 * statistics.median(values[5:]) for name, values in times.items()}
    for name in parts:
        found[f"{name}, percent of the step"] = 100 * found[f"{name}, ms"] / found["step, ms"]
        say(f"{name:<14}{found[f'{name}, ms']:6.2f} of {found['step, ms']:.2f} ms a step: "
            f"{found[f'{name}, percent of the step']:.0f} percent")  # fmt: skip
    return found


def step_times(images: Images, settings: dict, steps: int, say: Say) -> dict[str, float]:
    """Median seconds a step for FixMatch and for joint and select at each K, in turns, and the ratios to FixMatch."""
    variants = [("fixmatch", 1, "joint"), *(("maxmatch", k, s) for k in (1, 3, 5, 7) for s in ("joint", "select"))]
    runs = {
        "fixmatch" if method == "fixmatch" else f"K={k} {strategy}": _begin(
            images, method, {**settings, "method": {"k": k, "strategy": strategy}}
        )
        for method, k, strategy in variants
    }
    turns = [{name: _seconds(partial(run.step, t)) for name, run in runs.items()} for t in range(steps + 1)]
    seconds = {name: statistics.median(turn[name] for turn in turns[1:]) for name in runs}
    for name, value in seconds.items():
        say(f"{name:<14}{value:8.3f} s/step  {value / seconds['fixmatch']:5.2f} x FixMatch")
    ratio = seconds["K=3 select"] / seconds["K=3 joint"]
    say(f"select / joint at K = 3: {ratio:.2f}")
    return {**seconds, "select / joint at K = 3": ratio}


class Strong448:
    """448 colour images of 32 px, noise, with one draw of the `fixmatch` policy for each: for the batch and for PIL."""

    def __init__(self, batch: int = 448) -> None:
        self.policy, self.batch = PRESETS["fixmatch"], batch
        self.images = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (batch, 3, 32, 32), np.uint8))
        self.views = Views(Weak(), self.policy)
        self.u = torch.rand(batch, self.views.strong_uniforms, generator=torch.Generator().manual_seed(0))
        self.draw = self.policy.sample(self.u[:, 3:], (32, 32))
        arrays = self.images.permute(0, 2, 3, 1).contiguous().numpy()
        op, magnitude, box = (part.tolist() for part in self.draw)
        self.jobs = list(zip(arrays, op, magnitude, box, strict=True))


def rates_of_one_core(say: Say, rounds: int = 5, seconds: float = 1.0) -> dict[str, Any]:
    """Images/s of both paths with one thread and of PIL in this process, in turns, and the median ratios to PIL.

    `grouped` is the path that runs on a CPU; `dense` is there to be compiled.
    """
    work, threads = Strong448(), torch.get_num_threads()
    torch.set_num_threads(1)
    ways: dict[str, Callable[[], object]] = {
        "grouped": lambda: work.policy.apply(work.images, work.draw, "grouped"),
        "dense": lambda: work.policy.apply(work.images, work.draw, "dense"),
        "PIL": lambda: _pil(work.jobs),
    }
    turns = [{name: _rate(way, work.batch, seconds) for name, way in ways.items()} for _ in range(rounds)]
    torch.set_num_threads(threads)
    found: dict[str, Any] = {f"{name}, images/s": [turn[name] for turn in turns] for name in ways}
    for name in ways:
        found[f"{name} / PIL"] = statistics.median(turn[name] / turn["PIL"] for turn in turns)
        rate = statistics.median(found[f"{name}, images/s"])
        say(f"{name:<14}{rate:10.0f} images/s  {found[f'{name} / PIL']:5.2f} x PIL")
    return found


def augmentation_rates(say: Say, seconds: float = 3.0) -> dict[str, float]:
    """Images/s of a strong view (shift, flip, RandAugment, cutout), and of RandAugment with cutout alone and by PIL."""
    work, threads = Strong448(), torch.get_num_threads()
    rates = {
        f"batched, whole strong view, {threads} threads": _rate(
            lambda: work.views.strong_views(work.images, work.u[None]), work.batch, seconds
        ),
        f"batched, RandAugment + cutout, {threads} threads": _rate(
            lambda: work.policy.apply(work.images, work.draw), work.batch, seconds
        ),
    }
    with multiprocessing.get_context("fork").Pool(2) as workers:
        parts = [work.jobs[:224], work.jobs[224:]]
        rates["PIL, RandAugment with cutout, 2 processes"] = _rate(
            lambda: workers.map(_pil, parts), work.batch, seconds
        )
    for name, rate in rates.items():
        say(f"{name:<46}{rate:10.0f} images/s")
    names = list(rates)
    rates["batched / PIL"] = rates[names[1]] / rates[names[2]]
    say(f"batched / PIL: {rates['batched / PIL']:.1f}")
    return rates


def _begin(images: Images, method: str, settings: dict) -> Training:
    recipe = resolve(compose("digits", method, given=settings), device="cpu", threads=torch.get_num_threads())
    with tempfile.TemporaryDirectory() as folder:
        return begin(recipe, Path(folder), images, quiet=True)


def _pil(jobs: list) -> int:
    """PIL over a share of the batch; what it makes is thrown away in the worker, so no copy is charged to it."""
    from PIL import Image

    for array, ops, magnitudes, (top, left, bottom, right) in jobs:
        picture = Image.fromarray(array)
        for op, magnitude in zip(ops, magnitudes, strict=True):
            if op:
                picture = change(picture, OPS[op], magnitude, (127, 127, 127))
        picture.paste((127, 127, 127), (left, top, right, bottom))
        np.asarray(picture)
    return len(jobs)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _rate(work: Callable[[], object], batch: int, seconds: float) -> float:
    work()
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        work()
        count += 1
    return count * batch / (time.perf_counter() - begun)


if __name__ == "__main__":
    main()

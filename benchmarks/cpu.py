"""What the worst case costs on a CPU, and what batched augmentation gives: ratios from one run.

    make bench                                  both parts; a few minutes on 2 cores
    python benchmarks/cpu.py --steps 5          fewer repeats

Seconds per step of `joint` and `select` at K = 1, 3, 5, 7 against FixMatch, for WRN-28-2 at 32 px with 16 + 112 images
and for the digits net; images/s of the batched RandAugment against PIL in 2 processes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from record import save_record

from maxmatch.augment import OPS, PRESETS, Views, Weak
from maxmatch.data.datasets import Images, from_arrays, load_images
from maxmatch.train.fit import begin
from maxmatch.train.recipe import resolve
from maxmatch.train.recipes import compose

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "augment"))
from pil_oracle import change


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10, help="timed steps for each row")
    steps = parser.parse_args().steps
    noise = np.random.default_rng(0).integers(0, 256, (2000, 32, 32, 3), np.uint8)
    pool = from_arrays(noise, np.arange(2000) % 10)
    wide = {"net": {"name": "wrn-28-2"}, "train": {"batch": 16, "ratio": 7}, "augment": {"policy": "fixmatch"}}
    results = {
        "wrn-28-2 at 32 px, 16 + 112": step_times(pool, wide, steps),
        "digits net, 32 + 128": step_times(load_images("digits"), {}, steps * 4),
        "randaugment": augmentation_rates(),
    }
    print(save_record("cpu", results))


def step_times(images: Images, settings: dict, steps: int) -> dict[str, float]:
    """Median seconds a step for FixMatch and for joint and select at each K, and the ratios to FixMatch."""
    variants = [("fixmatch", 1, "joint"), *(("maxmatch", k, s) for k in (1, 3, 5, 7) for s in ("joint", "select"))]
    seconds: dict[str, float] = {}
    for method, k, strategy in variants:
        options = {"method": {"k": k, "strategy": strategy}}
        recipe = resolve(
            compose("digits", method, given={**settings, **options}), device="cpu", threads=torch.get_num_threads()
        )
        with tempfile.TemporaryDirectory() as folder:
            run = begin(recipe, Path(folder), images, quiet=True)
        times = []
        for t in range(steps + 2):
            begun = time.perf_counter()
            run.step(t)
            times.append(time.perf_counter() - begun)
        name = "fixmatch" if method == "fixmatch" else f"K={k} {strategy}"
        seconds[name] = statistics.median(times[2:])
        print(
            f"{name:<14}{seconds[name]:8.3f} s/step  {seconds[name] / seconds['fixmatch']:5.2f} x FixMatch", flush=True
        )
    ratio = seconds["K=3 select"] / seconds["K=3 joint"]
    print(f"select / joint at K = 3: {ratio:.2f}")
    return {**seconds, "select / joint at K = 3": ratio}


def augmentation_rates(batch: int = 448, seconds: float = 3.0) -> dict[str, float]:
    """Images/s of a strong view (shift, flip, RandAugment, cutout), and of RandAugment with cutout alone and by PIL."""
    images = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (batch, 3, 32, 32), np.uint8))
    threads = torch.get_num_threads()
    policy = PRESETS["fixmatch"]
    views = Views(Weak(), policy)
    u = torch.rand(batch, views.strong_uniforms, generator=torch.Generator().manual_seed(0))
    draw = policy.sample(u[:, 3:], (32, 32))
    rates = {
        f"batched, whole strong view, {threads} threads": _rate(
            lambda: views.strong_views(images, u[None]), batch, seconds
        ),
        f"batched, RandAugment + cutout, {threads} threads": _rate(lambda: policy.apply(images, draw), batch, seconds),
    }
    arrays = images.permute(0, 2, 3, 1).contiguous().numpy()
    jobs = list(zip(arrays, draw.op.tolist(), draw.magnitude.tolist(), draw.box.tolist(), strict=True))
    with multiprocessing.get_context("fork").Pool(2) as workers:
        parts = [jobs[:224], jobs[224:]]
        rates["PIL, RandAugment with cutout, 2 processes"] = _rate(lambda: workers.map(_pil, parts), batch, seconds)
    for name, rate in rates.items():
        print(f"{name:<46}{rate:10.0f} images/s")
    names = list(rates)
    rates["batched / PIL"] = rates[names[1]] / rates[names[2]]
    print(f"batched / PIL: {rates['batched / PIL']:.1f}")
    return rates


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


def _rate(work, batch: int, seconds: float) -> float:
    work()
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        work()
        count += 1
    return count * batch / (time.perf_counter() - begun)


if __name__ == "__main__":
    main()

"""The ImageNet step on this machine: decoded pictures resident on the device, and read from JPEG files as they come.

    python benchmarks/imagenet.py                                          one GPU: ResNet-50, 224 px, 64 + 320, K = 3
    python benchmarks/imagenet.py --device cpu --net wrn-10-1 --side 32 --images 200 --batch 4 --steps 6 --workers 2

Pictures are generated, 500 x 375 as ImageNet's are on average, in as many processes as there are cores. Every row is
the recipe imagenet-authors in a process of its own: the steps of `maxmatch train`, timed from the 12th on, when all is
compiled and the pictures read ahead are used up. The share of a stage is its part of that time; decoding runs beside
the others, so its figure is what it could do if nothing else were to be done.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from record import Record

from maxmatch.settings import plain
from maxmatch.train.fit import begin
from maxmatch.train.recipe import resolve
from maxmatch.train.recipes import compose

CLASSES, TEST = 20, 2
WARM, DRAINED = 5, 6  # steps that are not timed: those that compile, and those that find their pictures read ahead
ROWS = (  # method, strategy, whether decoded pictures stay on the device
    ("fixmatch", "joint", True),
    ("maxmatch", "select", True),
    ("maxmatch", "joint", True),
    ("fixmatch", "joint", False),
    ("maxmatch", "select", False),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--net", default="resnet50")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--images", type=int, default=4_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--k", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--rows", type=int, nargs="+", default=range(len(ROWS)), help="which of them, the first is 0")
    parser.add_argument("--together", type=int, default=1, help="so many rows compile at once, then one after another")
    parser.add_argument("--pictures", type=Path, help="where they are kept for the next time; default: nowhere")
    parser.add_argument("--decoders", default="auto", choices=("auto", "threads", "processes"))
    parser.add_argument("--name", default="imagenet", help="of the record")
    asked = parser.parse_args()
    record, found = Record(asked.name), []
    with tempfile.TemporaryDirectory() as place:
        root = asked.pictures or Path(place) / "pictures"
        if not root.exists():
            make_pictures(root, asked.images)
        size = sum(path.stat().st_size for path in root.rglob("*.JPEG")) / asked.images / 1000
        record.say(f"{asked.images:,} JPEG files of 500 x 375, {size:.0f} kB each; {asked.net}, {asked.side} px")
        spawn = multiprocessing.get_context("spawn")
        for at in range(0, len(asked.rows), asked.together):
            numbers = asked.rows[at : at + asked.together]
            turn = spawn.Barrier(len(numbers)), spawn.Lock()
            with ProcessPoolExecutor(len(numbers), spawn, take_turn, (turn,)) as pool:
                rows = [pool.submit(measure, root, Path(place) / str(n), asked, n) for n in numbers]
                for row in rows:
                    found.append(row.result())
                    record.say(tell(found[-1], found[0]))
                    record.save(found)


def make_pictures(root: Path, count: int) -> None:
    """train/CLASS and val/CLASS of JPEG files: soft shapes and fine noise, as hard to decode as any."""
    parts = [("train", n) for n in range(count)] + [("val", n) for n in range(CLASSES * TEST)]
    places = [root / part / f"n{n % CLASSES:08d}" / f"{n}.JPEG" for part, n in parts]
    for folder in {path.parent for path in places}:
        folder.mkdir(parents=True)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(draw, places, range(len(places)), chunksize=50))


def draw(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    soft = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize(
        (500, 375), Image.Resampling.BICUBIC
    )
    noise = rng.normal(0, 6, (375, 500, 3))
    Image.fromarray((np.asarray(soft) + noise).clip(0, 255).astype(np.uint8)).save(path, quality=90)


turn: Any  # a barrier and a lock that all rows' processes share


def take_turn(given: Any) -> None:
    """Have this process know when all are ready, and who is alone."""
    global turn
    turn = given


def measure(root: Path, out: Path, asked: argparse.Namespace, number: int) -> dict[str, Any]:
    """Train with a row's settings, and time its steps."""
    method, strategy, resident = ROWS[number]
    given = {
        "method": {"strategy": strategy} | ({"k": asked.k} if method == "maxmatch" else {}),
        "net": {"name": asked.net},
        "data": {"side": asked.side, "resident": resident, "workers": asked.workers, "decoders": asked.decoders},
        "train": {"batch": asked.batch, "steps": WARM + DRAINED + asked.steps, "device": asked.device},
        "evaluate": {"unlabelled": 0},
    }
    recipe = resolve(
        compose(str(root), method, "imagenet-authors", given), device=asked.device, threads=torch.get_num_threads()
    )
    row: dict[str, Any] = {"method": method, "strategy": strategy, "resident": resident, "recipe": plain(recipe)}
    begun = time.perf_counter()
    step = begin(recipe, out, quiet=True).step
    row["seconds_loading"] = time.perf_counter() - begun
    feed = step.batches.feed
    if feed is not None:
        feed.decoders.begin()
    for t in range(WARM):
        step(t)
    step.health.failure()  # waits for the device
    row["seconds_warm"] = time.perf_counter() - begun - row["seconds_loading"]
    all_ready, alone = turn
    all_ready.wait()
    with alone:
        for t in range(WARM, WARM + DRAINED):
            step(t)
        step.health.failure()
        if feed is not None:
            feed.stages.read()
        begun = time.perf_counter()
        for t in range(WARM + DRAINED, WARM + DRAINED + asked.steps):
            step(t)
        step.health.failure()
        seconds = time.perf_counter() - begun
    row |= {
        "seconds": seconds,
        "steps": asked.steps,
        "mode": step.mode,
        "images": asked.batch * (1 + recipe.train.ratio),
    }
    if torch.cuda.is_available():
        row["gib"] = torch.cuda.max_memory_allocated() / 2**30
    if feed is not None:
        row["stages"], row["decoders"] = feed.stages.read(), f"{feed.files.workers} {feed.decoders.kind}"
        feed.close()
    return row


def tell(row: dict[str, Any], first: dict[str, Any]) -> str:
    where = "resident" if row["resident"] else "from files"
    name = f"{row['method']:9} {row['strategy']:7} {where:10}"
    rate, stages = row["steps"] / row["seconds"], row.get("stages")
    told = f"{name} {rate:6.2f} steps/s, {rate * row['images']:6,.0f} pictures/s"
    told += f", {row['seconds'] / row['steps'] / (first['seconds'] / first['steps']):.2f} times the first row's step"
    if "gib" in row:
        told += f", {row['gib']:.1f} GiB"
    if stages is None:
        return told
    pictures = row["images"] * row["steps"]
    shares = {
        stage: pictures / stages[f"{stage}_images_per_second"] / row["seconds"]
        for stage in ("step", "copy")
        if stages[f"{stage}_images_per_second"]
    }
    told += "; " + ", ".join(f"{stage} {100 * share:.0f} %" for stage, share in shares.items())
    told += f", waiting {100 * max(0, 1 - sum(shares.values())):.0f} %"
    return told + f"; {row['decoders']} decode {stages['decode_images_per_second'] or 0:,.0f} pictures/s"


if __name__ == "__main__":
    main()

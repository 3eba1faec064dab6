"""The ImageNet step on this machine: decoded pictures resident on the device, and read from JPEG files as they come.

    python benchmarks/imagenet.py                                          one GPU: ResNet-50, 224 px, 64 + 320, K = 3
    python benchmarks/imagenet.py --device cpu --net wrn-10-1 --side 32 --images 200 --batch 4 --steps 6 --workers 2

Pictures are generated, 500 x 375 as ImageNet's are on average, in as many processes as there are cores. Every row is a
run of `maxmatch train --config imagenet-authors`, in a process of its own; steps/s leave its first step out, which
compiles. The streamed rows also have images/s of decoding, copying and the step, and which of them is the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from record import Record

from maxmatch.train.log import read_metrics

CLASSES, TEST = 20, 2
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
    parser.add_argument("--images", type=int, default=8_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--k", type=int, default=3)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--rows", type=int, nargs="+", default=range(len(ROWS)), help="which of them, the first is 0")
    parser.add_argument("--pictures", type=Path, help="where they are kept for the next time; default: nowhere")
    parser.add_argument("--name", default="imagenet", help="of the record")
    asked = parser.parse_args()
    record, found = Record(asked.name), []
    with tempfile.TemporaryDirectory() as place:
        root = asked.pictures or Path(place) / "pictures"
        if not root.exists():
            make_pictures(root, asked.images)
        size = sum(path.stat().st_size for path in root.rglob("*.JPEG")) / asked.images / 1000
        record.say(f"{asked.images:,} JPEG files of 500 x 375, {size:.0f} kB each; {asked.net}, {asked.side} px")
        for number in asked.rows:
            found.append(measure(root, Path(place) / str(number), asked, *ROWS[number]))
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


def measure(root: Path, out: Path, asked: Any, method: str, strategy: str, resident: bool) -> dict[str, Any]:
    """One run, and what it says of its speed."""
    sets = [
        f"method.strategy={strategy}", f"net.name={asked.net}", f"data.side={asked.side}", f"train.batch={asked.batch}",
        f"data.resident={str(resident).lower()}", f"data.workers={asked.workers}",
        f"train.log_every={asked.steps // 2}", f"train.evaluate_every={asked.steps}",
        f"train.checkpoint_every={asked.steps}", "evaluate.unlabelled=0",
        "evaluate.robust_views=1", *([f"method.k={asked.k}"] if method == "maxmatch" else []),
    ]  # fmt: skip
    words = [str(root), "--config", "imagenet-authors", "--method", method, "--steps", str(asked.steps)]
    words += ["--device", asked.device, "--no-report"]
    words += [word for text in sets for word in ("--set", text)]
    done = subprocess.run(
        [sys.executable, "-m", "maxmatch", "train", *words, "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    row: dict[str, Any] = {"method": method, "strategy": strategy, "resident": resident}
    row["command"] = shlex.join(["maxmatch", "train", "PICTURES", *words[1:]])
    if done.returncode:
        return row | {"failed": (done.stderr or done.stdout).strip().splitlines()[-1]}
    speeds = [line for line in read_metrics(out / "metrics.jsonl") if line["kind"] == "speed"]
    return row | {"result": json.loads((out / "result.json").read_text()), "speeds": speeds}


def tell(row: dict[str, Any], first: dict[str, Any]) -> str:
    where = "resident" if row["resident"] else "from files"
    name = f"{row['method']:9} {row['strategy']:7} {where:10}"
    if "failed" in row:
        return f"{name} failed: {row['failed']}"
    rate = row["result"]["steps_per_second"]
    told = f"{name} {rate:7.2f} steps/s"
    if "result" in first:
        told += f", {first['result']['steps_per_second'] / rate:.2f} times the first row's step"
    if row["speeds"]:
        last = {name: value for name, value in row["speeds"][-1].items() if name not in ("kind", "step")}
        told += "; " + ", ".join(
            f"{n} {v:,.0f}" if isinstance(v, float) and v > 2 else f"{n} {v}" for n, v in last.items()
        )
    return told


if __name__ == "__main__":
    main()

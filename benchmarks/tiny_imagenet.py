"""The whole ImageNet recipe in small, on a CPU: a generated ImageFolder of 20 classes, killed, resumed, and compared.

    python benchmarks/tiny_imagenet.py                     # one process
    python benchmarks/tiny_imagenet.py --launch "torchrun --standalone --nproc_per_node=2 -m maxmatch"

Trains `imagenet-paper` once without a break, and once more with a SIGTERM in the middle of one epoch and a SIGKILL in
that of another; the weights, the checkpoint and the metrics of the two must be the same to the last bit. The signals go
to what was launched; where that is torchrun, its processes must end with it.
"""

from __future__ import annotations

import argparse
import colorsys
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

ALONE = (sys.executable, "-m", "maxmatch")
SHAPES = ("ellipse", "rectangle", "triangle", "cross")


def make_folder(root: Path, classes: int = 20, train: int = 12, val: int = 2, seed: int = 1) -> Path:
    """train/CLASS and val/CLASS of small JPEGs: each class has a shape and a hue of its own, all else is drawn."""
    rng = np.random.default_rng(seed)
    for label in range(classes):
        for part, count in (("train", train), ("val", val)):
            folder = root / part / f"n{label:08d}"
            folder.mkdir(parents=True)
            for number in range(count):
                draw_picture(label, classes, rng).save(folder / f"{number}.JPEG", quality=90)
    return root


def draw_picture(label: int, classes: int, rng: np.random.Generator) -> Image.Image:
    """A shape of the class's kind and hue at a random place on noise, 40 to 64 pixels wide and high."""
    width, height = (int(side) for side in rng.integers(40, 65, 2))
    picture = Image.fromarray(rng.integers(60, 120, (height, width, 3), dtype=np.uint8))
    hue = (label // len(SHAPES)) / -(-classes // len(SHAPES)) + rng.normal(0, 0.01)
    fill = tuple(int(255 * part) for part in colorsys.hsv_to_rgb(hue % 1, 0.9, rng.uniform(0.7, 1)))
    size = int(rng.integers(18, 28))
    x, y = int(rng.integers(0, width - size)), int(rng.integers(0, height - size))
    pen, box = ImageDraw.Draw(picture), (x, y, x + size, y + size)
    shape = SHAPES[label % len(SHAPES)]
    if shape == "triangle":
        pen.polygon([(x, y + size), (x + size, y + size), (x + size // 2, y)], fill)
    elif shape == "cross":
        pen.line([(x, y), (x + size, y + size)], fill, 6)
        pen.line([(x, y + size), (x + size, y)], fill, 6)
    else:
        getattr(pen, shape)(box, fill)
    return picture


def recipe_words(data: Path, epochs: int, recipe: str = "imagenet-paper", net: str = "wrn-10-1") -> list[str]:
    """What to type behind `maxmatch train` for the recipe in small: all that is changed stands here."""
    sets = [
        f"net.name={net}", "data.side=32", "data.resident=false", "data.workers=2", "train.batch=4", "train.threads=1",
        "train.warmup_epochs=1", "train.checkpoint_every=3", "train.log_every=4", "evaluate.unlabelled=100",
        "method.threshold=0.1",
    ]  # fmt: skip
    words = [str(data), "--config", recipe, "--epochs", str(epochs), "--device", "cpu", "--no-report"]
    return [*words, *(word for text in sets for word in ("--set", text))]


def run_killed(
    words: Sequence[str],
    out: Path,
    launch: Sequence[str] = ALONE,
    checkpoints: int = 2,
    signals: Sequence[int] = (signal.SIGTERM, signal.SIGKILL),
) -> list[int]:
    """Train with a signal after some checkpoints and another after some more; the exit codes of all parts."""
    codes, again = [], [*launch, "train", "--resume", "--no-report", "--out", str(out)]
    command = [*launch, "train", *words, "--out", str(out)]
    for number in signals:
        codes.append(stopped(command, out, number, checkpoints))
        command = again
    codes.append(subprocess.run(again, capture_output=True, check=False).returncode)
    return codes


def stopped(command: Sequence[str], out: Path, number: int, checkpoints: int) -> int:
    """Run a command, send it a signal once it has written so many more checkpoints, and give its exit code."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before = seen = _newest(out)
    while process.poll() is None and checkpoints:
        if _newest(out) != seen:
            seen, checkpoints = _newest(out), checkpoints - 1
        time.sleep(0.002)
    started = _started_by(process.pid)
    if process.poll() is None:
        process.send_signal(number)
    code = process.wait()
    while any(map(_lives, started)):  # they save where they are; who goes on to the end is found out below
        time.sleep(0.01)
    assert _newest(out) != before, "it ended before its first checkpoint"
    assert not (out / "result.json").exists(), "it went on to the end"
    return code


def differences(a: Path, b: Path) -> list[str]:
    """Where two finished runs differ, in words; times are not compared."""
    from maxmatch.nets.model_file import read_tensors
    from maxmatch.train.checkpoint import checkpoints

    found = []
    for name in ("model.safetensors", f"checkpoint/{checkpoints(a / 'checkpoint')[-1].name}"):
        one, other = read_tensors(a / name)[0], read_tensors(b / name)[0]
        found += [f"{name}: {key}" for key in one if not (one[key] == other[key]).all()]
    logs = [[line for line in _lines(run / "metrics.jsonl") if line["kind"] != "speed"] for run in (a, b)]
    found += ["metrics.jsonl"] if logs[0] != logs[1] else []
    results = [json.loads((run / "result.json").read_text()) for run in (a, b)]
    names = ("steps", "labels", "error", "top5_error", "unlabelled_error", "unlabelled_top5_error", "robust_error")
    return found + [f"result.json: {name}" for name in names if results[0][name] != results[1][name]]


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _started_by(parent: int) -> list[int]:
    """The processes that a process has started."""
    return [int(place.name) for place in Path("/proc").glob("[0-9]*") if _stat(place)[1:2] == [str(parent)]]


def _lives(process: int) -> bool:
    return _stat(Path("/proc") / str(process))[:1] not in ([], ["Z"])


def _stat(place: Path) -> list[str]:
    """What the system says of a process behind its name: its state, its parent, ...; nothing once it is gone."""
    try:
        return (place / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _newest(out: Path) -> str:
    return max((path.name for path in (out / "checkpoint").glob("[0-9]*.safetensors")), default="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--launch", default=shlex.join(ALONE), help="what stands before `train`")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--images", type=int, default=30, help="training pictures of each class")
    parser.add_argument("--recipe", default="imagenet-paper")
    parser.add_argument("--net", default="wrn-10-1")
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as place:
        root = make_folder(Path(place) / "pictures", train=asked.images, val=10)
        words = recipe_words(root, asked.epochs, asked.recipe, asked.net)
        launch, whole, killed = shlex.split(asked.launch), Path(place) / "whole", Path(place) / "killed"
        subprocess.run([*launch, "train", *words, "--out", str(whole)], check=True)
        print("exit codes of the killed run's parts:", run_killed(words, killed, launch))
        found = differences(whole, killed)
        print("killed and unkilled are equal to the last bit" if not found else f"they differ: {found}")
        sys.exit(bool(found))


if __name__ == "__main__":
    main()

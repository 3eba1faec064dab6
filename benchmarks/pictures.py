"""Pictures of one's own from end to end on a CPU: 2,000 PNG files of Fashion-MNIST, ten labels a class.

    python benchmarks/pictures.py                   some ten minutes on 2 cores
    python benchmarks/pictures.py photographs --data cifar10 --pictures 10000        the same with small photographs
    python benchmarks/pictures.py photographs-published --data cifar10 --pictures 10000 --published

The files are written into labeled/CLASS, unlabeled and test/CLASS, twice, with other pictures each time; then `maxmatch
train FOLDER` runs as a user would type it: with nothing chosen by hand, and by `--method` maxmatch and supervised; from
published weights (`published.py`) maxmatch is what is chosen, and fixmatch stands beside it. The first run is used to
predict, and exported, and the ONNX file is run on the test files by onnxruntime in a process that has no torch.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from record import Record

from maxmatch import load_images

CHOSEN = "chosen"  # the run with nothing typed but the folder
ALONE = """
import json, sys
import numpy as np, onnxruntime
from PIL import Image
model, names = sys.argv[1], json.load(sys.stdin)
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
pictures = np.stack([np.array(Image.open(name).convert("RGB")) for name in names])
chances = session.run(None, {"images": pictures})[0]
assert "torch" not in sys.modules
print(json.dumps([classes[i] for i in chances.argmax(1)]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", nargs="?", default="pictures")
    parser.add_argument("--data", default="fashion-mnist", help="whose images the files hold")
    parser.add_argument("--pictures", type=int, default=2_000)
    parser.add_argument("--tests", type=int, default=1_000)
    parser.add_argument("--folders", type=int, default=2)
    parser.add_argument("--published", action="store_true", help="begin with published weights")
    parser.add_argument("--steps", type=int, help="fewer for a quick look; no record is written")
    given = parser.parse_args()
    record = Record(given.record)
    beside = "fixmatch" if given.published else "maxmatch"
    results: dict[str, list[dict[str, Any]]] = {"supervised": [], beside: [], CHOSEN: []}
    words = ["--steps", str(given.steps)] if given.steps else []
    with tempfile.TemporaryDirectory() as place:
        if given.published:
            from published import NET, OFFLINE, lay  # which needs timm

            lay(Path(place) / "hub")
            os.environ |= {"HF_HOME": f"{place}/hub", **OFFLINE}
            words += ["--set", f"net.name=timm:{NET}", "--set", "net.pretrained=true"]
        for number in range(given.folders):
            folder = Path(place) / f"{given.record}-{number}"
            write_pictures(folder, given.data, given.pictures, given.tests, seed=number)
            for name, found in results.items():
                method = [] if name == CHOSEN else ["--method", name]
                maxmatch("train", str(folder), *method, "--out", f"{place}/{name}-{number}", *words)
                found.append(json.loads(Path(f"{place}/{name}-{number}/result.json").read_text()))
        for name, found in results.items():
            errors = [result["error"]["last"] for result in found]
            each, seconds = ", ".join(f"{error:.2f}" for error in errors), found[0]["seconds_total"]
            told = f"error {np.mean(errors):.2f} % ({each})"
            record.say(f"{name:<12}{told}, {seconds:.0f} s from start to result: {found[0]['method']}")
        folder, run = Path(place) / f"{given.record}-0", f"{place}/{CHOSEN}-0"
        maxmatch("predict", run, str(folder / "test"), "--out", f"{place}/labels.csv")
        with open(f"{place}/labels.csv", newline="") as file:
            predicted = {row["path"]: row["label"] for row in csv.DictReader(file)}
        wrong = np.mean([label != Path(path).parts[0] for path, label in predicted.items()])
        record.say(f"predict: {len(predicted)} files, error {100 * wrong:.2f} %")
        maxmatch("export", run, f"{place}/model.onnx")
        names = [str(folder / "test" / path) for path in predicted]
        alone = subprocess.run(
            [sys.executable, "-c", ALONE, f"{place}/model.onnx"], input=json.dumps(names), text=True, check=True,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        same = np.mean([a == b for a, b in zip(json.loads(alone.stdout), predicted.values(), strict=True)])
        record.say(f"onnxruntime alone: the label of predict for {100 * same:.1f} % of the files")
    if given.steps is None:
        record.save({**results, "predict error": 100 * float(wrong), "onnx agrees": float(same)})


def write_pictures(folder: Path, data: str, count: int, tests: int, each: int = 10, seed: int = 0) -> None:
    """PNG files: `each` labelled ones a class, the rest of `count` unlabelled, and `tests` to test."""
    images = load_images(data)
    assert images.test_x is not None
    assert images.test_y is not None
    shown = dict.fromkeys(range(len(images.classes)), 0)
    for number in np.random.default_rng(seed).permutation(len(images.y))[:count]:
        label = int(images.y[number])
        shown[label] += 1
        place = f"labeled/{_plain(images.classes[label])}" if shown[label] <= each else "unlabeled"
        _write(folder / place / f"{number}.png", images.x[number].numpy())
    for number in range(tests):
        label = images.classes[int(images.test_y[number])]
        _write(folder / "test" / _plain(label) / f"{number}.png", images.test_x[number].numpy())


def maxmatch(*words: str) -> None:
    """A command as a user types it; its lines go to standard error."""
    subprocess.run([sys.executable, "-m", "maxmatch", *words], check=True, stdout=subprocess.DEVNULL)


def _plain(name: str) -> str:
    return name.replace("/", "-")


def _write(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(path)


if __name__ == "__main__":
    main()

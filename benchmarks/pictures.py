"""Pictures of one's own from end to end on a CPU: 2,000 PNG files of Fashion-MNIST, ten labels a class.

    python benchmarks/pictures.py                   some six minutes on 2 cores

The files are written into labeled/CLASS, unlabeled and test/CLASS, then `maxmatch train FOLDER` runs as a user would
type it, with nothing chosen by hand, for MaxMatch and for the supervised baseline; the first is used to predict, and
exported, and the ONNX file is run on the test files by onnxruntime in a process that has no torch.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from record import Record

from maxmatch import load_images

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
    parser.add_argument("--pictures", type=int, default=2_000)
    parser.add_argument("--tests", type=int, default=1_000)
    parser.add_argument("--steps", type=int, help="fewer for a quick look; no record is written")
    given = parser.parse_args()
    record, results = Record("pictures"), {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "clothes"
        write_pictures(folder, given.pictures, given.tests)
        for method in ("supervised", "maxmatch"):
            steps = ["--steps", str(given.steps)] if given.steps else []
            maxmatch("train", str(folder), "--method", method, "--out", f"{place}/{method}", *steps)
            results[method] = json.loads(Path(f"{place}/{method}/result.json").read_text())
            error, seconds = results[method]["error"]["last"], results[method]["seconds_total"]
            record.say(f"{method:<12}error {error:.2f} %, {seconds:.0f} s from start to result")
        maxmatch("predict", f"{place}/maxmatch", str(folder / "test"), "--out", f"{place}/labels.csv")
        with open(f"{place}/labels.csv", newline="") as file:
            predicted = {row["path"]: row["label"] for row in csv.DictReader(file)}
        wrong = np.mean([label != Path(path).parts[0] for path, label in predicted.items()])
        record.say(f"predict: {len(predicted)} files, error {100 * wrong:.2f} %")
        maxmatch("export", f"{place}/maxmatch", f"{place}/model.onnx")
        names = [str(folder / "test" / path) for path in predicted]
        alone = subprocess.run(
            [sys.executable, "-c", ALONE, f"{place}/model.onnx"], input=json.dumps(names), text=True, check=True,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        same = np.mean([a == b for a, b in zip(json.loads(alone.stdout), predicted.values(), strict=True)])
        record.say(f"onnxruntime alone: the label of predict for {100 * same:.1f} % of the files")
    if given.steps is None:
        record.save({**results, "predict error": 100 * float(wrong), "onnx agrees": float(same)})


def write_pictures(folder: Path, count: int, tests: int, each: int = 10) -> None:
    """PNG files: `each` labelled ones a class, the rest of `count` unlabelled, and `tests` to test."""
    images = load_images("fashion-mnist")
    assert images.test_x is not None
    assert images.test_y is not None
    shown = dict.fromkeys(range(len(images.classes)), 0)
    for number in np.random.default_rng(0).permutation(len(images.y))[:count]:
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
    Image.fromarray(pixels[0]).save(path)


if __name__ == "__main__":
    main()

"""What a start from published weights needs: one thing at a time made otherwise than `train/pictures.py` chooses it.

    python benchmarks/finetuning.py                 some fifty minutes on 2 cores

Two folders of 10,000 small photographs, ten labels a class (`pictures.py`), EfficientNet-Lite0 (`published.py`). The
labels alone first, since they take a third of the time; then what unlabelled pictures add, by method.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from pictures import write_pictures
from published import NET, OFFLINE, lay
from record import Record

ALONE = "--method supervised"
BATCH = "--set net.batchnorm_frozen=false"
SGD = "--set train.optimizer=sgd --set train.lr=0.003 --set train.head_lr=unset --set train.weight_decay=0.0005"
ARMS = {
    "as chosen": ALONE,
    "the head drawn": ALONE,
    "statistics of the batch": f"{ALONE} {BATCH}",
    "SGD, lr .003": f"{ALONE} {SGD}",
    "all three": f"{ALONE} {BATCH} {SGD}",
    "lr .0003": f"{ALONE} --set train.lr=0.0003",
    "MaxMatch, as chosen": "--method maxmatch",
    "FreeMatch's thresholds, worst of three": "--method freematch --set method.k=3 --set method.over=worst",
    "MaxMatch, 900 steps": "--method maxmatch",
}
LONGER = {"MaxMatch, 900 steps": 900}
HEADS_DRAWN = ("the head drawn", "all three")
COMMAND = "from maxmatch.cli import main; main()"
DRAWN = "import maxmatch.nets; maxmatch.nets.empty_head = lambda net, features: None; "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folders", type=int, default=2)
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--tests", type=int, default=1_000)
    parser.add_argument("--steps", type=int, help="fewer for a quick look; no record is written")
    given = parser.parse_args()
    record = Record("finetuning")
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in ARMS}
    with tempfile.TemporaryDirectory() as place:
        lay(Path(place) / "hub")
        os.environ |= {"HF_HOME": f"{place}/hub", **OFFLINE}
        for number in range(given.folders):
            folder = Path(place) / f"photographs-{number}"
            write_pictures(folder, "cifar10", given.pictures, given.tests, seed=20 + number)
            for name in ARMS:
                results[name].append(trained(name, folder, Path(place) / f"run-{number}" / name, given.steps))
        for name, found in results.items():
            errors = [result["error"]["last"] for result in found]
            each = ", ".join(f"{error:.2f}" for error in errors)
            record.say(f"{name:<40}error {np.mean(errors):.2f} % ({each}), {found[0]['seconds']:.0f} s")
    if given.steps is None:
        record.save(results)


def trained(name: str, folder: Path, out: Path, steps: int | None) -> dict[str, Any]:
    """The result of a run of that arm, trained as a user would type it, but for heads that are drawn."""
    words = [*ARMS[name].split(), "--set", f"net.name=timm:{NET}", "--set", "net.pretrained=true", "--no-report"]
    if steps := steps or LONGER.get(name):
        words += ["--steps", str(steps)]
    command = [sys.executable, "-c", (DRAWN if name in HEADS_DRAWN else "") + COMMAND]
    subprocess.run([*command, "train", str(folder), *words, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    return result


if __name__ == "__main__":
    main()

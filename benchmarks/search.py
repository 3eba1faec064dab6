"""Many settings, one short run each: what learns soonest? Every run that ever ended stays in the record.

    python benchmarks/search.py cifar10 "cifar10@250 --steps 5000 --fold 1" plan.txt --jobs 2

A line of the plan is a name, a colon and what `maxmatch train` gets beside the common words; `-` reads the plan from
standard input. `--jobs` runs several at a time: their errors count then, their steps/s don't; `--beside` says how many
others, begun elsewhere, share the device. With `--keep DIR` the runs stay in DIR/NAME. The record, here
records/search-cifar10.json, holds for each run its command, commit, result.json and every evaluation on the way.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from record import FOLDER

from maxmatch.bench.origin import commit, hardware, versions

writing = threading.Lock()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record")
    parser.add_argument("common", help="what every run gets, data first")
    parser.add_argument("plan")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--beside", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    text = sys.stdin.read() if given.plan == "-" else Path(given.plan).read_text()
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    if nameless := [line for line in lines if line and ":" not in line]:
        parser.error(f"a line of the plan is NAME: WORDS, and this one has no colon: {nameless[0]}")
    runs = [tuple(part.strip() for part in line.split(":", 1)) for line in lines if line]
    path = FOLDER / f"search-{given.record}.json"
    at_once = given.jobs + given.beside
    with ThreadPoolExecutor(given.jobs) as pool:
        for _ in pool.map(lambda run: add(path, *run, given.common, at_once, given.keep), runs):
            pass


def add(path: Path, name: str, own: str, common: str, jobs: int, keep: Path | None = None) -> None:
    """Train once and add what came of it to the record."""
    words = [*shlex.split(common), *shlex.split(own)]
    with tempfile.TemporaryDirectory() as folder:
        run = keep / name if keep else Path(folder, "run")
        command = [sys.executable, "-m", "maxmatch", "train", *words, "--out", str(run)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        row: dict[str, Any] = {"name": name, "command": shlex.join(["maxmatch", "train", *words]), "jobs": jobs}
        row |= {"commit": commit(Path(__file__)), "versions": versions(), "hardware": hardware()}
        if done.returncode:
            row["failed"] = (done.stderr or done.stdout).strip().splitlines()[-1]
            said = f"failed: {row['failed']}"
        else:
            row["result"] = json.loads((run / "result.json").read_text())
            rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
            row["evaluations"] = [[r["step"], r["error"]] for r in rows if "error" in r]
            said = tell(row["result"])
    with writing:
        before = json.loads(path.read_text()) if path.exists() else []
        path.write_text("[" + ",\n".join(map(json.dumps, [*before, row])) + "]\n")
        print(f"{name}: {said}", flush=True)


def tell(result: dict[str, Any]) -> str:
    return (
        f"error {result['error']['last']:.2f} %, {result['steps']} steps, {result['steps_per_second']:.0f}/s, "
        f"{result['seconds_total']:.0f} s, kept {result['mask_rate']}, right {result['pseudo_label_accuracy']}"
    )


if __name__ == "__main__":
    main()

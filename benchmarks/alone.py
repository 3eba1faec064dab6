"""One training from the start of its process to its end, by the clock, with nothing compiled before.

    python benchmarks/alone.py cifar10-250-alone/fast-10min "cifar10@250 --config fast-10min --seed 3 --fold 3"

The words go to `maxmatch train`, without a report. The data should be there already (`maxmatch data fetch cifar10`).
The record, here records/cifar10-250-alone/fast-10min.json, has the seconds and result.json; its metrics lie beside it.
With `--out` the run stays there: as OUT/METHOD/fold-F it is one of a benchmark's. A run that was cut off there goes on
by the same words; no clock has seen the whole of it then, and the seconds are those that it counted itself.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import FOLDER

from maxmatch.bench.origin import commit, hardware, versions

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record")
    parser.add_argument("words", help="what maxmatch train gets, data first")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    words = ["train", *shlex.split(asked.words), "--no-report"]
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: str(Path(folder, name)) for name in CACHES}
        run = asked.out or Path(folder, "run")
        cut_off = (run / "recipe.json").exists()
        command = [sys.executable, "-m", "maxmatch", *words, "--out", str(run), *(["--resume"] if cut_off else [])]
        begun = time.perf_counter()
        subprocess.run(command, env=os.environ | caches, check=True)
        seconds = time.perf_counter() - begun
        result = json.loads((run / "result.json").read_text())
        metrics = (run / "metrics.jsonl").read_bytes()
    record = {
        "command": shlex.join(["maxmatch", *words]),
        "commit": commit(Path(__file__)),
        "versions": versions(),
        "hardware": hardware(),
        "caches": "empty",
        "seconds_by_the_clock": None if cut_off else round(seconds, 1),
        "result": result,
    }
    path = FOLDER / f"{asked.record}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(metrics, mtime=0))
    error, compiling = result["error"]["last"], result["seconds_compiling"]
    told = "error not measured" if error is None else f"error {error:.2f} %"
    took = f"{result['seconds_total']:.1f} s by its own count" if cut_off else f"{seconds:.1f} s by the clock"
    print(f"{told}, {took}, {compiling:.1f} of them compiling")
    print(path)


if __name__ == "__main__":
    main()

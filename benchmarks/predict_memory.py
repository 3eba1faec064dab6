"""Memory of `maxmatch predict` on many files: does it stay flat?

    python benchmarks/predict_memory.py                    100,000 files; some minutes on 2 cores
    python benchmarks/predict_memory.py --files 20000

Draws a few hundred small pictures, links them into folders until there are enough files, trains a tiny net on digits,
and samples the resident memory of `maxmatch predict` as its rows come.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from record import Record

SHARES = (1, 25, 50, 75, 100)  # percent of the files at which memory is told
PICTURES, IN_FOLDER = 300, 1000
TRAIN = ("digits@20", "--steps", "20", "--set", "net.name=wrn-10-1", "--set", "train.threads=1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        run, pictures = Path(place) / "run", Path(place) / "pictures"
        maxmatch = [sys.executable, "-m", "maxmatch"]
        subprocess.run([*maxmatch, "train", *TRAIN, "--out", str(run)], check=True, capture_output=True)
        draw(pictures, given.files)
        begun = time.monotonic()
        samples, peak = follow([*maxmatch, "predict", str(run), str(pictures), "--workers", str(given.workers)])
        seconds = time.monotonic() - begun
    rows = samples[-1][0]
    assert rows == given.files, f"{rows} rows for {given.files} files"
    record = Record("predict_memory")
    record.say(f"maxmatch predict on {given.files} files, {given.workers} workers: {seconds:.0f} s")
    for share in SHARES:
        at, memory = next(sample for sample in samples if sample[0] >= share * rows // 100)
        record.say(f"  {share:>3} %  {at:>7} rows  {memory / 1024:7.1f} MiB resident")
    record.say(f"  peak {peak / 1024:.1f} MiB")
    record.save(
        {"files": given.files, "seconds": round(seconds, 1), "rows_and_kib": samples, "peak_kib": peak}, threads=1
    )


def draw(folder: Path, files: int) -> None:
    """`files` pictures of a few sizes, all but the first few hundred of them links."""
    generator = np.random.default_rng(1)
    made: list[Path] = []
    for number in range(files):
        path = folder / f"{number // IN_FOLDER:04d}" / f"{number:07d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        if number < PICTURES:
            height, width = generator.integers(16, 64, 2)
            Image.fromarray(generator.integers(0, 256, (height, width, 3), np.uint8)).save(path)
            made.append(path)
            continue
        try:
            os.link(made[number % PICTURES], path)
        except OSError:  # a file system without links
            shutil.copy(made[number % PICTURES], path)


def follow(command: list[str]) -> tuple[list[tuple[int, int]], int]:
    """(rows so far, resident KiB) at each thousandth row of a command's output, and its peak."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    samples: list[tuple[int, int]] = []
    peak = resident = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for number, _ in enumerate(process.stdout):  # the first line is the header
            if number % 250 == 0 and number:
                status = memory_of(process.pid)
                resident, peak = status.get("VmRSS", resident), status.get("VmHWM", peak)
                if number % 1000 == 0:
                    samples.append((number, resident))
    if process.returncode:
        raise SystemExit(process.returncode)
    if not samples or samples[-1][0] != number:
        samples.append((number, resident))
    return samples, peak


def memory_of(pid: int) -> dict[str, int]:
    """VmRSS and VmHWM of a process in KiB; of one that has ended, nothing."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "VmHWM"))}


if __name__ == "__main__":
    main()

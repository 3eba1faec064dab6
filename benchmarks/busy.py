"""What a run on a CPU loses beside other programs: steps a second by its threads, and by how long they wait.

    python benchmarks/busy.py            two minutes on 2 cores

Digits with 20 labels, MaxMatch, alone and beside one busy program a core. `spins` is GOMP_SPINCOUNT: how often a thread
asks whether the others are done before it sleeps; 300000 is what OpenMP has by itself, 10000 what the command sets.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from record import Record

from maxmatch.cores import cores

SPINS = (300_000, 10_000, 1_000, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    record, rows = Record("busy"), []
    for title, programs in (("alone", 0), (f"beside {cores()} busy programs", cores())):
        with busy(programs):
            for threads, spins in ((1, SPINS[0]), *((cores(), spins) for spins in SPINS)):
                speed = steps_per_second(steps if not programs else steps // 2, threads, spins)
                record.say(f"{title}: {threads} threads, spins {spins}: {speed:.1f} steps/s")
                rows.append({"beside": programs, "threads": threads, "spins": spins, "steps_per_second": speed})
    record.save(rows)


@contextmanager
def busy(programs: int) -> Iterator[None]:
    """Within: so many programs that never wait, each in a session of its own as another user's would be."""
    endless = f"import os\nwhile os.getppid() == {os.getpid()}: pass"  # or until this process is gone
    started = [subprocess.Popen([sys.executable, "-c", endless], start_new_session=True) for _ in range(programs)]
    try:
        yield
    finally:
        for program in started:
            program.kill()


def steps_per_second(steps: int, threads: int, spins: int) -> float:
    """Of a run in a process of its own."""
    environment = {**os.environ, "GOMP_SPINCOUNT": str(spins)}
    with tempfile.TemporaryDirectory() as folder:
        words = ["digits@20", "--steps", str(steps), "--device", "cpu", "--no-report", "--out", f"{folder}/run"]
        sets = [f"train.threads={threads}", f"train.evaluate_every={steps}", "evaluate.robust_views=1"]
        command = [sys.executable, "-m", "maxmatch", "train", *words, *(w for s in sets for w in ("--set", s))]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        result = json.loads((Path(folder) / "run" / "result.json").read_text())
    return float(result["steps_per_second"])


if __name__ == "__main__":
    main()

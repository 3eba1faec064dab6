"""The steps of the demo's recipe by two versions of the code that take turns in one run, so that a busy machine is
busy for both.

    python benchmarks/turns.py          a worker: reads a number of steps, does them, prints the seconds they took

`before_and_after` starts one worker on the code of a commit and one on the working tree's.
"""

from __future__ import annotations

import io
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
THREADS = 2


def before_and_after(
    commit: str, git: Callable[..., bytes | None], say: Callable[[str], None], rounds: int = 15, steps: int = 40
) -> dict[str, Any] | None:
    """Steps/s of both and the median ratio over the rounds; None, and a line that says why, if there is no commit."""
    archive = git("archive", "--format=tar", commit, "src")
    if archive is None:
        say(f"before and after: not measured, git finds no commit {commit} here; fetch it, or type --before COMMIT")
        return None
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        with worker(Path(folder) / "src") as before, worker(ROOT / "src") as after:
            for warm_up in (before, after):
                warm_up(10)
            turns = [(before(steps), after(steps)) for _ in range(rounds)]
    rates = {name: [steps / turn[i] for turn in turns] for i, name in enumerate(("before", "after"))}
    ratio = statistics.median(b / a for b, a in turns)
    for name, values in rates.items():
        say(f"{name:<14}{statistics.median(values):6.1f} steps/s" + (f"  ({commit})" if name == "before" else ""))
    say(f"after / before: {ratio:.2f}, the median of {rounds} turns of {steps} steps each")
    return {"commit": commit, "steps a turn": steps, "steps/s": rates, "after / before": ratio}


@contextmanager
def worker(source: Path) -> Iterator[Callable[[int], float]]:
    """A process that runs the code in `source`: call it with a number of steps, and it says how long they took."""
    process = subprocess.Popen(
        [sys.executable, __file__],
        env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": str(THREADS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout
    found = stdout.readline().strip()
    if Path(found) != source.resolve():
        raise RuntimeError(f"the worker for {source} runs the code in {found or 'no folder: it did not start'}")

    def seconds(steps: int) -> float:
        stdin.write(f"{steps}\n")
        return float(stdout.readline())

    try:
        yield seconds
    finally:
        stdin.close()
        process.wait()


def main() -> None:
    import maxmatch
    from maxmatch.data.datasets import load_images
    from maxmatch.train.fit import begin
    from maxmatch.train.recipe import resolve
    from maxmatch.train.recipes import compose

    recipe = resolve(compose("digits", "maxmatch"), device="cpu", threads=THREADS)
    with tempfile.TemporaryDirectory() as folder:
        run = begin(recipe, Path(folder), load_images("digits"), quiet=True)
    print(Path(maxmatch.__file__).resolve().parents[1], flush=True)
    done = 0
    for line in sys.stdin:
        begun = time.perf_counter()
        for t in range(done, done + int(line)):
            run.step(t)
        print(time.perf_counter() - begun, flush=True)
        done += int(line)


if __name__ == "__main__":
    main()

"""Digits with 20 and 40 labels, five seeds: supervised, FixMatch, MaxMatch and LabelSpreading on the same splits.

    python benchmarks/digits.py                 seeds 1 to 5; about 10 minutes on 2 cores
    python benchmarks/digits.py --seeds 11      other seeds: what recipes are tuned on

Prints the mean error and the paired difference between MaxMatch and FixMatch with its standard error.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
from typing import Any

from record import Record

METHODS = ("supervised", "fixmatch", "maxmatch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--labels", default="20,40")
    parser.add_argument("--jobs", type=int, default=2, help="processes, one thread each")
    given = parser.parse_args()
    seeds, labels = ([int(n) for n in text.split(",")] for text in (given.seeds, given.labels))
    jobs = [(name, count, seed) for count in labels for name in (*METHODS, "label-spreading") for seed in seeds]
    with multiprocessing.get_context("spawn").Pool(given.jobs) as workers:
        results = workers.map(run, jobs, chunksize=1)
    record = Record("digits")
    for count in labels:
        record.say(f"digits, {count} labels, seeds {given.seeds}: error in percent")
        errors = {name: _column(results, name, count) for name in (*METHODS, "label-spreading")}
        for name, values in errors.items():
            record.say(f"  {name:<16}{statistics.mean(values):6.2f}   {'  '.join(f'{v:5.2f}' for v in values)}")
        difference = [m - f for m, f in zip(errors["maxmatch"], errors["fixmatch"], strict=True)]
        if len(seeds) > 1:
            spread = statistics.stdev(difference) / len(seeds) ** 0.5
            mean = statistics.mean(difference)
            record.say(f"  maxmatch - fixmatch, paired: {mean:+.2f} +- {spread:.2f} (standard error)")
        ratio = statistics.mean(errors["maxmatch"]) / statistics.mean(errors["supervised"])
        record.say(f"  maxmatch / supervised: {ratio:.2f}")
    if seeds == [1, 2, 3, 4, 5]:
        record.save(results, threads=1)


def run(job: tuple[str, int, int]) -> dict[str, Any]:
    """One method with one number of labels and one seed."""
    import torch

    from maxmatch import compose, fit, load_images
    from maxmatch.data.split import make_split
    from maxmatch.demo import label_spreading

    name, labels, seed = job
    torch.set_num_threads(1)
    method = "maxmatch" if name == "label-spreading" else name
    recipe = compose("digits", method, given={"data": {"labels": labels}, "train": {"seed": seed, "threads": 1}})
    if name == "label-spreading":
        images = load_images("digits")
        error, robust, seconds = label_spreading(images, make_split(images.y, labels, seed), recipe)
        return {
            "method": name, "labels": labels, "seed": seed,
            "error": {"last": error}, "robust_error": robust, "seconds": seconds,
        }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        return fit(recipe, folder, quiet=True)


def _column(results: list[dict[str, Any]], method: str, labels: int) -> list[float]:
    return [r["error"]["last"] for r in results if (r["method"], r["labels"]) == (method, labels)]


if __name__ == "__main__":
    main()

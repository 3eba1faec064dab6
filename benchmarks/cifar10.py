"""CIFAR-10 with 250 labels in plain settings: does a fast step still learn? One GPU, a few minutes.

    python benchmarks/cifar10.py                 MaxMatch, K = 3, 12,000 steps
    python benchmarks/cifar10.py fixmatch        any method, with its defaults
    python benchmarks/cifar10.py uda --steps 2000 --policy cta

lr .03, cosine to 0, EMA .999, 64 + 448 images a step, WRN-28-2, RandAugment of FixMatch where no policy is given. The
images are fetched if they are not there (`maxmatch data fetch cifar10`).
"""

from __future__ import annotations

import argparse
import tempfile

from record import Record

from maxmatch import compose, fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", nargs="?", default="maxmatch")
    parser.add_argument("--labels", type=int, default=250)
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", default="fixmatch")
    given = parser.parse_args()
    settings = {
        "data": {"labels": given.labels},
        "augment": {"policy": given.policy},
        "train": {"steps": given.steps, "seed": given.seed, "schedule": "cosine", "evaluate_every": 2_000},
    }
    recipe = compose("cifar10", given.method, "paper", settings)
    plain = given.policy == "fixmatch"
    record = Record(f"cifar10-{given.labels}-{given.method}{'' if plain else f'-{given.policy}'}")
    with tempfile.TemporaryDirectory() as folder:
        result = fit(recipe, folder)
    record.say(
        f"cifar10, {given.labels} labels, {given.method}, {given.policy}, {given.steps} steps, seed {given.seed}:"
    )
    record.say(f"  error {result['error']['last']:.2f} %, median of 20 {result['error']['median20']:.2f} %")
    how = f"{result['mode']}, {result['kernels']} kernels"
    record.say(f"  {how}: {result['steps_per_second']:.1f} steps/s, {result['seconds']:.0f} s")
    record.save(result)


if __name__ == "__main__":
    main()

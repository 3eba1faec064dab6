"""A new method in one class: python examples/own_method.py

Instead of a threshold, every image counts by its confidence. The worst case over K views, both strategies, logging,
checkpoints and the command line (--method examples.own_method:Weighted) come from the base class.
"""

import sys
import tempfile
from dataclasses import dataclass, replace

from torch import Tensor

import maxmatch
from maxmatch.methods.base import Consistency, Target, Views
from maxmatch.methods.reduce import Reduction, Worst


@dataclass(frozen=True)
class Weighted(Consistency):
    """Each image counts by its confidence to the power `sharpness`."""

    k: Views = 3
    over: Reduction = Worst()
    sharpness: float = 4.0

    def targets(self, p: Tensor) -> Target:
        confidence, label = p.max(-1)
        return Target(label, keep=confidence**self.sharpness)


def main(steps: int = 300) -> None:
    recipe = maxmatch.compose("digits", given={"train": {"steps": steps}})
    with tempfile.TemporaryDirectory() as folder:
        result = maxmatch.fit(replace(recipe, method=Weighted()), out=f"{folder}/run")
    print(f"{result['method']}: error {result['error']['last']:.1f} %")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

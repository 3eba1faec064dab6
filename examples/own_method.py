"""A new method in one class: python examples/own_method.py

Instead of a threshold, every image counts by its confidence. The worst case over K views, both strategies, logging,
checkpoints and the command line (--method examples.own_method:Weighted) come from the base class.
"""

import sys
import tempfile
from dataclasses import dataclass, replace

from torch import Tensor

import maxmatch
from maxmatch.methods.base import Consistency, Target
from maxmatch.methods.ranges import Weight


@dataclass(frozen=True)
class Weighted(Consistency):
    """Every prediction teaches, as much as it is sure."""

    power: Weight = 2.0  # a number of 0 or more

    def targets(self, p: Tensor) -> Target:  # (B, C): probabilities of the weak views
        confidence, label = p.max(-1)
        return Target(label, confidence**self.power)


def main(steps: int = 300) -> None:
    recipe = maxmatch.compose("digits", given={"train": {"steps": steps}})
    with tempfile.TemporaryDirectory() as folder:
        result = maxmatch.fit(replace(recipe, method=Weighted(k=3, over="worst")), out=f"{folder}/run")
    print(f"{result['method']}: error {result['error']['last']:.1f} %")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

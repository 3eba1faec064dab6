"""Theorem 3 of the paper, both sides: python examples/theorem_3.py

Algorithm 1 on a linear classifier whose L, kappa, B and min phi are known (maxmatch.theory.convergence says why). For
each T it takes the step eta*(T), and the mean squared gradient of the Moreau envelope stands beside the bound.
"""

import math
import sys

import torch

from maxmatch.theory.convergence import flipped_nuisance, measure


def main(steps: int = 3000) -> None:
    problem, minimiser = flipped_nuisance()
    start = torch.tensor([-3.0, 4.0], dtype=torch.float64)
    print(f"L {problem.lipschitz:.3f}, kappa {problem.gradient_lipschitz:.3f}, B {problem.value_range:.3f}")
    print(f"min phi {problem.minimum:.3f} at the weights {[round(w, 2) for w in minimiser.tolist()]}")
    print(f"no squared gradient of the envelope exceeds L^2 = {problem.lipschitz**2:.2f}; Theorem 3, probability 0.95:")
    print(f"{'T':>6} {'eta*':>8} {'measured':>9} {'bound':>7} {'without B':>10} | {'full batch':>10} {'bound':>6}")
    for t in sorted({min(t, steps) for t in (10, 100, 1000, steps)}):
        drawn = measure(problem, start, t, runs=5, delta=0.05)  # batches of one labelled and one unlabelled image
        full = measure(problem, start, t, batch=None)  # nothing is left to chance: the first term alone
        left, right = float(drawn.mean_squared_gradient.max()), drawn.printed.total
        print(f"{t:>6} {drawn.step_size:>8.4f} {left:>9.4f} {right:>7.2f} {drawn.range_free.total:>10.2f}", end=" | ")
        print(f"{float(full.mean_squared_gradient):>10.4f} {full.printed.descent:>6.3f}")
    wrong = problem.labelled_losses(full.last[0]) > math.log(2)
    print(f"error on the labelled images: {100 * wrong.double().mean():.1f} %, of which 25 % are labelled wrongly")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

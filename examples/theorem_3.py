"""Theorem 3 of the paper, both sides: python examples/theorem_3.py

Algorithm 1 on a linear classifier whose L, kappa, B and min phi are known (maxmatch.theory.convergence says why). For each
T it takes the step eta*(T), and the mean squared gradient of the Moreau envelope stands beside the bound.
"""

import sys

import torch

from maxmatch.theory.convergence import flipped_nuisance, measure


def main(steps: int = 3000) -> None:
    problem, minimiser = flipped_nuisance()
    start = torch.tensor([-3.0, 4.0], dtype=torch.float64)
    print(f"L {problem.lipschitz:.3f}, kappa {problem.gradient_lipschitz:.3f}, B {problem.value_range:.3f}, "
          f"min phi {problem.minimum:.3f} at weights {[round(w, 2) for w in minimiser.tolist()]}")  # fmt: skip
    print(
        f"Always: |gradient of the envelope|^2 <= L^2 = {problem.lipschitz**2:.2f}. With probability 0.95, by Theorem 3:"
    )
    print(f"{'T':>6} {'eta*':>8} {'measured':>10} {'bound':>8} {'without B':>10} {'full batch':>11} {'its bound':>10}")
    for t in sorted({min(t, steps) for t in (10, 100, 1000, steps)}):
        drawn, full = measure(problem, start, t, runs=5, delta=0.05), measure(problem, start, t, batch=None)
        worst = float(drawn.mean_squared_gradient.max())  # of five runs, one image of each kind a step
        print(f"{t:>6} {drawn.step_size:>8.4f} {worst:>10.4f} {drawn.printed.total:>8.2f} {drawn.range_free.total:>10.2f} "
              f"{float(full.mean_squared_gradient):>11.4f} {full.printed.descent:>10.3f}")  # fmt: skip
    slack = full.printed.descent / float(full.mean_squared_gradient)
    print(f"at T = {t} the bound without chance is {slack:.1f} times the truth: an error on the safe side")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""How much a run may cost: `smoke` tests the code, `short` is for one GPU and as `fast-1min`, `full` is the paper's."""

from __future__ import annotations

from typing import Any, Literal

from maxmatch.errors import UsageError, unknown
from maxmatch.paper.published import FOLDS, STEPS

Budget = Literal["smoke", "short", "full"]
BUDGETS: tuple[Budget, ...] = ("smoke", "short", "full")
DEFAULT_STEPS: dict[Budget, int] = {"smoke": 10, "short": 4_000, "full": STEPS}
SMOKE_DATA = "digits"
_SMOKE_LABELS = {40: 20, 400: 20, 250: 40, 2500: 40}  # few, some; all else is many
_SMOKE_MANY = 100
# Their threshold lets nothing through in so few steps, so that nothing of the unlabelled loss would be run.
_SMOKE_THRESHOLD = {"method": {"threshold": 0.2}}


def find_budget(name: str) -> Budget:
    """A budget by its name."""
    for budget in BUDGETS:
        if budget == name:
            return budget
    raise UsageError(unknown("budget", name, BUDGETS))


def find_steps(budget: Budget, asked: int | None) -> int:
    """Steps of each run; `full` has the paper's and no others."""
    if asked is not None and budget == "full" and asked != STEPS:
        raise UsageError(f"--steps {asked}: full is the paper's {STEPS:,}; type --budget short --steps {asked}")
    return DEFAULT_STEPS[budget] if asked is None else asked


def folds(budget: Budget, of_paper: int) -> list[int]:
    """The folds where none are asked for: the paper's own number in `full`, else one."""
    return list(range(1, (of_paper if budget == "full" else 1) + 1))


def labels_for(budget: Budget, labels: int) -> int:
    """How many labels stand for the paper's: digits has 1,195 training images."""
    return _SMOKE_LABELS.get(labels, _SMOKE_MANY) if budget == "smoke" else labels


def settings(budget: Budget, steps: int, method: str) -> dict[str, dict[str, Any]]:
    """What a budget sets in a recipe."""
    if budget == "full":
        return {"train": {"steps": steps, "schedule": "cosine-7/16"}}
    often = {"log_every": max(1, steps // 100), "evaluate_every": max(1, steps // 20)}
    horizon = {"ema_decay": "auto"}  # 5 % of the steps: an average over 1,000 would still hold the initial weights
    net: dict[str, Any] = {"batchnorm_momentum": "auto"}
    if budget == "short":
        train = {"steps": steps, "optimizer": "muon", "schedule": "cosine", "checkpoint_every": max(1, steps // 8)}
        return {"train": train | often | horizon, "net": net}
    tiny: dict[str, Any] = {"steps": steps, "batch": 8, "ratio": 2, "log_every": 1}
    tiny |= {"checkpoint_every": steps, "evaluate_every": steps}
    found: dict[str, dict[str, Any]] = {"net": net | {"name": "wrn-10-1"}, "evaluate": {"robust_views": 1}}
    found["train"] = horizon | tiny
    return found | (_SMOKE_THRESHOLD if method in ("fixmatch", "maxmatch", "fixmatch-anchoring") else {})


def differences(budget: Budget, folds: int, steps: int, of_paper: int = FOLDS) -> str:
    """In words, how a budget falls short of the paper."""
    if budget == "full":
        return f"the paper's {STEPS:,} steps; n = {folds} fold{'s'[: folds != 1]} (the paper: {of_paper})"
    share = 100 * steps / STEPS
    told = f"{steps:,} steps, {share:.2g} % of the paper's {STEPS:,}; n = {folds} fold{'s'[: folds != 1]}"
    ends = "Muon instead of SGD, cosine to 0 instead of 7/16 of a period, averages over 5 % of the steps"
    if budget == "smoke":
        ends = "a tiny net, 8 + 16 images a step, threshold 0.2 for FixMatch and MaxMatch"
    return f"{told} (the paper: {of_paper}); {ends}"

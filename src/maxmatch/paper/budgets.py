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


def default_steps(budget: Budget, of_paper: int = STEPS) -> int:
    """Steps of each run where none are asked for."""
    return of_paper if budget == "full" else DEFAULT_STEPS[budget]


def find_steps(budget: Budget, asked: int | None, of_paper: int = STEPS) -> int:
    """Steps of each run; `full` has the paper's and no others."""
    if asked is not None and budget == "full" and asked != of_paper:
        raise UsageError(f"--steps {asked}: full is the paper's {of_paper:,}; type --budget short --steps {asked}")
    return default_steps(budget, of_paper) if asked is None else asked


def folds(budget: Budget, of_paper: int) -> list[int]:
    """The folds where none are asked for: the paper's own number in `full`, else one."""
    return list(range(1, (of_paper if budget == "full" else 1) + 1))


def labels_for(budget: Budget, labels: int | str, data: str = SMOKE_DATA) -> int | str:
    """How many labels stand for the paper's: digits has 1,195 training images."""
    if budget != "smoke" or (isinstance(labels, str) and data == "imagenet"):
        return labels
    return _SMOKE_LABELS.get(labels, _SMOKE_MANY) if isinstance(labels, int) else _SMOKE_MANY


def settings(budget: Budget, steps: int, method: str, data: str = "") -> dict[str, dict[str, Any]]:
    """What a budget sets in a recipe. The whole of ImageNet's counts in epochs and is its recipe as it is."""
    if budget == "full" and data == "imagenet":
        return {}
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
    if data == "imagenet":
        found["data"] = {"side": 32}
    return found | (_SMOKE_THRESHOLD if method in ("fixmatch", "maxmatch", "fixmatch-anchoring") else {})


def differences(budget: Budget, folds: int, steps: int, of_paper: int = FOLDS, its_steps: int = STEPS) -> str:
    """In words, how a budget falls short of the paper, which has `of_paper` folds of `its_steps`."""
    if budget == "full":
        return f"the paper's {its_steps:,} steps; n = {folds} fold{'s'[: folds != 1]} (the paper: {of_paper})"
    share = 100 * steps / its_steps
    told = f"{steps:,} steps, {share:.2g} % of the paper's {its_steps:,}; n = {folds} fold{'s'[: folds != 1]}"
    ends = "Muon instead of SGD, cosine to 0 instead of 7/16 of a period, averages over 5 % of the steps"
    if its_steps != STEPS:  # ImageNet: the cosine of the paper ends at 0 too
        ends = (
            "Muon instead of SGD (Finetune: SGD), one value of the cosine a step instead of an epoch, averages over "
            "5 % of the steps"
        )
    if budget == "smoke":
        ends = "a tiny net, 8 + 16 images a step, threshold 0.2 for FixMatch and MaxMatch"
    return f"{told} (the paper: {of_paper}); {ends}"

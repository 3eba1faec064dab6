"""What a finished run says of itself: result.json, and the warnings it began with."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from maxmatch import __version__
from maxmatch.augment import Views
from maxmatch.data.datasets import Images
from maxmatch.data.split import Split
from maxmatch.errors import listed
from maxmatch.evaluate.errors import summary, top5_error
from maxmatch.evaluate.robust import Robust, robust_errors
from maxmatch.methods import method_name
from maxmatch.methods.base import Consistency
from maxmatch.settings import plain
from maxmatch.train.checkpoint import Progress
from maxmatch.train.recipe import Recipe
from maxmatch.train.suited import FINETUNED


def make_result(
    recipe: Recipe,
    images: Images,
    split: Split,
    progress: Progress,
    net: nn.Module,
    logits: Callable[[Tensor], Tensor],
    views: Views,
    mode: str,
    kernels: str,
    ranks: int,
    started: float,
    advance: Callable[[int], None] = lambda count: None,
) -> dict[str, Any]:
    """Every field of result.json. Errors are percent; what was not measured is None, never a missing key.

    `started` is when the run began, less the time that it was stopped; `advance` hears of each part of the test images.
    """
    method, logged = recipe.method, progress.last_log
    device = next(net.parameters()).device
    top5: float | None = None
    robust: Robust | None = None
    if images.test_x is not None and images.test_y is not None and len(images.test_x):
        x, y = images.test_x.to(device), images.test_y.to(device)
        top5 = top5_error(logits(x), y)
        robust = robust_errors(
            lambda view: logits(view).argmax(-1), x, y, views, recipe.evaluate.robust_views, recipe.train.seed, advance
        )
    consistency = method if isinstance(method, Consistency) else None
    return {
        "dataset": recipe.data.name,
        "labels": len(split.labelled),
        "method": method_name(method),
        "method_code": progress.code,
        "k": plain(consistency.k if consistency else method.needs.strong if method.needs.labelled else 0) or None,
        "over": consistency.over.spell() if consistency else None,
        "strategy": consistency.resolved_strategy if consistency else None,
        "net": recipe.net.name,
        "seed": recipe.train.seed,
        "fold": recipe.train.fold,
        "steps": progress.step,
        "begun_with": progress.begun_with,
        "seconds": round(progress.seconds, 3),
        "seconds_compiling": round(progress.seconds_compiling, 3),
        "seconds_total": round(time.time() - started, 3),  # the robust errors, above, are in it
        "steps_per_second": round(progress.step / max(progress.seconds - progress.seconds_compiling, 1e-9), 3),
        "mode": mode,
        "kernels": kernels,
        "ranks": ranks,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
        "parameters": sum(p.numel() for p in net.parameters()),
        "error": summary([error for _, error in progress.errors]),
        "test_images": len(images.test_x) if images.test_x is not None else 0,
        "top5_error": top5,
        **{name: progress.unlabelled.get(name) for name in UNLABELLED},
        **{name: logged.get(name) for name in (*(f"{term}_loss" for term in method.terms), *LOGGED)},
        "robust_error": robust.robust_error if robust else None,
        "robust_error_paper": robust.robust_error_paper if robust else None,
        "robust": {"k": recipe.evaluate.robust_views, "policy": recipe.augment.policy, "seed": recipe.train.seed},
        "versions": {
            "maxmatch": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "threads": torch.get_num_threads(),
        "recipe_sha256": recipe.sha256(),
    }


UNLABELLED = ("unlabelled_error", "unlabelled_top5_error", "unlabelled_images")
LOGGED = ("supervised_loss", "unlabeled_loss", "unlabeled_loss_min", "mask_rate", "pseudo_label_accuracy")


def is_result(values: object) -> bool:
    """Whether what is read of a result.json is of the kind that a run writes."""
    if not isinstance(values, dict):
        return False
    error = values.get("error")
    if not isinstance(error, dict) or "last" not in error:
        return False
    numbers = [*(error.get(name) for name in ("last", "median20", "best")), values.get("steps"), values.get("seconds")]
    if not all(value is None or (isinstance(value, int | float) and math.isfinite(value)) for value in numbers):
        return False
    tables = all(isinstance(values.get(name, {}), dict) for name in ("robust", "versions"))
    return tables and values.get("steps", 0) is not None and isinstance(values.get("recipe_sha256", ""), str)


def untested(images: Images) -> list[str]:
    """The classes that no test image is of, where there is a test."""
    if images.test_y is None or not len(images.test_y):
        return []
    shown = set(images.test_y.tolist())
    return [name for label, name in enumerate(images.classes) if label not in shown]


LARGE_FOR_PUBLISHED = 0.01  # a learning rate
MANY_ON_CPU = 50_000  # steps: days with most nets


def warnings_of_test(images: Images) -> list[str]:
    names = untested(images)
    advice = "the error says nothing of it; label more of it, or test on some"
    return [f"no test image is of {listed(names)}: {advice}"] if names else []


def warnings_of(recipe: Recipe, images: Images, split: Split) -> list[str]:
    """What scikit-learn would warn about: settings that run but are probably not meant."""
    found = []
    method = recipe.method
    shown = set(images.y[torch.from_numpy(split.labelled)].tolist())
    missing = [name for label, name in enumerate(images.classes) if label not in shown]
    if missing and method.needs.labelled:
        found.append(f"no image of {', '.join(missing)} has a label: that class can't be learned")
    found += warnings_of_test(images)
    if recipe.train.device == "cpu" and recipe.train.steps > MANY_ON_CPU:
        told = f"{recipe.train.steps:,} steps are for a GPU, and this is a CPU"
        found.append(f"{told}: begin with --steps 1000, and a small net, --set net.name=wrn-10-1")
    if recipe.train.head_lr is not None and recipe.train.init is None and not recipe.net.pretrained:
        told = "train.head_lr is for a net that was trained before, and this one begins anew"
        found.append(f"{told}: give --init RUN, or --set net.pretrained=true")
    begins = recipe.net.pretrained and recipe.train.init is None and method.projection is None
    if begins and recipe.train.lr >= LARGE_FOR_PUBLISHED:
        told = f"train.lr = {recipe.train.lr:g} is for weights that are drawn, published ones are soon lost by it"
        better = " ".join(f"--set train.{name}={value}" for name, value in FINETUNED.items())
        found.append(f"{told}: type {better} --set net.batchnorm_frozen=true")
    if isinstance(method, Consistency):
        if np.isin(split.unlabelled, split.labelled).all():
            found.append("nothing is unlabelled: --method supervised would do")
        if method.over.name == "worst" and method.k == 1 and method.strategy != "select":  # which is no slip
            told = "MaxMatch with --k 1 is FixMatch" if method_name(method) == "maxmatch" else "type --k 3"
            found.append(f"the worst of one view is that view: {told}")
    return found

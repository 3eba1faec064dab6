"""The recipes for ImageNet with 10 % of the labels: the paper's, the authors' and the Finetune row's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxmatch.methods import method_class
from maxmatch.settings import Values, overlay

# Its data, net and views, whatever the recipe.
IMAGENET: Values = {
    "data": {
        "labels": "10%",
        "protocol": "paper",
        "exclude_labelled": True,
        "side": 224,
        "canvas": 320,
        "middle": 0.875,
    },
    "augment": {"policy": "imagenet", "scale": [0.08, 1.0]},
    "net": {"name": "resnet50", "batchnorm_momentum": 0.1},
    "train": {"ratio": 5, "weight_decay": 1e-4, "nesterov": False},
}
# On another data set, with another net and batch, this alone is the Finetune row's.
FINETUNE: dict[str, Any] = {
    "optimizer": "sgd", "lr": 0.001, "head_lr": 0.1, "schedule": "milestones", "milestones": (0.6, 0.8),
    "ema_decay": 0.0,
}  # fmt: skip


def imagenet_paper(method: str = "maxmatch") -> Values:
    """ImageNet with 10 % of the labels as the paper says it: 300 epochs of 64 + 320 images; docs/scale.md has the cost.

    lambda 10, threshold .7, K drawn evenly from {1, 2, 3}; SGD without Nesterov, warm-up over 5 epochs to .02
    (FixMatch: .03, its best in Table 2), then one value of the cosine an epoch; the average (.999) is judged. Weak
    views are flips, so every view starts from the middle that is judged, mirrored or not: our reading.
    """
    return overlay(
        IMAGENET,
        {
            "augment": {"middle": 0.875},
            "method": _imagenet_method(method, "1,2,3"),
            "train": {
                "epochs": 300, "warmup_epochs": 5, "schedule": "cosine-epoch", "batch": 64, "ratio": 5,
                "lr": 0.02 if method == "maxmatch" else 0.03, "momentum": 0.9, "ema_decay": 0.999,
                "evaluate_every": 0, "checkpoint_every": 0,
            },
            "evaluate": {"unlabelled": 10_000},
        },
    )  # fmt: skip


def imagenet_authors(method: str = "maxmatch") -> Values:
    """The same as the authors' code has it: K is 1, 2 or 3 with .5, .3, .2, all views in one pass, no average.

    With `method.teacher = eman`, or a method whose teacher the average is, it is kept (.999). Every view, weak ones
    too, is a random part of the picture of at least 8 % of its area, mirrored or not.
    """
    taught = method_class(method).taught_by_average
    found = overlay(imagenet_paper(method), {"train": {"ema_decay": 0.999 if taught else 0.0}})
    found["augment"].pop("middle")
    found["method"] |= {"k": "1:.5,2:.3,3:.2", "strategy": "joint"} if method == "maxmatch" else {}
    return found


def imagenet_finetune(method: str = "supervised") -> Values:
    """The Finetune row of the paper's ImageNet table, from a pretraining (`--init RUN`): labelled images alone.

    50 epochs of 256 images (500 steps each), lr .001 and .1 for the head, a tenth of it from epochs 30 and 40 on, no
    warm-up and no average. As in EMAN's code, which the paper follows, a view is a random part of the picture, mirrored
    or not.
    """
    found = imagenet_authors(method)
    found["method"] |= {"augmentation": "weak"} if method == "supervised" else {}
    found["train"] |= {"epochs": 50, "warmup_epochs": 0, "batch": 256, "ratio": 1, **FINETUNE}
    return found


def fitting(values: Values, typed: Values, base: str, dataset: str) -> Values:
    """The values, where what was typed asks for another length, size or teacher than a recipe for ImageNet has."""
    asked = typed.get("train", {})
    if "steps" in asked and "epochs" not in asked and values["train"].get("epochs") is not None:
        _in_steps(values["train"], asked)
    if not base.startswith("imagenet"):
        return values
    data, train = values["data"], values["train"]
    if values["method"].get("teacher") == "eman" and "ema_decay" not in asked:
        train["ema_decay"] = train["ema_decay"] or 0.999
    if dataset not in ("imagenet", "folder"):  # images of one size: there is nothing to cut out
        values["data"] = {name: value for name, value in data.items() if name not in ("side", "canvas", "middle")}
    elif "side" in typed.get("data", {}) and "canvas" not in typed["data"] and str(data["side"]).isdigit():
        data["canvas"] = -(-int(data["side"]) * 320 // 224 // 16) * 16  # as 320 is to 224, a multiple of 16
    return values


def _in_steps(train: dict[str, Any], typed: Mapping[str, Any]) -> None:
    """Let a recipe that counts in epochs count in the steps that were typed, with the same share of warm-up."""
    share = train.pop("warmup_epochs", 0) / train.pop("epochs")
    steps = train["steps"] if isinstance(train["steps"], int) else 0  # else it is refused further on
    train["warmup"] = typed.get("warmup", round(steps * share))
    for name in ("evaluate_every", "checkpoint_every"):
        if train.get(name) == 0:
            train[name] = max(1, steps // 20)


def _imagenet_method(method: str, k: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": method}
    if method in ("fixmatch", "maxmatch", "fixmatch-anchoring"):
        found |= {"weight": 10.0, "threshold": 0.7}
    return found | ({"k": k} if method == "maxmatch" else {})

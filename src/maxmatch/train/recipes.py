"""Named recipes: functions that return a typed `Recipe`, with what it costs and what it gives in the docstring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from maxmatch.errors import UsageError, unknown
from maxmatch.train.recipe import Recipe, read_values

Values = dict[str, dict[str, Any]]


def digits(method: str = "maxmatch") -> Values:
    """scikit-learn's 8x8 digits on a laptop's CPU: half a minute a run on 2 cores; benchmarks/digits.py has the errors.

    Mild, class-preserving views: no flips, small turns and shifts. A small net, so a high learning rate: 0.2 and below
    leave more runs stuck with two digits taken for one another.
    """
    return {
        "data": {"name": "digits", "labels": 20},
        "augment": {"policy": "gentle", "flip": False},
        "net": {"name": "wrn-10-1", "batchnorm_momentum": "auto"},
        "method": {"name": method},
        "train": {
            "steps": 800, "batch": 32, "ratio": 4, "lr": 0.4, "weight_decay": 0.002, "schedule": "cosine",
            "ema_decay": "auto", "checkpoint_every": 100, "evaluate_every": 40, "log_every": 20,
        },
    }  # fmt: skip


def paper(method: str = "maxmatch") -> Values:
    """The paper's setting for small images: WRN-28-2, 64 + 448 images, 2^20 steps, lr .03, cosine 7/16, EMA .999."""
    return {"method": {"name": method}}


RECIPES: dict[str, Callable[[str], Values]] = {"digits": digits, "paper": paper}
DEFAULT = {"digits": "digits"}  # the recipe of a data set where none is asked for; `paper` otherwise


def compose(
    dataset: str | None = None,
    method: str | None = None,
    config: str | None = None,
    given: Mapping[str, Any] | None = None,
) -> Recipe:
    """Defaults < named recipe < config file < what was typed (`given`, two levels of plain values).

    `config` is a recipe's name, or a TOML or JSON file that may name its base with `recipe = "digits"`.
    """
    given = given or {}
    base_name, file_values = read_config(config)
    dataset = dataset or file_values.get("data", {}).get("name") or "digits"
    method = method or given.get("method", {}).get("name") or file_values.get("method", {}).get("name") or "maxmatch"
    base = RECIPES[base_name or DEFAULT.get(dataset, "paper")]
    layers: list[Mapping[str, Any]] = [
        base(method),
        {"data": {"name": dataset}},
        file_values,
        given,
        {"method": {"name": method}},
    ]
    merged: Values = {}
    for layer in layers:
        for section, values in layer.items():
            if not isinstance(values, Mapping):
                raise UsageError(f"{section} = {values!r}: a section of settings is wanted, for example [{section}]")
            if section == "method" and values.get("name", method) != method:
                continue  # options of another method than the one asked for
            merged.setdefault(section, {}).update(values)
    return Recipe.from_dict(merged)


def read_config(config: str | None) -> tuple[str | None, dict[str, Any]]:
    if config is None:
        return None, {}
    if config in RECIPES:
        return config, {}
    if not Path(config).suffix and not Path(config).exists():
        raise UsageError(unknown("recipe", config, RECIPES))
    values = read_values(Path(config))
    base = values.pop("recipe", None)
    if base is not None and base not in RECIPES:
        raise UsageError(unknown("recipe", str(base), RECIPES))
    return base, values

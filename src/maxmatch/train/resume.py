"""Going on with a run: its own recipe.json is the truth; what is typed again must agree with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from maxmatch.errors import UsageError
from maxmatch.methods import make_method
from maxmatch.settings import build, plain
from maxmatch.train.fit import saved_recipe
from maxmatch.train.recipe import Recipe
from maxmatch.train.recipes import RECIPES, read_config

CHANGEABLE = frozenset({"device", "steps", "checkpoint_every", "evaluate_every", "log_every"})


def resumed_recipe(folder: Path, given: Mapping[str, Mapping[str, Any]], config: str | None = None) -> Recipe:
    """The recipe in `folder`, with what may differ taken from `given`: the device, more steps, and the intervals."""
    saved = saved_recipe(folder)
    if config is not None:
        base, values = read_config(config)
        base_values = RECIPES[base]("maxmatch") if base else {}
        base_values.pop("method", None)
        given = _overlay(base_values, values, given)
    values = saved.to_dict()
    changes: dict[str, Any] = {}
    for section, fields in given.items():
        typed = _typed(section, values, fields)
        for name in fields:
            before, now = values[section].get(name), typed[name]
            if before == now or now == "auto":
                continue
            if section != "train" or name not in CHANGEABLE:
                raise UsageError(
                    f"{section}.{name} = {now}, but {folder} was begun with {before}: "
                    "leave it out, or begin another run with another --out"
                )
            changes[name] = now
    if changes.get("steps", saved.train.steps) < saved.train.steps:
        raise UsageError(
            f"train.steps = {changes['steps']}: {folder} was begun with {saved.train.steps}; only more can be asked for"
        )
    return replace(saved, train=replace(saved.train, **changes))


def _typed(section: str, values: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The given fields checked and converted as a recipe would, so that `3` and `"3"` agree."""
    if section not in values:
        Recipe.from_dict({section: fields})  # refuses it by name
    if section == "method":
        name = fields.get("name", values["method"]["name"])
        return {**values["method"], "name": name, **_method_options(name, fields)}
    section_type = type(getattr(Recipe(), section))
    made = build(section_type, {**values[section], **fields}, section)
    return {name: plain(getattr(made, name)) for name in fields}


def _method_options(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    made = make_method({**fields, "name": name})
    return {field: plain(getattr(made, field)) for field in fields if field != "name"}


def _overlay(*layers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    merged: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for section, fields in layer.items():
            merged.setdefault(section, {}).update(fields)
    return merged

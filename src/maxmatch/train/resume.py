"""Going on with a run: its own recipe.json is the truth; what is asked for again must agree with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from maxmatch.errors import UsageError, listed, said, tell
from maxmatch.methods import make_method, method_class, method_name
from maxmatch.methods.gone import Gone
from maxmatch.methods.source import own_code
from maxmatch.nets.device import best_device, is_available
from maxmatch.nets.foreign import own_class
from maxmatch.settings import Values, build, field_types, overlay, plain
from maxmatch.train.imagenet import fitting
from maxmatch.train.recipe import DataSettings, Recipe, TrainSettings, read_values, with_nones
from maxmatch.train.recipes import RECIPES, read_config
from maxmatch.train.rules import INTERVALS

CHANGEABLE = {
    "train": frozenset({"device", "kernels", "steps", "epochs"}) | {*INTERVALS},
    "data": frozenset(
        {"path", "label_file", "resident", "workers", "decoders"}
    ),  # where the same pictures are, who reads
}
SETTLED = frozenset(
    {"batchnorm_momentum", "ema_decay", "fold", "threads", "device", "precision"}
)  # `auto` became a value


def code_of(recipe: Recipe) -> str | None:
    """By which code of one's own a recipe trains: its method's and its net's; None where both are ours."""
    net = own_class(recipe.net.name)
    return own_code(type(recipe.method), *([net] if isinstance(net, type) else []))


def same_code(recipe: Recipe, trained: str | None) -> bool:
    """Whether a run was trained by the code that a recipe trains by; of earlier versions only the method's is known."""
    now = code_of(recipe)
    return None in (now, trained) or trained in (now, own_code(type(recipe.method)))


def own_parts(recipe: Recipe) -> str:
    """What `code_of` is the code of, in words."""
    nets = [recipe.net.name] if own_class(recipe.net.name) is not None else []
    methods = [method_name(recipe.method)] if own_code(type(recipe.method)) or not nets else []
    return " or ".join([*methods, *nets])


def saved_recipe(folder: Path) -> Recipe:
    """The recipe of a run folder, or one line that says that there is none."""
    values = _saved_values(folder)
    if isinstance(section := values.get("method"), Mapping) and "name" in section:
        name = str(section["name"])
        known = field_types(method_class(name))
        if lost := [option for option in section if option != "name" and option not in known]:
            what = f"{folder / 'recipe.json'} has {listed(lost)}, which {name} has no longer"
            raise UsageError(f"{what}: restore its code as it was, or train anew into another folder")
    return Recipe.from_dict(values)


def read_recipe(folder: Path, warn: Callable[[str], None] = tell) -> Recipe:
    """The same for who only reads the run: a method that can't be made any more is told of, and stands for itself."""
    try:
        return saved_recipe(folder)
    except Exception as problem:  # the method's own code may raise anything
        values = _saved_values(folder)
        section = values.pop("method", None)
        if not isinstance(section, Mapping) or "name" not in section:
            raise
        recipe = Recipe.from_dict(values)  # what else is wrong is told here
        why = str(problem) if isinstance(problem, UsageError) else f"method '{section['name']}': {said(problem)}"
        warn(f"warning: {why} (its model is read all the same)")
        options = {option: value for option, value in section.items() if option != "name"}
        return replace(recipe, method=Gone(str(section["name"]), options))


def saved_data(folder: Path) -> DataSettings:
    """The data of a run folder; the method it was trained by need not be at hand."""
    return build(DataSettings, _saved_values(folder).get("data", {}), "data")


def saved_steps(folder: Path) -> int:
    """How many steps the run of a folder is to have, likewise."""
    return build(TrainSettings, _saved_values(folder).get("train", {}), "train").steps


def _saved_values(folder: Path) -> Values:
    if not (folder / "recipe.json").exists():
        deeper = next((stars for stars in ("*", "*/*") if any(folder.glob(f"{stars}/recipe.json"))), None)
        hint = f"; there are some in {folder}/{deeper}" if deeper else ""
        raise UsageError(f"{folder} holds no run: give the folder of one, as maxmatch train makes it{hint}")
    return read_values(folder / "recipe.json")


def resumed_recipe(folder: Path, given: Mapping[str, Mapping[str, Any]], config: str | None = None) -> Recipe:
    """The recipe in `folder`, with what may differ taken from `given`: the device, more steps, and the intervals."""
    if not folder.exists():
        nothing = "a run that is stopped before its first step leaves none"
        raise UsageError(f"there is no folder {folder}; {nothing}: type the same words without --resume")
    saved, given = saved_recipe(folder), with_nones(given)
    if config is not None:
        base, values = read_config(config)
        base_values = RECIPES[base](saved.to_dict()["method"]["name"]) if base else {}
        if base:
            own = {name: value for name, value in saved.to_dict()["method"].items() if name == "teacher"}
            asked = overlay({"method": own}, values, given)
            base_values = fitting(overlay(base_values, asked), asked, base, saved.data.name)
        if saved.data.name == "folder":
            base_values.pop("data", None)  # the folder decided it
        given = overlay(base_values, values, given)
    given = _in_epochs(saved, given, folder)
    values = saved.to_dict()
    changes: dict[str, dict[str, Any]] = {"train": {}, "data": {}}
    for section, fields in given.items():
        typed = _typed(section, values, fields)
        for name in fields:
            before, now = values[section].get(name), typed[name]
            if before == now or (now == "auto" and name in SETTLED):
                continue
            if name not in CHANGEABLE.get(section, ()):
                raise UsageError(
                    f"{section}.{name} = {now}, but {folder} was begun with {before}: "
                    "leave it out, or begin another run with another --out"
                )
            changes[section][name] = now
    train = changes["train"]
    if train.get("steps", saved.train.steps) < saved.train.steps:
        raise UsageError(
            f"train.steps = {train['steps']}: {folder} is to have {saved.train.steps}; only more can be asked for"
        )
    if train.get("steps", train.get("epochs")) is not None and saved.method.needs.in_order:
        raise UsageError(
            f"{folder}: its K = {saved.method.needs.strong} follows the steps it was begun with, which can't be more: "
            "begin another run with another --out"
        )
    if train.get("epochs") is not None and saved.train.epochs is not None:
        if train["epochs"] < saved.train.epochs:
            told = f"train.epochs = {train['epochs']}: {folder} is to have {saved.train.epochs}"
            raise UsageError(f"{told}; only more can be asked for")
        train["steps"] = saved.train.steps // saved.train.epochs * train["epochs"]
    if given.get("train", {}).get("device") == "auto" and not is_available(saved.train.device):
        train["device"] = best_device()
    return replace(saved, train=replace(saved.train, **train), data=replace(saved.data, **changes["data"]))


def _in_epochs(saved: Recipe, given: Mapping[str, Mapping[str, Any]], folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """What was asked for of a run that counts in epochs: its steps and what follows from them are settled already."""
    asked = dict(given.get("train", {}))
    if (saved.train.epochs is None) != (asked.get("epochs") is None) and ("epochs" in asked or "steps" in asked):
        counts = "steps: type --steps" if saved.train.epochs is None else "epochs: type --epochs"
        if "epochs" in asked or asked.get("steps") not in (None, saved.train.steps):
            raise UsageError(f"{folder} counts in {counts} to ask for more")
    if saved.train.epochs is not None and asked.get("epochs") is not None:
        every = {name for name in INTERVALS if asked.get(name) == 0}
        asked = {name: value for name, value in asked.items() if name not in {"steps", "warmup"} | every}
    return {**given, "train": asked} if "train" in given else given


def _typed(section: str, values: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The given fields checked and converted as a recipe would, so that `3` and `"3"` agree."""
    if section not in values:
        Recipe.from_dict({section: fields})  # refuses it by name
    held = values[section]
    if section == "method":
        held = held if fields.get("name", held["name"]) == held["name"] else {}
        made: Any = make_method({**held, **fields})
        return {**{name: plain(getattr(made, name)) for name in fields if name != "name"}, "name": fields.get("name")}
    made = build(type(getattr(Recipe(), section)), {**held, **fields}, section)
    return {name: plain(getattr(made, name)) for name in fields}

"""The command that makes a run, found from its recipe, and the same command with something changed.

The shortest one that gives the recipe again: what the data set and the method bring along by themselves is left out. It
is checked by composing it; where no command line can say the recipe, its recipe.json is given as --config.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Container, Mapping
from typing import Any

from maxmatch.errors import UserError
from maxmatch.methods import PRETRAINING
from maxmatch.nets.foreign import may_be_published
from maxmatch.report.folder import RunFolder
from maxmatch.settings import Values, overlay
from maxmatch.train.flags import FLAGS
from maxmatch.train.recipe import Recipe
from maxmatch.train.recipes import compose
from maxmatch.train.rules import INTERVALS

# `--epochs` is not typed beside the steps that a recipe has, and `--strict` takes no value.
TYPED = {place: f"--{flag}" for flag, place in FLAGS.items() if flag not in ("epochs", "strict")}
# What other settings are chosen by, where a folder is looked at or a data set brings something along.
DECIDING = (
    ("data", "path"), ("data", "label_file"), ("data", "protocol"), ("train", "device"), ("train", "init"),
    ("net", "pretrained"),
)  # fmt: skip
SOURCE = frozenset({("data", "name"), ("data", "path"), ("data", "labels")})  # said before all options
OF_STEPS = (*INTERVALS, "warmup")
OF_TRAIN = {"--method", "--k", "--over", "--strategy", "--fold", "--labels", "--protocol"}  # and not of pretrain


def command(run: RunFolder, changes: Mapping[str, Mapping[str, Any]] | None = None, name: str = "") -> str:
    """What to type for this run, with `changes` by section and field; `name` is added to its folder's."""
    changes = changes or {}
    if run.own_data:
        return _python(run, changes, name)
    values = open_values(run.recipe)
    if "name" in changes.get("method", {}):
        values["method"] = {}  # another method has options of its own
    if "steps" in changes.get("train", {}):  # what followed from the steps that it had, follows from the new ones
        for follows in _by_steps(values):
            del values["train"][follows]
    out = ["--out", f"{run.path}{'-' if name else ''}{name}"]
    wanted = overlay(values, changes)
    verb = "pretrain" if wanted["method"]["name"] in PRETRAINING else "train"
    try:
        words = _words(wanted, verb)
    except UserError:
        typed = [word for section, fields in changes.items() for field in fields
                 for word in _option(section, field, fields[field], verb)]  # fmt: skip
        words = ["--config", str(run.path / "recipe.json"), *typed]
    return shlex.join(["maxmatch", verb, *words, *out])


def from_published(run: RunFolder) -> str:
    """What to type to learn from the same pictures, seen alike, from published weights: all else suits those then."""
    values = open_values(run.recipe)
    given = _deciding(values)
    plain = compose(given=given).to_dict()
    own = {
        section: {name: v for name, v in values[section].items() if v != plain[section][name]}
        for section in ("data", "augment", "train")
    }
    own["train"] = {name: v for name, v in own["train"].items() if name in ("seed", "fold")}
    if may_be_published(name := values["net"]["name"]) and name != plain["net"]["name"]:
        own["net"] = {"name": name}
    given = overlay(given, own, {"net": {"pretrained": True}})
    shown = "" if values["data"]["labels"] == "all" else f"@{values['data']['labels']}"
    words = [f"{values['data']['path']}{shown}", *_options(given, SOURCE, "train")]
    return shlex.join(["maxmatch", "train", *words, "--out", f"{run.path}-published"])


def _by_steps(values: Values) -> list[str]:
    """The intervals, and the warm-up, that a run of so many steps on these data has if none is typed."""
    try:
        given = {"train": {"steps": values["train"]["steps"]}, "method": {"name": values["method"]["name"]}}
        plain = compose(given=overlay(_deciding(values), given)).to_dict()
    except UserError:  # the folder is gone, or the net was typed and this one has no published weights
        return []
    return [name for name in OF_STEPS if values["train"][name] == plain["train"][name]]


def _python(run: RunFolder, changes: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """The same for arrays of one's own, which only Python can hand over."""
    config, out = str(run.path / "recipe.json"), f"{run.path}{'-' if name else ''}{name}"
    given = f", given={json.dumps(changes)}" if changes else ""
    return f"maxmatch.fit(maxmatch.compose(config={json.dumps(config)}{given}), {json.dumps(out)}, data=images)"


def _words(wanted: Values, verb: str) -> list[str]:
    """The options that compose to the wanted values; `pretrain` takes neither labels nor a method."""
    data = wanted["data"]
    given = overlay({"method": {"name": wanted["method"]["name"]}}, _deciding(wanted))
    base = compose(given=given).to_dict()
    if wanted["train"]["steps"] != base["train"]["steps"]:  # of a folder, intervals follow from them
        given = overlay(given, {"train": {"steps": wanted["train"]["steps"]}})
        base = compose(given=given).to_dict()
    differing = {
        section: {field: v for field, v in fields.items() if field not in base[section] or v != base[section][field]}
        for section, fields in wanted.items()
    }
    typed = overlay(given, differing)
    made = compose(given=typed).to_dict()
    if any(made[section][field] != value for section, fields in wanted.items() for field, value in fields.items()):
        raise UserError("the command would make another recipe")
    source = str(data["path"]) if data["name"] == "folder" else str(data["name"])
    said = SOURCE
    other_labels = data["labels"] != base["data"]["labels"]
    if verb == "pretrain":
        said = SOURCE | {("method", "name")}
        if other_labels:
            raise UserError("data.labels can't be typed")
    elif other_labels or data["name"] != "folder":
        source += f"@{data['labels']}"
    return [source, *_options(typed, said, verb)]


def _options(given: Values, said: Container[tuple[str, str]], verb: str) -> list[str]:
    """How settings are typed, but those that are said otherwise."""
    words = []
    for section, fields in given.items():
        for field, value in fields.items():
            if (section, field) not in said:
                words += _option(section, field, value, verb)
    return words


def _deciding(wanted: Values) -> Values:
    """What others follow from, as it would be typed."""
    given: Values = {"data": {"name": wanted["data"]["name"]}}
    plain = Recipe().to_dict()
    for section, field in DECIDING:
        if wanted[section].get(field, plain[section][field]) != plain[section][field]:
            given.setdefault(section, {})[field] = wanted[section][field]
    return given


def _option(section: str, field: str, value: Any, verb: str) -> list[str]:
    if value is None:
        raise UserError(f"{section}.{field} can't be typed")
    if (section, field) == ("method", "k") and isinstance(value, list):
        uniform = len({share for _, share in value}) == 1
        value = ",".join(str(k) if uniform else f"{k}:{share}" for k, share in value)
    flag = TYPED.get((section, field))
    if flag and not (verb == "pretrain" and flag in OF_TRAIN):
        return [flag, str(value)]
    return ["--set", f"{section}.{field}={value if isinstance(value, str) else json.dumps(value)}"]


def open_values(recipe: Recipe) -> Values:
    """The values of a recipe, with `auto` again where the run had settled it itself."""
    values = recipe.to_dict()
    for section, field in (place.split(".") for place in recipe.settled):
        values[section][field] = "auto"
    return values

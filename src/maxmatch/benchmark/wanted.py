"""Which runs a benchmark is made of: method specs, folds and settings become one recipe and one folder a run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxmatch.errors import UsageError
from maxmatch.methods import METHODS, PRETRAINING, canonical, method_class
from maxmatch.settings import overlay, parse_assignment, parse_value
from maxmatch.train.pictures import title
from maxmatch.train.recipe import Recipe
from maxmatch.train.recipes import compose

Given = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Planned:
    """One run: a method, as it was spelled, on one fold; `on` says of what, where runs differ in that too."""

    label: str
    fold: int
    recipe: Recipe
    folder: Path
    on: str = ""

    def __str__(self) -> str:
        return ", ".join(word for word in (self.label, self.on, f"fold {self.fold}") if word)


def plan(
    methods: str, folds: str, given: Given, config: str | None, out: Path | None, sweep: Sequence[str] = ()
) -> tuple[Path, list[Planned]]:
    """The benchmark's folder and its runs, fold by fold, so that methods can be compared as early as possible.

    With `sweep`, `section.field=value,value`, each method is run with each value, or each combination of them.
    """
    _refuse("method", "name", given, "type --methods fixmatch,maxmatch")
    _refuse("train", "fold", given, "type --folds 5 for folds 1 to 5, or --folds 1,3,5")
    specs = parse_methods(methods)
    numbers = parse_folds(folds)
    grid = parse_sweep(sweep)
    for section, field in {place for values in grid.values() for place in values}:
        _refuse(section, field, given, "leave it out beside --sweep")
    recipes = {
        (f"{label}{behind}", fold): _composed(label, options, config, _settings(label, options, fold, given, values))
        for fold in numbers
        for label, options in specs.items()
        for behind, values in grid.items()
    }
    _refuse_twins({label: recipe for (label, fold), recipe in recipes.items() if fold == numbers[0]})
    data = next(iter(recipes.values())).data
    place = out or Path("runs") / f"benchmark-{title(data)}@{data.labels}"
    return place, [
        Planned(label, fold, recipe, place / folder_name(label) / f"fold-{fold}")
        for (label, fold), recipe in recipes.items()
    ]


def parse_methods(text: str) -> dict[str, dict[str, Any]]:
    """Each spec, `name:field=value:field=value`, with its settings of the method section.

    A value may hold colons and commas of its own, as `over=fraction:0.5` and `k=1,2,3` do; a method of your own is
    `module:Class`.

    >>> parse_methods("fixmatch,maxmatch:k=1,2:over=fraction:0.5")["maxmatch:k=1,2:over=fraction:0.5"]
    {'name': 'maxmatch', 'k': '1,2', 'over': 'fraction:0.5'}
    """
    found: dict[str, dict[str, Any]] = {}
    for spec in re.split(r",(?=\s*[^\s\d.])", text.strip().rstrip(",")):  # a number goes on with the value before it
        label, options = _parse_spec(spec.strip())
        if label in found:
            raise UsageError(f"--methods {text}: {label} stands there twice; name each method once")
        found[label] = options
    return found


def parse_sweep(texts: Sequence[str]) -> dict[str, dict[tuple[str, str], Any]]:
    """What stands behind a method's label, and the settings that it means, for each combination of swept values.

    >>> parse_sweep(["train.lr=.01,.02"])
    {':train.lr=.01': {('train', 'lr'): 0.01}, ':train.lr=.02': {('train', 'lr'): 0.02}}
    """
    found: dict[str, dict[tuple[str, str], Any]] = {"": {}}
    for text in texts:
        name, _, values = text.partition("=")
        words = [word.strip() for word in values.split(",")]
        if not all(words) or len(set(words)) < len(words) or name.count(".") != 1:
            raise UsageError(f"--sweep {text}: write it as section.field=value,value, each once: train.lr=.01,.02,.03")
        section, field, _ = parse_assignment(f"{name}=0")
        if (section, field) in (("train", "fold"), ("method", "name"), ("data", "name"), ("data", "path")):
            raise UsageError(f"--sweep {text}: that is no setting of one comparison; type --folds or --methods")
        if any((section, field) in settings for settings in found.values()):
            raise UsageError(f"--sweep {text}: {section}.{field} is swept twice; give all its values at once")
        found = {
            f"{behind}:{section}.{field}={word}": {**settings, (section, field): parse_value(word)}
            for behind, settings in found.items()
            for word in words
        }
    return found


def _parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    name, *pairs = re.split(r":(?=\w+=)", spec)
    first, colon, rest = name.partition(":")
    if colon and canonical(first) in METHODS:
        raise UsageError(f"--methods {spec}: '{rest}' is no field=value; type {first}:k=5")
    if not name or "=" in name:
        raise UsageError(f"--methods {spec}: a method's name comes first; type fixmatch,maxmatch:k=5")
    options: dict[str, Any] = {"name": canonical(name)}
    for pair in pairs:
        field, _, value = pair.partition("=")
        if field in options:
            raise UsageError(f"--methods {spec}: {field} is given twice; give it once")
        options[field] = parse_value(value.strip())
    if options["name"] in PRETRAINING:
        raise UsageError(f"--methods {spec}: it learns no classes; type maxmatch pretrain, then --set train.init=RUN")
    method_class(options["name"])  # refuses it by name
    return ":".join([options["name"], *pairs]), options


def parse_folds(text: str) -> list[int]:
    """`5` is folds 1 to 5; `1,3,5` is those; `3,` is the third alone.

    >>> parse_folds("3"), parse_folds("2,4"), parse_folds("3,")
    ([1, 2, 3], [2, 4], [3])
    """
    words = [word.strip() for word in text.strip().rstrip(",").split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise UsageError(f"--folds {text}: whole numbers are wanted; type 5 for folds 1 to 5, or 1,3,5")
    numbers = [int(word) for word in words]
    if "," in text:
        if len(set(numbers)) < len(numbers):
            raise UsageError(f"--folds {text}: a fold stands there twice; name each once")
        return numbers
    if not 1 <= numbers[0] <= 1000:
        raise UsageError(f"--folds {text}: from 1 to 1000 folds; type 5 for folds 1 to 5, or 1,3,5")
    return list(range(1, numbers[0] + 1))


def folder_name(label: str) -> str:
    """A spec as every file system takes it.

    >>> folder_name("freematch:over=worst:k=3")
    'freematch-over=worst-k=3'
    """
    return re.sub(r"[^\w.,=-]", "-", label)


def command_line(
    data: str | None, options: Mapping[str, object], sets: Sequence[str] | None, sweep: Sequence[str] = ()
) -> str:
    """What to type for the same benchmark; options that are None are left out."""
    named = [(f"--{name}", str(value)) for name, value in options.items() if value is not None]
    named += [("--set", text) for text in sets or []] + [("--sweep", text) for text in sweep]
    return shlex.join(["maxmatch", "benchmark", *([data] if data else []), *(word for pair in named for word in pair)])


def _composed(label: str, options: Mapping[str, Any], config: str | None, values: Given) -> Recipe:
    try:
        return compose(config=config, given=values)
    except UsageError as error:
        if str(error).partition(" ")[0] in options:  # which begins with what is wrong: say whose option it is
            raise UsageError(f"--methods {label}: {error}") from None
        raise


def _settings(
    label: str, options: dict[str, Any], fold: int, given: Given, swept: Mapping[tuple[str, str], Any]
) -> dict[str, dict[str, Any]]:
    """What was typed for all runs, with the method and the fold of one. The seed is the fold unless one was typed."""
    for section, field in swept:
        if section == "method" and field in options:
            raise UsageError(f"method.{field} is given twice, in {label} and by --sweep: leave one of them out")
    for field, value in given.get("method", {}).items():
        if field in options and str(options[field]) != str(value):
            raise UsageError(f"method.{field} is given twice, as {value} for all and in {label}: leave one of them out")
    grid = [{section: {field: value}} for (section, field), value in swept.items()]
    return overlay({"train": {"seed": fold}}, given, {"train": {"fold": fold}, "method": options}, *grid)


def _refuse(section: str, field: str, given: Given, instead: str) -> None:
    if field in given.get(section, {}):
        raise UsageError(f"{section}.{field} = {given[section][field]}: a benchmark has several; {instead}")


def _refuse_twins(recipes: dict[str, Recipe]) -> None:
    """Two spellings of one method would be trained twice and compared with themselves."""
    labels = list(recipes)
    for number, label in enumerate(labels):
        for before in labels[:number]:
            if recipes[label] == recipes[before]:
                raise UsageError(f"--methods: {before} and {label} are the same method; name one of them")
            if folder_name(label).casefold() == folder_name(before).casefold():
                raise UsageError(f"--methods: {before} and {label} would share a folder; leave one of them out")

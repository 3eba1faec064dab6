"""WHAT is minimised: one paper, one file, one frozen dataclass. `base.py` is the contract."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from maxmatch.errors import UsageError, listed, unknown
from maxmatch.settings import build, field_types, find_class, hold, plain

if TYPE_CHECKING:
    from maxmatch.methods.base import Method

METHODS = {
    "supervised": "supervised:Supervised",
    "fixmatch": "fixmatch:FixMatch",
    "maxmatch": "maxmatch:MaxMatch",
    "fixmatch-anchoring": "anchoring:FixMatchAnchoring",
    "pseudo-label": "pseudo_label:PseudoLabel",
    "pi-model": "pi_model:PiModel",
    "temporal-ensembling": "temporal_ensembling:TemporalEnsembling",
    "mean-teacher": "mean_teacher:MeanTeacher",
    "vat": "vat:VAT",
    "ict": "ict:ICT",
    "mixmatch": "mixmatch:MixMatch",
    "uda": "uda:UDA",
    "remixmatch": "remixmatch:ReMixMatch",
    "flexmatch": "flexmatch:FlexMatch",
    "freematch": "freematch:FreeMatch",
    "softmatch": "softmatch:SoftMatch",
    "adamatch": "adamatch:AdaMatch",
}
PRETRAINING = {"moco": "maxmatch.pretrain.moco:MoCo"}  # methods without labels, for `maxmatch pretrain`


def canonical(name: str) -> str:
    """A method's name as the registry has it: lower case, dashes; a place `package.module:Class` as it is."""
    return name if ":" in name else name.replace("_", "-").lower()


def method_class(name: str) -> type[Method]:
    """The class of a method by its name, or of your own by `package.module:Class`. Underscores may stand for dashes."""
    word = canonical(name)
    if ":" in name:
        module, attribute = name.split(":", 1)
    elif word in METHODS:
        module, attribute = METHODS[word].split(":")
        module = f"maxmatch.methods.{module}"
    elif word in PRETRAINING:
        module, attribute = PRETRAINING[word].split(":")
    else:
        raise UsageError(unknown("method", name, METHODS))
    from maxmatch.methods.base import Method
    from maxmatch.methods.mistakes import undecorated

    cls = find_class(module, attribute, f"method '{name}'")
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise UsageError(f"method '{name}': it is no subclass of maxmatch.methods.base.Method")
    if bare := undecorated(cls):
        of = "its options" if bare == cls.__name__ else f"the options of {bare}"
        raise UsageError(f"method '{name}': {of} are not read; put @dataclass(frozen=True) above the class")
    if any(field.name == "name" for field in dataclasses.fields(cls)):
        raise UsageError(f"method '{name}': in a recipe name is the method's own; give its option another name")
    if lacking := sorted(getattr(cls, "__abstractmethods__", ())):
        raise UsageError(f"method '{name}' lacks {' and '.join(lacking)}: write them, or take Consistency as its base")
    return cls


def refuse_unread(method: Method) -> None:
    """Refuse a method made in Python whose options its run's recipe could not give back."""
    from maxmatch.methods.gone import Gone
    from maxmatch.methods.mistakes import undecorated

    if isinstance(method, Gone):
        return
    if bare := undecorated(type(method)):
        raise UsageError(f"the options of {bare} are not read; put @dataclass(frozen=True) above the class")
    try:
        hold(method, "method")
    except NameError as error:  # a type that can't be found from outside a function
        raise UsageError(f"{type(method).__name__}: the type of an option can't be found, {error}") from None


def make_method(values: Mapping[str, Any]) -> Method:
    """A method from plain values, `name` and its options.

    >>> make_method({"name": "maxmatch", "k": 5}).k
    5
    """
    options = {key: value for key, value in values.items() if key != "name"}
    cls = method_class(values["name"])
    viewless = next((key for key in ("k", "over", "strategy") if key in options and key not in field_types(cls)), None)
    if viewless is not None:
        raise UsageError(f"{values['name']} has no views to choose from: leave {viewless} out")
    for key in (key for key in options if key not in field_types(cls)):
        if wrong := _constant(cls, key):
            raise UsageError(f"method.{key}: {wrong}")
        if owners := _owners(key):
            better = "maxmatch" if "maxmatch" in owners else owners[0]
            whose = f"{values['name']} has no such option, {listed(owners, 4)} {'has' if len(owners) == 1 else 'have'}"
            raise UsageError(f"unknown setting 'method.{key}': {whose}; type --method {better}, or leave it out")
    return build(cls, options, "method")


def _constant(cls: type[Method], option: str) -> str:
    from maxmatch.methods.mistakes import constant

    return constant(cls, option)


def _owners(option: str) -> list[str]:
    """The methods of the registry that have an option of that name."""
    return [name for name in METHODS if option in field_types(method_class(name))]


def method_name(method: Method) -> str:
    """The name `method_class` finds a method's class by."""
    from maxmatch.methods.gone import Gone

    if isinstance(method, Gone):
        return method.place
    cls = type(method)
    place = f"{cls.__module__}:{cls.__qualname__}"
    places = {name: f"maxmatch.methods.{ours}" for name, ours in METHODS.items()} | PRETRAINING
    return next((name for name, ours in places.items() if place == ours), place)


def method_values(method: Method) -> dict[str, Any]:
    """The inverse of `make_method`: what JSON keeps of a method."""
    from maxmatch.methods.gone import Gone

    if isinstance(method, Gone):
        return {"name": method.place, **method.options}
    options = {f.name: plain(getattr(method, f.name)) for f in dataclasses.fields(method)}
    return {"name": method_name(method), **options}

"""Settings are frozen dataclasses; this file reads them from JSON, TOML and the command line, strictly.

A key that is not a field is refused with the nearest right name; a value of the wrong type is refused with the type
that is wanted. Values with a short spelling of their own (`worst`, `1:.5,2:.5`) have a class with `parse` and `spell`,
or a type `Annotated[..., parser]`, so that one spelling serves JSON, TOML and the command line alike. None, for which
TOML and the command line have nothing, is the word `unset`, but in fields that take any word.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import itertools
import json
import re
import shlex
import textwrap
import tomllib
import traceback
import types
import typing
from collections.abc import Mapping
from datetime import date, time
from numbers import Number
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from maxmatch.errors import UsageError, unknown

UNSET = "unset"  # the word for None; `none` would read as no cutout where None is the policy's own
T = TypeVar("T")
Values = dict[str, dict[str, Any]]  # two levels: sections of plain values
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}  # what a type wants


def build(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Make the dataclass `cls` from plain values; `where` is the section's name, for the errors.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Wheel:
    ...     spokes: int = 8
    >>> build(Wheel, {"spokes": 12})
    Wheel(spokes=12)
    """
    hints = field_types(typing.cast(Any, cls))
    prefix = f"{where}." if where else ""
    for key in values:
        if key not in hints:
            raise UsageError(unknown("setting", f"{prefix}{key}", (f"{prefix}{name}" for name in hints)))
    for field in dataclasses.fields(typing.cast(Any, cls)):
        if field.init and field.name not in values and field.default is field.default_factory is dataclasses.MISSING:
            raise UsageError(f"{prefix}{field.name} has no value: give it one, --set {prefix}{field.name}=...")
    return cls(**{key: convert(hints[key], value, f"{prefix}{key}") for key, value in values.items()})


def hold(made: Any, where: str) -> None:
    """Refuse the first field of a dataclass that JSON would not give back as it is; a misspelt word, for example.

    What was made by `build` is held already; this is for what Python made.
    """
    kind: type = type(made)
    for name, hint in field_types(kind).items():
        given = getattr(made, name)
        if type(given) in (*WORDS, types.NoneType) and given is getattr(kind, name, dataclasses.MISSING):
            continue  # a default that is plain
        value = plain(given)
        again = plain(convert(hint, value, f"{where}.{name}"))
        if again != value and again == again:  # not a number: the rules refuse it
            raise UsageError(f"{where}.{name} = {value!r}: it would be read again as {again!r}; give that")


def find_class(module: str, name: str, told: str) -> Any:
    """The class that `module:name` is the place of, where users may have written it; `told` begins the errors."""
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever is wrong in a file of one's own
        if place := _place(error, module):
            what = f"{type(error).__name__}: {getattr(error, 'msg', error)}"
            raise UsageError(f"{told}: {place} can't be imported: {what}") from None
        if module == "__main__":
            raise UsageError(f"{told}: it was written in a script or notebook; put it into a file of its own") from None
        if "/" in module:
            folder, _, file = module.rpartition("/")
            right = f"PYTHONPATH={shlex.quote(folder or '/')} maxmatch ... {file.removesuffix('.py')}:{name}"
            raise UsageError(f"{told}: it is no place of a file; type {right}") from None
        if module.endswith(".py"):
            right = f"{module.removesuffix('.py')}:{name}"
            raise UsageError(f"{told}: a module has no .py in its name; type {right}") from None
        where = "read as package.module:Class; for a file elsewhere type PYTHONPATH=ITS_FOLDER maxmatch ..."
        raise UsageError(f"{told}: {error}; it is {where}") from None


def _place(error: Exception, module: str) -> str | None:
    """The file and the line of a module where its import ended; None if it was not found at all."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno},"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.endswith(f"/{module.replace('.', '/')}.py")]
    return f"{own[-1].filename}, line {own[-1].lineno}," if own else None


def plain(value: Any) -> Any:
    """The value as JSON knows it: the inverse of `build`, and of `convert` for one field."""
    if hasattr(value, "spell"):
        return value.spell()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


@functools.cache
def field_types(cls: type) -> dict[str, Any]:
    """The fields of a dataclass with their types resolved."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.init}


def field_sentences(cls: type) -> dict[str, str]:
    """What the string below each field of a class says of it, as one line; fields without one are not there.

    Python drops these strings, so they are read from the source, which an installed package has too.
    """
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    found = {}
    for line, below in itertools.pairwise(tree.body if isinstance(tree, ast.ClassDef) else ()):
        match line, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def parse_assignment(text: str) -> tuple[str, str, Any]:
    """`section.field=value` of `--set`: the value is TOML, or a bare word.

    >>> parse_assignment("train.lr=0.03")
    ('train', 'lr', 0.03)
    >>> parse_assignment("augment.policy=usb")
    ('augment', 'policy', 'usb')
    """
    name, equals, value = text.partition("=")
    section, dot, field = name.strip().partition(".")
    if not (equals and dot and section and field):
        raise UsageError(f"--set {text}: write it as section.field=value, for example --set train.lr=0.03")
    return section, field, parse_value(value.strip())


def parse_value(text: str) -> Any:
    """A value typed on the command line: TOML where it is TOML, otherwise the word itself.

    `.02`, which TOML does not know, is a number too. No setting is a date, and nobody types a number with `_` in it:
    those are words, of a folder perhaps.

    >>> parse_value("true"), parse_value(".02"), parse_value("-.5"), parse_value("worst"), parse_value("2024_01")
    (True, 0.02, -0.5, 'worst', '2024_01')
    """
    if re.fullmatch(r"[\d_]+", text.strip()) and "_" in text:
        return text
    number = re.sub(r"^([+-]?)(?=[.][0-9])", r"\g<1>0", text.strip())
    try:
        found = tomllib.loads(f"v = {number}")
    except tomllib.TOMLDecodeError:
        return text
    return text if len(found) > 1 or isinstance(found["v"], date | time) else found["v"]


def overlay(*layers: Mapping[str, Mapping[str, Any]]) -> Values:
    """Sections merged, later layers over earlier ones."""
    merged: Values = {}
    for layer in layers:
        for section, values in layer.items():
            merged.setdefault(section, {}).update(values)
    return merged


def to_toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Two levels of plain values as TOML; what is None stands in a comment, since TOML has no null."""
    lines = []
    for section, values in sections.items():
        lines += [
            f"[{section}]",
            *(f"{k} = {_toml_value(v)}" if v is not None else f"# {k} =" for k, v in values.items()),
            "",
        ]
    return "\n".join(lines)


def _toml_value(value: Any) -> str:
    """As JSON writes it, but that TOML has no surrogates and no bare DEL."""
    text = json.dumps(value, ensure_ascii=False)
    if re.search(r"[\ud800-\udfff]", text):
        raise UsageError(f"{text.encode('ascii', 'backslashreplace').decode()} is not UTF-8: give it another name")
    return re.sub(r"[^\x20-\x7e]", lambda found: f"\\U{ord(found[0]):08x}", text)


def without_none(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of a dataclass with the word `unset` for None, where a field knows the word."""
    hints = field_types(cls)
    return {key: UNSET if value is None and knows_unset(hints[key]) else value for key, value in values.items()}


def with_none(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `without_none`; keys and values may be wrong."""
    hints = field_types(cls)
    return {
        key: None if isinstance(value, str) and value == UNSET and knows_unset(hints.get(key)) else value
        for key, value in values.items()
    }


def knows_unset(hint: Any) -> bool:
    """Whether the word `unset` is None in a field of this type; where any word may stand it is that word.

    >>> knows_unset(float | None), knows_unset(str | None), knows_unset(float)
    (True, False, False)
    """
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()
    return type(None) in choices and not any(choice is str or UNSET in get_args(choice) for choice in choices)


def convert(hint: Any, value: Any, name: str) -> Any:
    """`value` as the type `hint`, or one line that says what was wanted."""
    if hasattr(hint, "parse"):
        return hint.parse(value, name)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return arguments[1](value, name)
    if origin is Literal:
        if value not in arguments:
            raise UsageError(f"{name} = {value}: choose from {', '.join(map(str, arguments))}")
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(hint, value, name)
    if origin is tuple:
        return _convert_tuple(arguments, value, name)
    if origin is list:
        return list(_convert_tuple((*arguments, Ellipsis), value, name))
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return build(typing.cast(type, hint), value, name)
    return _convert_scalar(hint, value, name)


def _convert_union(hint: Any, value: Any, name: str) -> Any:
    arguments, unset = get_args(hint), knows_unset(hint)
    if (value is None and type(None) in arguments) or (isinstance(value, str) and value == UNSET and unset):
        return None
    reasons = []
    for choice in arguments:
        if choice is not type(None):
            try:
                return convert(choice, value, name)
            except UsageError as error:
                reasons.append(error)
    words = [str(word) for choice in arguments if get_origin(choice) is Literal for word in get_args(choice)]
    words += [UNSET] if unset else []
    if words and get_origin(arguments[0]) is not Literal:
        raise UsageError(f"{reasons[0]}, or {', '.join(words)}")
    raise reasons[0]


def _convert_tuple(arguments: tuple[Any, ...], value: Any, name: str) -> Any:
    if isinstance(value, str):
        value = [parse_value(word.strip()) for word in value.split(",") if word.strip()]
    if not isinstance(value, list | tuple):
        value = [value]
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(convert(arguments[0], item, name) for item in value)
    if len(value) != len(arguments):
        raise UsageError(f"{name} = {list(value)!r}: {len(arguments)} values are wanted")
    return tuple(convert(kind, item, name) for kind, item in zip(arguments, value, strict=True))


def _convert_scalar(hint: Any, value: Any, name: str) -> Any:
    if isinstance(value, Number) and not isinstance(value, int | float) and hasattr(value, "item"):
        value = value.item()  # a number of numpy's
    if hint is Any or (_is_kind(hint) and isinstance(value, hint) and not (hint is int and isinstance(value, bool))):
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if not _is_kind(hint):
        kinds = "bool, int, float, str, Path, Literal, None, and tuple or list of these"
        raise UsageError(f"{name}: no option can be of type {hint}; there are {kinds}")
    raise _wrong(name, value, WORDS.get(hint, getattr(hint, "__name__", str(hint))))


def _is_kind(hint: Any) -> bool:
    """Whether a field of this type holds what JSON can: a word, a number, a path, or settings of its own."""
    return hint in (bool, int, float, str, Path, types.NoneType) or (
        isinstance(hint, type) and dataclasses.is_dataclass(hint)
    )


def _wrong(name: str, value: Any, wanted: str) -> UsageError:
    return UsageError(f"{name} = {value!r}: {wanted} is wanted")

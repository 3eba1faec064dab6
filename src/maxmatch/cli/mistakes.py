"""What is said of an option that the parser refuses: a value that does not fit, or a setting typed as an option."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from typing import Any, Literal, get_args, get_origin

from maxmatch.errors import ALIASES, UserError
from maxmatch.methods import PRETRAINING, method_class
from maxmatch.settings import field_types
from maxmatch.train.flags import FLAGS

NO = frozenset({"false", "0", "no", "off"})  # behind a switch
# The parser's own words, which name no value, and ours.
RULES = (
    (r"Input should be a valid integer.*", "a whole number is wanted"),
    (r"Input should be a valid number.*", "a number is wanted"),
    (r"Input should be greater than or equal to (\S+)", r"it must be at least \1"),
    (r"Input should be less than or equal to (\S+)", r"it must be at most \1"),
)


def bad_value(error: Any, arguments: Sequence[str]) -> str | None:
    """One line for an option's value that is refused; None where the parser's own has it, or it is another error."""
    options = getattr(getattr(error, "param", None), "opts", ())
    found = _typed(options, arguments) if type(error).__name__ == "BadParameter" else None
    if found is None or found[1] is None:
        return None
    rule = error.message
    for theirs, ours in RULES:
        rule = re.sub(theirs, ours, rule)
    return f"{found[0]} {found[1]}: {rule}"


def as_setting(error: Any, arguments: Sequence[str]) -> str | None:
    """One line for an unknown option that is a setting: `--lr 0.1` is `--set train.lr=0.1`. None for all others."""
    if type(error).__name__ != "NoSuchOption" or error.ctx is None:
        return None
    known = {option for parameter in error.ctx.command.params for option in parameter.opts}
    if "--set" not in known:
        return None
    option, value = _typed([error.option_name], arguments) or (error.option_name, None)
    name = option.lstrip("-").replace("-", "_")
    name = ALIASES.get(name, name)
    if name == "fold" and "--folds" in known:  # of a benchmark: a number alone would say how many
        return f"{option}: type --folds {shlex.quote(value or 'NUMBER')},"
    if f"--{name}" in known:
        return f"{option}: type --{name} {shlex.quote(value or 'VALUE')}"
    if name in FLAGS:  # of another command
        place = ".".join(FLAGS[name])
        return f"{option}: type --set {shlex.quote(f'{place}={value}') if value else f'{place}=VALUE'}"
    sections = _sections(error.ctx.command.name, arguments)
    assigned = [
        f"{section}.{name}={_fitting(value, hints[name])}"
        for section, hints in sections.items()
        if name in hints and _takes(hints[name], value)
    ]
    if "name" in sections.get(name, ()):  # --net resnet18
        assigned = [f"{name}.name={'NAME' if value is None else value}"]
    told = [f"--set {shlex.quote(text)}" for text in assigned]
    return f"{option}: type {' or '.join(told)}" if told else None


def _takes(hint: Any, value: str | None) -> bool:
    """Whether a setting could be that: a choice of words takes no other word."""
    return value is None or get_origin(hint) is not Literal or value in get_args(hint)


def _fitting(value: str | None, hint: Any) -> str:
    """What was typed behind the option; a switch needs nothing there, and the next word may be another thing."""
    if hint is bool:
        return "false" if value is not None and value.casefold() in NO else "true"
    return "VALUE" if value is None else value


def _sections(command: str | None, arguments: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The types of all settings by section and field; the method's are those of the one that was asked for."""
    from maxmatch.train.recipe import Recipe

    usual = next(iter(PRETRAINING)) if command == "pretrain" else "maxmatch"
    _, asked = _typed(["--method"], arguments) or ("", None)
    try:
        method = method_class(asked or usual)
    except UserError:  # one mistake at a time
        method = method_class(usual)
    kinds = field_types(Recipe) | {"method": method}
    return {section: field_types(kind) for section, kind in kinds.items() if section != "settled"}


def _typed(options: Collection[str], arguments: Sequence[str]) -> tuple[str, str | None] | None:
    """The last of the options that was typed, with the word behind it if that is no option; None if there is none."""
    found = None
    for word, after in zip(arguments, [*arguments[1:], "--"], strict=True):
        option, equals, value = word.partition("=")
        if option in options:
            found = option, value if equals else None if after.startswith("--") else after
    return found

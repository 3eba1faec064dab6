"""The options that several commands share, what was typed as plain values, and what is said of options that fail."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from maxmatch.errors import ALIASES, UsageError, UserError, unknown
from maxmatch.methods import METHODS, PRETRAINING, canonical, method_class
from maxmatch.settings import field_types, parse_assignment


def complete(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    def matching(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return matching


Data = Annotated[
    str | None,
    typer.Argument(
        help="A data set and its number of labels, cifar10@250 or digits@10%, or a folder of pictures, ./photos.",
        show_default=False,
    ),
]
MethodName = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="maxmatch, fixmatch, freematch, ...: maxmatch methods lists them; or your own as module:Class.",
        autocompletion=complete(lambda: list(METHODS)),
    ),
]
K = Annotated[
    str | None,
    typer.Option(
        "--k",
        help="Strong views per image: 3; drawn anew each step: 1,2,3 or, weighted, 1:.5,2:.3,3:.2; by schedule: 1..3 "
        "(half of the steps each) or 1:.2..3:.8.",
    ),
]
Over = Annotated[
    str | None,
    typer.Option(
        "--over", help="worst, mean, best, soft:TAU (1) or fraction:Q (0.5) of the K losses.",
        autocompletion=complete(lambda: ["worst", "mean", "best", "soft", "fraction"]),
    ),
]  # fmt: skip
Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        help="joint: one pass over all views; select: score all first, then train on the picked ones; auto.",
        autocompletion=complete(lambda: ["auto", "joint", "select"]),
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="auto, cpu, cuda or mps.",
        autocompletion=complete(lambda: ["auto", "cpu", "cuda", "mps"]),
    ),
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", help="How many passes over the unlabelled images, instead of --steps.")
]
Labels = Annotated[
    Path | None,
    typer.Option("--labels", help="For a folder: a CSV file of path,label; blank labels are unlabelled."),
]
Strict = Annotated[
    bool | None, typer.Option("--strict", help="For a folder: refuse what would be left out.", show_default=False)
]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        help="Who is labelled: balanced, proportional, or as google, usb or paper did it.",
        autocompletion=complete(lambda: ["balanced", "proportional", "google", "usb", "paper"]),
    ),
]
Report = Annotated[
    bool, typer.Option("--report/--no-report", help="Write report.html beside the run: one page with all about it.")
]
Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        help="A recipe's name (digits, paper, fast-1min, fast-10min, moco, imagenet-paper, imagenet-authors, "
        "imagenet-finetune) or a TOML or JSON file.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="section.field=value; repeats. See maxmatch settings."),
]

# The parser's own words, which name no value, and ours.
RULES = (
    (r"Input should be a valid integer.*", "a whole number is wanted"),
    (r"Input should be a valid number.*", "a number is wanted"),
    (r"Input should be greater than or equal to (\S+)", r"it must be at least \1"),
    (r"Input should be less than or equal to (\S+)", r"it must be at most \1"),
)

FLAGS = {
    "method": ("method", "name"), "k": ("method", "k"), "over": ("method", "over"), "strategy": ("method", "strategy"),
    "steps": ("train", "steps"), "epochs": ("train", "epochs"),
    "seed": ("train", "seed"), "fold": ("train", "fold"), "device": ("train", "device"),
    "init": ("train", "init"), "labels": ("data", "label_file"), "strict": ("data", "strict"),
    "protocol": ("data", "protocol"),
}  # fmt: skip


def given(data: str | None, sets: list[str] | None, **flags: Any) -> dict[str, dict[str, Any]]:
    """What was typed, as two levels of plain values. One setting given twice with different values is an error."""
    typed: list[tuple[str, str, Any]] = [parse_assignment(text) for text in sets or []]
    typed += [(*FLAGS[name], value) for name, value in flags.items() if value is not None]
    if data is not None:
        typed += parse_data(data)
    found: dict[str, dict[str, Any]] = {}
    for section, name, value in typed:
        if (section, name) == ("method", "name"):
            value = canonical(str(value))
        held = found.setdefault(section, {}).setdefault(name, value)
        if held != value and str(held) != str(value):
            raise UsageError(f"{section}.{name} is given twice, as {held} and as {value}: give it once")
    return found


def one_length(steps: int | None, epochs: int | None) -> None:
    """Refuse two lengths of one run."""
    if steps is not None and epochs is not None:
        raise UsageError(f"--steps {steps} and --epochs {epochs}: they say the same thing; give one of them")


def parse_data(text: str) -> list[tuple[str, str, Any]]:
    """`name[@labels]`, or a folder: what exists, has a `/` in it or begins with a dot, perhaps with @labels."""
    name, at, labels = text.partition("@")
    if "/" in text or text.startswith(".") or Path(text).exists() or Path(text.rpartition("@")[0] or "-").is_dir():
        folder, at, labels = (text, "", "") if Path(text).exists() or not at else text.rpartition("@")
        found = [("data", "name", "folder"), ("data", "path", str(Path(folder).absolute()))]
        return [*found, *([("data", "labels", labels)] if at else [])]
    from maxmatch.data import DATASETS

    if name not in DATASETS:
        from maxmatch.train.recipes import RECIPES

        if name in RECIPES:
            raise UsageError(f"{name} is a recipe, not a data set: type --config {name}")
        beside = [entry.name for entry in Path().iterdir() if entry.is_dir()]
        near = next(iter(get_close_matches(name, [*DATASETS, *beside], n=1)), None)
        if near in beside:
            raise UsageError(f"there is no folder {name} and no data set of that name: did you mean ./{near}?")
        raise UsageError(f"there is no folder {name}; {unknown('data set', name, DATASETS)}")
    if at and not labels:
        raise UsageError(f"{text}: a number of labels is wanted behind the @; type {name}@40")
    return [("data", "name", name), *([("data", "labels", labels)] if at else [])]


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
    if f"--{name}" in known:
        return f"{option}: type --{name} {shlex.quote(value or 'VALUE')}"
    sections = _sections(error.ctx.command.name, arguments)
    assigned = [
        f"{section}.{name}={_fitting(value, hints[name])}" for section, hints in sections.items() if name in hints
    ]
    told = [f"--set {shlex.quote(text)}" for text in assigned]
    return f"{option}: type {' or '.join(told)}" if told else None


def _fitting(value: str | None, hint: Any) -> str:
    """What was typed behind the option; a switch needs nothing there, and the next word may be another thing."""
    if hint is bool:
        return value if value in ("true", "false") else "true"
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

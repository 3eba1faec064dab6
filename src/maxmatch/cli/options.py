"""The options that several commands share, and what was typed as plain values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from maxmatch.errors import UsageError, tell
from maxmatch.methods import METHODS, canonical
from maxmatch.settings import parse_assignment
from maxmatch.train.data_word import read_data
from maxmatch.train.flags import FLAGS


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
        "--over", help="Which of the K losses of an image count: worst, mean, best, soft:TAU (soft is soft:1) or "
        "fraction:Q, the worst share Q (fraction is fraction:0.5).",
        autocompletion=complete(lambda: ["worst", "mean", "best", "soft", "fraction"]),
    ),
]  # fmt: skip
Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        help="joint: one pass over all views. select: score all first, then train on the picked ones. "
        "auto: select where views are picked and K > 1.",
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
        help="A recipe's name (digits, paper, fast-1min, fast-10min, fast-30min, moco, imagenet-paper, "
        "imagenet-authors, imagenet-finetune) or a TOML or JSON file.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="section.field=value; repeats. See maxmatch settings."),
]


def given(data: str | None, sets: list[str] | None, **flags: Any) -> dict[str, dict[str, Any]]:
    """What was typed, as two levels of plain values. One setting given twice with different values is an error."""
    typed: list[tuple[str, str, Any]] = [parse_assignment(text) for text in sets or []]
    typed += [(*FLAGS[name], value) for name, value in flags.items() if value is not None]
    if data is not None:
        word = read_data(data)
        if word.path is None and Path(word.name).is_dir():
            tell(f"{word.name} is the data set of that name; the folder beside is ./{word.name}")
        typed += [("data", name, value) for name, value in word.settings.items()]
    found: dict[str, dict[str, Any]] = {}
    for section, name, value in typed:
        if (section, name) == ("method", "name"):
            value = canonical(str(value))
        if (section, name) == ("method", "k") and str(value).isdecimal():
            value = int(value)  # as --set has it: a method of one's own may want a number
        held = found.setdefault(section, {}).setdefault(name, value)
        if held != value and str(held) != str(value):
            raise UsageError(f"{section}.{name} is given twice, as {held} and as {value}: give it once")
    return found


def one_length(steps: int | None, epochs: int | None) -> None:
    """Refuse two lengths of one run."""
    if steps is not None and epochs is not None:
        raise UsageError(f"--steps {steps} and --epochs {epochs}: they say the same thing; give one of them")

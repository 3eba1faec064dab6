"""The command that makes the figures and tables of the paper again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maxmatch.cli.app import app
from maxmatch.cli.options import Device, complete
from maxmatch.errors import UsageError, unknown
from maxmatch.paper.budgets import BUDGETS, find_budget
from maxmatch.paper.targets import TARGETS, Target, find

ACTIONS = ("list", "run")


@app.command()
def paper(
    action: Annotated[
        str, typer.Argument(help="list or run.", autocompletion=complete(lambda: list(ACTIONS)))
    ] = "list",
    name: Annotated[
        str | None,
        typer.Argument(
            help="A figure or table as list has it, or all.",
            show_default=False,
            autocompletion=complete(lambda: [*TARGETS, "all"]),
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            help="smoke: seconds, tests the code alone. short: 4,000 steps a run, one GPU. full: the paper's 2^20.",
            autocompletion=complete(lambda: list(BUDGETS)),
        ),
    ] = "smoke",
    data: Annotated[
        str | None, typer.Option("--data", help="Another data set than the paper's, as cifar10; the page says so.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", help="These numbers of labels, 250,4000, not all of the paper's.")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Of each run. Default: the budget's.", min=1)] = None,
    folds: Annotated[
        str | None, typer.Option("--folds", help="3: folds 1 to 3. 1,3: those. Default: 1; full: the paper's.")
    ] = None,
    device: Device = None,
    out: Annotated[Path, typer.Option("--out", help="The folder of pages and runs.")] = Path("paper"),
    jobs: Annotated[int, typer.Option("--jobs", help="How many runs at a time.", min=1, max=256)] = 1,
    only_page: Annotated[bool, typer.Option("--only-page", help="Train nothing: a page of what is finished.")] = False,
) -> None:
    """List the paper's figures and tables, or make one again: maxmatch paper run fig-k --budget short"""
    if action not in ACTIONS:
        raise UsageError(unknown("action", action, ACTIONS))
    if action == "list":
        _list([find(name)] if name else list(TARGETS.values()))
        return
    if name is None:
        raise UsageError("paper run: a figure or table is wanted; type maxmatch paper list")
    chosen = find_budget(budget)
    targets = [target for target in TARGETS.values() if target.kind != "words"] if name == "all" else [find(name)]
    if targets[0].kind == "words":
        raise UsageError(f"{name}: there is nothing to run, it is words; its content is in docs/notation.md")
    counts = _numbers(labels)
    from maxmatch.benchmark.wanted import parse_folds
    from maxmatch.paper.wanted import plan

    numbers = parse_folds(folds) if folds else None
    wanted = [
        plan(target, chosen, out, data=data, labels=counts, steps=steps, folds=numbers, device=device)
        for target in targets
    ]
    from maxmatch.paper.command import run_target

    # Of all targets those of times come first, each run alone; others may then share the machine, and these runs.
    for one in sorted(wanted, key=lambda one: one.target.kind != "runtime"):
        alone = name == "all" and one.target.kind == "runtime"
        for path in run_target(one, 1 if alone else jobs, only_page):
            print(path)


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.strip().rstrip(",").split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words) or len(set(words)) < len(words):
        raise UsageError(f"--labels {text}: whole numbers are wanted, each once; type 250 or 250,4000")
    return [int(word) for word in words]


def _list(targets: list[Target]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "in the paper", "what it shows, and its setting", show_lines=True)
    for target in targets:
        table.add_row(target.name, target.where, f"{target.title}\n{target.setting}")
    console = Console(emoji=False)
    console.print(table)
    console.print("maxmatch paper run NAME --budget smoke|short|full makes one again", markup=False, highlight=False)

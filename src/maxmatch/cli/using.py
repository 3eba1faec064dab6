"""The commands that use a finished run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from maxmatch.cli.app import app


@app.command()
def evaluate(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run folder.")],
    k: Annotated[int | None, typer.Option("--k", help="Strong views per image for the robust errors.", min=1)] = None,
    device: Annotated[str, typer.Option("--device")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Error, top-5 error, robust errors and the confusion matrix of a run on its test set."""
    from maxmatch.train.judge import judge

    found = judge(run_folder, k, device)
    if as_json:
        print(json.dumps(found))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("truth \\ predicted", *found["classes"], "error %", title=f"{run_folder}: confusion matrix")
    for label, row in enumerate(found["confusion"]):
        wrong = f"{100 * (1 - row[label] / sum(row)):.1f}" if sum(row) else "-"
        table.add_row(found["classes"][label], *map(str, row), wrong)
    console = Console()
    console.print(table)
    views = f"{found['robust']['k']} strong views ({found['robust']['policy']})"
    words = {
        "error": "",
        "top5_error": "the truth is not among the five most likely",
        "robust_error": f"the image or any of {views} of it is misclassified",
        "robust_error_paper": f"any of the {views} alone is",
    }
    for key, word in words.items():
        value = f"{found[key]:.2f} %" if found[key] is not None else "-"
        console.print(f"{key:<20}{value:<10}{word}", highlight=False)


@app.command()
def predict(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run folder.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The pictures to label.")],
    out: Annotated[Path | None, typer.Option("--out", help="The CSV to write. Default: standard output.")] = None,
    device: Annotated[str, typer.Option("--device")] = "cpu",
) -> None:
    """Label the pictures of a folder: CSV of path, label and confidence, one row per readable file."""
    from maxmatch.evaluate.label import label_folder

    bad = label_folder(run_folder, folder, out, device)
    for line in bad:
        print(f"maxmatch: {line}: left out", file=sys.stderr)
    if bad:
        print(f"maxmatch: {len(bad)} files were left out", file=sys.stderr)

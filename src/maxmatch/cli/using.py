"""The commands that use a finished run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maxmatch.cli.app import app
from maxmatch.errors import UsageError, counted, tell
from maxmatch.files import refuse_to_replace

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

SHOWN = 15  # up to so many classes are shown as a matrix, and so many mistakes where there are more


@app.command()
def evaluate(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run folder.")],
    k: Annotated[
        int | None,
        typer.Option(
            "--k", help="Strong views per image for the robust errors. Default: evaluate.robust_views, 3.", min=1
        ),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Error, top-5 error, robust errors and the confusion matrix of a run on its test set.

    Of many classes the most frequent mistakes are shown instead of the matrix; --json has all of it.
    """
    from maxmatch.train.fit import finished_result
    from maxmatch.train.judge import judge
    from maxmatch.train.resume import saved_steps

    found = judge(run_folder, k, device)
    if finished_result(run_folder, saved_steps(run_folder)) is None:
        again = f"maxmatch train --resume --out {shlex.quote(str(run_folder))}"
        told = f"{run_folder} is not finished, and this is the model it last ended with"
        tell(f"maxmatch: {told}; to go on type {again}")
    if as_json:
        print(json.dumps(found))
        return
    from rich.console import Console

    console = Console(emoji=False)
    classes, matrix, run = found["classes"], found["confusion"], str(run_folder)
    few = len(classes) <= SHOWN
    console.print(_confusion(classes, matrix, run, console.width) if few else _mistakes(classes, matrix, run))
    views = f"{found['robust']['k']} strong views ({found['robust']['policy']})"
    images = sum(map(sum, matrix))
    wrong = images - sum(row[label] for label, row in enumerate(matrix))
    words = {
        "error": f"{wrong:,} of {images:,} test images",
        "top5_error": "the truth is not among the five most likely",
        "robust_error": f"the image or any of {views} of it is misclassified",
        "robust_error_paper": f"any of the {views} alone is",
    }
    for key, word in words.items():
        value = f"{found[key]:.2f} %" if found[key] is not None else "-"
        console.print(f"{key:<20}{value:<10}{word}", highlight=False, markup=False, soft_wrap=True)


@app.command()
def report(
    run_folders: Annotated[list[Path], typer.Argument(metavar="RUN", help="A run folder, or several to compare.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The page to write. Default: report.html in the run's folder; of several, here."),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option("--seconds", help="About how long the models may be asked; more: more images.", min=0.1),
    ] = 10.0,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that is no report, or a page that tells more.")
    ] = False,
) -> None:
    """One HTML page about a run, or several side by side: errors, curves, calibration, what fools it, what to label.

    The page is a single file that asks the network for nothing. Finished or not, with or without its data: what can't
    be measured is said.
    """
    from maxmatch.report.page import write_report

    print(write_report(run_folders, out, seconds=seconds, force=force))


@app.command()
def predict(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run folder.")],
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The pictures to label.", show_default=False)
    ] = None,
    unlabeled: Annotated[
        bool,
        typer.Option(
            "--unlabeled",
            help="Instead of DIR: the images without a label that the run was trained on, each with its pseudo-label "
            "and its disagreement, the share of K strong views that the net calls something else. What to label next "
            "comes first: the highest (1 - confidence) + disagreement.",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="The file to write. Default: standard output.")] = None,
    format: Annotated[
        str | None, typer.Option("--format", help="csv or jsonl. Default: by the ending of --out, else csv.")
    ] = None,
    top: Annotated[int, typer.Option("--top", help="How many of the most likely classes, for DIR.", min=1)] = 1,
    k: Annotated[
        int | None,
        typer.Option("--k", help="Strong views per image, for --unlabeled. Default: evaluate.robust_views, 3.", min=1),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Threads that read pictures. Default: one a core, up to 16.", min=1)
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Label the pictures of a folder: path, label and confidence, one row per readable file. Any number of files."""
    out = None if out == Path("-") else out  # as most tools have it, standard output
    if out is not None:
        refuse_to_replace(out, force)
    if unlabeled:
        if folder is not None:
            raise UsageError(f"--unlabeled labels the run's own images, not {folder}: leave one of them out")
        if top > 1 or workers:
            raise UsageError("--top and --workers are for a folder of pictures: leave them out with --unlabeled")
        from maxmatch.train.unlabelled import label_unlabelled

        found = label_unlabelled(run_folder, out, device, k=k, format=format)
        if not found:
            tell(f"maxmatch: {run_folder} has no picture without a label that can be read: there is none to label")
        if out is not None:
            print(out)
            if found:
                _tell_how_to_go_on(run_folder)
        return
    if folder is None:
        raise UsageError("what is to be labelled? Type maxmatch predict RUN DIR, or maxmatch predict --unlabeled RUN")
    if k is not None:
        raise UsageError(f"--k {k}: it is for --unlabeled; leave it out")
    from maxmatch.evaluate.label import label_folder

    bad = label_folder(run_folder, folder, out, device, format=format, top=top, workers=workers)
    if bad:
        tell(f"maxmatch: {counted(bad, 'file was', 'files were')} left out")
    if out is not None:
        print(out)


def _tell_how_to_go_on(run_folder: Path) -> None:
    """What is done with a list of what to label next."""
    from maxmatch.report.folder import read_run
    from maxmatch.report.words import after_labelling

    if (how := after_labelling(read_run(run_folder))) is not None:
        tell(f"maxmatch: {how}")


@app.command()
def export(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run folder.")],
    out: Annotated[Path, typer.Argument(metavar="FILE", help="model.onnx, or model.pt2 for torch.export.")],
    format: Annotated[
        str | None, typer.Option("--format", help="onnx or torch. Default: by the ending of FILE.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write the classifier as one file, resize and normalisation inside: uint8 images (N, H, W, 3) to probabilities.

    The file is kept only if it agrees with torch on real images of several sizes.
    """
    from maxmatch.export import export_run

    refuse_to_replace(out, force, "FILE")
    found = export_run(run_folder, out, format)
    tell(f"maxmatch: {found}")
    print(out)


def _confusion(classes: list[str], matrix: list[list[int]], run: str, width: int) -> Table:
    """All counts; where the classes' names are too wide for the screen the columns have numbers instead."""
    from rich.table import Table
    from rich.text import Text

    columns, rows = classes, classes
    table = Table("truth \\ predicted", title=_title(f"{run}: confusion matrix"))
    if sum(len(name) + 3 for name in ["truth \\ predicted", *classes, "error %"]) >= width:
        columns = [str(number) for number, _ in enumerate(classes, start=1)]
        rows = [f"{number} {name}" for number, name in zip(columns, classes, strict=True)]
        table = Table("truth", title=_title(f"{run}: predicted as"), box=None, padding=(0, 1, 0, 0))
    for name in (*columns, "error %"):
        table.add_column(Text(name), justify="right", no_wrap=True)
    for label, row in enumerate(matrix):
        wrong = f"{100 * (1 - row[label] / sum(row)):.1f}" if sum(row) else "-"
        table.add_row(Text(rows[label]), *map(str, row), wrong)
    return table


def _mistakes(classes: list[str], matrix: list[list[int]], run: str) -> Table:
    """What is taken for what most often; a matrix of so many classes is too large to be read."""
    from rich.table import Table
    from rich.text import Text

    found = [(-count, a, b) for a, row in enumerate(matrix) for b, count in enumerate(row) if a != b and count]
    table = Table("truth", "predicted", "images", "of", title=_title(f"{run}: the most frequent mistakes"))
    for count, truth, predicted in sorted(found)[:SHOWN]:
        table.add_row(Text(classes[truth]), Text(classes[predicted]), str(-count), str(sum(matrix[truth])))
    return table


def _title(text: str) -> Text:
    """As it stands: names of classes and folders are no markup, whatever brackets and colons are in them."""
    from rich.text import Text

    return Text(text, style="table.title")

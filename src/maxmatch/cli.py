"""The command line. Nothing heavy is imported until a command needs it, so that help answers at once."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from maxmatch import __version__
from maxmatch.errors import UsageError, UserError, unknown
from maxmatch.methods import METHODS, canonical
from maxmatch.settings import parse_assignment

app = typer.Typer(
    name="maxmatch",
    help="Semi-supervised image classification with worst-case consistency: many pictures, few labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Begin with: maxmatch demo",
    context_settings={"help_option_names": ["-h", "--help"]},
)


# typer carries click inside itself or beside itself, by its version; its own public error leads to either.
ClickUsageError: Any = typer.BadParameter.__mro__[1]
ClickException: Any = typer.BadParameter.__mro__[2]


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command; every error is one line on standard error, and the exit code says which kind it was."""
    sys.path.append(os.getcwd())  # a method of your own, --method my_module:Mine, is found beside you
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """The exit code of a command: 0, 1 an error, 2 wrong words, 130 and 143 a signal."""
    try:
        outcome = typer.main.get_command(app).main(arguments, prog_name="maxmatch", standalone_mode=False)
    except UserError as error:
        return _fail(str(error), error.code)
    except ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)
            return 2
        known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
        command = f"{arguments[0]} " if arguments and arguments[0] in known else ""
        hint = f" (type maxmatch {command}--help)" if isinstance(error, ClickUsageError) else ""
        return _fail(error.format_message() + hint, error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped", 130)
    except OSError as error:
        return _fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), 1)
    return _fail("stopped", 130) if outcome == 130 else outcome if isinstance(outcome, int) else 0


def _fail(message: str, code: int) -> int:
    print(f"maxmatch: {' '.join(message.split())}", file=sys.stderr)
    return code


def _version(wanted: bool) -> None:
    if wanted:
        print(f"maxmatch {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Semi-supervised image classification with worst-case consistency: many pictures, few labels."""


def _complete(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


Data = Annotated[
    str | None,
    typer.Argument(help="A data set and its number of labels: digits@20, digits@10%.", show_default=False),
]
MethodName = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="supervised, fixmatch, maxmatch, or your own as module:Class.",
        autocompletion=_complete(lambda: list(METHODS)),
    ),
]
K = Annotated[
    str | None,
    typer.Option("--k", help="Strong views per image: 3, or drawn anew each step: 1,2,3 or, weighted, 1:.5,2:.3,3:.2."),
]
Over = Annotated[
    str | None,
    typer.Option(
        "--over", help="worst, mean, best, soft:TAU (1) or fraction:Q (0.5) of the K losses.",
        autocompletion=_complete(lambda: ["worst", "mean", "best", "soft", "fraction"]),
    ),
]  # fmt: skip
Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        help="joint: one pass over all views; select: score first, then train on the picked ones; auto.",
        autocompletion=_complete(lambda: ["auto", "joint", "select"]),
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="auto, cpu, cuda or mps.",
        autocompletion=_complete(lambda: ["auto", "cpu", "cuda", "mps"]),
    ),
]
Config = Annotated[
    str | None, typer.Option("--config", help="A recipe by name (digits, paper), or a TOML or JSON file.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="section.field=value; repeats. See maxmatch settings."),
]


@app.command()
def demo(
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where the runs go. Default: runs/demo, or the next free name."),
    ] = None,
    labels: Annotated[int, typer.Option("--labels", help="How many digits have a label.")] = 20,
    seed: Annotated[int, typer.Option("--seed")] = 1,
    steps: Annotated[int | None, typer.Option("--steps", help="Fewer for a quick look.")] = None,
) -> None:
    """Train supervised, FixMatch and MaxMatch on handwritten digits, 20 labels: about a minute on two idle cores."""
    from maxmatch.demo import run_demo

    run_demo(out, labels, seed, steps)


@app.command()
def train(
    data: Data = None,
    method: MethodName = None,
    k: K = None,
    over: Over = None,
    strategy: Strategy = None,
    steps: Annotated[int | None, typer.Option("--steps", help="How many steps. Default: the recipe's.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Random seed of weights, order and views.")] = None,
    fold: Annotated[int | None, typer.Option("--fold", help="Which labelled set. Default: the seed.")] = None,
    device: Device = None,
    out: Annotated[Path | None, typer.Option("--out", help="The run folder. Default: runs/DATA@N-METHOD-SEED.")] = None,
    init: Annotated[str | None, typer.Option("--init", help="Start from the weights of this run.")] = None,
    log: Annotated[list[str] | None, typer.Option("--log", help="Also log to: tensorboard.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in --out.")] = False,
    config: Config = None,
    sets: Sets = None,
) -> None:
    """Train a classifier: maxmatch train digits@40 --method maxmatch --k 3 --out runs/a"""
    started = _process_start()
    given = _given(data, sets, method=method, k=k, over=over, strategy=strategy,
                   steps=steps, seed=seed, fold=fold, device=device, init=init)  # fmt: skip
    from maxmatch.methods import method_name
    from maxmatch.train.fit import finished_result, fit
    from maxmatch.train.recipes import compose
    from maxmatch.train.resume import resumed_recipe

    if resume:
        if out is None or force:
            raise UsageError("--resume goes with --out RUN, and without --force: maxmatch train --resume --out runs/a")
        recipe = resumed_recipe(out, given, config)
        finished = finished_result(out, recipe)
        if finished is not None:
            print(
                f"{out} is finished: {finished['steps']} steps; for more, add --steps {2 * finished['steps']}",
                file=sys.stderr,
            )
            _print_result(out, finished)
            return
        _print_result(out, fit(recipe, out, resume=True, log=log or (), started=started))
        return
    if data is None and config is None:
        raise UsageError("no data: type maxmatch train digits@40, or maxmatch train --resume --out RUN")
    recipe = compose(config=config, given=given)
    if out is None:
        name = method_name(recipe.method).replace(":", "-")
        out = Path("runs") / f"{recipe.data.name}@{recipe.data.labels}-{name}-{recipe.train.seed}"
    _print_result(out, fit(recipe, out, force=force, log=log or (), started=started))


@app.command()
def preview(
    data: Data = None,
    out: Annotated[Path, typer.Option("--out", help="The picture to write.")] = Path("preview.png"),
    k: Annotated[int, typer.Option("--k", help="Strong views per image.", min=1, max=16)] = 5,
    images: Annotated[int, typer.Option("--images", help="How many images.", min=1, max=64)] = 8,
    seed: Annotated[int, typer.Option("--seed")] = 1,
    config: Config = None,
    sets: Sets = None,
) -> None:
    """Draw a sheet of weak and strong views, each named, to see what training will see."""
    from maxmatch.data.datasets import load_images
    from maxmatch.evaluate.sheet import draw_sheet
    from maxmatch.train.batches import make_views
    from maxmatch.train.recipes import compose

    recipe = compose(config=config, given=_given(data, sets))
    sheet = draw_sheet(load_images(recipe.data.name).x, make_views(recipe.augment), k, images, seed)
    try:
        sheet.save(out)
    except ValueError:
        raise UsageError(f"--out {out}: give a picture's name, for example preview.png") from None
    print(out)


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


@app.command()
def methods(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the page docs/methods.md.")] = False,
) -> None:
    """List the methods, their years, options and defaults."""
    from rich.console import Console
    from rich.table import Table

    from maxmatch.methods.catalogue import entries, page

    if markdown:
        print(page(), end="")
        return
    table = Table("method", "year", "what it does", "options", show_lines=True)
    for entry in entries():
        options = ", ".join(f"{name}={value}" for name, value in entry.options.items())
        table.add_row(entry.name, str(entry.year), entry.line, options)
    Console().print(table)


@app.command()
def settings(
    data: Data = None,
    method: MethodName = None,
    config: Config = None,
) -> None:
    """List every setting with its value, as TOML that --config reads: maxmatch settings > mine.toml"""
    from maxmatch.train.recipes import compose

    print(compose(config=config, given=_given(data, None, method=method)).to_toml(), end="")


@app.command()
def bench(
    net: Annotated[str, typer.Option("--net", help="wrn-28-2, wrn-28-8, resnet50; commas between.")] = "wrn-28-2",
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")] = "auto",
    precision: Annotated[str | None, typer.Option("--precision", help="Default: bf16 on a GPU, else float32.")] = None,
    step: Annotated[str, typer.Option("--step", help="auto, eager, compiled or captured.")] = "auto",
    k: Annotated[str, typer.Option("--k", help="Which K, with commas.")] = "1,3,5,7",
    strategy: Annotated[str, typer.Option("--strategy", help="joint, select or joint,select.")] = "joint,select",
    batch: Annotated[
        int | None, typer.Option("--batch", help="Labelled images a step. Default: by net and device.", min=1)
    ] = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", help="Timed steps for each row. Default: by net.", min=1)
    ] = None,
    parts: Annotated[bool, typer.Option("--parts/--no-parts", help="The paper's four parts of a step.")] = True,
    inference: Annotated[bool, typer.Option("--inference/--no-inference", help="Images/s of prediction.")] = True,
    out: Annotated[Path | None, typer.Option("--out", help="Also keep all as JSON here, row by row.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Measure a step here: steps/s, memory, TFLOP/s, the paper's four parts, and the ratio to FixMatch for each K."""
    from maxmatch.bench.wanted import Wanted, names, numbers

    wanted = Wanted(names(net), numbers(k), names(strategy), precision, step, repeats, batch, parts, inference)
    from maxmatch.bench.command import run_bench

    run_bench(wanted, device, out, as_json)


FLAGS = {
    "method": ("method", "name"), "k": ("method", "k"), "over": ("method", "over"), "strategy": ("method", "strategy"),
    "steps": ("train", "steps"), "seed": ("train", "seed"), "fold": ("train", "fold"), "device": ("train", "device"),
    "init": ("train", "init"),
}  # fmt: skip


def _given(data: str | None, sets: list[str] | None, **flags: Any) -> dict[str, dict[str, Any]]:
    """What was typed, as two levels of plain values. One setting given twice with different values is an error."""
    typed: list[tuple[str, str, Any]] = [parse_assignment(text) for text in sets or []]
    typed += [(*FLAGS[name], value) for name, value in flags.items() if value is not None]
    if data is not None:
        typed += _parse_data(data)
    given: dict[str, dict[str, Any]] = {}
    for section, name, value in typed:
        if (section, name) == ("method", "name"):
            value = canonical(str(value))
        held = given.setdefault(section, {}).setdefault(name, value)
        if held != value and str(held) != str(value):
            raise UsageError(f"{section}.{name} is given twice, as {held} and as {value}: give it once")
    return given


def _parse_data(text: str) -> list[tuple[str, str, Any]]:
    """`name[@labels]`."""
    if "/" in text or text.startswith(".") or Path(text).exists():
        raise UsageError(f"{text}: folders of your own are not there yet; type a data set, for example digits@40")
    name, at, labels = text.partition("@")
    from maxmatch.data import DATASETS

    if name not in DATASETS:
        raise UsageError(unknown("data set", name, DATASETS))
    if at and not labels:
        raise UsageError(f"{text}: a number of labels is wanted behind the @; type {name}@40")
    return [("data", "name", name), *([("data", "labels", labels)] if at else [])]


def _print_result(out: Path, result: dict[str, Any]) -> None:
    """The result as one JSON line on standard output, and what to type next on standard error."""
    print(json.dumps(result))
    error = result["error"]["last"]
    told = f"error {error:.2f} %" if error is not None else "error not measured: there is no test set"
    print(f"{told}; {result['seconds']:.0f} s. Next: maxmatch evaluate {shlex.quote(str(out))}", file=sys.stderr)


def _process_start() -> float:
    """When this process began, as time.time() counts; now, where the system does not say."""
    try:
        with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
            return time.time() - (float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return time.time()

"""The commands that train, and those that say what will be trained on and how."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maxmatch.cli.app import app, speaks
from maxmatch.cli.options import (
    Config,
    Data,
    Device,
    Epochs,
    K,
    Labels,
    MethodName,
    Over,
    Protocol,
    Report,
    Sets,
    Strategy,
    Strict,
    given,
    one_length,
)  # fmt: skip
from maxmatch.errors import UsageError, tell
from maxmatch.files import refuse_to_replace
from maxmatch.methods import PRETRAINING

if TYPE_CHECKING:
    from maxmatch.train.recipe import Recipe, TrainSettings


@app.command()
def demo(
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where the runs go. Default: runs/demo, or the next free name."),
    ] = None,
    labels: Annotated[int, typer.Option("--labels", help="How many digits have a label.")] = 20,
    seed: Annotated[int, typer.Option("--seed")] = 1,
    steps: Annotated[int | None, typer.Option("--steps", help="Fewer for a quick look.")] = None,
    report: Report = True,
) -> None:
    """Train supervised, FixMatch and MaxMatch on handwritten digits, 20 labels: about a minute on two idle cores."""
    from maxmatch.demo import run_demo

    run_demo(out, labels, seed, steps, report)


@app.command()
def train(
    data: Data = None,
    method: MethodName = None,
    k: K = None,
    over: Over = None,
    strategy: Strategy = None,
    steps: Annotated[int | None, typer.Option("--steps", help="How many steps. Default: the recipe's.")] = None,
    epochs: Epochs = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Random seed of weights, order and views.")] = None,
    fold: Annotated[int | None, typer.Option("--fold", help="Which labelled set. Default: the seed.")] = None,
    device: Device = None,
    protocol: Protocol = None,
    out: Annotated[Path | None, typer.Option("--out", help="The run folder. Default: runs/DATA@N-METHOD-SEED.")] = None,
    init: Annotated[str | None, typer.Option("--init", help="Start from this run folder or weight file.")] = None,
    log: Annotated[list[str] | None, typer.Option("--log", help="Also log to: tensorboard, wandb.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in --out.")] = False,
    labels: Labels = None,
    strict: Strict = None,
    report: Report = True,
    config: Config = None,
    sets: Sets = None,
) -> None:
    """Train a classifier: maxmatch train digits@40 --k 3 --out runs/a, or on your own pictures: maxmatch train ./photos

    A folder has labeled/CLASS/ and unlabeled/ in it, or class folders, or a CSV file beside it (--labels); test/CLASS/
    may stand beside them.
    """
    started = process_start()
    one_length(steps, epochs)
    typed = given(
        data, sets, method=method, k=k, over=over, strategy=strategy, steps=steps, epochs=epochs, seed=seed, fold=fold,
        device=device, init=init, protocol=protocol, labels=_absolute(labels), strict=strict,
    )  # fmt: skip
    from maxmatch.methods import method_name
    from maxmatch.train.fit import finished_result, fit, is_changed
    from maxmatch.train.launcher import began
    from maxmatch.train.pictures import describe, title
    from maxmatch.train.recipes import compose
    from maxmatch.train.resume import resumed_recipe

    recipe = None
    if not resume:
        if data is None and config is None:
            raise UsageError("no data: type maxmatch train digits@40, or maxmatch train --resume --out RUN")
        recipe = compose(config=config, given=typed)
        if not recipe.method.needs.labelled:
            raise UsageError(f"--method {method_name(recipe.method)} learns no classes: type maxmatch pretrain DATA")
        if out is None:
            name = method_name(recipe.method).replace(":", "-")
            out = Path("runs") / f"{title(recipe.data)}@{recipe.data.labels}-{name}-{recipe.train.seed}"
        if began(out):  # torchrun has started this process again
            resume, force = True, False
    if resume:
        if out is None or force:
            raise UsageError("--resume goes with --out RUN, and without --force: maxmatch train --resume --out runs/a")
        recipe = resumed_recipe(out, typed, config)
        finished = finished_result(out, recipe.train.steps)
        if finished is not None and speaks():
            more = "" if recipe.method.needs.in_order else f"; for more, add {_more(recipe.train)}"
            if is_changed(recipe, out):
                run = shlex.quote(str(out))
                more = f"; its pictures or labels were changed since: type maxmatch train DATA --init {run} --out OTHER"
            tell(f"{out} is finished: {finished['steps']} steps{more}")
        print_result(
            out,
            fit(recipe, out, resume=True, log=log or (), started=started),
            report and (finished is None or not (out / "report.html").exists()),
        )
        return
    assert recipe is not None
    assert out is not None
    if recipe.data.name == "folder" and speaks():
        tell(describe(recipe))
    print_result(out, fit(recipe, out, force=force, log=log or (), started=started), report)


@app.command()
def preview(
    data: Data = None,
    out: Annotated[Path | None, typer.Option("--out", help="The picture to write. Default: preview.png.")] = None,
    k: Annotated[int, typer.Option("--k", help="Strong views per image.", min=1, max=16)] = 5,
    images: Annotated[int, typer.Option("--images", help="How many images.", min=1, max=64)] = 8,
    seed: Annotated[int, typer.Option("--seed")] = 1,
    labels: Labels = None,
    config: Config = None,
    sets: Sets = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is no such sheet.")] = False,
) -> None:
    """Draw a sheet of weak and strong views, each named, to see what training will see.

    Of a folder it tells what was found, what would be chosen for it, and what is left out.
    """
    if data is None and config is None:
        raise UsageError("no data: type maxmatch preview ./photos, or maxmatch preview digits")
    from maxmatch.evaluate.sheet import OURS, draw_sheet, save_sheet
    from maxmatch.train.batches import make_views
    from maxmatch.train.pictures import describe, load_data
    from maxmatch.train.recipes import compose
    from maxmatch.train.result import warnings_of_test

    recipe = compose(config=config, given=given(data, sets, labels=_absolute(labels)))
    out = _outside(recipe, out)
    refuse_to_replace(out, force, ours=OURS)
    if recipe.data.name == "folder":
        tell(describe(recipe))
    found = load_data(recipe, quiet=False)
    for note in (*found.notes, *warnings_of_test(found)):
        tell(f"warning: {note}")
    sheet = draw_sheet(found, make_views(recipe.augment, found.side), k, images, seed)
    try:
        save_sheet(sheet, out)
    except ValueError:
        raise UsageError(f"--out {out}: give a picture's name, for example preview.png") from None
    print(out)


@app.command()
def settings(
    data: Data = None,
    method: MethodName = None,
    labels: Labels = None,
    config: Config = None,
    sets: Sets = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="What each of them means, as the page docs/settings.md.")
    ] = False,
) -> None:
    """List every setting with its value, as TOML that --config reads: maxmatch settings ./photos > mine.toml"""
    if markdown:
        if any(typed is not None for typed in (data, method, labels, config, sets)):
            raise UsageError("--markdown: the page is of all settings and their defaults; type it alone")
        from maxmatch.cli.reference import page

        print(page(), end="")
        return
    from maxmatch.train.recipes import compose

    print(compose(config=config, given=given(data, sets, method=method, labels=_absolute(labels))).to_toml(), end="")


def _outside(recipe: Recipe, out: Path | None) -> Path:
    """Where a sheet goes: not among the pictures, where it would be learned from."""
    place, folder = out or Path("preview.png"), recipe.data.path
    if folder is None or not place.resolve().is_relative_to(Path(folder).resolve()):
        return place
    if out is not None:
        raise UsageError(
            f"--out {out}: it would lie among the pictures and be learned from; give a place outside {folder}"
        )
    return Path(folder).resolve().parent / place


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def _more(train: TrainSettings) -> str:
    """What to type for a run twice as long."""
    return f"--steps {2 * train.steps}" if train.epochs is None else f"--epochs {2 * train.epochs}"


def print_result(out: Path, result: dict[str, Any], report: bool = False) -> None:
    """What came of it and what to type next on standard error; the page, if asked.

    The result goes to standard output as one JSON line for programs; who sits at a terminal is told where it is.
    """
    if not speaks():
        return
    if sys.stdout.isatty():
        tell(f"result: {out / 'result.json'}")
    else:
        print(json.dumps(result), flush=True)
    run = shlex.quote(str(out))
    if result["method"] in PRETRAINING:
        told = f"contrastive loss {result['contrastive_loss']:.4g}; {result['seconds']:.0f} s"
        tell(f"{told}. Next: maxmatch train DATA --init {run}")
        return
    if report:
        from maxmatch.report.page import report_or_warn

        page = report_or_warn([out])
        if page is not None:
            tell(f"report: {page}")
    error = result["error"]["last"]
    told = f"error {error:.2f} %" if error is not None else "error not measured: there is no test set"
    if error is not None and (images := result.get("test_images")):  # a run of an earlier version has not counted them
        told += f", {round(error * images / 100):,} of {images:,} test images"
    after = f"maxmatch evaluate {run}" if error is not None else f"maxmatch predict {run} DIR"
    tell(f"{told}; {_cost(result)}. Next: {after}")


def _cost(result: dict[str, Any]) -> str:
    """The time from the start of the process, and how much of it was training."""
    loop, whole = result["seconds"], result["seconds_total"]
    return f"{whole:.0f} s, {loop:.0f} of them training" if whole - loop > 5 else f"{loop:.0f} s"


def process_start() -> float:
    """When this process began, as time.time() counts; now, where the system does not say."""
    try:
        with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
            return time.time() - (float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return time.time()

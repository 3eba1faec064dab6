"""The commands that measure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maxmatch.cli.app import app
from maxmatch.cli.options import Config, Data, Device, Epochs, Sets, given, one_length
from maxmatch.errors import UsageError


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


@app.command()
def benchmark(
    context: typer.Context,
    data: Data = None,
    methods: Annotated[
        str,
        typer.Option("--methods", help="With commas; options behind colons: fixmatch,maxmatch:k=5:over=fraction:0.5."),
    ] = "fixmatch,maxmatch",
    folds: Annotated[
        str,
        typer.Option("--folds", help="5: folds 1 to 5. 1,3,5: those. A comma behind one number, 3,: that one alone."),
    ] = "5",
    seed: Annotated[int | None, typer.Option("--seed", help="Of all runs. Default: each run's fold.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Of each run. Default: the recipe's.")] = None,
    epochs: Epochs = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", help="Each method with each value: train.lr=.01,.02,.03; repeats: all combinations."),
    ] = None,
    device: Device = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder of all runs. Default: runs/benchmark-DATA@N.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="How many runs at a time.", min=1, max=256)] = 1,
    only_table: Annotated[
        bool, typer.Option("--only-table", help="Train nothing: show what is finished so far. Needs only --out.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    config: Config = None,
    sets: Sets = None,
) -> None:
    """Compare methods over the same folds: maxmatch benchmark digits@40 --methods fixmatch,maxmatch --folds 5"""
    if only_table and out is not None and data is None and config is None:
        from maxmatch.benchmark.command import show_saved

        shown = {"only_table", "out", "as_json"}
        for parameter in context.command.params:
            if parameter.name not in shown and _was_typed(context, parameter.name):
                told = "--only-table with nothing but --out shows the last table"
                raise UsageError(f"{parameter.opts[0]}: {told}; leave it out, or name the data too")
        show_saved(out, as_json)
        return
    if data is None and config is None:
        raise UsageError("no data: type maxmatch benchmark digits@40 --methods fixmatch,maxmatch")
    one_length(steps, epochs)
    typed = given(data, sets, seed=seed, steps=steps, epochs=epochs, device=device)
    from maxmatch.benchmark.wanted import command_line, plan

    folder, runs = plan(methods, folds, typed, config, out, sweep or ())
    from maxmatch.benchmark.command import run_benchmark

    words: dict[str, object] = {"methods": methods, "folds": folds, "seed": seed, "steps": steps, "epochs": epochs}
    words |= {"device": device, "config": config, "out": out, "jobs": jobs if jobs > 1 else None}
    command = command_line(data, words, sets, sweep or ())
    run_benchmark(folder, runs, command, jobs, only_table, as_json)


@app.command()
def bound(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run folder.")],
    k: Annotated[int | None, typer.Option("--k", help="Strong views per image. Default: the run's.", min=1)] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="Outputs are kept between eps and 1 - eps. Default: 0.1 / classes."),
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="The probability with which a bound may fail.")] = 0.05,
    c0: Annotated[
        float | None,
        typer.Option("--c0", help="C0 of Theorem 2; the paper does not say it. Default: left open.", min=0),
    ] = None,
    images: Annotated[
        int, typer.Option("--images", help="Look at this many unlabelled and test images at most; 0: at all.", min=0)
    ] = 2000,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")] = "cpu",
    out: Annotated[Path | None, typer.Option("--json", help="Also write the numbers to this file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """The paper's bounds on the robust risk for a run: every term, printed and corrected, and what can be below 1."""
    from maxmatch.theory.command import run_bound

    run_bound(run_folder, device, k, epsilon, delta, c0, images, out, force)


def _was_typed(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name) if name else None
    return source is not None and source.name == "COMMANDLINE"

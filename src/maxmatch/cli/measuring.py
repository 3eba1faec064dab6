"""The commands that measure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maxmatch.cli.app import app


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

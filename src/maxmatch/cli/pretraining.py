"""The command that learns an encoder without labels, for a training to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maxmatch.cli.app import app, speaks
from maxmatch.cli.options import Config, Device, Epochs, Sets, Strict, given, one_length
from maxmatch.cli.training import print_result, process_start
from maxmatch.errors import UsageError, tell
from maxmatch.methods import PRETRAINING


@app.command()
def pretrain(
    data: Annotated[
        str | None,
        typer.Argument(help="A data set, cifar10, or a folder of pictures, ./photos.", show_default=False),
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="How many steps. Default: the recipe's.")] = None,
    epochs: Epochs = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Random seed of weights, order and views.")] = None,
    device: Device = None,
    out: Annotated[Path | None, typer.Option("--out", help="The run folder. Default: runs/DATA-moco-SEED.")] = None,
    init: Annotated[str | None, typer.Option("--init", help="Start from the weights of this pretraining.")] = None,
    log: Annotated[list[str] | None, typer.Option("--log", help="Also log to: tensorboard, wandb.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in --out.")] = False,
    strict: Strict = None,
    config: Config = None,
    sets: Sets = None,
) -> None:
    """Learn an encoder from pictures without labels (MoCo v2): maxmatch pretrain cifar10 --out runs/p

    Then start from it: maxmatch train cifar10@250 --init runs/p. Any labels are ignored; a folder needs none.
    """
    started = process_start()
    if resume and (out is None or force):
        raise UsageError("--resume goes with --out RUN, and without --force: maxmatch pretrain --resume --out runs/p")
    one_length(steps, epochs)
    typed = given(data, sets, steps=steps, epochs=epochs, seed=seed, device=device, init=init, strict=strict)
    name = typed.get("method", {}).get("name")
    if name is not None and name not in PRETRAINING:
        raise UsageError(f"method.name = {name}: it learns from labels; type maxmatch train DATA --method {name}")
    if "labels" in typed.get("data", {}):
        name = typed["data"].get("path") or typed["data"].get("name", "DATA")
        raise UsageError(
            f"data.labels = {typed['data']['labels']}: pretraining looks at no labels; type maxmatch pretrain {name}"
        )
    from maxmatch.methods import method_name
    from maxmatch.train.fit import fit
    from maxmatch.train.launcher import began
    from maxmatch.train.pictures import describe, title
    from maxmatch.train.recipes import compose
    from maxmatch.train.resume import resumed_recipe

    recipe = None
    if not resume:
        if data is None and config is None:
            raise UsageError("no data: type maxmatch pretrain digits, or maxmatch pretrain --resume --out RUN")
        recipe = compose(method=next(iter(PRETRAINING)), config=config, given=typed)
        if out is None:
            out = Path("runs") / f"{title(recipe.data)}-{method_name(recipe.method)}-{recipe.train.seed}"
        if began(out):  # torchrun has started this process again
            resume, force = True, False
    if resume and out is not None:
        recipe = resumed_recipe(out, typed, config)
        if recipe.method.needs.labelled:
            raise UsageError(f"{out} is no pretraining: type maxmatch train --resume --out {out}")
        print_result(out, fit(recipe, out, resume=True, log=log or (), started=started))
        return
    assert recipe is not None
    assert out is not None
    if recipe.data.name == "folder" and speaks():
        tell(describe(recipe))
    print_result(out, fit(recipe, out, force=force, log=log or (), started=started))

"""`fit`: from a recipe to a run folder. It begins a run, goes on with one, or says that it is finished.

A run folder is plain files: recipe.json, split.json, initial.safetensors, metrics.jsonl, checkpoint/, model.safetensors
and, written last, result.json.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from maxmatch.data.datasets import Images, load_images
from maxmatch.data.split import load_split, make_split
from maxmatch.errors import UsageError, UserError
from maxmatch.nets.device import best_device, find_device
from maxmatch.nets.model_file import load_model, save_model, write_safely
from maxmatch.train.log import find_logger
from maxmatch.train.loop import Training
from maxmatch.train.recipe import Recipe, read_values, resolve

FILES = ("recipe.json", "split.json", "initial.safetensors", "metrics.jsonl", "model.safetensors", "result.json")


def fit(
    recipe: Recipe,
    out: str | Path,
    data: Images | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    init: str | Path | None = None,
    log: Sequence[str] = (),
    quiet: bool = False,
    started: float | None = None,
) -> dict[str, Any]:
    """Train by a recipe into the folder `out` and return what result.json holds.

    `data` stands in for a data set by name. `resume` goes on from the newest checkpoint; `force` replaces a run that is
    there; `init` starts from another run's weights; `log` names loggers beside metrics.jsonl (`tensorboard`).
    `started` is when the clock of seconds_total began.
    """
    started = time.time() if started is None else started
    loggers = {name: find_logger(name) for name in log}
    folder = Path(out)
    finished = finished_result(folder, recipe) if resume else None
    if finished is not None:
        return finished
    with torch.random.fork_rng(), _one_line_errors(folder):
        recipe = resolve(recipe, device=best_device(), threads=torch.get_num_threads())
        training = prepare(recipe, folder, data, resume=resume, force=force, init=init, quiet=quiet)
        return training.run(started, [logger(str(folder / name)) for name, logger in loggers.items()])


def prepare(
    recipe: Recipe,
    folder: Path,
    data: Images | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    init: str | Path | None = None,
    quiet: bool = False,
) -> Training:
    """Build all that can be refused before the folder is touched, then the folder. The recipe is a resolved one."""
    device = find_device(recipe.train.device)
    assert isinstance(recipe.train.threads, int)
    assert isinstance(recipe.train.fold, int)
    torch.set_num_threads(recipe.train.threads)
    torch.manual_seed(recipe.train.seed)
    images = load_images(recipe.data.name) if data is None else data
    digest = images.sha256()
    if resume and (folder / "split.json").exists():
        split = load_split(folder / "split.json", digest)
    else:
        labels = count_labels(recipe.data.labels, images)
        split = make_split(images.y, labels, recipe.train.fold, recipe.data.protocol, recipe.data.exclude_labelled)
    training = Training(recipe, folder, images, split, device, quiet)
    if init is not None:
        _start_from(training, Path(init))
    if not resume:
        _claim(folder, force)
    write_safely(folder / "recipe.json", recipe.to_json().encode())
    if not resume or not (folder / "split.json").exists():
        split.save(folder / "split.json", digest)
    if not (folder / "initial.safetensors").exists():
        save_model(folder / "initial.safetensors", training.step.net, training.info)
    if resume:
        training.restore()
    return training


def finished_result(folder: Path, recipe: Recipe) -> dict[str, Any] | None:
    """The result of a run that has done all its steps, else None."""
    try:
        result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    except (OSError, ValueError):
        return None
    return result if result.get("steps", 0) >= recipe.train.steps else None


def saved_recipe(folder: Path) -> Recipe:
    """The recipe of a run folder, or one line that says that there is none."""
    if not (folder / "recipe.json").exists():
        raise UsageError(f"{folder} holds no run: give the folder of one, or leave --resume out to begin one")
    return Recipe.from_dict(read_values(folder / "recipe.json"))


def count_labels(labels: int | str, images: Images) -> int:
    """The number of labels that `250`, `10%` or `all` means for these images."""
    if labels == "all":
        return int((images.y >= 0).sum())
    return labels if isinstance(labels, int) else max(1, round(float(labels.rstrip("%")) / 100 * len(images.y)))


def _claim(folder: Path, force: bool) -> None:
    """Make the folder ours; a run that is there stays unless `force` says otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    held = [folder / name for name in (*FILES, "checkpoint") if (folder / name).exists()]
    if held and not force:
        raise UsageError(
            f"{folder} already holds a run: type --resume to go on with it, --force to replace it, or another --out"
        )
    for path in held:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _start_from(training: Training, source: Path) -> None:
    net, info = load_model(source / "model.safetensors")
    if info.net["name"] != training.info.net["name"] or info.classes != training.info.classes:
        raise UsageError(
            f"--init {source}: {info.net['name']} with {len(info.classes)} classes; this run has another net or classes"
        )
    for target in (training.step.net, training.step.average.net):
        target.load_state_dict(net.state_dict())


@contextmanager
def _one_line_errors(folder: Path) -> Iterator[None]:
    """A full disk or an unwritable folder is the user's to mend: say it in one line."""
    try:
        yield
    except OSError as error:
        what = os.strerror(error.errno) if error.errno else str(error)
        begun = (folder / "recipe.json").exists()
        hint = f"then type maxmatch train --resume --out {folder}" if begun else "or give another --out"
        raise UserError(f"{error.filename or folder}: {what}; mend that, {hint}") from None

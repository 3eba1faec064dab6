"""Whose a run's folder is: a new run takes it, and what was there before is gone only when the new one has begun."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from maxmatch.data.label_file import is_text
from maxmatch.errors import Interrupted, UsageError
from maxmatch.files import refuse_other_things

# What a run writes; recipe.json comes first, and says that a folder is a run's.
RECIPE = "recipe.json"
FILES = ("split.json", "initial.safetensors", "metrics.jsonl", "model.safetensors", "result.json", "report.html")
PARTS = (*FILES, "checkpoint", "tensorboard", "wandb", RECIPE)
BEFORE = ".before"


def refuse_taken(folder: Path, force: bool) -> None:
    """Refuse a folder that is no place for a new run; nothing is touched."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: give another --out")
    if not is_text(str(folder.absolute())):
        raise UsageError(f"{folder}: its path is not in UTF-8, which files of weights need: give another --out")
    refuse_other_things(folder, () if _by_a_user(folder / RECIPE) else {RECIPE}, "run")
    if (folder / RECIPE).exists() and _begun(folder) and not force:
        raise UsageError(
            f"{folder} already holds a run: type --resume to go on with it, --force to replace it, or another --out "
            "(in Python: resume=True, force=True)"
        )


def _begun(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("checkpoint", "result.json"))


def _by_a_user(recipe: Path) -> bool:
    """Whether a recipe.json is sound and says less than one that a run wrote, which says all."""
    try:
        values = json.loads(recipe.read_text())
    except (OSError, ValueError):
        return False
    return not (isinstance(values, dict) and {"data", "augment", "net", "method", "train", "evaluate"} <= {*values})


def claim(folder: Path, force: bool) -> None:
    """Make the folder ours, which the caller has locked. A run that is there stays unless `force` says otherwise.

    One that has no step to lose goes too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    refuse_taken(folder, force)
    if not (folder / RECIPE).exists():
        return
    if _begun(folder) or not (folder / BEFORE / RECIPE).exists():  # else that one has more to lose
        _remove(folder / BEFORE)
        (folder / BEFORE).mkdir()
        _move(folder, folder / BEFORE)
    _clear(folder)


def put_back(folder: Path) -> None:
    """The folder as it was before `claim`; nothing if there was no run in it."""
    if (folder / BEFORE / RECIPE).exists():
        _clear(folder)
        _move(folder / BEFORE, folder)


@contextmanager
def replacing(folder: Path, begun: Callable[[], bool]) -> Iterator[None]:
    """Within: the new run trains. If it fails before it has `begun`, the folder is as it was; else the old run goes."""
    try:
        yield
    except BaseException as problem:  # Ctrl-C a second time too
        if not (folder / BEFORE / RECIPE).exists() or begun():
            raise
        put_back(folder)
        if isinstance(problem, Interrupted):
            raise Interrupted(f"stopped before the first step: {folder} is as it was", problem.code - 128) from None
        raise
    finally:
        _remove(folder / BEFORE)


def _clear(folder: Path) -> None:
    for name in PARTS:
        _remove(folder / name)


def _move(here: Path, there: Path) -> None:
    for name in PARTS:
        if (here / name).exists():
            (here / name).rename(there / name)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

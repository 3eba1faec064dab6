"""What is said when a run ends before its time: one line, by one process, with what to type."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from maxmatch.errors import Interrupted, Unsaid, UserError
from maxmatch.train.checkpoint import checkpoints
from maxmatch.train.decoders import Died
from maxmatch.train.distributed import Ranks, first_to_fail
from maxmatch.train.launcher import began, launcher
from maxmatch.train.recipe import Recipe


def to_resume(recipe: Recipe, folder: Path, ranks: Ranks) -> str:
    """What to type to go on with a run, on as many processes."""
    return f"{ranks.command} {recipe.verb} --resume --out {shlex.quote(str(folder))}"


@contextmanager
def one_voice(recipe: Recipe, folder: Path, ranks: Ranks) -> Iterator[None]:
    """The first rank that fails says why, in one line; the others, which fail by it or like it, are silent."""
    try:
        yield
    except (Exception, Interrupted) as error:
        if ranks.count == 1:
            raise
        said, first = _told(error, recipe, folder, ranks), first_to_fail()
        if not first:
            raise Unsaid(said.code if isinstance(said, UserError | Interrupted) else 1) from None
        if not isinstance(said, UserError | Interrupted):
            raise
        said.from_rank = True
        raise said from None


@contextmanager
def one_line_errors(recipe: Recipe, folder: Path, ranks: Ranks, resume: bool = False) -> Iterator[None]:
    """A full disk, an unwritable folder or too little memory is the user's to mend: say it in one line."""
    another = None if resume else _which(folder / "recipe.json")  # the file of a run that this one is to replace
    try:
        yield
    except Died as error:
        kept = "what was done since the last checkpoint is lost"
        raise UserError(f"{error}; {kept}: type {to_resume(recipe, folder, ranks)} --set {error.instead}") from None
    except OSError as error:
        what = os.strerror(error.errno) if error.errno else str(error)
        begun = _begun(folder, ranks, another)
        hint = f"then type {to_resume(recipe, folder, ranks)}" if begun else "or give another --out"
        raise UserError(f"{error.filename or folder}: {what}; mend that, {hint}") from None
    except (MemoryError, RuntimeError, ValueError) as error:
        if "Expected more than 1 value per channel" in str(error):
            what = f"train.batch = {recipe.train.batch}: a pass has one image alone, of which this net leaves one pixel"
            again = f"begin again by the same words, and --force --set train.batch={2 * ranks.count}"
            raise UserError(f"{what}, and BatchNorm needs two values; {again}") from None
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        if not _begun(folder, ranks, another) and recipe.data.of_pictures:
            raise UserError("out of memory while reading the pictures: add --set data.resident=false") from None
        raise UserError(_too_large(recipe, ranks)) from None


def _too_large(recipe: Recipe, ranks: Ranks) -> str:
    """What to say of a step that memory does not hold; several processes know no micro_batch."""
    t, n = recipe.train, ranks.count
    if n == 1:
        smaller = max(2, (t.micro_batch or t.batch * (1 + t.ratio)) // 4)
        return (
            f"out of memory with train.batch = {t.batch}, train.ratio = {t.ratio} and train.micro_batch = "
            f"{t.micro_batch}: begin again by the same words, and --force --set train.micro_batch={smaller}"
        )
    told = f"out of memory with train.batch = {t.batch} and train.ratio = {t.ratio} on {n} processes: begin again"
    if t.batch > n:
        more, less = " on more of them, or", f"train.batch={max(n, t.batch // 2 // n * n)}"
    else:  # one labelled image each: no more processes could have a part of the batch
        more, less = "", f"train.ratio={t.ratio // 2}" if t.ratio > 1 else "net.name=, a smaller one"
    return f"{told}{more} by {ranks.command} {recipe.verb} and the rest as before, with --force --set {less}"


def _told(error: BaseException, recipe: Recipe, folder: Path, ranks: Ranks) -> BaseException:
    """What to say of an error: that another process is gone, or that a weight is never used, in our words."""
    words = str(error)
    if not isinstance(error, RuntimeError):
        return error
    if isinstance(error, dist.DistError) or any(sign in words for sign in ("gloo", "NCCL", "Connection closed")):
        gone = "a process of this run is gone, and the others stop"
        if not _begun(folder, ranks):
            return UserError(f"{gone}; the run had not begun: type the same command again")
        found = checkpoints(folder / "checkpoint")
        kept = f"{found[-1]} is the newest checkpoint" if found else "there is no checkpoint yet"
        return UserError(f"{gone}; {kept}: type {to_resume(recipe, folder, ranks)}")
    if "finished reduction in the prior iteration" in words:
        return UserError(
            "this net has weights that a step does not use, and several processes must use them all: freeze them "
            "(requires_grad = False), or train in one process"
        )
    return error


def _begun(folder: Path, ranks: Ranks, another: tuple[int, int] | None = None) -> bool:
    """Whether the folder holds this run; with --force it may still hold `another`, that was to be replaced."""
    if ranks.count == 1 or launcher() is None:
        return _which(folder / "recipe.json") not in (None, another)
    return began(folder)


def _which(path: Path) -> tuple[int, int] | None:
    """By which a file is known from one written in its place; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns

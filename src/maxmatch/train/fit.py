"""`fit`: from a recipe to a run folder. It begins a run, goes on with one, or says that it is finished.

A run folder is plain files: recipe.json, split.json, initial.safetensors, metrics.jsonl, checkpoint/, model.safetensors
and, written last, result.json. (The commands put report.html beside them, torchrun's processes .job: launcher.py.)
"""

from __future__ import annotations

import functools
import gc
import json
import os
import shlex
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch

from maxmatch.data import DATASETS
from maxmatch.data.datasets import Images
from maxmatch.data.split import (
    OtherImages,
    Split,
    load_split,
    make_split,
    official_split,
    saved_left_out,
    share_split,
    shares_follow,
)
from maxmatch.errors import UsageError, UserError
from maxmatch.files import alone_in, write_safely
from maxmatch.nets.device import best_device, best_threads, find_device
from maxmatch.nets.foreign import pixel_values
from maxmatch.nets.model_file import save_model
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train.checkpoint import checkpoints
from maxmatch.train.claim import claim, put_back, refuse_taken, replacing
from maxmatch.train.distributed import Ranks, check, joined
from maxmatch.train.endings import one_line_errors, one_voice, to_resume
from maxmatch.train.epochs import settle_epochs
from maxmatch.train.finished import seen_before
from maxmatch.train.launcher import launcher, note_job
from maxmatch.train.loggers import find_logger
from maxmatch.train.loop import Training
from maxmatch.train.memory import give_freed_memory_back, keep_freed_memory
from maxmatch.train.pictures import digest_of_pictures, load_data, refuse_moved
from maxmatch.train.recipe import Recipe, resolve
from maxmatch.train.result import is_result
from maxmatch.train.resume import resumed_recipe, saved_recipe
from maxmatch.train.start import find_start, own_generators, start_info, take_weights

P = ParamSpec("P")
R = TypeVar("R")
_TURN = threading.RLock()


def one_at_a_time(train: Callable[P, R]) -> Callable[P, R]:
    """Threads of one process take turns: torch's generator and its number of threads are the process's."""

    @functools.wraps(train)
    def in_turn(*given: P.args, **options: P.kwargs) -> R:
        with _TURN:
            return train(*given, **options)

    return in_turn


@one_at_a_time
def fit(
    recipe: Recipe,
    out: str | Path,
    data: Images | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    log: Sequence[str] = (),
    quiet: bool = False,
    started: float | None = None,
    warn: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Train by a recipe into the folder `out` and return what result.json holds.

    `data` stands in for a data set by name. `resume` goes on from the newest checkpoint of a run begun with the same
    recipe; `force` replaces a run that is there; `log` names what takes the figures beside metrics.jsonl, `tensorboard`
    or `wandb`. `started` is when the clock of seconds_total began. `warn` takes the warnings, which else go to standard
    error; `quiet` leaves these and nothing else. Ctrl-C and SIGTERM save a checkpoint and raise `errors.Interrupted`,
    which is no `Exception`. Started by torchrun, all processes call it alike: they train together, rank 0 writes, and
    each returns the result.
    """
    started = time.time() if started is None else started
    if not isinstance(recipe, Recipe):
        raise UsageError(f"fit({recipe!r}): a recipe is wanted, such as maxmatch.compose('digits@40', 'maxmatch')")
    if data is not None and not isinstance(data, Images):
        raise UsageError(f"fit(data={type(data).__name__}): images are wanted, maxmatch.from_arrays(x, y)")
    if resume and force:
        raise UsageError("fit(resume=True, force=True): go on with a run, or replace it; leave one of them out")
    loggers = {name: find_logger(name) for name in log}
    folder = Path(out)
    if data is not None:
        recipe = replace(recipe, data=replace(recipe.data, name=data.name))
    if resume:
        recipe = resumed_recipe(folder, recipe.to_dict())
        finished = finished_result(folder, recipe.train.steps)
        if finished is not None:
            _note_place(recipe, folder)
            return finished
    else:
        recipe = resolve(recipe, device=best_device(), threads=best_threads())
    with (
        joined(recipe.train.device) as ranks, one_voice(recipe, folder, ranks), own_generators(recipe),
        torch_settings(recipe), one_line_errors(recipe, folder, ranks, resume), ExitStack() as held,
    ):  # fmt: skip
        check(recipe.train, ranks, resume)
        if len(set(ranks.everyones(resume))) > 1:
            raise UsageError(f"a machine has joined a run that was begun: type {to_resume(recipe, folder, ranks)}")
        training = (
            go_on(recipe, folder, data, quiet, ranks, held)
            if resume
            else begin(recipe, folder, data, force, quiet, ranks, held)
        )
        with _replacing(folder, training, ranks):
            opened = [logger(str(folder / name)) for name, logger in loggers.items()] if ranks.first else []
            result = training.run(started, opened, warn)
    del training
    if torch.cuda.is_available():
        gc.collect()  # a step and its passes refer to one another, and hold the net and the pool on the device
    return result


def _note_place(recipe: Recipe, folder: Path) -> None:
    """A finished run is told where its pictures and their labels are now, if they are the same."""
    saved, now = saved_recipe(folder), recipe.data
    if now.of_pictures and (now.path, now.label_file) != (saved.data.path, saved.data.label_file):
        split = folder / "split.json"
        load_split(split, digest_of_pictures(recipe, saved_left_out(split)))
        moved = replace(saved, data=replace(saved.data, path=now.path, label_file=now.label_file))
        write_safely(folder / "recipe.json", moved.to_json().encode())


def is_changed(recipe: Recipe, folder: Path) -> bool:
    """Whether pictures or labels of a run in `folder` are others now, as far as can be told without reading them."""
    split = folder / "split.json"
    try:
        if recipe.data.of_pictures:
            load_split(split, digest_of_pictures(recipe, saved_left_out(split)))
    except OtherImages:
        return True
    except UserError:  # not there any more, for example
        pass
    return False


def _replacing(folder: Path, training: Training, ranks: Ranks) -> AbstractContextManager[None]:
    """Within: the run trains; one that it replaces is gone at the end, or back if not a step was done."""
    return replacing(folder, lambda: training.progress.step > 0) if ranks.first else nullcontext()


def begin(
    recipe: Recipe,
    folder: Path,
    data: Images | None = None,
    force: bool = False,
    quiet: bool = False,
    ranks: Ranks = Ranks(),  # noqa: B008  frozen
    held: ExitStack | None = None,
) -> Training:
    """A new run by a resolved recipe: all that can be refused is built before the folder is touched.

    From the first file on the folder is this process's alone, for as long as `held` is.
    """
    start = find_start(recipe)
    theirs = start if start is None or start.is_dir() else start.parent
    if theirs is not None and theirs.resolve() == folder.resolve():
        raise UsageError(f"--init {recipe.train.init}: a run can't replace the one it starts from; give another --out")
    if ranks.first:
        refuse_taken(folder, force)
    find_device(recipe.train.device)
    if start is not None:
        start_info(start)
    images = load_data(recipe, quiet, ranks=ranks) if data is None else data
    split = draw_split(recipe, images)
    recipe = settle_epochs(recipe, len(split.unlabelled), len(split.labelled))
    training = _build(recipe, folder, images, split, start, quiet, ranks)
    training.notes += seen_before(theirs, images) if theirs is not None else []
    job = ranks.everyones(launcher())  # all ranks have come so far
    if not ranks.first:
        return training
    folder.mkdir(parents=True, exist_ok=True)
    if held is not None:
        held.enter_context(alone_in(folder))
    claim(folder, force)
    try:
        note_job(folder, job)
        write_safely(folder / "recipe.json", recipe.to_json().encode())
        split.save(folder / "split.json", images.sha256(), images.left_out, images.tested, images.test_sha256())
        save_model(folder / "initial.safetensors", training.step.net, training.info)
    except BaseException:  # a full disk, for example
        put_back(folder)
        raise
    return training


def go_on(
    recipe: Recipe,
    folder: Path,
    data: Images | None = None,
    quiet: bool = False,
    ranks: Ranks = Ranks(),  # noqa: B008  frozen
    held: ExitStack | None = None,
) -> Training:
    """The run in a folder, as its newest sound checkpoint left it, or at step 0 if it has none."""
    if data is None and recipe.data.name not in (*DATASETS, "folder"):
        raise UsageError(
            f"{folder} was trained on data of your own: go on in Python, maxmatch.fit(..., data=..., resume=True)"
        )
    if data is None:
        refuse_moved(recipe, folder)
    begun = (folder / "split.json").exists()
    left_out = saved_left_out(folder / "split.json") if begun else None
    if data is None and recipe.data.of_pictures and left_out is not None:
        _refuse_changed(recipe, folder, left_out)
    images = load_data(recipe, quiet, left_out, ranks) if data is None else data
    digest = images.sha256()
    tested = images.test_sha256()
    split = load_split(folder / "split.json", digest, tested) if begun else draw_split(recipe, images)
    start = folder / "initial.safetensors"
    start_here = start if start.exists() else find_start(recipe)
    training = _build(recipe, folder, images, split, start_here, quiet, ranks)
    job = ranks.everyones(launcher())
    if not ranks.first:
        return training
    if held is not None:  # nothing is written beside another process that trains here
        held.enter_context(alone_in(folder))
    note_job(folder, job)
    if not begun:
        split.save(folder / "split.json", digest, images.left_out, images.tested, tested)
    if not start.exists():
        save_model(start, training.step.net, training.info)
    training.restore()
    write_safely(folder / "recipe.json", recipe.to_json().encode())
    return training


def _refuse_changed(recipe: Recipe, folder: Path, left_out: Sequence[str]) -> None:
    """Before a picture is read: refuse to go on with others than the run began with."""
    try:
        load_split(folder / "split.json", digest_of_pictures(recipe, left_out))
    except OtherImages as error:
        data = recipe.data
        labels = ["--labels", data.label_file] if data.label_file else []
        words = ["maxmatch", recipe.verb, data.path or data.name, *labels, "--init", str(folder), "--out", "ANOTHER"]
        raise OtherImages(f"{error}: type {shlex.join(words)}") from None


def draw_split(recipe: Recipe, images: Images) -> Split:
    """Who is labelled, by the fold and the protocol of a resolved recipe; nobody, where the method wants none."""
    assert isinstance(recipe.train.fold, int)
    if not recipe.method.needs.labelled:
        return Split(np.empty(0, np.int64), np.arange(len(images.y)))
    if len(images.classes) < 2:
        raise UsageError(f"all labels are '{images.classes[0]}': at least two classes are needed")
    data, fold = recipe.data, recipe.train.fold
    named = data.protocol in ("google", "usb", "paper")
    if named and isinstance(data.labels, str) and data.labels.endswith("%"):
        return share_split(images.y, float(data.labels.rstrip("%")), fold, data.exclude_labelled)
    labels = count_labels(data.labels, images)
    official = images.folds is not None and images.folds.shape[1] == labels and data.protocol in ("google", "paper")
    if official and images.folds is not None:
        return official_split(images.y, images.folds, fold, data.exclude_labelled)
    return make_split(images.y, labels, fold, shares_follow(data.name, data.protocol), data.exclude_labelled)


def _build(
    recipe: Recipe, folder: Path, images: Images, split: Split, start: Path | None, quiet: bool, ranks: Ranks
) -> Training:
    """All parts of a run; weights, and with them how pixels become numbers, are those of `start` if there is one."""
    assert isinstance(recipe.train.threads, int)
    if len(set(ranks.everyones(split.sha256()))) > 1:
        raise UserError(
            "the processes of this run do not find the same images: give each machine a copy of all of them"
        )
    torch.set_num_threads(recipe.train.threads)
    torch.manual_seed(recipe.train.seed)
    mean, std = pixel_values(recipe.net.name, recipe.net.pretrained, images.shape[0])
    preprocessing = Preprocessing(*images.shape, mean, std, images.middle)
    if start is not None:
        theirs = start_info(start).preprocessing
        preprocessing = replace(preprocessing, mean=theirs.mean, std=theirs.std)
    published = recipe.net.pretrained and start is None  # a run that goes on needs no download
    device = find_device(recipe.train.device)
    training = Training(recipe, folder, images, split, device, preprocessing, quiet, ranks, published)
    if start is not None:
        take_weights(training, start)
    return training


def finished_result(folder: Path, steps: int) -> dict[str, Any] | None:
    """The result of a run that has done all its `steps`, else None; also None where its model can be made again.

    That is where the file was lost and a checkpoint is left: to go on is to write it again.
    """
    if not (folder / "model.safetensors").exists() and checkpoints(folder / "checkpoint"):
        return None
    try:
        result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    except (OSError, ValueError):
        return None
    if not is_result(result) or not isinstance(done := result.get("steps"), int):
        return None
    return result if done >= steps else None


def count_labels(labels: int | str, images: Images) -> int:
    """The number of labels that `250`, `10%` of those that there are, or `all` means for these images."""
    if isinstance(labels, int):
        return labels
    share = 1.0 if labels == "all" else float(labels.rstrip("%")) / 100
    return max(1, round(share * int((images.y >= 0).sum())))


@contextmanager
def torch_settings(recipe: Recipe) -> Iterator[None]:
    """torch, and on a CPU the memory it has freed, as the run wants them; afterwards the caller has torch as it was."""
    threads, cudnn = torch.get_num_threads(), torch.backends.cudnn
    compiles = recipe.train.step == "compiled" or (recipe.train.device == "cuda" and recipe.train.step != "eager")
    held = (cudnn.benchmark, cudnn.deterministic, torch.get_default_dtype())
    strict = (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
    if recipe.train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what torch asks for
    cudnn.benchmark, cudnn.deterministic = not recipe.train.deterministic, recipe.train.deterministic
    torch.use_deterministic_algorithms(recipe.train.deterministic)
    torch.set_default_dtype(torch.float32)
    kept = recipe.train.device == "cpu" and keep_freed_memory()
    try:
        with _own_modes(), _room_to_compile() if compiles else nullcontext():
            yield
    finally:
        if kept:
            give_freed_memory_back()
        torch.set_num_threads(threads)
        cudnn.benchmark, cudnn.deterministic = held[:2]
        torch.set_default_dtype(held[2])
        torch.use_deterministic_algorithms(strict[0], warn_only=strict[1])


@contextmanager
def _own_modes() -> Iterator[None]:
    """Within: gradients are kept and no precision is lowered, whatever the block is in that calls.

    Not by an autocast that is off: inside of any other one torch keeps what it has cast, weights that a step has
    changed among them.
    """
    lowered = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    cached = torch.is_autocast_cache_enabled()
    for kind in lowered:
        torch.set_autocast_enabled(kind, False)
        torch.set_autocast_cache_enabled(False)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for kind in lowered:
            torch.set_autocast_enabled(kind, True)
            torch.set_autocast_cache_enabled(cached)


@contextmanager
def _room_to_compile() -> Iterator[None]:
    """torch compiles a piece of source for eight uses at most, and all passes share one. Afterwards all is let go.

    Passes are compiled whole with several ranks too: what DDP would cut them for, the reductions inside forbid. The
    next run finds on disk what this one has compiled, also where the backward formulas are our own (nets/fused.py).
    torch 2.11 advises against the precision of float32 products, which is the one that is wanted.
    """
    import torch._dynamo
    import torch._functorch.config as traced

    room = torch._dynamo.config.patch(recompile_limit=256, accumulated_recompile_limit=1024, optimize_ddp=False)
    with room, traced.patch(autograd_cache_allow_custom_autograd_functions=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
        try:
            yield
        finally:
            torch.compiler.reset()

"""The runs of a benchmark, one after the other in this process or several at a time in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import torch

from maxmatch.bench.clock import failure, release
from maxmatch.benchmark.wanted import Planned
from maxmatch.data.split import load_split, saved_left_out
from maxmatch.errors import Interrupted, UsageError, UserError, tell
from maxmatch.nets import make_net
from maxmatch.nets.device import best_threads, find_device
from maxmatch.train.checkpoint import Progress, saved_progress
from maxmatch.train.fit import draw_split, finished_result, fit
from maxmatch.train.log import read_metrics
from maxmatch.train.pictures import digest_of_pictures, load_data
from maxmatch.train.recipe import DataSettings
from maxmatch.train.resume import own_parts, resumed_recipe, same_code
from maxmatch.train.signals import handled
from maxmatch.train.start import find_start

SILENCE = 60.0  # seconds after which runs in processes of their own are told of
LONGEST = 1000  # letters of what a method that failed has to say


class Outcome(NamedTuple):
    """How a run ended: its result, or one line that says why there is none, or the signal that stopped it."""

    result: dict[str, Any] | None
    failed: str | None = None
    stopped_by: int | None = None


class Stopped(KeyboardInterrupt):
    """A signal came. No `except Exception` on the way may keep it."""

    def __init__(self, number: int, at_once: bool = False) -> None:
        """`at_once`: a run that was being trained was not let save where it is."""
        super().__init__(number)
        self.number, self.at_once = number, at_once


def is_begun(planned: Planned) -> bool:
    return (planned.folder / "recipe.json").exists()


def find_result(planned: Planned) -> dict[str, Any] | None:
    """What a finished run has left, else None. A run begun with other settings is refused in one line."""
    if not is_begun(planned):
        return None
    before, now = resumed_recipe(planned.folder, {}).train, planned.recipe.train
    name = "steps" if now.epochs is None else "epochs"
    begun, wanted = getattr(before, name), getattr(now, name)
    if begun != wanted:  # a run that goes on past its end has another schedule than one that was begun so long
        raise UsageError(f"train.{name} = {wanted}, but {planned.folder} is to have {begun}: give another --out")
    recipe = resumed_recipe(planned.folder, planned.recipe.to_dict())
    result = finished_result(planned.folder, recipe.train.steps)
    so_far = Progress() if result else saved_progress(planned.folder / "checkpoint")
    first = result.get("begun_with") if result else so_far.begun_with
    if first and first != before.steps:
        told = f"{planned.folder} was begun with {first:,} steps and lengthened to {before.steps:,}"
        raise UsageError(f"{told}, which is not the same as {before.steps:,} from the start: give another --out")
    trained = result.get("method_code") if result else so_far.code
    if not same_code(planned.recipe, trained):
        told = f"{planned.folder} was trained by other code of {own_parts(planned.recipe)} than there is now"
        raise UsageError(f"{told}: give another --out, or delete the folder")
    return result


def check(runs: Sequence[Planned]) -> None:
    """Refuse what no run could begin with, before the first of them takes its time: device, data, labels, net."""
    for device in dict.fromkeys(run.recipe.train.device for run in runs):
        find_device(device)
    by_data: dict[DataSettings, list[Planned]] = {}
    for run in runs:
        by_data.setdefault(replace(run.recipe.data, labels="all"), []).append(run)
    for alike in by_data.values():  # one after the other: pictures fill the memory
        images = load_data(alike[0].recipe)
        for recipe in {(run.recipe.data, run.fold): run.recipe for run in alike}.values():
            draw_split(recipe, images)
        with torch.random.fork_rng(devices=[]):  # making the net draws weights
            for name in dict.fromkeys(run.recipe.net.name for run in alike):
                make_net(name, classes=len(images.classes), channels=images.shape[0])
        del images


def refuse_unfinished_start(runs: Sequence[Planned]) -> None:
    """Runs that are compared start from the same weights, which those of a run that goes on are not."""
    for start in (find_start(run.recipe) for run in runs):
        if start is not None and start.is_dir():
            told = "that run has not finished, and each of these might start from other weights of it"
            raise UsageError(f"train.init = {start}: {told}; wait for it, or give another")


def refuse_other_pictures(runs: Sequence[Planned]) -> None:
    """Runs in the folder that were begun, or finished, on other pictures than are there now are no part of this."""
    digests: dict[object, str] = {}
    for run in runs:
        split = run.folder / "split.json"
        if not run.recipe.data.of_pictures or not split.exists():
            continue
        left_out = saved_left_out(split)
        key = run.recipe.data, left_out
        if key not in digests:
            digests[key] = digest_of_pictures(run.recipe, left_out)
        load_split(split, digests[key])


def run_all(
    runs: Sequence[Planned],
    jobs: int,
    begins: Callable[[Planned], None],
    ended: Callable[[Planned, Outcome], None],
) -> None:
    """Run them all, telling of each; a run that fails leaves the others. A signal to stop raises `Stopped`."""
    with handled(_raise_stopped):
        if jobs > 1:
            _apart(runs, jobs, begins, ended)
            return
        for run in runs:
            begins(run)
            outcome = attempt(run)
            if outcome.stopped_by is not None:
                raise Stopped(outcome.stopped_by)
            ended(run, outcome)


def attempt(run: Planned, quiet: bool = False) -> Outcome:
    """Begin a run or go on with it. Its method may be anybody's, so whatever it raises becomes one line."""
    try:
        return Outcome(fit(run.recipe, run.folder, resume=is_begun(run), quiet=quiet))
    except Interrupted as stopped:
        return Outcome(None, stopped_by=stopped.code - 128)
    except Stopped as again:  # the first signal is the loop's
        raise Stopped(again.number, at_once=True) from None
    except UserError as error:
        return Outcome(None, str(error))
    except Exception as error:
        where = f"; to see where, type maxmatch train --resume --out {shlex.quote(str(run.folder))}"
        return Outcome(None, failure(error)[:LONGEST] + (where if is_begun(run) else ""))
    finally:
        on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        release(torch.device("cuda" if on_gpu else "cpu"), compiled=False)


def _apart(
    runs: Sequence[Planned],
    jobs: int,
    begins: Callable[[Planned], None],
    ended: Callable[[Planned, Outcome], None],
) -> None:
    """Up to `jobs` at a time, a new process for each: what one run leaves or breaks, the next never meets."""
    threads = max(1, best_threads() // jobs)
    waiting, running = deque(runs), dict[int, tuple[Planned, Any, Connection]]()
    heard: dict[int, Outcome | None] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.popleft()
                begins(run)
                process, ear = _start(run, threads)
                running[process.sentinel] = run, process, ear
            ears = {ear: end for end, (_, _, ear) in running.items() if end not in heard}
            ready = wait([*running, *ears], SILENCE)
            if not ready:
                _tell_how_far([run for run, _, _ in running.values()])
            for ear, end in ears.items():
                if ear in ready or end in ready:  # one that has much to say ends only when it was heard
                    heard[end] = _hear(ear)
            for end in [end for end in running if end in ready]:
                run, process, _ = running.pop(end)
                process.join()
                outcome = heard.pop(end) or _unheard(process)
                if outcome.stopped_by is not None:
                    raise Stopped(outcome.stopped_by)
                ended(run, outcome)
    finally:
        _stop([process for _, process, _ in running.values()])


def _tell_how_far(runs: Sequence[Planned]) -> None:
    """How many steps runs have logged: their own processes say nothing."""
    for run in runs:
        logged, settings = read_metrics(run.folder / "metrics.jsonl"), run.recipe.train
        done = logged[-1]["step"] if logged else 0
        of = f" of {settings.steps:,}" if settings.epochs is None else ""
        tell(f"{run}: {done:,}{of} steps")


def _start(run: Planned, threads: int) -> tuple[Any, Connection]:
    """A process that ignores Ctrl-C until its loop has begun: only this one then says that it was stopped."""
    context = multiprocessing.get_context("spawn")
    ear, mouth = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(run, threads, mouth))
    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if here else None
    try:
        process.start()
    finally:
        if here:
            signal.signal(signal.SIGINT, before)
    mouth.close()
    return process, ear


def _work(run: Planned, threads: int, mouth: Connection) -> None:
    """What such a process does."""
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    torch.set_num_threads(threads)
    outcome = attempt(run, quiet=True)
    with suppress(BrokenPipeError):  # who would hear it may have been killed
        mouth.send(outcome)


def _end_with_the_parent() -> None:
    """A parent that was killed can't say so: its children save where they are and go too."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _hear(ear: Connection) -> Outcome | None:
    """What a process says; None where it was killed before it spoke, or while it did."""
    with ear, suppress(EOFError, OSError):
        if ear.poll():
            found: Outcome = ear.recv()
            return found
    return None


def _unheard(process: Any) -> Outcome:
    """Of a process that ended without a word."""
    code = process.exitcode
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return Outcome(None, f"its process {how}; was there too little memory? fewer --jobs need less")


def _stop(processes: Sequence[Any]) -> None:
    """Ask the processes to save where they are and wait for that; a second signal does not wait."""
    if not processes:
        return
    print("stopping: each run saves where it is", file=sys.stderr, flush=True)
    try:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
    except Stopped as again:
        for process in processes:
            process.kill()
        raise Stopped(again.number, at_once=True) from None


def _raise_stopped(number: int) -> None:
    """For what stops a run anywhere but in its loop, which first saves where it is."""
    raise Stopped(number)

"""The one loop: from a recipe to a run folder.

A run folder is plain files: recipe.json, split.json, initial.safetensors, metrics.jsonl, checkpoint/, model.safetensors
and, written last, result.json. `fit` begins one, goes on with one, or says that it is finished.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maxmatch import __version__
from maxmatch.data.datasets import Images, load
from maxmatch.data.plan import Plan
from maxmatch.data.split import Split, load_split, make_split
from maxmatch.errors import Interrupted, UsageError, UserError
from maxmatch.evaluate.errors import error_rate, predict_logits, summary, top5_error
from maxmatch.evaluate.robust import robust_errors
from maxmatch.methods import method_name
from maxmatch.methods.base import Consistency
from maxmatch.nets import make_net
from maxmatch.nets.model_file import ModelInfo, load_model, save_model, write_safely
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.settings import plain
from maxmatch.train.batches import Batches, make_views
from maxmatch.train.checkpoint import Progress, restore_checkpoint, save_checkpoint
from maxmatch.train.log import Metrics, Screen
from maxmatch.train.recipe import Device, Recipe, read_values, resolve
from maxmatch.train.step import Step

MINE = (
    "recipe.json",
    "split.json",
    "initial.safetensors",
    "metrics.jsonl",
    "model.safetensors",
    "result.json",
)


def fit(
    recipe: Recipe,
    out: str | Path,
    data: Images | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    init: str | Path | None = None,
    quiet: bool = False,
    started: float | None = None,
) -> dict[str, Any]:
    """Train by a recipe into the folder `out` and return what result.json holds.

    `data` stands in for a data set by name. `resume` goes on from the newest checkpoint; `force` replaces a run that is
    there; `init` starts from another run's weights. `started` is when the clock of seconds_total began.
    """
    started = time.time() if started is None else started
    folder = Path(out)
    finished = finished_result(folder, recipe) if resume else None
    if finished is not None:
        return finished
    with torch.random.fork_rng(), _one_line_errors(folder):
        recipe = resolve(recipe, device=best_device(), threads=torch.get_num_threads())
        run = _prepare(recipe, folder, data, resume, force, init, quiet)
        return run.train(started)


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


def best_device() -> Device:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def count_labels(labels: int | str, images: Images) -> int:
    """The number of labels that `250`, `10%` or `all` means for these images."""
    known = int((images.y >= 0).sum())
    if labels == "all":
        return known
    return labels if isinstance(labels, int) else max(1, round(float(labels.rstrip("%")) / 100 * len(images.y)))


def _prepare(
    recipe: Recipe,
    folder: Path,
    data: Images | None,
    resume: bool,
    force: bool,
    init: str | Path | None,
    quiet: bool,
) -> _Run:
    """Build everything that can be refused before the folder is touched, then the folder."""
    device = _device(recipe.train.device)
    if isinstance(recipe.train.threads, int):
        torch.set_num_threads(recipe.train.threads)
    torch.manual_seed(recipe.train.seed)
    images = load(recipe.data.name) if data is None else data
    digest = images.sha256()
    if resume and (folder / "split.json").exists():
        split = load_split(folder / "split.json", digest)
    else:
        labels = count_labels(recipe.data.labels, images)
        assert isinstance(recipe.train.fold, int)
        split = make_split(images.y, labels, recipe.train.fold, recipe.data.protocol, recipe.data.exclude_labelled)
    run = _Run(recipe, folder, images, split, device, quiet)
    if init is not None:
        _start_from(run, Path(init))
    if not resume:
        _claim(folder, force)
        write_safely(folder / "recipe.json", recipe.to_json().encode())
        split.save(folder / "split.json", digest)
        save_model(folder / "initial.safetensors", run.step.net, run.info)
    else:
        write_safely(folder / "recipe.json", recipe.to_json().encode())
        run.restore()
    return run


def _claim(folder: Path, force: bool) -> None:
    """Make the folder ours; a run that is there stays unless `force` says otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    held = [name for name in (*MINE, "checkpoint") if (folder / name).exists()]
    if held and not force:
        raise UsageError(
            f"{folder} already holds a run: type --resume to go on with it, --force to replace it, or another --out"
        )
    for name in held:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _start_from(run: _Run, source: Path) -> None:
    net, info = load_model(source / "model.safetensors")
    if info.net["name"] != run.info.net["name"] or info.classes != run.info.classes:
        raise UsageError(
            f"--init {source}: {info.net['name']} with {len(info.classes)} classes; this run has another net or classes"
        )
    for target in (run.step.net, run.step.average.net):
        target.load_state_dict(net.state_dict())


def _device(name: str) -> torch.device:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available[name]:
        raise UsageError(f"train.device = {name}: there is none here; type --device auto or --device cpu")
    return torch.device(name)


@dataclass
class _Run:
    """One run: its parts, and the loop over its steps."""

    recipe: Recipe
    folder: Path
    images: Images
    split: Split
    device: torch.device
    quiet: bool

    def __post_init__(self) -> None:
        recipe, images = self.recipe, self.images
        self.preprocessing = Preprocessing(*images.shape)
        net_values: dict[str, Any] = {
            "name": recipe.net.name,
            "dropout": recipe.net.dropout,
            "momentum": recipe.net.batchnorm_momentum,
        }
        self.info = ModelInfo(images.classes, self.preprocessing, net_values)
        self.views = make_views(recipe.augment)
        net = make_net(classes=len(images.classes), channels=images.shape[0], **net_values)
        dtype = torch.float64 if recipe.train.precision == "float64" else torch.float32
        net.to(self.device, dtype).to(memory_format=torch.channels_last)  # the faster layout, everywhere
        batches = Batches(
            images, self.split, self.views, Plan(recipe.train.seed), recipe.method.needs,
            recipe.train.batch, recipe.train.ratio, self.device,
        )  # fmt: skip
        self.step = Step(recipe.method, batches, net, self.preprocessing, recipe.train, len(images.classes))
        self.progress = Progress()
        title = f"{recipe.data.name}@{recipe.data.labels} {method_name(recipe.method)}"
        self.screen = Screen(title, recipe.train.steps, self.quiet)
        self.test = None
        if images.test_x is not None and images.test_y is not None and len(images.test_x):
            self.test = images.test_x.to(self.device), images.test_y.to(self.device)

    def restore(self) -> None:
        """Go on where the newest sound checkpoint left off, or at step 0 if there is none."""
        tensors = self._tensors()
        found = restore_checkpoint(self.folder / "checkpoint", tensors, self.screen.say)
        if found is not None:
            self.progress = found
            _set_generator(self.device, tensors)

    def train(self, started: float) -> dict[str, Any]:
        for warning in warnings_of(self.recipe, self.images, self.split):
            self.screen.say(f"warning: {warning}")
        settings, done = self.recipe.train, self.progress.step
        seconds_before, total_before = self.progress.seconds, self.progress.seconds_total
        metrics = Metrics(self.folder / "metrics.jsonl", done)
        begun = time.perf_counter()
        with self.screen, _signals() as caught:
            for t in range(done, settings.steps):
                self.step(t)
                at = self.progress.step = t + 1
                last = at == settings.steps
                self.screen.advance(at)
                if self.device.type == "cpu" or at % settings.log_every == 0:
                    self._stop_if_not_finite()
                if at % settings.log_every == 0 or last:
                    self._log(metrics, at)
                if at % settings.evaluate_every == 0 or last:
                    self._evaluate(metrics, at)
                if at % settings.checkpoint_every == 0 or last or caught:
                    self.progress.seconds = seconds_before + time.perf_counter() - begun
                    self.progress.seconds_total = total_before + time.time() - started
                    self._save()
                if caught:
                    raise Interrupted(
                        f"stopped after step {at} of {settings.steps}, nothing is lost: "
                        f"type maxmatch train --resume --out {self.folder}", caught[0],
                    )  # fmt: skip
        metrics.close()
        save_model(self.folder / "model.safetensors", self.evaluated, self.info)
        result = self._result(total_before + time.time() - started)
        write_safely(self.folder / "result.json", (json.dumps(result, indent=2) + "\n").encode())
        return result

    @property
    def evaluated(self) -> torch.nn.Module:
        """The net that is judged and saved: the average (with decay 0 that is the net itself)."""
        return self.step.average.net

    def _log(self, metrics: Metrics, at: int) -> None:
        figures = self.step.health.read()
        self.progress.last_log = figures
        metrics.write("train", at, {"lr": float(self.step.lr), **figures})

    def _evaluate(self, metrics: Metrics, at: int) -> None:
        if self.test is None:
            return
        logits = predict_logits(self.evaluated, self.test[0], self.preprocessing, self.recipe.evaluate.batch)
        error = error_rate(logits, self.test[1])
        self.progress.errors.append((at, error))
        metrics.write("evaluate", at, {"error": error, "top5_error": top5_error(logits, self.test[1])})
        self.screen.note(at, f"error {error:.2f} %")

    def _save(self) -> None:
        self._stop_if_not_finite()
        save_checkpoint(self.folder / "checkpoint", self._tensors(), self.progress, self.recipe.sha256())

    def _tensors(self) -> dict[str, Tensor]:
        return {**self.step.tensors(), "generator": _generator_state(self.device)}

    def _stop_if_not_finite(self) -> None:
        failure = self.step.health.failure()
        if failure:
            raise UserError(
                f"the {failure[0]} loss is not finite at step {failure[1]}: checkpoints before it are in "
                f"{self.folder / 'checkpoint'}; lower the learning rate: --set train.lr={self.recipe.train.lr / 3:.2g}"
            )

    def _result(self, seconds_total: float) -> dict[str, Any]:
        recipe, progress = self.recipe, self.progress
        method = recipe.method
        logged = progress.last_log
        top5 = robust = None
        if self.test is not None:
            test_x, test_y = self.test

            def predict(images: Tensor) -> Tensor:
                return predict_logits(self.evaluated, images, self.preprocessing, recipe.evaluate.batch).argmax(-1)

            top5 = top5_error(predict_logits(self.evaluated, test_x, self.preprocessing, recipe.evaluate.batch), test_y)
            robust = robust_errors(predict, test_x, test_y, self.views, recipe.evaluate.robust_views, recipe.train.seed)
        consistency = method if isinstance(method, Consistency) else None
        return {
            "dataset": recipe.data.name,
            "labels": len(self.split.labelled),
            "method": method_name(method),
            "k": plain(consistency.k) if consistency else None,
            "over": consistency.over.spell() if consistency else None,
            "strategy": consistency.resolved_strategy if consistency else None,
            "net": recipe.net.name,
            "seed": recipe.train.seed,
            "fold": recipe.train.fold,
            "steps": progress.step,
            "seconds": round(progress.seconds, 3),
            "seconds_total": round(seconds_total, 3),
            "steps_per_second": round(progress.step / max(progress.seconds, 1e-9), 3),
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else self.device.type,
            "parameters": sum(p.numel() for p in self.step.net.parameters()),
            "error": summary([error for _, error in progress.errors]),
            "top5_error": top5,
            "supervised_loss": logged.get("supervised_loss"),
            "unlabeled_loss": logged.get("unlabeled_loss"),
            "unlabeled_loss_min": logged.get("unlabeled_loss_min"),
            "mask_rate": logged.get("mask_rate"),
            "pseudo_label_accuracy": logged.get("pseudo_label_accuracy"),
            "robust_error": robust.robust_error if robust else None,
            "robust_error_paper": robust.robust_error_paper if robust else None,
            "robust": {"k": recipe.evaluate.robust_views, "policy": recipe.augment.policy, "seed": recipe.train.seed},
            "versions": {
                "maxmatch": __version__, "torch": torch.__version__, "numpy": np.__version__,
                "python": platform.python_version(),
            },
            "threads": torch.get_num_threads(),
            "recipe_sha256": recipe.sha256(),
        }  # fmt: skip


def warnings_of(recipe: Recipe, images: Images, split: Split) -> list[str]:
    """What scikit-learn would warn about: settings that run but are probably not meant."""
    found = []
    method = recipe.method
    shown = set(images.y[torch.from_numpy(split.labelled)].tolist())
    missing = [name for label, name in enumerate(images.classes) if label not in shown]
    if missing:
        found.append(f"no image of {', '.join(missing)} has a label: that class can't be learned")
    if isinstance(method, Consistency):
        if len(split.unlabelled) <= len(split.labelled):
            found.append("nothing is unlabelled: --method supervised would do")
        if method.over.name == "worst" and method.k == 1:
            found.append("the worst of one view is that view: MaxMatch with --k 1 is FixMatch")
    return found


def _generator_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state() if device.type == "cuda" else torch.get_rng_state()


def _set_generator(device: torch.device, tensors: dict[str, Tensor]) -> None:
    set_state = torch.cuda.set_rng_state if device.type == "cuda" else torch.set_rng_state
    set_state(tensors["generator"])


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM so that the loop can finish its step; a second one acts at once."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before: dict[int, Any] = {}

    def catch(number: int, _: object) -> None:
        caught.append(number)
        signal.signal(number, before[number])

    for number in (int(signal.SIGINT), int(signal.SIGTERM)):
        before[number] = signal.signal(number, catch)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _one_line_errors(folder: Path) -> Iterator[None]:
    """A full disk or an unwritable folder is the user's to mend: say it in one line."""
    try:
        yield
    except OSError as error:
        what = os.strerror(error.errno) if error.errno else str(error)
        where = error.filename or folder
        hint = (
            f"then type maxmatch train --resume --out {folder}"
            if (folder / "recipe.json").exists()
            else "or another --out"
        )
        raise UserError(f"{where}: {what}; make room or mend it, {hint}") from None


def with_steps(recipe: Recipe, steps: int) -> Recipe:
    """The same recipe, more steps."""
    return replace(recipe, train=replace(recipe.train, steps=steps))

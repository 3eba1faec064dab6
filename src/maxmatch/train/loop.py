"""The one loop: step, log, evaluate, save; and what is left at the end."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maxmatch.augment import Views
from maxmatch.data.datasets import Images
from maxmatch.data.plan import Plan
from maxmatch.data.split import Split
from maxmatch.errors import Interrupted, UsageError, UserError, counted, listed
from maxmatch.evaluate.errors import error_rate, predict_logits, top5_error
from maxmatch.files import write_safely
from maxmatch.methods import method_name
from maxmatch.methods.mistakes import misspelled
from maxmatch.nets import make_net
from maxmatch.nets.batchnorm import freeze, has_batchnorm
from maxmatch.nets.device import generator_state, set_generator
from maxmatch.nets.model_file import ModelInfo, save_model
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.progress import Bar
from maxmatch.train.batches import Batches, make_views
from maxmatch.train.checkpoint import Progress, checkpoints, restore_checkpoint, save_checkpoint
from maxmatch.train.distributed import Ranks
from maxmatch.train.draws import Draws
from maxmatch.train.endings import to_resume
from maxmatch.train.feed import Feed
from maxmatch.train.log import Metrics, Screen, Unwritten
from maxmatch.train.loggers import Logger
from maxmatch.train.pictures import title as data_title
from maxmatch.train.pool import make_pool
from maxmatch.train.recipe import NetSettings, Recipe, learning_rates
from maxmatch.train.result import make_result, warnings_of
from maxmatch.train.resume import code_of, own_parts, same_code
from maxmatch.train.signals import collected
from maxmatch.train.stages import in_words
from maxmatch.train.step import Step, choose_mode

SAVED_AFTER = 300  # seconds, whatever train.checkpoint_every is: no kill costs more
MANY_CLASSES = 20  # of fewer five are soon right by chance: their top-5 error is in the files alone
MANY = 1000  # test images: with so many the robust error takes its time


class Training:
    """One run: its parts, and the loop over its steps."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        images: Images,
        split: Split,
        device: torch.device,
        preprocessing: Preprocessing,
        quiet: bool = False,
        ranks: Ranks = Ranks(),  # noqa: B008  frozen
        published: bool = False,
    ) -> None:
        """`published`: the net begins with the weights that `net.pretrained` downloads, since it gets no others."""
        self.ranks = ranks
        if why := recipe.method.refuses(images.shape):
            raise UsageError(why)
        knows_classes = recipe.method.projection is None
        if not knows_classes:  # then there is no error to measure
            images = replace(images, test_x=None, test_y=None)
        self.recipe, self.folder, self.images, self.split, self.device = recipe, folder, images, split, device
        self.preprocessing = preprocessing
        settings, needs, of_net = recipe.train, recipe.method.needs, _net_values(recipe)
        self.info = ModelInfo(images.classes if knows_classes else (), preprocessing, of_net)
        self.views = make_views(recipe.augment, images.side)
        channels, height, width = images.shape
        net = make_net(
            classes=len(images.classes), channels=channels, size=(height, width), pretrained=published, **of_net
        )
        dtype = torch.float64 if settings.precision == "float64" else torch.float32
        if recipe.net.batchnorm_frozen:
            freeze(net)
        net.to(device, dtype).to(memory_format=torch.channels_last)  # the faster layout, everywhere
        draws = _make_draws(recipe, split, self.views, ranks)
        feed = _make_feed(recipe, images, split, draws, device)
        mode, note = choose_mode(settings.step, recipe.method, device, settings.micro_batch, ranks.count)
        fused = settings.kernels == "auto" and mode != "eager"
        batches = Batches(images, split, self.views, needs, device, feed, fused=fused)
        self.step = Step(recipe.method, batches, draws, net, preprocessing, settings, len(images.classes), mode, ranks)
        self.notes = [note] if note else []
        self.notes += [*batches.notes, *self.step.run.notes, *misspelled(recipe.method)]
        self.notes += _without_effect(recipe, net, device, ranks)
        self.progress = Progress(begun_with=settings.steps, code=code_of(recipe))
        shown = f"@{recipe.data.labels}" if needs.labelled else ""
        title = f"{data_title(recipe.data)}{shown} {method_name(recipe.method)}"
        self.screen = Screen(title, settings.steps, quiet, mute=not ranks.first)
        self.test: tuple[Tensor, Tensor] | None = None
        if ranks.first and images.test_x is not None and images.test_y is not None and len(images.test_x):
            self.test = images.test_x.to(device), images.test_y.to(device)
        wanted = recipe.evaluate.unlabelled if ranks.first and knows_classes else 0
        self.pool = make_pool(images, split, wanted, settings.seed, device)
        self._warn: Callable[[str], None] = lambda line: self.screen.say(f"warning: {line}")
        self._told_limit = False
        self._told_broken: set[str] = set()

    @property
    def evaluated(self) -> torch.nn.Module:
        """The net that is judged and saved: the average (with decay 0 that is the net itself); pretrained, the net."""
        return self.step.average.net if self.recipe.method.projection is None else self.step.net

    def warn(self, line: str) -> None:
        """Of ranks the first warns; by what `run` was given for it, else in a line that stays."""
        if self.ranks.first:
            self._warn(line)

    def logits(self, images: Tensor) -> Tensor:
        """What the evaluated net says of uint8 images (N, C, H, W); eager: to compile takes longer than it saves."""
        return predict_logits(self.evaluated, images, self.preprocessing, self.recipe.evaluate.batch)

    def restore(self) -> None:
        """Go on where the newest sound checkpoint left off, or at step 0 if there is none."""
        tensors = self._tensors()
        # `run` gives it to the others: a file system may show each of them another newest checkpoint.
        found = (
            None if not self.ranks.first else restore_checkpoint(self.folder / "checkpoint", tensors, self.screen.say)
        )
        if found is None and self.ranks.first:
            self.screen.tell("no checkpoint yet: it begins at step 0")
        if found is not None:
            if not same_code(self.recipe, found.code):
                name = own_parts(self.recipe)
                self.screen.say(f"warning: the code of {name} has changed since this run was begun; it goes on with it")
                found.code = f"{found.code}, then {self.progress.code}"
            self.progress = found
            set_generator(self.device, tensors[f"generator.{self.device.type}"])

    def run(
        self, started: float, loggers: Sequence[Logger] = (), warn: Callable[[str], None] | None = None
    ) -> dict[str, Any]:
        """Do the steps that are left, and return what result.json holds; `started` is when the run's clock began."""
        self._warn = warn or self._warn
        for warning in [*self.notes, *self.images.notes, *warnings_of(self.recipe, self.images, self.split)]:
            self.warn(warning)
        self._begin_as_one()
        metrics = (
            Metrics(self.folder / "metrics.jsonl", self.progress.step, loggers) if self.ranks.first else Unwritten()
        )
        started -= self.progress.seconds_total  # as if the run had never been stopped
        if self.progress.step:
            self.screen.tell(f"going on after step {self.progress.step} of {self.recipe.train.steps}")
        feed = self.step.batches.feed
        with closing(metrics), feed or nullcontext(), self.screen, collected(not self.screen.quiet) as caught:
            try:
                self._steps(metrics, caught, started)
            except KeyboardInterrupt as again:
                if caught and type(again) is KeyboardInterrupt:
                    raise self._dropped() from None
                raise
        try:
            return self.ranks.same(self._finish(started) if self.ranks.first else {})
        except (KeyboardInterrupt, Interrupted) as stopped:
            number = stopped.code - 128 if isinstance(stopped, Interrupted) else signal.SIGINT
            done = f"all {self.recipe.train.steps} steps are done and saved, the result is not measured yet"
            raise Interrupted(f"stopped: {done}; type {self._to_resume()}", number) from None

    def _tell_broken(self) -> None:
        """Name files that could not be read since this was last told; all ranks ask together."""
        feed = self.step.batches.feed
        if feed is None:
            return
        broken = set[str]().union(*self.ranks.everyones(set(feed.files.broken)))
        if new := sorted(broken - self._told_broken):
            what = counted(len(new), "file could not be read and was", "files could not be read and were")
            self.warn(f"{what} shown as grey: {listed(new)}")
        self._told_broken |= broken

    def _begin_as_one(self) -> None:
        """Let all ranks start from rank 0's step, weights and generator."""
        if self.ranks.count > 1:
            self.progress = self.ranks.same(self.progress)
            tensors = self._tensors()
            self.ranks.copy(tensors)
            set_generator(self.device, tensors[f"generator.{self.device.type}"])

    def _finish(self, started: float) -> dict[str, Any]:
        save_model(self.folder / "model.safetensors", self.evaluated, self.info)
        count = 0 if self.test is None else len(self.test[1])
        if count >= MANY:
            views = self.recipe.evaluate.robust_views
            self.screen.tell(f"measuring the robust error: {views} strong views of {count:,} test images")
        with Bar("robust error", count, quiet=self.screen.quiet or count < MANY) as bar:
            result = make_result(
                self.recipe, self.images, self.split, self.progress, self.step.net, self.logits, self.views,
                self.step.mode, "fused" if self.step.run.fused else "torch", self.ranks.count, started, bar.advance,
            )  # fmt: skip
        if self.progress.last_log.get("mask_rate") == 0:
            self.warn("no unlabelled image taught anything in the last steps, the method kept none")
        write_safely(self.folder / "result.json", (json.dumps(result, indent=2) + "\n").encode())
        return result

    def _steps(self, metrics: Metrics | Unwritten, caught: list[int], started: float) -> None:
        settings, progress = self.recipe.train, self.progress
        begun, saved = time.perf_counter() - progress.seconds, time.monotonic()
        compiled: set[int] = set()  # for which K
        for t in range(progress.step, settings.steps):
            k = self.step.draws.k(t)
            if self.step.mode == "eager" or k in compiled:
                self.step(t)
            else:
                self._compiling_step(t, k)
                compiled.add(k)
            at = progress.step = t + 1
            last = at == settings.steps
            stopped_by, to_save = self._agreed(caught, time.monotonic() - saved > SAVED_AFTER)
            self.screen.advance(at)
            if self.device.type == "cpu" or at % settings.log_every == 0:
                self._stop_if_not_finite()
            if at % settings.log_every == 0 or last:
                self._log(metrics, at)
                self._tell_broken()
            if at % settings.evaluate_every == 0 or last:
                self._refuse_broken_weights()
                self._evaluate(metrics, at)
            if at % settings.checkpoint_every == 0 or last or to_save:
                progress.seconds = time.perf_counter() - begun
                progress.seconds_total = time.time() - started
                self._save()
                saved = time.monotonic()
            if last and not stopped_by:  # while it was evaluated and saved
                stopped_by = self.ranks.largest(caught[0] if caught else 0)
            if stopped_by:
                self._tell_broken()
                self.ranks.largest(0)  # wait for the checkpoint: torchrun ends all once one has left
                what = f"stopped after step {at} of {settings.steps}, nothing is lost"
                raise Interrupted(f"{what}: type {self._to_resume()}", stopped_by)

    def _agreed(self, caught: list[int], due: bool) -> tuple[int, bool]:
        """The signal that any process has caught, or 0, and whether all save: they do both after the same step."""
        wish = self.ranks.largest(2 * caught[0] if caught else int(due))  # one number is one message
        return wish // 2, wish > 0

    def _to_resume(self) -> str:
        return to_resume(self.recipe, self.folder, self.ranks)

    def _dropped(self) -> Interrupted:
        """What a second Ctrl-C leaves, which does not wait for the step and its checkpoint."""
        sound = checkpoints(self.folder / "checkpoint")
        kept = f"kept is what there was after step {int(sound[-1].stem)}" if sound else "no step is kept"
        return Interrupted(f"stopped at once, {kept}: to go on, type {self._to_resume()}", signal.SIGINT)

    def _compiling_step(self, t: int, k: int) -> None:
        """The first step with so many views: it compiles, which is said, and not counted into steps_per_second."""
        several = len(self.step.draws.choices) > 1
        self.screen.tell(f"compiling the step{f' with K = {k}' if several else ''}: a minute or so")
        begun = time.perf_counter()
        self.step(t)
        self.step.health.failure()  # waits for the device
        self.progress.seconds_compiling += time.perf_counter() - begun

    def _log(self, metrics: Metrics | Unwritten, at: int) -> None:
        figures = self.step.health.read()
        self.progress.last_log = figures
        rates = {name: float(self.step.rows.row[name]) for name in learning_rates(self.recipe.train)}
        metrics.write("train", at, {**rates, **figures})
        if self.test is None:  # then no evaluation says how it goes
            self.screen.note(
                at, ", ".join(f"{name} loss {figures[f'{name}_loss']:.4g}" for name in self.step.method.terms)
            )
        feed = self.step.batches.feed
        if feed is not None:
            stages = feed.stages.read()
            metrics.write("speed", at, stages)  # a line of its own: it is never the same twice
            if stages["limit"] == "decode" and not self._told_limit:
                self._told_limit = True
                self.screen.tell(in_words(stages, f"{feed.files.workers} {feed.decoders.kind}"))

    def _evaluate(self, metrics: Metrics | Unwritten, at: int) -> None:
        found: dict[str, float | int | None] = {}
        told = []
        if self.test is not None:
            logits = self.logits(self.test[0])
            error, top5 = error_rate(logits, self.test[1]), top5_error(logits, self.test[1])
            self.progress.errors.append((at, error))
            found |= {"error": error, "top5_error": top5}
            shown = top5 is not None and len(self.images.classes) >= MANY_CLASSES
            told.append(f"error {error:.2f} %" + (f", top-5 {top5:.2f} %" if shown else ""))
        if self.pool is not None:
            self.progress.unlabelled = self.pool.judge(self.logits)
            found |= self.progress.unlabelled
            told.append(f"unlabelled {self.progress.unlabelled['unlabelled_error']:.2f} %")
        if found:
            metrics.write("evaluate", at, found)
            self.screen.note(at, ", ".join(told))

    def _save(self) -> None:
        self._refuse_broken_weights()
        self.step.health.agree()
        if self.ranks.first:
            save_checkpoint(self.folder / "checkpoint", self._tensors(), self.progress)

    def _refuse_broken_weights(self) -> None:
        """Nobody is shown, and no checkpoint keeps, what a loss or a gradient without a number has left."""
        self._stop_if_not_finite()
        if not all(t.isfinite().all() for t in self._tensors().values() if t.is_floating_point()):
            raise self._failed(f"the weights are not finite after step {self.progress.step}")

    def _tensors(self) -> dict[str, Tensor]:
        return {**self.step.tensors(), f"generator.{self.device.type}": generator_state(self.device)}

    def _stop_if_not_finite(self) -> None:
        failure = self.step.health.failure()
        if failure is None:
            return
        term, step = failure
        what = f"the {term} loss is not finite at step {step + 1}"
        if step == 0:  # no learning rate does that
            began = "" if self.recipe.train.init is None else ", and at the weights of --init"
            makes = f"look at how {method_name(self.recipe.method)} makes it and at its settings{began}"
            raise UserError(f"{what}, before anything was learned: {makes}")
        raise self._failed(what)

    def _failed(self, what: str) -> UserError:
        sound = checkpoints(self.folder / "checkpoint")
        method = self.recipe.method
        ours = type(method).__module__.startswith("maxmatch.")
        first = (
            "" if ours else f"look at the gradient of {type(method).__name__}, a root or a logarithm at 0 has none, or "
        )
        return UserError(
            f"{what}; the last good checkpoint is {sound[-1] if sound else 'none yet'}; "
            f"{first}begin again with a lower learning rate: type the same words, and "
            f"--force --set train.lr={self.recipe.train.lr / 3:.2g}"
        )


def _net_values(recipe: Recipe) -> dict[str, Any]:
    """What `make_net` makes the net of, beside the shape of the images and their classes; model.safetensors has it."""
    net, projection = recipe.net, recipe.method.projection
    values: dict[str, Any] = {"name": net.name, "dropout": net.dropout, "momentum": net.batchnorm_momentum}
    return values if projection is None else values | {"projection": projection}


def _make_draws(recipe: Recipe, split: Split, views: Views, ranks: Ranks) -> Draws:
    """What the steps draw; of images that the method does not need, none."""
    settings, needs = recipe.train, recipe.method.needs
    return Draws(
        Plan(settings.seed),
        needs,
        views,
        labelled=(settings.batch if needs.labelled else 0, len(split.labelled)),
        unlabelled=(settings.batch * settings.ratio if needs.unlabelled else 0, len(split.unlabelled)),
        scalars={**learning_rates(settings), "progress": lambda step: step / settings.steps},
        ranks=ranks,
    )


def _make_feed(recipe: Recipe, images: Images, split: Split, draws: Draws, device: torch.device) -> Feed | None:
    """Who reads pictures step by step; None where all are in memory."""
    if images.files is None or not images.streamed:
        return None
    pools = {"labelled": split.labelled, "unlabelled": split.unlabelled}
    read = {name: places for name, places in pools.items() if getattr(recipe.method.needs, name)}
    return Feed(images.files, read, draws, device, recipe.data.decoders)


def _without_effect(recipe: Recipe, net: torch.nn.Module, device: torch.device, ranks: Ranks) -> list[str]:
    """What will not be as it was asked for, or not found again."""
    found, momentum, settings = [], recipe.net.batchnorm_momentum, recipe.train
    own = "net.batchnorm_momentum" not in recipe.settled and momentum != NetSettings().batchnorm_momentum
    if own and not has_batchnorm(net):
        what = f"net.batchnorm_momentum = {momentum}"
        found.append(f"{what}: {recipe.net.name} has no BatchNorm, so it does nothing; leave it out")
    chosen = recipe.data.name == "folder"  # which knows no nets, and freezes what there is
    if recipe.net.batchnorm_frozen and not chosen and not has_batchnorm(net):
        what = "net.batchnorm_frozen = true"
        found.append(f"{what}: {recipe.net.name} has no BatchNorm, so it does nothing; leave it out")
    if type(recipe.method).__module__ == "__main__":
        what = f"{type(recipe.method).__name__} was written in a script or notebook"
        found.append(f"{what}: in a file of its own the command line could read this run again")
    if settings.sync_batchnorm and ranks.count > 1 and device.type == "cuda" and settings.kernels == "auto":
        found.append("train.sync_batchnorm = true: with torch's kernels, the fused ones don't have it")
    return found

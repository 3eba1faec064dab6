"""The figures of one net: every row alone on the device, then the parts of a step, then prediction. Images are noise.

The paper counts a step as K (t_data + t_ff) + t_bp + t_opt: making a view and passing it forward K times, one backward
pass, one update. Each is measured as the step has it (compiled where it is, the replay of a CUDA graph where it is
captured): t_data makes one strong view of the unlabelled batch, t_ff scores one, t_bp is the backward pass over
labelled and unlabelled images, t_opt updates net and average. What the formula leaves out (the weak views, the
labelled images, the forward half of the training pass) stands between it and the measured step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from maxmatch.augment.views import Strong
from maxmatch.bench.clock import as_run, failure, release, times, typical, warm_up, with_peak
from maxmatch.bench.wanted import FIXMATCH, Setting, Variant, Wanted
from maxmatch.data.datasets import Images
from maxmatch.data.split import make_split
from maxmatch.nets import make_net
from maxmatch.nets.batchnorm import set_mode
from maxmatch.nets.device import best_precision, best_threads
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train.draws import Row
from maxmatch.train.fit import torch_settings
from maxmatch.train.loop import Training
from maxmatch.train.recipe import Recipe, resolve
from maxmatch.train.recipes import compose
from maxmatch.train.step import EXACT, choose_mode

T = TypeVar("T")
Say = Callable[[str], None]
SEED = 1


def measure(net: str, wanted: Wanted, device: torch.device, say: Say, keep: Callable[[dict[str, Any]], None]) -> None:
    """All figures of a net as plain values, milliseconds and GiB, given to `keep` again after each row."""
    setting = wanted.setting(net, device.type)
    images, flops = _noise(setting), forward_flops(setting)
    precision = wanted.precision or best_precision(device.type)
    found: dict[str, Any] = {"setting": asdict(setting), "precision": precision, "mode": None, "notes": [], "rows": []}
    found |= {"parts": None, "formula": {}, "augmentation": None, "inference": {}, "raw": {}}
    variants = wanted.variants()
    parts_of = next((v for v in variants if v.name == "K=3 select"), FIXMATCH[1])
    predicting = (FIXMATCH[1], parts_of if parts_of.method == "maxmatch" else variants[len(FIXMATCH)])
    for variant in variants:
        recipe = _recipe(setting, variant, device, precision, wanted.step)
        found["mode"], note = choose_mode(wanted.step, recipe.method, device)
        if note and note not in found["notes"]:
            found["notes"].append(note)
            say(note)
        own = [torch.cuda.current_device()] if device.type == "cuda" else []  # no context on other GPUs
        with torch.random.fork_rng(own), torch_settings(recipe):
            release(device, compiled=found["mode"] != "eager")
            wishes = (wanted.parts and variant == parts_of, wanted.inference and variant in predicting)
            trial = Trial(setting, variant, recipe, images, device, found["mode"], found["raw"])
            _take(found, trial, flops, *wishes)
            for note in trial.training.notes if trial.training else ():
                if note not in found["notes"]:
                    found["notes"].append(note)
                    say(note)
            del trial
        _relate(found, wanted, parts_of)
        say(f"{net}: {_tell(found['rows'][-1])}")
        keep(found)
    release(device, compiled=found["mode"] != "eager")


def forward_flops(setting: Setting) -> float:
    """Floating-point operations of one image through the net, forward; counted without computing anything."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
        net = make_net(setting.net, classes=setting.classes, channels=3)
        set_mode(net, "eval")
        net(torch.empty(1, 3, setting.side, setting.side))
    return float(counter.get_total_flops())


class Trial:
    """One variant on the device: made at the first measure, gone with this object."""

    def __init__(
        self,
        setting: Setting,
        variant: Variant,
        recipe: Recipe,
        images: Images,
        device: torch.device,
        mode: str,
        raw: dict[str, list[float]],
    ) -> None:
        self.setting, self.variant, self.recipe, self.images = setting, variant, recipe, images
        self.device, self.mode, self.raw = device, mode, raw
        self.training: Training | None = None

    def row(self, flops: float) -> dict[str, Any]:
        """The step as it runs. images/s counts what goes through the net: labelled images, weak and strong views."""
        setting, (_, k, strategy) = self.setting, self.variant
        torch.manual_seed(SEED)
        split = make_split(self.images.y, _labels(setting), SEED)
        pixels = Preprocessing(*self.images.shape)
        training = self.training = Training(self.recipe, Path(), self.images, split, self.device, pixels, quiet=True)
        steps = iter(range(2**62))

        def step() -> None:
            training.step(next(steps))

        first = warm_up(step, self.device)
        raw, memory = with_peak(lambda: times(step, self.device, setting.repeats), self.device)
        self.raw[self.variant.name] = raw
        spent = typical(raw, self.device)
        views = (1 + k) * setting.unlabelled
        scored = views if strategy == "select" else 0
        trained = setting.batch + (setting.unlabelled if strategy == "select" else views)
        return {
            "name": self.variant.name,
            **self.variant._asdict(),
            "mode": self.mode,
            "kernels": "fused" if training.step.run.fused else "torch",
            "step": spent,
            "steps_per_second": 1e3 / spent,
            "images_per_second": 1e3 * (setting.batch + views) / spent,
            "memory_gib": memory,
            # Backward costs twice forward: once for the inputs, once for the weights.
            "tflops_per_second": flops * (scored + 3 * trained) / spent / 1e9,
            "seconds_to_first_step": first,
            "failed": None,
        }

    def parts(self) -> dict[str, float]:
        """t_data, t_ff, t_bp, t_opt, and `batch`, the making of the whole batch of this variant."""
        assert self.training is not None
        step, setting = self.training.step, self.setting
        row, pool, views = step.rows.row, step.batches.pool, step.batches.views
        never = torch.zeros((), device=self.device)
        step._go = step._advance  # the step's own graph goes: its memory may be needed here
        images, trained = pool[: setting.unlabelled], pool[: setting.batch + setting.unlabelled]

        def strong_view(row: Row) -> Strong:
            return views.strong_views(pool[row["unlabelled"]], row["strong"][:1], row["weak"][0])

        make_view = torch.compile(strong_view, dynamic=False, options=EXACT) if self.mode != "eager" else strong_view

        def forward() -> Tensor:
            return step.run.net(trained)[0].float().mean()

        def forward_and_backward() -> None:
            step.optimizer.zero_grad()
            torch.autograd.backward(forward())

        def update() -> None:
            step.optimizer.step(never)
            step.average.update()

        batch = self._part("batch", lambda: step._make_batch(row, self.variant.k))
        t_data = self._part("t_data", lambda: make_view(row))
        t_ff = self._part("t_ff", lambda: step.run.score(images))
        forth = self._part("forward", forward)
        both = self._part("forward and backward", forward_and_backward)
        t_opt = self._part("t_opt", update)  # with the gradients that the part before left
        return {"t_data": t_data, "t_ff": t_ff, "t_bp": max(both - forth, 0.0), "t_opt": t_opt, "batch": batch}

    def inference(self) -> dict[str, float]:
        """Images/s of prediction: the averaged net in its own precision, one shape, compiled where the step is."""
        assert self.training is not None
        evaluate, images = self.training.step.run.evaluate, self.training.step.batches.pool[: self.setting.predict]

        @torch.no_grad()
        def predict() -> Tensor:
            return evaluate(images)

        warm_up(predict, self.device)
        raw = self.raw[f"inference, {self.variant.method}"] = times(predict, self.device, self.setting.repeats)
        spent = typical(raw, self.device)
        return {"batch": len(images), "ms": spent, "images_per_second": 1e3 * len(images) / spent}

    def _part(self, name: str, work: Callable[[], object]) -> float:
        """Milliseconds of one part; its graph is gone afterwards."""
        run = as_run(work, self.mode)
        warm_up(run, self.device)
        raw = self.raw[name] = times(run, self.device, self.setting.repeats)
        return typical(raw, self.device)


def _take(found: dict[str, Any], trial: Trial, flops: float, parts: bool, inference: bool) -> None:
    """Add what one trial finds. One that does not fit must not end the others."""
    variant = trial.variant
    row, failed = _try(lambda: trial.row(flops))
    found["rows"].append(row or {"name": variant.name, **variant._asdict(), "step": None, "failed": failed})
    if row and parts:
        found["parts"], failed = _try(trial.parts)
        found["notes"] += [f"parts: {failed}"] if failed else []
    if row and inference:
        found["inference"][variant.method], failed = _try(trial.inference)
        found["notes"] += [f"inference, {variant.method}: {failed}"] if failed else []


def _relate(found: dict[str, Any], wanted: Wanted, parts_of: Variant) -> None:
    """What one figure is to another: ratios to FixMatch, the formula beside the step, the share of augmentation."""
    spent = {row["name"]: row["step"] for row in found["rows"] if row["step"] is not None}
    base = spent.get(FIXMATCH[0].name)
    fastest = min((spent[v.name] for v in FIXMATCH if v.name in spent), default=None)
    for row in found["rows"]:
        own = row["step"]
        row["ratio"] = own / base if own is not None and base else None
        row["ratio_to_fastest"] = own / fastest if own is not None and fastest else None
    parts = found["parts"]
    if parts is None:
        return
    for k in wanted.ks:
        formula = k * (parts["t_data"] + parts["t_ff"]) + parts["t_bp"] + parts["t_opt"]
        measured = {s: spent.get(Variant("maxmatch", k, s).name) for s in ("joint", "select")}
        found["formula"][str(k)] = {"formula": formula, **measured}
    share = 100 * parts["batch"] / spent[parts_of.name]
    found["augmentation"] = {"of": parts_of.name, "ms": parts["batch"], "percent": share}


def _tell(row: dict[str, Any]) -> str:
    """A row in one line."""
    if row["step"] is None:
        return f"{row['name']}: {row['failed']}"
    ratio = f", {row['ratio']:.2f} x FixMatch" if row["ratio"] else ""
    return f"{row['name']}: {row['step']:.2f} ms a step{ratio}; ready after {row['seconds_to_first_step']:.0f} s"


def _try(work: Callable[[], T]) -> tuple[T | None, str | None]:
    """What `work` returns, or one line on why there is nothing."""
    try:
        return work(), None
    except (MemoryError, RuntimeError) as error:
        return None, failure(error)


def _recipe(setting: Setting, variant: Variant, device: torch.device, precision: str, step: str) -> Recipe:
    given: dict[str, dict[str, Any]] = {
        "data": {"labels": _labels(setting)},
        "net": {"name": setting.net},
        "method": {"k": variant.k, "strategy": variant.strategy, "over": "worst"},
        "augment": {"policy": "fixmatch" if setting.side < 100 else "imagenet"},
        "train": {
            "batch": setting.batch, "ratio": setting.ratio, "precision": precision,
            "step": step, "device": device.type, "seed": SEED,
        },
    }  # fmt: skip
    if variant == FIXMATCH[0]:
        del given["method"]["over"]  # FixMatch as it is
    recipe = compose("digits", variant.method, "paper", given)
    return resolve(recipe, device=device.type, threads=best_threads())  # type: ignore[arg-type]


def _labels(setting: Setting) -> int:
    return max(250, setting.classes)


def _noise(setting: Setting) -> Images:
    generator = torch.Generator().manual_seed(0)
    count = max(10_000 if setting.side < 100 else 1_000, setting.batch + setting.unlabelled, setting.predict)
    x = torch.randint(0, 256, (count, 3, setting.side, setting.side), dtype=torch.uint8, generator=generator)
    return Images("noise", tuple(map(str, range(setting.classes))), x, torch.arange(count) % setting.classes)

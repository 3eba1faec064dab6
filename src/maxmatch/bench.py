"""`maxmatch bench`: what a step costs here, part by part, and what the worst case adds to FixMatch.

The paper counts a step as K (t_data + t_ff) + t_bp + t_opt: making a view and passing it forward K times, one backward
pass, one update. Each part is measured alone, beside the step as it runs. Images are noise: no file is needed.
"""

from __future__ import annotations

import itertools
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

from maxmatch import __version__
from maxmatch.data.datasets import Images
from maxmatch.nets.batchnorm import set_mode
from maxmatch.nets.device import find_device
from maxmatch.train.fit import begin
from maxmatch.train.loop import Training
from maxmatch.train.recipe import resolve
from maxmatch.train.recipes import compose


@dataclass(frozen=True)
class Setting:
    """A net at an image size with its batches."""

    net: str
    side: int
    batch: int
    ratio: int


SETTINGS = {
    "wrn-28-2": Setting("wrn-28-2", 32, 64, 7),
    "wrn-28-8": Setting("wrn-28-8", 32, 64, 7),
    "resnet50": Setting("resnet50", 224, 64, 5),
}
ON_CPU = {"wrn-28-2": Setting("wrn-28-2", 32, 16, 7)}


@dataclass(frozen=True)
class Cost:
    """One way to run one method: measured on the device, milliseconds unless said otherwise."""

    name: str
    step: float
    steps_per_second: float
    images_per_second: float  # views made and passed forward, and labelled images
    memory_gib: float | None
    tflops_per_second: float
    ratio: float  # to the first row, FixMatch joint


def bench(
    net: str,
    device_name: str,
    precision: str,
    mode: str,
    repeats: int,
    ks: tuple[int, ...] = (1, 3, 5, 7),
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """All figures of one net, as plain values; `say` hears each row as it is measured."""
    device = find_device(device_name)
    setting = (SETTINGS if device.type == "cuda" else {**SETTINGS, **ON_CPU})[net]
    variants = [("fixmatch", 1, "joint"), *(("maxmatch", k, s) for k in ks for s in ("joint", "select"))]
    costs: list[Cost] = []
    parts: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for method, k, strategy in variants:
            training = _training(
                setting, method, k, strategy, device, precision, mode, Path(folder) / f"{method}{k}{strategy}"
            )
            flops = _forward_flops(training, setting)
            costs.append(_cost(training, setting, method, k, strategy, flops, repeats, costs))
            say(f"{costs[-1].name}: {costs[-1].step:.1f} ms a step")
            if method == "fixmatch":
                parts = _parts(training, setting, repeats)
            del training
    return {
        "setting": asdict(setting),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or "cpu",
        "threads": torch.get_num_threads(),
        "precision": precision,
        "versions": {"maxmatch": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "costs": [asdict(cost) for cost in costs],
        "parts": parts,
        "formula": {str(k): k * (parts["t_data"] + parts["t_ff"]) + parts["t_bp"] + parts["t_opt"] for k in ks},
    }


def tables(found: dict[str, Any]) -> list[Table]:
    """What `bench` found, to be read."""
    setting = found["setting"]
    title = (
        f"{setting['net']} at {setting['side']} px, {setting['batch']} + {setting['batch'] * setting['ratio']} images"
    )
    steps = Table("", "ms/step", "steps/s", "images/s", "GiB", "TFLOP/s", "x FixMatch", title=title)
    for cost in found["costs"]:
        memory = f"{cost['memory_gib']:.2f}" if cost["memory_gib"] is not None else "-"
        steps.add_row(
            cost["name"], f"{cost['step']:.2f}", f"{cost['steps_per_second']:.1f}", f"{cost['images_per_second']:.0f}",
            memory, f"{cost['tflops_per_second']:.2f}", f"{cost['ratio']:.2f}",
        )  # fmt: skip
    parts = Table("part", "ms", title="the paper's parts: K (t_data + t_ff) + t_bp + t_opt")
    for name, value in found["parts"].items():
        parts.add_row(name, f"{value:.2f}")
    for k, value in found["formula"].items():
        measured = next((c["step"] for c in found["costs"] if c["name"] == f"K={k} select"), float("nan"))
        parts.add_row(f"formula, K={k} (measured, select: {measured:.2f})", f"{value:.2f}")
    return [steps, parts]


def _training(
    setting: Setting, method: str, k: int, strategy: str, device: torch.device, precision: str, mode: str, folder: Path
) -> Training:
    given = {
        "data": {"labels": 250},
        "net": {"name": setting.net},
        "method": {"k": k, "strategy": strategy},
        "augment": {"policy": "fixmatch" if setting.side < 100 else "imagenet"},
        "train": {"batch": setting.batch, "ratio": setting.ratio, "precision": precision, "step": mode},
    }
    recipe = resolve(compose("digits", method, "paper", given), device=device.type, threads=torch.get_num_threads())  # type: ignore[arg-type]
    return begin(recipe, folder, _noise(setting), quiet=True)


def _noise(setting: Setting) -> Images:
    generator = torch.Generator().manual_seed(0)
    count = 10_000 if setting.side < 100 else 1_000
    x = torch.randint(0, 256, (count, 3, setting.side, setting.side), dtype=torch.uint8, generator=generator)
    return Images("noise", tuple("0123456789"), x, torch.arange(count) % 10)


def _cost(
    training: Training,
    setting: Setting,
    method: str,
    k: int,
    strategy: str,
    flops: float,
    repeats: int,
    before: list[Cost],
) -> Cost:
    device = training.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    steps = iter(range(10**9))
    seconds = _time(lambda: training.step(next(steps)), device, repeats)
    unlabelled = setting.batch * setting.ratio
    scored = (1 + k) * unlabelled if strategy == "select" else 0
    trained = setting.batch + (unlabelled if strategy == "select" else (1 + k) * unlabelled)
    memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None
    return Cost(
        name="fixmatch joint" if method == "fixmatch" else f"K={k} {strategy}",
        step=1e3 * seconds,
        steps_per_second=1 / seconds,
        images_per_second=(setting.batch + (1 + k) * unlabelled) / seconds,
        memory_gib=memory,
        tflops_per_second=flops * (scored + 3 * trained) / seconds / 1e12,
        ratio=1e3 * seconds / before[0].step if before else 1.0,
    )


def _parts(training: Training, setting: Setting, repeats: int) -> dict[str, float]:
    """t_data, t_ff of one view of the unlabelled batch; t_bp and t_opt of a step on labelled and unlabelled images."""
    step, device = training.step, training.device
    unlabelled = setting.batch * setting.ratio
    u = torch.rand(1, unlabelled, training.views.strong_uniforms, device=device)
    images = step.batches.pool[:unlabelled]
    trained = torch.cat([images, images])[: setting.batch + unlabelled]
    set_mode(step.net, "train")

    def backward() -> None:
        step.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(step.run.net(trained)[0].float().mean())

    def update() -> None:
        step.optimizer.found_inf = torch.zeros((), device=device)  # type: ignore[attr-defined]
        step.optimizer.step()
        step.average.update()

    both = _time(backward, device, repeats)
    forward = _time(lambda: step.run.net(trained), device, repeats)
    seconds = {
        "t_data": _time(lambda: training.views.strong_views(images, u, u[0, :, :3]), device, repeats),
        "t_ff": _time(lambda: step.run.score(images), device, repeats),
        "t_bp": max(both - forward, 0.0),
        "t_opt": _time(update, device, repeats),
        "inference, both methods": _time(lambda: step.run.teacher(images), device, repeats),
    }
    return {name: 1e3 * value for name, value in seconds.items()}


def _forward_flops(training: Training, setting: Setting) -> float:
    """Floating-point operations of one image through the net, forward."""
    image = torch.zeros(1, 3, setting.side, setting.side, device=training.device)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        training.evaluated(image.to(next(training.evaluated.parameters()).dtype))
    return float(counter.get_total_flops())


def _time(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median seconds of `work` after a warm-up, by the device's own clock."""
    for _ in range(3):
        work()
    if device.type != "cuda":
        times = []
        for _ in range(repeats):
            begun = time.perf_counter()
            work()
            times.append(time.perf_counter() - begun)
        return statistics.median(times)
    events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]  # type: ignore[no-untyped-call]
    for event in events[:-1]:
        event.record()
        work()
    events[-1].record()
    torch.cuda.synchronize()
    return float(statistics.median(a.elapsed_time(b) / 1e3 for a, b in itertools.pairwise(events)))

"""How fast each stage of a streamed run is: decoding beside the steps, copying to the device, the step itself.

Decoding runs beside the rest, so it is the limit where the steps wait for it. Images/s of a stage are what it would do
if the others cost nothing: for decoding the time of all who do it divided by their number. On a GPU copies and steps
are timed by events, which wait for nothing until the figures are read; elsewhere by the clock of the loop.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

WAITS = 0.1  # a larger share of the time than that spent waiting makes decoding the limit


class Stages:
    """Seconds of each stage since the last `read`."""

    def __init__(self, workers: int, device: torch.device) -> None:
        self.workers, self.cuda = max(1, workers), device.type == "cuda"
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        self._zero()

    def _zero(self) -> None:
        self.images = self.decoded = 0
        self.seconds = dict.fromkeys(("decode", "wait", "copy", "step"), 0.0)
        self._events.clear()

    @contextmanager
    def during(self, stage: str) -> Iterator[None]:
        """Count the time within to a stage."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - begun

    def add_decoded(self, pictures: int, seconds: float) -> None:
        """So many pictures were decoded, in so many seconds of one thread or process."""
        self.decoded += pictures
        self.seconds["decode"] += seconds

    @contextmanager
    def on_device(self, stage: str) -> Iterator[None]:
        """Count to a stage what the device spends on what is sent to it within."""
        if not self.cuda:
            with self.during(stage):
                yield
            return
        first, last = _event(), _event()
        first.record()
        yield
        last.record()
        self._events.append((stage, first, last))

    @contextmanager
    def stepping(self, images: int) -> Iterator[None]:
        """One step, with so many images read for it."""
        self.images += images
        with self.on_device("step"):
            yield

    def read(self) -> dict[str, float | str | None]:
        """Images/s of each stage, the share of the time in which steps waited, and the limit. All starts anew."""
        if self._events:
            self._events[-1][2].synchronize()
        for stage, first, last in self._events:
            self.seconds[stage] += first.elapsed_time(last) / 1000
        seconds, images, decoded = dict(self.seconds), self.images, self.decoded
        self._zero()
        busy = seconds["copy"] + seconds["step"]
        # On a GPU the host waits for pictures while the device is busy: only what is left then holds it up.
        spent = max(seconds["wait"], busy) if self.cuda else seconds["wait"] + busy
        waited = (spent - busy) / spent if spent else 0.0
        rates = {
            "decode_images_per_second": _rate(decoded, seconds["decode"] / self.workers),
            "copy_images_per_second": _rate(images, seconds["copy"]),
            "step_images_per_second": _rate(images, seconds["step"]),
        }
        limit = "copy" if seconds["copy"] > max(seconds["step"], seconds["wait"]) else "step"
        if waited > WAITS and seconds["wait"] >= seconds["copy"]:
            limit = "decode"
        return {**rates, "waiting": round(waited, 4), "limit": limit}


def in_words(found: dict[str, float | str | None], decoders: str) -> str:
    """The figures as a line for the log, with what to do where decoding is the limit; `decoders` as in 4 threads."""
    decode, copy, step = (
        "-" if value is None else f"{value:,.0f}" for name, value in found.items() if name.endswith("_per_second")
    )
    told = f"images/s: decode {decode} ({decoders}), copy {copy}, step {step}"
    if found["limit"] != "decode":
        return told
    waiting = float(found["waiting"] or 0)
    return (
        f"decoding is the limit, {100 * waiting:.0f} % of the time is spent waiting for it; {told}; smaller files, "
        "more cores (--set data.workers=) or --set data.resident=true help"
    )


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _rate(count: int, seconds: float) -> float | None:
    return round(count / seconds, 1) if seconds > 0 and count else None

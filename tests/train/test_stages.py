"""Speeds of the stages, by a clock that is set by hand."""

from __future__ import annotations

import json

import pytest
import torch

from maxmatch.train import stages
from maxmatch.train.stages import Stages, in_words


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(stages.time, "perf_counter", lambda: now[0])

    def passes(seconds: float) -> None:
        now[0] += seconds

    return passes


def one_step(found: Stages, clock, decode: float, wait: float, copy: float, step: float, images: int = 10) -> None:
    found.add_decoded(images, images * decode)
    for stage, seconds in (("wait", wait), ("copy", copy)):
        with found.during(stage):
            clock(seconds)
    with found.stepping(images):
        clock(step)


def test_images_a_second_of_each_stage_and_the_limit(clock):
    found = Stages(workers=4, device=torch.device("cpu"))
    for _ in range(3):
        one_step(found, clock, decode=0.2, wait=0.5, copy=0.1, step=0.4)
    read = found.read()
    assert read == {
        "decode_images_per_second": 20.0,  # 30 images, 6 s of four threads
        "copy_images_per_second": 100.0,
        "step_images_per_second": 25.0,
        "waiting": 0.5,
        "limit": "decode",
    }
    line = in_words(read, "4 threads")
    assert line.startswith("decoding is the limit, 50 % of the time")
    assert "decode 20 (4 threads), copy 100, step 25" in line


def test_it_starts_anew_and_a_step_that_waits_little_is_the_limit_itself(clock):
    found = Stages(workers=1, device=torch.device("cpu"))
    one_step(found, clock, decode=9.0, wait=9.0, copy=9.0, step=0.1)
    found.read()
    one_step(found, clock, decode=0.01, wait=0.02, copy=0.01, step=0.4)
    read = found.read()
    assert (read["limit"], read["step_images_per_second"], read["decode_images_per_second"]) == ("step", 25.0, 100.0)
    assert "limit" not in in_words(read, "1 threads")
    one_step(found, clock, decode=0.0, wait=0.1, copy=0.5, step=0.4)
    assert found.read()["limit"] == "copy"
    assert set(found.read().values()) == {None, 0.0, "step"}  # nothing was done


class Event:
    """One of a GPU's, which is reached when the host waits for it."""

    reached = -1.0

    def record(self):
        self.at = stages.time.perf_counter()

    def synchronize(self):
        Event.reached = max(Event.reached, self.at)

    def elapsed_time(self, last):
        assert max(self.at, last.at) <= Event.reached, "asked before it was waited for"
        return 1000 * (last.at - self.at)


def test_beside_a_gpu_the_host_waits_while_the_device_works(clock, monkeypatch):
    monkeypatch.setattr(stages, "_event", Event)
    for wait, waiting, limit in ((1.0, 0.0, "step"), (4.0, 0.5, "decode")):
        found = Stages(workers=1, device=torch.device("cuda"))
        for _ in range(2):
            found.add_decoded(10, 1.0)
            with found.on_device("copy"):
                clock(0.5)
            with found.stepping(10):
                clock(1.5)
        found.seconds["wait"] = 2 * wait  # beside the four seconds of the device
        read = found.read()
        assert (read["copy_images_per_second"], read["step_images_per_second"]) == (20.0, 6.7)
        assert (read["waiting"], read["limit"]) == (waiting, limit)


def test_a_streamed_run_writes_them_and_says_where_decoding_holds_it_up(tmp_path, capsys, monkeypatch):
    import numpy as np
    from PIL import Image

    from maxmatch.train.fit import fit
    from maxmatch.train.recipes import compose

    rng = np.random.default_rng(0)
    for number in range(24):
        path = tmp_path / "p" / ("train", "train", "val")[number % 3] / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (48, 48, 3), np.uint8)).save(path)
    monkeypatch.setattr(stages, "WAITS", -1.0)  # then any wait is too long
    given = {
        "data": {"path": str(tmp_path / "p"), "resident": False, "side": 32}, "net": {"name": "wrn-10-1"},
        "train": {"steps": 2, "batch": 2, "ratio": 2, "log_every": 1, "device": "cpu"},
    }  # fmt: skip
    fit(compose("folder", given=given), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    speeds = [line for line in lines if line["kind"] == "speed"]
    assert [line["step"] for line in speeds] == [1, 2]
    assert speeds[0]["decode_images_per_second"] > 0
    assert all(line["copy_images_per_second"] > 0 and line["step_images_per_second"] > 0 for line in speeds)
    limits = [line["limit"] for line in speeds]
    assert capsys.readouterr().err.count("decoding is the limit") == int("decode" in limits)  # once a run

"""`maxmatch bench`: its arithmetic, on a net small enough for a test. No time is asserted."""

from __future__ import annotations

import json

import pytest
import torch

from maxmatch import bench as module
from maxmatch.bench import Setting, bench, tables
from maxmatch.cli import run


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(module, "ON_CPU", {"wrn-28-2": Setting("wrn-10-1", 16, 4, 2)})


def test_the_figures_hang_together(small):
    found = bench("wrn-28-2", "cpu", "float32", "eager", repeats=1, ks=(1, 3))
    assert [cost["name"] for cost in found["costs"]] == [
        "fixmatch joint",
        "K=1 joint",
        "K=1 select",
        "K=3 joint",
        "K=3 select",
    ]
    assert found["costs"][0]["ratio"] == 1.0
    for cost in found["costs"]:
        assert cost["steps_per_second"] == pytest.approx(1e3 / cost["step"])
        assert cost["ratio"] == pytest.approx(cost["step"] / found["costs"][0]["step"])
    parts = found["parts"]
    expected = 3 * (parts["t_data"] + parts["t_ff"]) + parts["t_bp"] + parts["t_opt"]
    assert found["formula"]["3"] == pytest.approx(expected)
    # 4 labelled and 8 unlabelled images: joint at K = 3 trains on 4 + 4 * 8 = 36; select scores 32 and trains on 12.
    joint, select = found["costs"][3], found["costs"][4]
    work = {c["name"]: c["tflops_per_second"] * c["step"] for c in (joint, select)}
    assert work["K=3 select"] / work["K=3 joint"] == pytest.approx((32 + 3 * 12) / (3 * 36))
    assert [table.title is not None for table in tables(found)] == [True, True]


def test_flops_are_counted_from_the_net(small, tmp_path):
    """A WRN's operations by hand: two a multiplication, every convolution and the head."""
    setting = module.ON_CPU["wrn-28-2"]
    training = module._training(
        setting, "fixmatch", 1, "joint", torch.device("cpu"), "float32", "eager", tmp_path / "a"
    )
    by_hand, side = 0, 16
    convolutions = [(3, 16, 3, 16), (16, 16, 3, 16), (16, 16, 3, 16)]  # stem and first block, 16 px
    for width_in, width in ((16, 32), (32, 64)):
        side //= 2
        convolutions += [(width_in, width, 3, side), (width, width, 3, side), (width_in, width, 1, side)]
    by_hand = sum(2 * a * b * k * k * s * s for a, b, k, s in convolutions) + 2 * 64 * 10
    assert module._forward_flops(training, setting) == by_hand


def test_the_command_prints_tables_or_json(small, capsys):
    assert run(["bench", "--device", "cpu", "--repeats", "1", "--k", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["setting"]["batch"] == 4
    assert run(["bench", "--device", "cpu", "--repeats", "1", "--k", "1"]) == 0
    assert "FixMatch" in capsys.readouterr().out


@pytest.mark.parametrize(("typed", "message"), [(["--net", "wrn-28"], "did you mean"), (["--k", "0"], "type --k 1,3")])
def test_mistakes_are_one_line(capsys, typed, message):
    assert run(["bench", *typed]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1

"""The cost model: its formulas against a ring that is played through and sums by hand; the page says what it prints."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def costs():
    spec = importlib.util.spec_from_file_location("scale_cost", ROOT / "benchmarks" / "scale_cost.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale_cost"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["scale_cost"]


@pytest.mark.parametrize("gpus", [1, 2, 3, 8])
def test_ring_bytes_by_playing_the_ring(costs, gpus):
    """Each GPU holds one number a part; parts go round until all have all sums."""
    held = [[float(10 * gpu + part) for part in range(gpus)] for gpu in range(gpus)]
    expected = [sum(held[gpu][part] for gpu in range(gpus)) for part in range(gpus)]
    sent = [0] * gpus
    for turn in range(2 * (gpus - 1)):
        moves = []
        for gpu in range(gpus):
            part = (gpu - turn) % gpus if turn < gpus - 1 else (gpu + 1 - (turn - gpus + 1)) % gpus
            moves.append(((gpu + 1) % gpus, part, held[gpu][part]))
            sent[gpu] += 1
        for to, part, value in moves:
            held[to][part] = held[to][part] + value if turn < gpus - 1 else value
    assert all(row == expected for row in held)
    assert sent == [costs.ring_bytes(gpus, gpus)] * gpus  # in parts, of which there are `gpus`


def test_a_cost_by_hand(costs):
    measured = costs.Measured(step=100.0, backward=30.0, update=4.0, memory=21.0)
    net = costs.Net(parameters=2**30 // 20, normalised=1)  # 5 x 4 bytes each: just under 1 GiB
    links = costs.Links(inside=100e9, between=1e9)
    eight = costs.cost(measured, net, 8, 64, links)
    assert eight.steps == 3603
    assert eight.compute == pytest.approx(4 + 96 / 8)
    assert eight.sent == pytest.approx(2 * 7 / 8 * 4 * net.parameters)
    assert eight.network == pytest.approx(eight.sent / 100e9 * 1000)
    assert eight.exposed == pytest.approx(max(0, eight.network - 30 / 8))
    assert eight.memory == pytest.approx(1 + 20 / 8, rel=1e-6)
    assert eight.hours == pytest.approx(300 * 3603 * (16 + eight.exposed) / 1000 / 3600)
    assert eight.decoded == pytest.approx(384 / (16 + eight.exposed) * 1000)
    far = costs.cost(measured, net, 16, 64, links)
    assert far.exposed == pytest.approx(1000 * 2 * 15 / 16 * 4 * net.parameters / 1e9 - 30 / 16)  # the slower link
    alone = costs.cost(measured, net, 1, 64, links)
    assert (alone.step, alone.sent, alone.memory) == (100.0, 0.0, pytest.approx(21.0))


def test_the_page_has_every_line_that_is_printed(costs):
    places = [ROOT / "docs" / name for name in ("scale.md",)]
    text = "".join(path.read_text() for path in places if path.exists())
    printed = costs.page(costs.RECORD, costs.Links(200e9, 25e9))
    assert len(printed) > 30
    for line in printed:
        assert line in text


def test_the_measured_rows_are_the_record_s(costs):
    rows = costs.read_record(costs.RECORD)
    assert rows["FixMatch, joint"].step == pytest.approx(100.8358507)
    assert rows["MaxMatch, K = 3"].step == pytest.approx(125.1112127)
    assert rows["MaxMatch, K of {1, 2, 3}"].step == pytest.approx((88.5372829 + 125.1112127) / 2)

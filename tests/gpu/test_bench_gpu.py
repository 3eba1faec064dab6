"""`maxmatch bench` on a GPU: captured parts, and a memory that is each row's own. No time is asserted. Run with -m gpu."""

from __future__ import annotations

import pytest
import torch

from maxmatch.bench import wanted as module
from maxmatch.bench.clock import as_run
from maxmatch.bench.command import bench
from maxmatch.bench.wanted import Setting, Wanted

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")]

SMALL = Setting("wrn-10-1", side=32, classes=10, batch=64, ratio=7, predict=64, repeats=4)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(module, "SETTINGS", {"wrn-28-2": SMALL})


def test_every_figure_is_there_and_a_rows_memory_is_its_own():
    net = bench(Wanted(ks=(3, 7)), "cuda")["nets"]["wrn-28-2"]
    assert (net["mode"], net["notes"]) == ("captured", [])
    assert {row["name"]: row["failed"] for row in net["rows"]} == {row["name"]: None for row in net["rows"]}
    assert set(net["parts"]) == {"t_data", "t_ff", "t_bp", "t_opt", "batch"}
    assert all(min(times) > 0 for times in net["raw"].values())
    assert all(value > 0 for value in net["parts"].values()), net["parts"]
    assert set(net["inference"]) == {"fixmatch", "maxmatch"}
    memory = {row["name"]: row["memory_gib"] for row in net["rows"]}
    # The graph's pool is seen: K = 7 trains on 64 + 8 * 448 images jointly, on 64 + 448 after a selection.
    assert memory["K=7 joint"] > memory["K=3 joint"] > memory["fixmatch joint"]
    assert memory["K=7 joint"] > memory["K=7 select"]
    # Nothing is left of the rows before: alone, the last row needs the same.
    alone = bench(Wanted(ks=(7,), strategies=("select",), parts=False, inference=False), "cuda")["nets"]["wrn-28-2"]
    assert alone["rows"][-1]["memory_gib"] == pytest.approx(memory["K=7 select"], rel=0.1, abs=0.1)


def test_a_captured_part_is_replayed_on_the_device():
    sums = torch.zeros(3, device="cuda")
    work = as_run(lambda: sums.add_(1), "captured")
    work()  # three of the warm-up and one replay; the capture itself computes nothing
    work()
    assert sums.tolist() == [5.0] * 3


def test_a_row_that_does_not_fit_leaves_the_others():
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(min(1.0, (torch.cuda.memory_reserved() + 3 * 2**30) / total))
    try:
        net = bench(Wanted(ks=(1, 128), strategies=("joint",), parts=False, inference=False), "cuda")["nets"][
            "wrn-28-2"
        ]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    rows = {row["name"]: row for row in net["rows"]}
    assert rows["K=128 joint"]["failed"] == "out of memory"
    assert rows["K=1 joint"]["step"] is not None

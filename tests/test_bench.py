"""`maxmatch bench`: its arithmetic, on a net small enough for a test. No time is asserted."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch

from maxmatch.bench import clock, measure
from maxmatch.bench import wanted as module
from maxmatch.bench.clock import as_run, with_peak
from maxmatch.bench.command import bench
from maxmatch.bench.measure import forward_flops
from maxmatch.bench.report import page
from maxmatch.bench.wanted import Setting, Wanted
from maxmatch.cli import run

SMALL = Setting("wrn-10-1", side=16, classes=10, batch=4, ratio=2, predict=16, repeats=2, small=True)
ROWS = ["fixmatch joint", "fixmatch select", "K=1 joint", "K=1 select", "K=3 joint", "K=3 select"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(module, "ON_CPU", {"wrn-28-2": SMALL, "wrn-28-8": SMALL})


def rows(net: dict) -> dict[str, dict]:
    return {row["name"]: row for row in net["rows"]}


def test_the_figures_hang_together():
    net = bench(Wanted(ks=(1, 3)), "cpu")["nets"]["wrn-28-2"]
    found = rows(net)
    assert list(found) == ROWS
    base = found["fixmatch joint"]
    fastest = min(found[name]["step"] for name in ROWS[:2])
    assert base["ratio"] == 1.0
    for name, row in found.items():
        assert row["failed"] is None
        assert row["mode"] == "eager"
        assert len(net["raw"][name]) == 2
        assert row["steps_per_second"] == pytest.approx(1e3 / row["step"])
        assert row["ratio"] == pytest.approx(row["step"] / base["step"])
        assert row["ratio_to_fastest"] == pytest.approx(row["step"] / fastest)
    # 4 labelled and 8 unlabelled images: joint at K = 3 trains on 4 + 4 * 8 = 36; select scores 32 and trains on 12.
    work = {name: row["tflops_per_second"] * row["step"] for name, row in found.items()}
    assert work["K=3 select"] / work["K=3 joint"] == pytest.approx((32 + 3 * 12) / (3 * 36))
    assert work["K=1 select"] / work["K=1 joint"] == pytest.approx((16 + 3 * 12) / (3 * 20))
    assert work["fixmatch select"] == pytest.approx(work["K=1 select"])
    assert found["K=3 select"]["images_per_second"] * found["K=3 select"]["step"] == pytest.approx(36e3)


def test_the_formula_is_the_sum_of_its_parts():
    net = bench(Wanted(ks=(1, 3)), "cpu")["nets"]["wrn-28-2"]
    parts, found = net["parts"], rows(net)
    for k in (1, 3):
        said = net["formula"][str(k)]
        assert said["formula"] == pytest.approx(k * (parts["t_data"] + parts["t_ff"]) + parts["t_bp"] + parts["t_opt"])
        assert (said["joint"], said["select"]) == tuple(found[f"K={k} {s}"]["step"] for s in ("joint", "select"))
    share = net["augmentation"]
    assert share["of"] == "K=3 select"
    assert share["percent"] == pytest.approx(100 * parts["batch"] / found["K=3 select"]["step"])
    assert set(net["inference"]) == {"fixmatch", "maxmatch"}
    for values in net["inference"].values():
        assert values["images_per_second"] == pytest.approx(1e3 * 16 / values["ms"])


def test_a_subset_is_measured_alone():
    wanted = Wanted(nets=("wrn-28-8",), ks=(5,), strategies=("joint",), repeats=1, parts=False, inference=False)
    net = bench(wanted, "cpu")["nets"]["wrn-28-8"]
    assert list(rows(net)) == [*ROWS[:2], "K=5 joint"]
    assert (net["parts"], net["formula"], net["augmentation"], net["inference"]) == (None, {}, None, {})
    assert all(len(times) == 1 for times in net["raw"].values())


def test_without_k_3_the_parts_are_those_of_the_fastest_fixmatch():
    net = bench(Wanted(ks=(2,), strategies=("joint",), repeats=1), "cpu")["nets"]["wrn-28-2"]
    assert net["augmentation"]["of"] == "fixmatch select"
    assert net["formula"]["2"]["select"] is None
    assert set(net["inference"]) == {"fixmatch", "maxmatch"}


def test_fixmatch_select_takes_the_steps_of_maxmatch_with_one_view():
    one, other = (
        measure._recipe(SMALL, variant, torch.device("cpu"), "float32", "auto").method
        for variant in (module.FIXMATCH[1], module.Variant("maxmatch", 1, "select"))
    )
    assert one.resolved_strategy == other.resolved_strategy == "select"
    assert (one.k, one.over, one.threshold) == (other.k, other.over, other.threshold)


def test_flops_are_counted_from_the_net():
    """A WRN's operations by hand: two a multiplication, every convolution and the head."""
    side = 16
    convolutions = [(3, 16, 3, 16), (16, 16, 3, 16), (16, 16, 3, 16)]  # stem and first block, 16 px
    for width_in, width in ((16, 32), (32, 64)):
        side //= 2
        convolutions += [(width_in, width, 3, side), (width, width, 3, side), (width_in, width, 1, side)]
    assert forward_flops(SMALL) == sum(2 * a * b * k * k * s * s for a, b, k, s in convolutions) + 2 * 64 * 10


def test_a_row_that_does_not_fit_says_so_and_the_others_go_on(monkeypatch, capsys):
    row = measure.Trial.row

    def too_big(self: measure.Trial, flops: float):
        if self.variant.name == "K=1 joint":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nGPU 0 has ...")
        return row(self, flops)

    monkeypatch.setattr(measure.Trial, "row", too_big)
    assert run(["bench", "--device", "cpu", "--k", "1", "--repeats", "1", "--no-parts", "--json"]) == 0
    out, err = capsys.readouterr()
    found = rows(json.loads(out)["nets"]["wrn-28-2"])
    assert (found["K=1 joint"]["step"], found["K=1 joint"]["failed"]) == (None, "out of memory")
    assert found["K=1 joint"]["ratio"] is None
    assert found["K=1 select"]["ratio"] > 0
    assert "wrn-28-2: K=1 joint: out of memory\n" in err


def test_nothing_measured_is_an_error_of_one_line(monkeypatch, capsys):
    def full(self: measure.Trial, flops: float):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(measure.Trial, "row", full)
    assert run(["bench", "--device", "cpu", "--k", "1"]) == 1
    out, err = capsys.readouterr()
    assert "out of memory" in out
    assert (
        err.splitlines()[-1] == "maxmatch: nothing could be measured (out of memory): type --batch 8, or another --net"
    )


def test_the_torch_settings_are_those_of_a_run(monkeypatch):
    seen = []
    row = measure.Trial.row
    monkeypatch.setattr(
        measure.Trial, "row", lambda self, flops: (seen.append(torch.backends.cudnn.benchmark), row(self, flops))[1]
    )
    before = torch.backends.cudnn.benchmark, torch.get_rng_state()
    bench(Wanted(ks=(1,), repeats=1, parts=False, inference=False), "cpu")
    assert seen == [True] * 4
    assert torch.backends.cudnn.benchmark == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


def test_parts_of_a_captured_step_are_replays(monkeypatch):
    class Fake:
        """Captured's manners without a GPU: the work runs once, then it is replayed."""

        def __init__(self, advance: Callable[[int], None], tensors: Callable[[], dict]) -> None:
            assert tensors() == {}
            self.advance, self.replays = advance, 0

        def __call__(self, k: int) -> None:
            if not self.replays:
                self.advance(k)
            self.replays += 1

    monkeypatch.setattr(clock, "Captured", Fake)
    done = []
    for mode, calls in (("captured", 1), ("compiled", 3), ("eager", 3)):
        work = as_run(lambda: done.append(1), mode)
        for _ in range(3):
            work()
        assert len(done) == calls, mode
        done.clear()


def test_the_peak_of_memory_is_that_of_the_work_alone():
    cpu = torch.device("cpu")
    _, before = with_peak(lambda: None, cpu)
    if before is None:
        pytest.skip("this system does not tell the peak")
    _, large = with_peak(lambda: torch.ones(2**28, dtype=torch.uint8).sum(), cpu)
    _, after = with_peak(lambda: None, cpu)
    assert large - before > 0.24
    assert large - after > 0.2


def test_the_command_prints_tables_and_keeps_json(tmp_path, capsys):
    out = tmp_path / "a.json"
    typed = ["bench", "--device", "cpu", "--k", "3", "--strategy", "select", "--repeats", "1", "--out", str(out)]
    assert run([*typed, "--step", "captured"]) == 0
    printed, told = capsys.readouterr()
    note = "train.step = captured: there is no CUDA graph on cpu; running eager"
    for word in (
        "fixmatch select",
        "x fastest",
        "t_bp",
        "K=3",
        "images/s",
        "augmentation is",
        "small, for a CPU",
        note,
    ):
        assert word in printed
    assert told.splitlines()[0] == note
    assert len(told.splitlines()) == 4  # the note, and each row as it is done
    kept = json.loads(out.read_text())
    assert kept["command"] == (
        "maxmatch bench --net wrn-28-2 --device cpu --step captured --k 3 --strategy select --repeats 1"
    )
    assert set(kept) == {"command", "commit", "versions", "hardware", "device", "wanted", "nets"}
    net = kept["nets"]["wrn-28-2"]
    assert (net["mode"], net["notes"], net["setting"]["batch"]) == ("eager", [note], 4)
    assert [str(part) for part in page(kept) if isinstance(part, str)] == [
        line for line in printed.splitlines() if line in page(kept)
    ]


def test_json_goes_to_standard_output_and_batches_can_be_chosen(capsys):
    assert run(["bench", "--device", "cpu", "--repeats", "1", "--k", "1", "--batch", "3", "--no-parts", "--json"]) == 0
    net = json.loads(capsys.readouterr().out)["nets"]["wrn-28-2"]
    assert (net["setting"]["batch"], net["setting"]["small"]) == (3, False)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["--net", "wrn-28"], "did you mean"),
        (["--net", "wrn-28-2,vgg"], "choose from resnet50, wrn-28-2, wrn-28-8"),
        (["--net", ""], "--net: nothing is named; type --net wrn-28-2"),
        (["--k", "0"], "type --k 1,3"),
        (["--k", "1:.5,3:.5"], "type --k 1,3"),
        (["--strategy", "selec"], "did you mean 'select'?"),
        (["--step", "capture"], "did you mean 'captured'?"),
        (["--precision", "fp16"], "did you mean 'bf16'?"),
        (["--device", "tpu"], "unknown device 'tpu'"),
        (["--out", "nowhere/at/all.json"], "there is no folder nowhere/at"),
    ],
)
def test_mistakes_are_one_line(capsys, typed, message):
    assert run(["bench", *typed]) != 0
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1

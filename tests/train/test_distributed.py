"""Processes that torchrun starts end where one process ends: the same weights, memories, figures and files.

All in float64 with synchronised BatchNorm: in float32 an argmax makes much of a rounding.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from train.ranks_worker import passed, train

from maxmatch.augment import Views, Weak, strong_policy
from maxmatch.data.plan import BLOCK, Plan
from maxmatch.errors import UsageError
from maxmatch.methods.base import Needs
from maxmatch.nets.batchnorm import synchronise
from maxmatch.train.checkpoint import checkpoints
from maxmatch.train.distributed import Ranks, check
from maxmatch.train.draws import Draws, Rows
from maxmatch.train.log import read_metrics
from maxmatch.train.recipe import TrainSettings
from maxmatch.train.recipes import compose
from maxmatch.train.step import choose_mode

STEPS, CLOSE = 20, 1e-9
WORKER = Path(__file__).parent / "ranks_worker.py"
# Thresholds that some images pass and some don't.
CASES = {
    "fixmatch": ("fixmatch", {"method": {"threshold": 0.3}, "train": {"optimizer": "muon"}}),
    "joint": ("maxmatch", {"method": {"k": 3, "strategy": "joint", "threshold": 0.3}}),
    "select": ("maxmatch", {"method": {"k": "1,2,3", "strategy": "select", "threshold": 0.3}}),
    "mixmatch": ("mixmatch", {"method": {"align": True}}),
    "remixmatch": ("remixmatch", {"method": {"k": 1}}),
    "freematch": ("freematch", {"method": {"momentum": 0.9, "fairness": 1.0}}),
    "flexmatch": ("flexmatch", {"method": {"threshold": 0.3}}),
    "cta": ("fixmatch", {"method": {"align": True, "threshold": 0.3}, "augment": {"policy": "cta"}}),
    "mean-teacher": ("mean-teacher", {}),
    "temporal-ensembling": (
        "temporal-ensembling",
        {"method": {"k": 2, "over": "worst", "ramp": 0.0}, "train": {"steps": 8}},
    ),
    "softmatch": ("softmatch", {"method": {"momentum": 0.9}, "train": {"steps": 4}}),
    "uda": ("uda", {"method": {"annealing": "exp", "threshold": 0.2}, "train": {"steps": 6}}),
    "ict": ("ict", {"method": {"ramp": 0.0}, "train": {"steps": 4}}),
    "vat": ("vat", {"train": {"steps": 4}}),
    "eman": ("maxmatch", {"method": {"k": 2, "teacher": "eman", "threshold": 0.3}, "train": {"steps": 8}}),
    "moco": ("moco", {"method": {"queue": 40, "dimension": 8}, "train": {"steps": 8}}),
}
ON_FOUR = ("joint", "remixmatch")


def recipe(name, **train):
    method, sections = CASES[name]
    settings = {
        "steps": STEPS, "batch": 4, "ratio": 3, "precision": "float64", "sync_batchnorm": True, "device": "cpu",
        "threads": 1, "checkpoint_every": 10, "evaluate_every": STEPS, "log_every": 4, "lr": 0.01,
    }  # fmt: skip
    given = {**sections, "train": {**settings, **sections.get("train", {}), **train}}
    return compose("digits", method, given={"data": {"labels": 20}, "net": {"name": "wrn-10-1"}, **given}).to_dict()


def torchrun(*words, **environment):
    source = str(Path(__file__).parents[2] / "src")
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run_jobs(folder, ranks, jobs):
    """Let the ranks do the jobs, while this process does what they are compared with."""
    (folder / "jobs.json").write_text(json.dumps(jobs))
    return torchrun(f"--nproc_per_node={ranks}", WORKER, folder / "jobs.json")


def test_ranks_end_where_one_process_ends(tmp_path):
    """One test, since starting processes is what takes the time; it names everything that is wrong."""
    runs = all_runs(tmp_path)
    checks = [(same_end, name, 2) for name in CASES] + [(same_end, name, 4) for name in ON_FOUR]
    checks += [(images_pass_or_not, name) for name in ("fixmatch", "joint", "flexmatch", "freematch", "cta", "uda")]
    checks += [(same_bits, name) for name in (*CASES, "unsynchronised")]
    checks += [(went_on, "begun-by-1", "flexmatch"), (went_on, "begun-by-2", "cta")]
    checks += [(same_gradient, "wrn-10-1"), (same_gradient, "elsewhere"), (stopped_together,)]
    checks += [(each_says_why, 5), (each_says_why, 7), (met_again, 1), (met_again, 2)]
    wrong = []
    for look, *what in checks:
        try:
            look(runs, *what)
        except AssertionError as error:
            wrong.append(f"{look.__name__} {what}: {error}")
    assert not wrong, "\n".join(wrong)


def all_runs(folder):
    """Folders: NAME-1 by one process, NAME-2 by two, NAME-4 by four, and begun-by-N, with which another number went on."""
    train({"recipe": recipe("flexmatch"), "stop": 10}, folder / "begun-by-1")
    jobs = [{"recipe": recipe(name), "out": str(folder / f"{name}-2")} for name in CASES]
    jobs += [{"recipe": recipe("flexmatch"), "out": str(folder / "begun-by-1"), "resume": True}]
    jobs += [{"recipe": recipe("cta"), "out": str(folder / "begun-by-2"), "stop": 10}]
    jobs += [{"recipe": recipe("cta", sync_batchnorm=False), "out": str(folder / "unsynchronised-2")}]
    jobs += [{"net": net, "out": str(folder / net)} for net in ("wrn-10-1", "elsewhere")]
    jobs += [{"recipe": recipe("joint"), "out": str(folder / "bad-2"), "bad_on": 1}]
    jobs += [{"recipe": recipe("joint", batch=odd), "out": str(folder / f"odd-{odd}")} for odd in (5, 7)]
    jobs += [{"recipe": recipe("joint"), "out": str(folder / f"apart-{n}-2"), "apart": True} for n in (1, 2)]
    two = run_jobs(folder, 2, jobs)
    for name in CASES:
        train({"recipe": recipe(name)}, folder / f"{name}-1")
    said = two.communicate()[1]
    assert two.returncode == 0, said
    (folder / "four").mkdir()
    four = run_jobs(
        folder / "four", 4, [{"recipe": recipe(name), "out": str(folder / f"{name}-4")} for name in ON_FOUR]
    )
    train({"recipe": recipe("cta"), "resume": True}, folder / "begun-by-2")
    said = four.communicate()[1]
    assert four.returncode == 0, said
    return folder


def differences(one, other):
    """How far two runs are apart, by tensor, of what is 1 or larger as a share: all that a checkpoint holds."""
    ours, theirs = (load_file(checkpoints(run / "checkpoint")[-1]) for run in (one, other))
    assert ours.keys() == theirs.keys()
    return {name: distance(ours[name].double(), theirs[name].double()) for name in ours}


def distance(one, other):
    return ((one - other).abs() / one.abs().clamp_min(1)).max().item()


def same_end(runs, name, ranks):
    """Weights, memories, statistics, momenta and metrics are those of one process."""
    one, many = runs / f"{name}-1", runs / f"{name}-{ranks}"
    apart = differences(one, many)
    assert max(apart.values()) < CLOSE, max(apart, key=apart.get)
    ours, theirs, initial = (load_file(f) for f in (one / "model.safetensors", many / "model.safetensors",
                                                    one / "initial.safetensors"))  # fmt: skip
    assert all(distance(ours[n], theirs[n]) < CLOSE for n in ours)
    assert all((ours[n] - initial[n]).abs().max() > 1e-6 for n in ours)  # there was something to differ in
    figures, wanted = (read_metrics(run / "metrics.jsonl") for run in (many, one))
    assert [rounded(line) for line in figures] == [rounded(line) for line in wanted]


def rounded(value):
    """A metrics line with seven digits of every number."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def images_pass_or_not(runs, name):
    """Some images pass the threshold and some do not, so that there is something to agree on."""
    rates = [
        line["mask_rate"] for line in read_metrics(runs / f"{name}-1" / "metrics.jsonl") if line["kind"] == "train"
    ]
    assert 0 < sum(rates) / len(rates) < 1


def same_bits(runs, name):
    """All ranks hold the same bits, and return the same result."""
    folder = runs / f"{name}-2"
    assert (folder / "held-0").read_text() == (folder / "held-1").read_text()
    assert (folder / "returned-0.json").read_text() == (folder / "returned-1.json").read_text()
    assert json.loads((folder / "result.json").read_text())["ranks"] == 2


def went_on(runs, folder, name):
    """A checkpoint of some ranks went on with more or fewer, as if there had been one process throughout."""
    assert max(differences(runs / folder, runs / f"{name}-1").values()) < CLOSE
    wanted = [line["supervised_loss"] for line in read_metrics(runs / f"{name}-1" / "metrics.jsonl")]
    found = [line["supervised_loss"] for line in read_metrics(runs / folder / "metrics.jsonl")]
    assert found == pytest.approx(wanted)  # the sums of steps 9 and 10 were in the checkpoint


def stopped_together(runs):
    """A loss that is not finite on rank 1 alone stopped both after that step, and one of them said so."""
    said = sorted(json.loads((runs / "bad-2" / f"returned-{rank}.json").read_text())["said"] for rank in range(2))
    assert said[0] == "another process of this run has said why it ends"
    assert said[1].startswith("the unlabeled loss is not finite at step 3;")


def each_says_why(runs, batch):
    """Of two that failed in one script, the second has its reason too; one of the ranks gives it."""
    said = sorted(json.loads((runs / f"odd-{batch}" / f"returned-{rank}.json").read_text())["said"] for rank in (0, 1))
    assert said[0] == "another process of this run has said why it ends"
    assert said[1].startswith(f"train.batch = {batch}: 2 processes can't have equal parts")


def met_again(runs, number):
    """Trainings that each join and leave the group in the same processes are those within one group."""
    assert max(differences(runs / f"apart-{number}-2", runs / "joint-2").values()) == 0


def same_gradient(runs, net):
    """Synchronised BatchNorm has the logits, gradients and running statistics of one process."""
    wanted = passed(net, Ranks())
    for rank in range(2):
        found = torch.load(f"{runs / net}-{rank}.pt")
        for name, value in wanted.items():
            torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-10, msg=name)


def test_a_batchnorm_that_is_more_than_that_is_refused():
    class Activated(torch.nn.BatchNorm2d):
        pass

    with pytest.raises(UsageError, match="has Activated, which can't be: leave it out"):
        synchronise(torch.nn.Sequential(Activated(4)), Ranks().stacked)


def test_the_parts_of_the_plan_are_the_plan():
    needs = Needs(weak=1, strong=2, x_strong=True, mix=0.5)
    views = Views(Weak(), strong_policy("cta"))

    def rows(ranks):
        scalars = {"lr": lambda t: 0.1 * t}
        return Rows(Draws(Plan(7), needs, views, (6, 11), (12, 31), scalars, ranks), torch.device("cpu"))

    whole, parts = rows(Ranks()), [rows(Ranks(rank, 3)) for rank in range(3)]
    for step in (0, 5, BLOCK + 1):
        for each in (whole, *parts):
            each.load(step)
        for name, dim in {"labelled": 0, "unlabelled": 0, "labelled/weak": 1, "labelled/strong": 1, "weak": 1,
                          "strong": 1, "labelled/probe": 1}.items():  # fmt: skip
            assert torch.equal(torch.cat([part.row[name] for part in parts], dim), whole.row[name]), name
        for name in ("lr", "step", "mix/order", "mix/weight"):
            assert all(torch.equal(part.row[name], whole.row[name]) for part in parts), name
    assert parts[0].draws.batch == {"labelled": 2, "unlabelled": 4}


@pytest.mark.parametrize(
    ("settings", "ranks", "line"),
    [
        ({"batch": 64}, 3, "train.batch = 64: 3 processes can't have equal parts of it; "
         "type --set train.batch=63, --set train.batch=66"),
        ({"batch": 2}, 4, "type --set train.batch=4"),
        ({"micro_batch": 8}, 2, "train.micro_batch = 8: it needs one process"),
        ({"device": "mps"}, 2, "type --device cpu"),
    ],
)  # fmt: skip
def test_what_several_processes_cannot_do_is_refused(settings, ranks, line):
    with pytest.raises(UsageError, match=line.replace("(", r"\(")):
        check(TrainSettings(**settings), Ranks(0, ranks))
    check(TrainSettings(**settings), Ranks())


def test_a_run_that_is_begun_keeps_its_batch():
    for batch, ranks, line in ((32, 3, "--nproc_per_node=2 or --nproc_per_node=4"), (2, 4, "--nproc_per_node=2")):
        with pytest.raises(UsageError, match=f"type {line}$"):
            check(TrainSettings(batch=batch), Ranks(0, ranks), begun=True)
    check(TrainSettings(batch=32), Ranks(0, 4), begun=True)


def test_several_ranks_are_not_captured(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    method, gpu = compose("digits", "maxmatch").method, torch.device("cuda")
    assert choose_mode("auto", method, gpu, ranks=2) == ("compiled", None)
    mode, note = choose_mode("captured", method, gpu, ranks=2)
    assert (mode, note) == ("compiled", "2 processes: a step is not captured; running compiled")
    assert choose_mode("auto", method, gpu)[0] == "captured"


def test_a_killed_rank_is_told_in_one_line_and_torchrun_goes_on_from_the_checkpoint(tmp_path):
    words = ["-m", "maxmatch", "train", "digits@20", "--method", "fixmatch", "--device", "cpu", "--steps", "40",
             "--out", tmp_path / "a"]  # fmt: skip
    for setting in ("net.name=wrn-10-1", "train.batch=4", "train.ratio=3", "train.checkpoint_every=2",
                    "train.evaluate_every=40", "evaluate.robust_views=1"):  # fmt: skip
        words += ["--set", setting]
    process = torchrun("--nproc_per_node=2", "--max-restarts=1", *words)
    try:
        wait_for(lambda: checkpoints(tmp_path / "a" / "checkpoint"), process)
        os.kill(workers(process.pid)[1], signal.SIGKILL)
        out, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, said[:3000]
    lines = [line for line in said.splitlines() if line.startswith("maxmatch:")]
    assert len(lines) == 1, said
    assert "a process of this run is gone" in lines[0]
    assert lines[0].endswith(f"torchrun --nproc_per_node=2 -m maxmatch train --resume --out {tmp_path / 'a'}")
    assert "Traceback" not in said.split("maxmatch:")[0]
    assert len(out.splitlines()) == 1  # of two ranks
    assert json.loads(out)["steps"] == 40


def workers(parent):
    """The processes that a process has started, oldest first."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
        except OSError:  # gone meanwhile
            continue
    return sorted(found)


def wait_for(condition, process):
    deadline = time.monotonic() + 100
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)

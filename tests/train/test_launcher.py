"""Processes of one torchrun know each other and its runs, those of another do not, and all end with it."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch.distributed as dist

from maxmatch.cli import run
from maxmatch.errors import UsageError
from maxmatch.train import distributed
from maxmatch.train.distributed import Ranks, first_to_fail
from maxmatch.train.launcher import NOTE, began, ending_with_it, launcher, note_job
from maxmatch.train.recipes import compose

SOURCE = str(Path(__file__).parents[2] / "src")
WHO = "from maxmatch.train.launcher import launcher; print(launcher())"
QUICK = ("net.name=wrn-10-1", "train.batch=4", "train.ratio=2", "train.steps=2", "evaluate.robust_views=1")


@pytest.fixture
def job(monkeypatch):
    """As if torchrun had started this process, for the time that `TORCHELASTIC_RUN_ID` is this."""

    def become(name, starts=0):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", name)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(starts))

    return become


def test_nobody_watches_the_launcher_when_the_run_is_over(job):
    job("1")
    before = set(threading.enumerate())
    with ending_with_it():
        assert set(threading.enumerate()) > before
    assert set(threading.enumerate()) == before


def asked(*command, **environment):
    held = {**os.environ, "PYTHONPATH": SOURCE, **environment}
    return subprocess.run(command, env=held, capture_output=True, text=True, check=True).stdout.strip()


def test_a_launcher_has_one_name_for_all_that_it_starts_and_no_other_has_it(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert launcher() is None
    me = (sys.executable, "-c", WHO)
    name = asked(*me, TORCHELASTIC_RUN_ID="a")
    assert f" {os.getpid()} " in name
    assert asked(*me, TORCHELASTIC_RUN_ID="a") == name  # started again
    script = asked("sh", "-c", f'"{sys.executable}" -c "{WHO}"; true', TORCHELASTIC_RUN_ID="a")
    assert script == name  # a script of the user's stands between
    other = asked("sh", "-c", f'TORCHELASTIC_RUN_ID=a "{sys.executable}" -c "{WHO}"; true')
    assert other.split()[0] == "a"
    assert other != name  # the same id, by another process: --rdzv_id may be given twice


def test_a_run_is_the_jobs_that_noted_it(tmp_path, job):
    job("a")
    note_job(tmp_path, [launcher(), "a elsewhere 7 9", None])
    assert not began(tmp_path)  # the note alone is no run
    (tmp_path / "recipe.json").write_text("{}")
    assert began(tmp_path)
    assert json.loads((tmp_path / NOTE).read_text()) == sorted([launcher(), "a elsewhere 7 9"])
    job("b")
    assert not began(tmp_path)
    note_job(tmp_path, [None])  # one process, without torchrun, has taken the folder
    job("a")
    assert not began(tmp_path)
    (tmp_path / NOTE).write_text("torn")
    assert not began(tmp_path)


def test_processes_started_again_go_on_with_what_their_job_began_and_with_nothing_else(tmp_path, job, capsys):
    words = ["train", "digits@20", "--method", "fixmatch", "--device", "cpu", "--no-report", "--out", str(tmp_path)]
    words += [word for text in QUICK for word in ("--set", text)]
    note = tmp_path / "metrics.jsonl"

    def started(*more):
        before = note.stat().st_mtime_ns if note.exists() else None
        code = run([*words, *more])
        said = capsys.readouterr().err
        return code, note.stat().st_mtime_ns != before, "is finished" in said

    job("old")
    assert started() == (0, True, False)
    job("new", starts=1)  # its first start died before it came to the folder
    assert started() == (2, False, False)  # refused, as the first start would have been
    assert started("--force") == (0, True, False)  # the old run is replaced, not gone on with
    assert started("--force") == (0, False, True)  # its own is gone on with: --force was said before it was begun
    job("new", starts=0)  # on another machine, which counts its own starts
    assert started() == (0, False, True)
    job("next")
    more = ["train", "--resume", "--steps", "3", "--device", "cpu", "--no-report", "--out", str(tmp_path)]
    assert run(more) == 0
    assert began(tmp_path)  # it has gone on with the run, which is its own from then on


def test_who_is_the_first_to_fail_is_asked_of_this_start_alone(monkeypatch):
    """Several machines keep one store, and may number their starts alike."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "RANK": 0, "WORLD_SIZE": 1,
                        "GROUP_WORLD_SIZE": 2, "TORCHELASTIC_USE_AGENT_STORE": True}.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(distributed.MEETING, "store", None)
    for _ in range(2):
        assert distributed._meet("gloo") == Ranks(0, 1)
        assert [first_to_fail(), first_to_fail()] == [True, False]
        dist.destroy_process_group()


class Joined(Ranks):
    """One of two, of which one goes on and the other begins."""

    def everyones(self, thing):
        return [True, False]


def test_a_machine_that_was_not_there_when_the_run_began_is_told_how_to_join(tmp_path, monkeypatch):
    module = importlib.import_module("maxmatch.train.fit")
    monkeypatch.setattr(module, "joined", lambda device: nullcontext(Joined(0, 2)))
    recipe = compose("digits", "fixmatch", given={"train": {"device": "cpu"}})
    with pytest.raises(UsageError) as said:
        module.fit(recipe, tmp_path)
    assert str(said.value) == (
        "a machine has joined a run that was begun: "
        f"type torchrun --nproc_per_node=2 -m maxmatch train --resume --out {tmp_path}"
    )
    assert not list(tmp_path.iterdir())


def test_a_process_ends_with_its_launcher():
    child = (
        "import time, os; from maxmatch.train.launcher import ending_with_it\n"
        "with ending_with_it(): print(os.getpid(), flush=True); time.sleep(20); print('still here', flush=True)"
    )
    parent = "import subprocess, sys, os, time; os.environ['TORCHELASTIC_RUN_ID'] = 'a'; "
    parent += f"subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", parent], env={**os.environ, "PYTHONPATH": SOURCE}, stdout=subprocess.PIPE, text=True
    )
    number = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    try:
        assert process.stdout.read() == ""  # until the last that can write is gone
    finally:
        if Path(f"/proc/{number}/stat").exists() and Path(f"/proc/{number}/stat").read_text().split()[2] != "Z":
            os.kill(number, signal.SIGKILL)

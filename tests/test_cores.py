"""Cores that this process may use."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import maxmatch
from maxmatch import cores, fit
from maxmatch.data.files import default_workers


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """One of eight cores, whose control groups say what a test writes."""
    monkeypatch.setattr(cores, "SYSTEM", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("share", "found"), [("200000 100000", 2), ("150000 100000", 2), ("5000 100000", 1), ("max 100000", 8), ("", 8)]
)
def test_a_container_s_share_is_counted_in_whole_cores(machine, share, found):
    (machine / "cpu.max").write_text(share)
    assert cores.cores() == default_workers() == found


@pytest.mark.parametrize(("quota", "found"), [("300000\n", 3), ("-1\n", 8)])
def test_so_is_one_of_the_first_kind_of_control_groups(machine, quota, found):
    (machine / "cpu").mkdir()
    (machine / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (machine / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cores.cores() == found


def test_without_a_limit_there_are_as_many_as_the_process_is_bound_to(machine):
    assert cores.cores() == 8


def test_a_run_has_no_more_threads_than_its_container_has_cores(machine, tiny, tmp_path, monkeypatch):
    (machine / "cpu.max").write_text("100000 100000")
    monkeypatch.setattr("torch.get_num_threads", lambda: 64)
    fit(tiny(train={"threads": "auto"}), tmp_path / "a", quiet=True)
    assert json.loads((tmp_path / "a" / "recipe.json").read_text())["train"]["threads"] == 1


@pytest.mark.parametrize(
    ("loaded", "given", "found"),
    [
        (False, {}, "10000"),
        (False, {"GOMP_SPINCOUNT": "7"}, "7"),
        (False, {"OMP_WAIT_POLICY": "ACTIVE"}, None),
        (True, {}, None),
    ],
)
def test_threads_wait_briefly_unless_the_user_has_said_how_or_torch_is_there(monkeypatch, loaded, given, found):
    monkeypatch.setattr(os, "environ", dict(given))
    if not loaded:
        monkeypatch.delitem(sys.modules, "torch")
    cores.wait_briefly()
    assert os.environ.get("GOMP_SPINCOUNT") == found


def test_the_command_says_so_before_torch_is_there():
    script = (
        "import os, sys\n"
        "from maxmatch.cli import main\n"
        "try: main(['--version'])\n"
        "except SystemExit: print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    )
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    environment["PYTHONPATH"] = str(Path(maxmatch.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "10000 False"

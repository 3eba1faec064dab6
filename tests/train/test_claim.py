"""Whose a folder is: nothing of another's is touched, and an old run is gone only when the new one has begun."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from maxmatch.errors import Interrupted, UsageError, UserError
from maxmatch.methods.base import Target
from maxmatch.methods.fixmatch import FixMatch
from maxmatch.train.claim import BEFORE, PARTS, claim, replacing
from maxmatch.train.fit import fit


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@dataclass(frozen=True)
class Wrong(FixMatch):
    """Teaches what no method may."""

    def targets(self, p):
        return p


@dataclass(frozen=True)
class Late(FixMatch):
    """The same after two steps."""

    def targets(self, p):
        steps.append(1)
        return p if len(steps) > 2 else Target(p.argmax(-1), p.amax(-1) > 0)


steps = []


@pytest.mark.parametrize("name", ["checkpoint/mine.pt", "metrics.jsonl", "result.json"])
def test_what_another_tool_wrote_is_no_run(tmp_path, tiny, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("precious")
    for force in (False, True):
        with pytest.raises(UsageError, match="is not empty and holds no run: give another --out"):
            fit(tiny(), tmp_path, force=force, quiet=True)
    assert content(tmp_path) == {name: b"precious"}


def test_a_run_stays_until_the_one_that_replaces_it_has_begun(tmp_path, tiny):
    fit(tiny(), tmp_path / "a", quiet=True)
    (tmp_path / "a" / "report.html").write_text("its page")
    before = content(tmp_path / "a")
    with pytest.raises(UsageError, match="already holds a run"):
        fit(tiny("fixmatch"), tmp_path / "a", quiet=True)
    wrong = tiny(f"{__name__}:Wrong")
    with pytest.raises(UsageError, match="teaches a Tensor"):
        fit(wrong, tmp_path / "a", force=True, quiet=True)
    assert content(tmp_path / "a") == before
    steps.clear()
    with pytest.raises(UsageError, match="teaches a Tensor"):
        fit(tiny(f"{__name__}:Late"), tmp_path / "a", force=True, quiet=True)
    assert "report.html" not in content(tmp_path / "a")  # two steps of the new one are done
    assert "Late" in (tmp_path / "a" / "recipe.json").read_text()
    fit(tiny("fixmatch"), tmp_path / "a", force=True, quiet=True)
    assert set(content(tmp_path / "a")) == set(before) - {"report.html"}


def test_a_disk_that_is_full_from_the_start_costs_no_run(tmp_path, tiny, monkeypatch):
    fit(tiny(), tmp_path / "a", quiet=True)
    before = content(tmp_path / "a")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("maxmatch.train.fit.save_model", full)
    for _ in range(2):
        # The run that is there is the old one: to go on with it is no remedy.
        with pytest.raises(UserError, match="No space left on device; mend that, or give another --out"):
            fit(tiny("fixmatch"), tmp_path / "a", force=True, quiet=True)
        assert content(tmp_path / "a") == before


def test_a_run_that_was_killed_before_its_first_step_does_not_take_the_old_one_with_it(tmp_path):
    (tmp_path / "recipe.json").write_text("old")
    (tmp_path / "result.json").write_text("done")
    claim(tmp_path, force=True)
    (tmp_path / "recipe.json").write_text("killed")
    claim(tmp_path, force=True)  # the old one has more to lose
    assert content(tmp_path) == {f"{BEFORE}/recipe.json": b"old", f"{BEFORE}/result.json": b"done"}
    (tmp_path / "recipe.json").write_text("begun")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "1").write_text("steps")
    claim(tmp_path, force=True)
    assert content(tmp_path) == {f"{BEFORE}/recipe.json": b"begun", f"{BEFORE}/checkpoint/1": b"steps"}


def test_a_run_without_a_step_to_lose_is_in_nobody_s_way(tmp_path, tiny):
    with pytest.raises(UsageError, match="teaches a Tensor"):
        fit(tiny(f"{__name__}:Wrong"), tmp_path / "a", quiet=True)
    assert (tmp_path / "a" / "recipe.json").exists()
    fit(tiny(), tmp_path / "a", quiet=True)
    assert '"maxmatch"' in (tmp_path / "a" / "recipe.json").read_text()
    assert not (tmp_path / "a" / BEFORE).exists()


def test_who_stops_before_the_first_step_has_the_old_run_back(tmp_path):
    for name in ("old", "new"):
        (tmp_path / "recipe.json").write_text(name)
        if name == "old":
            (tmp_path / "result.json").write_text("done")
            claim(tmp_path, force=True)
    with pytest.raises(Interrupted, match="is as it was") as stopped, replacing(tmp_path, lambda: False):
        raise Interrupted("stopped at step 0, to go on type ...", 2)
    assert stopped.value.code == 130
    assert content(tmp_path) == {"recipe.json": b"old", "result.json": b"done"}


def test_ctrl_c_a_second_time_costs_no_run_either(tmp_path):
    (tmp_path / "recipe.json").write_text("old")
    claim(tmp_path, force=True)
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path, lambda: False):
        raise KeyboardInterrupt
    assert content(tmp_path) == {"recipe.json": b"old"}


def test_a_first_run_that_is_stopped_before_its_first_step_may_go_on(tmp_path):
    claim(tmp_path, force=False)
    (tmp_path / "recipe.json").write_text("new")
    with pytest.raises(Interrupted, match="to go on type"), replacing(tmp_path, lambda: False):
        raise Interrupted("stopped at step 0, to go on type ...", 2)
    assert content(tmp_path) == {"recipe.json": b"new"}


def test_all_that_a_run_writes_is_known(tmp_path, tiny):
    pytest.importorskip("tensorboard")
    fit(tiny(), tmp_path, quiet=True, log=["tensorboard"])
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")} == {*PARTS} - {
        "wandb",
        "report.html",
    }
    assert not (tmp_path / BEFORE).exists()


@pytest.mark.parametrize("text", ['{"soup": "tomato"}', '{"train": {"steps": 3}}', "[]"])
@pytest.mark.parametrize("force", [False, True])
def test_a_recipe_that_a_user_wrote_is_no_run_s(tiny, tmp_path, text, force):
    (tmp_path / "recipe.json").write_text(text)
    (tmp_path / "report.html").write_text("mine")
    before = content(tmp_path)
    with pytest.raises(UsageError, match="is not empty and holds no run: give another --out"):
        fit(tiny(), tmp_path, force=force, quiet=True)
    assert content(tmp_path) == before


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_folder_whose_path_is_no_text_is_refused_before_it_is_made(tiny, tmp_path):
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    with pytest.raises(UsageError, match="its path is not in UTF-8"):
        fit(tiny(), place / "run", quiet=True)
    assert not place.exists()

"""What a run says when it ends before its time: what to type, on as many processes, by the right command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from maxmatch.errors import UserError
from maxmatch.train.distributed import Ranks
from maxmatch.train.endings import one_line_errors, one_voice
from maxmatch.train.launcher import launcher, note_job
from maxmatch.train.recipe import Recipe
from maxmatch.train.recipes import compose

TWO = Ranks(0, 2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run that this job has begun."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    (tmp_path / "recipe.json").write_text("{}")
    note_job(tmp_path, [launcher()])
    return tmp_path


def pretraining() -> Recipe:
    return compose("digits", "moco", given={"train": {"batch": 2, "ratio": 8}})


def said(error: Exception, recipe: Recipe, folder: Path, ranks: Ranks) -> str:
    with pytest.raises(UserError) as found, one_voice(recipe, folder, ranks), one_line_errors(recipe, folder, ranks):
        raise error
    return str(found.value)


@pytest.mark.parametrize("error", [RuntimeError("[gloo/transport] Connection closed by peer"), OSError(28, "full")])
def test_a_pretraining_on_several_processes_is_gone_on_with_by_torchrun_and_pretrain(folder, error):
    line = said(error, pretraining(), folder, TWO)
    assert line.endswith(f"type torchrun --nproc_per_node=2 -m maxmatch pretrain --resume --out {folder}")


def test_on_several_machines_the_command_has_all_of_them(folder, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    line = said(OSError(28, "full"), compose("digits"), folder, Ranks(0, 8))
    where = "--nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=HOST:29500 --nproc_per_node=4"
    assert line.endswith(f"then type torchrun {where} -m maxmatch train --resume --out {folder}")


def test_a_run_that_was_to_be_replaced_is_not_offered_to_go_on_with(folder, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    line = said(RuntimeError("NCCL error"), compose("digits"), folder, TWO)
    assert line == (
        "a process of this run is gone, and the others stop; the run had not begun: type the same command again"
    )
    assert said(OSError(28, "full"), compose("digits"), folder, TWO).endswith("or give another --out")


@pytest.mark.parametrize(
    ("settings", "ranks", "line"),
    [
        ({"batch": 64}, Ranks(), "begin again by the same words, and --force --set train.micro_batch=128"),
        ({"batch": 64}, TWO, "begin again on more of them, or by torchrun --nproc_per_node=2 -m maxmatch train and the "
         "rest as before, with --force --set train.batch=32"),
        ({"batch": 6}, TWO, "with --force --set train.batch=2"),
        ({"batch": 2}, TWO, "with --force --set train.ratio=3"),
    ],
)  # fmt: skip
def test_too_little_memory_says_what_these_processes_can_do(folder, settings, ranks, line):
    """Several processes refuse train.micro_batch, and a batch that they do not divide."""
    recipe = compose("digits", "fixmatch", given={"train": {"ratio": 7, **settings}})
    told = said(torch.OutOfMemoryError("CUDA out of memory"), recipe, folder, ranks)
    assert told.endswith(line)
    name, value = told.split("--set train.")[1].split("=")
    assert int(value) % ranks.count == 0 or name != "batch"
    assert ("micro_batch" in told) == (ranks.count == 1)
    replace(recipe.train, **{name: int(value)})


def test_where_each_process_has_one_image_a_smaller_net_is_what_is_left(folder):
    recipe = compose("digits", "fixmatch", given={"train": {"batch": 2, "ratio": 1}})
    told = said(MemoryError(), recipe, folder, TWO)
    assert told.endswith("with --force --set net.name=, a smaller one")
    assert "more of them" not in told


def test_too_little_memory_for_a_pretraining_names_its_command(folder):
    told = said(MemoryError(), pretraining(), folder, TWO)
    assert told.endswith("-m maxmatch pretrain and the rest as before, with --force --set train.ratio=4")

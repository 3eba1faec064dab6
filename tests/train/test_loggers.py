"""What `--log` names, beside metrics.jsonl."""

import json
import sys
from types import SimpleNamespace

import pytest

from maxmatch import fit
from maxmatch.errors import UsageError, UserError
from maxmatch.train.log import read_metrics
from maxmatch.train.loggers import find_logger


class Wandb:
    """Stands in for the package: what it is asked, and what it is told of a run."""

    def __init__(self):
        self.asked, self.told, self.axes, self.ended = [], [], [], 0

    def init(self, **asked):
        self.asked.append(asked)
        return SimpleNamespace(log=self.told.append, define_metric=self.define, finish=self.finish)

    def define(self, name, step_metric):
        self.axes.append((name, step_metric))

    def finish(self):
        self.ended += 1


@pytest.fixture
def wandb(monkeypatch):
    stand_in = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    return stand_in


def test_figures_go_to_tensorboard_too(tiny, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(tiny(), tmp_path / "a", log=["tensorboard"], quiet=True)
    events = EventAccumulator(str(tmp_path / "a" / "tensorboard"))
    events.Reload()
    seen = {event.step: event.value for event in events.Scalars("train/supervised_loss")}
    lines = read_metrics(tmp_path / "a" / "metrics.jsonl")
    assert seen == pytest.approx({x["step"]: x["supervised_loss"] for x in lines if x["kind"] == "train"})


def test_figures_go_to_wandb_over_their_step_and_a_run_that_goes_on_is_the_same_there(wandb, tiny, tmp_path):
    folder = tmp_path / "a"
    given = {"log_every": 1, "checkpoint_every": 1}
    fit(tiny(train={**given, "steps": 2}), folder, log=["wandb"], quiet=True)
    fit(tiny(train={**given, "steps": 4}), folder, log=["wandb"], quiet=True, resume=True)
    first, second = wandb.asked
    assert first["id"] == second["id"]
    assert (first["name"], first["dir"], first["resume"]) == ("a", folder, "allow")
    assert second["config"] == json.loads((folder / "recipe.json").read_text())
    assert wandb.axes == [("*", "step")] * 2
    assert wandb.ended == 2
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if line["kind"] == "train"]
    seen = [(told["step"], told["train/lr"]) for told in wandb.told if "train/lr" in told]
    assert seen == [(line["step"], line["lr"]) for line in lines]
    assert len(seen) == 4

    fit(tiny(train={**given, "steps": 1}), folder, log=["wandb"], quiet=True, force=True)
    assert wandb.asked[-1]["id"] != first["id"]


def test_a_wandb_that_can_t_be_had_is_one_line(wandb, tiny, tmp_path, monkeypatch):
    def refuse(**_):
        raise RuntimeError("No API key")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(UserError, match=r"^--log wandb: RuntimeError: No API key; type wandb login, or"):
        fit(tiny(), tmp_path / "a", log=["wandb"], quiet=True)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r'^--log wandb: type pip install "maxmatch\[wandb\]"$'):
        find_logger("wandb")

"""The weights that a run starts from (`--init`): a finished run's, an unfinished one's so far, or those of a file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import nn

from maxmatch.errors import UsageError, listed
from maxmatch.nets import head_prefixes, num_features
from maxmatch.nets.head import empty_head
from maxmatch.nets.model_file import ModelInfo, load_model, read_info
from maxmatch.train.checkpoint import checkpoints, newest_weights
from maxmatch.train.loop import Training
from maxmatch.train.recipe import Recipe

SAVED, INITIAL = "model.safetensors", "initial.safetensors"


def find_start(recipe: Recipe) -> Path | None:
    """What `--init` names, if anything: a weight file, or the folder of a run that has not finished."""
    if recipe.train.init is None:
        return None
    given = Path(recipe.train.init)
    if given.is_file():
        return given
    unfinished = not (given / SAVED).exists() and (given / INITIAL).exists() and checkpoints(given / "checkpoint")
    return given if unfinished else given / SAVED


def start_info(start: Path) -> ModelInfo:
    """What the net that a run starts from says of itself."""
    return read_info(start / INITIAL if start.is_dir() else start)


def take_weights(training: Training, start: Path) -> None:
    """Start net and average from those of the same net and classes; from a pretraining, all but the head.

    That says nothing yet: what it would say of features that are learned already, if it were drawn, would spoil them.
    """
    with own_generators(training.recipe):  # making the net draws weights; the run's own draws go on as if it had not
        net, info = _load(training, start)
    ours, theirs = training.info, info
    encoder = not theirs.classes and bool(ours.classes)
    same = (theirs.net["name"], theirs.preprocessing.channels) == (ours.net["name"], ours.preprocessing.channels)
    alike = (theirs.classes, theirs.net.get("projection")) == (ours.classes, ours.net.get("projection"))
    if not same or not (encoder or alike):
        both = theirs.net["name"] == ours.net["name"] and theirs.classes and ours.classes
        if both and theirs.classes != ours.classes:
            raise UsageError(f"{start}: {_apart(theirs.classes, ours.classes)}; mend a name, or leave --init out")
        rename = f"--set net.name={theirs.net['name']}, or " if theirs.net["name"] != ours.net["name"] else ""
        raise UsageError(
            f"{start}: {_told(theirs)}; this run has {_told(ours)}: type {rename}another --init, or leave it out"
        )
    weights = net.state_dict()
    for target in (training.step.net, training.step.average.net):
        if encoder:
            empty_head(target, num_features(target))
            mine = {n: t for n, t in target.state_dict().items() if n.startswith(head_prefixes(target))}
            weights = {n: t for n, t in net.state_dict().items() if not n.startswith(head_prefixes(net))} | mine
        try:
            target.load_state_dict(weights)
        except RuntimeError:  # of a transformer the embedding of places, for example
            side = theirs.preprocessing.height
            fix = f"type --set data.side={side}" if side != ours.preprocessing.height else "leave --init out"
            raise UsageError(
                f"{start}: its weights are for images of {side} px, and {ours.net['name']} has others for those of "
                f"{ours.preprocessing.height}; {fix}"
            ) from None


def own_generators(recipe: Recipe) -> AbstractContextManager[None]:
    """Within: torch's generators are the run's; afterwards as they were. Other GPUs belong to other ranks."""
    return torch.random.fork_rng(
        [torch.cuda.current_device()] if recipe.train.device == "cuda" and torch.cuda.is_available() else []
    )


def _load(training: Training, start: Path) -> tuple[nn.Module, ModelInfo]:
    if not start.is_dir():
        return load_model(start)
    net, info = load_model(start / INITIAL)
    step, weights = newest_weights(start / "checkpoint", of_average=info.net.get("projection") is None)
    net.load_state_dict(weights)
    training.notes.append(f"--init {start}: that run has not finished; its weights after step {step} are taken")
    return net, info


def _apart(theirs: Sequence[str], ours: Sequence[str]) -> str:
    """How the classes of two nets differ, in words."""
    only = [
        f"{which} the class{'es' * (len(names) > 1)} {listed(sorted(names), 5)}"
        for which, names in (("it has", {*theirs} - {*ours}), ("this run has", {*ours} - {*theirs}))
        if names
    ]
    return ", ".join(only) or "its classes are in another order than this run's"


def _told(info: ModelInfo) -> str:
    """A net in words: its name, what it tells apart, and what it takes."""
    head = f"{len(info.classes)} classes" if info.classes else f"a projection to {info.net.get('projection')} numbers"
    return f"{info.net['name']}, {head}, {info.preprocessing.channels} channels"

"""From the parameters of the estimator to the recipe of a run, with defaults that suit the size of the pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from maxmatch.estimator.pictures import Pictures
from maxmatch.nets.device import best_device
from maxmatch.settings import Values, overlay, plain
from maxmatch.train.recipe import Recipe
from maxmatch.train.recipes import compose
from maxmatch.train.suited import ON_CPU, finetuned, whole

STEPS = 800  # where neither steps nor epochs are asked for
SMALL = 16  # pixels a side, up to which the recipe for digits is the base; above, the paper's
PLACES = {
    "k": "method.k", "over": "method.over", "net": "net.name", "policy": "augment.policy", "flip": "augment.flip",
    "steps": "train.steps", "batch": "train.batch", "ratio": "train.ratio", "lr": "train.lr", "device": "train.device",
}  # fmt: skip
ELSEWHERE = {
    "method.name": "method",
    "train.seed": "random_state",
    "data.name": "X",
    "data.labels": "y",
}


def make_recipe(parameters: Mapping[str, Any], pictures: Pictures, seed: int) -> Recipe:
    """The recipe that the estimator's parameters mean for such pictures; None keeps the recipe's own."""
    if not isinstance(parameters["method"], str):
        raise ValueError(_no_name(parameters["method"]))
    given: Values = {}
    for name, place in PLACES.items():
        if parameters[name] is not None:
            _put(given, place, plain_value(parameters[name]))
    settings = parameters["settings"] or {}
    if not isinstance(settings, Mapping):
        raise ValueError(f"settings = {settings!r}: a dict such as {{'train.weight_decay': 0.001}} is wanted")
    for place, value in settings.items():
        _put(given, _allowed(place), plain_value(value))
    train = given.setdefault("train", {})
    if train.get("epochs") in (None, "unset"):
        train.setdefault("steps", STEPS)
    small = max(pictures.shape[1:]) <= SMALL
    device = best_device() if parameters["device"] == "auto" else str(parameters["device"])
    quick = ON_CPU if not small and device != "cuda" else {}  # the paper's net would take hours there
    if given.get("net", {}).get("pretrained") is True:
        quick = finetuned(device == "cuda", whole(train.get("steps")) or 0, train)
    layers = overlay(quick, _short(pictures, small), given, {"data": {"labels": "all"}, "train": {"seed": seed}})
    return compose("arrays", parameters["method"], "digits" if small else "paper", layers)


def plain_value(value: Any) -> Any:
    """A parameter as JSON knows it: numbers and arrays of numpy, as a grid may hold them, become Python's."""
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, tuple | list):
        return [plain_value(item) for item in value]
    return plain(value.tolist() if isinstance(value, np.generic | np.ndarray) else value)


def _no_name(method: Any) -> str:
    """What is said of a method that is no word: how it is named, and where its options go."""
    cls = method if isinstance(method, type) else type(method)
    place = "module:Class" if cls.__module__ in ("__main__", "builtins") else f"{cls.__module__}:{cls.__qualname__}"
    told = f"method = {cls.__name__}: a name is wanted, such as method='maxmatch' or method={place!r}"
    return f"{told}; its options are k and over, all others settings={{'method.NAME': VALUE}}"


def _short(pictures: Pictures, small: bool) -> Values:
    """What a short run on such pictures wants beside its named recipe.

    Grey pictures are characters as often as not, so they are never flipped. A row that does not fill its grid is no
    picture: its places mean something, so nothing is shifted. A checkpoint at the end is enough.
    """
    colour = pictures.shape[0] == 3 and not small
    augment: dict[str, Any] = {} if colour else {"policy": "gentle", "flip": False}
    if pictures.padded:
        augment["shift"] = 0.0
    train = {"schedule": "cosine", "ema_decay": "auto", "log_every": 20, "checkpoint_every": 2**30}
    return {"augment": augment, "net": {"batchnorm_momentum": "auto"}, "train": train}


def _put(values: Values, place: str, value: Any) -> None:
    section, _, field = place.partition(".")
    values.setdefault(section, {})[field] = value


def _allowed(place: str) -> str:
    """A key of `settings`, unless the estimator has a parameter for it."""
    taken = {where: name for name, where in PLACES.items()} | ELSEWHERE
    if place in taken:
        raise ValueError(f"settings[{place!r}]: the estimator has {taken[place]} for it; give that instead")
    if str(place).count(".") != 1:
        raise ValueError(f"settings[{place!r}]: write section.field, for example 'train.weight_decay'")
    return str(place)

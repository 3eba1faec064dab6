"""Epochs as steps: what a recipe that counts in epochs means for a pool of a given size.

An epoch is one pass over the unlabelled images, without the last, smaller batch, as the public ImageNet code has it:
1,153,050 images by 320 are 3,603 steps. The order of the images goes on over the end of an epoch, so none is left out.
For a method that looks at labelled images alone it is one pass over those.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from maxmatch.train.recipe import Recipe, TrainSettings, settle_horizons
from maxmatch.train.rules import INTERVALS


def steps_of_epoch(train: TrainSettings, unlabelled: int) -> int:
    """Steps of one pass over so many unlabelled images.

    >>> steps_of_epoch(TrainSettings(batch=64, ratio=5), 1_153_050)
    3603
    """
    return max(1, unlabelled // (train.batch * train.ratio))


def settle_epochs(recipe: Recipe, unlabelled: int, labelled: int = 0) -> Recipe:
    """The recipe with steps, warm-up and intervals for so many images; as it is where it has no epochs."""
    train = recipe.train
    if train.epochs is None:
        return recipe
    length = steps_of_epoch(train, unlabelled)
    if not recipe.method.needs.unlabelled:
        length = max(1, labelled // train.batch)
    every: dict[str, Any] = {name: getattr(train, name) or length for name in INTERVALS}
    settled = tuple(f"train.{name}" for name in INTERVALS if getattr(train, name) == 0)
    steps, warmup = train.epochs * length, train.warmup_epochs * length
    made = replace(recipe, train=replace(train, steps=steps, warmup=warmup, **every))
    return replace(settle_horizons(made), settled=(*recipe.settled, *settled))

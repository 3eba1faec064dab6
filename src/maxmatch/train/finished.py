"""A finished run opened again: its recipe, its classifier, the images it was trained on, and who was labelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from maxmatch.augment.views import Views
from maxmatch.data import DATASETS
from maxmatch.data.datasets import Images
from maxmatch.data.split import OtherImages, Split, load_split, saved_left_out, saved_tested
from maxmatch.errors import UserError, listed, tell
from maxmatch.evaluate.classifier import Classifier
from maxmatch.evaluate.classifier import load as load_classifier
from maxmatch.evaluate.errors import predict_logits
from maxmatch.train.batches import make_views
from maxmatch.train.checkpoint import restore_policy
from maxmatch.train.pictures import load_data, refuse_moved
from maxmatch.train.recipe import Recipe
from maxmatch.train.resume import read_recipe


class Finished(NamedTuple):
    """What a finished run consists of; its views have what the policy had learned."""

    recipe: Recipe
    classifier: Classifier
    images: Images
    split: Split
    views: Views

    @property
    def device(self) -> torch.device:
        return next(self.classifier.net.parameters()).device

    def logits(self, images: Tensor) -> Tensor:
        """Logits (N, C) of uint8 images."""
        net, preprocessing = self.classifier.net, self.classifier.preprocessing
        return predict_logits(net, images, preprocessing, self.recipe.evaluate.batch)


def open_run(
    folder: Path,
    device: str = "cpu",
    data: Images | None = None,
    call: str = "maxmatch.judge(folder, data=...)",
    now: bool = False,
    warn: Callable[[str], None] = tell,
    test: bool = True,
    quiet: bool = False,
) -> Finished:
    """The run of a folder; `data` stands in for a data set by name. `call` is what to type in Python with such data.

    Pictures are those it was trained on; with `now`, where all labels of a folder were shown, those that are there now.
    `warn` hears of a method that is not what it was. Without `test` no test picture is read; unless `quiet` it says
    how far it is.
    """
    recipe = read_recipe(folder, warn)
    classifier = load_classifier(folder, device)
    if data is None and recipe.data.name not in (*DATASETS, "folder"):
        raise UserError(f"{folder} was trained on data of your own: in Python, {call}")
    if data is None:
        refuse_moved(recipe, folder)
    left_out = saved_left_out(folder / "split.json")
    images = load_data(_read_when_asked(recipe), quiet, left_out, test=test) if data is None else data
    try:
        split = load_split(folder / "split.json", images.sha256())  # refuses other images than the run's own
    except OtherImages:
        if not now or recipe.data.name != "folder" or recipe.data.labels != "all" or data is not None:
            raise
        if images.classes != tuple(classifier.classes):
            raise UserError(_other_classes(folder, recipe, classifier.classes, images.classes)) from None
        changed = "pictures or labels were changed since it was trained; taken as they are now"
        tell(f"warning: {folder}: {changed}")
        split = Split(np.flatnonzero(images.y.numpy() >= 0), np.arange(len(images.y)))
    views = make_views(recipe.augment, images.side).to(next(classifier.net.parameters()).device)
    if views.learner is not None:
        restore_policy(folder / "checkpoint", views.learner.learned)
    return Finished(recipe, classifier, images, split, views)


def _other_classes(folder: Path, recipe: Recipe, then: Sequence[str], now: Sequence[str]) -> str:
    gone, new = (sorted({*one} - {*other}) for one, other in ((then, now), (now, then)))
    told = [f"{listed(names, 3)} {when}" for names, when in ((gone, "gone"), (new, "new")) if names]
    what = f"{folder} belongs to other images than {recipe.data.path} has now, the classes differ ({', '.join(told)})"
    return f"{what}: name them as they were, or train anew, without --init"


def _read_when_asked(recipe: Recipe) -> Recipe:
    """Of training pictures those are read that are asked for: a test needs none of them, a report some."""
    return replace(recipe, data=replace(recipe.data, resident=False)) if recipe.data.of_pictures else recipe


def seen_before(folder: Path, images: Images) -> list[str]:
    """What to say where test pictures may have been training pictures of the run in `folder`."""
    theirs = saved_tested(folder / "split.json")
    others = len({*images.tested} - {*theirs}) if theirs is not None else 0
    if not others:
        return []
    told = f"{others} of {len(images.tested)} test pictures were not in the test of {folder}"
    return [f"{told}, which has learned from those that were in its folder: only of new ones the error is fair"]

"""A finished run opened again: its recipe, its classifier, the images it was trained on, and who was labelled."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from maxmatch.augment.views import Views
from maxmatch.data import DATASETS
from maxmatch.data.datasets import Images
from maxmatch.data.split import Split, load_split, saved_left_out
from maxmatch.errors import UserError
from maxmatch.evaluate.classifier import Classifier
from maxmatch.evaluate.classifier import load as load_classifier
from maxmatch.evaluate.errors import predict_logits
from maxmatch.train.batches import make_views
from maxmatch.train.checkpoint import restore_policy
from maxmatch.train.pictures import load_data, refuse_moved
from maxmatch.train.recipe import Recipe
from maxmatch.train.resume import saved_recipe


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
    folder: Path, device: str = "cpu", data: Images | None = None, call: str = "maxmatch.judge(folder, data=...)"
) -> Finished:
    """The run of a folder; `data` stands in for a data set by name. `call` is what to type in Python with such data."""
    recipe = saved_recipe(folder)
    classifier = load_classifier(folder, device)
    if data is None and recipe.data.name not in (*DATASETS, "folder"):
        raise UserError(f"{folder} was trained on data of your own: in Python, {call}")
    if data is None:
        refuse_moved(recipe, folder)
    images = load_data(recipe, left_out=saved_left_out(folder / "split.json")) if data is None else data
    split = load_split(folder / "split.json", images.sha256())  # refuses other images than the run's own
    views = make_views(recipe.augment, images.side).to(next(classifier.net.parameters()).device)
    if views.learner is not None:
        restore_policy(folder / "checkpoint", views.learner.learned)
    return Finished(recipe, classifier, images, split, views)

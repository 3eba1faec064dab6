"""A finished run, judged again on its test set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from maxmatch.data import DATASETS
from maxmatch.data.datasets import Images, load_images
from maxmatch.data.split import load_split
from maxmatch.errors import UserError
from maxmatch.evaluate.classifier import load as load_classifier
from maxmatch.evaluate.errors import error_rate, predict_logits, top5_error
from maxmatch.evaluate.robust import robust_errors
from maxmatch.train.batches import make_views
from maxmatch.train.checkpoint import restore_policy
from maxmatch.train.resume import saved_recipe


def judge(folder: Path, k: int | None = None, device: str = "cpu", data: Images | None = None) -> dict[str, Any]:
    """Error, top-5 error, both robust errors over `k` views (the recipe's by default) and the confusion matrix."""
    from sklearn.metrics import confusion_matrix

    recipe = saved_recipe(folder)
    classifier = load_classifier(folder, device)
    if data is None and recipe.data.name not in DATASETS:
        raise UserError(f"{folder} was trained on data of your own: in Python, maxmatch.judge(folder, data=...)")
    images = load_images(recipe.data.name, recipe.data.protocol) if data is None else data
    load_split(folder / "split.json", images.sha256())  # refuses other images than the run's own
    if images.test_x is None or images.test_y is None:
        raise UserError(f"{folder}: its data has no test set, so its error can't be measured")
    place = next(classifier.net.parameters()).device
    test_x, test_y = images.test_x.to(place), images.test_y.to(place)

    def logits(x: Tensor) -> Tensor:
        return predict_logits(classifier.net, x, classifier.preprocessing, recipe.evaluate.batch)

    scores = logits(test_x)
    k = k or recipe.evaluate.robust_views
    views = make_views(recipe.augment).to(place)
    if views.learner is not None:
        restore_policy(folder / "checkpoint", views.learner.learned)
    robust = robust_errors(lambda x: logits(x).argmax(-1), test_x, test_y, views, k, recipe.train.seed)
    matrix = confusion_matrix(test_y.cpu(), scores.argmax(-1).cpu(), labels=range(len(classifier.classes)))
    return {
        "classes": list(classifier.classes),
        "error": error_rate(scores, test_y),
        "top5_error": top5_error(scores, test_y),
        "robust_error": robust.robust_error,
        "robust_error_paper": robust.robust_error_paper,
        "robust": {"k": k, "policy": recipe.augment.policy, "seed": recipe.train.seed},
        "confusion": matrix.tolist(),
    }

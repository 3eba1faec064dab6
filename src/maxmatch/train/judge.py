"""A finished run, judged again on its test set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from maxmatch.data.datasets import Images
from maxmatch.data.shards import is_sharded
from maxmatch.errors import UsageError, UserError, tell
from maxmatch.evaluate.errors import error_rate, top5_error
from maxmatch.evaluate.robust import robust_errors
from maxmatch.progress import Bar
from maxmatch.train.finished import open_run, seen_before
from maxmatch.train.recipe import Recipe


def judge(
    folder: str | Path,
    k: int | None = None,
    device: str | torch.device = "cpu",
    data: Images | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Error, top-5 error, both robust errors over `k` views (the recipe's by default) and the confusion matrix.

    In percent, as `error`, `top5_error`, `robust_error` and `robust_error_paper`; `robust` says by which views;
    `confusion` has a row for each true class and a column for each predicted one, in the order of `classes`.
    `folder` is that of a finished run. `data` are its images where it was trained on arrays, from_arrays(x, y, test_x,
    test_y), with the same x and y and any test set; a data set by name and a folder of pictures are found again without
    it. `device` is where it computes: 'cpu', 'cuda', 'mps', or 'auto' for the fastest that is here. `quiet` shows no
    progress.
    """
    from sklearn.metrics import confusion_matrix

    folder = Path(folder)
    if k is not None and (not isinstance(k, int | np.integer) or k < 1):
        raise UsageError(f"k = {k!r}: how many strong views of an image to judge, 1 or more; or leave it out")
    finished = open_run(folder, str(device), data, now=True, quiet=quiet)
    recipe, images, classes = finished.recipe, finished.images, finished.classifier.classes
    if images.test_x is None or images.test_y is None or not len(images.test_x):
        raise UserError(f"{folder}: its data has no test set, so its error can't be measured{_remedy(recipe)}")
    for line in seen_before(folder, images):
        tell(f"warning: {line}")
    test_x, test_y = images.test_x.to(finished.device), images.test_y.to(finished.device)
    scores = finished.logits(test_x)
    k = recipe.evaluate.robust_views if k is None else int(k)
    with Bar("robust error", len(test_y), quiet) as bar:
        robust = robust_errors(
            lambda x: finished.logits(x).argmax(-1), test_x, test_y, finished.views, k, recipe.train.seed, bar.advance
        )
    matrix = confusion_matrix(test_y.cpu(), scores.argmax(-1).cpu(), labels=range(len(classes)))
    return {
        "classes": list(classes),
        "error": error_rate(scores, test_y),
        "top5_error": top5_error(scores, test_y),
        "robust_error": robust.robust_error,
        "robust_error_paper": robust.robust_error_paper,
        "robust": {"k": k, "policy": recipe.augment.policy, "seed": recipe.train.seed},
        "confusion": matrix.tolist(),
    }


def _remedy(recipe: Recipe) -> str:
    """What to do about data without a test."""
    if recipe.data.name != "folder":
        return ""
    if is_sharded(Path(str(recipe.data.path))):
        return "; put pictures into test/CLASS/ of the folder that was packed, and pack it anew: maxmatch data shard"
    # With a part of the labels shown a run is asked about nothing but its own pictures.
    after = "type it again" if recipe.data.labels == "all" else "train anew"
    return f"; put pictures into {recipe.data.path}/test/CLASS/ and {after}"

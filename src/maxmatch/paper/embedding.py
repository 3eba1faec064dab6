"""Figure 8: what the head of a trained net sees of test images, laid out in two dimensions by t-SNE."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maxmatch.errors import UserError
from maxmatch.evaluate.errors import in_batches
from maxmatch.nets import features
from maxmatch.nets.device import best_device
from maxmatch.train.finished import open_run

IMAGES = {"smoke": 150, "short": 2_000, "full": 10_000}
PERPLEXITY = 30.0


@dataclass(frozen=True, eq=False)
class Embedding:
    """Places (N, 2) of N test images, their true labels (N,) and the names of the classes."""

    places: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    classes: tuple[str, ...]
    perplexity: float = PERPLEXITY


def embed(folder: Path, budget: str, seed: int, device: str = "auto") -> Embedding:
    """t-SNE of the features of the first test images by the evaluated net of a finished run."""
    from sklearn.manifold import TSNE

    run = open_run(folder, best_device() if device == "auto" else device)
    if run.images.test_x is None or run.images.test_y is None:
        raise UserError(f"{folder}: its data has no test images to lay out; give another --data")
    count = IMAGES[budget]
    net, preprocessing = run.classifier.net, run.classifier.preprocessing
    dtype = next(net.parameters()).dtype
    x = run.images.test_x[:count].to(run.device)
    seen = in_batches(lambda part: features(net, preprocessing(part, dtype)), x, run.recipe.evaluate.batch)
    method = TSNE(perplexity=PERPLEXITY, init="pca", random_state=seed)
    places = method.fit_transform(seen.float().cpu().numpy())
    labels = run.images.test_y[:count].numpy()
    return Embedding(np.asarray(places), labels, run.images.classes)

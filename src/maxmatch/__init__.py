"""MaxMatch: semi-supervised image classification with worst-case consistency. Many pictures, few labels.

The public names are loaded when they are first used, so that `import maxmatch` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from maxmatch.data.datasets import Images, from_arrays, load_images
    from maxmatch.estimator import LabeledKFold, MaxMatchClassifier
    from maxmatch.evaluate.classifier import Classifier, load
    from maxmatch.methods.fixmatch import FixMatch
    from maxmatch.methods.freematch import FreeMatch
    from maxmatch.methods.maxmatch import MaxMatch
    from maxmatch.methods.supervised import Supervised
    from maxmatch.train.fit import fit
    from maxmatch.train.judge import judge
    from maxmatch.train.recipe import Recipe
    from maxmatch.train.recipes import compose

_PLACES = {
    "Classifier": "evaluate.classifier",
    "FixMatch": "methods.fixmatch",
    "FreeMatch": "methods.freematch",
    "Images": "data.datasets",
    "LabeledKFold": "estimator",
    "MaxMatch": "methods.maxmatch",
    "MaxMatchClassifier": "estimator",
    "Recipe": "train.recipe",
    "Supervised": "methods.supervised",
    "compose": "train.recipes",
    "fit": "train.fit",
    "judge": "train.judge",
    "from_arrays": "data.datasets",
    "load": "evaluate.classifier",
    "load_images": "data.datasets",
}
__all__ = [
    "Classifier", "FixMatch", "FreeMatch", "Images", "LabeledKFold", "MaxMatch", "MaxMatchClassifier", "Recipe",
    "Supervised", "compose", "fit", "from_arrays", "judge", "load", "load_images",
]  # fmt: skip


if not TYPE_CHECKING:  # a type checker, which reads the imports above, would take any name for one that is here

    def __getattr__(name: str) -> Any:
        if name in _PLACES:
            return getattr(importlib.import_module(f"maxmatch.{_PLACES[name]}"), name)
        raise AttributeError(f"module 'maxmatch' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

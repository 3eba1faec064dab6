"""scikit-learn's manners: MaxMatchClassifier trains on arrays, rows or files, LabeledKFold splits few labels fairly."""

from __future__ import annotations

from maxmatch.estimator.classifier import MaxMatchClassifier
from maxmatch.estimator.labeled_kfold import LabeledKFold

__all__ = ["LabeledKFold", "MaxMatchClassifier"]

"""Cross-validation with few labels: the folds share out the labelled rows, the unlabelled ones train every time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator, StratifiedKFold

from maxmatch.estimator.labels import UNLABELLED, as_labels, is_unlabelled


class LabeledKFold(BaseCrossValidator):  # type: ignore[misc]
    """K folds, stratified over the labelled rows: unlabelled rows are in every training part and in no test part.

    A row is unlabelled where y is `unlabelled`, None, NaN, pandas' NA or the empty string. What is tested is then
    measured, and GridSearchCV compares settings on labels alone.

    >>> for train, test in LabeledKFold(2).split(np.zeros((6, 1)), [0, 0, 1, 1, -1, -1]):
    ...     print(train, test)
    [1 3 4 5] [0 2]
    [0 2 4 5] [1 3]
    """

    def __init__(
        self, n_splits: int = 5, *, shuffle: bool = False, random_state: Any = None, unlabelled: Any = UNLABELLED
    ) -> None:
        self.n_splits, self.shuffle, self.random_state, self.unlabelled = n_splits, shuffle, random_state, unlabelled

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Positions (train, test) of each fold; X is only counted, and may be None."""
        if y is None:
            raise ValueError("LabeledKFold needs y, to know which rows are labelled: split(X, y)")
        labels = as_labels(y)
        without = is_unlabelled(labels, self.unlabelled)
        labelled, unlabelled = np.flatnonzero(~without), np.flatnonzero(without)
        if len(labelled) < self.n_splits:
            raise ValueError(f"{self.n_splits} folds but {len(labelled)} labelled rows: give n_splits of that or less")
        folds = StratifiedKFold(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        for train, test in folds.split(labelled, labels[labelled].astype(str)):
            yield np.sort(np.concatenate([labelled[train], unlabelled])), labelled[test]

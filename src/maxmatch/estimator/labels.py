"""Labels as scikit-learn users write them: which rows have none, and the others as numbers 0, 1, ... for training."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

UNLABELLED = -1


def as_labels(y: Any) -> np.ndarray:
    """Labels as (N,). Beside strings in a list -1 and None keep their types: numpy would write them out as words."""
    if hasattr(y, "detach"):  # a tensor
        y = y.detach().cpu().numpy()
    if isinstance(y, list | tuple) and any(isinstance(item, str) for item in y):
        y = np.array(y, dtype=object)
    return np.asarray(column_or_1d(y, warn=True))


def is_unlabelled(y: np.ndarray, mark: Any = UNLABELLED) -> np.ndarray:
    """Where labels (N,) say that there is none: `mark`, None, NaN or the empty string.

    >>> is_unlabelled(np.array(["cat", None, "", -1, float("nan")], dtype=object))
    array([False,  True,  True,  True,  True])
    """
    if y.dtype.kind in "iu":
        return np.asarray(y == mark)
    if y.dtype.kind == "f":
        return np.asarray((y == mark) | np.isnan(y))
    if y.dtype.kind in "US":  # numpy has written the marks out as words
        return np.isin(y.astype(str), ["", "None", "nan", str(mark)])
    return np.array([_is_mark(item, mark) for item in y.tolist()], dtype=bool)


def known_labels(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are labelled (N,), and the labels of those, all of one type."""
    y = as_labels(y)
    known = ~is_unlabelled(y)
    return known, _one_type(y[known]) if y.dtype == object else y[known]


def encode(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Positions (N,) in the sorted classes, -1 where unlabelled, and those classes.

    >>> encode(["dog", None, "cat", "dog"])
    (array([ 1, -1,  0,  1]), array(['cat', 'dog'], dtype='<U3'))
    """
    known, values = known_labels(y)
    if len(values) == 0:
        raise ValueError(f"y: none of {len(known)} rows has a label; give at least one row of each class its label")
    assert_all_finite(values, input_name="y")
    check_classification_targets(values)
    classes, found = np.unique(values, return_inverse=True)
    if len(classes) == 1:
        raise ValueError(f"y: one class alone, {classes[0]!r}; at least two classes need labels")
    codes = np.full(len(known), UNLABELLED)
    codes[known] = found
    return codes, classes


def _is_mark(item: Any, mark: Any) -> bool:
    """NaN is the one number that is not itself."""
    if isinstance(item, bool | str) or item is None:
        return item is None or item == "" or (isinstance(mark, str) and item == mark)
    return bool(item == mark) or bool(item != item)


def _one_type(values: np.ndarray) -> np.ndarray:
    """Objects as an array of the type that they all have."""
    strings = [isinstance(item, str) for item in values]
    if any(strings) and not all(strings):
        raise ValueError(f"y: Unknown label type: {values[0]!r} and others; give all as strings or all as numbers")
    return np.array(values.tolist())

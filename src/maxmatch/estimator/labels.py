"""Labels as scikit-learn users write them: which rows have none, and the others as numbers 0, 1, ... for training."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

UNLABELLED = -1


def as_labels(y: Any) -> np.ndarray:
    """Labels as (N,). Beside strings in a list -1 and None keep their types: numpy would write them out as words.

    So do the numbers and truths of pandas beside its NA, which numpy would make floats.
    """
    if hasattr(y, "detach"):  # a tensor
        y = y.detach().cpu().numpy()
    if hasattr(getattr(y, "dtype", None), "na_value"):  # one of pandas' own types
        y = y.to_numpy(dtype=object)
    if isinstance(y, list | tuple) and any(isinstance(item, str) for item in y):
        y = np.array(y, dtype=object)
    return np.asarray(column_or_1d(y, warn=True))


def is_unlabelled(y: np.ndarray, mark: Any = UNLABELLED) -> np.ndarray:
    """Where labels (N,) say that there is none: `mark`, None, NaN, pandas' NA or the empty string.

    Any other word is a class. In an array of strings 'nan' and '-1' are none: numpy writes NaN and -1 so beside
    strings. A warning says so, and what to give for a class of that name. None numpy leaves as it is, so 'None' is a
    class there too, of which a warning tells.

    >>> is_unlabelled(np.array(["cat", None, "", -1, float("nan")], dtype=object))
    array([False,  True,  True,  True,  True])
    """
    if y.dtype.kind in "iu":
        return np.asarray(y == mark)
    if y.dtype.kind == "f":
        return np.asarray((y == mark) | np.isnan(y))
    if y.dtype.kind in "US":
        return _among_words(y.astype(str), mark)
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
        other = "" if known.all() else "; -1 is unlabelled: give a class of that name another"
        raise ValueError(f"y: one class alone, {classes.tolist()[0]!r}; at least two classes need labels{other}")
    codes = np.full(len(known), UNLABELLED)
    codes[known] = found
    return codes, classes


def _among_words(y: np.ndarray, mark: Any) -> np.ndarray:
    """Where words (N,) say that there is no label, with a warning where they may have been classes, or marks."""
    named = {"", mark} if isinstance(mark, str) else {""}
    written = {"nan", str(mark)} - named
    if found := sorted(written.intersection(y.tolist())):
        told = f"y: {' and '.join(map(repr, found))} in an array of strings is taken as unlabelled, as numpy writes"
        _warn(f"{told} NaN and {mark} so; if it is a class, give y.astype(object), and if not, '' in its place")
    if "None" not in named and (y == "None").any():
        _warn("y: 'None' in an array of strings is taken as a class; if it is none, give np.where(y == 'None', '', y)")
    return np.isin(y, sorted(named | written))


def _warn(text: str) -> None:
    """Where the caller's own code is, whoever of ours or scikit-learn's it called."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("maxmatch", "sklearn"):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)


def _is_mark(item: Any, mark: Any) -> bool:
    """NaN is the one number that is not itself; of pandas' NA, and of it alone, it can't be said."""
    if isinstance(item, bool | str) or item is None:
        return item is None or item == "" or (isinstance(mark, str) and item == mark)
    try:
        return bool(item == mark) or bool(item != item)
    except TypeError:
        return True


def _one_type(values: np.ndarray) -> np.ndarray:
    """Objects as an array of the type that they all have."""
    strings = [isinstance(item, str) for item in values]
    if any(strings) and not all(strings):
        raise ValueError(f"y: Unknown label type: {values[0]!r} and others; give all as strings or all as numbers")
    return np.array(values.tolist())

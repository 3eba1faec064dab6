"""What DATA says, on the command line and in `compose`: a data set or a folder of pictures, and how many labels."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from maxmatch.data import DATASETS
from maxmatch.errors import UsageError, unknown


class DataWord(NamedTuple):
    """A data set's name, or `folder` and where it is; `labels` as it was written, if it was."""

    name: str
    path: str | None = None
    labels: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the section `data` that it stands for."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def read_data(text: str) -> DataWord:
    """`name[@labels]`, or a folder: what exists, has a `/` in it or begins with a dot, perhaps with @labels.

    A folder that is called as a data set is `./digits`.

    >>> read_data("cifar10@250")
    DataWord(name='cifar10', path=None, labels='250')
    """
    if not text.strip():
        raise UsageError("the name of the data is empty: type maxmatch train digits@40, or a folder of pictures")
    name, at, labels = text.partition("@")
    if name in DATASETS:
        if at and not labels:
            raise UsageError(f"{text}: a number of labels is wanted behind the @; type {name}@40")
        return DataWord(name, labels=labels or None)
    if Path(text).exists() or not at:
        folder, share = text, None
    else:
        folder, _, share = text.rpartition("@")
    if "/" in text or text.startswith(".") or Path(text).exists() or Path(folder or "-").is_dir():
        return DataWord("folder", str(Path(folder).absolute()), share)
    raise UsageError(_no_such(name))


def _no_such(name: str) -> str:
    from maxmatch.train.recipes import RECIPES

    if name in RECIPES:
        return f"{name} is a recipe, not a data set: type --config {name}"
    beside = [entry.name for entry in Path().iterdir() if entry.is_dir()]
    near = next(iter(get_close_matches(name, [*DATASETS, *beside], n=1)), None)
    if near in beside:
        return f"there is no folder {name} and no data set of that name: did you mean ./{near}?"
    return f"there is no folder {name}; {unknown('data set', name, DATASETS)}"

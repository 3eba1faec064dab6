"""Who is labelled: a seeded choice among the training images, saved with a checksum so that it can be had again.

`balanced` takes as many of each class; `proportional` follows the class frequencies (at least one each). The
unlabelled pool is all training images, the labelled ones included, as in the FixMatch protocol, unless
`exclude_labelled`.

Three more names stand for what public code did, where it differs:

| | `google` | `usb` | `paper` |
|---|---|---|---|
| svhn | proportional, training set alone, no flips | balanced, with the extra images, flips | as `usb`: our reading |
| stl10@1000 | the official folds | balanced | the official folds |
| labels in percent | that share of each class | the same | the same |
| all else | balanced | balanced | balanced |

With the extra images of SVHN the labelled ones are drawn from all 604,388. Fold n of STL-10 is line n, from 0, of its
list; Google's five are 1 to 5; what USB does there we have not read, so balanced is our choice. The recipe of the data
set sets the flips. In all three the pool holds the labelled images; ImageNet's does not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from maxmatch.errors import UsageError, UserError
from maxmatch.files import write_safely

Protocol = Literal["balanced", "proportional", "google", "usb", "paper"]
Indices = npt.NDArray[np.int64]


class OtherImages(UserError):
    """A split was made of other images, or other labels, than those that are there."""


@dataclass(frozen=True, eq=False)
class Split:
    """Positions in the training images: those whose label is shown, and those shown without."""

    labelled: Indices
    unlabelled: Indices

    def sha256(self) -> str:
        digest = hashlib.sha256()
        for indices in (self.labelled, self.unlabelled):
            digest.update(len(indices).to_bytes(8, "little") + indices.astype("<i8").tobytes())
        return digest.hexdigest()

    def save(
        self, path: Path, data_sha256: str, left_out: Sequence[str] = (), tested: Sequence[str] = (),
        test_sha256: str | None = None,
    ) -> None:  # fmt: skip
        """Write the split as JSON beside the digests of its data, the files left out, and those of the test."""
        record = {
            "labelled": self.labelled.tolist(),
            "unlabelled": self.unlabelled.tolist(),
            "data_sha256": data_sha256,
            "left_out": list(left_out),
            "tested": list(tested),
            "test_sha256": test_sha256,
            "sha256": self.sha256(),
        }
        write_safely(path, (json.dumps(record) + "\n").encode())


def saved_left_out(path: Path) -> tuple[str, ...]:
    """The files that a run left out because they could not be read; none where there is no split yet."""
    return _saved_names(path, "left_out") or ()


def saved_tested(path: Path) -> tuple[str, ...] | None:
    """The files of a folder that a run was tested on; None where that was not noted."""
    return _saved_names(path, "tested")


def _saved_names(path: Path, key: str) -> tuple[str, ...] | None:
    try:
        return tuple(json.loads(path.read_text())[key])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def load_split(path: Path, data_sha256: str, test_sha256: str | None = None) -> Split:
    """Read a split back, refusing one that is damaged or belongs to other images, or to another test than this."""
    try:
        record = json.loads(path.read_text())
        split = Split(np.array(record["labelled"], np.int64), np.array(record["unlabelled"], np.int64))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read as a split ({error}): restore it, or train anew with --force") from None
    if record.get("sha256") != split.sha256():
        raise UserError(f"{path} was changed after it was written: restore it, or train anew with --force")
    if record.get("data_sha256") != data_sha256:
        raise OtherImages(
            f"{path} belongs to other images than these, some were added, removed, changed or labelled: use the same "
            "data, or begin anew with another --out"
        )
    if None not in (test_sha256, record.get("test_sha256")) and record["test_sha256"] != test_sha256:
        raise OtherImages(
            f"{path} belongs to a run with another test set, whose errors are in its metrics: give the same one, or "
            "judge the finished run on this one, maxmatch.judge(RUN, data=...)"
        )
    return split


def name_of_pool(dataset: str, protocol: Protocol) -> str:
    """The data set whose training images are the pool.

    >>> name_of_pool("svhn", "google"), name_of_pool("svhn", "usb")
    ('svhn', 'svhn-extra')
    """
    if dataset == "svhn" and protocol in ("usb", "paper"):
        return "svhn-extra"
    if dataset == "svhn-extra" and protocol == "google":
        raise UsageError("svhn-extra with protocol google: it trains on the training set alone; type svhn")
    return dataset


def shares_follow(dataset: str, protocol: Protocol) -> Literal["balanced", "proportional"]:
    """Whether the labelled set has as many of each class, or follows their frequencies."""
    if protocol == "google":
        return "proportional" if dataset == "svhn" else "balanced"
    return "proportional" if protocol == "proportional" else "balanced"


def official_split(y: npt.ArrayLike, folds: npt.ArrayLike, fold: int, exclude_labelled: bool = False) -> Split:
    """The labelled set that the data set itself names: row `fold` of `folds` (F, n)."""
    rows = np.asarray(folds)
    if not 0 <= fold < len(rows):
        raise UsageError(f"fold = {fold}: the official ones are 0 to {len(rows) - 1}; type --fold 1")
    return _with_pool(np.sort(rows[fold]).astype(np.int64), len(np.asarray(y)), exclude_labelled)


def share_split(y: npt.ArrayLike, percent: float, seed: int, exclude_labelled: bool = False) -> Split:
    """A share of each class, at least one image; with `exclude_labelled` ImageNet's disjoint 10 % and 90 %.

    >>> split = share_split([0] * 20 + [1] * 10, 10, seed=1, exclude_labelled=True)
    >>> len(split.labelled), len(split.unlabelled)
    (3, 27)
    """
    known, counts = np.unique(np.asarray(y)[np.asarray(y) >= 0], return_counts=True)
    if len(known) == 0:
        raise UsageError(f"{percent:g}% of the labels asked for, but no training image has one")
    shares = np.maximum(1, np.rint(counts * percent / 100)).astype(np.int64)
    return _choose(np.asarray(y), known, shares, seed, exclude_labelled)


def make_split(
    y: npt.ArrayLike,
    labels: int,
    seed: int,
    protocol: Literal["balanced", "proportional"] = "balanced",
    exclude_labelled: bool = False,
) -> Split:
    """Choose `labels` images of `y` (-1 = no label to show) to be labelled.

    >>> split = make_split([0, 0, 0, 1, 1, 1], labels=2, seed=1)
    >>> len(split.labelled), len(split.unlabelled)
    (2, 6)
    """
    y = np.asarray(y)
    known, counts = np.unique(y[y >= 0], return_counts=True)
    if labels > counts.sum():
        raise UsageError(
            f"{labels} labels asked for, but only {counts.sum()} training images have one: type @{counts.sum()} or less"
        )
    if labels < len(known):
        raise UsageError(f"{labels} labels for {len(known)} classes: at least one a class; type @{len(known)} or more")
    shares = _balanced(counts, labels) if protocol == "balanced" else _proportional(counts, labels)
    return _choose(y, known, shares, seed, exclude_labelled)


def _choose(y: npt.NDArray[Any], known: npt.NDArray[Any], shares: Indices, seed: int, exclude_labelled: bool) -> Split:
    """So many of each class, drawn by the seed."""
    generator = np.random.default_rng([seed, 0x5911])
    chosen = [
        generator.permutation(np.flatnonzero(y == label))[:share] for label, share in zip(known, shares, strict=True)
    ]
    return _with_pool(np.sort(np.concatenate(chosen)).astype(np.int64), len(y), exclude_labelled)


def _with_pool(labelled: Indices, count: int, exclude_labelled: bool) -> Split:
    everyone = np.arange(count, dtype=np.int64)
    unlabelled = np.setdiff1d(everyone, labelled) if exclude_labelled else everyone
    if len(unlabelled) == 0:
        raise UsageError("data.exclude_labelled = true: all are labelled, so no unlabelled one is left; leave it out")
    return Split(labelled, unlabelled)


def _balanced(counts: Indices, labels: int) -> Indices:
    """Equal shares, the remainder to the first classes; what a small class lacks goes to the others."""
    shares = np.zeros_like(counts)
    while shares.sum() < labels:
        open_classes = np.flatnonzero(shares < counts)
        each = max(1, (labels - shares.sum()) // len(open_classes))
        for index in open_classes[: labels - shares.sum()]:
            shares[index] = min(counts[index], shares[index] + each)
    return shares


def _proportional(counts: Indices, labels: int) -> Indices:
    """Shares by frequency, at least one each: the next label goes to the class furthest behind its frequency.

    Frequencies and shares are both measured against their largest, which is what Google's code does; SVHN's ten
    classes get 3 7 6 4 4 4 3 3 3 3 of 40 labels.
    """
    shares = np.ones_like(counts)
    frequency = counts / counts.max()
    while shares.sum() < labels:
        behind = np.where(shares < counts, frequency - shares / shares.max(), -np.inf)
        shares[np.argmax(behind)] += 1
    return shares

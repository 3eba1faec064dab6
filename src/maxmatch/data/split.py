"""Who is labelled: a seeded choice among the training images, saved with a checksum so that it can be had again.

`balanced` takes as many of each class; `proportional` follows the class frequencies (at least one each). The
unlabelled pool is all training images, the labelled ones included, as in the FixMatch protocol, unless
`exclude_labelled`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from maxmatch.errors import UsageError, UserError
from maxmatch.files import write_safely

Protocol = Literal["balanced", "proportional"]
Indices = npt.NDArray[np.int64]


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

    def save(self, path: Path, data_sha256: str) -> None:
        """Write the split as JSON beside the digest of the data it belongs to."""
        record = {
            "labelled": self.labelled.tolist(),
            "unlabelled": self.unlabelled.tolist(),
            "data_sha256": data_sha256,
            "sha256": self.sha256(),
        }
        write_safely(path, (json.dumps(record) + "\n").encode())


def load_split(path: Path, data_sha256: str) -> Split:
    """Read a split back, refusing one that is damaged or belongs to other images."""
    try:
        record = json.loads(path.read_text())
        split = Split(np.array(record["labelled"], np.int64), np.array(record["unlabelled"], np.int64))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} cannot be read as a split ({error}): restore it, or train anew with --force") from None
    if record.get("sha256") != split.sha256():
        raise UserError(f"{path} was changed after it was written: restore it, or train anew with --force")
    if record.get("data_sha256") != data_sha256:
        raise UserError(f"{path} belongs to other images than these: use the same data, or train anew with --force")
    return split


def make_split(
    y: npt.ArrayLike, labels: int, seed: int, protocol: Protocol = "balanced", exclude_labelled: bool = False
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
    generator = np.random.default_rng([seed, 0x5911])
    chosen = [
        generator.permutation(np.flatnonzero(y == label))[:share] for label, share in zip(known, shares, strict=True)
    ]
    labelled = np.sort(np.concatenate(chosen)).astype(np.int64)
    everyone = np.arange(len(y), dtype=np.int64)
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

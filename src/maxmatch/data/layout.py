"""Your own pictures: which files there are, which have a label, and which are kept for the test.

Three layouts are read: `labeled/CLASS/**` beside `unlabeled/**`; plain class folders, `CLASS/**` or `train/CLASS/**`,
whose labels may be hidden; and one folder with a CSV file of path,label, where a blank label, or no row, is unlabelled.
`test/CLASS/**`, or `val/CLASS/**` where there is no test, may stand beside any of them. Without it a fifth of each
class with at least five labelled pictures is kept for the test, the same one whatever the seed; where no class has
five, there is no test.
"""

from __future__ import annotations

import csv
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maxmatch.data.folder import SUFFIXES
from maxmatch.errors import UsageError

LABELLED, UNLABELLED, TEST, TRAIN = ("labeled", "labelled"), ("unlabeled", "unlabelled"), ("test", "val"), "train"
COMPARED = 50_000  # up to so many labelled pictures are compared with one another
HELD_OUT = 5  # one picture in so many is kept for the test
FEW = 10  # so many names are told, and the rest counted


@dataclass(frozen=True)
class Listing:
    """Files by their path in the folder, sorted, and what is known of them; `notes` are for the user."""

    root: Path
    classes: tuple[str, ...]
    files: tuple[str, ...]
    labels: tuple[int, ...]  # -1 is unlabelled
    test_files: tuple[str, ...]
    test_labels: tuple[int, ...]
    notes: tuple[str, ...] = ()

    def without(self, bad: Iterable[str]) -> Listing:
        """The listing less some files."""
        gone = set(bad)
        pairs = [(f, y) for f, y in zip(self.files, self.labels, strict=True) if f not in gone]
        tests = [(f, y) for f, y in zip(self.test_files, self.test_labels, strict=True) if f not in gone]
        (files, labels), (test_files, test_labels) = _unzip(pairs), _unzip(tests)
        return Listing(self.root, self.classes, files, labels, test_files, test_labels, self.notes)

    def sha256(self) -> str:
        """A digest of names, sizes and labels, by which a saved split knows its pictures."""
        digest = hashlib.sha256()
        for names, labels in ((self.files, self.labels), (self.test_files, self.test_labels)):
            for name, label in zip(names, labels, strict=True):
                digest.update(
                    f"{name}\0{(self.root / name).stat().st_size}\0{label}\n".encode("utf-8", "surrogateescape")
                )
        return digest.hexdigest()


def read_layout(root: Path, label_file: Path | None = None, strict: bool = False) -> Listing:
    """What a folder of pictures holds. With `strict` whatever would be left out is refused instead."""
    if not root.is_dir():
        raise UsageError(f"{root}: there is no such folder; give the folder that holds the pictures")
    notes: list[str] = []
    tops = {entry.name: entry for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith(".")}
    test_top = next((name for name in TEST if name in tops), None)
    if label_file is not None:
        found = _by_csv(root, label_file, test_top, notes)
    elif any(name in tops for name in LABELLED):
        found = _by_parts(root, tops, notes)
    elif TRAIN in tops and test_top:
        found = {f"{TRAIN}/{path}": label for path, label in _by_class(root / TRAIN, None, notes).items()}
    else:
        found = _by_class(root, [name for name in tops if name != test_top], notes)
    tests = _by_class(root / test_top, None, notes) if test_top else {}
    tests = {f"{test_top}/{path}": label for path, label in tests.items()}
    found, tests = _without_contradictions(root, found, notes), _without_contradictions(root, tests, notes)
    names = sorted({label for label in found.values() if label})
    if not names:
        raise UsageError(
            f"{root}: no picture has a label; put some into labeled/CLASS/, or name them in a CSV file: --labels FILE"
        )
    if len(names) == 1:
        raise UsageError(f"{root}: all labels are '{names[0]}'; at least two classes are needed")
    strangers = sorted({label for label in tests.values() if label not in names})
    if strangers:
        raise UsageError(f"{root}/test has the class '{strangers[0]}', of which no training picture is labelled")
    if strict and notes:
        raise UsageError(f"{notes[0]} (--strict refuses that)")
    number = {name: index for index, name in enumerate(names)}
    if not tests:
        found, tests = _hold_out(found, names)
        notes += [] if tests else ["no class has five labelled pictures: none are kept back, and no error is measured"]
    files, labels = _unzip(sorted((path, number.get(label, -1)) for path, label in found.items()))
    test_files, test_labels = _unzip(sorted((path, number[label]) for path, label in tests.items()))
    notes += _balance(labels, names)
    return Listing(root, tuple(names), files, labels, test_files, test_labels, tuple(notes))


def find_pictures(folder: Path) -> list[str]:
    """All picture files below a folder, by their path in it, sorted; hidden ones are left out."""
    found = []
    for here, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = Path(here).relative_to(folder)
        found += [
            (inside / name).as_posix()
            for name in files
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES
        ]
    return sorted(found)


def told(names: Sequence[str], few: int = FEW) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - few} more" if len(names) > few else ""
    return ", ".join(names[:few]) + more


def _by_parts(root: Path, tops: dict[str, os.DirEntry[str]], notes: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for top in (name for name in LABELLED if name in tops):
        found |= {f"{top}/{path}": label for path, label in _by_class(root / top, None, notes).items()}
    for top in (name for name in UNLABELLED if name in tops):
        found |= {f"{top}/{path}": "" for path in find_pictures(root / top)}
    return found


def _by_class(folder: Path, classes: list[str] | None, notes: list[str]) -> dict[str, str]:
    if classes is None:
        classes = [entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")]
    found: dict[str, str] = {}
    for name in sorted(classes):
        here = {f"{name}/{path}": name for path in find_pictures(folder / name)}
        if not here:
            notes.append(f"{folder / name}: no pictures in it; the class is left out")
        found |= here
    loose = [path for path in os.listdir(folder) if os.path.splitext(path)[1].lower() in SUFFIXES]
    if loose:
        notes.append(f"{folder}: {len(loose)} pictures lie in no class folder ({told(sorted(loose), 3)}); left out")
    return found


def _by_csv(root: Path, label_file: Path, test_top: str | None, notes: list[str]) -> dict[str, str]:
    """All pictures of the folder, labelled as the file says."""
    found = {path: "" for path in find_pictures(root) if test_top is None or not path.startswith(f"{test_top}/")}
    missing, twice = [], []
    seen: dict[str, str] = {}
    for path, label in _rows(label_file):
        if path not in found:
            missing.append(path)
        elif seen.setdefault(path, label) != label:
            twice.append(path)
        else:
            found[path] = label
    for path in twice:
        found[path] = ""
    if missing:
        notes.append(f"{label_file}: {len(missing)} files are not in {root} ({told(missing, 3)}); left out")
    if twice:
        notes.append(f"{label_file}: {len(set(twice))} files have two labels ({told(twice, 3)}); taken as unlabelled")
    return found


def _rows(label_file: Path) -> list[tuple[str, str]]:
    try:
        with open(label_file, newline="", encoding="utf-8-sig") as file:
            lines = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{label_file}: can't be read as CSV ({error}); two columns are wanted: path,label") from None
    lines = [line for line in lines if any(cell.strip() for cell in line)]
    head = [cell.strip().lower() for cell in lines[0]] if lines else []
    if "path" in head:
        place = (head.index("path"), head.index("label") if "label" in head else None)
        if place[1] is None:
            raise UsageError(f"{label_file}: its first line has no column 'label'; path,label is wanted")
        lines = lines[1:]
    else:
        place = (0, 1)
    rows = []
    for line in lines:
        path = line[place[0]].strip() if len(line) > place[0] else ""
        label = line[place[1]].strip() if place[1] is not None and len(line) > place[1] else ""
        rows.append((Path(path).as_posix(), label))
    if not rows:
        raise UsageError(f"{label_file}: no rows in it; path,label is wanted")
    return rows


def _without_contradictions(root: Path, found: dict[str, str], notes: list[str]) -> dict[str, str]:
    """Without labelled pictures whose very bytes have another label elsewhere: no one can learn from those."""
    sizes: dict[int, list[str]] = {}
    compared = sum(bool(label) for label in found.values()) <= COMPARED
    for path, label in found.items():
        if label and compared:
            sizes.setdefault((root / path).stat().st_size, []).append(path)
    bad: list[str] = []
    for paths in sizes.values():
        if len({found[path] for path in paths}) < 2:
            continue
        same: dict[str, list[str]] = {}
        for path in paths:
            same.setdefault(hashlib.sha256((root / path).read_bytes()).hexdigest(), []).append(path)
        bad += [path for group in same.values() if len({found[p] for p in group}) > 1 for path in group]
    if bad:
        notes.append(
            f"{root}: {len(bad)} files are the same picture under two labels ({told(sorted(bad), 3)}); left out"
        )
    return {path: label for path, label in found.items() if path not in set(bad)}


def _hold_out(found: dict[str, str], names: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    kept: dict[str, str] = {}
    for name in names:
        mine = sorted(path for path, label in found.items() if label == name)
        if len(mine) >= HELD_OUT:
            order = np.random.default_rng([0x7E57, len(mine)]).permutation(len(mine))
            kept |= {mine[i]: name for i in order[: len(mine) // HELD_OUT]}
    return {path: label for path, label in found.items() if path not in kept}, kept


def _balance(labels: Sequence[int], names: Sequence[str]) -> list[str]:
    counts = Counter(label for label in labels if label >= 0)
    most, least = max(counts.values()), min(counts[index] for index in range(len(names)))
    if most < 3 * max(least, 1):
        return []
    rare = [names[index] for index in range(len(names)) if 3 * counts[index] <= most]
    return [f"classes are not balanced: up to {most} labelled pictures, but at most {most // 3} of {told(rare, 5)}"]


def _unzip(pairs: Sequence[tuple[str, int]]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    return tuple(path for path, _ in pairs), tuple(label for _, label in pairs)

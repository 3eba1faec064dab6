"""Your own pictures: which files there are, which have a label, and which are kept for the test.

Three layouts are read: `labeled/CLASS/**` beside `unlabeled/**`; plain class folders, `CLASS/**` or `train/CLASS/**`,
whose labels may be hidden; and one folder with a CSV file of path,label, where a blank label, or no row, is unlabelled.
`unlabeled/**` and `test/CLASS/**`, or `val/CLASS/**` where there is no test, may stand beside class folders too.
These names may be written in capitals; what others call them (`valid`, `training`), and what they are misspelt as, is
refused, lest it become a class. So are two classes whose names differ in capitals alone.

Without a test about a fifth of each class with at least five labelled pictures is kept for it, a third at most, by
the bytes of the files: the same ones whatever the seed, copies together. More labels turn no training picture into a
test picture, but where a class gets its fifth one or had come to the third. Where no class has five, there is none.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import IO

from maxmatch.data.copies import digest_of, labelled_elsewhere, without_contradictions, without_copies
from maxmatch.data.folder import find_broken_links, find_pictures, is_picture
from maxmatch.data.folder_names import (
    LABELLED,
    RESERVED,
    TEST,
    TRAIN,
    UNLABELLED,
    called,
    composed,
    folders,
    hint_of_classes,
    refuse_alike,
    refuse_mistaken,
)
from maxmatch.data.label_file import Nothing, inside, is_text, other_encoding, read_rows, says_nothing
from maxmatch.data.picture_file import opens
from maxmatch.data.shards import Shards, is_sharded, open_shards
from maxmatch.errors import UsageError, counted, listed

HELD_OUT = 5  # one picture in so many is kept for the test


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
    shards: Shards | None = None  # where the files are members of shards

    def open(self, name: str) -> Path | IO[bytes]:
        return self.root / name if self.shards is None else self.shards.open(name)

    def without(self, bad: Iterable[str]) -> Listing:
        """The listing less some files."""
        gone = set(bad)
        pairs = [(f, y) for f, y in zip(self.files, self.labels, strict=True) if f not in gone]
        tests = [(f, y) for f, y in zip(self.test_files, self.test_labels, strict=True) if f not in gone]
        (files, labels), (test_files, test_labels) = _unzip(pairs), _unzip(tests)
        return Listing(self.root, self.classes, files, labels, test_files, test_labels, self.notes, self.shards)

    def sha256(self) -> str:
        """A digest of names, sizes and labels, by which a saved split knows its pictures."""
        return self._sha256((*self.files, *self.test_files), (*self.labels, *self.test_labels))

    def test_sha256(self) -> str:
        """The same of the test alone, by which two runs know that they were tested alike, at whatever size."""
        return self._sha256(self.test_files, self.test_labels)

    def _sha256(self, names: Sequence[str], labels: Sequence[int]) -> str:
        digest = hashlib.sha256()
        for name, label in zip(names, labels, strict=True):
            size = (self.root / name).stat().st_size if self.shards is None else self.shards.size(name)
            digest.update(f"{name}\0{size}\0{label}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


def read_layout(root: Path, label_file: Path | None = None, strict: bool = False, labels: bool = True) -> Listing:
    """What a folder of pictures holds. With `strict` whatever would be left out is refused instead.

    Where no `labels` are needed a folder without any, in whatever layout, is all its pictures but those of a test.
    """
    if not root.is_dir():
        what = "it is a file" if root.exists() else "there is no such folder"
        raise UsageError(f"{root}: {what}; give the folder that holds the pictures")
    if is_sharded(root):
        if label_file is not None:
            raise UsageError(f"--labels {label_file}: the shards in {root} have labels of their own; leave it out")
        return _of_shards(root)
    notes: list[str] = []
    hints: list[str] = []
    tops = sorted(folders(root))
    tests_at = called(tops, TEST)
    if labels and label_file is None:
        refuse_mistaken(root, tops)
    if label_file is None:
        found = _by_folders(root, tops, notes, labels)
    else:
        found = _by_csv(root, label_file, tests_at, notes, hints)
    gone = find_broken_links(root)
    if gone:
        notes.append(f"{root}: {len(gone)} links lead nowhere ({listed(gone, 3)}); left out")
    for spare in tests_at[1:]:
        notes.append(f"{root / spare}: left out, since {root / tests_at[0]} is the test")
    tests = _within(root, tests_at[:1], notes)
    if labels:
        refuse_alike(root if label_file is None else label_file, {**found, **tests})
    before = {label for label in found.values() if label}
    found, tests = without_contradictions(root, found, notes), without_contradictions(root, tests, notes)
    if lost := sorted(before - {*found.values()}):
        notes.append(f"{root}: every picture of {listed(lost, 3)} has another label too, so that class is left out")
    names = sorted({label for label in found.values() if label})
    if len(names) < 2 and not labels:
        return _without_labels(root, tests_at)
    if not names and label_file is not None:
        wanted = "in the second column, behind a comma, or in one that its first line calls label"
        raise UsageError(f"{label_file}: no row of it has a label; the label is wanted {wanted}")
    if not names:
        raise UsageError(
            f"{root}: no picture has a label; put some into labeled/CLASS/, or name them in a CSV file: --labels FILE"
        )
    if len(names) == 1:
        hint = hint_of_classes(root / names[0]) if label_file is None and names[0] in tops else ""
        raise UsageError(f"{root}: all labels are '{names[0]}'; at least two classes are needed{hint}")
    strangers = sorted({label for label in tests.values() if label not in names})
    if strangers:
        raise UsageError(
            f"{root / tests_at[0]} has the class '{strangers[0]}', of which no training picture is labelled"
        )
    if not tests:
        found, tests = _hold_out(root, found, names)
    found = without_copies(root, found, tests, notes)
    if lost := sorted({*names} - {*found.values()}):
        which = "labelled picture" if len(lost) == len(names) else f"picture labelled '{lost[0]}'"
        raise UsageError(f"{root}: every {which} is also in the test; put others into one of the two")
    if strict and notes:
        refused = re.sub("(is )?left out", "would be left out", notes[0])
        raise UsageError(f"{refused}: mend that, or leave --strict out")
    notes += hints + labelled_elsewhere(root, found)
    notes += [] if tests else ["no class has five labelled pictures: none are kept back, and no error is measured"]
    number = {name: index for index, name in enumerate(names)}
    files, numbers = _unzip(sorted((path, number.get(label, -1)) for path, label in found.items()))
    test_files, test_labels = _unzip(sorted((path, number[label]) for path, label in tests.items()))
    notes += _balance(numbers, names)
    return Listing(root, tuple(names), files, numbers, test_files, test_labels, tuple(notes))


def _without_labels(root: Path, tests_at: Sequence[str]) -> Listing:
    files = tuple(sorted(path for path in find_pictures(root) if path.split("/")[0] not in tests_at))
    if not files:
        raise UsageError(f"{root}: there is no picture in it; give the folder that holds the pictures")
    return Listing(root, (), files, (-1,) * len(files), (), ())


def _of_shards(root: Path) -> Listing:
    """The listing that the shards were made from; labels and who is in the test stand in them."""
    shards = open_shards(root)
    classes = tuple(sorted({label for label in shards.labels if label}))
    number = {name: index for index, name in enumerate(classes)}
    rows = sorted(zip(shards.names, shards.labels, shards.tests, strict=True))
    files, labels = _unzip([(name, number.get(label, -1)) for name, label, test in rows if not test])
    test_files, test_labels = _unzip([(name, number.get(label, -1)) for name, label, test in rows if test])
    if len(classes) < 2 or -1 in test_labels:
        raise UsageError(f"{root}: its shards lack labels; make them again with maxmatch data shard")
    return Listing(root, classes, files, labels, test_files, test_labels, (), shards)


def _by_folders(root: Path, tops: Sequence[str], notes: list[str], labels: bool) -> dict[str, str]:
    """Labelled pictures from labeled/, else from train/, else from class folders; unlabelled ones beside them."""
    classes = [name for name in tops if name.casefold() not in RESERVED]
    parts = called(tops, LABELLED) or called(tops, TRAIN)
    if parts:
        found = _within(root, parts, notes)
        unused = [] if parts == called(tops, TRAIN) else called(tops, TRAIN)
        here = {composed(path.split("/")[1]): path.split("/")[0] for path in found}
        for name in classes + unused:
            if count := len(find_pictures(root / name)):
                if labels and composed(name) in here:
                    both = f"{root / name} and {root / here[composed(name)] / name} are the same class"
                    what = counted(count, "picture", "pictures")
                    raise UsageError(f"{both}: move the {what} of the one into the other")
                told_of = f"{counted(count, 'picture that is', 'pictures that are')} not in {parts[0]}/; left out"
                notes.append(f"{root / name}: {told_of} (without labels they belong into unlabeled/)")
        _note_loose(root, notes)
    else:
        found = _by_class(root, classes, notes)
    for top in called(tops, UNLABELLED):
        found |= {f"{top}/{path}": "" for path in find_pictures(root / top)}
    return found


def _within(root: Path, parts: Sequence[str], notes: list[str]) -> dict[str, str]:
    """The pictures of class folders below some folders."""
    found: dict[str, str] = {}
    for top in parts:
        found |= {f"{top}/{path}": label for path, label in _by_class(root / top, None, notes).items()}
    return found


def _by_class(folder: Path, classes: list[str] | None, notes: list[str]) -> dict[str, str]:
    if classes is None:
        classes = folders(folder)
    found: dict[str, str] = {}
    for name in sorted(classes):
        here = {f"{name}/{path}": composed(name) for path in find_pictures(folder / name)}
        if not here and not any((folder / name).glob("*/recipe.json")):  # but a folder of runs is none
            notes.append(f"{folder / name}: no pictures in it; the class is left out")
        found |= here
    _note_loose(folder, notes)
    return found


def _note_loose(folder: Path, notes: list[str]) -> None:
    loose = [name for name in os.listdir(folder) if is_picture(name)]
    if loose:
        what = counted(len(loose), "picture lies", "pictures lie")
        notes.append(f"{folder}: {what} in no class folder ({listed(sorted(loose), 3)}); left out")


def _by_csv(
    root: Path, label_file: Path, tests_at: Sequence[str], notes: list[str], hints: list[str]
) -> dict[str, str]:
    """All pictures of the folder but those of a test, labelled as the file says; `hints` tell of no fault."""
    pictures = find_pictures(root)
    tested = {path for path in pictures if path.split("/")[0] in tests_at}
    found = {path: "" for path in pictures if path not in tested}
    missing, twice, otherwise, nothing = [], [], [], Nothing(label_file)
    seen: dict[str, str] = {}
    rows = [(name, composed(label)) for name, label in read_rows(label_file)]
    spelt = _one_each((composed(path), path) for path in found)  # as a table may have it, accents in their letters
    for name, label in rows:
        path = next((path for path in inside(root, name) if path in found), next(inside(root, name)))
        if path not in found:
            path = next((spelt[other] for p in inside(root, name) if (other := composed(p)) in spelt), path)
        if path not in found and (of_test := next((p for p in inside(root, name) if p in tested), None)):
            if not says_nothing(label) and label != composed(of_test.split("/")[1]):
                otherwise.append(of_test)
            continue
        if path not in found and not is_text(path):
            raise other_encoding(label_file, path)
        if path not in found:
            missing.append(path)
        elif seen.setdefault(path, label) != label:
            twice.append(path)
        else:
            found[path] = nothing.or_label(label)
    for path in twice:
        found[path] = ""
    capitals = _one_each((path.casefold(), path) for path in found) if missing else {}
    alike = next((capitals[path.casefold()] for path in missing if path.casefold() in capitals), None)
    if len(missing) == len(rows):
        wanted = "they are relative to that folder, with a comma before the label"
        if (shorter := alike or _shorter(missing[0], found)) is not None:
            wanted = f"they are relative to that folder, capitals count, and there is '{shorter}'"
        raise UsageError(
            f"{label_file}: none of its {len(rows)} paths is in {root}, the first is '{missing[0]}'; {wanted}"
        )
    if missing:
        hint = f"; '{alike}' is there, in other capitals" if alike else ""
        what = f"{counted(len(missing), 'file is', 'files are')} not in {root} ({listed(missing, 3)})"
        notes.append(f"{label_file}: {what}{hint}; left out")
    rest = rows[rows[0][0] in missing :]  # a first row that names no picture may be a heading
    if lost := sorted({label for _, label in rest if not says_nothing(label)} - {*found.values()}):
        what = f"no row of {listed(lost, 3)} names a picture that is there and has no other label"
        notes.append(f"{label_file}: {what}, so that class is left out")
    if twice:
        what = f"{counted(len(set(twice)), 'file has', 'files have')} two labels ({listed(twice, 3)})"
        notes.append(f"{label_file}: {what}; taken as unlabelled")
    if otherwise:
        what = counted(len(otherwise), "test picture has", "test pictures have")
        told_of = f"{what} another label than their folder ({listed(otherwise, 3)})"
        notes.append(f"{label_file}: {told_of}; the folder's counts, and the other is left out")
    hints += nothing.hints()
    silent = sorted(path for path in found if path not in seen and path.split("/")[0].casefold() in LABELLED)
    if silent:
        told_of = f"of {silent[0].split('/')[0]}/ ({listed(silent, 3)})"
        what = counted(len(silent), f"picture {told_of} has", f"pictures {told_of} have")
        hints.append(f"{label_file}: it alone says the labels, and {what} no row; taken as unlabelled")
    return found


def _one_each(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """A mapping of what has one value only."""
    found: dict[str, str] = {}
    several = set()
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            several.add(key)
    return {key: value for key, value in found.items() if key not in several}


def _shorter(path: str, found: Mapping[str, str]) -> str | None:
    """A path without its first parts, where that is a picture; Windows' disks and strokes are parts too."""
    parts = path.replace("\\", "/").split("/")
    return next((short for first in range(1, len(parts)) if (short := "/".join(parts[first:])) in found), None)


def _hold_out(root: Path, found: dict[str, str], names: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """One picture in five of each class, by a number that its bytes alone decide: at least one where there are five.

    Chance would take half of a small class now and then, whose labels would be missed more than its error is.
    Where none of a class's opens as a picture, another one is kept that does.
    """
    kept: dict[str, str] = {}
    for name in names:
        mine = [path for path, label in found.items() if label == name]
        if len(mine) >= HELD_OUT:
            numbers = {path: int(digest_of(root / path), 16) for path in mine}
            chosen = _at_most(len(mine) // 3, [p for p in mine if numbers[p] % HELD_OUT == 0], numbers)
            if not any(opens(root / path) for path in chosen) or len(chosen) == len(mine):
                in_order = sorted(mine, key=numbers.__getitem__)
                first = next((path for path in in_order if opens(root / path)), in_order[0])
                chosen = [path for path in mine if numbers[path] == numbers[first]]  # with its copies
            kept |= dict.fromkeys(chosen if len(chosen) < len(mine) else (), name)
    return {path: label for path, label in found.items() if path not in kept}, kept


def _at_most(most: int, chosen: Sequence[str], numbers: Mapping[str, int]) -> list[str]:
    """The first of the chosen by their numbers, copies together."""
    kept: list[str] = []
    for path in sorted(chosen, key=numbers.__getitem__):
        if len(kept) >= most and numbers[path] != numbers[kept[-1]]:
            break
        kept.append(path)
    return kept


def _balance(labels: Sequence[int], names: Sequence[str]) -> list[str]:
    counts = Counter(label for label in labels if label >= 0)
    most, least = max(counts.values()), min(counts[index] for index in range(len(names)))
    if most < 3 * max(least, 1):
        return []
    rare = [names[index] for index in range(len(names)) if 3 * counts[index] <= most]
    few = max(counts[index] for index in range(len(names)) if 3 * counts[index] <= most)
    found = [f"classes are not balanced: up to {most} labelled pictures, but {few} or fewer of {listed(rare, 5)}"]
    usual = [name for name in names if name not in rare]
    for name in rare:
        if near := get_close_matches(name, usual, 1, cutoff=0.75):
            found.append(f"class {name} has {counts[names.index(name)]}: if {near[0]} is meant, mend its label")
    return found


def _unzip(pairs: Sequence[tuple[str, int]]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    return tuple(path for path, _ in pairs), tuple(label for _, label in pairs)

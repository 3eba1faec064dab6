"""What the folders in a folder of pictures are, by their names: parts of a layout, slips of those, and classes."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from maxmatch.data.folder import find_pictures, is_hidden
from maxmatch.data.shards import is_sharded
from maxmatch.errors import UsageError, listed

LABELLED, UNLABELLED, TEST, TRAIN = ("labeled", "labelled"), ("unlabeled", "unlabelled"), ("test", "val"), ("train",)
RESERVED = (*LABELLED, *UNLABELLED, *TEST, *TRAIN)  # never the names of classes
# What others call them, and names so long that a misspelt one is no other word. Of the short ones only two swapped
# letters are known, since nest, vest and brain are classes.
ELSEWHERE = {"training": "train", "testing": "test", "tests": "test", "valid": "val", "validation": "val"}
LONG = {**dict.fromkeys(LABELLED, "labeled"), **dict.fromkeys(UNLABELLED, "unlabeled"), "validation": "val"}
SWAPPED = {f"{w[:i]}{w[i + 1]}{w[i]}{w[i + 2 :]}": w for w in ("test", "train") for i in range(len(w) - 1)}
SET = re.compile("(train|training|test|testing|val|valid|validation)[ _-]?(set|data|images|imgs|pictures|photos)")
ALIKE = 0.85  # labled and labeled are, cabled and label are not


def folders(place: Path) -> list[str]:
    """Those in a place, but what programs keep beside pictures."""
    return [entry.name for entry in os.scandir(place) if entry.is_dir() and not is_hidden(entry.name)]


def called(tops: Sequence[str], names: Sequence[str]) -> list[str]:
    """The folders that have one of these names, in the order of the names, in capitals or not."""
    return [top for name in names for top in tops if top.casefold() == name]


def composed(name: str) -> str:
    """A name with each accent in its letter: zips of a Mac write it behind, and both are the same name."""
    return unicodedata.normalize("NFC", name)


def refuse_mistaken(root: Path, tops: Sequence[str]) -> None:
    """Refuse folders that would become classes and are none, by their names."""
    for name in tops:
        if (meant := _meant(name)) and name.casefold() not in RESERVED and find_pictures(root / name):
            raise UsageError(f"{root / name}: if {meant}/ is meant, call it so; a class can't have that name")
    for place in (root / top for top in called(tops, (*LABELLED, *TRAIN, *TEST))):
        for name in folders(place):
            if (name.casefold() in RESERVED or _meant(name)) and find_pictures(place / name):
                raise UsageError(f"{place / name}: a class can't have that name; call it otherwise, or move it out")


def refuse_alike(place: Path, found: dict[str, str]) -> None:
    """Refuse two classes that differ in capitals or spaces around them alone, but `A` and `a`, or `Co` and `CO`."""
    firsts: dict[str, str] = {}
    for path, label in found.items():
        firsts.setdefault(label, path)
    seen: dict[str, str] = {}
    for label in (label for label in firsts if label):
        word = label.strip()
        other = seen.setdefault(word.lower() if len(word) > 2 else word, label)
        if other != label:
            both = " and ".join(f"'{name}' ({firsts[name]})" for name in (other, label))
            why = "differ in capitals or spaces alone"
            raise UsageError(f"{place}: the classes {both} {why}; give both one name, or one of them quite another")


def hint_of_classes(place: Path) -> str:
    """What to type where the only class is a folder of classes, whatever it is called."""
    inside = [name for name in sorted(folders(place)) if find_pictures(place / name)]
    if called(inside, (*LABELLED, *TRAIN, *UNLABELLED)):
        return f"; if {place} is the folder of pictures, type that"
    return f"; if they are {listed(inside, 2)}, call {place.name}/ labeled/" if len(inside) > 1 else ""


def has_unlabelled(root: Path) -> bool:
    """Whether a folder of pictures has a part for those without a label; one of tar files, or gone, may have it."""
    return not root.is_dir() or is_sharded(root) or bool(called(folders(root), UNLABELLED))


def place_of_labels(root: Path) -> str:
    """Where in a folder of pictures those of a class belong, by what it has already."""
    tops = sorted(folders(root)) if root.is_dir() else []
    parts = [*called(tops, LABELLED), *called(tops, TRAIN)]
    if not parts and any(name.casefold() not in RESERVED and find_pictures(root / name) for name in tops):
        return f"{root}/CLASS/"
    return f"{root}/{parts[0] if parts else LABELLED[0]}/CLASS/"


def _meant(name: str) -> str | None:
    """What a folder that has none of our names, but another's for it or a misspelt one, is called here."""
    word = name.casefold()
    for names in (UNLABELLED, LABELLED):
        if word.startswith(names):
            return names[0]
    if whole := SET.fullmatch(word):  # training_set, test data
        return ELSEWHERE.get(whole[1], whole[1])
    near = get_close_matches(word, LONG, 1, cutoff=ALIKE)
    return ELSEWHERE.get(word) or SWAPPED.get(word) or (LONG[near[0]] if near else None)

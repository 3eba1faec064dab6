"""Pictures that are there twice: under two labels, in the test too, or with a label and without one.

Copies have the same bytes, hence the same size: only files of one size are read, and none are where there are so many
that a start would read almost all of them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

from maxmatch.errors import counted, listed

COMPARED = 50_000  # up to so many labelled pictures are compared with one another, or all with those without a label
SEARCHED = 200_000  # up to so many are searched for pictures of the test: more would be read almost whole at each start


def without_contradictions(root: Path, found: dict[str, str], notes: list[str]) -> dict[str, str]:
    """Without labelled pictures whose very bytes have another label elsewhere: no one can learn from those."""
    labelled = [path for path, label in found.items() if label]
    sizes = _by_size(root, labelled if len(labelled) <= COMPARED else ())
    bad: set[str] = set()
    for paths in sizes.values():
        if len({found[path] for path in paths}) < 2:
            continue
        same: dict[str, list[str]] = {}
        for path in paths:
            same.setdefault(digest_of(root / path), []).append(path)
        bad |= {path for group in same.values() if len({found[p] for p in group}) > 1 for path in group}
    if bad:
        names = listed(sorted(bad), 3)
        notes.append(f"{root}: {len(bad)} files are the same picture under two labels ({names}); left out")
    return {path: label for path, label in found.items() if path not in bad}


def without_copies(root: Path, found: dict[str, str], tests: dict[str, str], notes: list[str]) -> dict[str, str]:
    """Without training pictures whose very bytes are in the test."""
    sizes = _by_size(root, tests if len(tests) <= COMPARED and len(found) <= SEARCHED else ())
    held = {size: {digest_of(root / path) for path in paths} for size, paths in sizes.items()}
    bad = set()
    for path in found if held else ():
        digests = held.get((root / path).stat().st_size)
        if digests and digest_of(root / path) in digests:
            bad.add(path)
    if bad:
        what = f"{counted(len(bad), 'file is', 'files are')} also in the test ({listed(sorted(bad), 3)})"
        notes.append(f"{root}: {what}; left out of the training")
    return {path: label for path, label in found.items() if path not in bad}


def labelled_elsewhere(root: Path, found: dict[str, str]) -> list[str]:
    """What to tell of pictures without a label whose very bytes have one elsewhere: copied there, and not moved."""
    sizes = _by_size(root, found if len(found) <= COMPARED else ())
    copies: list[str] = []
    for paths in sizes.values():
        plain = [path for path in paths if not found[path]]
        if plain and len(plain) < len(paths):
            known = {digest_of(root / path) for path in paths if found[path]}
            copies += [path for path in plain if digest_of(root / path) in known]
    if not copies:
        return []
    one, more = "file without a label is a copy of a labelled one", "files without a label are copies of labelled ones"
    what = f"{counted(len(copies), one, more)} ({listed(sorted(copies), 3)})"
    return [f"{root}: {what}; remove what is there twice, or predict --unlabeled lists it again"]


def digest_of(path: Path) -> str:
    """By which copies of a file are known. A start looks at a folder several times, and reads no file twice for it."""
    stat = path.stat()
    try:
        return _digest(path, stat.st_size, stat.st_mtime_ns)
    except PermissionError:  # it is left out when it is to be decoded, as others that can't be read
        return hashlib.sha256(bytes(path)).hexdigest()


@functools.cache
def _digest(path: Path, size: int, changed: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _by_size(root: Path, paths: Iterable[str]) -> dict[int, list[str]]:
    """Files by their size: copies have one. Empty files are copies of nothing; they are named when they are read."""
    sizes: dict[int, list[str]] = {}
    for path in paths:
        if size := (root / path).stat().st_size:
            sizes.setdefault(size, []).append(path)
    return sizes

"""From a folder of pictures to `Images`: looked at, then read once into memory, or left to be read step by step."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image

from maxmatch.data.datasets import Images
from maxmatch.data.files import Files, default_workers
from maxmatch.data.layout import Listing, read_layout
from maxmatch.errors import FEW, UsageError, UserError, counted, listed, tell
from maxmatch.progress import Bar

LONG = 2.0  # times as long as wide
LOOKED_AT = 200_000  # more pictures than that are not tried before they are streamed; broken ones are then grey
SAMPLE = 200  # so many pictures are looked at to choose a size
GREYS = ("1", "L", "I", "F", "I;16", "I;16B", "I;16L")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Look:
    """What a first look at a folder shows: how many pictures and classes, the typical short side, grey or not."""

    pictures: int
    classes: int
    short_side: int
    same_size: bool
    grey: bool
    elongation: float = 1.0  # how many times as long as they are wide, or as wide as they are long


def look_at(listing: Listing) -> Look:
    """Open some of the pictures, no more than their heads."""
    names = listing.files[:: max(1, len(listing.files) // SAMPLE)]
    sizes, modes = [], set()
    for name in names:
        try:
            with Image.open(listing.open(name)) as picture:
                sizes.append(picture.size)
                modes.add(picture.mode)
        except Exception:  # it will be named when it is read
            continue
    if not sizes:
        raise UserError(f"{listing.root}: none of {len(names)} pictures can be read ({listed(names, 3)})")
    side = int(statistics.median(min(size) for size in sizes))
    long = statistics.median(max(size) / min(size) for size in sizes)
    return Look(len(listing.files), len(listing.classes), side, len(set(sizes)) == 1, modes <= set(GREYS), long)


def _cut_away(listing: Listing, fitted: bool) -> list[str]:
    """What is said of long pictures, of which a square is a small part."""
    try:
        look = look_at(listing)
    except UserError:  # none opens: that is told where they are read
        return []
    if look.elongation <= LONG:
        return []
    who = "the views and the test see" if fitted else "the test sees"
    what = f"most pictures are {look.elongation:.1f} times as long one way as the other"
    mend = "if what counts lies elsewhere, cut or squeeze them into squares first"
    return [f"{listing.root}: {what}, and {who} the square in their middle alone; {mend}"]


def load_pictures(
    root: Path,
    *,
    side: int,
    slot: int,
    channels: int,
    middle: float = 1.0,
    label_file: Path | None = None,
    resident: bool | None = None,
    workers: int | None = None,
    strict: bool = False,
    labels: bool = True,
    memory: int = 2**62,
    test: bool = True,
    say: Say = tell,
    quiet: bool = False,
    name: str = "folder",
    left_out: Sequence[str] | None = None,
) -> Images:
    """The pictures of a folder for views of `side` pixels, from slots of `slot`; equal to it, each is fitted once.

    Test pictures show the `middle` share of their short side. `resident` keeps the others in memory, None if they take
    at most `memory` bytes. Broken files are named, counted and left out, or, with `strict`, refused: all are read once
    for that. `left_out` are those of a run that goes on. Without `labels` none are needed; without `test` no test
    picture is read. `say` hears of what is wrong and how far it is, unless `quiet`.
    """
    root, say = Path(root), _silent if quiet else say
    listing = read_layout(root, label_file, strict, labels)
    workers = default_workers() if workers is None else max(1, workers)
    if left_out is not None:
        listing = listing.without(left_out)
    fitted = slot == side
    if resident is None:
        resident = len(listing.files) * channels * slot * slot <= memory
    gone = tuple(left_out or ())

    def files(names: tuple[str, ...], length: int, whole: bool) -> Files:
        share = middle if whole else 1.0
        return Files(root, names, channels, length, whole, workers, share, listing.shards)

    def bar(what: str, read: Files) -> Bar:
        return Bar(what, len(read.names), quiet or not read.names, say)

    train, judged = files(listing.files, slot, fitted), files(listing.test_files if test else (), side, True)
    x = torch.empty(0, channels, slot, slot, dtype=torch.uint8)
    sizes = None
    if resident:
        with bar("reading pictures", train) as each:
            x, sizes = train.read_all(each.advance)
    elif left_out is None and len(listing.files) <= LOOKED_AT:
        with bar("looking at pictures", train) as each:
            train.try_all(each.advance)
    with bar("reading test pictures", judged) as each:
        test_x, _ = judged.read_all(each.advance)
    broken = {**train.broken, **judged.broken}
    if broken:
        listing, x, sizes, test_x = _left_out(listing, broken, x, sizes, test_x, strict, say)
        train = files(listing.files, slot, fitted)
        gone = (*gone, *sorted(broken))
    has_test = test and len(listing.test_files) > 0
    return Images(
        name,
        listing.classes,
        x,
        torch.tensor(listing.labels, dtype=torch.int64),
        test_x if has_test else None,
        torch.tensor(listing.test_labels, dtype=torch.int64) if has_test else None,
        sizes=None if fitted else sizes,
        side=None if fitted else side,
        middle=middle,
        files=train,
        digest=listing.sha256(),
        test_digest=listing.test_sha256() if has_test else None,
        notes=(*listing.notes, *_cut_away(listing, fitted)),
        left_out=gone,
        tested=listing.test_files if has_test else (),
    )


def _silent(line: str) -> None:
    pass


def _left_out(
    listing: Listing,
    broken: dict[str, str],
    x: torch.Tensor,
    sizes: torch.Tensor | None,
    test_x: torch.Tensor,
    strict: bool,
    say: Say,
) -> tuple[Listing, torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """The listing and the pixels without the files that turned out to be damaged."""
    keep = torch.tensor([name not in broken for name in listing.files], dtype=torch.bool)
    keep_test = torch.tensor([name not in broken for name in listing.test_files], dtype=torch.bool)
    what = counted(len(broken), "file can't be read as a picture", "files can't be read as pictures")
    line = f"{listing.root}: {what} ({_with_reasons(broken)})"
    if strict:
        raise UsageError(f"{line}: mend or remove them, or leave --strict out")
    kept = listing.without(broken)
    labelled = sum(label >= 0 for label in kept.labels)
    test = f", {len(kept.test_files):,} for the test" if len(kept.test_files) < len(listing.test_files) else ""
    say(f"warning: {line}; left out, which leaves {len(kept.files):,} to learn from, {labelled:,} with a label{test}")
    shown = {label for label in kept.labels if label >= 0}
    gone = [name for number, name in enumerate(kept.classes) if number not in shown]
    if gone:
        raise UserError(f"{listing.root}: no picture with the label '{gone[0]}' can be read; mend one, or remove them")
    tested = set(kept.test_labels)
    untested = [kept.classes[label] for label in sorted(set(listing.test_labels) - tested)]
    if untested:
        say(f"warning: {listing.root}: no test picture of {listed(untested)} can be read: no error is measured there")
    if len(x):
        x, sizes = x[keep], sizes[keep] if sizes is not None else None
    return kept, x, sizes, test_x[keep_test] if len(test_x) else test_x


def _with_reasons(broken: dict[str, str]) -> str:
    """Names behind the reason they have in common; a message ends in its reason, in brackets.

    >>> bad = "cannot be read as a picture"
    >>> _with_reasons({"b": f"b: {bad} (OSError)", "c": f"c: {bad} (over 9 pixels)", "a": f"a: {bad} (OSError)"})
    'OSError: a, b; over 9 pixels: c'
    """
    groups: dict[str, list[str]] = {}
    for name, message in sorted(broken.items()):
        why = re.search(r"\(([^()]+)\)$", message)
        groups.setdefault(f"{why[1]}: " if why else "", []).append(name)
    few = max(1, FEW // len(groups))
    return "; ".join(why + listed(names, few) for why, names in groups.items())

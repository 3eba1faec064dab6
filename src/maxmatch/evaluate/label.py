"""Label a folder of pictures with a trained classifier, however many there are: rows out, broken files named.

The names of all files are held, their pixels are not. Threads decode ahead of the net, a bounded number of
pictures; rows are written in the order of the names, so that the output is the same for any number of threads.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from maxmatch.data.files import default_workers
from maxmatch.data.folder import find_broken_links, list_images
from maxmatch.data.label_file import is_text
from maxmatch.data.picture_file import read_image
from maxmatch.errors import UsageError, UserError, listed, tell
from maxmatch.evaluate.classifier import Classifier, load
from maxmatch.evaluate.rows import ReaderGone, Row, choose_format, writing_rows
from maxmatch.progress import Bar

PORTION = 32  # files that a thread decodes at a time
BATCH = 256  # pictures that the net sees at a time, at most
PIXELS = 2**24  # and values they may have together

Shape = tuple[int, int, int]
Read = tuple[str, Tensor | str]  # a file's name in the folder, and its pixels or why there are none


def label_folder(
    run: Path,
    folder: Path,
    out: Path | None,
    device: str = "cpu",
    *,
    format: str | None = None,
    top: int = 1,
    workers: int | None = None,
) -> int:
    """Write path, label and confidence of each picture, sorted by path relative to `folder`, or of one file.

    `top` adds the next likely classes. Unreadable files are named on standard error; their number is returned.
    """
    kind = choose_format(format, out)
    classifier = load(run, device)
    if top > len(classifier.classes):
        raise UsageError(f"--top {top}: there are {len(classifier.classes)} classes; type that or less")
    gone: list[str] = []
    given = folder
    if folder.is_file():
        folder, names = folder.parent, [folder.name]
    else:
        names = [path.relative_to(folder).as_posix() for path in list_images(folder)]
        gone = find_broken_links(folder)
    for name in gone:
        tell(f"maxmatch: {folder / name}: a link that leads nowhere: left out")
    odd = [name for name in names if not is_text(name)]
    if odd and kind == "csv":
        how = "and are written as they are: read the table with errors='surrogateescape', or take --format jsonl"
        lost = "and are printed with a mark in the place of such letters: take --out FILE, or --format jsonl"
        tell(f"maxmatch: {len(odd)} names are not in UTF-8 ({listed(odd)}), {lost if out is None else how}")
    bad = len(gone)
    shape = classifier.preprocessing.shape
    try:
        seen = out is None and sys.stdout.isatty()  # the rows themselves show how far it is
        with writing_rows(out, kind, columns(top)) as write, Bar("labelling", len(names), quiet=seen) as bar:
            files = read_ahead(folder, names, shape, workers or default_workers(), classifier.preprocessing.middle)
            for batch in batches(files, batch_size(shape)):
                for _, pixels in batch:
                    if isinstance(pixels, str):
                        tell(f"maxmatch: {pixels}: left out")
                        bad += 1
                write(rows(classifier, [(n, p) for n, p in batch if isinstance(p, Tensor)], top, kind))
                bar.advance(len(batch))
            if names and bad == len(gone) + len(names):
                what = "it can't be read" if given.is_file() else f"none of {len(names)} files can be read"
                raise UserError(f"{given}: {what} as a picture; nothing is labelled")
    except ReaderGone:
        pass
    return bad


def columns(top: int) -> list[str]:
    """The columns of a CSV with the `top` likely classes.

    >>> columns(2)
    ['path', 'label', 'confidence', 'label_2', 'confidence_2']
    """
    more = [f"{name}_{place}" for place in range(2, top + 1) for name in ("label", "confidence")]
    return ["path", "label", "confidence", *more]


def rows(classifier: Classifier, pictures: list[tuple[str, Tensor]], top: int, format: str) -> list[Row]:
    """A row for each picture: its most likely classes, the first of equals first."""
    if not pictures:
        return []
    chances = classifier.predict_proba(torch.stack([pixels for _, pixels in pictures]))
    order = (-chances).argsort(-1, kind="stable")[:, :top]
    made = []
    for (name, _), chance, likely in zip(pictures, chances, order, strict=True):
        found = [(classifier.classes[label], round(float(chance[label]), 4)) for label in likely]
        row: Row = {"path": name, "label": found[0][0], "confidence": found[0][1]}
        if format == "jsonl" and top > 1:
            row["top"] = [{"label": label, "confidence": confidence} for label, confidence in found]
        elif top > 1:
            for place, (label, confidence) in enumerate(found[1:], start=2):
                row[f"label_{place}"], row[f"confidence_{place}"] = label, confidence
        made.append(row)
    return made


def read_ahead(folder: Path, names: list[str], shape: Shape, workers: int, middle: float = 1.0) -> Iterator[Read]:
    """All files in their order, decoded by `workers` threads; at most 2 * workers + 1 portions are held."""

    def read(portion: list[str]) -> list[Read]:
        return [(name, _read(folder / name, shape, middle)) for name in portion]

    waiting: deque[Future[list[Read]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for first in range(0, len(names), PORTION):
                waiting.append(pool.submit(read, names[first : first + PORTION]))
                if len(waiting) > 2 * workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def batches(files: Iterable[Read], size: int) -> Iterator[list[Read]]:
    """`size` files at a time."""
    batch: list[Read] = []
    for file in files:
        batch.append(file)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def batch_size(shape: Shape) -> int:
    """How many pictures of a shape the net sees at a time."""
    return max(1, min(BATCH, PIXELS // math.prod(shape)))


def _read(path: Path, shape: Shape, middle: float) -> Tensor | str:
    try:
        return read_image(path, shape, middle)
    except OSError as error:
        return str(error)

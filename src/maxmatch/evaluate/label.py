"""Label a folder of pictures with a trained classifier: CSV out, broken files named and left out."""

from __future__ import annotations

import csv
import io
import os
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from maxmatch.data.folder import list_images, read_image
from maxmatch.errors import UsageError
from maxmatch.evaluate.classifier import load
from maxmatch.files import write_safely

CHUNK = 256


def label_folder(run: Path, folder: Path, out: Path | None, device: str = "cpu") -> list[str]:
    """Write `path,label,confidence`, sorted, paths relative to `folder`, or of one file; returns a line for each
    unreadable one."""
    classifier = load(run, device)
    files, folder = ([folder], folder.parent) if folder.is_file() else (list_images(folder), folder)
    if out and not os.access(out.parent, os.W_OK):
        raise UsageError(f"--out {out}: its folder is not there or can't be written to")
    bad: list[str] = []
    rows: list[tuple[str, str, str]] = []
    console = Console(stderr=True)
    firsts = range(0, len(files), CHUNK)
    for first in track(firsts, "labelling", console=console, transient=True, disable=not console.is_terminal):
        readable, pixels = [], []
        for path in files[first : first + CHUNK]:
            try:
                pixels.append(read_image(path, classifier.preprocessing.shape))
                readable.append(path)
            except OSError as error:
                bad.append(str(error))
        if pixels:
            chances = classifier.predict_proba(torch.stack(pixels))
            labels = chances.argmax(-1)
            rows += [
                (path.relative_to(folder).as_posix(), classifier.classes[label], f"{chance[label]:.4f}")
                for path, label, chance in zip(readable, labels, chances, strict=True)
            ]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("path", "label", "confidence"))
    writer.writerows(rows)
    if out:
        write_safely(out, text.getvalue().encode(errors="surrogateescape"))
    else:
        sys.stdout.write(text.getvalue().encode(errors="surrogateescape").decode(errors="replace"))
    return bad

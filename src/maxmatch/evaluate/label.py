"""Label a folder of pictures with a trained classifier: CSV out, broken files named and left out."""

from __future__ import annotations

import csv
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from maxmatch.data.folder import list_images, read_image
from maxmatch.evaluate.classifier import load

CHUNK = 256


def label_folder(run: Path, folder: Path, out: Path | None, device: str = "cpu") -> list[str]:
    """Write `path,label,confidence`, sorted, paths relative to `folder`; returns a line for each unreadable file."""
    classifier = load(run, device)
    files = list_images(folder)
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
    with open(out, "w", newline="") if out else nullcontext(sys.stdout) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("path", "label", "confidence"))
        writer.writerows(rows)
    return bad

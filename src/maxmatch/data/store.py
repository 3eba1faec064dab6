"""The kept data sets: one safetensors file each, with the SHA-256 of its arrays, memory-mapped when it is loaded.

They lie in one folder: MAXMATCH_DATA, or maxmatch/data in the user's cache folder. `original/NAME` in it is where a
user without network may put the original files; `download/NAME` holds what is on its way.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maxmatch.data.formats import Arrays
from maxmatch.errors import UserError
from maxmatch.files import written_aside

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "1"


@dataclass(frozen=True)
class Kept:
    """What the header of a kept data set says: the SHA-256 of each array and of training pixels and labels together."""

    sha256: Mapping[str, str]
    train_sha256: str
    origin: str  # the files that it was made from


def root() -> Path:
    """The folder of all data sets."""
    given = os.environ.get("MAXMATCH_DATA")
    if given:
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "maxmatch" / "data"


def kept_at(name: str) -> Path:
    """The file of a data set, whether it is there or not."""
    return root() / f"{name}.safetensors"


def originals(name: str) -> Path:
    """Where a user may put the original files."""
    return root() / "original" / name


def downloads(name: str) -> Path:
    """Where files lie that are being fetched."""
    return root() / "download" / name


def keep(name: str, arrays: Arrays, origin: str) -> None:
    """Write the arrays aside, with their checksums, and rename the file to its place."""
    from safetensors.numpy import save_file

    arrays = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
    metadata = {
        "format_version": FORMAT,
        "name": name,
        "origin": origin,
        "sha256": json.dumps({key: sha256(array) for key, array in arrays.items()}),
        "train_sha256": sha256(arrays["x"], arrays["y"]),
    }
    root().mkdir(parents=True, exist_ok=True)
    with written_aside(kept_at(name)) as aside:
        aside.touch()
        rights = aside.stat().st_mode  # those that any new file gets: save_file would keep others from reading it
        save_file(arrays, aside, metadata)
        aside.chmod(rights)


def header(name: str) -> Kept:
    """What a kept file says of itself."""
    return _read(name, "np")[0]


def load(name: str) -> tuple[dict[str, Tensor], Kept]:
    """The arrays as memory-mapped tensors: pages are read when they are used."""
    kept, tensors = _read(name, "pt")
    return {key: tensors.get_tensor(key) for key in tensors.keys()}, kept  # noqa: SIM118  no mapping


def check(name: str, known: Mapping[str, str]) -> None:
    """Read all of a kept file and compare it with its checksums, and with the `known` ones; one line if it differs."""
    tensors, kept = load(name)
    for key, tensor in tensors.items():
        found = sha256(tensor.numpy())
        if found != kept.sha256.get(key) or found != known.get(key, found):
            raise damaged(name, f"{key} has another checksum")
    if sha256(tensors["x"].numpy(), tensors["y"].numpy()) != kept.train_sha256:
        raise damaged(name, "its header has another checksum")


def remove(name: str) -> bool:
    """Delete a kept data set and what was on its way; False where there was nothing. The user's originals stay."""
    found = kept_at(name).exists() or downloads(name).exists()
    kept_at(name).unlink(missing_ok=True)
    shutil.rmtree(downloads(name), ignore_errors=True)
    return found


def sha256(*arrays: Any) -> str:
    """The SHA-256 of the bytes of arrays, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.reshape(-1).view(np.uint8))  # no copy; an empty one has no bytes
    return digest.hexdigest()


def damaged(name: str, reason: str) -> UserError:
    """One line for a kept file that is not what it was."""
    again = f"type maxmatch data remove {name}, then maxmatch data fetch {name}"
    return UserError(f"{kept_at(name)} is damaged ({reason}): {again}")


def _read(name: str, framework: str) -> tuple[Kept, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        file: Any = safe_open(kept_at(name), framework=framework)
        words = file.metadata() or {}
        kept = Kept(json.loads(words["sha256"]), words["train_sha256"], words["origin"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise damaged(name, str(error).splitlines()[0]) from None
    if words.get("format_version") != FORMAT:
        raise damaged(name, f"format {words.get('format_version')}, this version reads {FORMAT}")
    if set(file.keys()) != set(kept.sha256) or not {"x", "y"} <= set(kept.sha256):
        raise damaged(name, "arrays are missing")
    return kept, file

"""Checkpoints: one safetensors file each, written aside, synced and renamed; the last two are kept.

A file holds every tensor that a step changes and, as JSON metadata, the step, the evaluations so far and a digest of
the tensors. Loading copies into the tensors that are there: nothing is reallocated, nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from maxmatch.errors import UserError
from maxmatch.files import write_safely
from maxmatch.nets.model_file import plain_tensors, read_tensors

FORMAT_VERSION = 2
KEPT = 2


@dataclass
class Progress:
    """How far a run has come: what a checkpoint holds beside its tensors."""

    step: int = 0  # steps done
    begun_with: int = 0  # steps that the run was to have when it began; 0: not noted
    code: str | None = None  # of a method of one's own; of several, where it was changed on the way
    seconds: float = 0.0  # in the loop
    seconds_compiling: float = 0.0  # of those
    seconds_total: float = 0.0
    errors: list[tuple[int, float]] = field(default_factory=list)  # (step, error) of every evaluation
    last_log: dict[str, object] = field(default_factory=dict)
    unlabelled: dict[str, float | int | None] = field(default_factory=dict)  # of the last evaluation of the pool


def save_checkpoint(folder: Path, tensors: Mapping[str, Tensor], progress: Progress) -> Path:
    """Write `folder`/STEP.safetensors and drop all but the last two."""
    folder.mkdir(parents=True, exist_ok=True)
    held = plain_tensors(tensors)
    metadata = {"format_version": str(FORMAT_VERSION), "progress": json.dumps(asdict(progress))}
    path = folder / f"{progress.step:09d}.safetensors"
    write_safely(path, save(held, {**metadata, "sha256": digest(held, metadata)}))
    for old in checkpoints(folder)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def restore_checkpoint(folder: Path, tensors: Mapping[str, Tensor], warn: Callable[[str], None]) -> Progress | None:
    """Copy the newest sound checkpoint into `tensors`; a damaged one is named and the one before it taken."""
    found = _newest_sound(folder, warn)
    if found is None:
        return None
    path, held, metadata = found
    _copy_into(tensors, held, path)
    progress = Progress(**json.loads(metadata["progress"]))
    progress.errors = [(int(step), float(error)) for step, error in progress.errors]
    return progress


def saved_progress(folder: Path) -> Progress:
    """How far the newest sound checkpoint has come; nowhere, where there is none."""
    try:
        found = _newest_sound(folder, warn=lambda _: None)
    except UserError:  # who goes on with that run will tell
        return Progress()
    return Progress(**json.loads(found[2]["progress"])) if found is not None else Progress()


def newest_weights(folder: Path, of_average: bool) -> tuple[int, dict[str, Tensor]]:
    """The step of the newest sound checkpoint, and the weights of its net or of its average."""
    try:
        found = _newest_sound(folder, warn=lambda _: None)
    except UserError:
        found = None
    if found is None:
        raise UserError(f"{folder}: no sound checkpoint of this version is in it; give another --init, or leave it out")
    prefix = "average." if of_average else "net."
    weights = {name.removeprefix(prefix): t for name, t in found[1].items() if name.startswith(prefix)}
    return int(found[0].stem), weights


def restore_policy(folder: Path, policy: nn.Module) -> None:
    """Load what a policy has learned from the newest sound checkpoint: it is saved nowhere else."""
    found = _newest_sound(folder, warn=lambda _: None)
    if found is None:
        raise UserError(f"{folder} holds no checkpoint, and with it what the policy has learned is gone: train again")
    prefix = "policy."
    policy.load_state_dict({n.removeprefix(prefix): t for n, t in found[1].items() if n.startswith(prefix)})


def _newest_sound(
    folder: Path, warn: Callable[[str], None]
) -> tuple[Path, Mapping[str, Tensor], Mapping[str, str]] | None:
    """The newest checkpoint that is whole: its path, tensors and metadata; None if there is none at all."""
    found = checkpoints(folder)
    for path in reversed(found):
        try:
            held, metadata = read_tensors(path)
            if metadata.get("format_version") == str(FORMAT_VERSION) and metadata.pop("sha256") != digest(
                held, metadata
            ):
                raise UserError("its checksum differs")
        except (UserError, KeyError):
            warn(f"{path} is damaged; falling back to the checkpoint before it")
            continue
        if metadata.get("format_version") != str(FORMAT_VERSION):
            raise UserError(
                f"{path} has format {metadata.get('format_version', 'unknown')}, this version reads {FORMAT_VERSION}: "
                "resume with the version that wrote it, or start anew with --force"
            )
        return path, held, metadata
    if found:
        raise UserError(f"no sound checkpoint is left in {folder}: start anew with --force")
    return None


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    return sorted(folder.glob("[0-9]*.safetensors"))


def _copy_into(tensors: Mapping[str, Tensor], held: Mapping[str, Tensor], path: Path) -> None:
    # A generator belongs to a device: a run that goes on elsewhere keeps the one it was seeded with.
    tensors = {name: t for name, t in tensors.items() if name in held or not name.startswith("generator.")}
    expected = {name for name in held if name in tensors or not name.startswith("generator.")}
    if tensors.keys() != expected or any(t.shape != held[name].shape for name, t in tensors.items()):
        raise UserError(f"{path} belongs to another net or method than recipe.json says: start anew with --force")
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(held[name])


def digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 of the tensors and of all metadata beside it."""
    sha = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()

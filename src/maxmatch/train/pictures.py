"""Your own pictures in a run: what suits them is chosen from a look at the folder, said, and open to change."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from maxmatch.data.datasets import Images, imagenet_folder, load_images
from maxmatch.data.files import default_workers
from maxmatch.data.layout import Listing, read_layout
from maxmatch.data.pictures import Look, load_pictures, look_at
from maxmatch.errors import UsageError, listed
from maxmatch.methods import PRETRAINING, method_name
from maxmatch.methods.base import Consistency
from maxmatch.nets.device import best_device
from maxmatch.train.distributed import Ranks
from maxmatch.train.recipe import DataSettings, Recipe

SIDES = (32, 64, 96, 128, 224)
# What a CPU bears: a small net, and a learning rate for a short run of it.
ON_CPU: dict[str, dict[str, Any]] = {
    "net": {"name": "wrn-10-1"},
    "train": {"batch": 32, "ratio": 4, "lr": 0.2, "weight_decay": 2e-3},
}
# Where no method is asked for: MaxMatch's worst case with thresholds that follow the model (docs/results.md).
METHOD: dict[str, Any] = {"name": "freematch", "k": 3, "over": "worst"}
# What suits a net that begins with published weights: their statistics as they are, and an optimiser whose steps no
# layer is spoilt by. Of labels only those that it is sure of, as it soon is of most (docs/results.md).
FINETUNED: dict[str, Any] = {"optimizer": "adamw", "lr": 1e-4, "head_lr": 1e-3, "weight_decay": 0.01}
FINETUNED_ON_CPU = {"batch": 16, "ratio": 4}
FINETUNED_SIDE = 96  # smaller pictures are enlarged to it: such nets were trained on large ones
STEPS = {("drawn", "gpu"): 20_000, ("drawn", "cpu"): 1_000, ("published", "gpu"): 4_000, ("published", "cpu"): 300}
TINY = 40  # pictures of one size up to this are taken as they are


def pictures(
    method: str | None, data: Mapping[str, Any], device: str = "auto", steps: int | None = None, published: bool = False
) -> dict[str, dict[str, Any]]:
    """The settings that suit a folder: size of views, net, steps, and a method where none is asked for.

    `data` are the settings data.path and, where there is one, data.label_file; `published`: net.pretrained is set. For
    a CPU some settings were tried on Fashion-MNIST and CIFAR-10 as pictures (benchmarks/pictures.py, docs/results.md);
    for a GPU nothing was tuned.
    """
    strict, labels = data.get("strict", False) is True, method not in PRETRAINING
    listing = _listing(data.get("path"), data.get("label_file"), strict, labels)
    on_gpu = (best_device() if device == "auto" else device) == "cuda"
    asked = data.get("side")
    side = int(str(asked)) if str(asked).isdigit() and int(str(asked)) >= 8 else None  # else it is refused further on
    own = {"name": "maxmatch"} if published else METHOD
    return {"method": {"name": method} if method else own, **suited(look_at(listing), on_gpu, side, steps, published)}


def suited(
    look: Look, on_gpu: bool, asked: int | None = None, steps: int | None = None, published: bool = False
) -> dict[str, dict[str, Any]]:
    """Settings for pictures that look like this, with views of the `asked` side and for so many steps if there are.

    Where the net begins with `published` weights, what suits those.

    >>> photos = Look(pictures=10_000, classes=5, short_side=480, same_size=False, grey=False)
    >>> suited(photos, on_gpu=True)["net"]["name"], suited(photos, on_gpu=False)["data"]["side"]
    ('resnet50', 32)
    """
    tiny = look.same_size and look.short_side <= TINY and asked in (None, look.short_side)
    fitted = tiny and not published
    least = FINETUNED_SIDE if published else SIDES[0]
    largest = SIDES[-1] if on_gpu else least
    side = max((s for s in SIDES if least <= s <= min(look.short_side, largest)), default=least)
    side = asked or (max(8, look.short_side) if fitted else side)
    canvas = None if fitted else -(-4 * side // 3 // 16) * 16  # a picture of 4:3 keeps a short side of `side`
    steps = steps or STEPS["published" if published else "drawn", "gpu" if on_gpu else "cpu"]
    often = max(1, steps // 20)
    net, train = (_finetuned(side, on_gpu, steps) if published else _begun(side, on_gpu)).values()
    grey = look.grey and not published
    return {
        "data": {"labels": "all", "side": side, "canvas": canvas, "channels": 1 if grey else 3},
        "augment": {"policy": "fixmatch" if side < 128 else "imagenet"},
        "net": {**net, "batchnorm_momentum": "auto"},
        "train": {
            **train,
            "steps": steps, "schedule": "cosine", "ema_decay": "auto",
            "evaluate_every": often, "checkpoint_every": 2 * often, "log_every": often,
        },
    }  # fmt: skip


def _begun(side: int, on_gpu: bool) -> dict[str, dict[str, Any]]:
    """Net and training from weights that are drawn."""
    if not on_gpu:
        return ON_CPU
    return {"net": {"name": "wrn-28-2" if side <= 64 else "resnet18" if side < 224 else "resnet50"}, "train": {}}


def _finetuned(side: int, on_gpu: bool, steps: int) -> dict[str, dict[str, Any]]:
    """Net and training from published weights."""
    net = {"name": "resnet50" if side >= 224 else "resnet18", "batchnorm_frozen": True}
    return {"net": net, "train": {**FINETUNED, "warmup": steps // 10, **({} if on_gpu else FINETUNED_ON_CPU)}}


def describe(recipe: Recipe) -> str:
    """What was found in a folder and what was chosen for it, in one line, with what to type for something else."""
    wants_labels = recipe.method.needs.labelled
    listing = _listing(recipe.data.path, recipe.data.label_file, recipe.data.strict, wants_labels)
    labelled = sum(label >= 0 for label in listing.labels)
    shown = "" if recipe.data.labels == "all" else f" ({recipe.data.labels} of them shown)"
    held = f"{len(listing.test_files):,} for the test" if listing.test_files else "none for a test"
    classes = f"{len(listing.classes)} classes ({listed(listing.classes, 6)})"
    labels = f", {labelled:,} with a label{shown} of {classes}" if wants_labels else ""
    train = recipe.train
    length = f"{train.steps:,} steps (--steps)" if train.epochs is None else f"{train.epochs:,} epochs (--epochs)"
    return (
        f"{listing.root}: {len(listing.files):,} pictures to learn from{labels}, {held}. Chosen: "
        f"{_method(recipe)} (--method), "
        f"views of {recipe.data.side} px (--set data.side=), {_net(recipe)}, another net (--set net.name=), "
        f"{length}, flips {'on' if recipe.augment.flip else 'off'} (--set augment.flip=)"
    )


def _net(recipe: Recipe) -> str:
    """The net, and what it begins with."""
    net = recipe.net
    if net.pretrained:
        return f"{net.name} with published weights"
    begun = "" if recipe.train.init else " from random weights, or published ones (--set net.pretrained=true)"
    return net.name + begun


def _method(recipe: Recipe) -> str:
    """The method, and which of its views count."""
    method, most = recipe.method, recipe.method.needs.most
    if most < 2 or not isinstance(method, Consistency):
        return method_name(method)
    return f"{method_name(method)} by the {method.over.spell()} of {'' if method.k == most else 'up to '}{most} views"


def load_data(
    recipe: Recipe,
    quiet: bool = True,
    left_out: Sequence[str] | None = None,
    ranks: Ranks = Ranks(),  # noqa: B008  frozen
    test: bool = True,
) -> Images:
    """The images that a recipe names: a data set, or a folder of pictures, less what a run that goes on left out.

    Unless `quiet` it says how far it is. Without `test` no test picture is read.

    Ranks share the memory and the cores of their machine. All keep the pictures or none does; the first alone has the
    test, since it alone evaluates.
    """
    data = recipe.data
    if not data.of_pictures:
        return load_images(data.name, data.protocol)
    room = min(ranks.everyones(_room(recipe.train.device, ranks.beside)))  # asked of all before any reads a picture
    return load_pictures(
        _place(data),
        side=data.side,
        slot=data.canvas or data.side,
        channels=data.channels,
        middle=data.middle,
        label_file=Path(data.label_file) if data.label_file else None,
        resident=None if data.resident == "auto" else data.resident,
        workers=max(1, default_workers() // ranks.beside) if data.workers == "auto" else data.workers,
        strict=data.strict,
        labels=recipe.method.needs.labelled,
        memory=room,
        test=test and ranks.first,
        quiet=quiet or not ranks.first,
        name=data.name,
        left_out=left_out,
    )


def digest_of_pictures(recipe: Recipe, left_out: Sequence[str]) -> str:
    """By what a split knows the pictures that a recipe names, those that are there now; none of them is read."""
    data = recipe.data
    listing = _listing(str(_place(data)), data.label_file, data.strict, recipe.method.needs.labelled)
    return listing.without(left_out).sha256()


def refuse_moved(recipe: Recipe, folder: Path) -> None:
    """Say what to type where the pictures of the run in `folder`, or their labels, are not where they were."""
    data = recipe.data
    for path, what in ((data.path, "pictures"), (data.label_file, "labels")):
        if data.name == "folder" and path is not None and not Path(path).exists():
            labels = "" if data.label_file is None else " --labels FILE"
            again = f"maxmatch {recipe.verb} FOLDER{labels} --resume --out {shlex.quote(str(folder))}"
            raise UsageError(f"{path}: the {what} of {folder} are not there any more; if they were moved, type {again}")


def _place(data: DataSettings) -> Path:
    return imagenet_folder() if data.name == "imagenet" else _path(data.path)


def title(data: DataSettings) -> str:
    """What a run is called by."""
    return Path(data.path).name if data.name == "folder" and data.path else data.name


def _listing(path: str | None, label_file: str | None, strict: bool, labels: bool) -> Listing:
    return read_layout(_path(path), Path(label_file) if label_file else None, strict, labels)


def _path(path: str | None) -> Path:
    if path is None:
        raise UsageError("data.path is missing: type maxmatch train ./photos")
    return Path(path)


def _room(device: str, processes: int = 1) -> int:
    """A third of the memory that a process finds free, here and on its device: labelled pictures lie there twice."""
    room = 4 * 2**30
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                room = int(line.split()[1]) * 1024 // 3
    except (OSError, ValueError):
        pass
    room //= processes
    return min(room, torch.cuda.mem_get_info()[0] // 3) if device == "cuda" and torch.cuda.is_available() else room

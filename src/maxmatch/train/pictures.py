"""Your own pictures in a run: what was chosen for them is said, and they are read."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import torch

from maxmatch.data.datasets import Images, imagenet_folder, load_images
from maxmatch.data.files import default_workers
from maxmatch.data.pictures import load_pictures
from maxmatch.errors import UsageError, listed
from maxmatch.methods import method_name
from maxmatch.methods.base import Consistency
from maxmatch.nets.foreign import may_be_published
from maxmatch.train.distributed import Ranks
from maxmatch.train.recipe import DataSettings, Recipe
from maxmatch.train.suited import find_listing, folder_of


def describe(recipe: Recipe) -> str:
    """What was found in a folder and what was chosen for it, in one line, with what to type for something else."""
    wants_labels = recipe.method.needs.labelled
    listing = find_listing(recipe.data.path, recipe.data.label_file, recipe.data.strict, wants_labels)
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
    name, init = recipe.net.name, recipe.train.init
    if init is not None:
        return f"{name} from {init}"
    if recipe.net.pretrained:
        return f"{name} with published weights"
    other = "" if may_be_published(name) else " --set net.name=resnet18"
    return f"{name} from random weights, or published ones (--set net.pretrained=true{other})"


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
    listing = find_listing(str(_place(data)), data.label_file, data.strict, recipe.method.needs.labelled)
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
    return imagenet_folder() if data.name == "imagenet" else folder_of(data.path)


def title(data: DataSettings) -> str:
    """What a run is called by."""
    return Path(data.path).name if data.name == "folder" and data.path else data.name


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

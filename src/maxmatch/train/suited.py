"""What suits a folder of pictures, chosen from a look at it: size of the views, net, length, and how it is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from maxmatch.data.layout import Listing, read_layout
from maxmatch.data.pictures import Look, look_at
from maxmatch.errors import UsageError
from maxmatch.methods import PRETRAINING
from maxmatch.nets.device import best_device
from maxmatch.train.recipe import read_values

Sections = dict[str, dict[str, Any]]

ADAMW = "adamw"
NOTHING: Mapping[str, Any] = MappingProxyType({})
SIDES = (32, 64, 96, 128, 224)
# What a CPU bears: a small net, and a learning rate for a short run of it.
ON_CPU: Sections = {
    "net": {"name": "wrn-10-1"},
    "train": {"batch": 32, "ratio": 4, "lr": 0.2, "weight_decay": 2e-3},
}
# Where no method is asked for: MaxMatch's worst case with thresholds that follow the model (docs/results.md).
METHOD: dict[str, Any] = {"name": "freematch", "k": 3, "over": "worst"}
# What suits a net that is trained already: its statistics as they are, and an optimiser whose steps no layer is spoilt
# by. Of labels only those that it is sure of, as it soon is of most (docs/results.md).
FINETUNED: dict[str, Any] = {"optimizer": ADAMW, "lr": 1e-4, "head_lr": 1e-3, "weight_decay": 0.01}
FINETUNED_OTHERWISE: dict[str, Any] = {"lr": 3e-3, "head_lr": None, "weight_decay": 5e-4}  # where another one is typed
FINETUNED_ON_CPU = {"batch": 16, "ratio": 4}
FINETUNED_SIDE = 96  # smaller pictures are enlarged to it: such nets were trained on large ones
STEPS = {("drawn", "gpu"): 20_000, ("drawn", "cpu"): 1_000, ("published", "gpu"): 4_000, ("published", "cpu"): 300}
TINY = 40  # pictures of one size up to this are taken as they are


def suited_to_folder(method: str | None, typed: Mapping[str, Mapping[str, Any]]) -> Sections:
    """The settings that suit a folder: size of views, net, steps, and a method where none is asked for.

    `typed` are those that were asked for, its data.path among them; what follows from them is looked at, however wrong
    it is. A net that begins with published weights, or with those of a run that did, is trained as suits it. For a CPU
    some settings were tried on Fashion-MNIST and CIFAR-10 as pictures (benchmarks/pictures.py, docs/results.md); for a
    GPU nothing was tuned.
    """
    data, train = typed.get("data", {}), typed.get("train", {})
    strict, labels = data.get("strict", False) is True, method not in PRETRAINING
    listing = find_listing(data.get("path"), data.get("label_file"), strict, labels)
    device = str(train.get("device", "auto"))
    on_gpu = (best_device() if device == "auto" else device) == "cuda"
    begun = next(_line_of(train.get("init")), {})
    asked, published = typed.get("net", {}).get("pretrained") is True, began_published(train.get("init"))
    if asked and begun and not published:
        told = "it did not begin with published weights, and this run would not"
        raise UsageError(f"net.pretrained = true, train.init = {train['init']}: {told}; leave one of the two out")
    published = published or asked
    side = int(str(data["side"])) if str(data.get("side")).isdigit() and int(str(data["side"])) >= 8 else None
    steps = whole(train.get("steps"))
    if method in PRETRAINING:  # all of it is learned from the pictures, whatever it begins with
        steps = steps or STEPS["drawn", "gpu" if on_gpu else "cpu"]
    chosen = suited(look_at(listing), on_gpu, side, steps, published, train)
    if "name" in begun:
        chosen["net"]["name"] = begun["name"]
    own = {"name": "maxmatch"} if published else METHOD
    return {"method": {"name": method} if method else own, **chosen}


def suited(
    look: Look, on_gpu: bool, asked: int | None = None, steps: int | None = None, published: bool = False,
    train: Mapping[str, Any] = NOTHING,
) -> Sections:  # fmt: skip
    """Settings for pictures that look like this, with views of the `asked` side and for so many steps if there are.

    Where the net begins with `published` weights, what suits those, and what is typed of its `train`.

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
    found = finetuned(on_gpu, steps, train) if published else _begun(side, on_gpu)
    net = {"name": "resnet50" if side >= 224 else "resnet18", **found["net"]} if published else found["net"]
    grey = look.grey and not published
    return {
        "data": {"labels": "all", "side": side, "canvas": canvas, "channels": 1 if grey else 3},
        "augment": {"policy": "fixmatch" if side < 128 else "imagenet"},
        "net": {**net, "batchnorm_momentum": "auto"},
        "train": {
            **found["train"],
            "steps": steps, "schedule": "cosine", "ema_decay": "auto",
            "evaluate_every": often, "checkpoint_every": 2 * often, "log_every": often,
        },
    }  # fmt: skip


def finetuned(on_gpu: bool, steps: int, typed: Mapping[str, Any]) -> Sections:
    """How a net is trained that begins with published weights: a tenth is warm-up, of epochs if these are typed.

    Another optimiser that is asked for has other rates.
    """
    optimizer, epochs = typed.get("optimizer", ADAMW), whole(typed.get("epochs"))
    rates = FINETUNED if optimizer == ADAMW else FINETUNED_OTHERWISE
    warmup = {"warmup": steps // 10} if epochs is None or whole(typed.get("steps")) else {"warmup_epochs": epochs // 10}
    train = {**rates, **warmup, **({} if on_gpu else FINETUNED_ON_CPU)}
    return {"net": {"batchnorm_frozen": optimizer != "muon"}, "train": train}


def began_published(init: object) -> bool:
    """Whether weights to start from come of published ones, by however many runs."""
    return any(net.get("pretrained") is True for net in _line_of(init))


def find_listing(path: str | None, label_file: str | None, strict: bool, labels: bool) -> Listing:
    """What is in a folder of pictures, and what it is for."""
    return read_layout(folder_of(path), Path(label_file) if label_file else None, strict, labels)


def folder_of(path: str | None) -> Path:
    """The folder that data.path names."""
    if path is None:
        raise UsageError("data.path is missing: type maxmatch train ./photos")
    return Path(path)


def whole(value: object) -> int | None:
    """A number of steps or epochs, if it is one."""
    return value if isinstance(value, int) and value > 0 else None


def _begun(side: int, on_gpu: bool) -> Sections:
    """Net and training from weights that are drawn."""
    if not on_gpu:
        return ON_CPU
    return {"net": {"name": "wrn-28-2" if side <= 64 else "resnet18" if side < 224 else "resnet50"}, "train": {}}


def _line_of(init: object) -> Iterator[Mapping[str, Any]]:
    """The net's settings of the run that another one starts from, by its folder or a file in it, and of all before."""
    seen: set[Path] = set()
    while isinstance(init, str):
        place = Path(init).parent if Path(init).is_file() else Path(init)
        if place in seen or not (place / "recipe.json").is_file():
            return
        seen.add(place)
        try:
            recipe = read_values(place / "recipe.json")
        except UsageError:  # it is said where its weights are read
            return
        net, train = recipe.get("net"), recipe.get("train")
        if not isinstance(net, Mapping) or not isinstance(train, Mapping):
            return
        yield net
        init = train.get("init")

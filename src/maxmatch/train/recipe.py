"""A recipe is every setting of a run, typed: six frozen sections that JSON, TOML and the command line read and write.

`recipe.json` in a run folder is complete: it rebuilds the run. Values `auto` are settled by `resolve` before anything
else happens, so what is saved is what was used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from maxmatch.data.split import Protocol
from maxmatch.errors import UsageError, unknown
from maxmatch.methods import make_method, method_values
from maxmatch.methods.base import Method
from maxmatch.methods.maxmatch import MaxMatch
from maxmatch.nets.device import Device, best_precision
from maxmatch.settings import build, field_types, plain, to_toml, with_none, without_none
from maxmatch.train import schedule
from maxmatch.train.rules import PICTURES, check
from maxmatch.train.schedule import Schedule

Auto = Literal["auto"]


def parse_labels(value: Any, name: str = "data.labels") -> int | str:
    """A number of labels, a share of those that there are such as `10%`, or `all`."""
    text = str(value).strip()
    if text == "all" or (text.endswith("%") and _is_share(text[:-1])):
        return text
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise UsageError(f"{name} = {value!r}: type a number of labels such as 250, a share such as 10%, or all")


def _is_share(text: str) -> bool:
    try:
        return 0 < float(text) <= 100
    except ValueError:
        return False


@dataclass(frozen=True)
class DataSettings:
    name: str = "digits"
    labels: Annotated[int | str, parse_labels] = 20
    protocol: Protocol = "balanced"  # or proportional, google, usb, paper: data/split.py says what each means
    exclude_labelled: bool = False  # True: the unlabelled pool leaves the labelled images out
    path: str | None = None  # a folder of pictures; name is then folder, and the rest of this section is for it
    label_file: str | None = None  # CSV of path,label
    side: int = 32  # of the views, in pixels
    canvas: int | None = None  # pictures are shrunk to this and cropped at random; None: fitted to `side` once
    middle: float = 1.0  # the share of a test picture's short side that is judged: 0.875 is Resize 256, CenterCrop 224
    channels: int = 3
    resident: bool | Auto = "auto"  # keep all pictures in memory; auto: if they take at most a third of it
    workers: int | Auto = "auto"  # how many decode, for each rank; nothing depends on it
    decoders: Literal["auto", "threads", "processes"] = "auto"  # who decodes step by step; auto: beside a GPU processes
    strict: bool = False  # True: refuse what would be left out

    @property
    def of_pictures(self) -> bool:
        """Whether the images are files, which may change, and not a kept data set."""
        return self.name in ("folder", "imagenet")


@dataclass(frozen=True)
class AugmentSettings:
    policy: str = "fixmatch"  # a preset of RandAugment, cta, cta-fixed, moco, moco-small; None below keeps its own
    n: int | None = None
    p: float | None = None
    levels: tuple[int, int] | None = None
    ops: tuple[str, ...] | None = None
    cutout: int | None = None  # pixels, 0 for none
    flip: bool = True
    shift: float = 0.125  # of the side, reflected
    crop: bool = False  # True: a view is a random part of an image, resized; with data.canvas it always is
    scale: tuple[float, float] = (0.35, 1.0)  # the share of a picture that a view shows, with data.canvas or crop
    middle: float | None = None  # where data.canvas is set: views show the middle, this share of the short side
    shared_crop: bool = False  # True: the K strong views start from one weak crop, the literal reading of the paper


@dataclass(frozen=True)
class NetSettings:
    name: str = "wrn-28-2"  # wrn-DEPTH-WIDTH, plain-conv, resnet18/34/50, timm:NAME, or your own as module:Class
    pretrained: bool = False  # True: with published weights, which are downloaded once
    dropout: float = 0.0
    batchnorm_momentum: float | Auto = 0.001  # auto: a horizon of 5 % of the steps, for short runs


@dataclass(frozen=True)
class TrainSettings:
    steps: int = 2**20
    epochs: int | None = None  # passes over the unlabelled images, from which steps and warmup are then made
    warmup_epochs: int = 0
    batch: int = 64  # labelled images a step
    ratio: int = 7  # unlabelled images for each
    micro_batch: int | None = None  # images through the net at a time: less memory, a third more work
    optimizer: Literal["sgd", "muon"] = "sgd"  # muon learns more in a short run (docs/search.md); the papers have sgd
    lr: float = 0.03
    head_lr: float | None = None  # that of the net's last layer, for finetuning; None: lr
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4  # on convolution and linear weights that are not Muon's, never on biases or BatchNorm
    schedule: Schedule = "cosine-7/16"
    lr_floor: float = 0.0  # the share of lr that a schedule to 0 ends at instead: a long run keeps learning then
    milestones: tuple[float, ...] = ()  # for that schedule: shares of the training; from each on lr is a tenth
    warmup: int = 0
    ema_decay: float | Auto = 0.999  # 0 = off; auto: a horizon of 5 % of the steps, for short runs
    precision: Literal["auto", "float64", "float32", "bf16"] = "auto"  # auto: bf16 on a GPU, float32 elsewhere
    step: Literal["auto", "eager", "compiled", "captured"] = "auto"  # auto: captured on a GPU, eager elsewhere
    sync_batchnorm: bool = False  # True: several processes normalise by the statistics of the whole batch
    kernels: Literal["auto", "torch"] = "auto"  # auto: fused ones where they run (docs/speed.md), else torch's
    deterministic: bool = False  # the same bits each time on a GPU too, at some cost in speed
    seed: int = 1
    fold: int | Auto = "auto"  # which labelled set; auto: the seed
    device: Device = "auto"
    init: str | None = None  # a run folder to start from the weights of
    threads: int | Auto = "auto"  # of the CPU; set again on resume, since sums depend on it
    checkpoint_every: int = 1024  # steps; 0: once an epoch, where train.epochs is set
    evaluate_every: int = 1024
    log_every: int = 128


@dataclass(frozen=True)
class EvaluateSettings:
    batch: int = 512
    robust_views: int = 3  # K of robust_error
    unlabelled: int = 0  # so many unlabelled images, chosen once by the seed, are judged too; 0: none


@dataclass(frozen=True)
class Recipe:
    data: DataSettings = field(default_factory=DataSettings)
    augment: AugmentSettings = field(default_factory=AugmentSettings)
    net: NetSettings = field(default_factory=NetSettings)
    method: Method = field(default_factory=MaxMatch)
    train: TrainSettings = field(default_factory=TrainSettings)
    evaluate: EvaluateSettings = field(default_factory=EvaluateSettings)
    settled: tuple[str, ...] = ()  # the fields whose `auto` became a value; as a --config they are auto again

    def __post_init__(self) -> None:
        check(self)

    @property
    def verb(self) -> str:
        """The command that a run by this recipe is begun and gone on with: maxmatch train, or maxmatch pretrain."""
        return "train" if self.method.needs.labelled else "pretrain"

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Recipe:
        """Read plain values; unknown sections and fields are refused by name."""
        sections = {name: kind for name, kind in field_types(Recipe).items() if name != "settled"}
        settled, values = split_settled(values)
        for name, section in values.items():
            if name in sections and isinstance(section, Mapping):
                continue
            if name not in sections and isinstance(section, Mapping):
                raise UsageError(unknown("section", name, sections))
            raise UsageError(f"{name} = {section!r}: settings stand in the sections {', '.join(sections)}; not outside")
        made: dict[str, Any] = {
            name: make_method(section) if name == "method" else build(sections[name], section, name)
            for name, section in values.items()
        }
        return Recipe(**made, settled=settled)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The six sections as plain values."""
        sections = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "settled"}
        return {name: method_values(s) if name == "method" else plain(s) for name, s in sections.items()}

    def to_json(self) -> str:
        settled = {"settled": list(self.settled)} if self.settled else {}
        return json.dumps({**self.to_dict(), **settled}, indent=2) + "\n"

    def to_toml(self) -> str:
        """The six sections as TOML that says all: whichever recipe it is laid over, it gives this one."""
        sections = {name: without_none(type(getattr(self, name)), s) for name, s in self.to_dict().items()}
        if not self.data.of_pictures:  # these would be refused, and say nothing of the images
            sections["data"] |= dict.fromkeys(PICTURES)
        return to_toml(sections)

    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()


def read_values(path: Path) -> dict[str, Any]:
    """The plain values of a recipe file, JSON or TOML by its ending."""
    try:
        text = path.read_text()
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; give a recipe file in TOML or JSON") from None
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a recipe: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path} is not a recipe: sections such as [train] are wanted")
    return with_nones(values)


def with_nones(values: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of plain values with None where the word `unset` stands for it; any of it may be wrong."""
    kinds: dict[str, Any] = {name: kind for name, kind in field_types(Recipe).items() if name != "settled"}
    return {
        name: with_none(kinds[name], section) if name in kinds and isinstance(section, Mapping) else section
        for name, section in values.items()
    }


def split_settled(values: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names under `settled` in a recipe's plain values, and the values without them."""
    names = values.get("settled", ())
    if not isinstance(names, list | tuple) or not all(str(name).count(".") == 1 for name in names):
        raise UsageError(f"settled = {names!r}: a list of section.field is wanted, or nothing")
    return tuple(map(str, names)), {name: section for name, section in values.items() if name != "settled"}


def learning_rate(settings: TrainSettings, step: int) -> float:
    """The learning rate of a step."""
    s = settings
    return schedule.learning_rate(
        step,
        steps=s.steps,
        lr=s.lr,
        schedule=s.schedule,
        warmup=s.warmup,
        epochs=s.epochs,
        milestones=s.milestones,
        floor=s.lr_floor,
    )


def learning_rates(settings: TrainSettings) -> dict[str, Callable[[int], float]]:
    """The learning rates of a run as functions of the step: `lr`, and `head_lr` where the head has one of its own."""
    found = {"lr": partial(learning_rate, settings)}
    if settings.head_lr is not None:
        found["head_lr"] = partial(learning_rate, replace(settings, lr=settings.head_lr))
    return {**found}


def horizon_decay(steps: int, share: float = 0.05) -> float:
    """The decay whose horizon is `share` of the steps: .999 over a few hundred would still hold the initial weights."""
    return 1 - 1 / max(2.0, share * steps)


def resolve(recipe: Recipe, *, device: Device, threads: int) -> Recipe:
    """Settle every `auto`; those that depend on the steps wait for them where they come from epochs."""
    train, net = recipe.train, recipe.net
    chosen: dict[str, object] = {"net.batchnorm_momentum": net.batchnorm_momentum, "train.ema_decay": train.ema_decay}
    chosen |= {"train.fold": train.fold, "train.threads": train.threads, "train.device": train.device}
    chosen |= {"train.precision": train.precision}
    settled = tuple(name for name, value in chosen.items() if value == "auto") or recipe.settled
    if train.fold == "auto":
        train = replace(train, fold=train.seed)
    if train.threads == "auto":
        train = replace(train, threads=threads)
    if train.device == "auto":
        train = replace(train, device=device)
    if train.precision == "auto":
        train = replace(train, precision=best_precision(train.device))
    found = replace(recipe, train=train, settled=settled)
    return found if train.epochs is not None else settle_horizons(found)


def settle_horizons(recipe: Recipe) -> Recipe:
    """Settle what follows from the number of steps."""
    train, net, decay = recipe.train, recipe.net, horizon_decay(recipe.train.steps)
    if net.batchnorm_momentum == "auto":
        net = replace(net, batchnorm_momentum=max(0.001, 1 - decay))
    if train.ema_decay == "auto":
        train = replace(train, ema_decay=min(0.999, decay))
    return replace(recipe, train=train, net=net)

"""A recipe is every setting of a run, typed: six frozen sections that JSON, TOML and the command line read and write.

`recipe.json` in a run folder is complete: it rebuilds the run. `resolve` settles `auto` before anything else happens,
so what is saved is what was used; only how a step runs and who reads pictures is decided anew on each machine.

The sentence below a field says what it means, and is the only place that does: docs/settings.md is made of them.
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
from maxmatch.methods import make_method, method_values, refuse_unread
from maxmatch.methods.base import Method
from maxmatch.methods.maxmatch import MaxMatch
from maxmatch.nets.device import Device, best_precision
from maxmatch.settings import build, field_types, hold, plain, to_toml, with_none, without_none
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
    """What is learned from, and which of it has a label. All from `data.path` on is for folders of pictures alone."""

    name: str = "digits"
    """The data set, as `maxmatch data` lists them, or `folder` for pictures of your own; DATA on the command line."""
    labels: Annotated[int | str, parse_labels] = 20
    """How many training images show their label: a number, a share such as `10%`, or `all`; behind the @ of DATA."""
    protocol: Protocol = "balanced"
    """Who is labelled: as many of each class, by the frequency of the classes, or as Google's code, USB or the paper
    did it, which differs for SVHN, STL-10 and labels in percent (`data/split.py` has the table)."""
    exclude_labelled: bool = False
    """True leaves the labelled images out of the unlabelled pool; false, as in FixMatch, shows them there too."""
    path: str | None = None
    """The folder of pictures; DATA on the command line."""
    label_file: str | None = None
    """A CSV file of `path,label` that says the labels in place of the folders' names."""
    side: int = 32
    """Height and width of a view in pixels, at least 8. For a folder it is chosen from a look at the pictures."""
    canvas: int | None = None
    """Pictures are shrunk to fit a square of so many pixels, and each view is a random part of that. `unset`: they are
    scaled and cropped to `data.side` once, and views are shifted. For a folder it is chosen with `data.side`."""
    middle: float = 1.0
    """The share of a test picture's short side that is judged, in its middle: 0.875 is Resize 256, CenterCrop 224."""
    channels: int = 3
    """1 for grey pictures, 3 for colour; pictures of the other kind are converted."""
    resident: bool | Auto = "auto"
    """Whether all pictures are kept in memory, or read in every step. `auto`: kept if they take at most a third of what
    is free, on the GPU too. No result depends on it."""
    workers: int | Auto = "auto"
    """How many decode pictures, for each process that trains. `auto`: one for each core, 16 at most, which the
    processes of a machine share. No result depends on it."""
    decoders: Literal["auto", "threads", "processes"] = "auto"
    """Who decodes pictures that are read in every step. `auto`: processes beside a GPU on Linux, else threads."""
    strict: bool = False
    """True refuses a folder with files that can't be read, or that would be left out for another reason."""

    @property
    def of_pictures(self) -> bool:
        """Whether the images are files, which may change, and not a kept data set."""
        return self.name in ("folder", "imagenet")


@dataclass(frozen=True)
class AugmentSettings:
    """The weak views, from which pseudo-labels come, and the strong ones: a weak view changed by a policy."""

    policy: str = "fixmatch"
    """What is done to a strong view: `fixmatch`, `fixmatch-paper`, `usb`, `imagenet` or `gentle` of RandAugment, `cta`
    or `cta-fixed` of CTAugment, which learns while the net trains, `moco` or `moco-small` for a pretraining."""
    n: int | None = None
    """RandAugment: how many operations a strong view gets; 0 leaves the cutout alone. `unset`: the policy's own."""
    p: float | None = None
    """RandAugment: the probability with which each of them is applied. `unset`: the policy's own."""
    levels: tuple[int, int] | None = None
    """RandAugment: the least and the largest strength that is drawn, from 0 to 10. `unset`: the policy's own."""
    ops: tuple[str, ...] | None = None
    """RandAugment: the operations that are drawn from, such as `rotate,solarize`. `unset`: the policy's own."""
    cutout: int | None = None
    """The side in pixels of the square that a strong view has covered; 0 covers none. `unset`: the policy's own."""
    flip: bool = True
    """Whether views are mirrored left to right half of the time: false where that changes the class, as of letters."""
    shift: float = 0.125
    """How far views are shifted at most, as a share of the side, 0.5 at most: 4 of 32 pixels. What comes in is a
    reflection. Nothing is shifted where views are random parts (`data.canvas`, `augment.crop`)."""
    crop: bool = False
    """True makes each view a random part of the image, resized, in place of the shift; with `data.canvas` it is so."""
    scale: tuple[float, float] = (0.35, 1.0)
    """The least and the largest share of a picture's area that a view shows, where views are random parts."""
    middle: float | None = None
    """With `data.canvas`: every view is the middle of the picture, this share of its short side, mirrored or not.
    `unset`: a random part, by `augment.scale`."""
    shared_crop: bool = False
    """True lets the K strong views start from the weak view's own crop and flip, the literal reading of the paper;
    false draws both anew for each, as every implementation does."""


@dataclass(frozen=True)
class NetSettings:
    """The net that is trained."""

    name: str = "wrn-28-2"
    """`wrn-DEPTH-WIDTH`, a Wide ResNet; `plain-conv`, which the theory covers; `resnet18`, `resnet34` or `resnet50` of
    torchvision; `timm:NAME`; or your own as `module:Class`. The default is the paper's for images of 32 pixels."""
    pretrained: bool = False
    """True starts from published weights, which are downloaded once, for nets of torchvision and timm; the new head
    begins at 0. A folder of pictures then gets another training, for nets that are trained already
    (docs/your_pictures.md)."""
    dropout: float = 0.0
    """The share of features that is dropped while training, in a Wide ResNet's blocks or as timm has it; 0: none."""
    batchnorm_momentum: float | Auto = 0.001
    """How much of its running mean and variance BatchNorm takes from each step; 0.001 is FixMatch's, for long runs.
    `auto`: 1 / (5 % of the steps), at least 0.001, so that a short run's statistics come from its end."""
    batchnorm_frozen: bool = False
    """True normalises by the running mean and variance that the net begins with, and leaves them as they are: for nets
    that are trained already, which a few small batches would spoil."""


@dataclass(frozen=True)
class TrainSettings:
    """How it is trained. The defaults are the paper's for small images, such as 2^20 steps of 64 + 448 images."""

    steps: int = 2**20
    """How many steps, updates of the weights, the run has; where `train.epochs` is set they follow from it."""
    epochs: int | None = None
    """The length in passes over the unlabelled images instead, or over the labelled ones where the method looks at no
    others. `unset`: `train.steps` says it."""
    warmup_epochs: int = 0
    """The warm-up in epochs, from which `train.warmup` follows, where `train.epochs` is set."""
    batch: int = 64
    """How many labelled images a step has, in all processes together."""
    ratio: int = 7
    """How many unlabelled images a step has for each labelled one: 64 labelled and 64 x 7 = 448 unlabelled ones are
    the "64 + 448" of the docs. Most methods make a weak view and K strong ones of each of the latter."""
    micro_batch: int | None = None
    """How many images pass through the net at a time, where memory is short: the step is the same but for BatchNorm,
    whose batches are these, and takes a third more work; VAT's search for a direction and ReMixMatch's rotations take
    all at once even so. `unset`: all at once."""
    optimizer: Literal["sgd", "muon", "adamw"] = "sgd"
    """SGD as the papers have it; Muon for the convolutions, which learns more in a short run (docs/search.md); or
    AdamW, for finetuning nets that are trained already."""
    lr: float = 0.03
    """The learning rate, before `train.schedule` lowers it."""
    head_lr: float | None = None
    """The learning rate of the net's last layer, for finetuning with `net.pretrained` or `train.init`. `unset`:
    `train.lr`."""
    momentum: float = 0.9
    """The share of the last step's direction that goes into the next one, at least 0 and below 1."""
    nesterov: bool = True
    """Whether the momentum looks ahead by one step, as Nesterov's does; AdamW's never does."""
    weight_decay: float = 5e-4
    """How strongly weights are drawn to 0: those of convolutions and linear layers that are not Muon's, never biases
    or BatchNorm."""
    schedule: Schedule = "cosine-7/16"
    """How the learning rate falls, after the warm-up: by FixMatch's cosine to a fifth, by cosines, a line or a parabola
    to 0, by `train.milestones`, or not at all (`train/schedule.py` has the formulas)."""
    lr_floor: float = 0.0
    """The share of `train.lr` that a schedule to 0 ends at instead, so that a long run keeps learning; below 1."""
    milestones: tuple[float, ...] = ()
    """For the schedule of that name: shares of the steps, `0.6,0.8` say, from each of which on the rate is a tenth."""
    warmup: int = 0
    """Over so many steps the learning rate rises from 0, along a line, before the schedule begins."""
    ema_decay: float | Auto = 0.999
    """The decay of the average of the weights, which is what is judged and saved; 0 judges the net itself. `auto`: the
    average of about the last 5 % of the steps, at most 0.999, for short runs."""
    precision: Literal["auto", "float64", "float32", "bf16"] = "auto"
    """In which numbers the net computes while it trains. `auto`: bf16 on a GPU that has it, float32 elsewhere."""
    step: Literal["auto", "eager", "compiled", "captured"] = "auto"
    """How a step runs: line by line, compiled, or compiled and replayed as one CUDA graph. `auto`: captured on a GPU
    (compiled where that can't be, as with several processes), eager elsewhere."""
    sync_batchnorm: bool = False
    """True lets several processes normalise by the statistics of the whole batch, as one process would."""
    kernels: Literal["auto", "torch"] = "auto"
    """Whose GPU kernels run. `auto`: our fused ones where they can (docs/speed.md), else torch's."""
    deterministic: bool = False
    """True gives the same bits each time on a GPU too, at some cost in speed; on a CPU it is so anyway."""
    seed: int = 1
    """All that is random follows from it: the initial weights, the order of the images, the views."""
    fold: int | Auto = "auto"
    """Which labelled set is drawn, by a number. `auto`: the seed, so that seeds 1 to 5 are five labelled sets."""
    device: Device = "auto"
    """What it runs on. `auto`: a CUDA GPU, else Apple's (`mps`), else the CPU."""
    init: str | None = None
    """A run folder or weight file whose weights it starts from; of a pretraining all but the head, which begins at 0. A
    folder of pictures gets the net of that run, and what suits it, unless a recipe is named."""
    threads: int | Auto = "auto"
    """How many threads of the CPU compute. `auto`: as many as torch takes, but no more than there are cores for the
    process, or for its container. A run that goes on has as many again, since the last bits of sums depend on it."""
    checkpoint_every: int = 1024
    """Steps between two checkpoints; 0, with `train.epochs`: once an epoch. One is written every five minutes and at
    the end in any case."""
    evaluate_every: int = 1024
    """Steps between two evaluations on the test set; 0, with `train.epochs`: once an epoch. The last step has one."""
    log_every: int = 128
    """Steps between two lines of training figures in metrics.jsonl; 0, with `train.epochs`: once an epoch."""


@dataclass(frozen=True)
class EvaluateSettings:
    """How it is judged, while it trains and at the end."""

    batch: int = 512
    """How many images are judged at a time: more are faster and take more memory."""
    robust_views: int = 3
    """K of the robust errors: so many strong views of a test image must be right too; 3 is MaxMatch's own K."""
    unlabelled: int = 0
    """How many unlabelled images, a fixed sample by the seed, each evaluation judges against their hidden labels; 0:
    none."""


@dataclass(frozen=True)
class Recipe:
    """Every setting of a run, in six sections; `maxmatch settings` prints them all with what they mean.

    `compose("digits@40", "maxmatch", given={"train": {"steps": 100}})` makes one. It can't be changed, but
    dataclasses.replace(recipe, method=MaxMatch(k=5)) gives another. `to_toml()` is the text of a file for `--config`.
    `settled` names the fields whose `auto` a run has made a value.
    """

    data: DataSettings = field(default_factory=DataSettings)
    augment: AugmentSettings = field(default_factory=AugmentSettings)
    net: NetSettings = field(default_factory=NetSettings)
    method: Method = field(default_factory=MaxMatch)
    train: TrainSettings = field(default_factory=TrainSettings)
    evaluate: EvaluateSettings = field(default_factory=EvaluateSettings)
    settled: tuple[str, ...] = ()  # the fields whose `auto` became a value; as a --config they are auto again

    def __post_init__(self) -> None:
        for section in ("data", "augment", "net", "train", "evaluate"):
            hold(getattr(self, section), section)
        refuse_unread(self.method)
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
        text = path.read_text(encoding="utf-8-sig")
        values = json.loads(text, object_pairs_hook=_once) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; give a recipe file in TOML or JSON") from None
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a recipe: {error}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path} is not a recipe: sections such as [train] are wanted")
    return with_nones(values)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict, where no name stands twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise UsageError(f"{name} is given twice, as {found[name]} and as {value}: give it once")
        found[name] = value
    return found


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
    on = device if train.device == "auto" else train.device
    values = {"fold": train.seed, "threads": threads, "device": device, "precision": best_precision(on)}
    chosen: dict[str, Any] = {name: value for name, value in values.items() if getattr(train, name) == "auto"}
    horizons = {"net.batchnorm_momentum": net.batchnorm_momentum, "train.ema_decay": train.ema_decay}
    settled = [name for name, value in horizons.items() if value == "auto"] + [f"train.{name}" for name in chosen]
    found = replace(recipe, train=replace(train, **chosen), settled=tuple(settled) or recipe.settled)
    return found if train.epochs is not None else settle_horizons(found)


def settle_horizons(recipe: Recipe) -> Recipe:
    """Settle what follows from the number of steps."""
    train, net, decay = recipe.train, recipe.net, horizon_decay(recipe.train.steps)
    if net.batchnorm_momentum == "auto":
        net = replace(net, batchnorm_momentum=max(0.001, 1 - decay))
    if train.ema_decay == "auto":
        train = replace(train, ema_decay=min(0.999, decay))
    return replace(recipe, train=train, net=net)

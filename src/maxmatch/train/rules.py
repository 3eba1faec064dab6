"""The rules of a recipe that no type can say; each refusal names the setting, its value and the rule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from maxmatch.errors import UsageError
from maxmatch.methods import method_name
from maxmatch.nets.foreign import is_own
from maxmatch.train.schedule import FALLING

INTERVALS = ("checkpoint_every", "evaluate_every", "log_every")

if TYPE_CHECKING:
    from maxmatch.train.recipe import DataSettings, Recipe, TrainSettings

# Settings of [data] that are for a folder of pictures alone.
PICTURES = (
    "path", "label_file", "side", "canvas", "middle", "channels", "resident", "workers", "decoders", "strict",
)  # fmt: skip

Rule = tuple[str, bool, str]  # a setting, whether it is as it must be, and how it must be


def check(recipe: Recipe) -> None:
    """Refuse the first setting that breaks a rule."""
    _check_pictures(recipe.data)
    _check_variants(recipe)
    sections = {
        "data": _of_data(recipe.data),
        "train": chain(_of_length(recipe.train), _of_rates(recipe.train), _of_batches(recipe), _of_rhythm(recipe)),
        "net": _of_net(recipe),
        "augment": _of_augment(recipe),
        "evaluate": _of_evaluate(recipe),
    }
    for section, rules in sections.items():
        for name, holds, rule in rules:
            if not holds:
                value = getattr(getattr(recipe, section), name)
                raise UsageError(f"{section}.{name} = {value}: it must be {rule}")


def _check_pictures(data: DataSettings) -> None:
    if data.of_pictures:
        return
    for name in PICTURES:
        value = getattr(data, name)
        if value == getattr(type(data)(), name):
            continue
        if name == "label_file" and Path(value).name.isdecimal() and data.name != "arrays":
            wanted = f"the number of labels stands behind an @; type {data.name}@{Path(value).name}"
            raise UsageError(f"--labels {Path(value).name}: it takes a file, for a folder of pictures; {wanted}")
        raise UsageError(f"data.{name} = {value}: it is for a folder of pictures; leave it out")


def _check_variants(recipe: Recipe) -> None:
    variants = recipe.method.needs.variants
    if variants not in ("strong", "weak"):
        what = f"{_in_words(recipe)} needs variants = {variants!r}"
        raise UsageError(f"{what}: 'strong' or 'weak' is wanted, in Needs(...) of maxmatch.methods.base")


def _of_data(d: DataSettings) -> Iterator[Rule]:
    yield "side", d.side >= 8, "at least 8"
    yield "canvas", d.canvas is None or d.canvas > d.side, "larger than data.side, or left out"
    yield "middle", 0 < d.middle <= 1, "above 0, and at most 1"
    yield "channels", d.channels in (1, 3), "1 or 3"
    yield "workers", d.workers == "auto" or d.workers >= 0, "0 or more, or auto"


def _of_length(t: TrainSettings) -> Iterator[Rule]:
    yield "steps", t.steps >= 1, "at least 1"
    yield "epochs", t.epochs is None or t.epochs >= 1, "at least 1"
    within = t.warmup_epochs == 0 or (t.epochs is not None and 0 < t.warmup_epochs <= t.epochs)
    shorter = "in a shorter run type --set train.warmup_epochs=0"
    yield "warmup_epochs", within, f"from 0 to train.epochs, which must be set; {shorter}"
    yield "warmup", 0 <= t.warmup <= t.steps, "from 0 to train.steps"


def _of_rates(t: TrainSettings) -> Iterator[Rule]:
    """The learning rate, how it falls, and what else the optimiser has."""
    yield "lr", 0 < t.lr < math.inf, "above 0, and finite"
    yield "head_lr", t.head_lr is None or 0 < t.head_lr < math.inf, "above 0, and finite, or left out"
    yield "lr_floor", 0 <= t.lr_floor < 1, "in [0, 1): a share of train.lr"
    falling = f"left out where train.schedule is {t.schedule}: only {', '.join(FALLING)} fall to 0"
    yield "lr_floor", t.lr_floor == 0 or t.schedule in FALLING, falling
    where = "shares of the training such as 0.6,0.8 where train.schedule is milestones, and left out elsewhere"
    yield "milestones", bool(t.milestones) == (t.schedule == "milestones"), where
    rising = all(0 < m < 1 for m in t.milestones) and sorted(set(t.milestones)) == list(t.milestones)
    yield "milestones", rising, "shares of the training above 0 and below 1, each larger than the one before"
    yield "momentum", 0 <= t.momentum < 1, "in [0, 1)"
    looks_ahead = t.nesterov and t.optimizer != "adamw"
    yield "nesterov", not looks_ahead or t.momentum > 0, "false where train.momentum is 0"
    yield "weight_decay", 0 <= t.weight_decay < math.inf, "0 or more, and finite"


def _of_batches(recipe: Recipe) -> Iterator[Rule]:
    t = recipe.train
    yield "batch", t.batch >= 1, "at least 1"
    yield "ratio", t.ratio >= 1, "at least 1"
    yield "micro_batch", t.micro_batch is None or t.micro_batch >= 2, "at least 2, or left out"
    yield "micro_batch", t.micro_batch is None or not recipe.net.dropout, "left out where net.dropout is set"


def _of_rhythm(recipe: Recipe) -> Iterator[Rule]:
    """The average, what is drawn, and what is done every so many steps."""
    t, method = recipe.train, recipe.method
    teaches = method.averages_statistics or method.taught_by_average
    wanted = f"above 0, 0.999 for example: the average is the teacher of {_in_words(recipe)}"
    yield "ema_decay", t.ema_decay != 0 or not teaches, wanted
    yield "ema_decay", t.ema_decay == "auto" or 0 <= t.ema_decay < 1, "in [0, 1), or auto"
    yield "seed", 0 <= t.seed < 2**63, "0 or more, and below 2^63"
    yield "fold", t.fold == "auto" or 0 <= t.fold < 2**63, "0 or more, or auto"
    yield "threads", t.threads == "auto" or 1 <= t.threads <= 4096, "from 1 to 4096, or auto"
    least = 1 if t.epochs is None else 0  # 0 is once an epoch
    for name in INTERVALS:
        yield name, getattr(t, name) >= least, f"at least {least}"


def _of_net(recipe: Recipe) -> Iterator[Rule]:
    net, momentum = recipe.net, recipe.net.batchnorm_momentum
    yield "batchnorm_momentum", momentum == "auto" or 0 < momentum <= 1, "in (0, 1], or auto"
    begun = "false where the net begins with drawn weights; set net.pretrained, or give --init"
    learned = net.pretrained or is_own(net.name) or recipe.train.init is not None
    yield "batchnorm_frozen", not net.batchnorm_frozen or learned, begun
    muon = "false where train.optimizer is muon: it leaves weights their length, which BatchNorm must take out"
    yield "batchnorm_frozen", not net.batchnorm_frozen or recipe.train.optimizer != "muon", muon
    yield "dropout", 0 <= net.dropout < 1, "in [0, 1)"


def _of_augment(recipe: Recipe) -> Iterator[Rule]:
    a, needs = recipe.augment, recipe.method.needs
    yield "shift", 0 <= a.shift <= 0.5, "from 0 to 0.5"
    yield "middle", a.middle is None or 0 < a.middle <= 1, "above 0 and at most 1, or left out"
    yield "scale", 0 < a.scale[0] <= a.scale[1] <= 1, "two shares, above 0 and at most 1, the smaller first"
    has_weak = needs.weak > 0 or needs.most == 0 or needs.variants == "weak"
    alone = f"false: {_in_words(recipe)} has no weak view whose crop strong ones could share"
    yield "shared_crop", not a.shared_crop or has_weak, alone
    yield "cutout", (a.cutout or 0) >= 0, "0 or more"


def _of_evaluate(recipe: Recipe) -> Iterator[Rule]:
    yield "unlabelled", recipe.evaluate.unlabelled >= 0, "0 or more"
    yield "batch", recipe.evaluate.batch >= 1, "at least 1"
    yield "robust_views", recipe.evaluate.robust_views >= 1, "at least 1"


def _in_words(recipe: Recipe) -> str:
    """The method, as far as its teacher goes."""
    return method_name(recipe.method) + (" with teacher = eman" if recipe.method.averages_statistics else "")

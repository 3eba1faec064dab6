"""The rules of a recipe that no type can say; each refusal names the setting, its value and the rule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from maxmatch.errors import UsageError
from maxmatch.methods import method_name
from maxmatch.train.schedule import FALLING

if TYPE_CHECKING:
    from maxmatch.train.recipe import Recipe

# Settings of [data] that are for a folder of pictures alone.
PICTURES = (
    "path", "label_file", "side", "canvas", "middle", "channels", "resident", "workers", "decoders", "strict",
)  # fmt: skip


def check(recipe: Recipe) -> None:
    """Refuse the first setting that breaks a rule."""
    t, d, needs = recipe.train, recipe.data, recipe.method.needs
    least = 1 if t.epochs is None else 0  # 0 is once an epoch
    if not d.of_pictures:
        for name in PICTURES:
            if getattr(d, name) != getattr(type(d)(), name):
                raise UsageError(f"data.{name} = {getattr(d, name)}: it is for a folder of pictures; leave it out")
    if needs.variants not in ("strong", "weak"):
        what = f"{_told(recipe)} needs variants = {needs.variants!r}"
        raise UsageError(f"{what}: 'strong' or 'weak' is wanted, in Needs(...) of maxmatch.methods.base")
    rules = [
        ("data.side", d.side, d.side >= 8, "at least 8"),
        ("data.canvas", d.canvas, d.canvas is None or d.canvas > d.side, "larger than data.side, or left out"),
        ("data.middle", d.middle, 0 < d.middle <= 1, "above 0, and at most 1"),
        ("data.channels", d.channels, d.channels in (1, 3), "1 or 3"),
        ("data.workers", d.workers, d.workers == "auto" or d.workers >= 0, "0 or more, or auto"),
        ("train.steps", t.steps, t.steps >= 1, "at least 1"),
        ("train.epochs", t.epochs, t.epochs is None or t.epochs >= 1, "at least 1"),
        (
            "train.warmup_epochs",
            t.warmup_epochs,
            t.warmup_epochs == 0 or (t.epochs is not None and 0 < t.warmup_epochs <= t.epochs),
            "from 0 to train.epochs, which must be set; in a shorter run type --set train.warmup_epochs=0",
        ),
        ("train.batch", t.batch, t.batch >= 1, "at least 1"),
        ("train.ratio", t.ratio, t.ratio >= 1, "at least 1"),
        ("train.micro_batch", t.micro_batch, t.micro_batch is None or t.micro_batch >= 2, "at least 2, or left out"),
        (
            "train.micro_batch",
            t.micro_batch,
            t.micro_batch is None or not recipe.net.dropout,
            "left out where net.dropout is set",
        ),
        ("train.lr", t.lr, 0 < t.lr < math.inf, "above 0, and finite"),
        ("train.head_lr", t.head_lr, t.head_lr is None or 0 < t.head_lr < math.inf, "above 0, and finite, or left out"),
        ("train.lr_floor", t.lr_floor, 0 <= t.lr_floor < 1, "in [0, 1): a share of train.lr"),
        (
            "train.lr_floor",
            t.lr_floor,
            t.lr_floor == 0 or t.schedule in FALLING,
            f"left out where train.schedule is {t.schedule}: only {', '.join(FALLING)} fall to 0",
        ),
        (
            "train.milestones",
            t.milestones,
            bool(t.milestones) == (t.schedule == "milestones"),
            "shares of the training such as 0.6,0.8 where train.schedule is milestones, and left out elsewhere",
        ),
        (
            "train.milestones",
            t.milestones,
            all(0 < m < 1 for m in t.milestones) and sorted(set(t.milestones)) == list(t.milestones),
            "shares of the training above 0 and below 1, each larger than the one before",
        ),
        ("train.momentum", t.momentum, 0 <= t.momentum < 1, "in [0, 1)"),
        ("train.nesterov", t.nesterov, not t.nesterov or t.momentum > 0, "false where train.momentum is 0"),
        ("train.weight_decay", t.weight_decay, 0 <= t.weight_decay < math.inf, "0 or more, and finite"),
        ("train.warmup", t.warmup, 0 <= t.warmup <= t.steps, "from 0 to train.steps"),
        (
            "train.ema_decay",
            t.ema_decay,
            t.ema_decay != 0 or not (recipe.method.averages_statistics or recipe.method.taught_by_average),
            f"above 0, 0.999 for example: the average is the teacher of {_told(recipe)}",
        ),
        ("train.ema_decay", t.ema_decay, t.ema_decay == "auto" or 0 <= t.ema_decay < 1, "in [0, 1), or auto"),
        ("train.seed", t.seed, 0 <= t.seed < 2**63, "0 or more, and below 2^63"),
        ("train.fold", t.fold, t.fold == "auto" or 0 <= t.fold < 2**63, "0 or more, or auto"),
        ("train.threads", t.threads, t.threads == "auto" or 1 <= t.threads <= 4096, "from 1 to 4096, or auto"),
        ("train.checkpoint_every", t.checkpoint_every, t.checkpoint_every >= least, f"at least {least}"),
        ("train.evaluate_every", t.evaluate_every, t.evaluate_every >= least, f"at least {least}"),
        ("train.log_every", t.log_every, t.log_every >= least, f"at least {least}"),
        (
            "net.batchnorm_momentum",
            bn := recipe.net.batchnorm_momentum,
            bn == "auto" or 0 < bn <= 1,
            "in (0, 1], or auto",
        ),
        ("net.dropout", recipe.net.dropout, 0 <= recipe.net.dropout < 1, "in [0, 1)"),
        ("augment.shift", recipe.augment.shift, 0 <= recipe.augment.shift <= 0.5, "from 0 to 0.5"),
        ("augment.middle", m := recipe.augment.middle, m is None or 0 < m <= 1, "above 0 and at most 1, or left out"),
        (
            "augment.scale",
            recipe.augment.scale,
            0 < recipe.augment.scale[0] <= recipe.augment.scale[1] <= 1,
            "two shares, above 0 and at most 1, the smaller first",
        ),
        (
            "augment.shared_crop",
            recipe.augment.shared_crop,
            not recipe.augment.shared_crop or needs.weak > 0 or needs.most == 0 or needs.variants == "weak",
            f"false: {_told(recipe)} has no weak view whose crop strong ones could share",
        ),
        ("augment.cutout", recipe.augment.cutout, (recipe.augment.cutout or 0) >= 0, "0 or more"),
        ("evaluate.unlabelled", recipe.evaluate.unlabelled, recipe.evaluate.unlabelled >= 0, "0 or more"),
        ("evaluate.batch", recipe.evaluate.batch, recipe.evaluate.batch >= 1, "at least 1"),
        (
            "evaluate.robust_views",
            recipe.evaluate.robust_views,
            recipe.evaluate.robust_views >= 1,
            "at least 1",
        ),
    ]
    for name, value, holds, rule in rules:
        if not holds:
            raise UsageError(f"{name} = {value}: it must be {rule}")


def _told(recipe: Recipe) -> str:
    """The method in words, as far as its teacher goes."""
    return method_name(recipe.method) + (" with teacher = eman" if recipe.method.averages_statistics else "")

"""Every rule of a recipe at its bounds: the first values that it refuses and the last that it holds of."""

from __future__ import annotations

from math import inf

import pytest

from maxmatch.errors import UsageError
from maxmatch.train.recipe import Recipe

PICTURES = {"data": {"name": "imagenet", "labels": "10%", "canvas": 48}}
BY_EPOCHS, BY_MILESTONES = {"train": {"epochs": 3}}, {"train": {"schedule": "milestones", "milestones": [0.5]}}

EDGES = [
    ("data.side", [7], [8], PICTURES),
    ("data.canvas", [32], [33, None], PICTURES),
    ("data.middle", [0.0, 1.01], [0.01, 1.0], PICTURES),
    ("data.channels", [0, 2, 4], [1, 3], PICTURES),
    ("data.workers", [-1], [0, "auto"], PICTURES),
    ("train.steps", [0], [1], {}),
    ("train.epochs", [0], [1, None], {}),
    ("train.warmup_epochs", [-1, 4], [0, 3], BY_EPOCHS),
    ("train.warmup_epochs", [1], [0], {}),
    ("train.batch", [0], [1], {}),
    ("train.ratio", [0], [1], {}),
    ("train.micro_batch", [1], [2, None], {}),
    ("train.micro_batch", [2], [None], {"net": {"dropout": 0.1}}),
    ("train.lr", [0.0, inf], [1e-9], {}),
    ("train.head_lr", [0.0, inf], [1e-9, None], {}),
    ("train.lr_floor", [-0.1, 1.0], [0.0, 0.99], {"train": {"schedule": "cosine"}}),
    ("train.lr_floor", [0.1], [0.0], {}),
    ("train.milestones", [[], [0.0, 0.5], [0.5, 1.0], [0.8, 0.6], [0.5, 0.5]], [[0.6, 0.8]], BY_MILESTONES),
    ("train.milestones", [[0.6]], [[]], {}),
    ("train.momentum", [-0.1, 1.0], [0.01, 0.99], {}),
    ("train.nesterov", [True], [False], {"train": {"momentum": 0.0}}),
    ("train.weight_decay", [-0.1, inf], [0.0], {}),
    ("train.warmup", [-1, 11], [0, 10], {"train": {"steps": 10}}),
    ("train.ema_decay", [-0.1, 1.0], [0.0, 0.99, "auto"], {}),
    ("train.ema_decay", [0.0], [0.5], {"method": {"name": "mean-teacher"}}),
    ("train.ema_decay", [0.0], [0.5], {"method": {"name": "maxmatch", "teacher": "eman"}}),
    ("train.seed", [-1, 2**63], [0, 2**63 - 1], {}),
    ("train.fold", [-1, 2**63], [0, 2**63 - 1, "auto"], {}),
    ("train.threads", [0, 4097], [1, 4096, "auto"], {}),
    ("train.checkpoint_every", [0], [1], {}),
    ("train.evaluate_every", [0], [1], {}),
    ("train.log_every", [0], [1], {}),
    ("train.checkpoint_every", [-1], [0], BY_EPOCHS),
    ("train.evaluate_every", [-1], [0], BY_EPOCHS),
    ("train.log_every", [-1], [0], BY_EPOCHS),
    ("net.batchnorm_momentum", [0.0, 1.1], [0.001, 1.0, "auto"], {}),
    ("net.batchnorm_frozen", [True], [False], {}),
    ("net.batchnorm_frozen", [], [True], {"net": {"name": "resnet18", "pretrained": True}}),
    ("net.batchnorm_frozen", [], [True], {"net": {"name": "package.module:Net"}}),
    ("net.batchnorm_frozen", [], [True], {"train": {"init": "runs/p"}}),
    ("net.batchnorm_frozen", [True], [], {"net": {"name": "timm:resnet10t"}}),
    ("train.nesterov", [], [True, False], {"train": {"optimizer": "adamw", "momentum": 0.0}}),
    ("net.batchnorm_frozen", [True], [False], {"train": {"init": "runs/p", "optimizer": "muon"}}),
    ("net.dropout", [-0.1, 1.0], [0.0, 0.99], {}),
    ("augment.shift", [-0.01, 0.51], [0.0, 0.5], {}),
    ("augment.middle", [0.0, 1.1], [0.1, 1.0, None], PICTURES),
    ("augment.scale", [[0.0, 1.0], [0.5, 1.1], [0.6, 0.5]], [[0.5, 0.5], [0.1, 1.0]], PICTURES),
    ("augment.cutout", [-1], [0, None], {}),
    ("evaluate.unlabelled", [-1], [0], {}),
    ("evaluate.batch", [0], [1], {}),
    ("evaluate.robust_views", [0], [1], {}),
]


@pytest.mark.parametrize(("name", "refused", "held", "beside"), EDGES)
def test_a_rule_holds_up_to_its_bounds_and_no_further(name, refused, held, beside):
    section, field = name.split(".")

    def made(value):
        return Recipe.from_dict({**beside, section: {**beside.get(section, {}), field: value}})

    for value in held:
        made(value)
    for value in refused:
        with pytest.raises(UsageError, match=rf"^{name} = .*: it must be ") as caught:
            made(value)
        assert "\n" not in str(caught.value)

"""Recipes: typed, strict, and the same after JSON, TOML and the command line."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib

import numpy as np
import pytest
import torch
from PIL import Image

from maxmatch.data.datasets import load_images
from maxmatch.errors import UsageError
from maxmatch.methods import METHODS
from maxmatch.methods.fixmatch import FixMatch
from maxmatch.methods.freematch import FreeMatch
from maxmatch.methods.maxmatch import MaxMatch
from maxmatch.methods.mean_teacher import MeanTeacher
from maxmatch.settings import parse_value
from maxmatch.train.fit import count_labels, draw_split
from maxmatch.train.recipe import Recipe, horizon_decay, learning_rates, read_values, resolve
from maxmatch.train.recipes import RECIPES, compose
from maxmatch.train.resume import resumed_recipe
from maxmatch.train.schedule import learning_rate


@pytest.mark.parametrize(
    ("name", "method"),
    [
        (name, method)
        for name in RECIPES
        if name != "moco"
        for method in ("supervised", "fixmatch", "maxmatch", "remixmatch")
    ]
    + [("moco", "moco")],
)
def test_named_recipes_survive_json_and_toml(name, method):
    recipe = compose("digits", method, config=name)
    assert Recipe.from_dict(json.loads(recipe.to_json())) == recipe
    assert Recipe.from_dict(tomllib.loads(recipe.to_toml())) == recipe


@pytest.mark.parametrize("dataset", ["digits", "cifar10", "fashion-mnist", "stl10", "imagenet", "folder"])
@pytest.mark.parametrize("name", [None, *RECIPES])
def test_settings_give_back_the_recipe_they_were_printed_from(dataset, name, tmp_path):
    """Whatever the recipe is that the file is laid over; and a run that was begun so goes on with the same file."""
    if dataset == "folder":
        for label, shade in (("a", 0), ("b", 255)):
            place = tmp_path / "Bücher \N{GRINNING FACE}" / label
            place.mkdir(parents=True)
            Image.new("L", (8, 8), shade).save(place / "1.png")
        dataset = str(place.parent)
    recipe = compose(dataset, "moco" if name == "moco" else None, name)
    path = tmp_path / "mine.toml"
    path.write_text(recipe.to_toml())
    assert compose(config=str(path)) == recipe
    (tmp_path / "recipe.json").write_text(recipe.to_json())
    assert resumed_recipe(tmp_path, {}, str(path)) == recipe


def test_a_setting_may_be_unset_unless_that_is_a_name():
    assert compose("imagenet", given={"augment": {"middle": "unset"}}).augment.middle is None
    assert compose("fashion-mnist", given={"augment": {"cutout": "unset", "ops": "unset"}}).augment.cutout is None
    assert compose("digits", given={"train": {"init": "unset"}}).train.init == "unset"
    with pytest.raises(UsageError, match="a whole number is wanted, or unset"):
        compose("digits", given={"augment": {"cutout": "none"}})
    with pytest.raises(UsageError, match="augment.levels"):
        compose("digits", given={"augment": {"levels": np.array([1, 5])}})
    with pytest.raises(UsageError, match="is not UTF-8: give it another name"):
        compose("digits", given={"train": {"init": "p\udcff"}}).to_toml()


def test_older_methods_have_as_many_unlabelled_images_as_labelled_in_the_paper_s_settings():
    assert compose("cifar10", "pseudo-label", "paper").train.ratio == 1
    assert compose("cifar10", "pseudo-label", "paper", {"train": {"ratio": 7}}).train.ratio == 7
    ratios = {name: compose("cifar10", name, "paper").train.ratio for name in METHODS}
    assert {name for name, ratio in ratios.items() if ratio == 1} == {
        "pseudo-label", "pi-model", "temporal-ensembling", "mean-teacher", "vat", "ict", "mixmatch", "remixmatch",
    }  # fmt: skip
    assert ratios["uda"] == ratios["fixmatch"] == ratios["maxmatch"] == 7
    assert compose("cifar10", "mixmatch", "paper").method.weight == 100
    assert compose("cifar10", "vat", "paper").method.ramp == 0.4


def test_remixmatch_brings_its_own_augmentation_to_the_paper_s_settings():
    recipe = compose("digits", "remixmatch", config="paper")
    assert (recipe.augment.policy, recipe.augment.cutout, recipe.method.k) == ("cta", 0, 8)
    assert compose("digits", "remixmatch", "paper", {"augment": {"policy": "usb"}}).augment.policy == "usb"


def test_the_paper_s_settings_are_the_defaults():
    recipe = compose("digits", config="paper")
    t = recipe.train
    assert (t.steps, t.batch, t.batch * t.ratio, t.lr, t.momentum, t.nesterov) == (
        2**20,
        64,
        448,
        0.03,
        0.9,
        True,
    )
    assert (t.weight_decay, t.ema_decay, t.schedule, t.warmup) == (5e-4, 0.999, "cosine-7/16", 0)
    assert (recipe.method.k, recipe.method.threshold, recipe.method.weight) == (3, 0.95, 1.0)
    assert (recipe.net.name, recipe.augment.policy) == ("wrn-28-2", "fixmatch")


def test_precedence_is_recipe_config_then_what_is_typed(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('recipe = "digits"\n[train]\nlr = 0.5\nsteps = 7\n[method]\nname = "fixmatch"\nthreshold = 0.5\n')
    recipe = compose(config=str(path), given={"train": {"steps": 9}})
    assert (recipe.train.lr, recipe.train.steps, recipe.train.schedule) == (0.5, 9, "cosine")
    assert (type(recipe.method).__name__, recipe.method.threshold) == ("FixMatch", 0.5)
    with pytest.raises(UsageError, match="options of fixmatch, but maxmatch was asked for"):
        compose(config=str(path), method="maxmatch")  # the file's options must not leak into another method


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trian": {}}, "did you mean 'train'"),
        ({"train": {"learning_rate": 1}}, "unknown setting 'train.learning_rate'"),
        ({"train": {"lr": "fast"}}, "a number is wanted"),
        ({"train": {"steps": 1.5}}, "a whole number is wanted"),
        ({"train": {"nesterov": 1}}, "true or false is wanted"),
        ({"train": {"precision": "float16"}}, "choose from auto, float64, float32, bf16"),
        ({"train": {"steps": 0}}, "train.steps = 0: it must be at least 1"),
        ({"train": {"lr": -1.0}}, "train.lr = -1.0"),
        ({"train": 3}, "settings stand in the sections"),
        ({"data": {"labels": "ten"}}, "type a number of labels"),
        ({"augment": {"levels": [1, 2, 3]}}, "2 values are wanted"),
        ({"method": {"name": "maxmatch", "threshold": 2}}, "threshold = 2: a number from 0 to 1 is wanted"),
    ],
)
def test_wrong_settings_are_one_line_that_names_them(values, message):
    with pytest.raises(UsageError, match=message) as caught:
        Recipe.from_dict(values)
    assert "\n" not in str(caught.value)


def test_whole_numbers_do_for_numbers():
    assert Recipe.from_dict({"train": {"lr": 1}}).train.lr == 1.0
    assert Recipe.from_dict({"train": {"steps": 10.0}}).train.steps == 10


def test_true_is_no_number():
    for place in ("steps", "lr"):
        with pytest.raises(UsageError, match=f"train.{place} = True: a (whole )?number is wanted"):
            compose(given={"train": {place: True}})


def test_auto_is_settled_by_the_horizon():
    recipe = compose("digits", given={"train": {"steps": 400, "seed": 4}})
    settled = resolve(recipe, device="cpu", threads=2)
    assert settled.train.ema_decay == pytest.approx(0.95)  # a horizon of 20 of 400 steps
    assert settled.net.batchnorm_momentum == pytest.approx(0.05)
    assert (settled.train.fold, settled.train.threads, settled.train.device) == (4, 2, "cpu")
    assert resolve(settled, device="cuda", threads=9) == settled
    assert horizon_decay(2**20) > 0.999


def test_the_learning_rate_by_hand():
    common = {"steps": 100, "lr": 0.03}
    assert learning_rate(0, schedule="cosine-7/16", **common) == 0.03
    assert learning_rate(99, schedule="cosine-7/16", **common) == pytest.approx(0.03 * 0.20855, rel=1e-3)  # cos(1.3607)
    assert learning_rate(50, schedule="cosine", **common) == pytest.approx(0.015)
    assert learning_rate(77, schedule="constant", **common) == 0.03
    assert learning_rate(75, schedule="linear", **common) == pytest.approx(0.0075)
    assert learning_rate(55, schedule="linear", warmup=10, **common) == pytest.approx(0.015)
    assert learning_rate(75, schedule="quadratic", **common) == pytest.approx(0.001875)
    assert learning_rate(55, schedule="quadratic", warmup=10, **common) == pytest.approx(0.0075)
    warm = [learning_rate(t, schedule="cosine", warmup=4, **common) for t in range(5)]
    assert warm == pytest.approx([0.0075, 0.015, 0.0225, 0.03, 0.03])
    # A warm-up that ends within the first of ten epochs: the rate is the whole one until the second begins.
    within = [learning_rate(t, schedule="cosine-epoch", epochs=10, warmup=4, **common) for t in (4, 9, 10)]
    assert within == pytest.approx([0.03, 0.03, 0.015 * (1 + math.cos(math.pi * 6 / 96))])


def test_a_floor_by_torch_and_by_hand_in_the_rates_of_a_run():
    """torch's eta_min is the floor in the units of lr; the head's rate has the same share."""
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, T_max=20, eta_min=0.1)
    given = {"steps": 20, "lr": 0.4, "head_lr": 0.8, "schedule": "cosine", "lr_floor": 0.25}
    ours = learning_rates(compose("digits", given={"train": given}).train)
    for t in range(21):
        assert ours["lr"](t) == pytest.approx(theirs.get_last_lr()[0])
        assert ours["head_lr"](t) == pytest.approx(2 * theirs.get_last_lr()[0])
        sgd.step()
        theirs.step()
    for schedule, half in (("linear", 0.625), ("quadratic", 0.4375)):
        fallen = [learning_rate(t, steps=100, lr=0.4, schedule=schedule, floor=0.25) for t in (0, 50, 100)]
        assert fallen == pytest.approx([0.4, 0.4 * half, 0.1])


def test_unreadable_recipes_are_one_line(tmp_path):
    (tmp_path / "x.json").write_text("{")
    (tmp_path / "x.toml").write_text("a = ")
    for name in ("x.json", "x.toml"):
        with pytest.raises(UsageError, match="is not a recipe"):
            read_values(tmp_path / name)
    with pytest.raises(UsageError, match="No such file"):
        read_values(tmp_path / "none.toml")
    (tmp_path / "x.json").write_text('{"train": {"steps": 3}, "train": {"steps": 3}}')
    with pytest.raises(UsageError, match=r"x\.json: train is given twice"):
        read_values(tmp_path / "x.json")
    (tmp_path / "x.json").write_text('{"train": {"lr": 0.1, "lr": 0.2}}')
    with pytest.raises(UsageError, match=r"x\.json: lr is given twice, as 0.1 and as 0.2: give it once"):
        read_values(tmp_path / "x.json")
    with pytest.raises(UsageError, match="did you mean 'digits'"):
        compose(config="digit")
    with pytest.raises(UsageError, match="did you mean 'digits'"):
        compose("digit")


def test_a_recipe_may_begin_with_the_mark_that_some_editors_write(tmp_path):
    (tmp_path / "x.toml").write_bytes(b"\xef\xbb\xbf[train]\r\nlr = 0.1\r\n")
    (tmp_path / "x.json").write_bytes(b'\xef\xbb\xbf{"train": {"lr": 0.1}}')
    for name in ("x.toml", "x.json"):
        assert compose("digits", config=tmp_path / name).train.lr == 0.1


def test_what_is_no_number_is_told_what_is_wanted(tmp_path):
    (tmp_path / "x.toml").write_text("[train]\nlr = nan\n")
    with pytest.raises(UsageError, match="train.lr = nan: it must be"):
        compose("digits", config=tmp_path / "x.toml")


def test_the_paper_s_settings_for_each_data_set():
    def settings(name, **data):
        recipe = compose(name, given={"data": data})
        return recipe.data.labels, recipe.net.name, recipe.train.weight_decay, recipe.augment.flip, recipe.data.protocol

    assert settings("cifar10") == (250, "wrn-28-2", 5e-4, True, "balanced")
    assert settings("cifar10", labels=4000)[0] == 4000
    assert settings("cifar100") == (2500, "wrn-28-8", 1e-3, True, "balanced")
    assert settings("stl10") == (1000, "wrn-37-2", 5e-4, True, "paper")
    assert settings("svhn") == (250, "wrn-28-2", 5e-4, False, "balanced")
    assert [settings("svhn", protocol=p)[3] for p in ("google", "usb", "paper")] == [False, True, True]
    assert settings("svhn-extra", protocol="usb")[3]
    assert settings("imagenet")[:3] == ("10%", "resnet50", 1e-4)
    assert compose("imagenet").data.exclude_labelled
    assert not compose("mnist").augment.flip
    assert compose("fashion-mnist").augment.flip
    assert compose("cifar100", config="digits").net.name == "wrn-10-1"  # another recipe was asked for


@pytest.mark.parametrize(
    ("protocol", "labels", "expected"),
    [("paper", 2, "official"), ("google", 2, "official"), ("usb", 2, "drawn"), ("paper", 4, "drawn")],
)
def test_official_folds_are_used_at_their_own_number_of_labels(protocol, labels, expected):
    import numpy as np

    from maxmatch.data.datasets import from_arrays
    from maxmatch.data.split import make_split
    from maxmatch.train.fit import draw_split

    y = [0, 0, 0, 1, 1, 1, -1, -1]
    images = from_arrays(np.zeros((8, 8, 8), np.uint8), y)
    folds = torch.tensor([[0, 1], [2, 0], [1, 2]])  # no balanced draw would choose these
    given = {"data": {"labels": labels, "protocol": protocol}, "train": {"fold": 1}}
    split = draw_split(compose("stl10", given=given), dataclasses.replace(images, folds=folds))
    drawn = make_split(y, labels, 1).labelled.tolist()
    assert split.labelled.tolist() == ([0, 2] if expected == "official" else drawn)
    assert split.unlabelled.tolist() == list(range(8))


def test_a_share_by_a_named_protocol_is_one_of_each_class():
    import numpy as np

    from maxmatch.data.datasets import from_arrays
    from maxmatch.train.fit import draw_split

    y = np.repeat([0, 1], [40, 20])
    images = from_arrays(np.zeros((60, 8, 8), np.uint8), y)
    split = draw_split(compose("imagenet", given={"train": {"fold": 1}}), images)
    assert np.bincount(y[split.labelled]).tolist() == [4, 2]
    assert len(split.unlabelled) == 54


def test_a_net_without_batchnorm_has_a_learning_rate_that_it_survives_and_a_typed_one_wins():
    plain = {"net": {"name": "plain-conv"}}
    assert compose("digits", given=plain).train.lr < compose("digits").train.lr
    assert compose("digits", given={**plain, "train": {"lr": 0.7}}).train.lr == 0.7
    assert compose("cifar10", given=plain).train.lr == compose("cifar10").train.lr


def test_data_named_in_a_section_are_read_as_a_word_too(tmp_path):
    (tmp_path / "x.toml").write_text('[data]\nname = "cifar10@40"\n')
    for recipe in (
        compose(given={"data": {"name": "cifar10@40"}}), compose(config=tmp_path / "x.toml"),
    ):  # fmt: skip
        assert (recipe.data.name, recipe.data.labels) == ("cifar10", 40)


def test_a_setting_may_be_given_by_its_place():
    """As the command line, the estimator and a sweep have it."""
    dotted = compose("digits", given={"train.lr": 0.05, "train": {"steps": 3}, "method.k": 2})
    assert dotted == compose("digits", given={"train": {"lr": 0.05, "steps": 3}, "method": {"k": 2}})
    with pytest.raises(UsageError, match=r"train.lr is given twice, as 0.1 and as 0.2"):
        compose("digits", given={"train.lr": 0.1, "train": {"lr": 0.2}})
    with pytest.raises(UsageError, match=r"unknown setting 'train.lrr'"):
        compose("digits", given={"train.lrr": 0.1})
    with pytest.raises(UsageError, match=r"given: lr = 0.1 stands outside a section"):
        compose("digits", given={"lr": 0.1})


@pytest.mark.parametrize("config", [None, "digits", "fast-1min"])
def test_arrays_have_the_labels_that_they_bring(config):
    assert compose("arrays", config=config).data.labels == "all"
    assert compose("arrays", config=config, given={"data": {"labels": 8}}).data.labels == 8
    assert compose(config=config, given={"data": {"name": "arrays"}}).data.labels == "all"


@pytest.mark.parametrize("dataset", ["cifar10", "svhn", "mnist", "digits", "arrays"])
def test_the_fast_recipes_suit_any_data_set(dataset):
    recipe = compose(dataset, config="fast-10min")
    assert recipe.method == FreeMatch(k=3, over="worst")
    assert (recipe.train.steps, recipe.train.optimizer, recipe.train.schedule) == (52_000, "muon", "cosine")
    assert (recipe.train.lr, compose(dataset, config="fast-1min").train.lr) == (0.02, 0.03)
    assert recipe.augment.flip == compose(dataset, config="paper").augment.flip  # a data set's own stay
    short = compose(dataset, config="fast-1min")
    assert (short.method, short.train.steps) == (recipe.method, 4_000)
    assert short.train.ema_decay == short.net.batchnorm_momentum == "auto"
    long = compose(dataset, config="fast-30min")
    assert (long.method, long.train.lr, long.train.steps) == (recipe.method, 0.02, 200_000)
    assert (long.train.lr_floor, recipe.train.lr_floor) == (0.125, 0)


def test_a_method_that_is_asked_for_is_the_plain_one():
    assert compose("cifar10", "freematch", "fast-10min").method == FreeMatch()
    assert compose("cifar10", "maxmatch", "fast-1min").method == MaxMatch()
    assert compose("cifar10", config="fast-10min", given={"method": {"name": "fixmatch"}}).method == FixMatch()
    assert compose("cifar10", config="fast-10min", given={"method": {"k": 5}}).method == FreeMatch(k=5, over="worst")


def test_auto_has_a_horizon_of_a_thousand_steps_at_most():
    settled = resolve(compose("digits", given={"train": {"steps": 2**20}}), device="cpu", threads=1)
    assert (settled.train.ema_decay, settled.net.batchnorm_momentum) == (0.999, 0.001)


@pytest.mark.parametrize(("protocol", "labels"), [("balanced", 20), ("proportional", "10%"), ("usb", "10%")])
def test_the_fold_draws_the_labelled_set_and_the_seed_does_not(protocol, labels):
    images = load_images("digits")

    def labelled(seed, fold):
        given = {"data": {"labels": labels, "protocol": protocol}, "train": {"seed": seed, "fold": fold}}
        recipe = resolve(compose("digits", given=given), device="cpu", threads=1)
        return draw_split(recipe, images).labelled.tolist()

    assert labelled(1, 2) == labelled(5, 2)
    assert labelled(2, 1) != labelled(2, 2)


def test_the_horizon_of_a_few_steps_is_two_of_them():
    assert [horizon_decay(steps) for steps in (1, 20, 40)] == [0.5] * 3
    assert horizon_decay(60) == pytest.approx(2 / 3)


def test_a_share_of_the_images_is_rounded_to_the_nearest():
    images = load_images("digits")
    assert len(images.y) == 1195
    assert [count_labels(share, images) for share in ("10%", "0.01%", "12.2%", "100%")] == [120, 1, 146, 1195]


@pytest.mark.parametrize("method", ["mixmatch", "pseudo-label", "temporal-ensembling"])
def test_no_crop_is_shared_where_there_is_no_weak_view(method):
    given = {"method": {"views": "strong"}, "augment": {"shared_crop": True}}
    with pytest.raises(UsageError, match=f"augment.shared_crop = True: it must be false: {method} has no weak view"):
        compose("digits", method, given=given)
    compose("digits", method, given={"augment": {"shared_crop": True}})  # its variants are weak views


def test_an_infinite_weight_decay_is_refused():
    with pytest.raises(UsageError, match="train.weight_decay = inf: it must be 0 or more, and finite"):
        compose("digits", given={"train": {"weight_decay": math.inf}})


@pytest.mark.parametrize("word", ["2026-11-16", "2026-11-16T10:00:00", "10:00:00", "1\nw = 2"])
def test_a_folder_named_by_its_date_is_a_word(word):
    assert parse_value(word) == word
    assert compose("digits", given={"train": {"init": parse_value(word)}}).train.init == word


def test_steps_that_are_typed_count_over_the_epochs_of_a_file(tmp_path):
    (tmp_path / "a.toml").write_text("[train]\nepochs = 10\nwarmup_epochs = 1\nwarmup = 0\nsteps = 7\n")
    file = str(tmp_path / "a.toml")
    train = compose("digits", config=file, given={"train": {"steps": 40}}).train
    assert (train.steps, train.epochs, train.warmup, train.warmup_epochs) == (40, None, 4, 0)
    assert compose("digits", config=file).train.epochs == 10
    assert compose("digits", config=file, given={"train": {"steps": 40, "warmup": 2}}).train.warmup == 2


@pytest.mark.parametrize(
    ("config", "typed", "line"),
    [
        (None, {"epochs": 2, "steps": 500}, "train.steps = 500 and train.epochs = 2: .*; give one of them"),
        (
            None,
            {"epochs": 2, "warmup": 7},
            "train.warmup = 7 and train.epochs = 2: .*; give train.warmup_epochs instead",
        ),
        ("imagenet-paper", {"warmup": 7}, "train.warmup = 7 and train.epochs = 300: "),
    ],
)
def test_two_lengths_of_a_run_are_refused(config, typed, line):
    with pytest.raises(UsageError, match=line):
        compose("digits", config=config, given={"train": typed})
    settled = compose("digits", config=config, given={"train": {"epochs": 2, "warmup_epochs": 0}}).to_dict()
    assert compose("digits", given=settled).train.epochs == 2


def test_labels_may_stand_behind_the_name():
    assert compose("digits@40", "fixmatch").data.labels == 40
    assert compose("cifar10@10%").data.labels == "10%"
    assert compose("digits@040", given={"data": {"labels": 40}}).data.labels == 40
    assert compose("cifar10@10%", given={"data": {"labels": "10.0%"}}).data.labels in ("10%", "10.0%")
    with pytest.raises(UsageError, match="data.labels is given twice, as 40 and as 30: give it once"):
        compose("digits@40", given={"data": {"labels": 30}})


def test_a_method_that_is_named_twice_is_one_method():
    assert compose("digits", "mean_teacher", given={"method": {"name": "mean-teacher"}}).method == MeanTeacher()
    with pytest.raises(UsageError, match="method.name is given twice, as maxmatch and as fixmatch: give it once"):
        compose("digits", "maxmatch", given={"method": {"name": "fixmatch"}})
    with pytest.raises(UsageError, match=r"config = \{'train': \{'steps': 5\}\}: type it as compose"):
        compose("digits", "maxmatch", {"train": {"steps": 5}})


def test_what_concerns_parts_of_a_picture_is_refused_where_views_are_whole():
    with pytest.raises(
        UsageError, match=r"augment.scale = \(0.2, 1.0\): views are no parts .* --set augment.crop=true"
    ):
        compose("digits", given={"augment": {"scale": [0.2, 1]}})
    with pytest.raises(UsageError, match="augment.middle = 0.5: there is no data.canvas; leave it out"):
        compose("digits", given={"augment": {"middle": 0.5}})
    with pytest.raises(UsageError, match="two shares, above 0 and at most 1, the smaller first"):
        compose("digits", given={"augment": {"scale": [1, 0.5], "crop": True}})
    assert compose("digits", given={"augment": {"scale": [0.2, 1], "crop": True}}).augment.scale == (0.2, 1.0)
    assert compose("cifar10", config="imagenet-authors", given={"augment": {"crop": True}}).augment.scale == (0.08, 1.0)
    plain = compose("cifar10", config="imagenet-paper", given={"data": {"labels": 40}})
    assert Recipe.from_dict(plain.to_dict()) == compose("cifar10", given=plain.to_dict()) == plain
    assert compose("imagenet", given={"data": {"canvas": None}}).data.canvas is None


def test_settings_of_pictures_are_said_of_pictures_alone(tmp_path):
    text = compose("digits").to_toml()
    assert "# side =" in text
    assert "# channels =" in text
    (tmp_path / "a.toml").write_text(text)
    assert compose(config=str(tmp_path / "a.toml")) == compose("digits")
    assert "side = 224" in compose("imagenet").to_toml()

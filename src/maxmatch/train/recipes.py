"""Named recipes, as plain values: `compose` lays a config file and what was typed over one and makes a `Recipe`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from maxmatch.data import DATASETS
from maxmatch.errors import UsageError, unknown
from maxmatch.methods import PRETRAINING, canonical
from maxmatch.settings import Values, overlay
from maxmatch.train.data_word import DataWord, read_data
from maxmatch.train.imagenet import IMAGENET, fitting, imagenet_authors, imagenet_finetune, imagenet_paper
from maxmatch.train.recipe import Recipe, read_values, split_settled, with_nones

EPOCHS = ("epochs", "warmup_epochs", "warmup")
BEFORE_FIXMATCH = frozenset(
    {"pseudo-label", "pi-model", "temporal-ensembling", "mean-teacher", "vat", "ict", "mixmatch", "remixmatch"}
)


def digits(method: str = "maxmatch") -> Values:
    """scikit-learn's 8x8 digits on a laptop's CPU: half a minute a run on 2 cores; benchmarks/digits.py has the errors.

    Mild, class-preserving views: no flips, small turns and shifts. Chosen for MaxMatch's mean error on seeds 11 to 20
    and used for all methods alike; with a search of its own FixMatch comes near (docs/results.md).
    """
    return {
        "data": {"name": "digits", "labels": 20},
        "augment": {"policy": "gentle", "flip": False},
        "net": {"name": "wrn-10-1", "batchnorm_momentum": "auto"},
        # 1/64 of so few steps is no ramp at all: MixMatch would learn from guesses made before it knows anything.
        "method": {"name": method} | ({"ramp": 0.4} if method in ("mixmatch", "remixmatch") else {}),
        "train": {
            "steps": 800, "batch": 32, "ratio": 4, "lr": 0.4, "weight_decay": 0.002, "schedule": "cosine",
            "ema_decay": "auto", "checkpoint_every": 100, "evaluate_every": 40, "log_every": 20,
        },
    }  # fmt: skip


def paper(method: str = "maxmatch") -> Values:
    """The paper's setting for small images: WRN-28-2, 64 + 448 images, 2^20 steps, lr .03, cosine 7/16, EMA .999.

    Published for CIFAR-10 with 250 labels: FixMatch 5.07 % error; the paper's figures have MaxMatch below it. Not rerun
    here: at K = 3 it is two hours and ten minutes on one H200, by the 7.42 ms of a step (docs/speed.md). 12,000 steps
    with a cosine to 0 end at 18.51 % (benchmarks/records/cifar10-250-maxmatch.json). It assumes nothing but small
    images. Methods from before FixMatch have what the tables have that quote them: as many unlabelled images as
    labelled, MixMatch a weight of 100, VAT a ramp, ReMixMatch eight views by CTAugment without the cutout.
    """
    own: dict[str, Any] = {"mixmatch": {"weight": 100.0}, "remixmatch": {"k": 8}, "vat": {"ramp": 0.4}}
    values: Values = {"method": {"name": method} | own.get(method, {})}
    values |= {"train": {"ratio": 1}} if method in BEFORE_FIXMATCH else {}
    return values | ({"augment": {"policy": "cta", "cutout": 0}} if method == "remixmatch" else {})


def fast_1min(method: str | None = None) -> Values:
    """WRN-28-2, 64 + 448 images, 4,000 steps of Muon, lr .03, cosine to 0: 90 seconds on one H200, compiling included.

    Where no method is asked for: FreeMatch's thresholds, the worst of 3 views. CIFAR-10 with 250 labels, fold 3:
    14.55 % error, 90 s from start to end where nothing was compiled before, 40 of them compiling
    (benchmarks/records/cifar10-250-alone). Five folds, cifar10-250-folds there: MaxMatch 16.82 %, FixMatch 21.97.
    Method and lr were chosen on fold 1. It assumes a net whose convolutions are followed by BatchNorm, and thousands of
    unlabelled images, of which a step sees 448; on a smaller GPU or a CPU it only takes longer.
    """
    return {
        "method": {"name": method} if method else {"name": "freematch", "k": 3, "over": "worst"},
        "net": {"batchnorm_momentum": "auto"},
        "train": {"steps": 4_000, "optimizer": "muon", "lr": 0.03, "schedule": "cosine", "ema_decay": "auto"},
    }


def fast_10min(method: str | None = None) -> Values:
    """As `fast-1min`, 52,000 steps, lr .02: 444 seconds on one H200, compiling included.

    CIFAR-10 with 250 labels, folds 3 to 5: 5.69 % error (benchmarks/records/cifar10-250-finals-52000), 444 s from start
    to end where nothing was compiled before, 31 of them compiling (cifar10-250-alone there). FixMatch for as
    long: 6.64. At 36,000 steps, lr .03: 6.10, one view for as long 6.58; with 40 labels, fold 3, 9.03 and 7.96 %; with
    4,000 5.11 and 5.63. MaxMatch and FixMatch, with thresholds of .95: 8.50 and 23.10, 5.29 and 5.92. On fold 3, where
    this has 5.96, 70,000 steps with lr_floor .1 have 5.73 after 603 s. The method was chosen on fold 1, from runs of
    5,000 and 12,000 steps, and lr there too, from runs of 36,000. It assumes what `fast-1min` does.
    """
    values = fast_1min(method)
    values["train"] |= {"steps": 52_000, "lr": 0.02, "checkpoint_every": 4_000, "evaluate_every": 2_000}
    return values


def fast_30min(method: str | None = None) -> Values:
    """As `fast-10min`, 200,000 steps that end at an eighth of lr: 26 minutes on one H200, compiling included.

    CIFAR-10 with 250 labels, folds 3 to 5: 5.11 % error (benchmarks/records/cifar10-250-floor-200000), where
    `fast-10min` has 5.69. 1,580 s from start to end where nothing was compiled before, 37 of them compiling. To 0 as
    many steps end at 5.60 on fold 3, where this has 5.24 and whose curve chose the floor (docs/search.md). It assumes
    what `fast-1min` does.
    """
    values = fast_10min(method)
    values["train"] |= {"steps": 200_000, "lr_floor": 0.125}
    return values


def of_data(dataset: str, protocol: str | None = None) -> Values:
    """What a data set brings along, for all recipes but `digits`: labels, net, weight decay, flips.

    cifar100, svhn and stl10 are the paper's, but that svhn is its training set alone until `--protocol` says more.
    mnist and fashion-mnist are not in it: theirs are short runs of ours.
    imagenet has its data, net and views here; `imagenet-paper` and `imagenet-authors` add the rest.
    """
    short: dict[str, Any] = {"steps": 20_000, "schedule": "cosine", "ema_decay": "auto"}
    grey: Values = {"net": {"batchnorm_momentum": "auto"}, "train": short}
    values: dict[str, Values] = {
        "cifar10": {"data": {"labels": 250}},
        "cifar100": {"data": {"labels": 2500}, "net": {"name": "wrn-28-8"}, "train": {"weight_decay": 0.001}},
        # Digits turned over are no digits; USB and, as we read it, the paper flip them all the same.
        "svhn": {"data": {"labels": 250}, "augment": {"flip": protocol in ("usb", "paper")}},
        "stl10": {"data": {"labels": 1000, "protocol": "paper"}, "net": {"name": "wrn-37-2"}},
        "imagenet": IMAGENET,
        "mnist": {"data": {"labels": 40}, "augment": {"policy": "gentle", "flip": False}, **grey},
        # Half the side, as 16 of 32 pixels are; shifts by a share of the side.
        "fashion-mnist": {"data": {"labels": 250}, "augment": {"policy": "fixmatch-paper", "cutout": 14}, **grey},
    }
    return values.get("svhn" if dataset == "svhn-extra" else dataset, {})


def of_net(base: str, net: str | None) -> Values:
    """What a recipe changes for a net: without BatchNorm `plain-conv` diverges at the learning rate of `digits`."""
    return {"train": {"lr": 0.2}} if (base, net) == ("digits", "plain-conv") else {}


def moco(method: str = "moco") -> Values:
    """MoCo v2's setting: 256 images a step, lr .03, cosine, momentum .999, crops of .2 to 1; of any length."""
    return {
        "data": {"labels": "all"},
        "augment": {"policy": "moco", "crop": True, "scale": (0.2, 1.0)},
        "net": {"batchnorm_momentum": 0.1},
        "method": {"name": method},
        "train": {
            "batch": 256, "ratio": 1, "lr": 0.03, "weight_decay": 1e-4, "nesterov": False, "schedule": "cosine",
            "ema_decay": 0.999,
        },
    }  # fmt: skip


def of_pool(dataset: str) -> Values:
    """What `moco` has of its own for a data set. ImageNet's, 200 epochs, is the paper's; the rest is ours.

    Small images are not blurred, and a short queue holds few other views of the image that is asked for.
    """
    if dataset == "imagenet":
        return {"train": {"epochs": 200}}
    small: Values = {"augment": {"policy": "moco-small"}, "method": {"queue": 4096}, "train": {"steps": 40_000}}
    digits: Values = {
        "augment": {"scale": (0.5, 1.0), "flip": False},
        "net": {"name": "wrn-10-1"},
        "method": {"queue": 512, "dimension": 64},
        "train": {
            "steps": 400, "batch": 128, "ema_decay": 0.99, "checkpoint_every": 100, "log_every": 50,
        },
    }  # fmt: skip
    upright: Values = {"augment": {"flip": False}}  # digits turned over are no digits
    own = {"digits": digits, "mnist": upright, "svhn": upright, "svhn-extra": upright}
    return overlay(small, own.get(dataset, {}))


# A recipe is called with the method that was asked for; without one it has its own.
RECIPES: dict[str, Callable[..., Values]] = {
    "digits": digits, "paper": paper, "fast-1min": fast_1min, "fast-10min": fast_10min,
    "fast-30min": fast_30min, "moco": moco,
    "imagenet-paper": imagenet_paper, "imagenet-authors": imagenet_authors, "imagenet-finetune": imagenet_finetune,
}  # fmt: skip
# The recipe of a data set where none is asked for; `paper` otherwise.
DEFAULT = {"digits": "digits", "imagenet": "imagenet-paper"}
PRETRAIN = "moco"  # that of a method of `methods.PRETRAINING`


def compose(
    dataset: str | Path | None = None,
    method: str | None = None,
    config: str | Path | None = None,
    given: Mapping[str, Any] | None = None,
) -> Recipe:
    """Defaults < named recipe < config file < what was typed (`given`: sections of plain values, or `section.name`).

    `dataset` is a word as on the command line, or the Path of a folder of pictures. `config` is a recipe's name, or a
    TOML or JSON file that may name its base with `recipe = "digits"`.

    >>> compose("cifar10@40", "fixmatch", given={"train.lr": 0.05, "method": {"k": 3}}).train.lr
    0.05
    """
    _refuse_other_kinds(dataset, config, given)
    config = str(config) if isinstance(config, Path) else config
    given = with_nones(_sections(given or {}, "given"))
    base_name, of_file = read_config(config)
    asked = _asked_method(method, config, of_file, given)
    dataset, given = _asked_data(dataset, config, of_file, given)
    typed = overlay(of_file, given)
    method = asked or "maxmatch"  # where none is asked for; a recipe may have another
    if base_name and (base_name == PRETRAIN) != (method in PRETRAINING):
        raise UsageError(f"recipe {base_name} is not for {method}: leave --config out, or choose another")
    if dataset == "folder":
        layers, base_name = _layers_of_folder(base_name, asked, method, typed)
    else:
        layers, base_name = _layers_of_data(dataset, base_name, asked, method, typed)
    layers += [of_net(base_name, typed.get("net", {}).get("name")), {"data": {"name": dataset}}, of_file, given]
    values = overlay(*layers, {"method": {"name": asked} if asked else {}})
    for name in ("path", "label_file"):  # a run is asked from other places, too
        if isinstance(place := values["data"].get(name), str):
            values["data"][name] = str(Path(place).absolute())
    if "steps" in given.get("train", {}) and "epochs" not in given["train"]:  # over those of a file, too
        typed["train"] = {k: v for k, v in typed["train"].items() if k not in EPOCHS or k in given["train"]}
    recipe = Recipe.from_dict(fitting(values, typed, base_name, dataset))
    _refuse_two_lengths(recipe, given.get("train", {}))
    _refuse_parts(recipe, given.get("augment", {}))
    return recipe


def _refuse_other_kinds(dataset: object, config: object, given: object) -> None:
    """What Python may hand over and no command line could."""
    for wrong, fine in (
        (f"compose({dataset!r})", isinstance(dataset or "", str | Path)),
        (f"config = {config!r}", isinstance(config or "", str | Path)),
        (f"given = {given!r}", isinstance(given or {}, Mapping)),
    ):
        if not fine:
            call = "compose('digits@40', 'maxmatch', given={'train': {'steps': 100}})"
            raise UsageError(f"{wrong}: type it as {call}")


def _asked_method(method: str | None, config: str | None, of_file: Values, given: Values) -> str | None:
    """The method that was asked for, if any. Options that the file has for another are refused, its name is dropped."""
    typed_name, file_name = (values.get("method", {}).get("name") for values in (given, of_file))
    asked = method or typed_name or file_name
    if asked and not isinstance(asked, str):
        told = f"method = {type(asked).__name__}(...): a name is wanted, 'maxmatch' or 'package.module:Class'"
        raise UsageError(f"{told}; an instance goes into a recipe: dataclasses.replace(recipe, method=...)")
    asked = canonical(asked) if asked else None
    if method and typed_name and canonical(str(typed_name)) != asked:
        raise UsageError(f"method.name is given twice, as {method} and as {typed_name}: give it once")
    if file_name is not None and canonical(str(file_name)) != asked:
        if len(of_file["method"]) > 1:
            raise UsageError(
                f"{config} has options of {file_name}, but {asked} was asked for: delete its [method] section"
            )
        of_file.pop("method")
    return asked


def _asked_data(asked: str | Path | None, config: str | None, of_file: Values, given: Values) -> tuple[str, Values]:
    """The name of the data, and what was typed, with the labels behind an @ and the path of a folder in it."""
    word = asked or given.get("data", {}).get("name") or of_file.get("data", {}).get("name") or "digits"
    if isinstance(word, Path):
        said = DataWord("folder", str(word.absolute()))
    else:
        said = DataWord(word) if word in ("arrays", "folder") else read_data(str(word))
    if said.labels is not None:
        typed_labels = given.get("data", {}).get("labels", said.labels)
        if _number(typed_labels) != _number(said.labels):
            raise UsageError(f"data.labels is given twice, as {said.labels} and as {typed_labels}: give it once")
        given = overlay({"data": {"labels": said.labels}}, given)
    if said.name != word:  # what the word says, not the word
        given = overlay(given, {"data": {"name": said.name} | ({} if said.path is None else {"path": said.path})})
    dataset = said.name
    named = of_file.get("data", {}).get("name", dataset)
    if named != dataset and {named, dataset} <= {*DATASETS, "folder"} and len(of_file["data"]) > 1:
        told = given["data"]["path"] if dataset == "folder" else dataset
        raise UsageError(
            f"{config} has the [data] of {named}, but {told} was asked for: delete that section, "
            f"or begin anew with maxmatch settings {told} > mine.toml"
        )
    return dataset, given


def _layers_of_folder(base_name: str | None, asked: str | None, method: str, typed: Values) -> tuple[list[Values], str]:
    """A look at the folder goes over the recipe; over one that is named, the size of the views alone, or nothing."""
    from maxmatch.train.suited import suited_to_folder

    own = suited_to_folder(asked, typed)
    if method in PRETRAINING:
        own = {"data": own["data"], "net": {"name": own["net"]["name"]}, **_short_pretraining(own["train"])}
    elif base_name:  # a recipe that is named decides all but the size of the views; ImageNet's that too
        own = {} if base_name.startswith("imagenet") else {"data": own["data"]}
    base_name = base_name or (PRETRAIN if method in PRETRAINING else "paper")
    base = RECIPES[base_name](asked) if asked else RECIPES[base_name]()
    return [base, own, {"augment": base.get("augment", {})}], base_name


def _layers_of_data(
    dataset: str, base_name: str | None, asked: str | None, method: str, typed: Values
) -> tuple[list[Values], str]:
    """The recipe goes over what the data set brings along; `digits` is a data set's own."""
    base_name = base_name or (PRETRAIN if method in PRETRAINING else DEFAULT.get(dataset, "paper"))
    own = {} if base_name == "digits" else of_data(dataset, typed.get("data", {}).get("protocol"))
    base = RECIPES[base_name](asked) if asked else RECIPES[base_name]()
    base = overlay(base, of_pool(dataset)) if base_name == PRETRAIN else base
    return [own, base, {"data": {"labels": "all"}} if dataset == "arrays" else {}], base_name


def _number(labels: Any) -> Any:
    """A number of labels as it counts, however it is written; with its sign, a share."""
    text = str(labels)
    try:
        return (float(text.rstrip("%")), text.endswith("%"))
    except ValueError:
        return text


def _refuse_parts(recipe: Recipe, typed: Mapping[str, Any]) -> None:
    """What is typed of parts of a picture does something where views are parts; a whole recipe's says nothing."""
    if recipe.data.canvas is not None or len(typed) == len(recipe.to_dict()["augment"]):
        return
    if "scale" in typed and not recipe.augment.crop:
        told = f"augment.scale = {recipe.augment.scale}: views are no parts of an image here"
        raise UsageError(f"{told}; leave it out, or make them so with --set augment.crop=true")
    if typed.get("middle") is not None:
        raise UsageError(f"augment.middle = {recipe.augment.middle}: there is no data.canvas; leave it out")


def _refuse_two_lengths(recipe: Recipe, typed: Mapping[str, Any]) -> None:
    """Epochs decide steps and warm-up; where all three are given they are a recipe's, which a run has settled."""
    if recipe.train.epochs is None or "warmup_epochs" in typed:
        return
    for name, other in (("steps", "give one of them"), ("warmup", "give train.warmup_epochs instead")):
        if name in typed:
            told = f"train.{name} = {typed[name]} and train.epochs = {recipe.train.epochs}"
            raise UsageError(f"{told}: a run that counts in epochs has its {name} from them; {other}")


def _short_pretraining(train: Mapping[str, Any]) -> Values:
    """As many steps as a folder's training would have, and what suits so few."""
    names = ("steps", "checkpoint_every", "log_every")
    return {"train": {**{name: train[name] for name in names}, "ema_decay": "auto"}, "method": {"queue": 4096}}


def read_config(config: str | None) -> tuple[str | None, Values]:
    """The base recipe that a `--config` names, and the values of its file."""
    if config is None:
        return None, {}
    if config in RECIPES:
        return config, {}
    if not Path(config).suffix and not Path(config).exists():
        raise UsageError(unknown("recipe", config, RECIPES))
    settled, values = split_settled(read_values(Path(config)))
    base = values.pop("recipe", None)
    if base is not None and base not in list(RECIPES):
        raise UsageError(unknown("recipe", str(base), RECIPES))
    sections = _sections(values, config)
    for section, name in (place.split(".") for place in settled):  # what a run settled itself is open again
        sections.setdefault(section, {})[name] = 0 if name.endswith("_every") else "auto"
    return base, sections


def _sections(values: Mapping[str, Any], where: str) -> Values:
    """Sections of settings; one setting alone may stand as `train.lr`, the way the command line has it."""
    found: Values = {}
    for place, value in values.items():
        section, dot, name = str(place).partition(".")
        if not dot and not isinstance(value, Mapping):
            told = f"{where}: {place} = {value!r} stands outside a section"
            raise UsageError(f"{told}; put it in one, such as [train], or write it as train.{place}")
        for field, own in ({name: value} if dot else value).items():
            held = found.setdefault(section, {}).setdefault(field, own)
            if held is not own and held != own:
                raise UsageError(f"{section}.{field} is given twice, as {held} and as {own}: give it once")
        found.setdefault(section, {})
    return found

"""What the paper shows: every figure and table by name, with its exact setting and the methods it compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from maxmatch.errors import UsageError, unknown
from maxmatch.paper.published import FINETUNE_STEPS, IMAGENET_STEPS, LEARNING_RATES, STEPS

Kind = Literal["bars", "k", "losses", "tsne", "runtime", "imagenet", "curves", "drawing", "words"]


@dataclass(frozen=True)
class Arm:
    """One method of a comparison: as the paper writes it, as we call it, and as its published number is filed.

    `pretrained`: it starts from MoCo v2, which is run before it. `finetuned`: by the recipe `imagenet-finetune`; on
    another data set its learning rates and schedule alone. `steps`: in the paper, where the others have another number.
    """

    label: str
    method: str
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    published: str = ""
    pretrained: bool = False
    finetuned: bool = False
    steps: int | None = None


@dataclass(frozen=True)
class Target:
    """A figure or a table of the paper."""

    name: str
    where: str
    title: str
    setting: str
    kind: Kind
    data: str = ""
    labels: tuple[int | str, ...] = ()
    arms: tuple[Arm, ...] = ()
    folds: int = 5
    net: str = "wrn-28-2"
    steps: int = STEPS
    batch: str = "64 + 448"
    device: str = "RTX 3090"

    @property
    def trains(self) -> bool:
        return bool(self.arms)


FIXMATCH = Arm("FixMatch", "fixmatch", published="FixMatch (RA)")
MAXMATCH = Arm("MaxMatch", "maxmatch", {"method": {"k": 3}}, "MaxMatch (RA)")
ANCHORING = Arm("FixMatch+Anchoring", "fixmatch-anchoring", {"method": {"k": 3}})
LEARNING_RATE = tuple(dict.fromkeys(lr for _, lr, _, _ in LEARNING_RATES))  # of Table 2
# The others as in the tables that their numbers are quoted from: 64 + 448 is said of FixMatch and MaxMatch.
NINE = (
    Arm("Supervised", "supervised"),
    Arm("Pseudo-Label", "pseudo-label", published="Pseudo-Label"),
    Arm("Pi-Model", "pi-model", published="Pi-Model"),
    Arm("Mean Teacher", "mean-teacher", published="Mean Teacher"),
    Arm("MixMatch", "mixmatch", published="MixMatch"),
    Arm("UDA", "uda", {"method": {"temperature": 1.0, "threshold": 0.95}}, "UDA"),
    Arm("ReMixMatch", "remixmatch", published="ReMixMatch"),
    FIXMATCH,
    MAXMATCH,
)
CTA: dict[str, dict[str, Any]] = {"augment": {"policy": "cta"}}
POLICIES = (
    Arm("FixMatch (RA)", "fixmatch", published="FixMatch (RA)"),
    Arm("FixMatch (CTA)", "fixmatch", CTA, "FixMatch (CTA)"),
    Arm("MaxMatch (RA)", "maxmatch", {"method": {"k": 3}}, "MaxMatch (RA)"),
    Arm("MaxMatch (CTA)", "maxmatch", CTA | {"method": {"k": 3}}, "MaxMatch (CTA)"),
)
# The worst of one view is that view: K = 1 is FixMatch, bit for bit, and its runs are FixMatch's.
EFFECT_OF_K = (
    Arm("K = 1", "fixmatch", published="FixMatch (RA)"),
    *(Arm(f"K = {k}", "maxmatch", {"method": {"k": k}}) for k in (3, 5, 7)),
)
# What every run of the small data sets has in common.
_COMMON = "64 + 448 images a step, 2^20 steps, lr 0.03, EMA 0.999, threshold 0.95"
_NINE = (
    "nine methods, MaxMatch with K = 3, RandAugment (ReMixMatch: CTAugment), UDA with temperature 1, those before it "
    f"with 64 + 64 images, each else with its own settings, 5 folds; FixMatch and MaxMatch: {_COMMON}"
)
_IMAGENET = "ImageNet, 10 % labelled, ResNet-50, 64 + 320 images a step, 300 epochs"


def _on_imagenet(method: str, lr: float, label: str, published: str) -> Arm:
    """An arm by the recipe `imagenet-paper`; on another data set these settings alone are ImageNet's."""
    own: dict[str, Any] = {"k": "1,2,3"} if method == "maxmatch" else {}
    own |= {"teacher": "eman"} if "EMAN" in label else {}
    settings = {"method": own, "train": {"lr": lr}, "evaluate": {"unlabelled": 10_000}}
    return Arm(label, method, settings, published, pretrained="MoCo" in label)


SCRATCH = (
    _on_imagenet("fixmatch", 0.03, "FixMatch", "FixMatch, none"),
    _on_imagenet("maxmatch", 0.02, "MaxMatch", "MaxMatch, none"),
)
FINETUNED = Arm(
    "Finetune, MoCo v2", "supervised",
    {"method": {"augmentation": "weak"}, "evaluate": {"unlabelled": 10_000}},
    "Finetune, MoCo v2", pretrained=True, finetuned=True, steps=FINETUNE_STEPS,
)  # fmt: skip
PRETRAINED = (
    FINETUNED,
    *(
        _on_imagenet(method, lr, f"{name}, MoCo v2", f"{name}, MoCo v2")
        for name, method, lr in (
            ("FixMatch", "fixmatch", 0.03),
            ("MaxMatch", "maxmatch", 0.02),
            ("FixMatch+EMAN", "fixmatch", 0.03),
            ("MaxMatch+EMAN", "maxmatch", 0.02),
        )
    ),
)
RATES = tuple(
    _on_imagenet(name.lower(), lr, f"{name}, lr {lr:g}", f"{name}, lr {lr:g}")
    for lr in LEARNING_RATE
    for name in ("FixMatch", "MaxMatch")
)


def _imagenet(name: str, where: str, title: str, what: str, kind: Kind, arms: tuple[Arm, ...]) -> Target:
    return Target(
        name, where, title, f"{_IMAGENET}; {what}", kind, "imagenet", ("10%",), arms, folds=1, net="resnet50",
        steps=IMAGENET_STEPS, batch="64 + 320", device="eight RTX 3090",
    )  # fmt: skip


def _bars(data: str, shown: str, where: str, labels: tuple[int, ...], net: str, decay: str) -> Target:
    counts = ", ".join(map(str, labels))
    setting = f"{shown} with {counts} labels; {net}, weight decay {decay}; {_NINE}"
    return Target(f"fig-{data}", where, f"Error rates on {shown}", setting, "bars", data, labels, NINE, net=net.lower())


_ALL = (
    Target("fig-framework", "Figure 1", "The framework", "a drawing: nothing is trained", "drawing"),
    Target(
        "fig-proximity", "Figure 2", "Numerical against semantic proximity",
        "a drawing: pairs of scikit-learn's digits with their distances; nothing is trained", "drawing",
    ),
    _bars("cifar10", "CIFAR-10", "Figure 3", (40, 250, 4000), "WRN-28-2", "0.0005"),
    _bars("cifar100", "CIFAR-100", "Figure 4", (400, 2500, 10000), "WRN-28-8", "0.001"),
    _bars("svhn", "SVHN", "Figure 5", (40, 250, 1000), "WRN-28-2", "0.0005"),
    _bars("stl10", "STL-10", "Figure 6", (1000,), "WRN-37-2", "0.0005"),
    Target(
        "fig-losses", "Figure 7", "Losses L, U and U-min while training",
        f"CIFAR-10 with 4000 labels; FixMatch and MaxMatch with K = 3; WRN-28-2; {_COMMON}", "losses",
        "cifar10", (4000,), (FIXMATCH, MAXMATCH), folds=1,
    ),
    Target(
        "fig-tsne", "Figure 8", "t-SNE of the features",
        f"CIFAR-10 with 250 labels; MaxMatch with K = 3; WRN-28-2; {_COMMON}; test images", "tsne",
        "cifar10", (250,), (MAXMATCH,), folds=1,
    ),
    _imagenet(
        "table-imagenet", "Table 1", "Error rates on ImageNet",
        "FixMatch and MaxMatch from scratch, from MoCo v2, and with EMAN; Finetune: 50 epochs of 256 labelled images, "
        "lr 0.001 and 0.1 for the head, a tenth from epochs 30 and 40 on", "imagenet",
        (*SCRATCH, *PRETRAINED),
    ),
    _imagenet(
        "fig-imagenet-unlabelled", "Figure 9", "Error on the unlabelled images of ImageNet while training",
        "top-1 and top-5 error of FixMatch and MaxMatch from scratch", "curves", SCRATCH,
    ),
    _imagenet(
        "table-imagenet-lr", "Table 2", "Initial learning rates on ImageNet",
        "FixMatch and MaxMatch with 0.01, 0.02 and 0.03", "imagenet", RATES,
    ),
    _imagenet(
        "fig-imagenet-curves", "Figure 10", "Test error on ImageNet while training",
        "top-1 error of FixMatch and MaxMatch with lr 0.01, 0.02 and 0.03: six curves", "curves", RATES,
    ),
    Target(
        "table-augment", "Table 3", "RandAugment against CTAugment",
        f"SVHN with 40, 250, 1000 labels; FixMatch and MaxMatch (K = 3) with each; WRN-28-2, 5 folds; {_COMMON}",
        "bars", "svhn", (40, 250, 1000), POLICIES,
    ),
    Target(
        "fig-k", "Figure 11", "Effect of K",
        f"CIFAR-10 with 250 and 4000 labels; MaxMatch with K = 1, 3, 5, 7; WRN-28-2, 5 folds; {_COMMON}", "k",
        "cifar10", (250, 4000), EFFECT_OF_K,
    ),
    Target(
        "fig-anchoring", "Figure 12", "Augmentation Anchoring against the worst case",
        f"SVHN with 40, 250, 1000 labels; FixMatch, FixMatch+Anchoring, MaxMatch, K = 3; WRN-28-2, 5 folds; {_COMMON}",
        "bars", "svhn", (40, 250, 1000), (FIXMATCH, ANCHORING, MAXMATCH),
    ),
    Target(
        "table-runtime", "Table 4", "GPU hours an epoch",
        "FixMatch and MaxMatch (K = 3): CIFAR-10 with WRN-28-2 on one RTX 3090, ImageNet with ResNet-50 on eight "
        "(ImageNet's are worked out in docs/scale.md)", "runtime", "cifar10", (4000,), (FIXMATCH, MAXMATCH), folds=1,
    ),
    Target("table-notation", "Table 5", "Notation", "symbols and their meaning: docs/notation.md", "words"),
)  # fmt: skip
TARGETS = {target.name: target for target in _ALL}


def find(name: str) -> Target:
    """A target by its name."""
    if name not in TARGETS:
        raise UsageError(unknown("figure or table", name, TARGETS))
    return TARGETS[name]

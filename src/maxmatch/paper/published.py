"""Every published number that a page shows, with where it was printed. Nothing here was measured by this project.

The MaxMatch paper prints its CIFAR and STL-10 errors as bars without numbers; what stands here for those data sets is
the table that the bars of the other methods follow, FixMatch's. `R` marks a number that was recalled, not read again.
"""

from __future__ import annotations

from dataclasses import dataclass

STEPS, FOLDS = 2**20, 5  # of all numbers in ERRORS
IMAGENET_STEPS = 300 * 3603  # 300 passes over 90 % of 1,281,167 images by 320
FINETUNE_STEPS = 50 * 500  # 50 passes over 10 % of them by 256
EPOCH = 1024  # steps; FixMatch's, which the paper follows
MAXMATCH = "MaxMatch (Jiang et al.)"
FIXMATCH = "FixMatch (Sohn et al., 2020), Table 2"


@dataclass(frozen=True)
class Number:
    """A mean in percent, its deviation where one was printed, and where."""

    mean: float
    std: float | None
    source: str
    recalled: bool = False

    def __str__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:.2f}"
        return f"{self.mean:.2f}{spread}{' [R]' if self.recalled else ''}"


_COLUMNS = (
    ("cifar10", 40), ("cifar10", 250), ("cifar10", 4000), ("cifar100", 400), ("cifar100", 2500), ("cifar100", 10000),
    ("svhn", 40), ("svhn", 250), ("svhn", 1000), ("stl10", 1000),
)  # fmt: skip
_ROWS = {
    "Pi-Model": "- 54.26R 14.01R - 57.25R 37.88R - 18.96R 7.54R 26.23R",
    "Pseudo-Label": "- 49.78R 16.09R - 57.38R 36.21R - 20.21R 9.94R 27.99R",
    "Mean Teacher": "- 32.32R 9.19R - 53.91R 35.83R - 3.57R 3.42R 21.43R",
    "MixMatch": "47.54 11.05 6.42 67.61R 39.94R 28.31R 42.55R 3.98R 3.50R 10.41",
    "UDA": "29.05 8.82 4.88 59.28 33.13 24.50R 52.63R 5.69R 2.46R 7.66",
    "ReMixMatch": "19.10 5.44 4.72 44.28 27.43 23.03 3.34 2.92 2.65 5.23",
    "FixMatch (RA)": "13.81+-3.37 5.07+-0.65 4.26+-0.05 48.85 28.29 22.60 3.96+-2.17 2.48+-0.38 2.28+-0.11 7.98",
    "FixMatch (CTA)": "11.39 5.07 4.31 49.95 28.64 23.18 7.65+-7.65 2.64+-0.64 2.36+-0.19 5.17",
    "MaxMatch (RA)": "- - - - - - 1.75+-0.09 1.75+-0.04 1.71+-0.07 -",
    "MaxMatch (CTA)": "- - - - - - 1.92+-0.12 1.97+-0.05 1.89+-0.05 -",
}


def _number(name: str, data: str, text: str) -> Number:
    mean, _, std = text.rstrip("R").partition("+-")
    in_table = data == "svhn" and name.endswith((" (RA)", " (CTA)"))
    source = f"{MAXMATCH}, Table 3" if in_table else FIXMATCH
    return Number(float(mean), float(std) if std else None, source, text.endswith("R"))


ERRORS: dict[tuple[str, int, str], Number] = {
    (*column, name): _number(name, column[0], text)
    for name, row in _ROWS.items()
    for column, text in zip(_COLUMNS, row.split(), strict=True)
    if text != "-"
}

# Table 1: method, pretraining, top-1 and top-5 error in percent on ImageNet with 10 % of the labels.
IMAGENET: tuple[tuple[str, str | float, float, float], ...] = (
    ("FixMatch", "none", 28.74, 10.94),
    ("MaxMatch", "none", 27.83, 10.46),
    ("Finetune", "MoCo v2", 36.80, 13.98),
    ("FixMatch", "MoCo v2", 28.25, 10.52),
    ("MaxMatch", "MoCo v2", 28.09, 10.49),
    ("FixMatch+EMAN", "MoCo v2", 26.56, 9.69),
    ("MaxMatch+EMAN", "MoCo v2", 26.09, 9.36),
)
# Table 2: method, initial learning rate, top-1, top-5.
LEARNING_RATES: tuple[tuple[str, float, float, float], ...] = (
    ("FixMatch", 0.01, 29.70, 11.78),
    ("MaxMatch", 0.01, 29.31, 11.69),
    ("FixMatch", 0.02, 28.94, 11.30),
    ("MaxMatch", 0.02, 27.83, 10.46),
    ("FixMatch", 0.03, 28.74, 10.94),
    ("MaxMatch", 0.03, 28.48, 10.93),
)
# Top-1 and top-5 of both tables, as the arms of targets.py name them.
IMAGENET_ERRORS: dict[str, tuple[Number, Number]] = {
    f"{method}, {kind if isinstance(kind, str) else f'lr {kind:g}'}": (
        Number(top1, None, f"{MAXMATCH}, {table}"),
        Number(top5, None, f"{MAXMATCH}, {table}"),
    )
    for table, rows in (("Table 1", IMAGENET), ("Table 2", LEARNING_RATES))
    for method, kind, top1, top5 in rows
}
# Table 4: GPU hours an epoch. CIFAR-10 on one RTX 3090; ImageNet on eight, summed over them.
RUNTIME = {
    ("cifar10", "FixMatch"): 0.069,
    ("cifar10", "MaxMatch"): 0.147,
    ("imagenet", "FixMatch"): 3.016,
    ("imagenet", "MaxMatch"): 4.512,
}

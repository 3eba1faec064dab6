"""What `maxmatch bench` is asked for: nets with their images and batches, K, strategies; read from words, strictly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from maxmatch.errors import UsageError, unknown

PRECISIONS = ("float64", "float32", "bf16")
STEPS = ("auto", "eager", "compiled", "captured")
STRATEGIES = ("joint", "select")


@dataclass(frozen=True)
class Setting:
    """A net with the images, batches and repeats that it is measured with."""

    net: str
    side: int
    classes: int
    batch: int  # labelled images a step
    ratio: int  # unlabelled images for each
    predict: int  # images of a batch in prediction
    repeats: int  # timed steps of a row
    small: bool = False  # smaller than the paper's, for a CPU

    @property
    def unlabelled(self) -> int:
        return self.batch * self.ratio


# The batches of the paper: CIFAR-10, CIFAR-100, ImageNet. 32 steps are one block of draws, whose cost is so charged.
SETTINGS = {
    "wrn-28-2": Setting("wrn-28-2", side=32, classes=10, batch=64, ratio=7, predict=1024, repeats=32),
    "wrn-28-8": Setting("wrn-28-8", side=32, classes=100, batch=64, ratio=7, predict=1024, repeats=32),
    "resnet50": Setting("resnet50", side=224, classes=1000, batch=64, ratio=5, predict=128, repeats=16),
}
ON_CPU = {
    "wrn-28-2": replace(SETTINGS["wrn-28-2"], batch=8, predict=64, repeats=3, small=True),
    "wrn-28-8": replace(SETTINGS["wrn-28-8"], batch=2, predict=16, repeats=3, small=True),
    "resnet50": replace(SETTINGS["resnet50"], batch=1, predict=4, repeats=3, small=True),
}


class Variant(NamedTuple):
    """One row: a method with K views by one strategy."""

    method: str
    k: int
    strategy: str

    @property
    def name(self) -> str:
        return f"fixmatch {self.strategy}" if self.method == "fixmatch" else f"K={self.k} {self.strategy}"


# FixMatch as its authors run it, and the fastest that one can make: with one view the worst is the mean, so `select`
# is open to FixMatch too; the weak views then have no gradient, and only the strong ones are trained on.
FIXMATCH = (Variant("fixmatch", 1, "joint"), Variant("fixmatch", 1, "select"))


@dataclass(frozen=True)
class Wanted:
    """All that was asked for. None stands for the setting's own value."""

    nets: tuple[str, ...] = ("wrn-28-2",)
    ks: tuple[int, ...] = (1, 3, 5, 7)
    strategies: tuple[str, ...] = STRATEGIES
    precision: str | None = None  # None: bf16 on a GPU, else float32
    step: str = "auto"
    repeats: int | None = None
    batch: int | None = None
    parts: bool = True
    inference: bool = True

    def __post_init__(self) -> None:
        known = {"--net": (self.nets, SETTINGS), "--strategy": (self.strategies, STRATEGIES)}
        known |= {"--step": ((self.step,), STEPS), "--precision": ((self.precision or "float32",), PRECISIONS)}
        for option, (given, choices) in known.items():
            if not given:
                raise UsageError(f"{option}: nothing is named; type {option} {next(iter(choices))}")
            for name in given:
                if name not in choices:
                    told = unknown(option[2:], name, choices)
                    told += f" It measures {', '.join(choices)}." if option == "--net" and told.endswith("?") else ""
                    raise UsageError(f"{option}: {told}")
        if not self.ks or min(self.ks) < 1:
            raise UsageError("--k: whole numbers from 1 with commas between; type --k 1,3")

    def variants(self) -> tuple[Variant, ...]:
        """The rows: FixMatch twice, since all else is told as its multiple, then each K by each strategy."""
        return (*FIXMATCH, *(Variant("maxmatch", k, s) for k in self.ks for s in STRATEGIES if s in self.strategies))

    def setting(self, net: str, device: str) -> Setting:
        """The images and batches of a net on a kind of device."""
        chosen = (SETTINGS if device == "cuda" else ON_CPU)[net]
        chosen = replace(chosen, repeats=self.repeats or chosen.repeats)
        return replace(chosen, batch=self.batch, small=False) if self.batch else chosen

    def command(self, device: str) -> str:
        """The words that ask for this, defaults spelt out."""
        words = [f"maxmatch bench --net {','.join(self.nets)} --device {device}"]
        words += [f"--precision {self.precision}"] if self.precision else []
        words += [f"--step {self.step} --k {','.join(map(str, self.ks))} --strategy {','.join(self.strategies)}"]
        words += [f"--repeats {self.repeats}"] if self.repeats else []
        words += [f"--batch {self.batch}"] if self.batch else []
        words += [word for word, on in (("--no-parts", self.parts), ("--no-inference", self.inference)) if not on]
        return " ".join(words)


def numbers(text: str) -> tuple[int, ...]:
    """`1,3` as whole numbers from 1, each once and in order.

    >>> numbers("3,1")
    (1, 3)
    """
    words = names(text)
    if not words or not all(word.isascii() and word.isdigit() and int(word) for word in words):
        raise UsageError(f"--k {text}: whole numbers from 1 with commas between; type --k 1,3")
    return tuple(sorted({int(word) for word in words}))


def names(text: str) -> tuple[str, ...]:
    """Words with commas between, each once.

    >>> names("joint, select")
    ('joint', 'select')
    """
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))

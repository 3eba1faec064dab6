"""Methods and settings made in Python are held to what the command line is held to: nothing is trained by another rule.

Each case did train, without a word, by something else than was asked for.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from maxmatch.errors import UsageError
from maxmatch.estimator.labels import encode
from maxmatch.methods import make_method, method_class
from maxmatch.methods.base import Batch, Consistency, Losses, Method, Needs, Run, Target
from maxmatch.methods.fixmatch import FixMatch
from maxmatch.methods.maxmatch import MaxMatch
from maxmatch.methods.mean_teacher import MeanTeacher
from maxmatch.methods.ranges import Count
from maxmatch.methods.reduce import Reduction, Worst
from maxmatch.methods.uda import UDA
from maxmatch.settings import parse_assignment
from maxmatch.train.fit import fit
from maxmatch.train.recipe import Recipe
from maxmatch.train.recipes import compose


@dataclass(frozen=True)
class Median(Reduction):
    """One of one's own: it trains, and no recipe can name it."""

    name = "median"


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Coloured(FixMatch):
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Rash(FixMatch):
    """Its checks don't ask those of its base."""

    times: Count = 1

    def __post_init__(self) -> None:
        pass


@dataclass(frozen=True)
class Misplaced(FixMatch):
    @property
    def needs(self) -> Needs:
        return Needs(weak=1, strong=self.k, variants="Weak")  # type: ignore[arg-type]


class Bare(FixMatch):
    threshold: float = 0.5


@dataclass(frozen=True)
class OfBare(Bare):
    """Its own options are read, those of its base are not."""


@pytest.mark.parametrize(
    ("method", "line"),
    [
        (MaxMatch(teacher="ema"), "method.teacher = ema: choose from own, eman"),
        (MaxMatch(target="Hard"), "method.target = Hard: choose from hard, soft"),
        (MeanTeacher(views="week"), "method.views = week: choose from"),
        (UDA(annealing="Linear"), "method.annealing = Linear: choose from"),
        (MaxMatch(align=1), "method.align = 1: true or false is wanted"),
        (FixMatch(k=3, over=Median()), "unknown value for method.over 'median'"),
        (Coloured(), "method.colour: no option can be of type"),
        (Rash(times=0), "method.times = 0: a whole number of at least 1 is wanted"),
        (Rash(k="1,2", over=Worst()), r"method.k = '1,2': it would be read again as"),
        (Misplaced(), "needs variants = 'Weak': 'strong' or 'weak' is wanted"),
        (OfBare(), "the options of Bare are not read; put @dataclass"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, FixMatch) else "",
)
def test_a_method_that_its_recipe_could_not_give_back_is_refused(method, line):
    with pytest.raises(UsageError, match=line) as caught:
        Recipe(method=method)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("section", "values", "line"),
    [
        ("train", {"schedule": "cosin"}, "train.schedule = cosin: choose from"),
        ("train", {"optimizer": "Muon"}, "train.optimizer = Muon: choose from sgd, muon, adamw"),
        ("train", {"precision": "double"}, "train.precision = double: choose from"),
        ("train", {"step": "compile"}, "train.step = compile: choose from"),
        ("train", {"steps": 6.5}, "train.steps = 6.5: a whole number is wanted"),
        ("data", {"protocol": "Proportional"}, "data.protocol = Proportional: choose from"),
        ("augment", {"flip": "no"}, "augment.flip = 'no': true or false is wanted"),
    ],
)
def test_a_setting_that_its_recipe_could_not_give_back_is_refused(section, values, line):
    recipe = compose("digits", "maxmatch")
    with pytest.raises(UsageError, match=line):
        replace(recipe, **{section: replace(getattr(recipe, section), **values)})


def test_what_reads_the_same_is_taken_as_python_has_it():
    recipe = compose("digits", "maxmatch")
    lists = replace(recipe.train, schedule="milestones", milestones=[0.5, 0.75], lr=1)
    assert Recipe.from_dict(replace(recipe, train=lists).to_dict()).train.milestones == (0.5, 0.75)
    assert Recipe(method=MaxMatch(k=[(1, 0.5), (2, 0.5)])).method == MaxMatch(k="1:.5,2:.5")


def test_an_option_of_a_base_that_gets_a_value_without_its_type_is_refused():
    with pytest.raises(UsageError, match=r"Lax.threshold is an option and has no type.*write threshold: Share = 0.5"):

        @dataclass(frozen=True)
        class Lax(FixMatch):
            threshold = 0.5

    with pytest.raises(UsageError, match=r"write over: Reduction = Worst\(\)"):

        class Plain(FixMatch):
            over = Worst()

    @dataclass(frozen=True)
    class Fine(FixMatch):
        formula = "of its own"  # a ClassVar of the base is no option
        threshold: float = 0.5

        @property
        def weight(self) -> float:  # type: ignore[override]
            return 2.0

    assert Fine.formula == "of its own"


def test_what_the_contract_reads_otherwise_than_it_is_written_is_told_in_a_line():
    with pytest.raises(UsageError, match=r"Called.needs is read like a value: write @property above it"):

        class Called(FixMatch):
            def needs(self) -> Needs:  # type: ignore[override]
                return Needs(weak=1, strong=1)

    with pytest.raises(UsageError, match=r"Bound.distance is asked with logits and targets alone: write @staticmethod"):

        class Bound(FixMatch):
            def distance(self, logits: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
                return logits.square().sum(-1)

    class Plain(FixMatch):
        def distance(logits: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
            return logits.square().sum(-1)

    assert Plain.distance(torch.ones(2, 3), torch.zeros(2)).tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ({"centres": torch.nn.Parameter(torch.zeros(3))}, r"Kept.parts has 'centres', a Parameter: a torch.nn.Module"),
        (torch.nn.Linear(2, 2), r"Kept.parts returns a Linear: a dict is wanted, modules by name"),
    ],
)
def test_parts_that_could_not_be_saved_are_told_in_a_line(parts, line):
    @dataclass(frozen=True)
    class Kept(FixMatch):
        def parts(self, classes: int, images: int, features: int) -> dict[str, torch.nn.Module]:
            return parts  # type: ignore[no-any-return]

    with pytest.raises(UsageError, match=line):
        Kept().state(10, 100)


@dataclass(frozen=True)
class Neighbours(Method):
    """An option may be called k without being a number of views, and may have no default."""

    k: int

    @property
    def needs(self) -> Needs:
        return Needs()

    def losses(self, run: Run, batch: Batch) -> Losses:
        return Losses({})


def test_an_option_of_one_s_own_may_be_called_k():
    assert make_method({"name": f"{__name__}:Neighbours", "k": 7}) == Neighbours(7)
    with pytest.raises(UsageError, match="supervised has no views to choose from: leave k out"):
        make_method({"name": "supervised", "k": 7})


def test_the_options_of_a_base_without_the_decorator_are_told():
    with pytest.raises(UsageError, match="the options of Bare are not read"):
        method_class(f"{__name__}:OfBare")
    with pytest.raises(UsageError, match="its options are not read"):
        method_class(f"{__name__}:Bare")


@dataclass(frozen=True)
class Twice(Consistency):
    """The mean of two weak views makes the label, whoever `teacher` is."""

    asks: bool = field(default=False)

    @property
    def needs(self) -> Needs:
        return Needs(weak=2, strong=self.k)

    def targets(self, p: Tensor) -> Target:
        return Target(p.argmax(-1), torch.ones_like(p[:, 0]))

    def opinion(self, run, batch, anchored: Sequence[Tensor], variants: Sequence[Tensor]) -> Tensor:
        return torch.stack([logits.softmax(-1) for logits in anchored]).mean(0)


@dataclass(frozen=True)
class TwiceGuessed(Twice):
    def opinion(self, run, batch, anchored: Sequence[Tensor], variants: Sequence[Tensor]) -> Tensor:
        return torch.stack([logits.softmax(-1) for logits in self.guess(run, *batch.weak)]).mean(0)


@dataclass(frozen=True)
class TwiceByAHelper(Twice):
    def opinion(self, run, batch, anchored: Sequence[Tensor], variants: Sequence[Tensor]) -> Tensor:
        return self._smooth(run, batch).mean(0)

    def _smooth(self, run, batch) -> Tensor:
        return torch.stack([logits.softmax(-1) for logits in self.guess(run, *batch.weak)])


def test_an_eman_teacher_that_would_never_be_asked_is_refused():
    assert Twice().teacher == "own"
    with pytest.raises(UsageError, match=r"teacher = eman: Twice.opinion never asks self.guess"):
        Twice(teacher="eman")
    assert TwiceGuessed(teacher="eman").averages_statistics
    assert TwiceByAHelper(teacher="eman").averages_statistics


@pytest.mark.parametrize("keep", [None, 1.0])
def test_a_target_of_something_else_than_tensors_is_told(tiny, tmp_path, keep):
    @dataclass(frozen=True)
    class Keeping(FixMatch):
        def targets(self, p: Tensor) -> Target:
            return Target(p.argmax(-1), keep)  # type: ignore[arg-type]

    recipe = replace(tiny("fixmatch"), method=Keeping())
    with pytest.raises(UsageError, match=f"a Target whose keep is a {type(keep).__name__}: a tensor is wanted"):
        fit(recipe, tmp_path / "a", quiet=True)


def test_a_folder_s_name_that_looks_like_a_number_stays_a_name():
    assert parse_assignment("train.init=2024_01") == ("train", "init", "2024_01")
    assert parse_assignment("train.steps=2024") == ("train", "steps", 2024)


def test_one_class_beside_rows_of_minus_one_says_what_minus_one_is():
    with pytest.raises(ValueError, match="-1 is unlabelled: give a class of that name another"):
        encode([1, -1, 1, -1])
    with pytest.raises(ValueError, match="need labels$"):
        encode([1, 1])


def test_threads_train_one_after_the_other_as_they_would_alone(tiny, tmp_path):
    """Oracle: each run by itself."""
    recipes = {seed: tiny(train={"seed": seed, "steps": 4}) for seed in (1, 2)}
    for seed, recipe in recipes.items():
        fit(recipe, tmp_path / f"alone-{seed}", quiet=True)
    threads = [
        threading.Thread(target=fit, args=(recipe, tmp_path / f"beside-{seed}"), kwargs={"quiet": True})
        for seed, recipe in recipes.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in recipes:
        ours, theirs = (load_file(tmp_path / f"{how}-{seed}" / "model.safetensors") for how in ("beside", "alone"))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)

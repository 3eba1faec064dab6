"""Several runs: paired differences by hand, names and kinds."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from maxmatch.report.compare import Paired, conclusion, labels, names, over_folds, paired
from maxmatch.report.folder import RunFolder
from maxmatch.report.measure import Answers
from maxmatch.train.recipes import compose


def answers(position: list[int], right: list[bool], classes: int = 3) -> Answers:
    """Test images whose label is their position modulo the classes, predicted rightly or not."""
    label = torch.tensor(position) % classes
    guess = torch.where(torch.tensor(right), label, (label + 1) % classes)
    return Answers(np.array(position), label, torch.nn.functional.one_hot(guess, classes).double(), 10)


def run_of(path: str, name: str = "fixmatch", error: float | None = 5.0, **sections) -> RunFolder:
    recipe = compose("digits", name, given={"train": {"steps": 4}, **sections})
    result = {"error": {"last": error, "median20": error, "best": error}, "steps": 4, "robust_error": error}
    return RunFolder(Path(path), recipe, result, [], 20, 1175)


def test_a_pair_on_the_images_that_both_were_asked_about():
    first = answers([0, 1, 2, 3, 4], [True, True, False, True, False])
    other = answers([1, 2, 3, 4, 7], [False, True, True, False, True])
    (pair,), refused = paired([("a", first), ("b", other)])
    assert refused == []
    assert pair == Paired("a", "b", 4, 1, 1)  # of 1, 2, 3, 4: a alone has 1 right, b alone has 2
    assert (pair.difference, pair.standard_error) == (0, pytest.approx(100 * math.sqrt(2) / 4))


def test_difference_and_standard_error_are_those_of_the_differences():
    """Oracle: numpy on the differences image by image."""
    rng = np.random.default_rng(0)
    a, b = rng.random(200) < 0.9, rng.random(200) < 0.8
    everywhere = list(range(200))
    (pair,), _ = paired([("a", answers(everywhere, a.tolist())), ("b", answers(everywhere, b.tolist()))])
    apart = 100 * (a.astype(float) - b.astype(float))
    assert pair.difference == pytest.approx(apart.mean())
    assert pair.standard_error == pytest.approx(apart.std() / math.sqrt(200))


def test_other_test_images_and_unmeasured_runs_are_not_compared():
    one, other = answers([0, 1], [True, True]), answers([0, 1], [True, True])._replace(label=torch.tensor([2, 2]))
    found, refused = paired([("a", one), ("b", other), ("c", None)])
    assert found == []
    assert refused[0] == "a and b: they have other test images"
    assert len(refused) == 3


def test_up_to_four_each_with_each_then_all_with_the_first():
    one = answers([0, 1], [True, False])
    assert len(paired([(str(i), one) for i in range(4)])[0]) == 6
    found = paired([(str(i), one) for i in range(5)])[0]
    assert [(pair.first, pair.other) for pair in found] == [("0", "1"), ("0", "2"), ("0", "3"), ("0", "4")]


def test_kinds_name_what_differs_but_not_the_seed():
    runs = [run_of("a", method={"k": 1}), run_of("b", method={"k": 5}), run_of("c", "maxmatch"),
            run_of("d", "maxmatch", train={"seed": 2, "steps": 4})]  # fmt: skip
    assert labels(runs) == ["fixmatch, k=1", "fixmatch, k=5", "maxmatch", "maxmatch"]
    assert names([run_of("x/a"), run_of("y/a"), run_of("y/b")]) == ["x/a", "y/a", "y/b"]


def test_over_seeds_the_mean_and_the_difference_on_the_same_seed():
    def seeded(path, method, error, seed):
        return run_of(path, method, error, train={"seed": seed, "fold": seed, "steps": 4})

    runs = [
        seeded("a", "fixmatch", 5, 1),
        seeded("b", "fixmatch", 9, 2),
        seeded("c", "maxmatch", 4, 1),
        seeded("d", "maxmatch", 6, 2),
    ]
    found = over_folds(runs, labels(runs))
    assert [row["last"]["mean"] for row in found["methods"]] == [7, 5]
    assert found["paired"][0]["last"] == {"n": 2, "mean": -2, "standard_error": 1, "better": 2}
    told = conclusion(runs, names(runs), [], found).replace("\N{NO-BREAK SPACE}", " ")
    assert told == "maxmatch has the lowest mean error, 5.00 % over 2 runs, against 7.00 for fixmatch (2)."
    assert over_folds(runs[::2], labels(runs[::2])) is None


def test_the_conclusion_says_who_and_by_how_much():
    runs = [run_of("a", error=8.0), run_of("b", "maxmatch", error=5.0)]
    told = conclusion(runs, ["a", "b"], [Paired("a", "b", 100, 1, 4)])
    assert told.replace("\N{NO-BREAK SPACE}", " ") == (
        "b has the lowest error, 5.00 %. On the same 100 test images it is 3.00 ± 2.22 points lower than a."
    )
    assert conclusion([run_of("a", error=None)], ["a"], []) == "No run has a measured error."

"""Several runs: paired differences by hand, names and kinds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from maxmatch.report.compare import Paired, conclusion, data_sets, labels, names, over_folds, paired
from maxmatch.report.folder import RunFolder
from maxmatch.report.measure import Answers, digest_of
from maxmatch.train.recipes import compose


def answers(position: list[int], right: list[bool], classes: int = 3, digest: str = "same") -> Answers:
    """Test images whose label is their position modulo the classes, predicted rightly or not."""
    label = torch.tensor(position) % classes
    guess = torch.where(torch.tensor(right), label, (label + 1) % classes)
    return Answers(np.array(position), label, torch.nn.functional.one_hot(guess, classes).double(), 100, digest)


def run_of(path: str, name: str = "fixmatch", error: float | None = 5.0, on: str = "digits", **sections) -> RunFolder:
    recipe = compose(on, name, given={"train": {"steps": 4}, **sections})
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
    one, other = answers([0, 1], [True, True]), answers([0, 1], [True, True], digest="other")  # with the same labels
    found, refused = paired([("a", one), ("b", other), ("c", None)])
    assert found == []
    assert refused[0] == "a and b: they have other test images"
    assert len(refused) == 3


def test_runs_that_were_shown_no_image_in_common_are_not_compared():
    found, refused = paired([("a", answers([0, 1, 2], [True] * 3)), ("b", answers([50, 80], [True] * 2))])
    assert (found, refused) == ([], ["a and b: no test image was shown to both"])


def test_a_test_set_is_known_by_every_pixel_and_label():
    pixels = torch.arange(5000 * 4, dtype=torch.int64).to(torch.uint8).view(5000, 1, 2, 2)
    labels_of = torch.arange(5000) % 3
    whole = digest_of(pixels, labels_of)
    assert whole == digest_of(pixels.clone(), labels_of.int())
    other = pixels.clone()
    other[4999, 0, 1, 1] += 1
    wrong = labels_of.clone()
    wrong[4999] = (wrong[4999] + 1) % 3
    changed = [digest_of(other, labels_of), digest_of(pixels, wrong), digest_of(pixels.view(5000, 1, 4, 1), labels_of)]
    assert len({whole, *changed}) == 4


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
    assert told == "maxmatch has the lowest mean error, 5.00 % over 2 runs, against 7.00 for fixmatch."
    assert over_folds(runs[::2], labels(runs[::2])) is None


def test_only_runs_of_one_fold_and_as_many_labels_are_paired():
    def run(path, method, error, fold, count=20):
        return run_of(path, method, error, train={"fold": fold, "seed": 1, "steps": 4}, data={"labels": count})

    first = [run("a", "fixmatch", 9.0, 1), run("b", "fixmatch", 5.0, 2)]
    other = [run("c", "maxmatch", 4.0, 2), run("d", "maxmatch", 1.0, 3)]
    found = over_folds([*first, *other], labels([*first, *other]))
    assert (found["paired"][0]["n"], found["paired"][0]["last"]["mean"]) == (1, -1.0)
    more = [run("c", "maxmatch", 4.0, 1, 40), run("d", "maxmatch", 3.0, 2, 40)]
    found = over_folds([*first, *more], labels([*first, *more]))
    assert [row["last"]["mean"] for row in found["methods"]] == [7.0, 3.5]
    assert [row["n"] for row in found["paired"]] == [0]


def test_the_conclusion_says_who_and_by_how_much():
    runs = [run_of("a", error=8.0), run_of("b", "maxmatch", error=5.0)]
    told = conclusion(runs, ["a", "b"], [Paired("a", "b", 100, 1, 4)])
    assert told.replace("\N{NO-BREAK SPACE}", " ") == (
        "b has the lowest error, 5.00 %. On the same 100 test images it is 3.00 ± 2.22 points lower than a (within the noise)."
    )
    assert conclusion([run_of("a", error=None)], ["a"], []) == "No run has a measured error."


def test_errors_on_more_or_fewer_test_images_are_not_compared():
    runs = [run_of("a", error=75.0), run_of("none", error=None), run_of("b", error=80.0), run_of("c", error=70.0)]
    for run, many in zip(runs, (4, 0, 5, None), strict=True):
        run.result["test_images"] = many
    told = conclusion(runs, ["a", "none", "b", "c"], []).replace("\N{NO-BREAK SPACE}", " ")
    assert told == (
        "The runs were judged by different test images, so their errors are not compared: "
        "a 75.00 % of 4, b 80.00 % of 5, c 70.00 %."
    )
    for run in runs:
        run.result["test_images"] = 4
    assert "c has the lowest error" in conclusion(runs, ["a", "none", "b", "c"], [])


def test_nobody_wins_a_tie():
    runs = [run_of("a", error=5.0), run_of("b", "maxmatch", error=5.0)]
    told = conclusion(runs, ["a", "b"], [Paired("a", "b", 100, 2, 2)])
    assert told.replace("\N{NO-BREAK SPACE}", " ") == "All have the same error, 5.00 %."
    runs.append(run_of("c", "uda", error=8.0))
    told = conclusion(runs, ["a", "b", "c"], [Paired("a", "b", 100, 2, 2), Paired("a", "c", 100, 4, 1)])
    assert "it is equal to b, and 3.00 ± 2.22 points lower than c (within the noise)." in told.replace(
        "\N{NO-BREAK SPACE}", " "
    )


def test_pairs_of_different_size_say_how_many_images_each_has():
    runs = [run_of("a", error=8.0), run_of("b", "maxmatch", error=5.0), run_of("c", "uda", error=6.0)]
    told = conclusion(runs, ["a", "b", "c"], [Paired("a", "b", 100, 1, 4), Paired("b", "c", 50, 4, 1)])
    assert told.replace("\N{NO-BREAK SPACE}", " ") == (
        "b has the lowest error, 5.00 %. On the same test images it is 3.00 ± 2.22 points lower than a "
        "(100 images, within the noise), and 6.00 ± 4.39 points lower than c (50 images, within the noise)."
    )


def test_errors_on_different_data_are_not_compared():
    def seeded(path, name, error, seed, on):
        return run_of(path, name, error, on, train={"seed": seed, "fold": seed, "steps": 4})

    digits = [seeded("a", "fixmatch", 5, 1, "digits"), seeded("b", "fixmatch", 7, 2, "digits")]
    cifar = [
        seeded("c", "maxmatch", 20, 1, "cifar10"), seeded("d", "maxmatch", 22, 2, "cifar10"),
        seeded("e", "fixmatch", 25, 1, "cifar10"), seeded("f", "fixmatch", 29, 2, "cifar10"),
    ]  # fmt: skip
    runs = [*digits, *cifar]
    kinds = labels(runs)
    assert kinds == ["fixmatch on digits"] * 2 + ["maxmatch on cifar10"] * 2 + ["fixmatch on cifar10"] * 2
    folds = over_folds(runs, kinds)
    (pair,) = folds["paired"]  # within cifar10 alone
    assert (pair["against"], pair["method"], pair["last"]["mean"]) == ("maxmatch on cifar10", "fixmatch on cifar10", 6)
    told = conclusion(runs, names(runs), [], folds).replace("\N{NO-BREAK SPACE}", " ")
    assert told == (
        "The runs are on different data, whose errors are not compared. On digits: a has the lowest error, 5.00 %. "
        "On cifar10: maxmatch on cifar10 has the lowest mean error, 21.00 % over 2 runs, against 27.00 for fixmatch on "
        "cifar10."
    )
    told = conclusion([digits[0], cifar[0]], ["a", "c"], []).replace("\N{NO-BREAK SPACE}", " ")
    assert "lowest" not in told
    assert told.endswith("digits has one run, a: 5.00 %. cifar10 has one run, c: 20.00 %.")


def test_folders_of_one_name_are_told_apart_by_their_path():
    runs = [run_of(path, data={"name": "folder", "path": f"/{path}/photos"}) for path in ("a", "b")]
    assert data_sets(runs) == ["/a/photos", "/b/photos"]
    assert data_sets(runs[:1]) == ["photos"]
    more = [run_of("a"), run_of("b", data={"labels": 40})]
    assert data_sets(more) == ["digits", "digits"]  # other labels, the same test images
    assert labels(more) == ["fixmatch, labels=20", "fixmatch, labels=40"]


def test_runs_from_several_starts_with_one_seed_all_count():
    runs = [
        run_of("a", "maxmatch", 70.0, train={"steps": 4, "seed": 1, "init": "one"}),
        run_of("b", "maxmatch", 60.0, train={"steps": 4, "seed": 1, "init": "two"}),
        run_of("c", "fixmatch", 64.0, train={"steps": 4, "seed": 1}),
    ]
    found = over_folds(runs, labels(runs))
    assert [(row["method"], row["n"], row["last"]["mean"]) for row in found["methods"]] == [
        ("maxmatch", 2, 65.0), ("fixmatch", 1, 64.0),
    ]  # fmt: skip
    told = conclusion(runs, names(runs), [], found).replace("\N{NO-BREAK SPACE}", " ")
    assert told == (
        "Not all have the same folds and repetitions, so their means are not compared: maxmatch 65.00 % (2), fixmatch "
        "64.00 % (1). On the fold that both have fixmatch is 6.00 points lower than maxmatch."
    )


def _photos(path: str, labelled: int, error: float, kept: str | int = "all", **train) -> RunFolder:
    data = {"name": "folder", "path": "/photos", "labels": kept}
    return replace(run_of(path, "maxmatch", error, data=data, train={"steps": 4, **train}), labelled=labelled)


def test_a_folder_that_got_more_labels_makes_another_kind():
    """Label a little more, train from the weights before: the recipes differ in the start alone."""
    runs = [_photos("r/a", 32, 30.0), _photos("r/b", 42, 20.0, init="r/a"), _photos("r/c", 52, 10.0, init="r/b")]
    kinds = labels(runs)
    assert kinds == [
        "maxmatch, labels=32, init=no", "maxmatch, labels=42, init=a", "maxmatch, labels=52, init=b",
    ]  # fmt: skip
    assert over_folds(runs, kinds) is None
    told = conclusion(runs, names(runs), []).replace("\N{NO-BREAK SPACE}", " ")
    assert told == "c has the lowest error, 10.00 %."
    anew = [_photos("r/d", 32, 30.0), _photos("r/e", 42, 20.0), _photos("r/f", 42, 22.0, seed=2)]
    kinds = labels(anew)
    assert kinds == ["maxmatch, labels=32", "maxmatch, labels=42", "maxmatch, labels=42"]
    assert over_folds(anew, kinds)["paired"][0]["n"] == 0  # one fold, but other labels
    assert labels([_photos("r/d", 32, 30.0), _photos("r/e", 32, 20.0, 32)]) == ["maxmatch"] * 2  # 32 are all
    assert labels([run_of("a"), replace(run_of("b"), labelled=40)]) == ["fixmatch"] * 2  # a data set stays as it is
    share = [run_of(name, data={"labels": "2%"}) for name in "ab"]
    assert labels([share[0], replace(share[1], labelled=40)]) == ["fixmatch"] * 2


def test_a_start_makes_a_kind_unless_all_have_one_and_none_is_beside():
    def begun(path, start, **more):
        return run_of(path, "maxmatch", train={"steps": 4, "init": start, **more})

    assert labels([begun("a", None), begun("b", "p")]) == ["maxmatch, init=no", "maxmatch, init=yes"]
    assert labels([begun("a", "p1"), begun("b", "p2")]) == ["maxmatch"] * 2
    assert labels([begun("a", "p"), begun("b", "a")]) == ["maxmatch, init=yes", "maxmatch, init=a"]
    assert labels([begun("r/a", "p"), begun("r/b", "r/a/model.safetensors")])[1] == "maxmatch, init=a"
    assert labels([begun("/x/r/a", "p"), begun("/x/r/b", "r/a")])[1] == "maxmatch, init=a"  # typed in another folder
    assert labels([begun("/x/r/a", "p"), begun("/x/r/b", "/y/r/a")]) == ["maxmatch"] * 2
    before = [run_of(f"p{seed}", "moco", None, train={"steps": 4, "seed": seed}) for seed in (1, 2)]
    after = [begun("a", "p1", seed=1), begun("b", "p2", seed=2)]
    assert labels([*before, *after]) == ["moco", "moco", "maxmatch", "maxmatch"]


def test_what_can_t_change_the_weights_makes_no_kind():
    often = {"log_every": 1, "evaluate_every": 2, "checkpoint_every": 3}
    rest = {"evaluate": {"batch": 100, "unlabelled": 50}}
    runs = [run_of("a"), run_of("b", train={"steps": 4, "seed": 2, **often}, **rest)]
    assert labels(runs) == ["fixmatch", "fixmatch"]
    assert labels([run_of("a"), run_of("b", evaluate={"robust_views": 9})])[1] == "fixmatch, robust_views=9"


def _repeated(*errors: tuple[str, int, float], **changed) -> tuple[list[RunFolder], str]:
    """Runs of (method, fold, error), and what is concluded of them."""
    runs = [
        run_of(f"{name}-{fold}", name, error, train={"seed": fold, "fold": fold, "steps": 4}, **changed.get(name, {}))
        for name, fold, error in errors
    ]
    told = conclusion(runs, names(runs), [], over_folds(runs, labels(runs)))
    return runs, told.replace("\N{NO-BREAK SPACE}", " ")


def test_means_over_other_folds_are_not_ranked():
    """The first fold is the hard one, and only one of them has it."""
    _, told = _repeated(("fixmatch", 1, 20.0), ("fixmatch", 2, 5.0), ("maxmatch", 2, 6.0))
    assert "means are not compared: fixmatch 12.50 % (2), maxmatch 6.00 % (1)." in told
    assert told.endswith("On the fold that both have maxmatch is 1.00 points higher than fixmatch.")
    hard = [("fixmatch", 1, 20.0), ("fixmatch", 2, 5.0), ("maxmatch", 3, 6.0), ("maxmatch", 4, 7.0)]
    assert _repeated(*hard)[1].endswith("fixmatch 12.50 % (2), maxmatch 6.50 % (2).")
    three = [*hard[:2], ("fixmatch", 3, 6.0), ("maxmatch", 1, 19.0), ("maxmatch", 2, 2.0)]
    assert _repeated(*three)[1].endswith(
        "On the 2 folds that both have maxmatch is 2.00 ± 1.00 points lower than fixmatch."
    )
    more = {"maxmatch": {"data": {"labels": 40}}}  # with other labels the same folds are no pairs, but as many
    _, told = _repeated(*hard[:2], ("maxmatch", 1, 4.0), ("maxmatch", 2, 2.0), **more)
    assert told == "maxmatch has the lowest mean error, 3.00 % over 2 runs, against 12.50 for fixmatch."


def test_nobody_wins_a_tie_of_means():
    counts = [("fixmatch", fold, 100 * 3 / 602) for fold in (1, 2, 3)]
    counts += [("maxmatch", fold, 100 * wrong / 602) for fold, wrong in ((1, 4), (2, 3), (3, 2))]
    _, told = _repeated(*counts, ("fixmatch", 4, 1.0))
    assert told.endswith("On the 3 folds that both have maxmatch is equal to fixmatch.")
    two = [("fixmatch", 1, 4.0), ("fixmatch", 2, 6.0), ("maxmatch", 1, 6.0), ("maxmatch", 2, 4.0)]
    assert _repeated(*two)[1] == "All have the same mean error, 5.00 % over 2 runs each."
    told = _repeated(*two, ("uda", 1, 8.0), ("uda", 2, 8.0))[1]
    assert told == "fixmatch and maxmatch have the lowest mean error, 5.00 % over 2 runs, against 8.00 for uda."


def test_repetitions_judged_by_other_test_images_are_neither_ranked_nor_paired():
    two = [("fixmatch", 1, 5.0), ("fixmatch", 2, 5.0), ("maxmatch", 1, 4.0), ("maxmatch", 2, 4.0)]
    runs, _ = _repeated(*two)
    for run, many in zip(runs, (602, 602, 602, 10), strict=True):
        run.result["test_images"] = many
    found = over_folds(runs, labels(runs))
    assert found["paired"][0]["n"] == 1
    del runs[0].result["test_images"]  # a run of an earlier version has not counted them
    assert over_folds(runs, labels(runs))["paired"][0]["n"] == 2
    assert "judged by different test images" in conclusion(runs, names(runs), [], found)


def test_a_run_that_was_killed_leaves_its_repetition_paired():
    killed = run_of("a", "maxmatch", None, train={"steps": 4, "seed": 1})
    runs = [replace(killed, result={})]
    runs += [run_of("b", "maxmatch", 60.0, train={"steps": 4, "seed": 1})]
    runs += [run_of("c", "fixmatch", 64.0, train={"steps": 4, "seed": 1})]
    found = over_folds(runs, labels(runs))
    assert [(row["n"], row["last"]["mean"]) for row in found["paired"]] == [(1, 4.0)]


def test_kinds_that_differ_in_a_fourth_setting_are_told_apart():
    shared = {"steps": 20, "batch": 8, "ratio": 2}
    runs = [
        run_of("a", "maxmatch", 75.0, train={**shared, "lr": 0.01}),
        run_of("b", "maxmatch", 47.0, train={**shared, "lr": 0.3}),
        run_of("c", "maxmatch", 50.0, train={"steps": 30, "batch": 16, "ratio": 3, "lr": 0.1}),
    ]
    kinds = labels(runs)
    assert len(set(kinds)) == 3
    assert all(f"lr={lr}" in kind for kind, lr in zip(kinds[:2], ("0.01", "0.3"), strict=True))
    assert "lr" not in kinds[2]  # three tell it from the others

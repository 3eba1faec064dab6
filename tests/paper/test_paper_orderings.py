"""Orderings against hand-made numbers: each can be held, not held and not tested."""

from __future__ import annotations

import pytest

from maxmatch.paper import claims
from maxmatch.paper.orderings import (
    Verdict,
    above_throughout,
    all_of,
    below,
    gap_shrinks,
    lowest,
    most_of,
    rises_then_falls,
    tenths,
    tighter,
)
from maxmatch.paper.published import ERRORS
from maxmatch.paper.targets import NINE

ERRS = {(40, "A"): {1: 4.0, 2: 6.0}, (40, "B"): {1: 5.0, 2: 9.0, 3: 0.0}, (40, "C"): {3: 1.0}, (40, "D"): {1: 4.5}}


def test_below_pairs_the_folds_that_both_have():
    found = below(ERRS, 40, "A", "B")  # differences -1 and -3 on folds 1 and 2; B's third fold has no partner
    assert found == Verdict("held", "A - B: -2.00 ± 1.00 (paired, n = 2)")
    assert below(ERRS, 40, "B", "A").answer == "not held"
    assert below(ERRS, 40, "A", "C").answer == "not tested"
    assert below(ERRS, 40, "A", "nobody").answer == "not tested"
    assert below(ERRS, 250, "A", "B").answer == "not tested"


def test_one_pair_of_runs_is_said_and_has_no_error():
    found = below(ERRS, 40, "A", "D")
    assert found == Verdict("held", "A - D: -0.50 (n = 1: one pair of runs)")


def test_equal_errors_are_not_below():
    assert below({(1, "A"): {1: 5.0}, (1, "B"): {1: 5.0}}, 1, "A", "B").answer == "not held"


def test_a_spread_needs_two_folds():
    assert tighter(ERRS, 40, "A", "B") == Verdict("held", "A 1.00, B 2.00 (n = 2)")  # B's third has no partner
    assert tighter(ERRS, 40, "B", "A").answer == "not held"
    assert tighter(ERRS, 40, "A", "D").answer == "not tested"
    hard = {(40, "A"): {1: 5.0, 2: 5.0, 3: 15.0}, (40, "B"): {1: 5.0, 2: 6.0}}
    assert tighter(hard, 40, "A", "A").answer == "not held"  # as wide is not less
    assert tighter(hard, 40, "B", "A").answer == "not held"  # .50 against 0 on the folds of both


def test_the_lowest_is_below_each_other():
    assert lowest(ERRS, 40, "A", ["A", "B", "D"]).answer == "held"
    assert lowest(ERRS, 40, "D", ["A", "B", "D"]).answer == "not held"
    assert lowest(ERRS, 40, "A", ["A", "B", "C"]).answer == "not tested"


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["held", "held"], "held"),
        (["held", "not tested"], "not tested"),
        (["not tested", "not held"], "not held"),
        ([], "not tested"),
    ],
)
def test_all_of(answers, expected):
    assert all_of([Verdict(answer, "w") for answer in answers]).answer == expected


def test_tenths_hold_every_value_once():
    values = [float(n) for n in range(37)]
    parts = tenths(values)
    assert len(parts) == 10
    assert parts == sorted(parts)
    assert parts[0] == pytest.approx(sum(values[:4]) / 4)
    assert tenths([]) == []


def test_curves():
    rising = {"high": [2.0] * 20, "low": [1.0] * 19 + [3.5]}
    assert above_throughout(rising, "high", "low").answer == "not held"  # the last tenth: 2 against 2.25
    assert "in 9 of 10 parts" in above_throughout(rising, "high", "low").why
    assert above_throughout({"high": [2.0] * 20, "low": [1.0] * 20}, "high", "low").answer == "held"
    assert above_throughout({"high": [2.0] * 20}, "high", "low").answer == "not tested"
    assert gap_shrinks({"high": [4.0, 3.0, 2.0, 1.0], "low": [0.0] * 4}, "high", "low").answer == "held"
    assert gap_shrinks({"high": [1.0, 2.0, 3.0, 4.0], "low": [0.0] * 4}, "high", "low").answer == "not held"
    assert gap_shrinks({}, "high", "low").answer == "not tested"
    rises = {
        "high": [0.0, 0.0, *[2.0] * 9, *[1.9] * 9],
        "low": [0.0] * 20,
    }  # the first tenth, two of twenty, is left out
    assert gap_shrinks(rises, "high", "low").answer == "held"
    assert rises_then_falls({"u": [0.0, 2.0, 1.0]}, "u").answer == "held"
    assert rises_then_falls({"u": [3.0, 2.0, 1.0]}, "u").answer == "not held"
    assert rises_then_falls({}, "u").answer == "not tested"


def judged(found: list[claims.Judged]) -> dict[str, str]:
    return {one.claim: one.verdict.answer for one in found}


def test_the_orderings_of_table_3_hold_for_the_numbers_printed_in_it():
    names = ("FixMatch (RA)", "FixMatch (CTA)", "MaxMatch (RA)", "MaxMatch (CTA)")
    labels = (40, 250, 1000)
    means = {(count, name): ERRORS["svhn", count, name].mean for count in labels for name in names}
    found = judged(claims.of_policies(labels, {key: {1: mean} for key, mean in means.items()}))
    assert {answer for claim, answer in found.items() if "below" in claim} == {"held"}
    assert {answer for claim, answer in found.items() if "spreads" in claim} == {"not tested"}  # one value each
    # What the text says of the same numbers.
    assert means[40, "FixMatch (RA)"] - means[40, "MaxMatch (RA)"] == pytest.approx(2.21)
    assert means[40, "FixMatch (CTA)"] - means[40, "MaxMatch (CTA)"] == pytest.approx(5.73)


def test_bars_one_claim_at_a_time():
    good = {
        "Supervised": 50, "Pi-Model": 60, "Pseudo-Label": 61, "Mean Teacher": 62, "MixMatch": 30, "UDA": 20,
        "ReMixMatch": 12, "FixMatch": 11, "MaxMatch": 9,
    }  # fmt: skip
    assert set(good) == {arm.label for arm in NINE}

    def answers(data: str, labels: int, **changed: float) -> dict[str, str]:
        errors = {**good, **{name.replace("_", " "): error for name, error in changed.items()}}
        found = {
            (labels, name): {1: error, 2: error + (2 if name == "FixMatch" else 1)} for name, error in errors.items()
        }
        return judged(claims.of_bars(data, (labels,), found))

    assert set(answers("svhn", 40).values()) == {"held"}
    assert len(answers("svhn", 40)) == 5
    worse = answers("svhn", 40, Mean_Teacher=10.0)
    assert worse["Methods with weak augmentation alone stay behind Supervised at 40 labels"] == "not held"
    assert worse["MaxMatch is below all others at 40 labels"] == "held"
    assert answers("svhn", 40, MaxMatch=11.6)["MaxMatch is below FixMatch at 40 labels"] == "not held"
    assert not any("weak augmentation" in claim for claim in answers("svhn", 1000))  # the paper: few labels
    assert answers("stl10", 1000)["ReMixMatch is below MaxMatch at 1000 labels"] == "not held"
    assert answers("stl10", 1000, ReMixMatch=5.0)["ReMixMatch is below MaxMatch at 1000 labels"] == "held"


def test_k_is_judged_by_its_best():
    errors = {(250, f"K = {k}"): {1: e} for k, e in {1: 9.0, 3: 5.0, 5: 6.0, 7: 7.0}.items()}
    errors |= {(4000, f"K = {k}"): {1: e} for k, e in {1: 4.4, 3: 4.0, 5: 4.1, 7: 4.5}.items()}
    found = judged(claims.of_k((250, 4000), errors))
    assert found["K = 3 is best at 250 labels"] == "held"
    assert found["K = 5 is best at 4000 labels"] == "not held"
    assert found["K = 7 gains less than K = 5 at 4000 labels"] == "held"
    gains = {claim: answer for claim, answer in found.items() if claim.startswith("Most K")}
    assert list(gains.values()) == ["held", "held"]
    worse = {**errors, (4000, "K = 5"): {1: 4.5}}
    assert judged(claims.of_k((4000,), worse))["Most K above 1 are below K = 1 at 4000 labels"] == "not held"
    del errors[250, "K = 7"]
    assert judged(claims.of_k((250,), errors))["K = 3 is best at 250 labels"] == "not tested"


def test_anchoring_and_runtime():
    errors = {(40, "FixMatch"): {1: 9.0}, (40, "FixMatch+Anchoring"): {1: 5.0}, (40, "MaxMatch"): {1: 6.0}}
    found = judged(claims.of_anchoring((40, 1000), errors))
    assert found["Anchoring and MaxMatch are both below FixMatch at 40 labels"] == "held"
    assert found["MaxMatch is below FixMatch+Anchoring at 40 labels"] == "not held"
    assert found["Anchoring and MaxMatch are both below FixMatch at 1000 labels"] == "not tested"
    assert "MaxMatch is below FixMatch+Anchoring at 1000 labels" not in found  # the paper does not say so

    def costs(ratio: float) -> list[str]:
        return list(judged(claims.of_runtime({"FixMatch": 0.1, "MaxMatch": 0.1 * ratio}, ["cpu"])).values())

    assert costs(2.13) == ["held", "held"]
    assert costs(1.11) == ["held", "not held"]
    assert costs(0.9) == ["not held", "not held"]
    assert list(judged(claims.of_runtime({"FixMatch": 0.1}, ["cpu"])).values()) == ["not tested"]
    both = {"FixMatch": 0.1, "MaxMatch": 0.2}
    assert list(judged(claims.of_runtime(both, ["cpu", "GPU"])).values()) == ["not tested"]


def test_losses():
    curves = {
        "MaxMatch-U": [0.1, 3.0, 2.0, 1.2], "FixMatch-U": [0.05, 1.0, 0.9, 0.8], "MaxMatch-U-min": [0.01, 0.5, 0.9, 0.7],
    }  # fmt: skip
    assert list(judged(claims.of_losses(curves)).values()) == ["held", "not held", "held", "held"]
    assert set(judged(claims.of_losses({})).values()) == {"not tested"}


def test_most_is_more_than_half_and_open_as_long_as_it_could_turn():
    held, not_held, untested = (Verdict(answer, "") for answer in ("held", "not held", "not tested"))
    assert most_of([held, held, not_held]).answer == "held"
    assert most_of([held, not_held, not_held]).answer == "not held"
    assert most_of([held, not_held]).answer == "not held"
    assert most_of([held, not_held, untested]).answer == "not tested"
    assert most_of([]).answer == "not tested"

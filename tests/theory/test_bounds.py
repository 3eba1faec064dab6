"""Every formula of theory/bounds.py against a computation by hand, and a test for every slip of the printed text."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxmatch.errors import UsageError
from maxmatch.theory import bounds

NET = {"excess_norm": 0.2, "radius": 3.0, "depth": 4}
SYMBOLS = {
    "consistency_risk": 0.4, "labelled_risk": 2.0, "labelled_samples": 40, "unlabelled_samples": 1000, "views": 3,
    "classes": 10, "epsilon": 0.01, "delta": 0.05, "input_norm": 7.0, "view_norm": 8.0, "parameters": 500,
    "one_output_parameters": 450, **NET,
}  # fmt: skip
C_1 = 1 / (10 * 0.01 * np.log(1 / 0.99))
C_2 = 1 / np.log(2)


def test_a_bound_of_1_says_nothing_and_one_below_it_does():
    assert bounds.Bound("", "", {"one": 0.5, "other": 0.5}).vacuous
    assert not bounds.Bound("", "", {"one": 0.5, "other": 0.4999}).vacuous


def test_constants_by_hand():
    assert bounds.consistency_constant(classes=2, epsilon=0.25) == pytest.approx(1 / (0.5 * 0.2876820724517809))
    assert pytest.approx(1.4426950408889634) == bounds.LABELLED_CONSTANT


@pytest.mark.parametrize("form", ["printed", "corrected"])
def test_proposition_1_by_hand(form):
    found = bounds.proposition_1(form, consistency_risk=0.5, labelled_risk=0.25, classes=10, epsilon=0.01)
    assert found.terms == pytest.approx({"consistency": 0.5 * C_1, "labelled": 0.25 * C_2})
    assert found.total == pytest.approx(0.5 * C_1 + 0.25 * C_2)
    assert (found.form, found.dominant, found.vacuous) == (form, "consistency", True)


def test_sharp_proposition_1_has_log_2_in_both_places_and_no_epsilon():
    found = bounds.proposition_1_sharp(consistency_risk=math.log(2) / 2, labelled_risk=math.log(2) / 4)
    assert found.terms == pytest.approx({"consistency": 0.5, "labelled": 0.25})
    assert not found.vacuous


def test_theorem_1_printed_by_hand():
    found = bounds.theorem_1(
        "printed", consistency_risk=0.4, labelled_risk=2.0, labelled_complexity=0.3, unlabelled_complexity=0.2,
        labelled_samples=40, unlabelled_samples=1000, classes=10, epsilon=0.01, delta=0.05,
    )  # fmt: skip
    assert found.terms == pytest.approx(
        {
            "consistency": C_1 * 0.4,
            "labelled": C_2 * 2.0,
            "labelled complexity": 2 * C_2 * 0.3,
            "unlabelled complexity": 2 * C_1 * 0.2,
            "labelled deviation": 3 * C_2 * np.sqrt(np.log(80) / 80),
            "unlabelled deviation": 3 * C_1 * np.sqrt(np.log(80) / 2000),
        }
    )


@pytest.mark.parametrize("distributions", [True, False])
def test_theorem_1_corrected_multiplies_the_deviations_by_the_ranges_and_nothing_else(distributions):
    shared = {
        "consistency_risk": 0.4, "labelled_risk": 2.0, "labelled_complexity": 0.3, "unlabelled_complexity": 0.2,
        "labelled_samples": 40, "unlabelled_samples": 1000, "classes": 10, "epsilon": 0.01, "delta": 0.05,
    }  # fmt: skip
    printed = bounds.theorem_1("printed", **shared).terms
    corrected = bounds.theorem_1("corrected", **shared, distributions=distributions).terms
    ranges = {
        "labelled deviation": np.log(1 + 9 * np.exp(0.98)) - np.log(1 + 9 * np.exp(-0.98)),
        "unlabelled deviation": np.log(100) * (1 if distributions else 10 * 0.99),
    }
    assert corrected == pytest.approx({name: value * ranges.get(name, 1) for name, value in printed.items()})


@given(st.integers(2, 12), st.floats(0.001, 1), st.integers(0, 2**32 - 1))
def test_losses_stay_within_the_ranges_that_theorem_1_is_corrected_by(classes, share, seed):
    """And reach the labelled one: a smaller range would not do, as the printed 1 does not."""
    epsilon = min(share / classes, 0.49)
    generator = np.random.default_rng(seed)
    scores = generator.uniform(epsilon, 1 - epsilon, (50, classes))
    scores[0], scores[1] = epsilon, 1 - epsilon
    scores[0, 0], scores[1, 0] = 1 - epsilon, epsilon  # the least and the greatest loss of label 0
    losses = np.log(np.exp(scores).sum(1)) - scores[:, 0]
    wide = bounds.labelled_range(classes=classes, epsilon=epsilon)
    assert np.ptp(losses) == pytest.approx(wide, rel=1e-9, abs=1e-12)
    targets = generator.uniform(epsilon, 1 - epsilon, (50, classes))
    scores[2], targets[2] = 1 - epsilon, epsilon  # the least soft cross-entropy
    soft = -(targets * np.log(scores)).sum(1)
    assert soft.max() <= bounds.unlabelled_range(classes=classes, epsilon=epsilon, distributions=False) + 1e-9
    assert soft.min() == pytest.approx(1 / bounds.consistency_constant(classes=classes, epsilon=epsilon), rel=1e-9)
    s, t = ((1 - classes * epsilon) * generator.dirichlet(np.full(classes, 0.1), 50) + epsilon for _ in "st")
    assert (-(t * np.log(s)).sum(1)).min() >= classes * epsilon * np.log(1 / (1 - epsilon)) * (1 - 1e-9)
    assert (-(t * np.log(s)).sum(1)).max() <= bounds.unlabelled_range(classes=classes, epsilon=epsilon) + 1e-9


def test_ranges_are_more_than_the_1_that_is_printed():
    assert bounds.labelled_range(classes=10, epsilon=0.01) > 1.5
    assert bounds.unlabelled_range(classes=10, epsilon=0.01) > 4.6


def test_network_constants_by_hand():
    printed = math.exp(bounds.log_network_constant("printed", input_norm=7.0, **NET))
    corrected = math.exp(bounds.log_network_constant("corrected", input_norm=7.0, **NET))
    assert printed == pytest.approx(3 * 7 * np.exp(3 / 1.2))
    assert corrected == pytest.approx(3 * 3 * 7 * (1 + 0.2 + 3 / 4) ** 4)  # the radius 3 is in it, and no exponential
    assert math.exp(bounds.log_lipschitz(input_norm=7.0, **NET)) == pytest.approx(7 * 1.95**4)


def test_the_exponential_of_line_1298_is_less_than_the_power_it_is_said_to_bound():
    power = math.exp(bounds.log_lipschitz(input_norm=1.0, excess_norm=0.01, radius=1.0, depth=28))
    assert power == pytest.approx(3.50, abs=0.005)
    assert math.exp(1 / 1.01) == pytest.approx(2.69, abs=0.005)
    at_zero = bounds.log_lipschitz(input_norm=1.0, excess_norm=0.0, radius=1.0, depth=28)
    assert at_zero <= 1.0  # nu = 0: there it holds
    # So the printed constant, once it is given the radius it forgot, is below the corrected one.
    arguments = {"input_norm": 5.0, "excess_norm": 0.01, "radius": 1.0, "depth": 28}
    assert bounds.log_network_constant("printed", **arguments) < bounds.log_network_constant("corrected", **arguments)


def test_the_covering_constant_has_the_radius_of_the_ball_that_line_1276_forgets():
    """One parameter in [-beta, beta] and f_theta(x) = B theta: an epsilon-cover has B beta / epsilon points, not 3 B / epsilon."""
    radius, epsilon = 10.0, 0.01
    arguments = {"input_norm": 1.0, "excess_norm": 0.0, "radius": radius, "depth": 1}
    log_b = bounds.log_lipschitz(**arguments)
    points = math.ceil(math.exp(log_b) * radius / epsilon)
    assert bounds.log_network_constant("corrected", **arguments) - math.log(epsilon) >= math.log(points)
    assert math.log(3) + log_b - math.log(epsilon) < math.log(points)


def test_lemma_1_by_hand():
    found = bounds.lemma_1(samples=40, classes=10, parameters=500, log_constant=math.log(21))
    assert found == pytest.approx(4 / 20 + 12 / 20 * np.sqrt(500 * np.log(21 * 20)))


def test_lemma_2_by_hand_and_its_slip():
    arguments = {"samples": 1000, "parameters": 450, "log_constant": math.log(21)}
    root = math.sqrt(1000)
    assert bounds.lemma_2("printed", **arguments) == pytest.approx(
        4 / root + 12 / root * np.sqrt(450 * np.log(21 * 1000))
    )
    assert bounds.lemma_2("corrected", **arguments) == pytest.approx(
        4 / root + 12 / root * np.sqrt(450 * np.log(21 * root))
    )
    # With one output Lemma 1 is Lemma 2: the corrected form agrees, the printed one does not.
    one = bounds.lemma_1(samples=1000, classes=1, parameters=450, log_constant=math.log(21))
    assert bounds.lemma_2("corrected", **arguments) == one
    assert bounds.lemma_2("printed", **arguments) > one


def test_logs_are_clamped_where_one_ball_covers_the_class():
    assert bounds.lemma_1(samples=4, classes=4, parameters=10**6, log_constant=-50.0) == 1.0
    assert bounds.log_network_constant("corrected", input_norm=1.0, excess_norm=0.0, radius=0.0, depth=3) == -math.inf
    assert bounds.lemma_2("corrected", samples=16, parameters=10, log_constant=-math.inf) == 1.0


def test_capital_psi_by_hand():
    found = bounds.capital_psi(complexity=2.5, labelled_samples=40, classes=10, delta=0.05)
    assert found == pytest.approx(
        {
            "complexity": 2 * np.sqrt(10) * np.log(40 * 10 * np.e) ** 1.5 * 2.5,
            "samples": 2 / np.sqrt(40),
            "confidence": np.log(10 * np.e) / 40 * (np.log(40) + np.log(np.log(40))),
        }
    )


@pytest.mark.parametrize("labelled", [1, 2])
def test_log_log_of_few_labels_is_guarded(labelled):
    found = bounds.capital_psi(complexity=1.0, labelled_samples=labelled, classes=10, delta=0.05)
    assert found["confidence"] == pytest.approx(np.log(10 * np.e) / labelled * np.log(40))


def test_complexities_of_a_network_by_hand():
    lemma = bounds.lemma_1(samples=40, classes=10, parameters=500, log_constant=3.0)
    found = bounds.labelled_complexity_of_network(samples=40, classes=10, parameters=500, log_constant=3.0)
    assert found == pytest.approx(2 * 10 * lemma)
    found = bounds.unlabelled_complexity_of_network(
        "printed", samples=1000, views=3, classes=10, epsilon=0.01, one_output_parameters=450, log_constant=3.0
    )
    inside = 1 + 3 * np.sqrt(450 * np.log(np.exp(3.0) * 1000))
    assert found == pytest.approx(3 * 16 * 10 / np.sqrt(1000) * 99 * inside)


@pytest.mark.parametrize(("form", "factor"), [("printed", 16), ("corrected", 32)])
@pytest.mark.parametrize("c_0", [0.5, 3.0])
def test_theorem_2_by_hand(form, factor, c_0):
    if form == "printed":
        c_n, c_m, power, wide = 3 * 7 * np.exp(3 / 1.2), 3 * 8 * np.exp(3 / 1.2), 1.0, 1.0
    else:
        c_n, c_m, power, wide = 9 * 7 * 1.95**4, 9 * 8 * 1.95**4, 0.5, np.log(100)
    inside = 1 + 3 * np.sqrt(450 * np.log(c_m * 1000**power))
    psi = 4 / 20 + 12 / 20 * np.sqrt(500 * np.log(c_n * 20))
    weight = 3 * c_0 * C_2 / 2
    found = bounds.theorem_2(form, **SYMBOLS, universal_constant=c_0)
    assert found.terms == pytest.approx(
        {
            "consistency": C_1 * 0.4,
            "labelled": C_2 * (1 + c_0 / 2) * 2.0,
            "unlabelled complexity": C_1 * factor * 3 * 10 / np.sqrt(1000) * 99 * inside,
            "unlabelled deviation": C_1 * wide * 3 * np.sqrt(np.log(80) / 2000),
            "labelled complexity": weight * 2 * np.sqrt(10) * np.log(400 * np.e) ** 1.5 * psi,
            "labelled samples": weight * 2 / np.sqrt(40),
            "labelled confidence": weight * np.log(10 * np.e) / 40 * (np.log(40) + np.log(np.log(40))),
        }
    )


@pytest.mark.parametrize("form", ["printed", "corrected"])
def test_the_larger_norm_of_images_and_views_is_in_the_unlabelled_complexity(form):
    def complexity(images, views):
        norms = {"input_norm": images, "view_norm": views}
        return bounds.theorem_2(form, **{**SYMBOLS, **norms}, universal_constant=1.0).terms["unlabelled complexity"]

    assert complexity(8.0, 3.0) == complexity(3.0, 8.0) == complexity(8.0, 8.0) > complexity(3.0, 3.0)


def test_every_symbol_of_theorem_2_moves_it():
    """No argument is dead and none is replaced by a constant."""
    for form in ("printed", "corrected"):
        base = bounds.theorem_2(form, **SYMBOLS, universal_constant=1.0).total
        for name in SYMBOLS:
            if name == "depth" and form == "printed":
                continue  # the printed exponential has no L_N in it
            changed = {**SYMBOLS, name: SYMBOLS[name] * (1.5 if isinstance(SYMBOLS[name], float) else 2)}
            assert bounds.theorem_2(form, **changed, universal_constant=1.0).total != base, (form, name)
        assert bounds.theorem_2(form, **SYMBOLS, universal_constant=2.0).total != base


def test_c_0_has_to_be_given():
    with pytest.raises(TypeError, match="universal_constant"):
        bounds.theorem_2("printed", **SYMBOLS)


def test_a_constant_beyond_every_float_overflows_nothing():
    huge = {**SYMBOLS, "radius": 1e6, "excess_norm": 50.0, "depth": 2000, "parameters": 10**8}
    for form in ("printed", "corrected"):
        assert math.isfinite(bounds.theorem_2(form, **huge, universal_constant=1.0).total)
    with pytest.raises(OverflowError):
        (1 + 50.0 + 1e6 / 2000) ** 2000


def test_wrong_epsilon_and_delta_are_told_in_one_line():
    for epsilon in (0.0, -1.0, 0.11, 0.6, 1e-170, math.nan):
        with pytest.raises(UsageError, match="with 10 classes type a number of at least 1e-12 and at most 0.1$"):
            bounds.consistency_constant(classes=10, epsilon=epsilon)
    assert bounds.consistency_constant(classes=10, epsilon=0.1) == pytest.approx(
        1 / np.log(1 / 0.9)
    )  # 0.1 itself will do
    with pytest.raises(UsageError, match="with 2 classes type a number of at least 1e-12 and below 0.5$"):
        bounds.consistency_constant(classes=2, epsilon=0.5)
    for delta in (1.0, 0.0, 1e-320, math.nan):
        with pytest.raises(UsageError, match=f"delta = {delta:g}: "):
            bounds.deviation(samples=10, delta=delta)


@pytest.mark.parametrize("form", ["sharp", "Corrected", ""])
def test_a_form_that_is_not_known_is_refused(form):
    shape = {"classes": 10, "epsilon": 0.01}
    risks = {"consistency_risk": 0.4, "labelled_risk": 2.0}
    calls = (
        lambda: bounds.proposition_1(form, **risks, **shape),
        lambda: bounds.theorem_1(
            form, **risks, **shape, labelled_complexity=0.3, unlabelled_complexity=0.2, labelled_samples=40,
            unlabelled_samples=1000, delta=0.05,
        ),
        lambda: bounds.theorem_2(form, **SYMBOLS, universal_constant=1.0),
        lambda: bounds.log_network_constant(form, input_norm=7.0, **NET),
        lambda: bounds.lemma_2(form, samples=10, parameters=10, log_constant=1.0),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(UsageError, match=rf"form = '{form}': type printed or corrected; .*proposition_1_sharp"):
            call()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labelled_samples", 0), ("unlabelled_samples", 0), ("depth", 0), ("views", 0), ("classes", 0), ("epsilon", 0.0),
        ("radius", -1.0), ("excess_norm", -3.0), ("input_norm", math.nan), ("parameters", -1), ("radius", math.inf),
    ],
)  # fmt: skip
def test_a_number_that_no_bound_is_about_is_one_line(name, value):
    for form in ("printed", "corrected"):
        with pytest.raises(UsageError, match=rf"^{name} = {value:g}: [^\n]+$"):
            bounds.theorem_2(form, **{**SYMBOLS, name: value}, universal_constant=1.0)


def test_the_smaller_formulas_refuse_such_numbers_too():
    for call in (
        lambda: bounds.deviation(samples=0, delta=0.05),
        lambda: bounds.unlabelled_range(classes=10, epsilon=0.0),
        lambda: bounds.labelled_range(classes=10, epsilon=-1.0),
        lambda: bounds.lemma_1(samples=0, classes=10, parameters=5, log_constant=1.0),
        lambda: bounds.lemma_2("printed", samples=0, parameters=5, log_constant=1.0),
        lambda: bounds.log_lipschitz(input_norm=1.0, excess_norm=0.0, radius=1.0, depth=0),
        lambda: bounds.capital_psi(complexity=1.0, labelled_samples=0, classes=10, delta=0.05),
        lambda: bounds.theorem_2("printed", **SYMBOLS, universal_constant=math.inf),
        lambda: bounds.theorem_2("printed", **SYMBOLS, universal_constant=-1.0),
        lambda: bounds.unlabelled_complexity_of_network(
            "printed", samples=9, views=0, classes=10, epsilon=0.01, one_output_parameters=4, log_constant=3.0
        ),
    ):
        with pytest.raises(UsageError):
            call()


def test_at_the_floors_every_bound_is_a_number():
    least = {**SYMBOLS, "epsilon": 1e-12, "delta": 1e-12}
    for form in ("printed", "corrected"):
        assert math.isfinite(bounds.theorem_2(form, **least, universal_constant=1e100).total)

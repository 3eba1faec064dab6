"""The paper's bounds on the robust risk as pure functions: Proposition 1, Theorems 1 and 2, and the lemmas between.

Each is there as `printed` and as `corrected`; docs/theory.md says what differs and why, docs/notation.md which symbol
each argument is. Constants of networks are passed as logarithms: the constant itself overflows for a Wide ResNet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from maxmatch.theory.checks import check_amounts, check_c0, check_counts, check_delta, check_epsilon, check_form

Form = Literal["printed", "corrected"]
LABELLED_CONSTANT = 1 / math.log(2)  # C_2


@dataclass(frozen=True)
class Bound:
    """An upper bound on a risk, term by term. The risk is at most 1, so a bound of 1 or more says nothing.

    >>> Bound("Proposition 1", "sharp", {"consistency": 0.5, "labelled": 0.25}).total
    0.75
    """

    name: str
    form: str
    terms: Mapping[str, float]

    @property
    def total(self) -> float:
        return math.fsum(self.terms.values())

    @property
    def dominant(self) -> str:
        """The largest term."""
        return max(self.terms, key=lambda name: self.terms[name])

    @property
    def vacuous(self) -> bool:
        return self.total >= 1


def consistency_constant(*, classes: int, epsilon: float) -> float:
    """C_1 = 1 / (n_c eps log(1 / (1 - eps))) of Proposition 1.

    >>> round(consistency_constant(classes=10, epsilon=0.01), 3)
    994.992
    """
    check_epsilon(classes, epsilon)
    return 1 / (classes * epsilon * -math.log1p(-epsilon))


def proposition_1(form: Form, *, consistency_risk: float, labelled_risk: float, classes: int, epsilon: float) -> Bound:
    """C_1 E[sup CE(f(x'), f(x))] + C_2 E[CE(f(x), y)], outputs in [eps, 1 - eps].

    The forms differ in the loss behind `labelled_risk`: printed, the cross-entropy of the softmax *of the bounded
    outputs* (`risks.score_cross_entropy`); corrected, -log f_y of those outputs (`risks.log_loss`), so that one f has
    one cross-entropy. The consistency term is >= 1 in both, for every classifier: `proposition_1_sharp` mends that.
    """
    check_form(form)
    constant = consistency_constant(classes=classes, epsilon=epsilon)
    terms = {"consistency": constant * consistency_risk, "labelled": LABELLED_CONSTANT * labelled_risk}
    return Bound("Proposition 1", form, terms)


def proposition_1_sharp(*, consistency_risk: float, labelled_risk: float) -> Bound:
    """Proposition 1 for outputs that are a distribution: C_1 = C_2 = 1 / log 2 and no epsilon.

    Labels of s and t that differ make CE(s, t) at least log 2 (docs/theory.md has the three lines of proof), so the
    plain softmax and the training losses -log f_y and CE(f(x'), f(x)) may stand here.
    """
    terms = {"consistency": consistency_risk / math.log(2), "labelled": labelled_risk / math.log(2)}
    return Bound("Proposition 1", "sharp", terms)


def labelled_range(*, classes: int, epsilon: float) -> float:
    """Largest minus smallest value of the labelled loss log sum exp(s_i - s_y) of outputs in [eps, 1 - eps]."""
    check_epsilon(classes, epsilon)
    spread = 1 - 2 * epsilon
    return math.log1p((classes - 1) * math.exp(spread)) - math.log1p((classes - 1) * math.exp(-spread))


def unlabelled_range(*, classes: int, epsilon: float, distributions: bool = True) -> float:
    """The soft cross-entropy at most: log(1 / eps) where outputs sum to 1, n_c (1 - eps) log(1 / eps) otherwise."""
    check_epsilon(classes, epsilon)
    weight = 1.0 if distributions else classes * (1 - epsilon)
    return weight * -math.log(epsilon)


def deviation(*, samples: int, delta: float) -> float:
    """3 sqrt(log(4 / delta) / (2 n)): how far a mean of losses in [0, 1] strays, with the complexity estimated too."""
    check_delta(delta)
    check_counts(samples=samples)
    return 3 * math.sqrt(math.log(4 / delta) / (2 * samples))


def theorem_1(
    form: Form,
    *,
    consistency_risk: float,
    labelled_risk: float,
    labelled_complexity: float,
    unlabelled_complexity: float,
    labelled_samples: int,
    unlabelled_samples: int,
    classes: int,
    epsilon: float,
    delta: float,
    distributions: bool = True,
) -> Bound:
    """Six terms: two empirical risks, two Rademacher complexities, two deviations.

    Corrected, the deviations are multiplied by the range of their loss; as printed they hold for losses in [0, 1],
    which these are not. Which bound on the complexities is put in is the caller's to say.
    """
    check_form(form)
    check_counts(labelled_samples=labelled_samples, unlabelled_samples=unlabelled_samples)
    c_1, c_2 = consistency_constant(classes=classes, epsilon=epsilon), LABELLED_CONSTANT
    range_l, range_u = 1.0, 1.0
    if form == "corrected":
        range_l = labelled_range(classes=classes, epsilon=epsilon)
        range_u = unlabelled_range(classes=classes, epsilon=epsilon, distributions=distributions)
    terms = {
        "consistency": c_1 * consistency_risk,
        "labelled": c_2 * labelled_risk,
        "labelled complexity": 2 * c_2 * labelled_complexity,
        "unlabelled complexity": 2 * c_1 * unlabelled_complexity,
        "labelled deviation": c_2 * range_l * deviation(samples=labelled_samples, delta=delta),
        "unlabelled deviation": c_1 * range_u * deviation(samples=unlabelled_samples, delta=delta),
    }
    return Bound("Theorem 1", form, terms)


def log_lipschitz(*, input_norm: float, excess_norm: float, radius: float, depth: int) -> float:
    """log of chi (1 + nu + beta / L_N)^{L_N}, by which outputs change at most for each unit of d_N."""
    check_counts(depth=depth)
    check_amounts(input_norm=input_norm, excess_norm=excess_norm, radius=radius)
    return _log(input_norm) + depth * math.log1p(excess_norm + radius / depth)


def log_network_constant(form: Form, *, input_norm: float, excess_norm: float, radius: float, depth: int) -> float:
    """log C_N; with the norm of the views as `input_norm` log C_{N,tau}, with the larger of the two log C_M.

    Printed: log(3 chi) + beta / (1 + nu), which for nu > 0 can be less than the power that it stands for. Corrected:
    log(3 beta chi (1 + nu + beta / L_N)^{L_N}); the beta is the radius of the ball that is covered.
    """
    check_form(form)
    lipschitz = log_lipschitz(input_norm=input_norm, excess_norm=excess_norm, radius=radius, depth=depth)
    if form == "printed":
        return math.log(3) + _log(input_norm) + radius / (1 + excess_norm)
    return math.log(3) + _log(radius) + lipschitz


def lemma_1(*, samples: int, classes: int, parameters: int, log_constant: float) -> float:
    """Rad_{n, n_c}: 4 / sqrt(n n_c) + 12 / sqrt(n n_c) sqrt(W log(C_N sqrt(n n_c))).

    It is printed or corrected as its constant is.
    """
    check_counts(samples=samples, classes=classes)
    check_amounts(parameters=parameters)
    points = samples * classes
    return _chained(points, parameters, log_constant + 0.5 * math.log(points))


def lemma_2(form: Form, *, samples: int, parameters: int, log_constant: float) -> float:
    """Rad of one output: 4 / sqrt n + 12 / sqrt n sqrt(W_g log(C n)); corrected log(C sqrt n), as in Lemma 1."""
    check_form(form)
    check_counts(samples=samples)
    check_amounts(parameters=parameters)
    power = 1.0 if form == "printed" else 0.5
    return _chained(samples, parameters, log_constant + power * math.log(samples))


def psi(*, labelled_samples: int, classes: int, parameters: int, log_constant: float) -> float:
    """psi of Theorem 2: Lemma 1 on the labelled images."""
    return lemma_1(samples=labelled_samples, classes=classes, parameters=parameters, log_constant=log_constant)


def capital_psi(*, complexity: float, labelled_samples: int, classes: int, delta: float) -> dict[str, float]:
    """Psi of Theorem 2 as its three parts; `complexity` is psi.

    log(log n_l) is taken as 0 below n_l = e: it has no value at 1.
    """
    check_delta(delta)
    check_counts(labelled_samples=labelled_samples, classes=classes)
    growth = (1 + math.log(labelled_samples * classes)) ** 1.5  # log^{3/2}(n_l n_c e)
    twice_log = math.log(max(1.0, math.log(labelled_samples)))
    return {
        "complexity": 2 * math.sqrt(classes) * growth * complexity,
        "samples": 2 / math.sqrt(labelled_samples),
        "confidence": (1 + math.log(classes)) / labelled_samples * (math.log(2 / delta) + twice_log),
    }


def labelled_complexity_of_network(*, samples: int, classes: int, parameters: int, log_constant: float) -> float:
    """Rad_L <= 2 n_c Rad_{n, n_c}, by the paper's contraction lemma: sqrt 2 times the loss's Lipschitz constant sqrt 2.

    The n_c is that of Rad_{n, n_c}, which divides by n n_c. This bound is ours: the paper has Psi in its place.
    """
    return 2 * classes * lemma_1(samples=samples, classes=classes, parameters=parameters, log_constant=log_constant)


def unlabelled_complexity_of_network(
    form: Form,
    *,
    samples: int,
    views: int,
    classes: int,
    epsilon: float,
    one_output_parameters: int,
    log_constant: float,
) -> float:
    """Rad_U <= K (16 n_c / sqrt n_u) ((1 - eps) / eps) (1 + 3 sqrt(W_g log(C_M n_u))), by the proof of Theorem 2.

    That is 2 n_c (1 - eps) / eps for contraction, twice Lemma 2 (the image and its view), and K for the largest of K.
    """
    check_epsilon(classes, epsilon)
    check_counts(views=views)
    single = lemma_2(form, samples=samples, parameters=one_output_parameters, log_constant=log_constant)
    return views * 2 * classes * (1 - epsilon) / epsilon * 2 * single


def theorem_2(
    form: Form,
    *,
    consistency_risk: float,
    labelled_risk: float,
    labelled_samples: int,
    unlabelled_samples: int,
    views: int,
    classes: int,
    epsilon: float,
    delta: float,
    input_norm: float,
    view_norm: float,
    excess_norm: float,
    radius: float,
    depth: int,
    parameters: int,
    one_output_parameters: int,
    universal_constant: float,
    distributions: bool = True,
) -> Bound:
    """The bound for convolutional networks. `universal_constant` is C_0, which the paper does not say.

    Corrected: 2 Rad is 32 K n_c where 16 K n_c is printed, the constants of the lemmas, and the range of the loss.
    """
    check_form(form)
    check_c0(universal_constant)
    check_counts(labelled_samples=labelled_samples, unlabelled_samples=unlabelled_samples)
    c_1, c_2 = consistency_constant(classes=classes, epsilon=epsilon), LABELLED_CONSTANT

    def log_constant(norm: float) -> float:
        return log_network_constant(form, input_norm=norm, excess_norm=excess_norm, radius=radius, depth=depth)

    rad_u = unlabelled_complexity_of_network(
        form, samples=unlabelled_samples, views=views, classes=classes, epsilon=epsilon,
        one_output_parameters=one_output_parameters, log_constant=log_constant(max(input_norm, view_norm)),
    )  # fmt: skip
    corrected = form == "corrected"
    range_u = unlabelled_range(classes=classes, epsilon=epsilon, distributions=distributions) if corrected else 1.0
    complexity = psi(
        labelled_samples=labelled_samples, classes=classes, parameters=parameters, log_constant=log_constant(input_norm)
    )
    parts = capital_psi(complexity=complexity, labelled_samples=labelled_samples, classes=classes, delta=delta)
    weight = 1.5 * universal_constant * c_2
    terms = {
        "consistency": c_1 * consistency_risk,
        "labelled": c_2 * (1 + universal_constant / 2) * labelled_risk,
        "unlabelled complexity": c_1 * (2 if corrected else 1) * rad_u,
        "unlabelled deviation": c_1 * range_u * deviation(samples=unlabelled_samples, delta=delta),
        **{f"labelled {name}": weight * value for name, value in parts.items()},
    }
    return Bound("Theorem 2", form, terms)


def _chained(points: int, parameters: int, log_inside: float) -> float:
    """(4 + 12 sqrt(W log(...))) / sqrt N. A logarithm below 0 counts as 0: one ball covers the class."""
    return (4 + 12 * math.sqrt(parameters * max(0.0, log_inside))) / math.sqrt(points)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf

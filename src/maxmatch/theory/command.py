"""`maxmatch bound RUN`: the paper's bounds for a finished run, from its weights and its own images."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from maxmatch.data.datasets import Images
from maxmatch.errors import UsageError, UserError
from maxmatch.files import refuse_to_replace, write_safely
from maxmatch.methods.base import Consistency
from maxmatch.progress import Bar
from maxmatch.theory import bounds
from maxmatch.theory.bounds import Bound, Form
from maxmatch.theory.checks import check_c0, check_delta, check_epsilon
from maxmatch.theory.measure import Measured, measure, passes
from maxmatch.theory.norms import Capacity, capacity_of_run, count_layers
from maxmatch.theory.rademacher import dudley_of_network
from maxmatch.train.finished import open_run

FORMS: tuple[Form, Form] = ("printed", "corrected")


class Row(NamedTuple):
    """Theorem 2 as it is: terms without C0, and what each gains for a unit of it."""

    free: dict[str, float]
    per_c0: dict[str, float]

    @property
    def total(self) -> tuple[float, float]:
        return math.fsum(self.free.values()), math.fsum(self.per_c0.values())

    def dominant(self, c0: float) -> str:
        return max(self.free, key=lambda name: self.free[name] + c0 * self.per_c0[name])


class Move(NamedTuple):
    """The corrected theorems with n_l, n_u or K changed; `views` where that many were measured."""

    name: str
    theorem_1: tuple[float, float]  # its labelled and its unlabelled terms
    theorem_2: tuple[float, float]  # without C0, and for each unit of it
    views: int | None


@dataclass(frozen=True)
class Found:
    """All that is printed, and with `--json` kept."""

    folder: str
    net: str
    dataset: str
    policy: str
    delta: float
    c0: float | None
    measured: Measured
    capacity: Capacity
    log_constant: dict[str, float]
    psi: dict[str, float]
    dudley: float
    theorem_1: tuple[Bound, Bound]
    theorem_2: dict[str, Row]
    moves: tuple[Move, ...]
    needed: float  # unlabelled images at which their complexity term falls below 1


def run_bound(
    folder: Path, device: str, k: int | None, epsilon: float | None, delta: float, c0: float | None, most: int,
    out: Path | None, force: bool = False,
) -> None:  # fmt: skip
    """Measure, print the page to standard output, and keep the numbers in `out`; over a file only with `force`."""
    from maxmatch.theory.table import page

    if out is not None and out.is_dir():  # said now, not after a minute of work
        raise UsageError(f"--json {out} is a folder: give the file a name, for example {out / 'bound.json'}")
    if out is not None and not out.parent.is_dir():
        raise UsageError(f"--json {out}: there is no folder {out.parent}; make it, or give another file")
    if out is not None:
        refuse_to_replace(out, force, "--json")
    found = find_bounds(folder, device, k, epsilon, delta, c0, most)
    if out is not None:
        write_safely(out, (json.dumps(as_plain(found), indent=2) + "\n").encode())
    print(page(found))


def find_bounds(
    folder: Path,
    device: str = "cpu",
    k: int | None = None,
    epsilon: float | None = None,
    delta: float = 0.05,
    c0: float | None = None,
    most: int = 2000,
    data: Images | None = None,
) -> Found:
    """Every bound of a run, in both forms; `data` stands in for a data set by name."""
    check_delta(delta)
    if c0 is not None:
        check_c0(c0)
    finished = open_run(folder, device, data, call="maxmatch.theory.command.find_bounds(folder, data=...)")
    if not len(finished.split.labelled) or not len(finished.split.unlabelled):
        raise UserError(f"{folder}: the bounds are about labelled and unlabelled images, and it has none of one kind")
    classes, method = len(finished.classifier.classes), finished.recipe.method
    views = k or (method.needs.most if isinstance(method, Consistency) else finished.recipe.evaluate.robust_views)
    epsilon = 1 / (10 * classes) if epsilon is None else epsilon
    check_epsilon(classes, epsilon)
    with Bar("norms of layers", count_layers(folder)) as bar:
        capacity = capacity_of_run(folder, bar.advance)
    with Bar("images and views", passes(finished, views, most)) as bar:
        measured = measure(finished, views, epsilon, most, bar.advance)
    symbols = _symbols(measured, capacity, delta)
    norm = max(measured.input_norm, measured.view_norm)
    logs: dict[str, float] = {form: _log_constant(form, capacity, norm) for form in FORMS}
    inner = {form: _log_constant(form, capacity, measured.input_norm) for form in FORMS}
    points = {"labelled_samples": measured.labelled, "classes": classes, "parameters": capacity.parameters}
    return Found(
        folder=str(folder),
        net=finished.recipe.net.name,
        dataset=finished.recipe.data.name,
        policy=finished.recipe.augment.policy,
        delta=delta,
        c0=c0,
        measured=measured,
        capacity=capacity,
        log_constant=logs,
        psi={form: bounds.psi(**points, log_constant=inner[form]) for form in FORMS},
        dudley=dudley_of_network(
            points=measured.labelled * classes, parameters=capacity.parameters, log_constant=inner["corrected"]
        ),
        theorem_1=(theorem_1("printed", symbols), theorem_1("corrected", symbols)),
        theorem_2={form: theorem_2(form, symbols) for form in FORMS},
        moves=tuple(_moves(symbols, measured)),
        needed=unlabelled_needed(symbols),
    )


def theorem_1(form: Form, symbols: dict[str, Any]) -> Bound:
    """Theorem 1 of a network: Rad_L by contraction from Lemma 1, Rad_U as in the proof of Theorem 2."""
    s = symbols
    shape = {name: s[name] for name in ("excess_norm", "radius", "depth")}
    inner = bounds.log_network_constant(form, input_norm=s["input_norm"], **shape)
    outer = bounds.log_network_constant(form, input_norm=max(s["input_norm"], s["view_norm"]), **shape)
    rad_l = bounds.labelled_complexity_of_network(
        samples=s["labelled_samples"], classes=s["classes"], parameters=s["parameters"], log_constant=inner
    )
    rad_u = bounds.unlabelled_complexity_of_network(
        form, samples=s["unlabelled_samples"], views=s["views"], classes=s["classes"], epsilon=s["epsilon"],
        one_output_parameters=s["one_output_parameters"], log_constant=outer,
    )  # fmt: skip
    counts = ("labelled_samples", "unlabelled_samples", "classes")
    shared = {name: s[name] for name in ("consistency_risk", "labelled_risk", *counts, "epsilon", "delta")}
    return bounds.theorem_1(form, labelled_complexity=rad_l, unlabelled_complexity=rad_u, **shared)


def theorem_2(form: Form, symbols: dict[str, Any]) -> Row:
    """Theorem 2 without its C0, and what a unit of C0 adds: it is linear in it."""
    free = bounds.theorem_2(form, **symbols, universal_constant=0.0).terms
    unit = bounds.theorem_2(form, **symbols, universal_constant=1.0).terms
    return Row(dict(free), {name: unit[name] - free[name] for name in free})


def unlabelled_needed(symbols: dict[str, Any]) -> float:
    """The n_u at which the corrected unlabelled complexity term of Theorem 2 is 1, by bisection on its logarithm."""

    def term(log_samples: float) -> float:
        row = theorem_2("corrected", {**symbols, "unlabelled_samples": math.exp(log_samples)})
        return row.free["unlabelled complexity"]

    low, high = 0.0, 1.0
    while term(high) > 1:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if term(middle) > 1 else (low, middle)
    return math.exp(high)


def as_plain(found: Found) -> dict[str, Any]:
    """The numbers as JSON holds them, with the totals and the class's measures that are properties in Python."""
    capacity, test = found.capacity, found.measured.test
    plain = asdict(found)
    plain["theorem_1"] = {bound.form: _plain(bound) for bound in found.theorem_1}
    plain["theorem_2"] = {form: row._asdict() for form, row in found.theorem_2.items()}
    names = ("depth", "excess_norm", "radius", "parameters", "one_output_parameters")
    plain["capacity"] |= {name: getattr(capacity, name) for name in names}
    plain["capacity"]["layers"] = [layer._asdict() for layer in capacity.layers]
    plain["moves"] = [move._asdict() for move in found.moves]
    if test is not None:
        forms = {
            "sharp": [_plain(b) for b in test.sharp],
            "sharp_hard": [_plain(b) for b in test.sharp_hard],
            "corrected": _plain(test.corrected),
            "printed": _plain(test.printed),
        }
        plain["measured"]["test"] |= forms
    return plain


def _plain(bound: Bound) -> dict[str, Any]:
    return {"terms": dict(bound.terms), "total": bound.total, "dominant": bound.dominant, "vacuous": bound.vacuous}


def _symbols(measured: Measured, capacity: Capacity, delta: float) -> dict[str, Any]:
    """The arguments of `bounds.theorem_2`, but for C_0."""
    return {
        "consistency_risk": measured.consistency_risk[-1],
        "labelled_risk": measured.labelled_risk,
        "labelled_samples": measured.labelled,
        "unlabelled_samples": measured.unlabelled,
        "views": measured.views,
        "classes": measured.classes,
        "epsilon": measured.epsilon,
        "delta": delta,
        "input_norm": measured.input_norm,
        "view_norm": measured.view_norm,
        "excess_norm": capacity.excess_norm,
        "radius": capacity.radius,
        "depth": capacity.depth,
        "parameters": capacity.parameters,
        "one_output_parameters": capacity.one_output_parameters,
    }


def _log_constant(form: Form, capacity: Capacity, norm: float) -> float:
    return bounds.log_network_constant(
        form, input_norm=norm, excess_norm=capacity.excess_norm, radius=capacity.radius, depth=capacity.depth
    )


def _moves(symbols: dict[str, Any], measured: Measured) -> list[Move]:
    """Ten and a hundred times the images of either kind, and other numbers of views."""

    def move(name: str, measured_views: int | None = None, **changed: Any) -> Move:
        values = {**symbols, **changed}
        terms = theorem_1("corrected", values).terms
        unlabelled = math.fsum(terms[part] for part in terms if part.startswith(("consistency", "unlabelled")))
        labelled = math.fsum(terms[part] for part in terms if part.startswith("labelled"))
        return Move(name, (labelled, unlabelled), theorem_2("corrected", values).total, measured_views)

    made = [move(f"as it is, K = {measured.views}", measured.views)]
    for name, short in (("labelled_samples", "n_l"), ("unlabelled_samples", "n_u")):
        made += [move(f"{short} x {times}", **{name: symbols[name] * times}) for times in (10, 100)]
    for views in sorted({1, 3, 5, 7} - {measured.views}):
        known = views <= measured.views
        risk = measured.consistency_risk[views - 1] if known else symbols["consistency_risk"]
        made.append(move(f"K = {views}", views if known else None, views=views, consistency_risk=risk))
    return made

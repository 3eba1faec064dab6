"""The page that `maxmatch bound` prints: every term, which dominates, and how the bounds move."""

from __future__ import annotations

import math

from maxmatch.theory.command import Found

DEVIATION = "sqrt(log(4/delta) / (2 {n})), corrected times the range of the loss"
FORMULAS = {
    "Theorem 1": {
        "consistency": "C1 R_U",
        "labelled": "C2 R_L",
        "labelled complexity": "2 C2 Rad_L, Rad_L <= 2 n_c times Lemma 1",
        "unlabelled complexity": "2 C1 Rad_U, Rad_U <= K 4 n_c (1-eps)/eps times Lemma 2",
        "labelled deviation": "3 C2 " + DEVIATION.format(n="n_l"),
        "unlabelled deviation": "3 C1 " + DEVIATION.format(n="n_u"),
    },
    "Theorem 2": {
        "consistency": "C1 R_U",
        "labelled": "C2 (1 + C0/2) R_L",
        "unlabelled complexity": "C1 16 K n_c (1-eps)/eps (1 + 3 sqrt(W_g log(C_M n_u))) / sqrt(n_u)",
        "unlabelled deviation": "3 C1 " + DEVIATION.format(n="n_u"),
        "labelled complexity": "3/2 C0 C2 2 sqrt(n_c) log(n_l n_c e)^1.5 psi",
        "labelled samples": "3/2 C0 C2 2 / sqrt(n_l)",
        "labelled confidence": "3/2 C0 C2 log(n_c e) (log(2/delta) + log log n_l) / n_l",
    },
}


def page(found: Found) -> str:
    """All of it as text, for a terminal of some 120 columns."""
    parts = [_head(found), _proposition(found), _network(found), _theorem_1(found), _theorem_2(found), _moves(found)]
    return "\n\n".join("\n".join(part) for part in parts)


def _head(found: Found) -> list[str]:
    m = found.measured
    lines = [
        f"{found.folder}: {found.net} on {found.dataset}, n_l = {m.labelled:,} labelled and n_u = {m.unlabelled:,} "
        f"images to learn from without labels, n_c = {m.classes} classes",
        f"K = {m.views} strong views ({found.policy}), outputs kept in [eps, 1 - eps] with eps = {m.epsilon:g}, "
        f"delta = {found.delta:g}",
    ]
    if m.looked_at < m.unlabelled:
        lines.append(f"R_U, chi and chi_tau are those of {m.looked_at:,} unlabelled images; --images 0 looks at all:")
        lines.append("until then Theorems 1 and 2 below are estimates, since a largest norm of a part may be too small")
    return lines


def _proposition(found: Found) -> list[str]:
    test = found.measured.test
    why = [
        "  Printed and corrected are always vacuous, and with them Theorems 1 and 2, which begin with the same term:",
        "  CE(s, t) >= n_c eps log(1/(1-eps)) = 1/C1 even where s = t, so C1 times it is >= 1 whatever the net does.",
    ]
    if test is None:
        return ["PROPOSITION 1: not measured, the data has no test set", *why]
    views = f"{found.measured.views} views" if found.measured.views > 1 else "1 view"
    part = "" if test.images == test.of else f" (of {test.of:,}; --images 0: all)"
    lines = [
        f"PROPOSITION 1 on {test.images:,} test images{part}: robust risk <= C1 consistency + C2 labelled loss",
        f"  robust risk {test.robust_risk[-1]:.4f}: any of {views} of an image is wrong; error {test.error:.4f}",
        f"  {'form':<14}{'consistency':>12}{'labelled':>12}{'bound':>12}",
    ]
    for bound in (test.sharp_hard[-1], test.sharp[-1], test.corrected, test.printed):
        terms = "".join(f"{number(value):>12}" for value in (*bound.terms.values(), bound.total))
        verdict = "vacuous" if bound.vacuous else "below 1"
        lines.append(f"  {bound.form:<14}{terms}   {verdict}; the {bound.dominant} term dominates")
    gap = math.sqrt(math.log(1 / found.delta) / (2 * test.images))
    return [
        *lines,
        *why,
        "  Sharp: C1 = C2 = 1/log 2, no eps, plain softmax; hard: the target is the net's label, as it is trained.",
        "  Both hold exactly on these images. They are below 1 for a net that is sure, right and consistent.",
        f"  The test set itself says most: robust risk <= {test.robust_risk[-1]:.4f} + {gap:.4f} with probability "
        f"{1 - found.delta:g} (Hoeffding).",
    ]


def _network(found: Found) -> list[str]:
    c, m = found.capacity, found.measured
    lines = [
        "THE NETWORK as Theorem 2 takes it",
        f"  L_N = {c.depth} layers, W = {c.parameters:,} parameters, W_g = {c.one_output_parameters:,} with one output",
        f"  nu = {c.excess_norm:.3f}: initial layers have operator norms of at most 1 + nu",
        f"  beta = {c.radius:.2f} = d_N(theta, theta_0): the operator norms of trained minus initial layers, summed",
        f"  chi = {m.input_norm:.2f}, chi_tau = {m.view_norm:.2f}: the largest norm of an image, and of a view",
        f"  log C_M: printed {found.log_constant['printed']:.1f}, corrected {found.log_constant['corrected']:.1f}",
        f"  psi (Lemma 1): printed {number(found.psi['printed'])}, corrected {number(found.psi['corrected'])}, "
        f"by Dudley's integral {number(found.dudley)}; outputs in [0, 1] can't have more than 0.5",
    ]
    wide = max(20, *(len(layer.name) for layer in c.layers))
    lines.append(f"  {'the largest of beta':<{wide}}  {'initial':>9}{'trained':>9}{'distance':>9}")
    for layer in sorted(c.layers, key=lambda layer: -layer.distance)[:5]:
        lines.append(f"  {layer.name:<{wide}}  {layer.initial:>9.3f}{layer.trained:>9.3f}{layer.distance:>9.3f}")
    lines += [f"  covered: {what}" for what in c.covered]
    if c.outside:
        lines += [f"  OUTSIDE THE THEOREM: {what}" for what in c.outside]
        lines.append(
            "  So Theorem 2 guarantees nothing for this net; --set net.name=plain-conv trains one that it covers."
        )
    else:
        lines.append("  nothing between its layers is outside the theorem")
    return [
        *lines,
        "  Assumed all the same: nu and beta were fixed before training (here they are read off the run), softmax is a",
        "  last 1-Lipschitz activation, and each output is a network of its own (Lemma 2), though softmax ties them.",
    ]


def _theorem_1(found: Found) -> list[str]:
    printed, corrected = found.theorem_1
    lines = ["THEOREM 1", f"  {'term':<22}{'printed':>10}{'corrected':>11}{'share':>8}   formula"]
    for name, value in printed.terms.items():
        right = corrected.terms[name]
        cells = f"{number(value):>10}{number(right):>11}{right / corrected.total:>8.1%}"
        lines.append(f"  {name:<22}{cells}   {FORMULAS['Theorem 1'][name]}")
    lines.append(f"  {'bound':<22}{number(printed.total):>10}{number(corrected.total):>11}{1:>8.1%}")
    return [*lines, f"  The {corrected.dominant} term dominates."]


def _theorem_2(found: Found) -> list[str]:
    known = "--c0 NUMBER puts one in" if found.c0 is None else f"here C0 = {found.c0:g}"
    lines = [
        f"THEOREM 2, whose universal constant C0 the paper does not say; {known}",
        f"  {'term':<22}{'printed':>20}{'corrected':>20}   formula",
    ]
    rows = [found.theorem_2[form] for form in ("printed", "corrected")]
    for name, formula in FORMULAS["Theorem 2"].items():
        cells = "".join(f"{_affine(row.free[name], row.per_c0[name], found.c0):>20}" for row in rows)
        lines.append(f"  {name:<22}{cells}   {formula}")
    totals = "".join(f"{_affine(*row.total, found.c0):>20}" for row in rows)
    lines += [
        f"  {'bound':<22}{totals}",
        "  Corrected: 32 K n_c for 16 K n_c, log(C_M sqrt n_u) for log(C_M n_u), and in C_M and C_N the radius beta",
        "  and the power (1 + nu + beta/L_N)^L_N for e^(beta/(1+nu)).",
    ]
    right = rows[1]
    if found.c0 is not None:
        return [*lines, f"  The {right.dominant(found.c0)} term dominates."]
    free, own = right.dominant(0.0), max(right.per_c0, key=lambda name: right.per_c0[name])
    turn = number(right.free[free] / right.per_c0[own])
    return [*lines, f"  The {free} term dominates while C0 is below {turn}, and the {own} term beyond that."]


def _moves(found: Found) -> list[str]:
    test = found.measured.test
    lines = [
        "HOW THEY MOVE, corrected; the risks are kept as they are, but for fewer views, which were measured",
        f"  {'':<18}{'Theorem 1: labelled':>20}{'unlabelled':>11}{'Theorem 2':>21}   on the test set: "
        f"{'robust risk':>11}{'sharp':>8}{'sharp, hard':>13}",
    ]
    for move in found.moves:
        labelled, unlabelled = map(number, move.theorem_1)
        cells = f"{labelled:>20}{unlabelled:>11}{_affine(*move.theorem_2, found.c0):>21}"
        if test is not None and move.views is not None:
            at = move.views - 1
            measured = (test.robust_risk[at], test.sharp[at].total, test.sharp_hard[at].total)
            cells += "".join(f"{value:>{wide}.4f}" for value, wide in zip(measured, (31, 8, 13), strict=True))
        lines.append(f"  {move.name:<18}{cells}")
    return [
        *lines,
        f"  The unlabelled complexity term of Theorem 2 would fall below 1 at n_u = {number(found.needed)} images.",
    ]


def number(value: float) -> str:
    """Four figures where that can be read, powers of ten beyond.

    >>> number(0.87654), number(994.99), number(1.5e9), number(0)
    ('0.8765', '995', '1.50e9', '0')
    """
    if not math.isfinite(value) or value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    mantissa, power = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(power)}"


def _affine(free: float, per_c0: float, c0: float | None) -> str:
    """`free + per_c0 C0`, or its value where C0 is known."""
    if c0 is not None:
        return number(free + c0 * per_c0)
    written = [number(free)] if free or not per_c0 else []
    return " + ".join([*written, f"{number(per_c0)} C0"] if per_c0 else written)

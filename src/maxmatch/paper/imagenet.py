"""What the ImageNet tables and figures show: top-1 and top-5 errors, curves while training, the stated orderings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from maxmatch.benchmark.figures import Row
from maxmatch.paper.claims import Judged
from maxmatch.paper.found import Found, summary
from maxmatch.paper.orderings import Curves, Verdict, above_throughout, all_of, below
from maxmatch.paper.targets import FINETUNED, LEARNING_RATE, PRETRAINED, SCRATCH
from maxmatch.train.log import read_metrics

Table = tuple[list[str], list[list[str]]]
# The lines of a curve target: what stands behind a method's name, and the figure of metrics.jsonl.
UNLABELLED = "fig-imagenet-unlabelled"
LINES: dict[str, dict[str, str]] = {
    UNLABELLED: {", top-1": "guess_error", ", top-5": "guess_top5_error"},
    "fig-imagenet-curves": {"": "error"},
}
UNLABELLED_NOTE = (
    "Errors in percent of the predictions that pseudo-labels are made of, as the authors' code counts them: by the net "
    "as it is in a step, on the weak views of its unlabelled images, confident or not; means over the steps since the "
    "evaluation before."
)
NOTE = "Errors in percent, of the last evaluation; the average of the weights is judged, its top-5 error at the end."


def table_of(found: Found) -> Table:
    """One row a method: our top-1 and top-5 errors, and the published ones where the data set is the paper's."""
    rows = summary(found)
    beside = any(row["same_data"] for row in rows)
    heads = ["method", "top-1 %", "top-5 %", "n", "steps", "strategy"]
    heads += ["published top-1 %", "published top-5 %", "its steps", "source"] if beside else []
    cells = []
    for row in rows:
        spread = "" if row["std"] is None else f" ± {row['std']:.2f}"
        ours = "-" if row["error"] is None else f"{row['error']:.2f}{spread}"
        cells.append([row["method"], ours, _percent(row["top5_error"]), str(row["n"]), f"{row['steps']:,}",
                      row["strategy"] or "-"])  # fmt: skip
        if beside:
            top5 = _percent(row["published_top5"])
            cells[-1] += [f"{row['published']:.2f}", top5, f"{row['published_steps']:,}", row["published_source"]]
    return heads, cells


def curves_of(found: Found) -> tuple[list[int], Curves]:
    """Steps and errors by name, each the mean over the folds, at the evaluations that all runs have.

    The errors on unlabelled images are counted while training: means over the logs since the evaluation before.
    """
    lines = LINES[found.wanted.target.name]
    read = _counted if found.wanted.target.name == UNLABELLED else _judged
    logs = [(row["method"], read(found, row)) for row in found.finished]
    steps = sorted(set.intersection(*(set(log) for _, log in logs))) if logs else []
    curves: dict[str, list[float]] = {}
    for arm in found.wanted.target.arms:
        of_arm = [log for label, log in logs if label == arm.label]
        for behind, figure in lines.items():
            if of_arm and all(log[step].get(figure) is not None for log in of_arm for step in steps):
                curves[f"{arm.label}{behind}"] = [mean(log[step][figure] for log in of_arm) for step in steps]
    return steps, curves


def curve_rows(found: Found) -> list[Row]:
    steps, curves = curves_of(found)
    return [{"step": step, **{name: curve[at] for name, curve in curves.items()}} for at, step in enumerate(steps)]


def curve_table(found: Found) -> Table:
    """The curves at a quarter, half and all of the training."""
    steps, curves = curves_of(found)
    picked = sorted({len(steps) // 4, len(steps) // 2, len(steps) - 1}) if steps else []
    heads = [f"{name} %" for name in curves]
    cells = [[f"{steps[at]:,}", *(f"{curve[at]:.2f}" for curve in curves.values())] for at in picked]
    return ["step", *heads], cells


def judge(found: Found) -> list[Judged]:
    """Every ordering that the paper states for one of these targets."""
    name = found.wanted.target.name
    if name == "table-imagenet":
        return _of_table(found)
    if name == "table-imagenet-lr":
        return _of_rates(found)
    curves = curves_of(found)[1]
    return _of_unlabelled(curves) if name == UNLABELLED else _of_curves(curves)


def _of_table(found: Found) -> list[Judged]:
    judged = []
    labels, last = found.wanted.panels[0].labels, found.errors
    pairs = {"": "from scratch", ", MoCo v2": "from MoCo v2", "+EMAN, MoCo v2": "with EMAN from MoCo v2"}
    for behind, words in pairs.items():
        for figure, errors in (("top-1", last), ("top-5", found.figures("top5_error"))):
            verdict = below(errors, labels, f"MaxMatch{behind}", f"FixMatch{behind}")
            judged.append(Judged(f"MaxMatch is below FixMatch {words}, {figure}", verdict))
    others = [arm.label for arm in (*SCRATCH, *PRETRAINED) if arm is not FINETUNED]
    ahead = all_of([below(last, labels, other, FINETUNED.label) for other in others])
    return [*judged, Judged("All semi-supervised methods are below Finetune", ahead)]


def _of_rates(found: Found) -> list[Judged]:
    judged = []
    labels, last = found.wanted.panels[0].labels, found.errors
    for lr in LEARNING_RATE:
        for figure, errors in (("top-1", last), ("top-5", found.figures("top5_error"))):
            verdict = below(errors, labels, f"MaxMatch, lr {lr:g}", f"FixMatch, lr {lr:g}")
            judged.append(Judged(f"MaxMatch is below FixMatch with lr {lr:g}, {figure}", verdict))
    names = {method: [f"{method}, lr {lr:g}" for lr in LEARNING_RATE] for method in ("FixMatch", "MaxMatch")}
    falls = all_of([below(last, labels, b, a) for a, b in zip(names["FixMatch"], names["FixMatch"][1:], strict=False)])
    judged.append(Judged("FixMatch is better with each larger learning rate", falls))
    best = all_of([below(last, labels, names["MaxMatch"][1], names["MaxMatch"][at]) for at in (0, 2)])
    return [*judged, Judged("MaxMatch is best with lr 0.02", best)]


def _of_unlabelled(curves: Curves) -> list[Judged]:
    judged = [
        Judged(
            f"The {top} error of MaxMatch is below that of FixMatch throughout",
            above_throughout(curves, f"FixMatch, {top}", f"MaxMatch, {top}"),
        )
        for top in ("top-1", "top-5")
    ]
    gaps = [_mean_gap(curves, f"FixMatch, {top}", f"MaxMatch, {top}") for top in ("top-1", "top-5")]
    verdict = Verdict("not tested", "a curve is missing")
    if gaps[0] is not None and gaps[1] is not None:
        told = f"mean gap {gaps[0]:+.2f} in top-1, {gaps[1]:+.2f} in top-5"
        verdict = Verdict("held" if gaps[0] > gaps[1] else "not held", told)
    return [*judged, Judged("The gap is larger in top-1 than in top-5", verdict)]


def _of_curves(curves: Curves) -> list[Judged]:
    """In most cases: at more than half of the evaluations."""
    judged = []
    for lr in LEARNING_RATE:
        pair = curves.get(f"FixMatch, lr {lr:g}", ()), curves.get(f"MaxMatch, lr {lr:g}", ())
        verdict = Verdict("not tested", "a curve is missing")
        if pair[0] and pair[1]:
            lower = sum(b < a for a, b in zip(*pair, strict=True))
            told = f"lower at {lower} of {len(pair[0])} evaluations; more than half counts"
            verdict = Verdict("held" if 2 * lower > len(pair[0]) else "not held", told)
        judged.append(Judged(f"MaxMatch is below FixMatch in most of the training with lr {lr:g}", verdict))
    return judged


def _mean_gap(curves: Mapping[str, Sequence[float]], high: str, low: str) -> float | None:
    if not curves.get(high) or not curves.get(low):
        return None
    return mean(a - b for a, b in zip(curves[high], curves[low], strict=True))


def _judged(found: Found, row: Row) -> dict[int, dict[str, float]]:
    lines = read_metrics(found.wanted.out / row["folder"] / "metrics.jsonl")
    return {line["step"]: line for line in lines if line["kind"] == "evaluate"}


def _counted(found: Found, row: Row) -> dict[int, dict[str, float]]:
    """The figures of the unlabelled target at each evaluation: means over the logs since the one before."""
    counted: dict[int, dict[str, float]] = {}
    held: list[dict[str, Any]] = []
    for line in read_metrics(found.wanted.out / row["folder"] / "metrics.jsonl"):
        if line["kind"] == "train":
            held.append(line)
        elif line["kind"] == "evaluate" and held:
            logged: dict[str, list[Any]] = {
                name: [log.get(name) for log in held] for name in LINES[UNLABELLED].values()
            }
            counted[line["step"]] = {name: mean(each) for name, each in logged.items() if None not in each}
            held = []
    return counted


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"

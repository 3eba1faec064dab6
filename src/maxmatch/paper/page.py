"""The Markdown page of a target: the budget first, then our numbers beside the published ones, then the orderings."""

from __future__ import annotations

from collections.abc import Sequence

from maxmatch.bench.origin import hardware, versions
from maxmatch.benchmark.figures import Row
from maxmatch.paper import budgets, claims, imagenet
from maxmatch.paper.claims import Judged
from maxmatch.paper.found import Found, hours_an_epoch, loss_curves, runtime_rows, summary
from maxmatch.paper.published import EPOCH, MAXMATCH, Number
from maxmatch.paper.wanted import Wanted
from maxmatch.train.recipe import Recipe

RULES = {
    "bars": "Judged by the means over the folds that both methods have; differences of errors in percentage points.",
    "losses": "Judged by the means over tenths of the training. MaxMatch selects before it trains: its U is that of "
    "the training pass, its U-min that of the scoring pass before it.",
    "runtime": "Judged by the steps/s of the runs above.",
    "curves": "Judged by the evaluations that both runs have, the means over the folds.",
}
RECALLED = "[R]: recalled, not read again in its source."


def page_of_runs(found: Found) -> str:
    """The page of a target whose methods were run."""
    wanted, target = found.wanted, found.wanted.target
    parts = [
        f"# {target.where}: {target.title}",
        *_banner(found),
        _budget(found),
        f"![{target.title}]({wanted.stem.name}.png)",
        "## Numbers",
        *_numbers(found),
        "## What the paper says",
        *_orderings(found),
        "## How it was made",
        _origin(found),
    ]
    return "\n\n".join(parts) + "\n"


def page_of_drawing(wanted: Wanted) -> str:
    target = wanted.target
    picture = f"![{target.title}]({wanted.stem.name}.png)"
    return f"# {target.where}: {target.title}\n\nDrawn by code; {target.setting}.\n\n{picture}\n\n`{wanted.command}`\n"


def judge(found: Found) -> list[Judged]:
    """Every ordering that the paper states for a target."""
    wanted, target = found.wanted, found.wanted.target
    labels = tuple(panel.labels for panel in wanted.panels)
    if target.kind == "losses":
        judged = claims.of_losses(loss_curves(found)[1])
    elif target.kind == "runtime":
        judged = claims.of_runtime(hours_an_epoch(found), sorted({row["device"] for row in found.finished}))
    elif target.kind in ("imagenet", "curves"):
        judged = imagenet.judge(found)
    elif target.name in claims.ERROR_CLAIMS:
        judged = claims.ERROR_CLAIMS[target.name](target.data, labels, found.errors)
    else:
        return []
    return claims.untested(judged, "a smoke run tests the code alone") if wanted.budget == "smoke" else judged


def _banner(found: Found) -> list[str]:
    """What must be read before any number."""
    wanted, lines = found.wanted, []
    if wanted.budget == "smoke":
        lines.append("**SMOKE: a few steps of a tiny net, to see that the code runs. No number here means anything.**")
    elif not wanted.same_data:
        lines.append(
            f"**Another data set than the paper's: this was run on {wanted.data}, {wanted.target.where} of the paper "
            f"is on {wanted.target.data}. Published numbers are therefore not beside ours.**"
        )
    missing = [row for row in found.rows if row["state"] != "finished"]
    if missing:
        failed = sum(row["state"] == "failed" for row in missing)
        lines.append(
            f"**{len(missing)} of {len(found.rows)} runs are missing ({failed} failed): the page is not whole.**"
        )
    return lines


def _budget(found: Found) -> str:
    wanted, target = found.wanted, found.wanted.target
    nets = ", ".join(sorted({row["net"] for row in found.finished})) or "-"
    devices = ", ".join(sorted({row["device"] for row in found.finished})) or "-"
    batches = dict.fromkeys(_images_a_step(run.recipe) for run in wanted.runs)
    data = ", ".join(f"{wanted.data}@{panel.shown}" for panel in wanted.panels)
    rows = [
        ["data", data, ", ".join(f"{target.data}@{count}" for count in target.labels)],
        ["steps of each run", f"{wanted.steps:,}", f"{target.steps:,}"],
        ["n, folds", str(found.most_folds), str(target.folds)],
        ["net", nets, target.net],
        ["images a step", ", ".join(batches), target.batch],
        ["device", devices, target.device],
    ]
    table = _table([f"budget: {wanted.budget}", "here", "paper"], rows)
    told = budgets.differences(wanted.budget, found.most_folds, wanted.steps, target.folds, target.steps)
    return f"{table}\n\nIn words: {told}."


def _images_a_step(recipe: Recipe) -> str:
    batch = recipe.train.batch
    return f"{batch} + {batch * recipe.train.ratio}" if recipe.method.needs.unlabelled else str(batch)


def _numbers(found: Found) -> list[str]:
    kind = found.wanted.target.kind
    if kind == "runtime":
        return _runtime_numbers(found)
    if kind == "imagenet":
        return [_table(*imagenet.table_of(found)), imagenet.NOTE]
    if kind == "curves":
        told = [imagenet.UNLABELLED_NOTE] if found.wanted.target.name == imagenet.UNLABELLED else []
        return [_table(*imagenet.curve_table(found)), *told, f"All evaluations are in {found.wanted.stem.name}.csv."]
    rows = summary(found)
    beside = kind in ("bars", "k") and any(row["same_data"] for row in rows)
    heads = ["labels", "method", "error %", "n", "steps", "robust error %", "strategy"]
    heads += ["published %", "its n", "its steps", "source"] if beside else []
    cells = [_cells(row) + (_published_cells(row) if beside else []) for row in rows]
    spread = "± is the standard deviation over the folds (ddof 0, as in the papers); one fold has none and shows none."
    parts = [_table(heads, cells), f"Error is that of the last evaluation. {spread}"]
    if kind == "losses":
        parts.append(_loss_table(found))
    parts += [] if beside else _apart(found, rows)
    if any(row["published_recalled"] for row in rows):
        parts.append(RECALLED)
    if found.wanted.target.name == "fig-svhn":
        parts.append(
            "The paper's text quotes 1.92 ± 0.12 for MaxMatch at 40 labels, which is the CTAugment row of Table 3."
        )
    return parts


def _cells(row: Row) -> list[str]:
    error = (
        "-" if row["error"] is None else f"{row['error']:.2f}" + ("" if row["std"] is None else f" ± {row['std']:.2f}")
    )
    robust = "-" if row["robust_error"] is None else f"{row['robust_error']:.2f}"
    return [
        str(row["labels"]),
        row["method"],
        error,
        str(row["n"]),
        f"{row['steps']:,}",
        robust,
        row["strategy"] or "-",
    ]


def _published_cells(row: Row) -> list[str]:
    if row["published"] is None:
        return ["no number printed", "-", "-", "-"]
    number = Number(row["published"], row["published_std"], row["published_source"], row["published_recalled"])
    return [str(number), str(row["published_n"]), f"{row['published_steps']:,}", number.source]


def _apart(found: Found, rows: Sequence[Row]) -> list[str]:
    """Published numbers of another data set: a table of their own, so that nobody compares them."""
    cells = [
        [f"{row['published_data']}@{row['published_labels']}", row["method"], *_published_cells(row)]
        for row in rows
        if row["published"] is not None
    ]
    if not cells:
        return []
    head = f"Published on {found.wanted.target.data}, not comparable with the runs above:"
    return [head, _table(["data", "method", "published %", "its n", "its steps", "source"], cells)]


def _loss_table(found: Found) -> str:
    steps, curves = loss_curves(found)
    if not steps:
        return "No run is finished, so there are no losses."
    picked = sorted({steps[0], steps[len(steps) // 4], steps[len(steps) // 2], steps[-1]})
    cells = [[f"{step:,}", *(f"{curve[steps.index(step)]:.4f}" for curve in curves.values())] for step in picked]
    name = f"{found.wanted.stem.name}.csv"
    return f"{_table(['step', *curves], cells)}\n\nMeans since the log before; all steps are in {name}."


def _runtime_numbers(found: Found) -> list[str]:
    """Ours and the published ones in tables of their own: they never ran on the same hardware."""
    heads = ["data", "method", "strategy", "hardware", "n", "steps/s", "hours an epoch"]
    cells: dict[str, list[list[str]]] = {"ours": [], "published": []}
    for row in runtime_rows(found):
        speed = "-" if row["steps_per_second"] is None else f"{row['steps_per_second']:.1f}"
        hours = "-" if row["hours_an_epoch"] is None else f"{row['hours_an_epoch']:#.3g}"
        words = [row["data"], row["method"], row["strategy"] or "not said", row["hardware"] or "-"]
        cells[row["who"]].append([*words, str(row["n"] or "-"), speed, hours])
    return [
        _table(heads, cells["ours"]),
        f"An epoch is {EPOCH:,} steps; ours have the batch above. steps/s leaves compiling out, counts evaluations in.",
        f"Published ({MAXMATCH}, Table 4), on other hardware: compare ratios, not hours.",
        _table(heads, cells["published"]),
    ]


def _orderings(found: Found) -> list[str]:
    judged = judge(found)
    if not judged:
        return ["No ordering: the paper says that the classes gather and that many borders between them are clear."]
    cells = [[one.claim, f"**{one.verdict.answer}**", one.verdict.why] for one in judged]
    rule = RULES.get(found.wanted.target.kind, RULES["bars"])
    other = not found.wanted.same_data and found.wanted.budget != "smoke"
    where = f" Judged on {found.wanted.data}, not on the paper's {found.wanted.target.data}." if other else ""
    return [_table(["stated in the paper", "here", "by"], cells), rule + where + _strategies(found)]


def _strategies(found: Found) -> str:
    """That methods which are compared pass their images differently, where they do."""
    by_name: dict[str, list[str]] = {}
    for row in found.finished:
        names = by_name.setdefault(str(row["strategy"]), [])
        names += [] if row["method"] in names else [row["method"]]
    if not {"joint", "select"} <= set(by_name):
        return ""
    told = "; ".join(f"{name}: {', '.join(f'`{method}`' for method in by_name[name])}" for name in ("joint", "select"))
    return f" With BatchNorm the strategy matters too, and it is not the same for all ({told}): what differs is both."


def _origin(found: Found) -> str:
    commits = sorted({str(row["commit"] or "not noted") for row in found.finished})
    machine = {name: value for name, value in hardware().items() if value is not None}
    told = {name: value for name, value in versions().items() if value is not None}
    lines = [
        f"* `{found.wanted.command}`",
        f"* runs trained at commit: {', '.join(commits) or '-'}",
        f"* this page written with {', '.join(f'{name} {value}' for name, value in told.items())}",
        f"* on {', '.join(f'{name}: {value}' for name, value in machine.items())}",
        f"* all runs, one a row: [{found.wanted.stem.name}-runs.csv]({found.wanted.stem.name}-runs.csv)",
        f"* the numbers above: [{found.wanted.stem.name}.csv]({found.wanted.stem.name}.csv)",
    ]
    return "\n".join(lines)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)

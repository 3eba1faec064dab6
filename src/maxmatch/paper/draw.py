"""The figures of results: bars of errors, the effect of K, loss curves, t-SNE, hours an epoch."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from maxmatch.benchmark.figures import Row
from maxmatch.paper import budgets
from maxmatch.paper.embedding import Embedding
from maxmatch.paper.found import Found, loss_curves, runtime_rows, summary
from maxmatch.paper.orderings import Curves
from maxmatch.paper.published import FOLDS, STEPS
from maxmatch.paper.style import CLASSES, COLOURS, INK, colour, figure
from maxmatch.paper.targets import EFFECT_OF_K
from maxmatch.paper.wanted import Panel

ERROR = "test error (%)"
PRINTED = f"◇ published ({STEPS:,} steps, n = {FOLDS})"


def draw(found: Found, embedding: Embedding | None = None) -> Figure:
    """The figure of a target that was run."""
    kind = found.wanted.target.kind
    if kind == "bars":
        return _bars(found)
    if kind == "k":
        return _effect_of_k(found)
    if kind == "losses":
        return _losses(found)
    if kind == "runtime":
        return _runtime(found)
    if kind in ("imagenet", "curves"):
        from maxmatch.paper.imagenet_draw import draw_imagenet

        return draw_imagenet(found, _title(found), footer(found))
    assert embedding is not None
    return _tsne(found, embedding)


def footer(found: Found) -> str:
    """The budget in one sentence: what stands below every figure."""
    wanted = found.wanted
    nets = ", ".join(sorted({row["net"] for row in found.finished}))
    shows_spread = wanted.target.kind in ("bars", "k", "imagenet")
    spread = "; one fold has no spread" if shows_spread and found.most_folds == 1 else ""
    data = wanted.data if wanted.same_data else f"{wanted.data} (the paper: {wanted.target.data})"
    target = wanted.target
    budget = budgets.differences(wanted.budget, found.most_folds, wanted.steps, target.folds, target.steps)
    return f"{wanted.budget.upper()}: {data}, {nets}; {budget}{spread}"


def _title(found: Found) -> str:
    target = found.wanted.target
    name = f"{target.where}: {target.title}"
    return name if found.wanted.same_data else f"After {name} – here on {found.wanted.data}"


def _panel_title(found: Found, panel: Panel) -> str:
    return f"{found.wanted.data}, {panel.shown} labels"


def _bars(found: Found) -> Figure:
    arms = [arm.label for arm in found.wanted.target.arms]
    rows = summary(found)
    beside = [row for row in rows if row["published"] is not None and row["same_data"]]
    marks = f"; {PRINTED}" if beside else ""
    marks += ", × such a number recalled, not read again" if any(row["published_recalled"] for row in beside) else ""
    whole, axes = figure(len(found.wanted.panels), _title(found), footer(found) + marks, height=1.9 + 0.3 * len(arms))
    for axis, panel in zip(axes, found.wanted.panels, strict=True):
        here = {row["method"]: row for row in rows if row["published_labels"] == panel.labels}
        _one_bars(axis, [here[label] for label in arms], found, panel)
        axis.set_title(_panel_title(found, panel))
        if axis is not axes[0]:
            axis.tick_params(labelleft=False)
    return whole


def _one_bars(axis: Axes, rows: Sequence[Row], found: Found, panel: Panel) -> None:
    """Horizontal bars from top to bottom in the paper's order, the folds as dots, the published number as a diamond."""
    largest = 0.0
    for place, row in enumerate(rows):
        seen = list(found.errors.get((panel.labels, row["method"]), {}).values())
        if row["error"] is not None:
            axis.barh(place, row["error"], height=0.68, color=colour(row["method"]), alpha=0.85, xerr=row["std"],
                      error_kw={"ecolor": INK, "capsize": 2.5, "elinewidth": 1})  # fmt: skip
            told = f"{row['error']:.2f}" + ("" if row["std"] is None else f" ± {row['std']:.2f}")
            reach = row["error"] + (row["std"] or 0)
            axis.annotate(told, (max(reach, *seen), place), (5, 0), textcoords="offset points", va="center", fontsize=8)
            largest = max(largest, reach, *seen)
        else:
            axis.annotate("no finished run", (0, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
        if len(seen) > 1:
            axis.plot(seen, [place] * len(seen), ".", color=INK, markersize=3)
        if row["published"] is not None and row["same_data"]:
            mark = "x" if row["published_recalled"] else "D"
            axis.plot(row["published"], place, mark, color=INK, fillstyle="none", markersize=5, zorder=5)
            largest = max(largest, row["published"])
    axis.set_yticks(range(len(rows)), [row["method"] for row in rows])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlim(0, max(largest, 1) * 1.38)  # room for the numbers behind the bars
    axis.set_xticks([tick for tick in axis.get_xticks() if tick <= 100 and tick <= axis.get_xlim()[1]])
    axis.grid(visible=False, axis="y")
    axis.set_xlabel(ERROR)


def _effect_of_k(found: Found) -> Figure:
    whole, axes = figure(len(found.wanted.panels), _title(found), footer(found), height=3.3)
    errors = found.errors
    for axis, panel in zip(axes, found.wanted.panels, strict=True):
        here = [row for row in summary(found) if row["published_labels"] == panel.labels and row["error"] is not None]
        places = [int(row["method"].removeprefix("K = ")) for row in here]
        if any(row["std"] is not None for row in here):
            spread = [row["std"] or 0.0 for row in here]
            axis.errorbar(
                places, [row["error"] for row in here], spread, color=COLOURS["MaxMatch"], capsize=3, marker="o"
            )
        else:
            axis.plot(places, [row["error"] for row in here], color=COLOURS["MaxMatch"], marker="o")
        for place, row in zip(places, here, strict=True):
            folds = list(errors[panel.labels, row["method"]].values())
            if len(folds) > 1:
                axis.plot([place] * len(folds), folds, ".", color=INK, markersize=3)
            top = max(row["error"] + (row["std"] or 0), *folds)
            axis.annotate(f"{row['error']:.2f}", (place, top), (3, 7), textcoords="offset points", ha="left",
                          fontsize=8)  # fmt: skip
        axis.set_xticks([int(arm.label.removeprefix("K = ")) for arm in EFFECT_OF_K])
        axis.set_xlim(0.4, 8.2)
        axis.margins(y=0.25)
        axis.set_title(_panel_title(found, panel))
        axis.set_xlabel("K, strong views an image (1: FixMatch)")
        axis.set_ylabel(ERROR)
    return whole


def _losses(found: Found) -> Figure:
    whole, axes = figure(1, f"{_title(found)}", footer(found), width=6.4, height=4.0)
    steps, curves = loss_curves(found)
    _curves(axes[0], steps, curves)
    panel = found.wanted.panels[0]
    axes[0].set_title(_panel_title(found, panel))
    return whole


def _curves(axis: Axes, steps: Sequence[int], curves: Curves) -> None:
    """Labelled losses solid, unlabelled ones dotted, as in the paper; U-min dashed."""
    lines = {"L": "-", "U": ":", "U-min": "--"}
    for name, values in curves.items():
        method, _, loss = name.partition("-")
        axis.plot(steps, values, lines[loss], color=colour(method), linewidth=1.4, label=name,
                  alpha=0.7 if loss == "U-min" else 1.0)  # fmt: skip
    axis.set_xlabel("training step")
    axis.set_ylabel("loss (mean cross-entropy, nats)")
    axis.set_ylim(bottom=0)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _tsne(found: Found, embedding: Embedding) -> Figure:
    note = f"; {len(embedding.places)} test images, perplexity {embedding.perplexity:g}"
    whole, axes = figure(1, _title(found), footer(found) + note, width=5.6, height=4.8)
    for number, name in enumerate(embedding.classes):
        here = embedding.places[embedding.labels == number]
        axes[0].plot(here[:, 0], here[:, 1], ".", markersize=4, color=CLASSES[number % len(CLASSES)], label=name)
    axes[0].set_title(_panel_title(found, found.wanted.panels[0]))
    axes[0].set_xlabel("t-SNE, first axis (no unit)")
    axes[0].set_ylabel("t-SNE, second axis (no unit)")
    axes[0].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), markerscale=2)
    return whole


def _runtime(found: Found) -> Figure:
    here = ["ours", "published"] if found.wanted.same_data else ["ours"]
    rows = [row for row in runtime_rows(found) if row["data"] != "imagenet" and row["who"] in here]
    rows = [row for row in rows if row["hours_an_epoch"] is not None]
    whole, axes = figure(1, _title(found), footer(found), width=6.4, height=1.5 + 0.4 * len(rows))
    for place, row in enumerate(rows):
        ours = row["who"] == "ours"
        axes[0].barh(
            place, row["hours_an_epoch"], height=0.66, color=colour(row["method"]), alpha=0.85 if ours else 0.35
        )
        axes[0].annotate(f"{row['hours_an_epoch']:.3g}", (row["hours_an_epoch"], place), (4, 0),
                         textcoords="offset points", va="center", fontsize=8)  # fmt: skip
    names = [f"{row['method']}, {row['who']}\n{row['data']}, {row['hardware']}" for row in rows]
    axes[0].set_yticks(range(len(rows)), names)
    axes[0].invert_yaxis()
    axes[0].margins(x=0.15)
    axes[0].grid(visible=False, axis="y")
    axes[0].set_xlabel("hours for an epoch of 1,024 steps on the hardware named")
    return whole

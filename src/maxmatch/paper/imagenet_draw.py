"""The figures of the ImageNet targets: bars of top-1 and top-5 errors, and curves of errors while training."""

from __future__ import annotations

from matplotlib.figure import Figure

from maxmatch.paper.found import Found, summary
from maxmatch.paper.imagenet import UNLABELLED, curves_of
from maxmatch.paper.published import IMAGENET_ERRORS
from maxmatch.paper.style import INK, colour, figure
from maxmatch.paper.targets import LEARNING_RATE


def draw_imagenet(found: Found, title: str, footer: str) -> Figure:
    return _bars(found, title, footer) if found.wanted.target.kind == "imagenet" else _curves(found, title, footer)


def _bars(found: Found, title: str, footer: str) -> Figure:
    """Top-1 and top-5 beside one another; a diamond is the published number, where the data set is the paper's."""
    arms, rows = found.wanted.target.arms, {row["method"]: row for row in summary(found)}
    beside = any(row["same_data"] for row in rows.values())
    marks = "; ◇ published" if beside else ""
    whole, axes = figure(2, title, footer + marks, width=4.2, height=1.9 + 0.3 * len(arms))
    for at, (axis, name) in enumerate(zip(axes, ("error", "top5_error"), strict=True)):
        largest = 1.0
        for place, arm in enumerate(arms):
            value = rows.get(arm.label, {}).get(name)
            if value is None:
                axis.annotate(
                    "no finished run", (0, place), (4, 0), textcoords="offset points", va="center", fontsize=8
                )
            else:
                axis.barh(place, value, height=0.68, color=colour(_method(arm.label)), alpha=0.85)
                axis.annotate(f"{value:.2f}", (value, place), (5, 0), textcoords="offset points", va="center",
                              fontsize=8)  # fmt: skip
                largest = max(largest, value)
            if beside:
                printed = IMAGENET_ERRORS[arm.published][at].mean
                axis.plot(printed, place, "D", color=INK, fillstyle="none", markersize=5, zorder=5)
                largest = max(largest, printed)
        axis.set_yticks(range(len(arms)), [arm.label for arm in arms])
        axis.set_ylim(len(arms) - 0.4, -0.6)
        axis.set_xlim(0, largest * 1.38)
        axis.set_xticks([tick for tick in axis.get_xticks() if tick <= 100 and tick <= axis.get_xlim()[1]])
        axis.grid(visible=False, axis="y")
        axis.set_xlabel("top-1 test error (%)" if at == 0 else "top-5 test error (%)")
        if at:
            axis.tick_params(labelleft=False)
    return whole


def _curves(found: Found, title: str, footer: str) -> Figure:
    """MaxMatch red and FixMatch blue; paler for smaller learning rates, dashed for top-5."""
    whole, axes = figure(1, title, footer, width=6.6, height=4.0)
    steps, curves = curves_of(found)
    shades = {f"lr {lr:g}": shade for lr, shade in zip(LEARNING_RATE, (0.4, 0.7, 1.0), strict=True)}
    for name, values in curves.items():
        behind = name.partition(", ")[2]
        axes[0].plot(steps, values, "--" if behind == "top-5" else "-", color=colour(_method(name)), marker=".",
                     alpha=shades.get(behind, 1.0), linewidth=1.4, label=name)  # fmt: skip
    axes[0].set_xlabel("training step")
    of_pool = found.wanted.target.name == UNLABELLED
    axes[0].set_ylabel("error of pseudo-labels, all unlabelled (%)" if of_pool else "top-1 test error (%)")
    axes[0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return whole


def _method(label: str) -> str:
    """`MaxMatch+EMAN, MoCo v2` is MaxMatch's colour."""
    return label.partition(",")[0].partition("+")[0]

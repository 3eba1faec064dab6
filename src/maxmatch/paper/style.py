"""How every figure looks: one size of type, one palette, one footer that says the budget, PNG and SVG."""

from __future__ import annotations

import io
import textwrap
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from maxmatch.files import write_safely

# Red for MaxMatch and blue for FixMatch, as the paper has them; the others keep out of their way.
COLOURS = {
    "MaxMatch": "#c0392b", "FixMatch": "#2a6fb0", "FixMatch+Anchoring": "#7b5ea7", "ReMixMatch": "#3f8f5b",
    "UDA": "#8a9a3b", "MixMatch": "#c08a2b", "Mean Teacher": "#b56b8c", "Pi-Model": "#6f8f96",
    "Pseudo-Label": "#94806b", "Supervised": "#808080",
}  # fmt: skip
LIGHTER = {"MaxMatch": "#e59a8f", "FixMatch": "#93bbe0"}  # the second of a pair: with CTAugment
CLASSES = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")
INK, PALE = "#222222", "#d9d9d9"
SETTINGS: Any = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9, "legend.fontsize": 8,
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": INK, "text.color": INK,
    "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.grid": True, "grid.color": PALE,
    "grid.linewidth": 0.6, "axes.axisbelow": True, "legend.frameon": False, "figure.facecolor": "white",
    "svg.fonttype": "none", "svg.hashsalt": "maxmatch",
}  # fmt: skip


def colour(label: str) -> str:
    """The colour of a method, whatever stands behind its name."""
    name, _, behind = label.partition(" (")
    return LIGHTER.get(name, INK) if behind.startswith("CTA") else COLOURS.get(name, INK)


def figure(
    columns: int, title: str, footer: str, *, width: float = 3.6, height: float = 3.4
) -> tuple[Figure, list[Axes]]:
    """A figure with a row of axes, its title above and the budget below."""
    whole = Figure(figsize=(max(width * columns, 5.2), height), layout="constrained")
    axes = [whole.add_subplot(1, columns, number + 1) for number in range(columns)]
    wide = whole.get_figwidth()  # in inches; the numbers before it are the characters of that size that fit into one
    whole.suptitle(textwrap.fill(title, int(9.5 * wide)), fontsize=11, fontweight="bold")
    whole.supxlabel(textwrap.fill(footer, int(17 * wide)), fontsize=7)
    return whole, axes


def stamp_smoke(whole: Figure) -> None:
    """Nobody shall take a smoke run for a result."""
    whole.text(0.5, 0.5, "SMOKE", fontsize=19 * whole.get_figwidth() ** 0.8, color="#b00000", alpha=0.22, rotation=18,
               ha="center", va="center", fontweight="bold", zorder=100)  # fmt: skip


def save(whole: Figure, stem: Path) -> list[Path]:
    """STEM.png and STEM.svg, the same bytes for the same figure."""
    made = []
    for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        path = stem.with_name(f"{stem.name}.{ending}")
        content = io.BytesIO()
        whole.savefig(content, format=ending, dpi=150, metadata=metadata)
        write_safely(path, content.getvalue())
        made.append(path)
    return made


def styled() -> Any:
    """Within: matplotlib draws in this style, and as it did before afterwards."""
    return rc_context(SETTINGS)

"""The paper's two drawings, made by code: the framework (Figure 1), numerical against semantic proximity (Figure 2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from maxmatch.paper.style import COLOURS, INK, PALE, figure
from maxmatch.paper.targets import Target

RED, BLUE = COLOURS["MaxMatch"], COLOURS["FixMatch"]
Pixels = npt.NDArray[Any]


def drawing(target: Target) -> Figure:
    """The drawing of a target."""
    return _framework(target) if target.name == "fig-framework" else _proximity(target)


def _framework(target: Target) -> Figure:
    note = "the objective of the paper's section 5, drawn for K = 3; the pseudo-label carries no gradient"
    whole, (axis,) = figure(1, f"{target.where}: {target.title}", note, width=9.2, height=4.4)
    axis.axis("off")
    axis.set_xlim(0, 10.7)
    axis.set_ylim(0, 5.2)
    _box(axis, 0.2, 4.2, 1.5, "labelled image\n$x^l$, label $y$", INK)
    _box(axis, 0.2, 1.7, 1.5, "unlabelled\nimage $x^u$", INK)
    _box(axis, 2.3, 4.2, 1.4, "weak view", INK)
    _box(axis, 2.3, 3.05, 1.4, "weak view", INK)
    _arrow(axis, (1.7, 4.5), (2.3, 4.5))
    _arrow(axis, (1.7, 2.1), (2.3, 3.3))
    axis.add_patch(FancyBboxPatch((2.15, 0.1), 1.7, 2.6, "round,pad=0.02", fc="#f7f3ee", ec=PALE))
    axis.text(3.0, 2.5, "$B_{sem}(x^u)$: K strong views", ha="center", va="center", fontsize=6.5)
    for number, height in enumerate((1.7, 0.95, 0.2), 1):
        _box(axis, 2.3, height, 1.4, f"$\\tau_{number}(x^u)$", RED if number == 2 else INK)
        _arrow(axis, (1.7, 2.0 - 0.1 * number), (2.3, height + 0.3))
    axis.add_patch(FancyBboxPatch((4.5, 0.1), 0.9, 4.8, "round,pad=0.02", fc="#eef3f8", ec=BLUE))
    axis.text(4.95, 2.5, "net\n$f$", ha="center", va="center", fontsize=11)
    for height in (4.5, 3.35, 2.0, 1.25, 0.5):
        _arrow(axis, (3.7, height), (4.5, height))
        _arrow(axis, (5.4, height), (6.0, height))
    _box(axis, 6.0, 4.2, 1.9, "cross-entropy\nwith $y$", INK)
    _box(axis, 6.0, 3.05, 1.9, "pseudo-label,\nif confident", INK)
    for number, height in enumerate((1.7, 0.95, 0.2), 1):
        _box(axis, 6.0, height, 1.9, f"inconsistency $\\ell_{number}$", RED if number == 2 else INK)
        _arrow(axis, (7.9, height + 0.3), (8.5, 1.25), RED if number == 2 else INK)
    _arrow(axis, (6.95, 3.05), (6.95, 2.3))
    _box(axis, 8.5, 0.95, 1.9, "the largest,\n$\\max_j\\ \\ell_j$", RED)
    _box(axis, 8.5, 3.05, 1.9, "minimise\n$L + \\lambda\\, U$", BLUE)
    _arrow(axis, (7.9, 4.5), (9.0, 3.65))
    _arrow(axis, (9.45, 1.55), (9.45, 3.05), RED)
    axis.text(8.65, 4.25, "L", fontsize=10)
    axis.text(9.6, 2.25, "U", fontsize=10, color=RED)
    return whole


def _proximity(target: Target) -> Figure:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    near, far = nearest_strangers(images, labels), distant_relatives(images, labels)
    note = "scikit-learn's digits, 8 x 8 pixels of 0 to 16; the distance is the Euclidean one of the pixels"
    whole, axes = figure(4, f"{target.where}: {target.title}", note, width=2.2, height=3.4)
    for axis, index in zip(axes, (*near, *far), strict=True):
        axis.imshow(images[index].reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
        axis.set_xlabel(f"a {labels[index]}")
    for first, pair, words in ((0, near, "near in pixels, different classes"), (2, far, "far in pixels, one class")):
        apart = float(np.linalg.norm(images[pair[0]] - images[pair[1]]))
        axes[first].set_title(f"({'ab'[first // 2]}) {words}\ndistance {apart:.1f}", loc="left", fontsize=9)
    return whole


def nearest_strangers(images: Pixels, labels: Pixels) -> tuple[int, int]:
    """The two images of different classes that are nearest in pixels: numerical proximity without semantic."""
    apart = _distances(images)
    apart[labels[:, None] == labels] = np.inf
    return _place(apart, int(np.argmin(apart)))


def distant_relatives(images: Pixels, labels: Pixels) -> tuple[int, int]:
    """The two images of one class that are farthest apart in pixels: semantic proximity without numerical."""
    apart = _distances(images)
    apart[labels[:, None] != labels] = -np.inf
    return _place(apart, int(np.argmax(apart)))


def _distances(images: Pixels) -> Pixels:
    """Euclidean distances (N, N), those of an image to itself included."""
    squares = (images**2).sum(1)
    return np.asarray(np.sqrt(np.maximum(squares[:, None] + squares - 2 * images @ images.T, 0)))


def _place(apart: Pixels, flat: int) -> tuple[int, int]:
    row, column = divmod(flat, apart.shape[1])
    return row, column


def _box(axis: Axes, x: float, y: float, width: float, words: str, edge: str) -> None:
    axis.add_patch(FancyBboxPatch((x, y), width, 0.6, "round,pad=0.02", fc="white", ec=edge, linewidth=1.2))
    axis.text(x + width / 2, y + 0.3, words, ha="center", va="center", fontsize=8, color=INK)


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], ink: str = INK) -> None:
    axis.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "color": ink, "linewidth": 1.1, "shrinkA": 2, "shrinkB": 2}
    )

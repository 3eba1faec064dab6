"""SVG by hand: small, crisp, and coloured by the page's own CSS variables, so that light, dark and print all suit.

Every chart is drawn for a width of about 380 pixels, which a phone shows as it is and a desktop sets side by side: its
letters are never scaled to nothing. Lines differ by dash and marker as well as by colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 380
STYLES = 5  # how many lines can be told apart
MARKERS = 7  # on a line, at most


@dataclass(frozen=True)
class Series:
    """A line: its name, and its points (x, y)."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Frame:
    """Where the data lie in a picture: the box of the axes, and the ranges that fill it."""

    left: float
    top: float
    right: float
    bottom: float
    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, value: float) -> float:
        low, high = self.x
        return self.left + (value - low) / ((high - low) or 1) * (self.right - self.left)

    def up(self, value: float) -> float:
        low, high = self.y
        return self.bottom - (value - low) / ((high - low) or 1) * (self.bottom - self.top)


def picture(title: str, described: str, height: float, body: str, width: float = WIDTH, kind: str = "") -> str:
    """An SVG of a size, with what a reader who can't see it is told."""
    told = escape(f"{title}. {described}", quote=True)
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {num(width)} {num(height)}" role="img" aria-label="{told}">'
        f"<title>{escape(title)}</title>{body}</svg>"
    )


def line_chart(
    title: str,
    described: str,
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    *,
    top: float | None = None,
) -> str:
    """Lines over a common axis that begins at zero; `top` is where the other end lies, if that is known."""
    drawn = [(style % STYLES, Series(line.name, _finite(line.points))) for style, line in enumerate(series)]
    drawn = [(style, line) for style, line in drawn if line.points]  # a line has one style in all charts of a page
    if not drawn:
        return ""
    shown = [line for _, line in drawn]
    rows = legend_rows([(style, line.name) for style, line in drawn]) if len(series) > 1 else []
    head = 16 * max(1, len(rows))  # charts side by side are of one height, with a legend or without
    height = 214 + head
    high_x = max(x for line in shown for x, _ in line.points)
    high_y = top if top is not None else max(y for line in shown for _, y in line.points) or 1.0
    ticks = nice_ticks(0.0, high_y)
    high_y = max(high_y, ticks[-1]) if top is None else high_y
    frame = Frame(52, 12 + head, WIDTH - 12, height - 40, (0.0, high_x), (0.0, high_y))
    parts = [_legend(rows), axes(frame, nice_ticks(0.0, high_x), ticks, x_label, y_label)]
    parts += [_line(frame, line, style) for style, line in drawn]
    return picture(title, described, height, "".join(parts))


def bars(
    title: str,
    described: str,
    x_label: str,
    rows: Sequence[tuple[str, float, str]],
    *,
    top: float | None = None,
    mark: tuple[float, str] | None = None,
) -> str:
    """A bar to the right for each row (name, value, what is written behind it); `mark` is a line across all of them."""
    if not rows:
        return ""
    longest = max(len(name) for name, _, _ in rows)
    left = min(130.0, 18 + 6.4 * longest)
    behind = 8 + 5.8 * max(len(text) for _, _, text in rows)
    first = 24 if mark else 8
    height = first + 18 * len(rows) + 40
    high = top if top is not None else max(max(value for _, value, _ in rows), mark[0] if mark else 0) or 1.0
    frame = Frame(left, first, WIDTH - behind, height - 36, (0.0, high), (0.0, 1.0))
    ticks = [tick for tick in nice_ticks(0.0, high, 4) if tick <= high]
    parts, texts = [_grid_x(frame, ticks, x_label)], []
    for number, (name, value, text) in enumerate(rows):
        y = first + 18 * number + 3
        wide = max(frame.across(min(value, high)) - left, 0)
        parts.append(f'<rect class="bar" x="{num(left)}" y="{num(y)}" width="{num(wide)}" height="13"/>')
        texts.append(f'<text class="t" x="{num(left - 6)}" y="{num(y + 10)}" text-anchor="end">{_short(name)}</text>')
        texts.append(f'<text class="t n" x="{num(left + wide + 4)}" y="{num(y + 10)}">{escape(text)}</text>')
    if mark:
        x = frame.across(mark[0])
        side = "start" if x < WIDTH * 0.6 else "end"
        parts.append(f'<line class="mark" x1="{num(x)}" x2="{num(x)}" y1="{first - 6}" y2="{num(frame.bottom)}"/>')
        parts.append(f'<text class="t" x="{num(x)}" y="{first - 10}" text-anchor="{side}">{escape(mark[1])}</text>')
    parts += texts
    return picture(title, described, height, "".join(parts))


def axes(
    frame: Frame,
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    x_label: str,
    y_label: str,
    write: Callable[[float], str] | None = None,
) -> str:
    """Grid, ticks and the names of both axes."""
    write = write or short_number
    parts = [_grid_x(frame, [tick for tick in x_ticks if tick <= frame.x[1]], x_label, lines=False)]
    for tick in y_ticks:
        if tick > frame.y[1] * 1.0001:
            continue
        y = num(frame.up(tick))
        parts.append(f'<line class="grid" x1="{num(frame.left)}" x2="{num(frame.right)}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text class="t" x="{num(frame.left - 5)}" y="{num(frame.up(tick) + 4)}" text-anchor="end">'
            f"{write(tick)}</text>"
        )
    middle = num((frame.top + frame.bottom) / 2)
    parts.append(f'<text class="t a" transform="translate(11 {middle}) rotate(-90)">{escape(y_label)}</text>')
    return "".join(parts)


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to at least `high`, about so many.

    >>> nice_ticks(0, 22.8)
    [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]
    """
    rough = (high - low) / about if high > low else 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    gap = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
    first, count = math.floor(low / gap), math.ceil((high - low) / gap - 1e-9)
    return [round((first + number) * gap, 10) for number in range(max(count, 1) + 1)]


def short_number(value: float) -> str:
    """A tick as few letters as will do.

    >>> [short_number(v) for v in (0.0, 0.25, 40.0, 800.0, 2500.0, 1_000_000.0)]
    ['0', '0.25', '40', '800', '2.5k', '1M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def legend_rows(names: Sequence[tuple[int, str]], width: float = WIDTH - 16) -> list[list[tuple[int, str, float]]]:
    """Styles and names with their place from the left, broken into rows that fit."""
    rows: list[list[tuple[int, str, float]]] = [[]]
    x = 8.0
    for style, name in names:
        need = 34 + 6.3 * len(name)
        if rows[-1] and x + need > width:
            rows.append([])
            x = 8.0
        rows[-1].append((style, name, x))
        x += need + 8
    return rows


def num(value: float) -> str:
    """A coordinate with one decimal, as short as it can be."""
    return f"{value:.1f}".removesuffix(".0")


def _legend(rows: list[list[tuple[int, str, float]]]) -> str:
    parts = []
    for number, row in enumerate(rows):
        y = 12 + 16 * number
        for style, name, x in row:
            parts.append(f'<path class="line s{style}" d="M{num(x)} {y}h24"/>{_marker(style, x + 12, y)}')
            parts.append(f'<text class="t" x="{num(x + 29)}" y="{y + 4}">{escape(name)}</text>')
    return "".join(parts)


def _line(frame: Frame, line: Series, style: int) -> str:
    places = [(frame.across(x), frame.up(min(y, frame.y[1]))) for x, y in line.points]
    path = "L".join(f"{num(x)} {num(y)}" for x, y in places)
    apart = max(1, len(places) // MARKERS)
    marks = "".join(_marker(style, *place) for place in places[apart - 1 :: apart])
    return f'<path class="line s{style}" d="M{path}"/>{marks}'


def _marker(style: int, x: float, y: float) -> str:
    """A shape for each style, for those who can't tell the colours apart."""
    shapes = (
        f'<circle class="m s{style}" cx="{num(x)}" cy="{num(y)}" r="2.8"/>',
        f'<rect class="m s{style}" x="{num(x - 2.6)}" y="{num(y - 2.6)}" width="5.2" height="5.2"/>',
        f'<path class="m s{style}" d="M{num(x)} {num(y - 3.5)}l3.4 6h-6.8z"/>',
        f'<path class="m s{style}" d="M{num(x)} {num(y - 3.6)}l3.6 3.6l-3.6 3.6l-3.6 -3.6z"/>',
        f'<path class="m s{style}" d="M{num(x)} {num(y + 3.5)}l3.4 -6h-6.8z"/>',
    )
    return shapes[style]


def _grid_x(frame: Frame, ticks: Sequence[float], label: str, lines: bool = True) -> str:
    parts = [
        f'<line class="axis" x1="{num(frame.left)}" x2="{num(frame.right)}" '
        f'y1="{num(frame.bottom)}" y2="{num(frame.bottom)}"/>'
    ]
    for tick in ticks:
        x = num(frame.across(tick))
        if lines:
            parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{num(frame.top)}" y2="{num(frame.bottom)}"/>')
        parts.append(
            f'<text class="t" x="{x}" y="{num(frame.bottom + 15)}" text-anchor="middle">{short_number(tick)}</text>'
        )
    middle = num((frame.left + frame.right) / 2)
    parts.append(f'<text class="t a" x="{middle}" y="{num(frame.bottom + 31)}">{escape(label)}</text>')
    return "".join(parts)


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _short(name: str, most: int = 18) -> str:
    return escape(name if len(name) <= most else f"{name[: most - 1]}…")

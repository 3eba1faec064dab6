"""The charts that look at a classifier: confusion matrix, reliability diagram, map of what the net sees."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from maxmatch.report.draw import WIDTH, Frame, axes, num, picture

NAMED = 20  # classes that a matrix has names for
SQUARES = 120  # classes that it is drawn for at all
FEW = 10  # a bin with fewer images is pale
GLYPHS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def confusion_chart(matrix: Sequence[Sequence[int]], classes: Sequence[str], described: str) -> str:
    """Rows are the truth, columns what was predicted; nothing where there are too many classes to draw."""
    count = len(classes)
    if not 0 < count <= SQUARES:
        return ""
    named = count <= NAMED
    longest = max(len(name) for name in classes) if named else 3
    left = 24 + min(84.0, 6.2 * longest) if named else 44.0
    side = (WIDTH - left - 8) / count
    foot = min(60.0, 6.2 * longest * 0.8 + 14) if named and longest > 3 else 16.0
    height = 8 + side * count + foot + 22
    parts = [f'<rect class="plate" x="{num(left)}" y="8" width="{num(side * count)}" height="{num(side * count)}"/>']
    for row, line in enumerate(matrix):
        total = sum(line)
        for column, cases in enumerate(line):
            if cases:
                share = cases / total
                x, y = left + side * column, 8 + side * row
                parts.append(_cell(x, y, side, share, cases, row == column, named))
                parts.append(f"<title>{escape(classes[row])} taken for {escape(classes[column])}: {cases}</title></g>")
    if named:
        parts += [_class_names(classes, left, side, longest)]
    middle = num(8 + side * count / 2)
    parts.append(f'<text class="t a" transform="translate(11 {middle}) rotate(-90)">true class</text>')
    parts.append(f'<text class="t a" x="{num(left + side * count / 2)}" y="{num(height - 6)}">predicted class</text>')
    return picture("Confusion matrix", described, height, "".join(parts), kind="matrix")


def reliability_chart(
    count: Sequence[int], confidence: Sequence[float], accuracy: Sequence[float], described: str
) -> str:
    """Accuracy over confidence, bin by bin, with an honest classifier's diagonal and how many there are in each."""
    bins, total = len(count), max(1, sum(count))
    frame = Frame(52, 30, WIDTH - 12, 190, (0.0, 100.0), (0.0, 100.0))
    below = Frame(52, 242, WIDTH - 12, 276, (0.0, 100.0), (0.0, 100 * max(count) / total if total else 1.0))
    ticks = [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    parts = [
        '<rect class="bar" x="8" y="6" width="24" height="11"/>',
        '<text class="t" x="37" y="16">right when it says so</text>',
        '<path class="honest" d="M190 12h24"/><text class="t" x="219" y="16">perfectly honest</text>',
        axes(frame, ticks, ticks, "confidence, %", "accuracy, %"),
    ]
    for place in range(bins):
        if not count[place]:
            continue
        x, wide = frame.across(100 * place / bins), (frame.right - frame.left) / bins
        told = f"{count[place]} images: confidence {confidence[place]:.1f} %, accuracy {accuracy[place]:.1f} %"
        y, few = frame.up(accuracy[place]), " few" if count[place] < FEW else ""
        parts.append(
            f'<g><rect class="bar{few}" x="{num(x + 1)}" y="{num(y)}" width="{num(wide - 2)}" '
            f'height="{num(max(frame.bottom - y, 0.8))}"/><title>{told}</title></g>'
        )
        high = below.up(100 * count[place] / total)
        parts.append(
            f'<rect class="bar soft" x="{num(x + 1)}" y="{num(high)}" width="{num(wide - 2)}" '
            f'height="{num(max(below.bottom - high, 0.8))}"/>'
        )
    parts.append(f'<path class="honest" d="M{frame.left} {frame.bottom}L{frame.right} {frame.top}"/>')
    parts.append(f'<line class="axis" x1="52" x2="{WIDTH - 12}" y1="276" y2="276"/>')
    parts.append(f'<text class="t n" x="52" y="236">how many images: the highest bar is {num(below.y[1])} %</text>')
    return picture("Reliability diagram", described, 284, "".join(parts))


def map_chart(places: Sequence[tuple[float, float]], labels: Sequence[int], wrong: Sequence[bool], told: str) -> str:
    """Points by their class's glyph and colour; what the net has wrong is ringed."""
    xs, ys = [x for x, _ in places], [y for _, y in places]
    frame = Frame(10, 10, WIDTH - 10, 330, (min(xs), max(xs)), (min(ys), max(ys)))
    rings, points = [], []
    for (x, y), label, is_wrong in zip(places, labels, wrong, strict=True):
        across, up = frame.across(x), frame.up(y)
        points.append(f'<text class="g c{label % 10}" x="{num(across)}" y="{num(up + 3)}">{glyph(label)}</text>')
        if is_wrong:
            rings.append(f'<circle class="ring" cx="{num(across)}" cy="{num(up)}" r="6"/>')
    plate = f'<rect class="plate" x="0" y="0" width="{WIDTH}" height="340"/>'
    return picture("Map of the features", told, 340, plate + "".join(points) + "".join(rings), kind="map")


def glyph(label: int) -> str:
    """The letter that stands for a class.

    >>> glyph(3), glyph(10)
    ('3', 'a')
    """
    return GLYPHS[label % len(GLYPHS)]


def _cell(x: float, y: float, side: float, share: float, cases: int, right: bool, named: bool) -> str:
    opacity = 0.08 + 0.72 * share**0.5
    kind = "right" if right else "wrong"
    gap = 0.5 if named else 0.0
    made = (
        f'<g><rect class="{kind}" x="{num(x + gap)}" y="{num(y + gap)}" width="{num(side - 2 * gap)}" '
        f'height="{num(side - 2 * gap)}" fill-opacity="{opacity:.2f}"/>'
    )
    if named and side > 5.5 * len(str(cases)) + 2:
        ink = " deep" if opacity > 0.5 else ""  # light letters on what is dark, and the other way round
        made += f'<text class="t v{ink}" x="{num(x + side / 2)}" y="{num(y + side / 2 + 4)}">{cases}</text>'
    return made


def _class_names(classes: Sequence[str], left: float, side: float, longest: int) -> str:
    parts = []
    bottom = 8 + side * len(classes)
    for number, name in enumerate(classes):
        short = escape(name if len(name) <= 13 else f"{name[:12]}…")
        y = 8 + side * (number + 0.5) + 4
        parts.append(f'<text class="t" x="{num(left - 5)}" y="{num(y)}" text-anchor="end">{short}</text>')
        x = left + side * (number + 0.5)
        if longest > 3:
            turned = f'transform="translate({num(x + 3)} {num(bottom + 9)}) rotate(-40)" text-anchor="end"'
            parts.append(f'<text class="t" {turned}>{short}</text>')
        else:
            parts.append(f'<text class="t" x="{num(x)}" y="{num(bottom + 14)}" text-anchor="middle">{short}</text>')
    return "".join(parts)

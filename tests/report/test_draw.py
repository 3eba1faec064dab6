"""SVG: places of points by hand, names that can't break out, nothing drawn of nothing."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from maxmatch.report.charts import confusion_chart, map_chart, reliability_chart
from maxmatch.report.draw import Frame, Series, bars, legend_rows, line_chart, nice_ticks

NASTY = "<script>&\"'"


def test_points_lie_where_the_axes_say():
    svg = line_chart("t", "d", "step", "y", [Series("a", [(0, 0), (50, 5), (100, 10)])], top=10)
    tree = ElementTree.fromstring(svg)
    (path,) = [node for node in tree.iter("path") if node.get("class") == "line s0"]
    points = [tuple(map(float, pair.split())) for pair in path.get("d")[1:].split("L")]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y0 - y1 == pytest.approx(y1 - y2)
    ticks = {node.text: (float(node.get("x")), float(node.get("y"))) for node in tree.iter("text") if node.get("x")}
    assert ticks["100"][0] == x2
    assert ticks["10"][1] == pytest.approx(y2 + 4)
    assert ticks["step"][1] > ticks["100"][1]


def test_every_line_has_a_style_of_its_own_in_all_charts():
    """A run that has no such figure leaves its colour unused, so that the others keep theirs."""
    both = line_chart("t", "d", "x", "y", [Series("a", []), Series("b", [(0, 1), (1, 2)])])
    assert "line s1" in both
    assert "line s0" not in both
    assert line_chart("t", "d", "x", "y", [Series("a", []), Series("b", [(0, float("nan"))])]) == ""


@pytest.mark.parametrize(
    "svg",
    [
        line_chart(NASTY, NASTY, NASTY, NASTY, [Series(NASTY, [(0, 1), (1, 2)]), Series("b", [(0, 1)])]),
        bars(NASTY, NASTY, NASTY, [(NASTY, 1.0, NASTY)], mark=(0.5, NASTY)),
        confusion_chart([[1, 2], [0, 3]], [NASTY, "b"], NASTY),
        reliability_chart([0, 2], [0.0, 80.0], [0.0, 50.0], NASTY),
        map_chart([(0.0, 1.0), (1.0, 0.0)], [0, 1], [True, False], NASTY),
    ],
)  # fmt: skip
def test_names_are_written_not_obeyed_and_told_to_those_who_do_not_see(svg):
    tree = ElementTree.fromstring(svg)
    assert not list(tree.iter("script"))
    assert tree.get("role") == "img"
    assert NASTY in tree.get("aria-label")


def test_a_matrix_has_its_numbers_and_large_ones_none():
    tree = ElementTree.fromstring(confusion_chart([[5, 2], [0, 7]], ["cat", "dog"], "d"))
    numbers = [node.text for node in tree.iter("text") if "v" in node.get("class").split()]
    assert numbers == ["5", "2", "7"]
    titles = [node.text for node in tree.iter("title")]
    assert "cat taken for dog: 2" in titles
    assert confusion_chart([[0] * 200] * 200, [str(i) for i in range(200)], "d") == ""


def test_bars_are_as_long_as_their_values():
    tree = ElementTree.fromstring(bars("t", "d", "x", [("a", 10.0, ""), ("b", 5.0, ""), ("c", 0.0, "")], top=10))
    wide = [float(node.get("width")) for node in tree.iter("rect")]
    assert wide[0] == pytest.approx(2 * wide[1])
    assert wide[2] == 0


def test_legends_fit_and_ticks_cover():
    rows = legend_rows([(i, "a rather long name") for i in range(5)])
    assert len(rows) > 1
    assert all(x + 29 + 6 * len(name) < 380 for row in rows for _, name, x in row)
    for high in (0.003, 0.97, 7, 22.8, 800, 1e6):
        ticks = nice_ticks(0, high)
        assert ticks[0] == 0
        assert ticks[-1] >= high
        assert 3 <= len(ticks) <= 8
    assert Frame(0, 0, 10, 20, (0, 5), (0, 4)).up(1) == 15


def test_bars_reach_no_further_than_the_picture():
    svg = bars("t", "d", "x", [("class", 20.0, "1,234 of 5,678"), ("b", 1.0, "1 of 2")], mark=(19.0, "all"))
    ends = [float(x) + 5.8 * len(text) for x, text in re.findall(r'class="t n" x="([\d.]+)"[^>]*>([^<]*)<', svg)]
    assert max(ends) <= 382

"""SVG: places of points by hand, names that can't break out, nothing drawn of nothing."""

from __future__ import annotations

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from maxmatch.report.charts import confusion_chart, map_chart, reliability_chart
from maxmatch.report.draw import WIDTH, Frame, Series, bars, legend_rows, line_chart, nice_ticks
from maxmatch.report.thumbnails import thumbnail

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


def test_a_cell_is_as_deep_as_its_share_of_the_true_class():
    tree = ElementTree.fromstring(confusion_chart([[5, 2], [0, 7]], ["cat", "dog"], "d"))
    cells = [node for node in tree.iter("rect") if node.get("class") in ("right", "wrong")]
    assert [node.get("class") for node in cells] == ["right", "wrong", "right"]
    expected = [f"{0.08 + 0.72 * share**0.5:.2f}" for share in (5 / 7, 2 / 7, 1.0)]
    assert [node.get("fill-opacity") for node in cells] == expected


def test_a_bar_of_accuracy_stands_over_its_confidence_and_few_images_are_pale():
    svg = reliability_chart([0, 4, 0, 40], [0.0, 40.0, 0.0, 90.0], [0.0, 25.0, 0.0, 100.0], "d")
    groups = [
        group for group in ElementTree.fromstring(svg).iter("g") if "confidence" in (group.findtext("title") or "")
    ]
    low, high = (group.find("rect") for group in groups)
    wide = (WIDTH - 64) / 4  # a quarter of what lies between the axis and the margin
    for bar, place, accuracy in ((low, 1, 25), (high, 3, 100)):
        assert float(bar.get("x")) == pytest.approx(52 + place * wide + 1, abs=0.06)
        assert float(bar.get("width")) == pytest.approx(wide - 2, abs=0.06)
        assert float(bar.get("height")) == pytest.approx(160 * accuracy / 100, abs=0.06)
    assert (low.get("class"), high.get("class")) == ("bar few", "bar")


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (3, 32), (3, 200)])
def test_a_thumbnail_is_the_picture(channels, side):
    colour = torch.tensor([200, 100, 20], dtype=torch.uint8)[:channels]
    picture = colour[:, None, None].expand(channels, side, side // 2).clone()
    picture[:, : side // 4] = 250  # a white strip on top
    head, _, text = thumbnail(picture).partition(",")
    assert head == f"data:image/{'png' if side <= 48 else 'jpeg'};base64"
    found = Image.open(io.BytesIO(base64.b64decode(text)))
    assert found.size == (min(side, 96) // 2, min(side, 96))
    shown = np.asarray(found).reshape(*found.size[::-1], channels).astype(int)
    assert abs(shown[0, 0] - 250).max() <= 10
    assert abs(shown[-1, -1] - colour.numpy()).max() <= 10


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

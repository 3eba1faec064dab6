"""The page in a real browser, headless: it opens without a complaint or a request, and fits a phone, light and dark."""

from __future__ import annotations

import json

import pytest

import maxmatch
from maxmatch.report.page import write_report
from report.browser import Browser, find_chromium

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium, or set CHROMIUM")
PHONE, DESKTOP = (390, 844), (1280, 900)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """One run's page, a comparison, and a page of a run without a model; with the first run's result."""
    folder = tmp_path_factory.mktemp("browser")
    train = {"steps": 30, "batch": 16, "ratio": 2, "threads": 1, "evaluate_every": 6, "log_every": 5}
    for name in ("maxmatch", "a-supervised-run-with-a-long-name_and_no_place_to_break"):
        kind = "maxmatch" if name == "maxmatch" else "supervised"
        maxmatch.fit(maxmatch.compose("digits", kind, given={"train": train}), folder / name, quiet=True)
    one = write_report([folder / "maxmatch"], folder / "one.html")
    both = write_report(sorted(path for path in folder.iterdir() if path.is_dir()), folder / "both.html")
    result = json.loads((folder / "maxmatch" / "result.json").read_text())
    (folder / "maxmatch" / "model.safetensors").unlink()
    bare = write_report([folder / "maxmatch"], folder / "bare.html")
    return {"one": one, "both": both, "bare": bare, "result": result}


@pytest.fixture(scope="module")
def browser():
    with Browser(CHROMIUM) as opened:
        yield opened


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("name", ["one", "both", "bare"])
def test_it_opens_without_a_complaint_and_fits(browser, pages, name, size, dark):
    browser.open(pages[name], *size, dark=dark)
    browser.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.value("document.documentElement.scrollWidth") <= size[0]
    assert browser.value("document.documentElement.clientWidth") == size[0]
    # Nothing is cut off either: what sticks out does so inside a table that scrolls.
    out = browser.value(
        "[...document.querySelectorAll('body *')].filter(one => !one.closest('.wide') && !one.closest('svg') && "
        f"one.getBoundingClientRect().right > {size[0]} + 1).map(one => one.outerHTML.slice(0, 80))"
    )
    assert out == []
    broken = "[...document.images].filter(one => !(one.complete && one.naturalWidth > 0)).length"
    assert browser.value(broken) == 0
    smallest = browser.value(
        "Math.min(...[...document.querySelectorAll('svg.chart')].map(one => one.getBoundingClientRect().width))"
    )
    assert smallest >= 300  # drawn for 380: letters of 11.5 stay above 9
    ink, paper = (
        browser.value(f"getComputedStyle(document.body).{name}.match(/\\d+/g).slice(0, 3).map(Number)")
        for name in ("color", "backgroundColor")
    )
    assert contrast(ink, paper) > 7
    assert (sum(paper) < sum(ink)) == dark
    assert browser.complaints() == []
    assert browser.requests() == [pages[name].resolve().as_uri()]


def test_the_figures_a_reader_sees_are_those_of_the_run(browser, pages):
    browser.open(pages["one"])
    result = pages["result"]

    def seen(key):
        return browser.value(f"document.querySelector('[data-figure={key}]').innerText").replace(
            "\N{NO-BREAK SPACE}", " "
        )

    assert seen("error") == f"{result['error']['last']:.2f} %"
    assert seen("robust_error") == f"{result['robust_error']:.2f} %"
    assert browser.value("document.getElementById('answer').getBoundingClientRect().top") < 300  # the answer first
    told = browser.value("document.querySelector('svg.matrix').getAttribute('aria-label')")
    wrong = round(result["error"]["last"] * 602 / 100)
    assert f"{wrong} of 602 images are wrong" in told
    numbers = "[...document.querySelectorAll('svg.matrix text.v')].map(one => Number(one.textContent))"
    assert sum(browser.value(numbers)) == 602
    assert browser.value("document.querySelectorAll('svg.chart').length") == browser.value(
        "[...document.querySelectorAll('svg.chart[role=img]')].filter(one => one.getAttribute('aria-label')).length"
    )
    assert browser.value("document.querySelectorAll('.row').length") == 9
    assert browser.value("document.querySelectorAll('.row figure.won').length") == 9
    views = browser.value(
        "[...document.querySelectorAll('.row')].map(row => [...row.querySelectorAll('figure.view')].map(view => "
        "[view.classList.contains('won'), view.querySelector('b').textContent]))"
    )
    for row in views:
        losses = [0.0 if loss.startswith("<") else float(loss) for _, loss in row]
        assert len(row) == 3
        assert [loss for (won, _), loss in zip(row, losses, strict=True) if won] == [max(losses)]
    worst = [max(float(loss.strip("< ")) for _, loss in row) for row in views]
    assert worst[:6] == sorted(worst[:6], reverse=True)  # the least consistent first
    assert max(worst[6:]) <= min(worst[:6])


def test_a_link_opens_what_it_leads_to(browser, pages):
    browser.open(pages["both"])
    opened = "[...document.querySelectorAll('details.run')].map(one => one.open)"
    assert browser.value(opened) == [False, False]
    browser.value("document.querySelectorAll('nav a')[1].click()")
    assert browser.value(opened) == [False, True]
    assert browser.complaints() == []


def test_it_prints(browser, pages):
    browser.open(pages["one"], *DESKTOP, dark=True)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.ask("Emulation.setEmulatedMedia", media="print", features=dark)
    assert browser.value("matchMedia('(prefers-color-scheme: dark)').matches")
    paper = browser.value("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"  # no black sheets, whatever the screen has
    browser.ask("Emulation.setEmulatedMedia", media="", features=[])
    assert 3 <= browser.pages() <= 15


def test_the_browser_would_see_a_complaint_and_a_request(browser, tmp_path):
    """Or the tests above could not fail."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<script>console.error("alas")</script><img src="http://127.0.0.1:9/a.png"><p style="width:5000px">x'
    )
    browser.open(bad)
    assert any("alas" in one for one in browser.complaints())
    assert "http://127.0.0.1:9/a.png" in browser.requests()
    assert browser.value("document.documentElement.scrollWidth") > 1280
    bad.write_text(
        """<meta http-equiv="Content-Security-Policy" content="default-src 'none'"><img src="http://127.0.0.1:9/a.png">"""
    )
    browser.open(bad)
    assert browser.complaints()


def contrast(one: list[int], other: list[int]) -> float:
    """The contrast of two colours as WCAG counts it."""

    def light(colour: list[int]) -> float:
        parts = [value / 255 for value in colour]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)

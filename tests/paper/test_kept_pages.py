"""The pages under docs/paper hold together: figures, CSV files and numbers are there, with steps, n and commit."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from maxmatch.paper.targets import TARGETS

KEPT = Path(__file__).parents[2] / "docs" / "paper"
PAGES = sorted(path for path in KEPT.glob("*.md") if path.name != "README.md")
WANTED = ("fig-losses-short", "fig-k-short", "fig-anchoring-short-cifar10-250", "table-augment-short-cifar10-250")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_four_comparisons_are_kept():
    assert {path.stem for path in PAGES} >= set(WANTED)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_has_its_files_and_says_its_budget(page):
    text = page.read_text()
    name = page.stem.split("-short")[0]
    assert TARGETS[name].where in text.splitlines()[0]
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (KEPT / link).exists(), link
    assert (KEPT / f"{page.stem}.svg").read_text().lstrip().startswith("<?xml")
    runs = rows(KEPT / f"{page.stem}-runs.csv")
    assert all(run["state"] == "finished" and re.fullmatch("[0-9a-f]{40}", run["commit"]) for run in runs)
    steps = {int(run["steps"]) for run in runs}
    assert all(f"| steps of each run | {count:,} |" in text for count in steps)
    assert len(steps) == 1
    folds = {run["fold"] for run in runs}
    assert f"| n, folds | {len(folds)} |" in text
    assert f"maxmatch paper run {name} --budget short" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_numbers_of_a_page_are_those_of_its_runs(page):
    text, runs = page.read_text(), rows(KEPT / f"{page.stem}-runs.csv")
    for run in runs:
        same = [float(r["last"]) for r in runs if (r["labels"], r["method"]) == (run["labels"], run["method"])]
        assert f"| {run['labels']} | {run['method']} | {sum(same) / len(same):.2f}" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_index_has_every_page(page):
    assert f"]({page.name})" in (KEPT / "README.md").read_text()

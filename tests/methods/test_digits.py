"""Twelve steps on digits: what each unlabelled term does to the weights."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

import maxmatch


@pytest.mark.parametrize(
    ("name", "term", "options"),
    [
        ("vat", "weight", {}),
        ("vat", "entropy", {}),
        ("vat", "weight", {"k": 2, "over": "worst"}),
        ("ict", "weight", {}),
        ("ict", "weight", {"k": 2, "over": "worst"}),
        ("mixmatch", "weight", {}),
        ("mixmatch", "weight", {"over": "worst"}),
        ("remixmatch", "weight", {}),
        ("remixmatch", "anchored", {}),
        ("remixmatch", "rotation", {}),
        ("remixmatch", "weight", {"over": "worst"}),
    ],
    ids=str,
)
def test_the_term_changes_the_weights(tiny, tmp_path, name, term, options):
    for folder, method in (("with", options), ("again", options), ("without", {**options, term: 0.0})):
        maxmatch.fit(tiny(name, method=method), tmp_path / folder, quiet=True)
    used, again, unused = (load_file(tmp_path / f / "model.safetensors") for f in ("with", "again", "without"))
    assert all(torch.equal(used[n], again[n]) for n in used)
    for tensor in ("stem.weight", "blocks.0.conv1.weight"):
        moved = (used[tensor] - unused[tensor]).norm() / unused[tensor].norm()
        assert moved > 1e-4, (tensor, moved)


@pytest.mark.parametrize("name", ["vat", "ict", "mixmatch", "remixmatch"])
def test_float64_and_a_number_of_views_that_is_drawn(tiny, tmp_path, name):
    recipe = tiny(name, method={"k": "1,2", "over": "worst"}, train={"precision": "float64", "steps": 4})
    result = maxmatch.fit(recipe, tmp_path / "a", quiet=True)
    assert 0 < result["unlabeled_loss"] < 10

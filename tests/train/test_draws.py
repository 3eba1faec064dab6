"""Rows of draws: the plan's own numbers, in their places, whatever the order of asking."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from maxmatch.augment import Views, Weak, randaugment
from maxmatch.data.plan import BLOCK, Plan
from maxmatch.methods.base import Needs
from maxmatch.train.draws import Draws, Rows

VIEWS = Views(Weak(), randaugment("fixmatch"))


def draws(strong=3, x_strong=False, mix=None, seed=5) -> Draws:
    needs = Needs(weak=1, strong=strong, x_strong=x_strong, mix=mix)
    return Draws(Plan(seed), needs, VIEWS, (4, 10), (6, 100), {"lr": lambda t: 0.1 * t, "progress": lambda t: t / 100})


@pytest.mark.parametrize("step", [0, 7, BLOCK - 1, BLOCK, 3 * BLOCK + 5])
def test_a_row_holds_what_the_plan_draws(step):
    made, plan = draws(x_strong=True), Plan(5)
    rows = Rows(made, torch.device("cpu"))
    rows.load(step)
    row = rows.row
    assert row["lr"].item() == pytest.approx(0.1 * step)
    assert row["progress"].item() == pytest.approx(step / 100)
    assert row["step"].item() == step
    assert row["labelled"].tolist() == plan.indices("labelled", step, 4, 10).tolist()
    assert row["unlabelled"].tolist() == plan.indices("unlabelled", step, 6, 100).tolist()
    assert row["strong"].shape == (3, 6, VIEWS.strong_uniforms)
    for view in range(3):
        expected = plan.uniforms(f"strong/{view}", step, (6, VIEWS.strong_uniforms))
        assert np.array_equal(row["strong"][view].numpy(), expected)
    assert np.array_equal(row["weak"][0].numpy(), plan.uniforms("weak/0", step, (6, 3)))
    assert row["labelled/strong"].shape == (1, 4, VIEWS.strong_uniforms)


def test_rows_may_be_asked_for_in_any_order_and_stay_in_place():
    rows = Rows(draws(), torch.device("cpu"))
    place = rows.row["strong"].data_ptr()
    rows.load(40)
    first = rows.row["strong"].clone()
    rows.load(3)
    assert not torch.equal(rows.row["strong"], first)
    rows.load(40)
    assert torch.equal(rows.row["strong"], first)
    assert rows.row["strong"].data_ptr() == place


def test_the_first_view_is_the_same_whatever_k_is():
    one, three = (Rows(draws(strong), torch.device("cpu")) for strong in (1, 3))
    for rows in (one, three):
        rows.load(9)
    assert torch.equal(one.row["strong"][0], three.row["strong"][0])


def test_a_schedule_of_k_follows_the_training():
    made = draws("1:0.2..3:0.5..2:0.3")
    assert [made.k(t) for t in (0, 19, 20, 69, 70, 99)] == [1, 1, 3, 3, 2, 2]
    rows = Rows(made, torch.device("cpu"))
    rows.load(5)
    assert rows.row["strong"].shape[0] == 3  # the most that a step has


def mixing(step: int, **options) -> tuple[torch.Tensor, torch.Tensor]:
    rows = Rows(draws(**options), torch.device("cpu"))
    rows.load(step)
    return rows.row["mix/order"].clone(), rows.row["mix/weight"].clone()


def test_mixing_draws_are_there_on_request_for_labelled_images_weak_views_and_variants():
    assert [len(drawn) for drawn in mixing(0)] == [0, 0]
    assert [len(drawn) for drawn in mixing(0, mix=0.5)] == [4 + 6 + 3 * 6] * 2


@pytest.mark.parametrize("step", [0, 7, BLOCK - 1, BLOCK + 3])
def test_mixing_draws_are_a_pure_function_of_seed_and_step(step):
    one, again, seeded = mixing(step, mix=0.5), mixing(step, mix=0.5), mixing(step, mix=0.5, seed=6)
    for drawn, same, other, later in zip(one, again, seeded, mixing(step + 1, mix=0.5), strict=True):
        assert torch.equal(drawn, same)
        assert not torch.equal(drawn, other)
        assert not torch.equal(drawn, later)


@pytest.mark.parametrize("step", [0, 7, BLOCK + 3])
def test_the_first_mixing_draws_are_the_same_whatever_k_is(step):
    for few, many in zip(mixing(step, strong=1, mix=0.75), mixing(step, strong=3, mix=0.75), strict=True):
        assert len(few) < len(many)
        assert torch.equal(few, many[: len(few)])


def test_alpha_reaches_the_weights_and_the_order_is_uniform():
    for alpha in (0.3, 4.0):
        rows = Rows(draws(mix=alpha), torch.device("cpu"))
        found: dict[str, list[torch.Tensor]] = {"mix/order": [], "mix/weight": []}
        for step in range(10 * BLOCK):
            rows.load(step)
            for name, drawn in found.items():
                drawn.append(rows.row[name].clone())
        order, weight = (torch.cat(drawn) for drawn in found.values())
        assert weight.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.05)
        assert weight.mean().item() == pytest.approx(0.5, abs=0.02)
        assert order.var().item() == pytest.approx(1 / 12, rel=0.05)
        assert abs(torch.corrcoef(torch.stack([order, weight]))[0, 1].item()) < 0.05


def test_mixing_disturbs_no_other_draw():
    with_mix, without = (Rows(draws(mix=mix), torch.device("cpu")) for mix in (0.5, None))
    for rows in (with_mix, without):
        rows.load(9)
    for name in ("labelled", "unlabelled", "weak", "strong", "labelled/weak"):
        assert torch.equal(with_mix.row[name], without.row[name]), name


def test_k_follows_its_distribution():
    assert draws(3).k(0) == 3
    drawn = [draws(((1, 0.25), (4, 0.75))).k(step) for step in range(400)]
    assert set(drawn) == {1, 4}
    assert 0.68 < drawn.count(4) / 400 < 0.82

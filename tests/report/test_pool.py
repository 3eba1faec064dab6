"""The gallery: views, losses and operations replayed by hand, and the same order as `predict --unlabeled`."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import torch

import maxmatch
from maxmatch.augment.ops import CODE
from maxmatch.data.plan import Plan
from maxmatch.report.pool import Fooled, Pool, fooled_by, judge_pool, show
from maxmatch.train.finished import open_run
from maxmatch.train.unlabelled import CHUNK, label_unlabelled, without_label


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    given = {"net": {"name": "wrn-10-1"}, "train": {"steps": 30, "batch": 16, "ratio": 2, "threads": 1}}
    folder = tmp_path_factory.mktemp("pool") / "run"
    maxmatch.fit(maxmatch.compose("digits", "maxmatch", given=given), folder, quiet=True)
    return folder


def test_losses_and_names_of_views_by_hand(run):
    """Oracle: the views drawn from the plan here, the classifier's probabilities, minus a logarithm."""
    finished = open_run(run)
    position = np.array([5, 700, 1100])
    pool = judge_pool(finished, position, 2, 1175)
    classifier, plan, views = finished.classifier, Plan(finished.recipe.train.seed), finished.views
    shown = show(finished, pool, [0, 1, 2])
    for place, index in enumerate(position):
        own = classifier.predict_proba(finished.images.x[index : index + 1])[0]
        assert int(pool.label[place]) == own.argmax()
        assert float(pool.confidence[place]) == pytest.approx(own.max(), abs=1e-5)
        assert int(pool.truth[place]) == int(finished.images.y[index])
        chunk, row = divmod(int(index), CHUNK)
        for view in range(2):
            u = torch.from_numpy(plan.uniforms(f"evaluate/unlabelled/{view}", chunk, (CHUNK, views.strong_uniforms)))[
                row : row + 1
            ]
            strong = views.strong_views(finished.images.x[index : index + 1], u[None])
            chance = classifier.predict_proba(strong.images[0])[0]
            assert float(pool.view_loss[view, place]) == pytest.approx(
                -np.log(chance[own.argmax()]), rel=1e-4, abs=1e-6
            )
            assert int(pool.view_label[view, place]) == chance.argmax()
            assert pool.op[view, place].tolist() == strong.op[0, 0].tolist()
            assert torch.equal(shown[place].views[view], strong.images[0, 0])
            draw = views.strong.sample(u[:, views.weak_uniforms :], (8, 8))
            assert shown[place].names[view] == views.strong.describe(draw)[0]


def test_what_to_label_next_is_what_predict_says(run, tmp_path):
    finished = open_run(run)
    alone = without_label(finished)
    pool = judge_pool(finished, alone, 3, len(alone))
    label_unlabelled(run, tmp_path / "next.csv", k=3)
    rows = list(csv.DictReader((tmp_path / "next.csv").open()))
    assert pool.position[pool.next_first[:20]].tolist() == [int(row["index"]) for row in rows[:20]]
    assert [round(float(pool.disagreement[i]), 4) for i in pool.next_first[:20]] == [
        float(row["disagreement"]) for row in rows[:20]
    ]


def test_operations_are_counted_by_view():
    """Two images, two views: rotate stands in three of four views and changes the class in two of them."""
    rotate, invert = CODE["rotate"], CODE["invert"]
    pool = Pool(
        position=torch.tensor([0, 1]),
        label=torch.tensor([7, 7]),
        confidence=torch.ones(2),
        truth=torch.tensor([-1, -1]),
        view_loss=torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        view_label=torch.tensor([[1, 1], [7, 7]]),
        op=torch.tensor([[[rotate, 0], [rotate, invert]], [[rotate, 0], [0, 0]]]),
        total=2,
    )
    assert fooled_by(pool) == [Fooled("invert", 1, 1, 2.0), Fooled("rotate", 3, 2, 2.0), Fooled("none", 1, 0, 4.0)]
    assert pool.worst.tolist() == [3.0, 4.0]
    assert pool.disagreement.tolist() == [0.5, 0.5]

"""Health figures worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import top_k_accuracy_score

from maxmatch.augment.ops import CODE
from maxmatch.methods.base import Losses, Seen
from maxmatch.train.fit import begin, fit
from maxmatch.train.health import Health
from maxmatch.train.log import read_metrics
from maxmatch.train.recipe import resolve


def seen() -> Seen:
    return Seen(
        target=torch.tensor([0, 1, 1, 0]),
        keep=torch.tensor([True, True, True, False]),
        per_view=torch.tensor([[1.0, 2.0, 3.0, 9.0], [2.0, 1.0, 5.0, 9.0]]),
        winner=torch.tensor([1, 0, 1, 0]),
        unlabeled_loss=torch.tensor(9.0 / 4),
    )


def test_the_figures_of_one_step():
    health = Health(("supervised", "unlabeled"), views=2, device=torch.device("cpu"))
    r, s, i = CODE["rotate"], CODE["solarize"], CODE["identity"]
    op = torch.tensor([[[r, i], [r, s], [i, i], [r, r]], [[s, i], [i, i], [r, r], [s, s]]])
    losses = Losses({"supervised": torch.tensor(0.5), "unlabeled": torch.tensor(4.5)}, seen())
    health.add(losses, op, truth=torch.tensor([0, 0, -1, 0]))
    found = health.read()
    assert found["supervised_loss"] == 0.5
    assert found["unlabeled_term"] == 4.5  # with its weight, as optimised
    assert found["unlabeled_loss"] == 9 / 4  # before it
    assert found["unlabeled_loss_min"] == (1 + 1 + 3) / 4
    assert found["mask_rate"] == 3 / 4
    assert found["pseudo_label_accuracy"] == 1 / 2  # of the two kept images whose truth is known
    assert found["view_wins"] == pytest.approx([1 / 3, 2 / 3])
    # Of the kept images: rotate stands in view 0 of images 0 and 1 and view 1 of image 2; it wins with images 1 and 2.
    assert found["op_wins"]["rotate"] == pytest.approx(2 / 3)
    # solarize: view 0 of image 1 (won), view 1 of image 0 (won)
    assert found["op_wins"]["solarize"] == 1.0
    assert health.read()["mask_rate"] == 0  # the sums began again


def test_guesses_are_judged_on_all_images_whose_truth_is_known():
    p = torch.tensor(
        [
            [0.9, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0],  # right, and kept
            [0.1, 0.3, 0.2, 0.1, 0.1, 0.15, 0.05],  # wrong, and the truth is the last of seven
            [0.1, 0.3, 0.2, 0.1, 0.1, 0.15, 0.05],  # the truth is not known
            [0.0, 0.3, 0.4, 0.05, 0.15, 0.1, 0.0],  # wrong, but the truth is fourth; not kept
        ]
    )
    losses = Losses({"supervised": torch.tensor(0.5), "unlabeled": torch.tensor(1.0)}, seen()._replace(guess=p))
    truth, op = torch.tensor([0, 6, -1, 5]), torch.zeros(2, 4, 1, dtype=torch.int64)
    for classes, top5 in ((7, 100 / 3), (5, None)):
        health = Health(("supervised", "unlabeled"), views=2, device=torch.device("cpu"), classes=classes)
        for _ in range(2):
            health.add(losses, op, truth)
        found = health.read()
        assert found["guess_error"] == pytest.approx(200 / 3)
        assert found["guess_top5_error"] == (None if top5 is None else pytest.approx(top5))
        assert health.read()["guess_error"] is None  # the sums began again
    health.add(losses._replace(seen=seen()), op, truth)
    assert health.read()["guess_error"] is None  # no guess: nothing to judge


def test_the_first_step_that_was_not_finite_is_kept_of_each_term():
    health = Health(("supervised", "unlabeled"), views=1, device=torch.device("cpu"))
    skipped = []
    for step, (one, other) in enumerate([(1, 1), (1, math.nan), (math.inf, 1), (1, math.nan), (1, 1)]):
        terms = {"supervised": torch.tensor(float(one)), "unlabeled": torch.tensor(float(other))}
        skipped.append(health.guard(Losses(terms), torch.tensor(step)).item())
    assert skipped == [0, 1, 1, 1, 0]
    assert health.first_bad.tolist() == [2, 1]
    assert health.failure() == ("unlabeled", 1)


@pytest.mark.parametrize(("method", "options"), [("fixmatch", {}), ("maxmatch", {"k": 2, "strategy": "select"})])
def test_a_run_logs_the_errors_of_its_guesses(tiny, tmp_path, method, options):
    """The guesses of a net without BatchNorm are its predictions on the weak views; scikit-learn counts."""
    recipe = tiny(method, net={"name": "plain-conv"}, method=options, train={"precision": "float64"})
    step = begin(resolve(recipe, device="cpu", threads=1), tmp_path, quiet=True).step
    said, truths = [], []
    for t in range(20):
        step.rows.load(t)
        batch, _ = step.batches(step.rows.row, step.draws.k(t))
        said.append(torch.cat(list(step.run.score(batch.weak[0]))))
        truths.append(step.batches.hidden[batch.index])
        step(t)
    said, truths = torch.cat(said).numpy(), torch.cat(truths).numpy()
    assert (truths < 0).any()  # a labelled image stands in the pool too, and is not counted
    said, truths = said[truths >= 0], truths[truths >= 0]
    found = step.health.read()
    for name, k in (("guess_error", 1), ("guess_top5_error", 5)):
        right = top_k_accuracy_score(truths, said, k=k, labels=range(10))
        assert found[name] == pytest.approx(100 * (1 - right))
    assert found["guess_top5_error"] < found["guess_error"]


def test_soft_targets_and_several_steps_are_averaged():
    health = Health(("supervised", "unlabeled"), views=3, device=torch.device("cpu"))
    op = torch.zeros(2, 4, 1, dtype=torch.int64)
    soft = seen()._replace(target=torch.nn.functional.one_hot(seen().target, 2).float())
    for loss in (1.0, 3.0):
        losses = Losses({"supervised": torch.tensor(loss), "unlabeled": torch.tensor(loss)}, soft)
        health.add(losses, op, truth=torch.tensor([0, 1, 1, 1]))
    found = health.read()
    assert found["supervised_loss"] == 2.0
    assert found["pseudo_label_accuracy"] == 1.0
    assert found["view_wins"] == pytest.approx([1 / 3, 2 / 3, 0])


def test_the_first_bad_term_and_step_are_kept():
    health = Health(("supervised", "unlabeled"), views=1, device=torch.device("cpu"))

    def guard(step: int, supervised: float, unlabeled: float) -> float:
        terms = {"supervised": torch.tensor(supervised), "unlabeled": torch.tensor(unlabeled)}
        return health.guard(Losses(terms), torch.tensor(step)).item()

    assert guard(0, 1.0, 2.0) == 0
    assert health.failure() is None
    assert guard(1, 1.0, float("inf")) == 1
    assert guard(2, float("nan"), 1.0) == 1
    assert health.failure() == ("unlabeled", 1)


@pytest.mark.parametrize("method", ["fixmatch", "ict", "mixmatch", "remixmatch"])
def test_what_is_mixed_is_counted_by_what_each_image_itself_was_taken_for(tiny, tmp_path, method):
    """The target of two images mixed is not the guess of either: where all count, both figures are of one guess."""
    own = {"threshold": 0.0} if method == "fixmatch" else {}
    fit(tiny(method, method=own, train={"steps": 2, "log_every": 1}), tmp_path, quiet=True)
    found = [line for line in read_metrics(tmp_path / "metrics.jsonl") if line["kind"] == "train"]
    assert len(found) == 2
    for line in found:
        assert line["guess_error"] == pytest.approx(100 * (1 - line["pseudo_label_accuracy"]))


def test_the_mask_rate_of_weights_is_their_mean():
    health = Health(("supervised", "unlabeled"), views=2, device=torch.device("cpu"))
    weighed = seen()._replace(keep=torch.tensor([1.0, 0.5, 0.25, 0.0]))
    losses = Losses({"supervised": torch.tensor(0.5), "unlabeled": torch.tensor(1.0)}, weighed)
    health.add(losses, torch.zeros(2, 4, 1, dtype=torch.int64), truth=torch.tensor([0, 1, 1, 1]))
    found = health.read()
    assert found["mask_rate"] == 1.75 / 4
    assert found["unlabeled_loss_min"] == (1 * 1.0 + 0.5 * 1.0 + 0.25 * 3.0) / 4

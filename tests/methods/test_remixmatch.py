"""ReMixMatch by hand: alignment, sharpening, mixing, the anchored view, and the rotation that a head must tell."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from contract.world import CLASSES, UNLABELLED, make_world
from contract.world import make_batch as make_real_batch
from torch import nn

import maxmatch
from maxmatch.errors import UsageError
from maxmatch.methods.base import Mix
from maxmatch.methods.remixmatch import ReMixMatch
from maxmatch.nets import make_net, num_features
from maxmatch.nets.averaging import Average
from maxmatch.nets.batchnorm import set_mode
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train.fit import begin, fit
from maxmatch.train.log import read_metrics
from maxmatch.train.recipe import resolve
from maxmatch.train.runner import Runner
from methods.pictures import (
    VIEWS,
    WEAK,
    Table,
    X,
    Y,
    between,
    chance,
    cross_entropy,
    images,
    log_odds,
    make_batch,
    mean,
    sharper,
)

# Two labelled images, three strong views and three more, three weak views. Weights on both sides of 1/2.
PARTNERS = {1: (4, 2, 7, 1, 3, 0, 6, 5), 2: (5, 3, 0, 10, 1, 8, 4, 6, 2, 7, 9)}
WEIGHTS = (0.9, 0.2, 0.7, 0.45, 0.6, 0.05, 0.8, 0.35, 0.65, 0.25, 0.85)
PREDICTED, LABELLED = 0.6, 0.55  # running means of class 1
HEAD = ((0.5, -1.0), (0.2, 0.3), (-0.4, 0.1), (0.0, 0.7))
BIAS = (0.1, 0.0, -0.2, 0.3)


def case(k: int):
    return make_batch(k, PARTNERS[k], WEIGHTS)


def table(progress: float = 1.0) -> Table:
    state = ReMixMatch().state(2, 3, 2).double()
    state["alignment"].predicted.copy_(torch.tensor([1 - PREDICTED, PREDICTED]))
    state["alignment"].labelled.copy_(torch.tensor([1 - LABELLED, LABELLED]))
    with torch.no_grad():
        state["rotation"].weight.copy_(torch.tensor(HEAD))
        state["rotation"].bias.copy_(torch.tensor(BIAS))
    return Table(progress, state)


def guessed(p: float, align: bool = True) -> float:
    """Aligned, then sharpened."""
    one, zero = p * LABELLED / PREDICTED, (1 - p) * (1 - LABELLED) / (1 - PREDICTED)
    return sharper(one / (one + zero) if align else p)


def by_hand(k: int, align: bool = True) -> tuple[float, list[list[float]]]:
    """The supervised loss, and the loss of each mixed view: K strong ones and, last, the weak one."""
    guess = [guessed(p, align) for p in WEAK]
    # The table's strong views of the labelled images show 1 - p.
    odds = [log_odds(p) for p in (*(1 - p for p in X), *(p for view in VIEWS[:k] for p in view), *WEAK)]
    taught = [*map(float, Y), *guess * (k + 1)]
    losses = []
    for image, partner in enumerate(PARTNERS[k]):
        weight = max(WEIGHTS[image], 1 - WEIGHTS[image])
        q = chance(between(odds[image], odds[partner], weight))
        losses.append(cross_entropy(q, between(taught[image], taught[partner], weight)))
    return mean(losses[:2]), [losses[2 + 3 * view : 5 + 3 * view] for view in range(k + 1)]


def rotation_by_hand() -> float:
    """The head on the first strong view; image i is turned by i quarters, and 1 x 1 pixels look the same turned."""
    losses = []
    for quarters, p in enumerate(VIEWS[0]):
        logits = (-log_odds(p) / 2, log_odds(p) / 2)
        scores = [a * logits[0] + b * logits[1] + bias for (a, b), bias in zip(HEAD, BIAS, strict=True)]
        losses.append(math.log(sum(map(math.exp, scores))) - scores[quarters])
    return mean(losses)


@pytest.mark.parametrize(
    ("k", "over", "strategy"),
    [(1, "mean", "joint"), (2, "mean", "joint"), (1, "worst", "joint"), (2, "worst", "joint"), (2, "worst", "select")],
)
def test_all_four_terms_by_hand(k, over, strategy):
    method = ReMixMatch(k=k, over=over, strategy=strategy, weight=3, anchored=5, rotation=7)
    losses = method.losses(table(), case(k))
    supervised, (*per_view, weak) = by_hand(k)
    reduce = max if over == "worst" else mean
    strong = mean([reduce([view[image] for view in per_view]) for image in range(3)])
    anchored = mean([cross_entropy(p, guessed(q)) for p, q in zip(VIEWS[0], WEAK, strict=True)])
    assert {name: term.item() for name, term in losses.terms.items()} == pytest.approx(
        {
            "supervised": supervised,
            "unlabeled": 3 * (k * strong + mean(weak)) / (k + 1),
            "anchored": 5 * anchored,
            "rotation": 7 * rotation_by_hand(),
        }
    )
    assert tuple(losses.terms) == method.terms
    torch.testing.assert_close(losses.seen.per_view, torch.tensor(per_view, dtype=torch.float64), rtol=1e-6, atol=0)
    if over == "worst" and k == 2:
        assert len(set(losses.seen.winner.tolist())) == 2


def test_the_mean_is_the_paper_s_over_all_views_the_weak_one_too():
    _, per_view = by_hand(2)
    terms = ReMixMatch(weight=1).losses(table(), case(2)).terms
    assert terms["unlabeled"].item() == pytest.approx(mean([loss for view in per_view for loss in view]))


def test_without_alignment():
    run = table()
    del run.state["alignment"]
    terms = ReMixMatch(align=False, weight=1).losses(run, case(2)).terms
    _, per_view = by_hand(2, align=False)
    assert terms["unlabeled"].item() == pytest.approx(mean([loss for view in per_view for loss in view]))


def test_alignment_learns_from_the_predictions_before_it_and_once_a_step():
    for strategy in ("joint", "select"):
        run = table()
        ReMixMatch(over="worst", strategy=strategy).losses(run, case(2))
        predicted, labelled = run.state["alignment"].predicted[1], run.state["alignment"].labelled[1]
        assert predicted.item() == pytest.approx(PREDICTED + (mean(list(WEAK)) - PREDICTED) / 128, rel=1e-6)
        assert labelled.item() == pytest.approx(LABELLED + (0.5 - LABELLED) / 128, rel=1e-6)


def test_two_of_the_terms_rise_and_the_rotation_does_not():
    terms = [ReMixMatch().losses(table(progress), case(2)).terms for progress in (0, 1 / 128, 1)]
    for name, shares in {"supervised": (1, 1), "unlabeled": (0, 0.5), "anchored": (0, 0.5), "rotation": (1, 1)}.items():
        full = terms[-1][name].item()
        assert [t[name].item() for t in terms[:2]] == pytest.approx([share * full for share in shares]), name


def test_the_anchored_view_is_not_mixed():
    prepared = ReMixMatch().prepare(table(), case(2))
    assert torch.equal(prepared.weak[0], images(*VIEWS[0]))
    assert not torch.allclose(prepared.strong[0], images(*VIEWS[0]))
    assert prepared.guess[:, 1].tolist() == pytest.approx([guessed(p) for p in WEAK])


def test_labelled_images_are_strongly_augmented(tiny, tmp_path):
    batch = case(2)
    batch = replace(batch, mix=Mix(batch.mix.order, torch.ones(11, dtype=torch.float64)))
    assert torch.equal(ReMixMatch().prepare(table(), batch).x, batch.x_strong)
    training = begin(resolve(tiny("remixmatch"), device="cpu", threads=1), tmp_path / "a", quiet=True)
    training.step.rows.load(0)
    made, _ = training.step.batches(training.step.rows.row, 2)
    assert made.x_strong.shape == made.x.shape
    assert not torch.equal(made.x_strong, made.x)
    assert len(made.mix.weight) == 8 + 3 * 16


def test_no_gradient_reaches_the_guess():
    batch = case(2)
    batch = replace(batch, weak=batch.weak.clone().requires_grad_(), strong=batch.strong.clone().requires_grad_())
    prepared = ReMixMatch().prepare(table(), batch)
    assert not prepared.target.requires_grad
    assert not prepared.y.requires_grad


def test_the_rotation_label_is_the_number_of_quarter_turns():
    """Oracle: NumPy."""
    shown = torch.arange(6 * 2 * 3 * 3, dtype=torch.float64).view(6, 2, 3, 3) / 10
    run = table()
    run.state["rotation"] = nn.Linear(18, 4).double()
    head = run.state["rotation"]
    batch = replace(
        case(1), index=torch.arange(6), weak=shown[None] + 1, strong=shown[None], x_strong=shown[:2], x=shown[:2],
        mix=Mix(torch.rand(14), torch.rand(14)),
    )  # fmt: skip
    run.score = lambda *groups: [group.flatten(1)[:, :2] for group in groups]
    run.net = run.aside = run.score
    term = ReMixMatch(k=1, rotation=1).losses(run, batch).terms["rotation"]
    ((_, (turned,)),) = [call for call in run.calls if call[0] == "features"]
    oracle = np.stack([np.rot90(image, i % 4, (1, 2)) for i, image in enumerate(shown.numpy())])
    assert np.array_equal(turned.numpy(), oracle)
    told = nn.functional.cross_entropy(head(torch.from_numpy(oracle).flatten(1)), torch.tensor([0, 1, 2, 3, 0, 1]))
    torch.testing.assert_close(term, told)


@pytest.mark.parametrize("strategy", ["joint", "select"])
def test_unlabelled_images_leave_the_running_statistics_alone(strategy):
    base = make_real_batch()
    base = replace(base, mix=base.mix._replace(weight=torch.ones_like(base.mix.weight)))
    oracle, oracle_run = make_world("wrn")
    oracle_run.net(base.x_strong)
    for batch in (base, replace(base, strong=5 * base.strong + 1, weak=base.weak - 3)):
        net, run = make_world("wrn")
        method = ReMixMatch(k=3, over="worst", strategy=strategy)
        run.state = method.state(CLASSES, UNLABELLED, num_features(net)).double()
        method.losses(run, batch)
        for ours, theirs in zip(net.buffers(), oracle.buffers(), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_the_head_and_the_net_learn_from_the_rotation_and_the_optimiser_has_the_head(tiny, tmp_path):
    recipe = resolve(tiny("remixmatch", train={"weight_decay": 0.0}), device="cpu", threads=1)
    step = begin(recipe, tmp_path / "a", quiet=True).step
    head = step.state["rotation"]
    assert len(step.optimizer.momenta) == len([*step.net.parameters(), *head.parameters()])
    before = head.weight.detach().clone()
    step(0)
    assert head.weight.grad.abs().sum() > 0
    assert not torch.equal(before, head.weight)
    batch, _ = step.batches(step.rows.row, 2)
    term = step.method.losses(step.run, batch).terms["rotation"]
    to_stem, to_head = torch.autograd.grad(term, [step.net.stem.weight, step.net.head.weight], allow_unused=True)
    assert to_stem.abs().sum() > 0
    assert to_head is None


def test_the_rotation_is_learned(tiny, tmp_path):
    train = {"steps": 60, "batch": 16, "evaluate_every": 60, "log_every": 10, "checkpoint_every": 60}
    fit(tiny("remixmatch", method={"weight": 0, "anchored": 0}, train=train), tmp_path / "a", quiet=True)
    told = [m["rotation_loss"] for m in read_metrics(tmp_path / "a" / "metrics.jsonl") if m["kind"] == "train"]
    assert told[-1] < 0.8 * 0.5 * math.log(4)
    assert told[-1] < 0.8 * told[0]


@pytest.mark.parametrize(("bf16", "dtype"), [(True, torch.float32), (False, torch.float64)])
def test_the_head_takes_features_of_any_precision(bf16, dtype):
    torch.manual_seed(0)
    net = make_net("wrn-10-1", CLASSES, 1).to(dtype)
    set_mode(net, "train")
    run = Runner(net, Average(net, 0.9), Preprocessing(1, 8, 8), None, torch.tensor(0.5), torch.tensor(5), bf16=bf16)
    method = ReMixMatch(k=3)
    run.state = method.state(CLASSES, UNLABELLED, num_features(net))
    base = make_real_batch()
    shown = {name: getattr(base, name).to(dtype) for name in ("x", "x_strong", "weak", "strong")}
    term = method.losses(run, replace(base, **shown)).terms["rotation"]
    assert term.item() == pytest.approx(0.5 * math.log(4), rel=0.5)
    term.backward()
    assert net.stem.weight.grad.abs().sum() > 0


def test_refusals():
    wrong = {"alpha": 0.0, "temperature": 0.0, "anchored": -1.0, "rotation": math.inf, "target_gradient": True}
    for name, value in wrong.items():
        with pytest.raises(UsageError, match=name.replace("target_gradient", "no gradient")):
            ReMixMatch(**{name: value})


def test_images_that_are_not_square_are_refused_in_one_line():
    images, labels = torch.randint(0, 256, (40, 9, 8), dtype=torch.uint8), torch.arange(40) % 2
    data = maxmatch.from_arrays(images, labels)
    recipe = maxmatch.compose(None, "remixmatch", "digits", {"data": {"labels": 8}, "train": {"steps": 2, "batch": 4}})
    with tempfile.TemporaryDirectory() as folder, pytest.raises(UsageError, match="square, these have 9x8"):
        maxmatch.fit(recipe, folder + "/run", data=data, quiet=True)

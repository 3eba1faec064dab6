"""EMAN: the average of weights and statistics, in eval mode on weak views, makes the targets of any method."""

from __future__ import annotations

import math

import pytest
import torch

from maxmatch.errors import UsageError
from maxmatch.methods import make_method
from maxmatch.methods.fixmatch import FixMatch
from maxmatch.methods.maxmatch import MaxMatch
from maxmatch.nets import make_net
from maxmatch.nets.averaging import Average
from maxmatch.nets.batchnorm import set_mode
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train.fit import begin
from maxmatch.train.recipe import resolve
from maxmatch.train.recipes import compose
from maxmatch.train.runner import Runner
from methods.table import STRONG, WEAK, Watched, make_batch

# The teacher answers 1 - p, so that every label is the other one: the net's own would give other losses.
TURNED = [int(p < 0.5) for p in WEAK]
KEPT = [max(p, 1 - p) >= 0.95 for p in WEAK]


def cross_entropy_by_hand(view):
    return [-math.log(p if label else 1 - p) for p, label in zip(view, TURNED, strict=True)]


@pytest.mark.parametrize("strategy", ["joint", "select"])
@pytest.mark.parametrize("k", [1, 3])
def test_the_teacher_s_labels_are_taught_and_the_net_trains_on_labelled_and_strong(k, strategy):
    run, batch = Watched(teacher=lambda x: -x), make_batch(k)
    losses = MaxMatch(k=k, strategy=strategy, teacher="eman").losses(run, batch)
    per_view = [cross_entropy_by_hand(view) for view in STRONG[:k]]
    by_hand = sum(keep * max(column) for keep, column in zip(KEPT, zip(*per_view, strict=True), strict=True)) / 3
    assert losses.terms["unlabeled"].item() == pytest.approx(by_hand)
    assert losses.seen.target.tolist() == TURNED
    assert len(run.taught) == 1
    assert torch.equal(run.taught[0][0], batch.weak[0])
    assert len(run.trained) == 1
    x, *views = run.trained[0]
    assert torch.equal(x, batch.x)
    assert len(views) == (1 if strategy == "select" else k)
    assert not any(torch.equal(view, batch.weak[0]) for groups in run.trained + run.scored for view in groups)
    assert len(run.scored) == (1 if strategy == "select" else 0)


def test_fixmatch_with_eman_is_maxmatch_with_eman_at_one_view():
    values = [
        make(k=1, teacher="eman").losses(Watched(teacher=lambda x: -x), make_batch(1)).terms
        for make in (FixMatch, MaxMatch)
    ]
    assert values[0] == values[1]
    assert values[0] != FixMatch(k=1).losses(Watched(teacher=lambda x: -x), make_batch(1)).terms


def make_run(statistics):
    """A net and an average of it that differ in weights and in running statistics."""
    torch.manual_seed(0)
    net = make_net("wrn-10-1", 5, 1, momentum=0.5).double()
    average = Average(net, 0.8, statistics)
    for _ in range(3):
        with torch.no_grad():
            for p in net.parameters():
                p.add_(0.1 * torch.randn_like(p))
        net(3 * torch.randn(16, 1, 8, 8, dtype=torch.float64) + 1)
        average.update()
    set_mode(net, "train")
    return average, Runner(net, average, Preprocessing(1, 8, 8), None, torch.tensor(0.5), torch.tensor(5))


def test_the_teacher_of_a_run_is_the_average_in_eval_mode():
    average, run = make_run(statistics=True)
    images = torch.randn(6, 1, 8, 8, dtype=torch.float64)
    oracle = make_net("wrn-10-1", 5, 1).double()
    oracle.load_state_dict(average.net.state_dict())
    set_mode(oracle, "eval")
    (taught,) = run.teacher(images)
    torch.testing.assert_close(taught, oracle(images).detach(), rtol=1e-12, atol=1e-12)
    assert not taught.requires_grad
    alone = torch.cat([run.teacher(image[None])[0] for image in images])  # no image depends on the others of its batch
    torch.testing.assert_close(taught, alone, rtol=1e-9, atol=1e-9)
    (of_the_batch,) = make_run(statistics=False)[1].teacher(images)
    assert not torch.allclose(taught, of_the_batch)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("vat", {}, "teacher = eman: the target is the prediction of the net"),
        ("temporal-ensembling", {}, "teacher = eman: an image's own past"),
        ("adamatch", {}, "teacher = eman: its threshold"),
        ("fixmatch", {"target": "soft", "target_gradient": True}, "with teacher = eman the targets have no gradient"),
        ("supervised", {}, "unknown setting 'method.teacher'"),
    ],
)
def test_where_it_is_refused(name, options, message):
    with pytest.raises(UsageError, match=message):
        make_method({"name": name, "teacher": "eman", **options})


def test_a_run_with_it_averages_its_statistics(tmp_path):
    """Both kinds of tensors of the average, step by step, against a sum in NumPy."""
    given = {"method": {"teacher": "eman"}, "train": {"steps": 3, "batch": 8, "ema_decay": 0.9, "precision": "float64"}}
    recipe = resolve(compose("digits", "maxmatch", given=given), device="cpu", threads=1)
    step = begin(recipe, tmp_path, quiet=True).step
    expected = {name: tensor.numpy().copy() for name, tensor in step.average.net.state_dict().items()}
    for t in range(3):
        step(t)
        for name, tensor in step.net.state_dict().items():
            expected[name] += 0.1 * (tensor.detach().numpy() - expected[name])
    for name, tensor in step.average.net.state_dict().items():
        torch.testing.assert_close(tensor, torch.from_numpy(expected[name]), msg=name)
        assert not torch.equal(tensor, step.net.state_dict()[name]), name

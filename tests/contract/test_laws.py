"""The laws every method passes, over methods x reductions x strategies. Their numbers are those of the style guide."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from contract.world import (
    OVERS,
    UNLABELLED,
    changed,
    consistency_methods,
    gradients,
    in_the_middle,
    make_batch,
    make_world,
    settle,
    takes,
)
from maxmatch.errors import UsageError
from maxmatch.methods import METHODS, make_method, method_values
from maxmatch.methods.base import Consistency
from maxmatch.methods.reduce import REDUCTIONS, Best, Mean, Reduction, SoftWorst, Worst, WorstFraction
from maxmatch.nets.averaging import Average
from maxmatch.nets.batchnorm import BatchNorm, set_mode
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train.runner import Runner

# Fields that choose views, draws or the strategy need not change a loss (law 2).
EXEMPT = {"k", "strategy", "views", "alpha"}


def variants() -> list[tuple[str, dict[str, object]]]:
    """Every method with every reduction and every strategy that it takes."""
    found: list[tuple[str, dict[str, object]]] = []
    for name in METHODS:
        if name not in consistency_methods():
            found.append((name, {}))
            continue
        for over in OVERS:
            for strategy in ("joint", "select"):
                if strategy == "joint" or Reduction.parse(over).picks:
                    found.append((name, {"k": 3, "over": over, "strategy": strategy}))
        if takes(name, teacher="eman"):
            for strategy in ("joint", "select"):
                found.append((name, {"k": 3, "over": "worst", "strategy": strategy, "teacher": "eman"}))
    return found


each_variant = pytest.mark.parametrize(
    ("name", "options"),
    variants(),
    ids=lambda v: str(v) if isinstance(v, str) else "-".join(map(str, v.values())),
)
each_consistency = pytest.mark.parametrize("name", consistency_methods())


@each_variant
@pytest.mark.parametrize("kind", ["plain", "wrn"])
def test_1_terms_are_finite_and_every_parameter_learns(name, options, kind):
    net, run = make_world(kind)
    batch = make_batch()
    method = in_the_middle(name, net, batch, **options)
    losses = method.losses(settle(method, run, batch), batch)
    assert tuple(losses.terms) == method.terms
    assert all(term.ndim == 0 and term.isfinite() for term in losses.terms.values())
    sum(losses.terms.values()).backward()
    for parameter_name, parameter in net.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


def other_value(method, field):
    """A different legal value of a field."""
    value = getattr(method, field.name)
    choices = {
        "over": "best" if value == Worst() else "worst",
        "target": "soft" if value == "hard" else "hard",
        "augmentation": "weak" if value == "strong" else "strong",
        "target_gradient": True,
        "threshold": 0.0,
        "ramp": 0.9,
        "align": not value,
        "noise": 0.5,
        "momentum": 0.5,
        "annealing": "exp",
        "uniform": False,
        "climbs": 2,
        "ball": "linf",
        "teacher": "own" if value == "eman" else "eman",
    }
    return choices.get(field.name, 2.0 * value + 0.1 if isinstance(value, float) else None)


@each_variant
def test_2_no_hyper_parameter_is_dead(name, options):
    batch = make_batch()
    net, _ = make_world()
    base = in_the_middle(name, net, batch, **options)
    for field in dataclasses.fields(base):
        if field.name in EXEMPT:
            continue
        soft = field.name == "target_gradient" and takes(name, target="soft")
        method = changed(base, target="soft") if soft else base
        value = other_value(method, field)
        may_refuse = field.name in ("target_gradient", "teacher")
        if may_refuse and not takes(name, **{**method_values(method), field.name: value}):
            continue
        assert value is not None, f"this test has no other value for {field.name}: add one"
        if field.name == "over" and options.get("strategy") == "select" and not Reduction.parse(value).picks:
            continue
        outcomes = []
        for variant in (method, changed(method, **{field.name: value})):
            # Statistics that are averaged and taught by are there with BatchNorm alone.
            net, run = make_world("wrn" if field.name == "teacher" else "plain", eman=variant.averages_statistics)
            total = sum(variant.losses(settle(variant, run, batch), batch).terms.values())
            outcomes.append((total.item(), gradients(net, total)))
        same_loss = outcomes[0][0] == outcomes[1][0]
        assert not (same_loss and torch.equal(outcomes[0][1], outcomes[1][1])), f"{name}.{field.name} does nothing"


# VAT's variants are made of the weak view, and ReMixMatch mixes it with them: tests/methods has checks of its own.
@pytest.mark.parametrize(
    ("name", "options"), [v for v in variants() if v[1] and v[0] not in ("vat", "remixmatch")], ids=str
)
def test_3_the_variants_learn_and_the_target_does_not(name, options):
    net, run = make_world()
    batch = make_batch()
    if takes(name, target="soft"):
        options = {**options, "target": "soft"}
    for target_gradient in (False, True):
        if not takes(name, **options, target_gradient=target_gradient):
            continue
        method = in_the_middle(name, net, batch, **options, target_gradient=target_gradient)
        views = dataclasses.replace(
            batch, weak=batch.weak.clone().requires_grad_(), strong=batch.strong.clone().requires_grad_()
        )
        term = method.losses(settle(method, run, batch), views).terms["unlabeled"]
        assert term > 0
        to_weak, to_strong = torch.autograd.grad(term, [views.weak, views.strong], allow_unused=True)
        assert to_strong.abs().sum() > 0
        learns = target_gradient and method.needs.weak > 0  # some have no weak view beside their variants
        assert (to_weak is not None and to_weak.abs().sum() > 0) == learns


def test_3_the_teacher_is_the_average_with_the_statistics_of_its_batch_and_without_gradient():
    net, _ = make_world("wrn")
    with torch.no_grad():
        for name, buffer in net.named_buffers():
            buffer.fill_(9.0 if name.endswith("var") else 3.0)  # running statistics that fit nothing
    average = Average(net, 0.5)
    run = Runner(net, average, Preprocessing(1, 8, 8), None, torch.tensor(0.5), torch.tensor(50))
    with torch.no_grad():
        net.head.weight.add_(1)
    average.update()
    x = make_batch().x
    before = [b.clone() for b in (*net.buffers(), *average.net.buffers())]
    (taught,) = run.teacher(x)
    assert not taught.requires_grad
    assert all(torch.equal(a, b) for a, b in zip(before, (*net.buffers(), *average.net.buffers()), strict=True))
    oracle, _ = make_world("wrn")
    set_mode(oracle, "score")
    with torch.no_grad():
        oracle.head.weight.add_(0.5)  # half of the way
        torch.testing.assert_close(taught, oracle(x))
    assert not average.net.training
    assert all(module.mode == "eval" for module in average.net.modules() if isinstance(module, BatchNorm))


def test_7_numbers_survive_to_the_last_digit():
    for over in (WorstFraction(2 / 3), SoftWorst(0.123456789)):
        method = make_method({"name": "maxmatch", "over": over})
        assert make_method(json.loads(json.dumps(method_values(method)))) == method
    assert WorstFraction(2 / 3).choose(torch.rand(3, 2)).shape[0] == 2
    assert WorstFraction(0.28).choose(torch.rand(25, 2)).shape[0] == 7
    assert WorstFraction(1e-12).choose(torch.rand(3, 2)).shape[0] == 1
    with pytest.raises(UsageError, match=r"fraction:1\.0000001: the fraction lies in"):
        WorstFraction(1.0000001)
    for k in ("1,2,3,4,5,6,7,8,9", "1:3,2:7,5:11", "2:1,3:5,9:1", "1..3", "7:1..2:2..3:4"):
        method = make_method({"name": "maxmatch", "k": k})
        assert make_method(json.loads(json.dumps(method_values(method)))) == method


losses_of_views = arrays.arrays("float64", st.tuples(st.integers(1, 7), st.integers(1, 5)), elements=st.floats(0, 20))


@given(losses_of_views, st.floats(0.05, 5), st.floats(0.01, 1), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_4_reductions_are_ordered_and_blind_to_the_order_of_views(values, tau, q, shuffle):
    per_view = torch.from_numpy(values)
    best, mean, soft, fraction, worst = (
        over(per_view).value for over in (Best(), Mean(), SoftWorst(tau), WorstFraction(q), Worst())
    )
    slack = 1e-9
    assert (best <= mean + slack).all()
    assert (mean <= soft + slack).all()
    assert (soft <= worst + slack).all()
    assert (mean <= fraction + slack).all()
    assert (fraction <= worst + slack).all()
    if len(per_view) == 1:
        for value in (best, mean, soft, fraction, worst):
            torch.testing.assert_close(value, per_view[0])
    order = list(range(len(per_view)))
    shuffle.shuffle(order)
    for over in (Best(), Mean(), SoftWorst(tau), WorstFraction(q), Worst()):
        torch.testing.assert_close(over(per_view[order]).value, over(per_view).value)


def test_4_reductions_by_hand_and_who_won():
    per_view = torch.tensor([[1.0, 5.0], [3.0, 4.0], [2.0, 9.0], [0.5, 1.0]])
    expected = {
        "worst": ([3.0, 9.0], [1, 2]),
        "best": ([0.5, 1.0], [3, 3]),
        "mean": ([1.625, 4.75], [1, 2]),
        "fraction:0.5": ([2.5, 7.0], [1, 2]),
        "fraction:0.3": ([2.5, 7.0], [1, 2]),  # ceil(.3 * 4) = 2 views
        "fraction:0.25": ([3.0, 9.0], [1, 2]),
        "soft:1": ([2.0745, 7.6388], [1, 2]),  # log(mean(exp(l))): log(31.842 / 4), log(8308.8 / 4)
    }
    for spelling, (value, winner) in expected.items():
        reduced = Reduction.parse(spelling)(per_view)
        torch.testing.assert_close(reduced.value, torch.tensor(value), atol=1e-4, rtol=0)
        assert reduced.winner.tolist() == winner, spelling
    assert Mean().choose(per_view).tolist() == [[1, 2], [2, 0], [0, 1], [3, 3]]  # all count, the worst first


def test_4_worst_equals_the_limit_of_the_soft_one():
    per_view = torch.rand(5, 7, dtype=torch.float64)
    torch.testing.assert_close(SoftWorst(1e-4)(per_view).value, Worst()(per_view).value, atol=1e-3, rtol=0)
    torch.testing.assert_close(SoftWorst(1e4)(per_view).value, Mean()(per_view).value, atol=1e-4, rtol=0)


@pytest.mark.parametrize("tau", [1e-3, 0.3, 1.0, 1e5, 1e7])
def test_4_the_soft_one_keeps_its_digits_and_weighs_by_a_softmax(tau):
    per_view = torch.tensor([[0.1, 2.0], [0.2, 2.0], [0.3, 0.5]], requires_grad=True)
    exact = per_view.detach().double()
    value = SoftWorst(tau)(per_view).value
    by_hand = tau * (torch.logsumexp(exact / tau, 0) - torch.log(torch.tensor(3.0, dtype=torch.float64)))
    torch.testing.assert_close(value.double(), by_hand, atol=1e-6, rtol=1e-5)
    (gradient,) = torch.autograd.grad(value.sum(), per_view)
    torch.testing.assert_close(gradient.double(), torch.softmax(exact / tau, 0), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("tau", "instead"), [("inf", "mean"), ("0", "worst"), ("nan", "worst")])
def test_4_a_soft_one_without_a_temperature_is_refused(tau, instead):
    with pytest.raises(UsageError, match=f"type soft:1, or {instead} for its limit"):
        Reduction.parse(f"soft:{tau}")


@pytest.mark.parametrize(
    ("spelling", "told"),
    [
        ("fraction:0", r"the fraction lies in \(0, 1\]; type fraction:0.5"),
        ("fraction:1.01", r"the fraction lies in \(0, 1\]; type fraction:0.5"),
        ("fraction:half", "over = fraction:half: a number is wanted after 'fraction:'"),
        ("worst:2", "over = worst:2: 'worst' takes no parameter; type worst"),
        ("wurst", "did you mean 'worst'"),
    ],
)
def test_4_a_reduction_that_is_none_is_refused(spelling, told):
    with pytest.raises(UsageError, match=told):
        Reduction.parse(spelling)


def test_4_a_reduction_without_its_parameter_has_the_usual_one_and_1_is_the_whole():
    assert Reduction.parse("fraction") == WorstFraction(0.5)
    assert Reduction.parse("soft") == SoftWorst(1.0)
    per_view = torch.rand(5, 7, dtype=torch.float64)
    torch.testing.assert_close(WorstFraction(1.0)(per_view).value, per_view.mean(0))


@pytest.mark.parametrize("teacher", ["own", "eman"])
@pytest.mark.parametrize("over", ["worst", "best", "fraction:0.5"])
@each_consistency
def test_5_select_has_the_gradient_of_joint_without_batchnorm(name, over, teacher):
    if not takes(name, teacher=teacher):
        return
    net, run = make_world("plain")
    batch = make_batch()
    found = {}
    for strategy in ("joint", "select"):
        method = in_the_middle(name, net, batch, k=3, over=over, strategy=strategy, teacher=teacher)
        losses = method.losses(settle(method, run, batch), batch)
        found[strategy] = gradients(net, sum(losses.terms.values())), losses.seen
    torch.testing.assert_close(found["joint"][0], found["select"][0], rtol=1e-10, atol=1e-12)
    assert torch.equal(found["joint"][1].winner, found["select"][1].winner)


def test_5_select_differs_from_joint_with_batchnorm():
    """The two-sided check of the law above: batch statistics see other images, so the digits must differ."""
    batch = make_batch()
    found = []
    for strategy in ("joint", "select"):
        net, run = make_world("wrn")
        method = in_the_middle("maxmatch", make_world("plain")[0], batch, strategy=strategy)
        found.append(gradients(net, sum(method.losses(run, batch).terms.values())))
    assert not torch.allclose(*found)


@pytest.mark.parametrize("name", METHODS)
def test_2_what_chooses_views_and_draws_is_in_the_needs(name):
    for field, value, need in (
        ("k", 4, "strong"), ("views", "weak", "variants"), ("views", "strong", "variants"), ("alpha", 0.3, "mix"),
    ):  # fmt: skip
        if takes(name, **{field: value}):
            assert getattr(make_method({"name": name, field: value}).needs, need) == value, field


@each_variant
def test_running_statistics_move_once_a_step(name, options):
    """The scoring pass must leave them alone: after a step they are what one training pass makes of them."""
    net, run = make_world("wrn")
    batch = make_batch()
    before = net.stem.weight.detach().clone()
    passes = []
    method = make_method({"name": name, **options})
    settle(method, run, batch)
    run_net = run.net
    run.net = lambda *groups: passes.append(groups) or run_net(*groups)
    method.losses(run, batch)
    assert len(passes) == 1
    assert torch.equal(before, net.stem.weight)
    other, other_run = make_world("wrn")
    other_run.net(*passes[0])
    for ours, theirs in zip(net.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_5_maxmatch_with_one_view_is_fixmatch():
    net, run = make_world("wrn")
    batch = make_batch(k=1)
    found = []
    for name in ("fixmatch", "maxmatch"):
        losses = make_method({"name": name, "k": 1, "threshold": 0.3}).losses(run, batch)
        found.append(gradients(net, sum(losses.terms.values())))
    assert torch.equal(*found)


@each_variant
def test_7_a_method_survives_json_and_the_command_line(name, options):
    method = make_method({"name": name, **options})
    assert make_method(json.loads(json.dumps(method_values(method)))) == method
    from maxmatch.cli.options import given

    spoken = [f"method.{key}={json.dumps(value)}" for key, value in method_values(method).items()]
    values = given(None, spoken)["method"]
    assert make_method(values) == method
    assert hash(make_method(values)) == hash(method)


@pytest.mark.parametrize("name", METHODS)
def test_7_unknown_keys_are_refused_by_name(name):
    field = dataclasses.fields(make_method({"name": name}))[0].name
    with pytest.raises(UsageError, match=f"did you mean 'method.{field}'"):
        make_method({"name": name, f"{field}x": 1})


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("name", METHODS)
def test_7_no_number_is_infinite(name, value):
    """Else training stops at its first step, and a lower learning rate would be blamed."""
    method = make_method({"name": name})
    for field in dataclasses.fields(method):
        if isinstance(getattr(method, field.name), float):
            with pytest.raises(UsageError, match=field.name):
                make_method({"name": name, field.name: value})


def test_k_is_typed_as_a_number_or_a_distribution():
    assert make_method({"name": "maxmatch", "k": "3"}).k == 3
    assert make_method({"name": "maxmatch", "k": "3,1"}).k == ((1, 0.5), (3, 0.5))
    assert make_method({"name": "maxmatch", "k": "1:.5,2:.3,3:.2"}).k == ((1, 0.5), (2, 0.3), (3, 0.2))
    assert make_method({"name": "maxmatch", "k": "2:.499,1:.5"}).k == ((1, 0.5 / 0.999), (2, 0.499 / 0.999))
    assert make_method({"name": "maxmatch", "k": "1..3..1"}).k == "1..3..1"  # a schedule may come back to a K
    for wrong in (0, "0,1", -1, "x", "1:-1", True, "1,1", [], "", "1:nan", "1:0,2:1"):
        with pytest.raises(UsageError):
            make_method({"name": "maxmatch", "k": wrong})


@pytest.mark.parametrize("k", [1, 3])
@each_consistency
def test_5_select_scores_anchors_and_variants_in_one_pass(name, k):
    """Apart from each other BatchNorm would normalise them apart; `prepare` may ask on its own before."""
    net, run = make_world("plain")
    batch = make_batch(k=k)
    method = in_the_middle(name, net, batch, k=k, over="worst", strategy="select")
    settle(method, run, batch)
    prepared = method.prepare(run, batch)
    score, passes = run.score, []
    run.score = lambda *groups: passes.append(groups) or score(*groups)
    method._select(run, prepared)
    labelled = [prepared.x] if method.scores_labelled else []
    (asked,) = passes
    for group, wanted in zip(asked, (*labelled, *method.anchors(prepared), *prepared.strong), strict=True):
        assert torch.equal(group, wanted)


def test_mean_and_soft_worst_refuse_select_in_one_line():
    for over in ("mean", "soft"):
        with pytest.raises(UsageError, match="all views count, none is picked; type --strategy joint"):
            make_method({"name": "maxmatch", "over": over, "strategy": "select"})


def test_auto_is_select_where_views_are_picked():
    resolved = {
        (over, k): make_method({"name": "maxmatch", "over": over, "k": k}).resolved_strategy
        for over in REDUCTIONS
        for k in (1, 3)
    }
    assert {key for key, strategy in resolved.items() if strategy == "select"} == {
        ("worst", 3),
        ("best", 3),
        ("fraction", 3),
    }


def test_seen_is_detached_and_complete():
    for name, options in variants():
        net, run = make_world()
        batch = make_batch()
        method = in_the_middle(name, net, batch, **options)
        seen = method.losses(settle(method, run, batch), batch).seen
        if not isinstance(method, Consistency):
            assert seen is None
            continue
        assert seen.per_view.shape == (3, UNLABELLED)
        assert seen.winner.shape == seen.keep.shape == (UNLABELLED,)
        assert seen.guess is None or len(seen.guess) == UNLABELLED
        assert not any(part.requires_grad for part in seen if part is not None)

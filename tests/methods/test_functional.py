"""The pure functions that losses are made of, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from maxmatch.errors import UsageError
from maxmatch.methods.functional import entropy, kl_divergence, probabilities, sharpen, squared_error
from methods.table import logits


def test_squared_error_is_a_mean_over_the_classes():
    p = torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64)
    target = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    assert squared_error(p.log(), target).tolist() == pytest.approx([(0.04 + 0.49 + 0.25) / 3])


def test_kl_divergence_is_from_the_target_to_the_prediction():
    target = torch.tensor([[0.1, 0.9], [0.5, 0.5]], dtype=torch.float64)
    by_hand = 0.9 * math.log(0.9 / 0.4) + 0.1 * math.log(0.1 / 0.6)
    assert kl_divergence(logits(0.4, 0.5), target).tolist() == pytest.approx([by_hand, 0])
    assert kl_divergence(logits(0.9), target[:1]).item() == pytest.approx(0)


def test_kl_divergence_to_a_certain_target_is_the_cross_entropy():
    target = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    assert entropy(target).item() == 0
    assert kl_divergence(logits(0.4), target).item() == pytest.approx(-math.log(0.4))


def test_entropy():
    p = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    assert entropy(p).item() == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))


def test_entropy_counts_what_is_hardly_likely():
    p = torch.tensor([[1e-6, 1e-9, 1 - 1e-6 - 1e-9]], dtype=torch.float64)
    by_hand = -sum(c * math.log(c) for c in p[0].tolist())
    assert entropy(p).item() == pytest.approx(by_hand, rel=1e-9)


def test_kl_divergence_has_torch_s_gradient_on_both_sides():
    scores = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours, theirs = (scores.clone().requires_grad_() for _ in range(2))
    kl_divergence(ours[0], probabilities(ours[1])).sum().backward()
    logs = theirs.log_softmax(-1)
    torch.nn.functional.kl_div(logs[0], logs[1], reduction="sum", log_target=True).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("gap", [1.0, 30.0, 500.0])
def test_entropy_has_a_gradient_where_a_probability_is_0(gap):
    ours = torch.tensor([[0.0, gap]], requires_grad=True)
    entropy(sharpen(probabilities(ours), 0.4)).sum().backward()
    theirs = torch.tensor([[0.0, gap]], dtype=torch.float64, requires_grad=True)
    logs = torch.log_softmax(theirs / 0.4, -1)
    (-(logs.exp() * logs).sum()).backward()
    torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("temperature", [0.3, 0.5, 1.0, 2.0])
def test_sharpening_is_softmax_of_the_logits_over_the_temperature(temperature):
    zero, one = 0.3 ** (1 / temperature), 0.7 ** (1 / temperature)
    p = torch.tensor([[0.3, 0.7]], dtype=torch.float64)
    assert sharpen(p, temperature)[0].tolist() == pytest.approx([zero / (zero + one), one / (zero + one)])


def test_a_low_temperature_does_not_round_every_class_to_zero():
    p = torch.full((1, 100), 0.01)
    torch.testing.assert_close(sharpen(p, 0.01), p)


def test_probabilities_are_never_in_half_precision():
    assert probabilities(logits(0.3).bfloat16()).dtype == torch.float32
    assert probabilities(logits(0.3)).dtype == torch.float64


@pytest.mark.parametrize("distance", [squared_error, kl_divergence])
def test_a_distance_of_probabilities_refuses_labels(distance):
    flat = torch.zeros(2, 3)
    with pytest.raises(UsageError, match=rf"{distance.__name__} compares .* shape \(2,\): return Target\(p, keep\)"):
        distance(flat, torch.tensor([0, 1]))
    assert distance(flat, torch.full((2, 3), 1 / 3)).tolist() == pytest.approx([0, 0], abs=1e-6)

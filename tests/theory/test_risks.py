"""Proposition 1 in all its forms on random classifiers: the robust risk is never above it, and where it can't inform."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maxmatch.errors import UserError
from maxmatch.theory import bounds, risks

FORMS = ("printed", "corrected", "sharp", "sharp, hard")


@st.composite
def classifiers(draw):
    """Probabilities of images (N, C), of their views (K, N, C), labels, and an epsilon; from flat to nearly certain."""
    classes, images, views = draw(st.integers(2, 6)), draw(st.integers(1, 12)), draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    scale, noise = draw(st.sampled_from([0.01, 0.3, 1.0, 5.0, 20.0])), draw(st.sampled_from([0.0, 0.1, 1.0, 5.0]))
    logits = scale * torch.randn(images, classes, generator=generator, dtype=torch.float64)
    moved = logits + noise * torch.randn(views, images, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (images,), generator=generator)
    epsilon = draw(st.floats(0.001, 0.999)) / classes
    return logits.softmax(-1), moved.softmax(-1), labels, min(epsilon, 0.49)


@pytest.mark.parametrize("form", FORMS)
@given(case=classifiers())
def test_the_robust_risk_is_never_above_proposition_1(form, case):
    clean, views, labels, epsilon = case
    assert risks.robust_risk(views, labels) <= risks.proposition_1_on(form, clean, views, labels, epsilon).total + 1e-9


@given(case=classifiers())
def test_the_consistency_term_of_printed_and_corrected_is_at_least_1_for_every_classifier(case):
    clean, views, labels, epsilon = case
    for form in ("printed", "corrected"):
        assert risks.proposition_1_on(form, clean, views, labels, epsilon).terms["consistency"] >= 1 - 1e-9
        perfect = risks.proposition_1_on(form, clean, clean[None], clean.argmax(-1), epsilon)
        assert perfect.vacuous


def test_the_sharp_form_is_below_1_for_a_sure_right_and_consistent_classifier_and_tight_for_a_coin():
    sure = torch.tensor([[0.9, 0.1], [0.05, 0.95]], dtype=torch.float64)
    right = torch.tensor([0, 1])
    found = risks.proposition_1_on("sharp", sure, sure[None], right, 0.01)
    by_hand = -(0.9 * np.log(0.9) + 0.1 * np.log(0.1) + 0.05 * np.log(0.05) + 0.95 * np.log(0.95)) / 2 / np.log(2)
    assert found.terms["consistency"] == pytest.approx(by_hand)
    assert found.terms["labelled"] == pytest.approx(-(np.log(0.9) + np.log(0.95)) / 2 / np.log(2))
    assert found.total < 1
    hair = 1e-9  # labels that just differ: cross-entropy log 2, so no constant smaller than 1 / log 2 would do
    s = torch.tensor([0.5 + hair, 0.5 - hair], dtype=torch.float64)
    assert risks.soft_cross_entropy(s, s.flip(0)).item() == pytest.approx(math.log(2))


@given(st.integers(2, 8), st.integers(0, 2**31), st.sampled_from([0.05, 0.5, 5.0]))
def test_labels_that_differ_have_a_cross_entropy_of_at_least_log_2(classes, seed, concentration):
    generator = np.random.default_rng(seed)
    s, t = (torch.from_numpy(generator.dirichlet(np.full(classes, concentration), 200)) for _ in "st")
    differs = s.argmax(-1) != t.argmax(-1)
    assert (risks.soft_cross_entropy(s, t)[differs] >= math.log(2) - 1e-9).all()


def test_the_two_cross_entropies_by_hand():
    p = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64)
    label = torch.tensor([1])
    assert risks.log_loss(p, label).item() == pytest.approx(-np.log(0.2))
    score = np.log(np.exp(0.5) + 1 + np.exp(-0.1))
    assert risks.score_cross_entropy(p, label).item() == pytest.approx(score)
    # Fed with the logarithms instead, the hard cross-entropy is the log loss: the paper's one f is fed to both.
    assert risks.score_cross_entropy(p.log(), label).item() == pytest.approx(-np.log(0.2))
    t = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    assert risks.soft_cross_entropy(p, t).item() == pytest.approx(-(np.log(0.7) + np.log(0.2)) / 2)


def test_the_view_is_the_prediction_and_the_image_the_target():
    """Lines 288 and 292 of the text swap them; the two orders differ."""
    clean = torch.tensor([[0.9, 0.1]], dtype=torch.float64)
    view = torch.tensor([[[0.6, 0.4]]], dtype=torch.float64)
    assert risks.consistency_risk(clean, view) == pytest.approx(-(0.9 * np.log(0.6) + 0.1 * np.log(0.4)))
    assert risks.consistency_risk(clean, view) != pytest.approx(-(0.6 * np.log(0.9) + 0.4 * np.log(0.1)))


def test_the_robust_risk_counts_what_is_wrong_not_what_is_right():
    """The main text prints I[y' = y]; and an image counts if any view is wrong, whatever the image itself is."""
    right, wrong = [0.9, 0.1], [0.1, 0.9]
    views = torch.tensor([[right, right, wrong], [right, wrong, wrong]])
    assert risks.robust_risk(views, torch.tensor([0, 0, 0])) == pytest.approx(2 / 3)


def test_the_largest_of_the_views_counts():
    clean = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    views = torch.tensor([[[0.5, 0.5], [0.1, 0.9]], [[0.8, 0.2], [0.6, 0.4]]])
    by_hand = -(np.log(0.5) + np.log(0.4)) / 2
    assert risks.consistency_risk(clean, views) == pytest.approx(by_hand, rel=1e-6)


def test_forms_differ_in_the_labelled_loss_alone():
    clean = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64)
    label = torch.tensor([1])
    printed = risks.proposition_1_on("printed", clean, clean[None], label, 0.05)
    corrected = risks.proposition_1_on("corrected", clean, clean[None], label, 0.05)
    f = 0.85 * clean[0].numpy() + 0.05
    assert printed.terms["labelled"] == pytest.approx(np.log(np.exp(f - f[1]).sum()) / np.log(2))
    assert corrected.terms["labelled"] == pytest.approx(-np.log(f[1]) / np.log(2))
    assert printed.terms["consistency"] == corrected.terms["consistency"]
    c_1 = bounds.consistency_constant(classes=3, epsilon=0.05)
    assert corrected.terms["consistency"] == pytest.approx(c_1 * -(f * np.log(f)).sum())


def test_bounded_outputs_are_a_distribution_within_bounds_and_keep_the_label():
    p = torch.rand(50, 4, dtype=torch.float64).log().mul(-5).softmax(-1)
    f = risks.bounded(p, 0.1)
    torch.testing.assert_close(f.sum(-1), torch.ones(50, dtype=torch.float64))
    assert f.min() >= 0.1
    assert f.max() <= 0.9
    assert torch.equal(f.argmax(-1), p.argmax(-1))


def test_a_form_that_is_not_known_is_refused():
    half = torch.full((1, 2), 0.5, dtype=torch.float64)
    with pytest.raises(UserError, match="form = 'Sharp': type printed or corrected"):
        risks.proposition_1_on("Sharp", half, half[None], torch.tensor([0]), 0.1)

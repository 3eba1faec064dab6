"""What is remembered of each image: an index that occurs twice in a batch is resolved whatever its order."""

from __future__ import annotations

import itertools

import pytest
import torch

from maxmatch.methods.memory import Ensemble, Learned


def test_an_ensemble_recalls_the_bias_corrected_average():
    ensemble = Ensemble(3, 2).double()
    for one in (0.2, 0.6, 0.9):
        ensemble.update(torch.tensor([1]), torch.tensor([[1 - one, one]], dtype=torch.float64), 0.6)
    average = (0.4 * (0.36 * 0.2 + 0.6 * 0.6 + 0.9)) / (1 - 0.6**3)
    recalled, seen = ensemble.recall(torch.tensor([1, 0]), 0.6)
    assert recalled[0].tolist() == pytest.approx([1 - average, average])
    assert seen.tolist() == [True, False]
    assert recalled[1].tolist() == [0, 0]
    assert ensemble.visits.tolist() == [0, 3, 0]


def test_without_momentum_an_ensemble_recalls_the_last_prediction():
    ensemble = Ensemble(1, 2)
    for one in (0.25, 0.75):
        ensemble.update(torch.tensor([0]), torch.tensor([[1 - one, one]]), 0.0)
    assert ensemble.recall(torch.tensor([0]), 0.0)[0].tolist() == [[0.25, 0.75]]


def test_two_occurrences_in_one_batch_are_one_visit_with_their_mean():
    values = {4: [0.2, 0.6], 1: [0.5]}
    pairs = [(i, p) for i, ps in values.items() for p in ps]
    for order in itertools.permutations(pairs):
        ensemble = Ensemble(5, 2).double()
        p = torch.tensor([[1 - one, one] for _, one in order], dtype=torch.float64)
        ensemble.update(torch.tensor([i for i, _ in order]), p, 0.6)
        assert ensemble.average[4].tolist() == pytest.approx([0.4 * 0.6, 0.4 * 0.4])
        assert ensemble.average[1].tolist() == pytest.approx([0.2, 0.2])
        assert ensemble.visits.tolist() == [0, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("labels", "confident", "expected"),
    [
        ([2, 0, 1], [True, True, True], 1),  # the last
        ([1, 0, 2], [True, True, True], 2),
        ([2, 0, 1], [True, True, False], 2),  # the last confident one
        ([2, 0, 1], [False, True, True], 1),
        ([2, 0, 1], [False, True, False], -1),
    ],
)
def test_of_an_image_that_occurs_twice_the_last_confident_label_is_noted(labels, confident, expected):
    learned = Learned(5)
    learned.update(torch.tensor([3, 0, 3]), torch.tensor(labels), torch.tensor(confident))
    assert learned.label.tolist() == [0, -1, -1, expected, -1]


def test_a_doubtful_image_keeps_the_label_it_had():
    learned = Learned(2)
    learned.update(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor([True, False]))
    learned.update(torch.tensor([0, 1]), torch.tensor([0, 0]), torch.tensor([False, False]))
    assert learned.label.tolist() == [1, -1]


def test_counts_have_those_without_a_label_last():
    learned = Learned(6)
    learned.label.copy_(torch.tensor([2, 0, 2, -1, -1, -1]))
    assert learned.counts(3).tolist() == [1, 0, 2, 3]

"""Digits, arrays, splits and the plan."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmatch.data import DATASETS
from maxmatch.data.datasets import LOADERS, from_arrays, load_images
from maxmatch.data.plan import BLOCK, Plan
from maxmatch.data.split import load_split, make_split, name_of_pool, official_split, share_split, shares_follow
from maxmatch.errors import UsageError, UserError


def test_the_names_are_those_that_load():
    assert set(DATASETS) == set(LOADERS)


def test_digits_are_scikit_learn_s_with_a_third_for_testing():
    from sklearn.datasets import load_digits

    digits = load_images("digits")
    assert len(digits.x) + len(digits.test_x) == 1797
    assert len(digits.test_x) == 602
    everything = torch.cat([digits.x, digits.test_x]).double().mean().item()
    assert everything == pytest.approx(load_digits().data.mean() * 255 / 16, abs=0.5)
    assert torch.bincount(digits.test_y).tolist() == [-(-count // 3) for count in np.bincount(load_digits().target)]


def test_arrays_in_every_layout_are_the_same_images():
    grey = np.random.default_rng(0).integers(0, 256, (5, 9, 8), np.uint8)
    colour = np.random.default_rng(0).integers(0, 256, (5, 9, 8, 3), np.uint8)
    y = [0, 1, -1, 1, 0]
    assert torch.equal(from_arrays(grey, y).x, from_arrays(torch.from_numpy(grey)[:, None], y).x)
    channels_first = np.ascontiguousarray(colour.transpose(0, 3, 1, 2))
    assert torch.equal(from_arrays(colour, y).x, from_arrays(channels_first, y).x)
    assert from_arrays(colour, y).shape == (3, 9, 8)


X = np.zeros((4, 8, 8), np.uint8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X.astype(float), [0, 1, 0, 1]), "uint8 from 0 to 255"),
        (([X[0], X[0, :, :7]], [0, 1]), "images of several sizes"),
        ((None, [0, 1]), "images of NoneType: arrays or tensors"),
        ((X, [0, 1]), "4 images but 2 labels"),
        ((X, [-1, -1, -1, -1]), "no image has a label"),
        ((X, [0, -2, 0, 1]), "labels run from -2"),
        ((X[:, :4], [0, 1, 0, 1]), "from 8x8 up"),
        ((X, [0, 1, 0, 1], X), "needs both test_x and test_y"),
        ((X, [0.7, 1.2, 0.0, 1.0]), "one whole number an image"),
        ((X, np.eye(4, dtype=int)), "one whole number an image"),
        ((X, ["cat", "dog", "cat", "dog"]), "one whole number an image"),
        ((X, [0, 1, 0, 1], X, [0, 1, 5, -1]), "test labels run from -1 to 5"),
        ((X, [0, 1, 0, 1], np.zeros((2, 9, 9), np.uint8), [0, 1]), "like the training images"),
    ],
)
def test_wrong_arrays_are_one_line(arguments, message):
    with pytest.raises(UsageError, match=message):
        from_arrays(*arguments)


def test_two_classes_of_one_name_are_refused():
    with pytest.raises(UsageError, match="'cat' stands there twice; give each class a name of its own"):
        from_arrays(X, [0, 1, 2, 1], classes=["cat", "dog", "cat"])


def test_unknown_data_sets_name_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'digits'"):
        load_images("digit")
    with pytest.raises(UsageError, match="unknown protocol 'goggle': did you mean 'google'"):
        load_images("digits", "goggle")


def test_a_data_set_may_be_named_by_a_path():
    assert torch.equal(load_images(Path("digits")).x, load_images("digits").x)


def test_arrays_that_may_only_be_read_are_taken_without_a_copy_or_a_word(no_warning):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8), np.uint8)
    pixels.flags.writeable = False
    x = from_arrays(pixels, [0, 1, 0, -1]).x
    assert x.data_ptr() == pixels.ctypes.data
    assert np.array_equal(x[:, 0].numpy(), pixels)
    held = x.clone()
    del pixels
    assert torch.equal(x, held)  # its memory is kept as long as it is


Y = np.repeat([0, 1, 2, 3], [50, 30, 15, 5])


def test_a_balanced_split_has_as_many_of_each_class():
    split = make_split(Y, 16, seed=3)
    assert np.bincount(Y[split.labelled]).tolist() == [4, 4, 4, 4]
    assert len(set(split.labelled.tolist())) == 16
    assert split.unlabelled.tolist() == list(range(100))


def test_what_a_small_class_lacks_goes_to_the_others():
    assert np.bincount(Y[make_split(Y, 40, seed=1).labelled]).tolist() == [12, 12, 11, 5]


def test_a_proportional_split_follows_the_frequencies():
    # SVHN at 40 labels: digit 1 has 7, 2 has 6, 3 to 5 have 4, the others 3.
    counts = [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
    y = np.repeat(np.arange(10), counts)
    split = make_split(y, 40, seed=1, protocol="proportional")
    assert np.bincount(y[split.labelled]).tolist() == [3, 7, 6, 4, 4, 4, 3, 3, 3, 3]
    assert np.bincount(Y[make_split(Y, 4, 1, "proportional").labelled]).tolist() == [1, 1, 1, 1]


def test_the_seed_decides_the_split():
    assert make_split(Y, 8, 1).labelled.tolist() == make_split(Y, 8, 1).labelled.tolist()
    assert make_split(Y, 8, 1).labelled.tolist() != make_split(Y, 8, 2).labelled.tolist()
    stream = np.random.default_rng([1, 0x5911])  # another would be another labelled set for every seed
    drawn = [stream.permutation(np.flatnonzero(label == Y))[:2] for label in range(4)]
    assert make_split(Y, 8, 1).labelled.tolist() == sorted(np.concatenate(drawn).tolist())


def test_images_without_a_label_are_never_shown_with_one():
    y = np.where(np.arange(100) % 3 == 0, Y, -1)
    assert (y[make_split(y, 8, 1).labelled] >= 0).all()
    for percent in (1, 50, 100):
        assert (y[share_split(y, percent, 1).labelled] >= 0).all()
    assert len(share_split(y, 100, 1).labelled) == (y >= 0).sum()


def test_the_pool_may_leave_the_labelled_images_out():
    split = make_split(Y, 8, 1, exclude_labelled=True)
    assert len(split.unlabelled) == 92
    assert not set(split.unlabelled.tolist()) & set(split.labelled.tolist())


def test_an_empty_pool_is_refused():
    with pytest.raises(UsageError, match="no unlabelled one is left"):
        make_split(Y, 100, 1, exclude_labelled=True)


@pytest.mark.parametrize(("labels", "message"), [(101, "only 100"), (3, "at least one a class")])
def test_impossible_numbers_of_labels_are_refused(labels, message):
    with pytest.raises(UsageError, match=message):
        make_split(Y, labels, 1)


def test_the_named_protocols():
    assert [name_of_pool("svhn", p) for p in ("balanced", "google", "usb", "paper")] == [
        "svhn", "svhn", "svhn-extra", "svhn-extra",
    ]  # fmt: skip
    assert [name_of_pool("cifar10", p) for p in ("google", "usb", "paper")] == ["cifar10"] * 3
    with pytest.raises(UsageError, match="type svhn"):
        name_of_pool("svhn-extra", "google")
    assert [shares_follow("svhn", p) for p in ("google", "usb", "paper")] == ["proportional", "balanced", "balanced"]
    assert shares_follow("cifar10", "google") == "balanced"
    assert shares_follow("cifar10", "proportional") == "proportional"


def test_an_official_fold_is_taken_as_it_is():
    folds = np.array([[3, 1], [2, 4], [0, 5]])
    split = official_split(np.zeros(7), folds, fold=1)
    assert split.labelled.tolist() == [2, 4]
    assert split.unlabelled.tolist() == list(range(7))
    assert official_split(np.zeros(7), folds, 0, exclude_labelled=True).unlabelled.tolist() == [0, 2, 4, 5, 6]
    with pytest.raises(UsageError, match="the official ones are 0 to 2"):
        official_split(np.zeros(7), folds, fold=3)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(0, 9), st.sampled_from([1, 10, 50]))
@settings(max_examples=25, deadline=None)
def test_a_share_of_each_class_and_the_rest_are_disjoint(counts, seed, percent):
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    if sum(max(1, round(count * percent / 100)) for count in counts) == len(y):
        return  # nothing would be left
    split = share_split(y, percent, seed, exclude_labelled=True)
    assert np.bincount(y[split.labelled], minlength=len(counts)).tolist() == [
        max(1, round(count * percent / 100)) for count in counts
    ]
    assert sorted([*split.labelled, *split.unlabelled]) == list(range(len(y)))
    assert split.labelled.tolist() == share_split(y, percent, seed, exclude_labelled=True).labelled.tolist()


def test_ten_percent_of_imagenet_s_classes_by_five_folds():
    counts = np.random.default_rng(1).integers(732, 1301, 100)
    y = np.repeat(np.arange(100), counts)
    folds = [share_split(y, 10, fold, exclude_labelled=True) for fold in range(1, 6)]
    assert len({split.sha256() for split in folds}) == 5
    for split in folds:
        assert np.bincount(y[split.labelled]).tolist() == np.rint(counts / 10).astype(int).tolist()


def test_a_saved_split_knows_its_data_and_its_own_digest(tmp_path):
    split, path = make_split(Y, 8, 1), tmp_path / "split.json"
    split.save(path, "abc")
    again = load_split(path, "abc")
    assert again.labelled.tolist() == split.labelled.tolist()
    assert again.unlabelled.tolist() == split.unlabelled.tolist()
    with pytest.raises(UserError, match="other images"):
        load_split(path, "abd")
    for part in ("labelled", "unlabelled"):
        record = json.loads(path.read_text())
        record[part][0] += 1
        (tmp_path / "other.json").write_text(json.dumps(record))
        with pytest.raises(UserError, match="was changed"):
            load_split(tmp_path / "other.json", "abc")
    for other in ("[]", "3", "{}", '{"labelled": {}, "unlabelled": []}'):
        path.write_text(other)
        with pytest.raises(UserError, match="cannot be read as a split"):
            load_split(path, "abc")


@given(st.integers(0, 9), st.integers(0, 10 * BLOCK), st.integers(0, 10 * BLOCK))
@settings(max_examples=50, deadline=None)
def test_the_plan_is_a_pure_function_of_seed_step_and_stream(seed, first, second):
    plan = Plan(seed)
    drawn = {step: plan.uniforms("a", step, (3, 2)).copy() for step in (first, second)}
    for step in (second, first):  # in another order, by another plan
        assert (Plan(seed).uniforms("a", step, (3, 2)) == drawn[step]).all()
    if first != second:
        assert (drawn[first] != drawn[second]).any()
    assert (Plan(seed).uniforms("b", first, (3, 2)) != drawn[first]).any()
    assert (Plan(seed + 1).uniforms("a", first, (3, 2)) != drawn[first]).any()


def test_uniforms_are_uniform():
    drawn = np.concatenate([Plan(1).uniforms("u", step, (1000,)) for step in range(64)])
    assert 0 <= drawn.min() < drawn.max() < 1
    assert drawn.mean() == pytest.approx(0.5, abs=0.005)
    assert drawn.var() == pytest.approx(1 / 12, abs=0.002)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_betas_are_a_pure_function_of_seed_block_and_stream(seed, number, more):
    drawn = Plan(seed).betas("a", number, 5, 0.75)
    assert drawn.shape == (BLOCK, 5)
    plan = Plan(seed)
    plan.betas("a", number + 1, 3, 0.75)  # asked for in another order
    assert (plan.betas("a", number, 5, 0.75) == drawn).all()
    assert (plan.betas("a", number, 5 + more, 0.75)[:, :5] == drawn).all()
    for other in (
        Plan(seed + 1).betas("a", number, 5, 0.75),
        plan.betas("b", number, 5, 0.75),
        plan.betas("a", number + 1, 5, 0.75),
        plan.betas("a", number, 5, 0.5),
    ):
        assert (other != drawn).any()


@pytest.mark.parametrize("alpha", [0.5, 0.75, 1.0, 4.0])
def test_betas_have_the_mean_and_the_variance_of_their_distribution(alpha):
    drawn = np.stack([Plan(1).betas("mix", number, 500, alpha) for number in range(4)])
    assert 0 <= drawn.min() < drawn.max() <= 1
    assert drawn.mean() == pytest.approx(0.5, abs=0.005)
    assert drawn.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.02)
    steps = drawn.reshape(-1, 500)  # each step, and each image, has draws of its own
    assert len(np.unique(steps, axis=0)) == len(steps)
    assert abs(np.corrcoef(steps[:, 0], steps[:, 1])[0, 1]) < 0.35


def test_every_image_comes_once_a_round_in_a_new_order():
    plan, n, batch = Plan(1), 10, 4
    stream = np.concatenate([plan.indices("x", step, batch, n) for step in range(5)])
    assert sorted(stream[:10]) == list(range(10)) == sorted(stream[10:20])
    assert stream[:10].tolist() != stream[10:20].tolist()
    for other in (Plan(2).indices("x", 0, 10, n), plan.indices("y", 0, 10, n)):  # another seed, and another stream
        assert stream[:10].tolist() != other.tolist()


def test_a_batch_may_be_larger_than_the_pool():
    drawn = Plan(1).indices("x", 3, 32, 5)
    assert set(drawn.tolist()) == set(range(5))
    assert np.bincount(drawn).max() - np.bincount(drawn).min() <= 2


def test_k_is_drawn_by_its_weights_and_seeded():
    choices = ((1, 0.5), (2, 0.3), (3, 0.2))
    drawn = np.array([Plan(1).choice("k", step, choices) for step in range(0, 3000)])
    assert [round(float((drawn == k).mean()), 1) for k in (1, 2, 3)] == [0.5, 0.3, 0.2]
    assert drawn.tolist() == [Plan(1).choice("k", step, choices) for step in range(0, 3000)]
    assert Plan(1).choice("k", 0, ((4, 1.0),)) == 4

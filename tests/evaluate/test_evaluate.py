"""Error rates against scikit-learn, robust errors against a classifier whose mistakes are known."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, top_k_accuracy_score

from maxmatch.augment import Views, Weak, randaugment
from maxmatch.data.plan import Plan
from maxmatch.evaluate import robust
from maxmatch.evaluate.errors import error_rate, in_batches, predict_logits, summary, top5_error
from maxmatch.evaluate.robust import robust_errors, robust_views
from maxmatch.nets.preprocess import Preprocessing


def test_error_rates_are_scikit_learn_s():
    torch.manual_seed(0)
    logits, labels = torch.randn(200, 7), torch.randint(7, (200,))
    assert error_rate(logits, labels) == pytest.approx(100 * (1 - accuracy_score(labels, logits.argmax(-1))))
    expected = 100 * (1 - top_k_accuracy_score(labels, logits, k=5, labels=range(7)))
    assert top5_error(logits, labels) == pytest.approx(expected)
    assert top5_error(logits[:, :5], labels) is None


def test_the_three_error_rates_of_a_run():
    errors = [90.0, 5.0, *[20.0] * 10, *[10.0] * 9, 12.0]
    assert summary(errors) == {"last": 12.0, "median20": 16.0, "best": 5.0}
    assert summary([]) == {"last": None, "median20": None, "best": None}


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16])
def test_batches_of_one_shape_give_what_the_whole_gives(count):
    shapes = []

    def forward(part):
        shapes.append(len(part))
        return part.flatten(1)[:, :3].float()

    images = torch.arange(count * 4).view(count, 1, 2, 2)
    assert torch.equal(in_batches(forward, images, 8), images.flatten(1)[:, :3].float())
    assert len(set(shapes)) == 1


def test_logits_of_many_images_hold_no_graph():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    images = torch.zeros(5, 1, 4, 4, dtype=torch.uint8)
    assert not predict_logits(net, images, Preprocessing(1, 4, 4), batch=2).requires_grad


def views() -> Views:
    """Strong views that invert every image."""
    return Views(Weak(flip=False, shift=0.0), randaugment("imagenet", ops=["invert"], n=1))


def test_robust_errors_by_hand():
    """A classifier that calls bright images 1. Inverting turns every answer around."""
    bright, dark = torch.full((1, 8, 8), 200, dtype=torch.uint8), torch.full((1, 8, 8), 20, dtype=torch.uint8)
    images = torch.stack([bright, bright, dark, dark])

    def predict(x):
        return (x.float().mean((1, 2, 3)) > 127).long()

    # right on all four images as they are, wrong on every inverted one
    assert robust_errors(predict, images, torch.tensor([1, 1, 0, 0]), views(), 2, seed=1) == (100.0, 100.0)
    # labels turned around for two: wrong as they are, right when inverted
    assert robust_errors(predict, images, torch.tensor([1, 0, 0, 1]), views(), 2, seed=1) == (100.0, 50.0)
    # a constant classifier is as robust as it is right
    assert robust_errors(lambda x: torch.zeros(len(x)).long(), images, torch.tensor([0, 0, 0, 1]), views(), 3, 1) == (
        25.0,
        25.0,
    )


def test_more_views_can_only_add_errors():
    images = torch.randint(0, 256, (40, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(40).long()

    def predict(x):
        return (x.float().mean((1, 2, 3)) > 127).long()

    strong = Views(Weak(), randaugment("usb", cutout=0))
    errors = [robust_errors(predict, images, labels, strong, k, seed=3).robust_error_paper for k in (1, 2, 4, 8)]
    assert errors == sorted(errors)
    assert errors[0] < errors[-1]


def test_robust_errors_are_the_same_in_parts_and_tell_how_far_they_are(monkeypatch):
    images = torch.randint(0, 256, (10, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels, strong = torch.arange(10) % 2, Views(Weak(), randaugment("usb", cutout=0))

    def predict(x):
        return (x.float().mean((1, 2, 3)) > 127).long()

    whole = robust_errors(predict, images, labels, strong, 2, 3)
    heard: list[int] = []
    monkeypatch.setattr(robust, "CHUNK", 4)
    assert robust_errors(predict, images, labels, strong, 2, 3, heard.append) == whole
    assert np.cumsum(heard).tolist() == [1, 2, 3, 4, 6, 6, 8, 9, 10]  # of nine parts: the images, then each view


@pytest.mark.parametrize("shared", [False, True])
def test_robust_errors_are_those_of_views_drawn_from_the_plan_by_hand(monkeypatch, shared):
    """Oracle: all views at once, each from a stream of its own."""
    images = torch.randint(0, 256, (10, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels, strong = torch.arange(10) % 2, Views(Weak(), randaugment("usb", cutout=0), shared_crop=shared)

    def predict(x):
        return (x.float().mean((1, 2, 3)) > 127).long()

    def draws(stream, count):
        return torch.from_numpy(Plan(3).uniforms(f"evaluate/robust/{stream}", 0, (10, count)))

    u = torch.stack([draws(view, strong.strong_uniforms) for view in range(5)])
    expected = strong.strong_views(images, u, draws("weak", strong.weak_uniforms)).images
    wrong = torch.stack([predict(view) != labels for view in (images, *expected)])
    errors = (100 * wrong.any(0).double().mean().item(), 100 * wrong[1:].any(0).double().mean().item())
    assert 0 < errors[1] < 100
    for chunk in (3, 512):
        monkeypatch.setattr(robust, "CHUNK", chunk)
        assert robust_errors(predict, images, labels, strong, 5, 3) == errors
        assert torch.equal(torch.stack(list(robust_views(images, strong, 5, Plan(3), chunk))), expected)


def test_thousands_of_views_need_the_memory_of_one(monkeypatch):
    """No view is made before the one before it has been judged, and of the draws only one view's are held."""
    made, peaks = [], {}

    class Counted(Views):
        def strong_views(self, *given, **named):
            made.append("made")
            return super().strong_views(*given, **named)

    def predict(x):
        most.append(len(made))
        made.clear()
        return torch.zeros(len(x)).long()

    images = torch.zeros((64, 1, 8, 8), dtype=torch.uint8)
    strong = Counted(Weak(), randaugment("usb", cutout=0))
    monkeypatch.setattr(robust, "CHUNK", 32)
    for k in (2, 2, 40):  # the first time warms what is kept
        most = []
        tracemalloc.start()
        robust_errors(predict, images, torch.zeros(64).long(), strong, k, 1)
        peaks[k] = tracemalloc.get_traced_memory()[1]  # of NumPy, which draws
        tracemalloc.stop()
        assert (len(most), max(most)) == (2 * (k + 1), 1)
    assert peaks[40] < 1.5 * peaks[2]


def test_robust_views_are_replayed_by_seed_and_do_not_depend_on_chunks():
    images = torch.randint(0, 256, (10, 3, 16, 16), dtype=torch.uint8)
    for shared in (False, True):
        strong = Views(Weak(), randaugment("usb"), shared_crop=shared)
        whole = list(robust_views(images, strong, 2, Plan(1)))
        parts = robust_views(images, strong, 2, Plan(1), chunk=3)
        assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))
        assert not torch.equal(whole[0], next(robust_views(images, strong, 1, Plan(2))))

"""`maxmatch bound RUN`: what is measured is what the run's own parts give, and the page says what it should."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from maxmatch.augment import ResizedCrop
from maxmatch.cli import run
from maxmatch.data.plan import Plan
from maxmatch.evaluate.robust import robust_views
from maxmatch.theory import bounds, command
from maxmatch.theory.command import find_bounds, theorem_1, theorem_2
from maxmatch.theory.measure import measure, passes, pool_outputs, some
from maxmatch.theory.table import number
from maxmatch.train.finished import open_run
from maxmatch.train.fit import fit
from maxmatch.train.judge import judge
from maxmatch.train.unlabelled import judged_images


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of the net that the theorem covers."""
    from maxmatch.train.recipes import compose

    train = {"steps": 30, "batch": 8, "ratio": 2, "threads": 1, "evaluate_every": 30, "checkpoint_every": 30}
    given = {"data": {"labels": 20}, "net": {"name": "plain-conv"}, "train": train}
    out = tmp_path_factory.mktemp("bound") / "run"
    fit(compose("digits", "maxmatch", given=given), out, quiet=True)
    return out


@pytest.fixture(scope="module")
def printed(folder, tmp_path_factory):
    """The page and the numbers, typed as a user would."""
    import contextlib
    import io

    out = tmp_path_factory.mktemp("numbers") / "bound.json"
    with contextlib.redirect_stdout(io.StringIO()) as page:
        assert run(["bound", str(folder), "--json", str(out), "--images", "0"]) == 0
    return page.getvalue(), json.loads(out.read_text())


def softmax(logits):
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


def test_proposition_1_is_measured_on_the_test_set_as_numpy_does_it(folder, printed):
    finished = open_run(folder)
    x, y = finished.images.test_x, finished.images.test_y.numpy()
    clean = softmax(finished.logits(x).double().numpy())
    views = [softmax(finished.logits(v).double().numpy()) for v in robust_views(x, finished.views, 3, Plan(1))]
    worst = np.max([-(clean * np.log(v)).sum(1) for v in views], 0)
    hard = np.max([-np.log(v[np.arange(len(v)), clean.argmax(1)]) for v in views], 0)
    labelled = -np.log(clean[np.arange(len(y)), y]).mean() / np.log(2)
    test = printed[1]["measured"]["test"]
    assert test["sharp"][-1]["terms"] == pytest.approx({"consistency": worst.mean() / np.log(2), "labelled": labelled})
    assert test["sharp_hard"][-1]["terms"]["consistency"] == pytest.approx(hard.mean() / np.log(2))
    assert test["sharp_hard"][-1]["total"] == pytest.approx(hard.mean() / np.log(2) + labelled)
    again = judge(folder)
    assert 100 * test["robust_risk"][-1] == pytest.approx(again["robust_error_paper"])
    assert 100 * test["error"] == pytest.approx(again["error"])
    for count in range(3):
        assert test["robust_risk"][count] <= test["sharp"][count]["total"]
    assert test["robust_risk"] == sorted(test["robust_risk"])


def test_the_theorems_get_the_run_s_own_symbols(folder, printed):
    numbers = printed[1]
    finished, capacity, measured = open_run(folder), numbers["capacity"], numbers["measured"]
    pixels = finished.classifier.preprocessing(finished.images.x)
    assert measured["input_norm"] == pytest.approx(pixels.flatten(1).norm(dim=1).max().item())
    assert (measured["labelled"], measured["unlabelled"], measured["views"]) == (20, len(finished.split.unlabelled), 3)
    labelled = torch.from_numpy(finished.split.labelled)
    f = 0.9 * softmax(finished.logits(finished.images.x[labelled]).double().numpy()) + 0.01
    y = finished.images.y[labelled].numpy()
    by_hand = (np.log(np.exp(f).sum(1)) - f[np.arange(20), y]).mean()
    assert measured["labelled_risk"] == pytest.approx(by_hand)
    symbols = {
        **{name: capacity[name] for name in ("excess_norm", "radius", "depth", "parameters", "one_output_parameters")},
        **{name: measured[name] for name in ("input_norm", "view_norm", "labelled_risk", "views", "classes", "epsilon")},
        "consistency_risk": measured["consistency_risk"][-1], "labelled_samples": 20,
        "unlabelled_samples": measured["unlabelled"], "delta": 0.05,
    }  # fmt: skip
    for form in ("printed", "corrected"):
        whole = bounds.theorem_2(form, **symbols, universal_constant=2.5).total
        row = numbers["theorem_2"][form]
        assert sum(row["free"].values()) + 2.5 * sum(row["per_c0"].values()) == pytest.approx(whole)
        assert theorem_2(form, symbols).free == pytest.approx(row["free"])
        assert theorem_1(form, symbols).terms == pytest.approx(numbers["theorem_1"][form]["terms"])
    needed = {**symbols, "unlabelled_samples": numbers["needed"]}
    assert theorem_2("corrected", needed).free["unlabelled complexity"] == pytest.approx(1)
    assert capacity["radius"] == pytest.approx(sum(layer["distance"] for layer in capacity["layers"]))


@pytest.mark.parametrize(("most", "larger"), [(1, "labelled"), (0, "unlabelled")])
def test_the_largest_norms_are_those_of_both_pools(folder, most, larger):
    finished = open_run(folder)
    pools = {"labelled": finished.split.labelled, "unlabelled": some(finished.split.unlabelled, most, 1)}
    seen = {name: pool_outputs(finished, index, 2, name, lambda count: None) for name, index in pools.items()}
    passed: list[int] = []
    found = measure(finished, 2, 0.01, most, passed.append)
    assert sum(passed) == passes(finished, 2, most)  # what the progress bar is drawn by
    for name in ("input_norm", "view_norm"):
        assert getattr(found, name) == getattr(seen[larger], name)
        assert getattr(found, name) == max(getattr(outputs, name) for outputs in seen.values())
    assert min(outputs.view_norm for outputs in seen.values()) < found.view_norm


def test_the_moves_change_what_they_name(printed):
    moves = {move["name"]: move for move in printed[1]["moves"]}
    now, more_l, more_u = moves["as it is, K = 3"], moves["n_l x 10"], moves["n_u x 10"]
    assert more_l["theorem_1"][0] < now["theorem_1"][0] / 2
    assert more_l["theorem_1"][1] == now["theorem_1"][1]
    assert more_u["theorem_1"][1] < now["theorem_1"][1] / 2
    assert more_u["theorem_1"][0] == now["theorem_1"][0]
    assert more_u["theorem_2"][1] == now["theorem_2"][1]
    assert moves["K = 7"]["theorem_2"][0] == pytest.approx(now["theorem_2"][0] * 7 / 3, rel=1e-3)
    assert moves["K = 1"]["views"] == 1
    assert moves["K = 7"]["views"] is None


def test_the_page_gives_hoeffding_s_bound_of_the_test_set(printed):
    page, numbers = printed
    test = numbers["measured"]["test"]
    assert test["images"] == 602
    gap = math.sqrt(math.log(1 / 0.05) / (2 * 602))  # 0.0499
    assert f"robust risk <= {test['robust_risk'][-1]:.4f} + {gap:.4f} with probability 0.95 (Hoeffding)" in page


def test_the_page_says_what_a_reader_needs(printed):
    page, numbers = printed
    assert "always vacuous" in page
    assert ">= 1 whatever the net does" in page
    assert "nothing between its layers is outside the theorem" in page
    assert "OUTSIDE THE THEOREM" not in page
    sharp = numbers["measured"]["test"]["sharp"][-1]["total"]
    assert re.search(rf"^  sharp {{2,}}.* {re.escape(number(sharp))}   (vacuous|below 1)", page, re.MULTILINE)
    for name in (
        "consistency",
        "labelled complexity",
        "unlabelled complexity",
        "labelled deviation",
        "labelled confidence",
    ):
        assert f"  {name} " in page
    assert f"n_u = {number(numbers['needed'])} images" in page
    assert not re.search(r"\b(inf|nan)\b", page)
    assert "a largest norm of a part" not in page  # all images were looked at


def test_a_wide_resnet_is_said_to_be_outside_and_c_0_is_put_in(tiny, tmp_path, capsys):
    fit(tiny(), tmp_path / "run", quiet=True)
    typed = ["bound", str(tmp_path / "run"), "--c0", "2", "--images", "50", "--k", "2", "--epsilon", "0.05"]
    assert run(typed) == 0
    page, err = capsys.readouterr()
    assert err == ""
    assert "OUTSIDE THE THEOREM: shortcuts: 3" in page
    assert "guarantees nothing for this net" in page
    assert "here C0 = 2" in page
    assert " C0\n" not in page
    assert "50 unlabelled images; --images 0 looks at all" in page
    assert "estimates, since a largest norm of a part may be too small" in page
    assert "on 50 test images (of 602" in page
    assert "K = 2 strong views" in page
    assert "eps = 0.05" in page


def test_c_0_enters_linearly_in_what_is_kept(folder):
    found = find_bounds(folder, "cpu", 1, 0.02, 0.1, None, 40)
    row = found.theorem_2["printed"]
    assert row.free["labelled complexity"] == 0
    assert row.per_c0["labelled complexity"] > 0
    assert row.per_c0["labelled"] == pytest.approx(row.free["labelled"] / 2)
    assert row.dominant(0.0) == "unlabelled complexity"
    assert row.dominant(1e12) == "labelled complexity"
    assert math.isfinite(found.dudley)


def test_a_net_whose_softmax_gives_0_has_a_finite_page(folder, tmp_path, capsys):
    """Logits thousands apart, as a net has that was stopped before its BatchNorm had seen anything."""
    import shutil

    from maxmatch.nets.model_file import load_model, save_model

    shutil.copytree(folder, tmp_path / "wild")
    net, info = load_model(tmp_path / "wild" / "model.safetensors")
    net.head.weight.data *= 1e6
    save_model(tmp_path / "wild" / "model.safetensors", net, info)
    assert run(["bound", str(tmp_path / "wild"), "--images", "30"]) == 0
    page = capsys.readouterr().out
    assert not re.search(r"\b(inf|nan)\b", page)
    assert "vacuous" in page


def test_pictures_in_slots_are_judged_by_the_middle_that_predict_shows(folder):
    """data.middle = 0.5: the inner half of a picture, as `predict --unlabeled` judges it, which a frame of noise hides."""
    finished = open_run(folder)
    digits = finished.images.x[:12]
    framed = torch.randint(0, 256, (12, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    framed[:, :, 4:12, 4:12] = digits
    sizes = torch.full((12, 2), 16, dtype=torch.int32)
    images = replace(finished.images, x=framed, y=finished.images.y[:12], sizes=sizes, side=8, middle=0.5)
    framed_run = finished._replace(images=images, views=replace(finished.views, weak=ResizedCrop(8)))
    found = pool_outputs(framed_run, np.arange(12), 1, "unlabelled", lambda count: None)
    assert torch.equal(judged_images(framed_run, torch.arange(12))[0], digits)
    expected = torch.softmax(finished.logits(digits).double(), -1)
    torch.testing.assert_close(found.clean, expected)
    assert found.input_norm == pytest.approx(finished.classifier.preprocessing(digits).flatten(1).norm(dim=1).max())


def test_numbers_are_not_written_over_unless_told_to(folder, tmp_path, capsys):
    mine = tmp_path / "bound.json"
    mine.write_text("precious")
    typed = ["bound", str(folder), "--images", "20", "--k", "1", "--json", str(mine)]
    assert run(typed) == 2
    out, err = capsys.readouterr()
    assert (out, mine.read_text()) == ("", "precious")
    assert "is there already: give another --json, or type --force to write over it" in err
    assert run([*typed, "--force"]) == 0
    assert json.loads(mine.read_text())["measured"]["views"] == 1


def test_some_images_are_drawn_by_the_seed():
    index = np.arange(100, 200)
    assert some(index, 0, 1) is index
    assert some(index, 100, 1) is index
    drawn = some(index, 10, 1)
    assert len(set(drawn.tolist())) == 10
    assert list(drawn) == sorted(drawn)
    assert list(drawn) != list(some(index, 10, 2))


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["--epsilon", "0.2"], "epsilon = 0.2: with 10 classes type a number of at least 1e-12 and at most 0.1"),
        (["--epsilon", "1e-170"], "epsilon = 1e-170:"),
        (["--delta", "0"], "delta = 0:"),
        (["--delta", "1e-320"], "delta = 9.99989e-321:"),
        (["--c0", "inf"], "C0 = inf:"),
        (["--json", "."], "--json . is a folder: give the file a name, for example bound.json"),
        (["--json", "none/bound.json"], "there is no folder none"),
    ],
)
def test_wrong_words_are_one_line(folder, capsys, monkeypatch, typed, message):
    def works(*_, **__):
        raise AssertionError("the work began before the words were checked")

    monkeypatch.setattr(command, "capacity_of_run", works)
    assert run(["bound", str(folder), *typed]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_the_smallest_epsilon_and_delta_and_a_huge_c_0_give_numbers(folder, tmp_path, capsys):
    out = tmp_path / "bound.json"
    typed = [
        "--epsilon",
        "1e-12",
        "--delta",
        "1e-12",
        "--c0",
        "1e100",
        "--images",
        "20",
        "--k",
        "1",
        "--json",
        str(out),
    ]
    assert run(["bound", str(folder), *typed]) == 0
    assert not re.search(r"\b(inf|nan)\b", capsys.readouterr().out)
    assert "Infinity" not in out.read_text()

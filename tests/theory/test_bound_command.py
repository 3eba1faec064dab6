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
from maxmatch.theory import bounds, command, table
from maxmatch.theory import measure as module
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


def test_the_consistency_risk_is_that_of_bounded_outputs_for_each_number_of_views(folder):
    finished = open_run(folder)
    finished.classifier.net.head.weight.data *= 100  # as sure as after a longer training
    found = measure(finished, 3, 0.01, 40, lambda count: None)
    pool = some(finished.split.unlabelled, 40, 1)
    outputs = pool_outputs(finished, pool, 3, "unlabelled", lambda count: None)
    clean, views = (0.9 * part.numpy() + 0.01 for part in (outputs.clean, outputs.views))
    losses = -(clean * np.log(views)).sum(-1)
    assert found.consistency_risk == pytest.approx([losses[:k].max(0).mean() for k in (1, 2, 3)])
    assert len(set(found.consistency_risk)) == 3


def test_views_are_drawn_anew_for_each_chunk_and_the_largest_norm_is_over_all_of_them(folder, monkeypatch):
    finished = open_run(folder)
    monkeypatch.setattr(module, "CHUNK", 4)
    same = np.repeat(finished.split.unlabelled[:1], 12)  # one picture, in three chunks
    chunks = [torch.stack(views) for _, views in module._pictures(finished, same, 3, "unlabelled")]
    assert not torch.equal(chunks[0], chunks[1])
    assert not torch.equal(chunks[1], chunks[2])
    norms = [finished.classifier.preprocessing(views.flatten(0, 1)).flatten(1).norm(dim=1) for views in chunks]
    found = pool_outputs(finished, same, 3, "unlabelled", lambda count: None)
    assert found.view_norm == pytest.approx(torch.cat(norms).max().item())
    assert torch.stack(norms).view(3, 3, 4).amax((0, 2)).argmax() > 0  # it is not one of the first view


def test_a_part_that_is_looked_at_stands_for_all_images_and_each_k_has_its_own_risk(folder):
    finished = open_run(folder)
    found = find_bounds(folder, "cpu", 4, 0.02, 0.1, None, 40)
    assert (found.measured.looked_at, found.measured.unlabelled) == (40, len(finished.split.unlabelled))
    c_1 = bounds.consistency_constant(classes=10, epsilon=0.02)
    strays = bounds.deviation(samples=len(finished.split.unlabelled), delta=0.1)
    assert found.theorem_1[0].terms["unlabelled deviation"] == pytest.approx(c_1 * strays)
    symbols = command._symbols(found.measured, found.capacity, 0.1)
    moves = {move.name: move for move in found.moves}
    for k in (1, 3):
        risk = found.measured.consistency_risk[k - 1]
        terms = theorem_1("corrected", {**symbols, "views": k, "consistency_risk": risk}).terms
        wanted = sum(terms[name] for name in ("consistency", "unlabelled complexity", "unlabelled deviation"))
        assert moves[f"K = {k}"].theorem_1[1] == pytest.approx(wanted, rel=1e-12)


def test_the_constants_have_the_norms_that_the_lemmas_name(folder, monkeypatch):
    """C_M the larger of the norms of images and views, C_N that of images; Dudley's integral is over n_l n_c points."""
    monkeypatch.setattr(command, "measure", lambda *parts: replace(measure(*parts), view_norm=1.5))
    monkeypatch.setattr(command, "dudley_of_network", lambda **symbols: symbols)
    found = find_bounds(folder, "cpu", 1, 0.02, 0.1, None, 40)
    shape = {name: getattr(found.capacity, name) for name in ("excess_norm", "radius", "depth")}
    points = {"labelled_samples": 20, "classes": 10, "parameters": found.capacity.parameters}
    for form in ("printed", "corrected"):
        inner = bounds.log_network_constant(form, input_norm=found.measured.input_norm, **shape)
        assert found.log_constant[form] == inner > bounds.log_network_constant(form, input_norm=1.5, **shape)
        assert found.psi[form] == bounds.psi(**points, log_constant=inner)
    assert found.dudley == {"points": 200, "parameters": found.capacity.parameters, "log_constant": inner}
    symbols = command._symbols(found.measured, found.capacity, 0.1)
    other = {**symbols, "input_norm": 1.5, "view_norm": symbols["input_norm"]}
    complexity = [theorem_1("corrected", s).terms["unlabelled complexity"] for s in (symbols, other)]
    assert complexity[0] == complexity[1]


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


def test_the_page_shows_the_layers_that_moved_most_the_shares_and_each_k_s_own_risks(folder):
    found = find_bounds(folder, "cpu", 3, 0.02, 0.1, None, 20)
    names = list(found.theorem_1[0].terms)
    printed, corrected = (bounds.Bound("", "", dict(zip(names, terms, strict=True))) for terms in
                          ((1.0,) * 6, (5.0, 10.0, 15.0, 20.0, 25.0, 125.0)))  # fmt: skip
    sharp = tuple(bounds.Bound("", "", {"one": total}) for total in (1.25, 1.5, 1.75))
    test = replace(found.measured.test, robust_risk=(0.125, 0.25, 0.375), sharp=sharp, sharp_hard=sharp)
    text = table.page(replace(found, theorem_1=(printed, corrected), measured=replace(found.measured, test=test)))
    shown = text.split("the largest of beta")[1].splitlines()[1:6]
    moved = sorted(found.capacity.layers, key=lambda layer: layer.distance, reverse=True)
    assert [line.split()[0] for line in shown] == [layer.name for layer in moved[:5]]
    first = text.split("THEOREM 1\n")[1].splitlines()[1:7]
    assert [re.search(r"[\d.]+%", line)[0] for line in first] == ["2.5%", "5.0%", "7.5%", "10.0%", "12.5%", "62.5%"]
    lines = {name: line for line in text.splitlines() for name in ("K = 1", "as it is, K = 3") if name in line[:18]}
    assert lines["K = 1"].split()[-3:] == ["0.1250", "1.2500", "1.2500"]
    assert lines["as it is, K = 3"].split()[-3:] == ["0.3750", "1.7500", "1.7500"]


def test_numbers_are_written_out_as_far_as_they_can_be_read():
    assert [number(value) for value in (99_999.0, 100_000.0, 0.001, 0.00099)] == ["99999", "1.00e5", "0.001", "9.90e-4"]


def test_a_wide_resnet_is_said_to_be_outside_and_c_0_is_put_in(tiny, tmp_path, capsys):
    fit(tiny(), tmp_path / "run", quiet=True, warn=lambda line: None)
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

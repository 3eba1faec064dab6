"""The page itself: what it says agrees with the run, and no run, however broken or bare, is without one."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import maxmatch
from maxmatch.cli import run as type_in
from maxmatch.data import store
from maxmatch.data.plan import Plan
from maxmatch.errors import Interrupted, UsageError
from maxmatch.report import page as page_module
from maxmatch.report.compare import paired
from maxmatch.report.folder import read_run
from maxmatch.report.measure import measure
from maxmatch.report.page import write_report

SMALL = ["--set", "train.batch=8", "--set", "train.ratio=2", "--steps", "6", "--set", "train.threads=1"]


def refuse(word):
    """JSON has no NaN and no Infinity, which Python would read and a browser would not."""
    raise AssertionError(f"{word} is no JSON")


class Read(HTMLParser):
    """The words of a page, its marked figures, and whether its tags close."""

    VOID = frozenset({"meta", "link", "img", "br", "rect", "path", "line", "circle"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words, self.figures, self.open, self.alts, self._data = [], {}, [], [], ""
        self.feed(text)
        self.json = json.loads(self._data, parse_constant=refuse)
        self.text = " ".join(" ".join(self.words).replace("\N{NO-BREAK SPACE}", " ").split())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if "data-figure" in values:
            self.figures.setdefault(values["data-figure"], []).append(values["data-value"])
        if tag == "img":
            self.alts.append(values.get("alt"))
        if tag not in self.VOID:
            self.open.append((tag, values.get("id")))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == ("script", "figures"):
            self._data += data
        elif self.open and self.open[-1][0] not in ("style", "title"):
            self.words.append(data)


def read(path) -> Read:
    found = Read(path.read_text())
    assert found.open == []
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A MaxMatch run and a supervised one of a few steps on digits."""
    folder = tmp_path_factory.mktemp("runs")
    train = {"steps": 30, "batch": 16, "ratio": 2, "threads": 1, "evaluate_every": 6, "log_every": 5}
    for name in ("maxmatch", "supervised"):
        recipe = maxmatch.compose("digits", name, given={"train": train})
        maxmatch.fit(recipe, folder / name, quiet=True)
    return folder


@pytest.fixture
def copy(runs, tmp_path):
    """A run folder to spoil, without a page."""
    return shutil.copytree(runs / "maxmatch", tmp_path / "copy", ignore=shutil.ignore_patterns("report.html"))


def test_figures_are_those_of_the_run_and_of_scikit_learn(runs):
    from sklearn.metrics import confusion_matrix

    path = write_report([runs / "maxmatch"])
    assert path == runs / "maxmatch" / "report.html"
    found, result = read(path), json.loads((runs / "maxmatch" / "result.json").read_text())
    assert float(found.figures["error"][0]) == result["error"]["last"]
    assert float(found.figures["robust_error"][0]) == result["robust_error"]
    assert float(found.figures["seconds"][0]) == result["seconds"]
    digits = maxmatch.load_images("digits")
    chances = maxmatch.load(runs / "maxmatch").predict_proba(digits.test_x)
    (figures,) = found.json
    assert figures["confusion"] == confusion_matrix(digits.test_y, chances.argmax(1)).tolist()
    sure, right = chances.max(1), chances.argmax(1) == digits.test_y.numpy()
    places = np.ceil(sure * 15).astype(int)
    ece = sum(abs((sure - right)[places == place].sum()) for place in range(1, 16)) / len(sure)
    assert float(found.figures["ece"][0]) == figures["ece"] == pytest.approx(100 * ece)
    assert figures["mask_rate"] == result["mask_rate"]
    wrong = int((~right).sum())
    assert f"{wrong} of 602 test images" in found.text
    for word in ("Learning curves", "U-min", "Mask rate", "Pseudo-label accuracy", "Confusion matrix", "Error by class",
                 "The least consistent images", "The most consistent images", "Which operations fool it most",
                 "The images whose label would help most", "A map of what it sees", "maxmatch train digits@20"):  # fmt: skip
        assert word in found.text, word
    assert all(found.alts)
    assert path.stat().st_size < 5e6
    assert not re.search(r"https?://|@import|<script(?! type=\"application/json\")|src=\"(?!data:)", path.read_text())


def test_several_runs_are_paired_on_the_same_images(runs, tmp_path):
    out = write_report([runs / "supervised", runs / "maxmatch"], tmp_path / "both.html")
    found = read(out)
    digits = maxmatch.load_images("digits")
    right = [
        maxmatch.load(runs / name).predict(digits.test_x).astype(int) == digits.test_y.numpy()
        for name in ("supervised", "maxmatch")
    ]
    apart = 100 * (right[0].astype(float) - right[1])
    assert (
        f"{apart.mean():+.2f} ± {apart.std() / 602**0.5:.2f} {int((right[0] & ~right[1]).sum())} {int((right[1] & ~right[0]).sum())} 602"
        in found.text
    )
    assert "supervised: Supervised on digits, 20 labels" in found.text
    assert len(found.figures["error"]) == 2


def test_the_map_rings_the_images_that_are_wrong(runs, monkeypatch):
    monkeypatch.setattr("maxmatch.report.measure.MAPPED", 40)
    found = measure(read_run(runs / "supervised"), 4.0)
    answers = found.test
    some = torch.from_numpy(Plan(0).indices("report/map", 0, 40, len(answers.label)))
    assert found.map.label == answers.label[some].tolist()
    assert found.map.wrong == (answers.predicted[some] != answers.label[some]).tolist()
    assert set(found.map.wrong) == {True, False}
    assert found.map.truth


def test_a_supervised_run_has_no_unlabelled_term_and_is_told_of_its_pool(runs):
    found = read(write_report(str(runs / "supervised")))
    assert "Mask rate" not in found.text
    assert "1,175 images without a label were not used" in found.text
    assert "This method does not train on such views" in found.text


def test_an_unfinished_run_says_so(copy):
    (copy / "result.json").unlink()
    (copy / "model.safetensors").unlink()
    lines = (copy / "metrics.jsonl").read_text().splitlines()
    (copy / "metrics.jsonl").write_text("\n".join(lines[: len(lines) // 2]) + '\n{"step": 1')  # and torn
    found = read(write_report([copy]))
    assert "This run is not finished" in found.text
    assert f"maxmatch train --resume --out {copy}" in found.text
    assert "are left out, because the model or its data can't be opened" in found.text
    assert found.figures["robust_error"] == [""]
    assert found.json[0]["finished"] is False
    (copy / "metrics.jsonl").unlink()
    assert "no evaluation has been made yet" in read(write_report([copy])).text


def test_a_run_whose_data_have_gone_tells_what_its_folder_can(copy, monkeypatch, tmp_path):
    """Nothing is downloaded for a report."""
    recipe = json.loads((copy / "recipe.json").read_text())
    recipe["data"]["name"] = "cifar10"
    (copy / "recipe.json").write_text(json.dumps(recipe))
    monkeypatch.setenv("MAXMATCH_DATA", str(tmp_path / "empty"))
    assert not store.kept_at("cifar10").exists()
    found = read(write_report([copy]))
    assert "cifar10 is not here; type maxmatch data fetch cifar10" in found.text
    assert float(found.figures["error"][0]) == json.loads((copy / "result.json").read_text())["error"]["last"]
    assert "Learning curves" in found.text
    assert "Confusion matrix, calibration, errors by class" in found.text
    assert not (tmp_path / "empty").exists()


def test_pictures_without_a_test_set_and_names_that_are_html(tmp_path, capsys):
    rng = np.random.default_rng(0)
    photos = tmp_path / "photos"
    for name, count in (("labeled/<b>cat & 'dog'", 3), ("labeled/bird", 3), ("unlabeled", 30)):
        (photos / name).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 256, (24 + number, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(photos / name / f"<i>{number}.png")
    Image.fromarray(pixels).save(photos / "unlabeled" / os.fsdecode(b"\xff.png"))  # a name that is no text
    typed = [
        "train",
        str(photos),
        *SMALL,
        "--set",
        "data.side=16",
        "--set",
        "data.canvas=24",
        "--out",
        str(tmp_path / "a"),
    ]
    assert type_in(typed) == 0
    assert f"report: {tmp_path / 'a' / 'report.html'}" in capsys.readouterr().err
    found = read(tmp_path / "a" / "report.html")
    assert "the error is not measured: there is no test set." in found.text
    assert found.figures["error"] == [""]
    assert found.json[0]["error"] is None
    assert "unlabeled/<i>" in found.text
    assert "<b>cat & 'dog'" in found.text
    assert f"maxmatch train {photos}" in found.text


def test_a_pretraining_is_told_as_one_and_its_command_makes_it_again(tmp_path, capsys):
    first = tmp_path / "first"
    words = ["pretrain", "digits", "--epochs", "1", "--set", "train.batch=256", "--set", "train.threads=1"]
    assert type_in([*words, "--device", "cpu", "--seed", "2", "--out", str(first)]) == 0
    found = read(write_report([first]))
    assert "MoCo on digits, a pretraining without labels" in found.text
    assert "An encoder learned from 1,195 images without labels: it knows no classes" in found.text
    assert "test set" not in found.text
    assert "all labels" not in found.text
    assert f"maxmatch train DATA --init {first}" in found.text
    assert list(found.figures) == ["seconds"]
    (line,) = re.findall(r"maxmatch pretrain \S.*? --out \S+", found.text)
    *typed, _ = shlex.split(line)
    assert type_in([*typed[1:], str(tmp_path / "again")]) == 0
    recipes = [json.loads((folder / "recipe.json").read_text()) for folder in (first, tmp_path / "again")]
    assert recipes[0] == recipes[1]
    (first / "result.json").unlink()
    assert f"maxmatch pretrain --resume --out {first}" in read(write_report([first])).text


def test_own_arrays_need_their_data_and_say_so(tmp_path):
    digits = maxmatch.load_images("digits")
    data = maxmatch.from_arrays(digits.x[:200], digits.y[:200], digits.test_x[:50], digits.test_y[:50])
    given = {"train": {"steps": 4, "batch": 8, "ratio": 2, "threads": 1}, "data": {"labels": 20}}
    recipe = maxmatch.compose("digits", "mixmatch", given=given)
    maxmatch.fit(recipe, tmp_path / "a", data, quiet=True)
    assert "was trained on data of your own" in read(write_report([tmp_path / "a"])).text
    found = read(write_report([tmp_path / "a"], data=data))
    assert "all 50 test images" in found.text
    assert (
        f'maxmatch.fit(maxmatch.compose(config="{tmp_path}/a/recipe.json"), "{tmp_path}/a", data=images)' in found.text
    )
    assert "maxmatch train" not in found.text
    assert "This method does not train on such views" in found.text


def test_a_pool_of_one_image_and_a_test_of_two_will_do(tmp_path):
    digits = maxmatch.load_images("digits")
    data = maxmatch.from_arrays(digits.x[:31], [*digits.y[:30].tolist(), -1], digits.test_x[:2], digits.test_y[:2])
    given = {"train": {"steps": 2, "batch": 4, "ratio": 1, "threads": 1}, "data": {"labels": "all"}}
    maxmatch.fit(maxmatch.compose("digits", "maxmatch", given=given), tmp_path / "a", data, quiet=True)
    found = read(write_report([tmp_path / "a"], data=data))
    assert "the image without a label" in found.text
    assert "A map of what it sees" not in found.text


def test_a_report_changes_nothing_of_a_run_and_none_is_made_unasked(tmp_path, capsys):
    from safetensors.torch import load_file

    for name, flag in (("with", "--report"), ("without", "--no-report")):
        before = torch.get_rng_state()
        assert type_in(["train", "digits@20", *SMALL, flag, "--out", str(tmp_path / name)]) == 0
        assert torch.equal(before, torch.get_rng_state())
    kept = {name: {p.name for p in (tmp_path / name).iterdir()} for name in ("with", "without")}
    assert kept["with"] - kept["without"] == {"report.html"}
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("with", "without")]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("with", "without")]
    for result in results:
        for key in ("seconds", "seconds_total", "steps_per_second"):
            result.pop(key)
    assert results[0] == results[1]


def test_a_run_that_is_replaced_takes_its_report_along(tmp_path, capsys):
    typed = ["train", "digits@20", *SMALL, "--out", str(tmp_path / "a")]
    assert type_in(typed) == 0
    assert (tmp_path / "a" / "report.html").exists()
    assert type_in([*typed, "--force", "--no-report"]) == 0
    assert not (tmp_path / "a" / "report.html").exists()


def test_a_report_that_fails_is_one_line_and_the_run_is_whole(tmp_path, capsys, monkeypatch):
    def fails(*_, **__):
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr(page_module, "render", fails)
    assert type_in(["train", "digits@20", *SMALL, "--out", str(tmp_path / "a")]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["steps"] == 6
    assert "warning: no report was made (ZeroDivisionError: two lines); the run itself is whole\n" in err
    assert "Traceback" not in err
    assert not (tmp_path / "a" / "report.html").exists()


def test_a_slow_model_is_asked_of_fewer_images_and_the_page_says_how_many(copy, monkeypatch):
    from maxmatch.report import measure as measuring

    monkeypatch.setattr(measuring, "_seconds_an_image", lambda finished: 0.04)
    found = read(write_report([copy], seconds=10))
    assert "100 of the 602 test images, drawn at random" in found.text
    assert "32 of the 1,175 images without a label, drawn at random" in found.text


def test_wrong_words_are_one_line(runs, tmp_path):
    for folders, out, message in (
        ([tmp_path / "none"], None, "there is no such run folder"),
        ([tmp_path], None, "holds no run"),
        ([runs / "maxmatch", runs / "maxmatch"], None, "named twice"),
        ([runs / "maxmatch"], tmp_path, "give the page a name"),
        ([runs / "maxmatch"], tmp_path / "no" / "r.html", "make it, or give another name"),
        ([], None, "which run"),
    ):
        with pytest.raises(UsageError, match=message):
            write_report(folders, out)


@pytest.mark.parametrize(
    "text",
    [
        '{"error": {}, "steps": "x"}', '{"error": {}}', '{"error": {"last": 5.0}, "steps": "x"}',
        '{"error": {"last": "low"}, "steps": 30}', '{"error": {"last": 5.0}, "steps": 30, "robust": 3}',
        '{"error": {"last": 5.0}, "steps": null}', '{"error": {"last": 5.0, "best": []}, "steps": 30}',
        '{"error": {"last": 5.0}, "versions": []}', '{"error": {"la', "[]",
    ],
)  # fmt: skip
def test_a_damaged_result_counts_as_none_and_the_page_says_so(copy, text):
    (copy / "result.json").write_text(text)
    (copy / "model.safetensors").unlink()  # nothing to measure: the page is quick
    found = read(write_report([copy]))
    assert (
        f"{copy}/result.json is damaged and was not read: what is shown comes from metrics.jsonl. Remove it"
        in found.text
    )
    assert "This run is not finished" in found.text
    errors = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    last = [line["error"] for line in errors if line["kind"] == "evaluate"][-1]
    assert float(found.figures["error"][0]) == last


def test_damage_is_told_beside_other_runs_and_a_sound_result_has_none(runs, copy, tmp_path):
    (copy / "result.json").write_text('{"error": {}}')
    found = read(write_report([runs / "supervised", copy], tmp_path / "both.html", seconds=1))
    assert found.text.count("copy/result.json is damaged") == 2  # above, and in the run's own part
    assert "supervised/result.json" not in found.text


def test_a_loss_that_is_no_number_leaves_a_page_that_programs_can_read(copy):
    lines = (copy / "metrics.jsonl").read_text().splitlines()
    train = [json.loads(line) for line in lines if '"kind": "train"' in line]
    (copy / "metrics.jsonl").write_text(
        "\n".join([*lines, json.dumps({**train[-1], "step": 30, "unlabeled_loss": float("nan")})]) + "\n"
    )
    result = json.loads((copy / "result.json").read_text())
    (copy / "result.json").write_text(json.dumps({**result, "unlabeled_loss": float("nan")}))
    found = read(write_report([copy], seconds=1))
    assert found.json[0]["unlabeled_loss"] is None
    text = (copy / "report.html").read_text()
    assert not re.search(r"\bnan\b", text, re.IGNORECASE)
    assert "U, unlabelled ends without a number: it diverged" in text
    assert "the run diverged. Try a lower learning rate" in found.text


def test_other_pixels_are_other_test_images_even_with_the_same_labels(tmp_path):
    digits = maxmatch.load_images("digits")
    train = (digits.x[:200], digits.y[:200])
    given = {"train": {"steps": 2, "batch": 8, "ratio": 2, "threads": 1}, "data": {"labels": 20}}
    data = maxmatch.from_arrays(*train, digits.test_x[:50], digits.test_y[:50])
    maxmatch.fit(maxmatch.compose("digits", "supervised", given=given), tmp_path / "a", data, quiet=True)
    run = read_run(tmp_path / "a")
    other = maxmatch.from_arrays(*train, digits.test_x[:50].flip(-1), digits.test_y[:50])
    one, same, another = (measure(run, 0.1, images, mapped=False).test for images in (data, data, other))
    assert len(paired([("a", one), ("b", same)])[0]) == 1
    assert paired([("a", one), ("b", another)]) == ([], ["a and b: they have other test images"])


def test_a_stopped_run_has_as_many_steps_as_its_checkpoint(tmp_path):
    """It may have been stopped between two logs."""
    given = {"train": {"steps": 4, "batch": 8, "ratio": 2, "threads": 1, "log_every": 3, "checkpoint_every": 1}}
    maxmatch.fit(maxmatch.compose("digits", "supervised", given=given), tmp_path / "a", quiet=True)
    (tmp_path / "a" / "result.json").unlink()
    lines = (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "a" / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines if '"step": 4' not in line))
    assert read_run(tmp_path / "a").steps == 4
    for path in (tmp_path / "a" / "checkpoint").iterdir():
        path.unlink()
    assert read_run(tmp_path / "a").steps == 3


def test_the_wheel_holds_the_template():
    """Asked of the build backend, which leaves out what git ignores."""
    wheel = pytest.importorskip("hatchling.builders.wheel")
    root = Path(page_module.__file__).parents[3]
    if not (root / "pyproject.toml").exists():
        pytest.skip("an installed package has no source tree to build")
    held = {one.distribution_path for one in wheel.WheelBuilder(str(root)).recurse_included_files()}
    assert {f"maxmatch/report/{name}" for name in ("page.py", "page.html", "style.css")} <= held


def test_a_page_is_not_replaced_by_one_that_tells_less(tmp_path, capsys):
    for number in range(24):
        folder = tmp_path / "photos" / ("unlabeled" if number > 11 else f"labeled/{'ab'[number % 2]}")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (8, 8), np.uint8)).save(folder / f"{number}.png")
    run = tmp_path / "run"
    assert type_in(["train", str(tmp_path / "photos"), *SMALL, "--out", str(run)]) == 0
    before = (run / "report.html").read_bytes()
    (tmp_path / "photos/unlabeled/20.png").rename(tmp_path / "photos/labeled/a/20.png")
    capsys.readouterr()
    assert type_in(["report", str(run)]) == 2
    err = capsys.readouterr().err
    assert "is left as it is, since a new page would tell less" in err
    assert re.search(
        r"the test has changed since it was trained, from \d pictures to \d: a test that stays the same", err
    )
    assert (run / "report.html").read_bytes() == before
    assert type_in(["report", str(run), "--out", str(tmp_path / "other.html")]) == 0
    assert "maxmatch: warning: " in capsys.readouterr().err
    assert "are left out, because" in read(tmp_path / "other.html").text
    assert type_in(["report", str(run), "--out", str(tmp_path / "other.html")]) == 0  # tells as much
    several = [str(tmp_path / f"{number}") for number in range(5)]
    for folder in several:
        shutil.copytree(run, folder)
    for _ in range(2):
        assert type_in(["report", *several, "--out", str(tmp_path / "many.html")]) == 0  # of none could be asked
    (run / "result.json").unlink()  # it goes on, and is not finished
    assert type_in(["report", str(run)]) == 2
    assert (run / "report.html").read_bytes() == before
    assert type_in(["report", str(run), "--force"]) == 0
    assert (run / "report.html").read_bytes() != before


def test_whether_more_labels_helped_is_told_on_the_same_test(tmp_path, capsys):
    """The loop of docs/your_pictures.md: the first run is asked about the folder as it is now."""
    photos = tmp_path / "photos"
    for number in range(40):
        place = "unlabeled" if number > 23 else f"{('labeled', 'test')[number > 11]}/{'ab'[number % 2]}"
        (photos / place).mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8), np.uint8)
        Image.fromarray(pixels).save(photos / place / f"{number}.png")
    first, then = tmp_path / "first", tmp_path / "then"
    assert type_in(["train", str(photos), *SMALL, "--no-report", "--out", str(first)]) == 0
    for number in (30, 31):
        (photos / f"unlabeled/{number}.png").rename(photos / f"labeled/{'ab'[number % 2]}/{number}.png")
    assert type_in(["train", str(photos), *SMALL, "--no-report", "--init", str(first), "--out", str(then)]) == 0
    capsys.readouterr()
    page = write_report([first, then], tmp_path / "both.html")
    assert f"warning: {first}: pictures or labels were changed since it was trained" in capsys.readouterr().err
    found = read(page)
    assert all(figures["confusion"] for figures in found.json)
    assert "are left out, because" not in found.text
    assert "On the same 12 test images" in found.text or "All have the same error" in found.text
    assert "taken as they are now" in found.text
    assert "freematch, labels=12, init=no" in found.text
    assert "freematch, labels=14, init=first" in found.text
    assert "mean ± deviation" not in found.text
    measured = [measure(read_run(run), 1.0, mapped=False) for run in (first, then)]
    pairs, refused = paired([(name, one.test) for name, one in zip(("first", "then"), measured, strict=True)])
    assert ([pair.n for pair in pairs], refused) == ([12], [])
    assert [len(one.missing) for one in measured] == [1, 0]
    (photos / "unlabeled/32.png").rename(photos / "test/a/32.png")  # which they have learned from
    found = measure(read_run(first), 1.0)
    assert found.finished is None
    told = "left out, because the test has changed since it was trained, from 12 pictures to 13: a test that stays"
    assert told in found.missing[0]
    (photos / "test/a/32.png").rename(photos / "unlabeled/32.png")
    old = next((photos / "test/a").iterdir())
    old.rename(old.with_name("named otherwise.png"))
    told = "the test has changed since it was trained, 1 of its 12 pictures have other names or places: a test"
    assert told in measure(read_run(first), 1.0).missing[0]


def test_a_class_that_is_never_tested_is_told_in_the_log_and_on_the_page(tmp_path, capsys):
    for name, count in (("a", 7), ("b", 7), ("c", 2)):
        (tmp_path / "photos/labeled" / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.random.default_rng([number, ord(name)]).integers(0, 256, (8, 8), np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"photos/labeled/{name}/{number}.png")
    assert type_in(["train", str(tmp_path / "photos"), *SMALL, "--out", str(tmp_path / "run")]) == 0
    assert "no test image is of c: the error says nothing of it" in capsys.readouterr().err
    assert measure(read_run(tmp_path / "run"), 1.0, mapped=False).untested == ["c"]
    assert "Nothing is known of c: no test image shows it." in read(tmp_path / "run/report.html").text


def test_a_report_that_is_stopped_says_that_the_run_is_whole(runs, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(page_module, "ask", stopped)
    with pytest.raises(
        Interrupted, match="what was trained is whole: type maxmatch report .*supervised --out x.html"
    ) as caught:
        page_module.report_or_warn([runs / "supervised"], Path("x.html"))
    assert caught.value.code == 130

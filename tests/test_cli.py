"""The commands, in process: what a user types, what comes back, and one line for every mistake."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import maxmatch
from maxmatch.cli import main, run
from maxmatch.cli.using import _confusion, _mistakes
from maxmatch.errors import UsageError
from maxmatch.nets.model_file import load_model, save_model
from maxmatch.train.launcher import launcher, note_job
from maxmatch.train.recipes import RECIPES, compose

SMALL = [
    "--set",
    "net.name=wrn-10-1",
    "--set",
    "train.batch=8",
    "--set",
    "train.ratio=2",
    "--steps",
    "6",
    "--set",
    "train.threads=1",
    "--no-report",
]


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    code = run([str(a) for a in arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "a"
    assert run(["train", "digits@20", *SMALL, "--out", str(out)]) == 0
    return out


@pytest.fixture
def pictures(tmp_path) -> Path:
    digits = maxmatch.load_images("digits")
    folder = tmp_path / "pictures"
    for name, image in zip(("b", "sub dir/ä", "a"), digits.test_x, strict=False):
        path = folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(path)
    (folder / "broken.jpg").write_bytes(b"no picture")
    (folder / "notes.txt").write_text("not a picture either")
    return folder


def test_version_and_help(capsys):
    assert call(capsys, "--version") == (0, f"maxmatch {maxmatch.__version__}\n", "")
    code, out, _ = call(capsys, "--help")
    assert code == 0
    for name in ("demo", "train", "preview", "evaluate", "report", "predict", "export", "data", "methods"):
        assert name in out
    code, out, _ = call(capsys, "train", "--help")
    assert code == 0
    for flag in (
        "log",
        "method",
        "k",
        "over",
        "strategy",
        "steps",
        "seed",
        "fold",
        "protocol",
        "device",
        "out",
        "init",
        "resume",
        "force",
        "config",
    ):
        assert f"--{flag}" in out, flag


def test_help_imports_no_torch_and_training_none_of_the_heavy_three(tmp_path):
    """In a process of its own, by the list of modules."""
    source = Path(maxmatch.__file__).parents[1]
    script = "import sys; from maxmatch.cli import run; run(sys.argv[1:]); print(*sorted(sys.modules), file=sys.stderr)"

    def modules(*arguments: str) -> set[str]:
        done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True,
                              env={"PYTHONPATH": str(source), "PATH": "/usr/bin:/bin"}, cwd=tmp_path)  # fmt: skip
        return set(done.stderr.split())

    assert "torch" not in modules("--help")
    assert not {"torch", "numpy", "sklearn"} & modules("train", "--help")
    assert "torch" not in modules("data")
    assert not {"torch", "matplotlib"} & modules("paper", "list")
    trained = modules("train", "digits@20", *SMALL, "--out", "a")
    assert "torch" in trained
    assert not {"torchvision", "matplotlib"} & trained  # scikit-learn holds the digits


def test_train_prints_its_result_and_what_to_type_next(trained, capsys):
    code, out, err = call(capsys, "train", "digits@20", *SMALL, "--seed", 3, "--out", trained.parent / "b")
    assert code == 0
    assert json.loads(out) == json.loads((trained.parent / "b" / "result.json").read_text())
    assert f"maxmatch evaluate {trained.parent / 'b'}" in err
    wrong = round(602 * json.loads(out)["error"]["last"] / 100)
    assert f" %, {wrong} of 602 test images; " in err


def test_flags_reach_the_recipe(tmp_path, capsys):
    code, out, _ = call(
        capsys, "train", "digits@2%", *SMALL, "--method", "maxmatch", "--k", "1:.5,2:.5", "--over", "fraction:0.5",
        "--strategy", "select", "--seed", 4, "--fold", 2, "--device", "cpu", "--set", "augment.ops=[\"rotate\",\"invert\"]",
        "--set", "augment.policy=imagenet", "--out", tmp_path / "a",
    )  # fmt: skip
    assert code == 0
    result = json.loads(out)
    expected = {
        "k": [[1, 0.5], [2, 0.5]],
        "over": "fraction:0.5",
        "strategy": "select",
        "seed": 4,
        "fold": 2,
        "labels": 24,
    }
    assert {key: result[key] for key in expected} == expected
    recipe = json.loads((tmp_path / "a" / "recipe.json").read_text())
    assert recipe["augment"]["ops"] == ["rotate", "invert"]


def test_the_default_folder_is_named_after_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "train", "digits@20", *SMALL, "--method", "fixmatch", "--seed", 2)[0] == 0
    assert (tmp_path / "runs" / "digits@20-fixmatch-2" / "result.json").exists()


def test_resume_of_a_finished_run_says_so(trained, capsys):
    code, out, err = call(capsys, "train", "--resume", "--out", trained)
    assert code == 0
    assert "is finished: 6 steps" in err
    assert "for more, add --steps 12" in err
    assert json.loads(out)["steps"] == 6
    assert call(capsys, "train", "digits@20", "--resume", "--out", trained, "--method", "maxmatch", "--k", 3)[0] == 0


def test_evaluate_repeats_the_result_and_shows_the_confusion(trained, capsys):
    result = json.loads((trained / "result.json").read_text())
    code, out, _ = call(capsys, "evaluate", trained, "--json")
    found = json.loads(out)
    assert code == 0
    for key in ("top5_error", "robust_error", "robust_error_paper"):
        assert found[key] == pytest.approx(result[key]), key
    assert found["error"] == pytest.approx(result["error"]["last"])
    matrix = np.array(found["confusion"])
    assert matrix.sum() == 602
    assert 100 * (1 - np.trace(matrix) / 602) == pytest.approx(found["error"])
    code, out, _ = call(capsys, "evaluate", trained)
    assert (
        "the image or any of 3 strong views (gentle) of it is misclassified\n" in out
    )  # a line stays a line in a file
    assert "robust_error" in out
    assert "confusion" in out
    assert f"{602 - np.trace(matrix)} of 602 test images" in out


def test_evaluate_says_where_a_run_that_was_made_longer_stands(trained, capsys, tmp_path):
    longer = shutil.copytree(trained, tmp_path / "longer")
    assert call(capsys, "evaluate", longer)[2] == ""
    recipe = json.loads((longer / "recipe.json").read_text())
    recipe["train"]["steps"] *= 2
    (longer / "recipe.json").write_text(json.dumps(recipe))
    code, out, err = call(capsys, "evaluate", longer, "--json")
    assert code == 0
    assert json.loads(out)["error"] == json.loads((trained / "result.json").read_text())["error"]["last"]
    assert (
        f"not finished, and this is the model it last ended with; to go on type maxmatch train --resume --out {longer}\n"
        in err
    )


def test_the_confusion_matrix_fits_the_screen():
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    counts = [[1000 if a == b else 17 for b in range(10)] for a in range(10)]
    for width in (80, 200):
        console = Console(width=width, file=io.StringIO())
        console.print(_confusion(names, counts, "runs/a", width))
        text = console.file.getvalue()
        assert "…" not in text, width
        assert text.count("1000") == 10
        assert ("10 truck" in text) == (width == 80)
        assert all(name in text for name in names)


@pytest.mark.parametrize("width", [30, 200])
def test_names_of_classes_and_folders_are_no_markup(width):
    names, run = ["[red]", "[/b]", "plain", ":cat:"], "runs/[a]"
    counts = [[1 if a == b else 5 for b in range(4)] for a in range(4)]
    for table in (_confusion(names, counts, run, width), _mistakes(names, counts, run)):
        console = Console(width=200, file=io.StringIO())
        console.print(table)
        text = console.file.getvalue()
        assert all(name in text for name in (*names, run))


def test_a_terminal_that_can_t_show_a_class_is_no_error(trained, tmp_path, monkeypatch):
    odd = shutil.copytree(trained, tmp_path / "odd")
    net, info = load_model(odd / "model.safetensors")
    names = ("zéro ö", os.fsdecode(b"\xff"), *info.classes[2:])
    save_model(odd / "model.safetensors", net, replace(info, classes=names))
    monkeypatch.setattr(sys, "path", [*sys.path])
    for encoding, shown in (("ascii", r"z\xe9ro \xf6"), ("utf-8", "zéro ö")):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as left:
            main(["evaluate", str(odd)])
        assert left.value.code == 0
        stream.flush()
        text = stream.buffer.getvalue().decode(encoding)
        assert shown in text
        assert r"\udcff" in text


def test_predict_writes_over_no_file_unless_told_to(trained, pictures, capsys, tmp_path):
    mine = tmp_path / "labels.csv"
    mine.write_text("path,label\na.png,cat\n")
    for what in ([trained, pictures], ["--unlabeled", trained]):
        code, _, err = call(capsys, "predict", *what, "--out", mine)
        assert code == 2
        assert "is there already: give another --out, or type --force" in err
        assert mine.read_text() == "path,label\na.png,cat\n"
    assert call(capsys, "predict", trained, pictures, "--out", mine, "--force")[0] == 0
    assert mine.read_text().startswith("path,label,confidence")


def test_nothing_else_is_written_over_unless_told_to(trained, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["export", trained, "m.onnx"], ["report", trained, "--out", "r.html"], ["preview", "digits"]):
        mine = tmp_path / {"export": "m.onnx", "report": "r.html", "preview": "preview.png"}[words[0]]
        mine.write_text("precious")
        code, _, err = call(capsys, *words)
        assert (code, mine.read_text()) == (2, "precious")
        assert "is there already: give another" in err
        assert "type --force to write over it" in err
        assert call(capsys, *words, "--force")[0] == 0
        again = call(capsys, *words)[0]
        assert again == (2 if words[0] == "export" else 0)  # a page and a sheet of ours may be made anew


def test_predict_names_links_that_lead_nowhere(trained, pictures, capsys):
    (pictures / "broken.jpg").unlink()
    (pictures / "gone.png").symlink_to(pictures / "nowhere.png")
    _, out, err = call(capsys, "predict", trained, pictures)
    assert len(out.splitlines()) == 4
    assert "gone.png: a link that leads nowhere: left out" in err
    assert "1 file was left out" in err


def test_predict_writes_a_row_per_readable_file_and_names_the_others(trained, pictures, capsys, tmp_path):
    code, out, err = call(capsys, "predict", trained, pictures)
    assert code == 0
    rows = list(csv.reader(io.StringIO(out)))
    assert rows[0] == ["path", "label", "confidence"]
    assert [row[0] for row in rows[1:]] == ["a.png", "b.png", "sub dir/ä.png"]
    assert [line.split()[-2:] for line in err.splitlines()] == [["left", "out"], ["left", "out"]]
    assert "broken.jpg" in err
    assert "1 file was left out" in err
    alone = call(capsys, "predict", trained, pictures / "b.png")[1]
    assert list(csv.reader(io.StringIO(alone)))[1:] == [row for row in rows if row[0] == "b.png"]
    digits = maxmatch.load_images("digits")
    classifier = maxmatch.load(trained)
    expected = classifier.predict(digits.test_x[:3])  # b, ä, a
    assert [row[1] for row in rows[1:]] == [expected[2], expected[0], expected[1]]
    chances = classifier.predict_proba(digits.test_x[:3])
    assert float(rows[2][2]) == pytest.approx(chances[0].max(), abs=1e-4)
    code, out, _ = call(capsys, "predict", trained, pictures, "--out", tmp_path / "labels.csv")
    assert out == f"{tmp_path / 'labels.csv'}\n"
    assert list(csv.reader((tmp_path / "labels.csv").open())) == rows


def test_pseudo_labels_go_to_a_file_that_is_named(trained, capsys, tmp_path):
    assert call(capsys, "predict", "--unlabeled", trained, "--k", 1, "--out", tmp_path / "a.csv")[:2] == (
        0, f"{tmp_path / 'a.csv'}\n",
    )  # fmt: skip


def test_the_classifier_takes_arrays_and_files(trained, pictures):
    classifier = maxmatch.load(trained)
    assert classifier.classes == tuple("0123456789")
    digits = maxmatch.load_images("digits")
    from_files = classifier.predict_proba([pictures / "b.png", pictures / "a.png"])
    from_array = classifier.predict_proba(digits.test_x[:3, 0].numpy())
    np.testing.assert_allclose(from_files, from_array[[0, 2]], rtol=1e-6)
    np.testing.assert_allclose(from_array.sum(1), 1)
    with pytest.raises(maxmatch.errors.UsageError, match="this classifier takes"):
        classifier.predict(np.zeros((1, 9, 9), np.uint8))


def test_a_sheet_of_a_folder_lies_outside_it_and_tells_what_train_would(tmp_path, capsys, monkeypatch):
    for number in range(10):
        place = tmp_path / "photos" / "labeled" / "ab"[number > 6]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 20 * number, np.uint8)).save(place / f"{number}.png")
    (tmp_path / "photos/labeled/a/bad.png").write_bytes(b"none")
    monkeypatch.chdir(tmp_path / "photos")
    code, out, err = call(capsys, "preview", ".", "--images", 2, "--k", 1)
    assert (code, out.strip()) == (0, str(tmp_path / "preview.png"))
    assert (tmp_path / "preview.png").exists()
    assert "pictures to learn from" in err
    assert "bad.png" in err
    assert "warning: no test image is of b: the error says nothing of it; label more of it, or test on some\n" in err
    assert call(capsys, "preview", ".", "--images", 2, "--k", 1, "--out", "../sheet.png")[0] == 0
    monkeypatch.chdir(tmp_path / "photos/labeled/a")
    assert call(capsys, "preview", "../..", "--images", 2, "--k", 1)[1].strip() == str(tmp_path / "preview.png")
    monkeypatch.chdir(tmp_path / "photos")
    code, _, err = call(capsys, "preview", ".", "--out", "labeled/sheet.png")
    assert code == 2
    assert "it would lie among the pictures and be learned from; give a place outside" in err


def test_preview_draws_a_sheet(tmp_path, capsys):
    code, out, _ = call(capsys, "preview", "digits", "--out", tmp_path / "p.png", "--k", 2, "--images", 3)
    assert (code, out.strip()) == (0, str(tmp_path / "p.png"))
    sheet = np.asarray(Image.open(tmp_path / "p.png"))
    assert sheet.shape[1] > 4 * 96
    assert sheet.std() > 10


def test_a_sheet_that_finds_no_room_leaves_nothing_that_blocks_the_next(tmp_path, capsys, monkeypatch):
    def full(self, content):
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    typed = ["preview", "digits", "--out", tmp_path / "p.png", "--images", 1, "--k", 1]
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        code, _, err = call(capsys, *typed)
    assert (code, err) == (1, f"maxmatch: {tmp_path / 'p.png'}: No space left on device\n")
    assert list(tmp_path.iterdir()) == []
    assert call(capsys, *typed)[0] == 0
    assert call(capsys, *typed)[0] == 0  # a sheet of ours may be replaced


def test_methods_lists_every_method(capsys):
    code, out, _ = call(capsys, "methods")
    assert code == 0
    assert all(name in out for name in ("supervised", "fixmatch", "maxmatch", "threshold"))


def test_the_demo_prints_one_table(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = call(capsys, "demo", "--steps", 3)
    assert code == 0
    for word in ("label spreading", "supervised", "fixmatch", "maxmatch", "robust error", "seconds", "next:"):
        assert word in out, word
    assert "report: runs/demo/report.html" in out
    assert "3 runs on digits@20, side by side" in (tmp_path / "runs/demo/report.html").read_text()
    splits = [
        json.loads((tmp_path / "runs/demo" / m / "split.json").read_text())
        for m in ("supervised", "fixmatch", "maxmatch")
    ]
    assert splits[0] == splits[1] == splits[2]


MISTAKES = [
    (["train", "digits@20", "--metod", "fixmatch"], 2, "--metod"),
    (["train", "digits@20", "--method", "fixmach"], 2, "did you mean 'fixmatch'"),
    (["train", "digit@20"], 2, "did you mean 'digits'"),
    (["train", "digits@5000"], 2, "5000 labels asked for, but only 1195"),
    (["train", "digits@5"], 2, "at least one a class"),
    (["train", "digits@"], 2, "type digits@40"),
    (["train", "digits@x"], 2, "type a number of labels"),
    (["train", "digits@20", "--k", "0"], 2, "k = 0: at least one strong view"),
    (["train", "digits@20", "--k", "three"], 2, "type --k 3"),
    (["train", "digits@20", "--over", "wurst"], 2, "did you mean 'worst'"),
    (["train", "digits@20", "--over", "mean", "--strategy", "select"], 2, "type --strategy joint"),
    (["train", "digits@20", "--method", "fixmatch", "--strategy", "select"], 2, "joint, or --over worst"),
    (["train", "digits@20", "--over", "mean", "--strategy", "selekt"], 2, "choose from auto, joint, select"),
    (["train", "digits@20", "--steps", "0"], 2, "train.steps = 0"),
    (["train", ""], 2, "the name of the data is empty: type maxmatch train digits@40"),
    (["train", "digits@20", "--steps", "many"], 2, "--steps"),
    (["train", "digits@20", "--epochs", "0"], 2, "train.epochs = 0: it must be at least 1"),
    (["train", "digits@20", "--set", "data.middle=0.875"], 2, "it is for a folder of pictures"),
    (["train", "digits@20", "--set", "augment.middle=2"], 2, "above 0 and at most 1"),
    (["train", "digits@20", "--config", "imagenet-papr"], 2, "did you mean 'imagenet-paper'"),
    (["data", "shard"], 2, "type maxmatch data shard ./photos ./shards"),
    (["benchmark", "digits@20", "--sweep", "lr=1,2"], 2, "write it as section.field=value,value"),
    (["train", "digits@20", "--device", "gpu"], 2, "train.device"),
    (["train", "digits@20", "--set", "train.lr"], 2, "section.field=value"),
    (["train", "digits@20", "--set", "train.learning=1"], 2, "unknown setting 'train.learning'"),
    (["train", "digits@20", "--set", "method.treshold=0.5"], 2, "did you mean 'method.threshold'"),
    (["train", "digits@20", "--k", "3", "--set", "method.k=5"], 2, "given twice"),
    (["train", "digits@20", "--set", "augment.ops=rotat"], 2, "did you mean 'rotate'"),
    (["train", "digits@20", "--set", "augment.policy=fixmatc"], 2, "did you mean 'fixmatch'"),
    (["train", "digits@20", "--set", "net.name=resnet"], 2, "wrn-DEPTH-WIDTH"),
    (["train", "digits@20", "--set", "data.resident=maybe"], 2, "'maybe': true or false is wanted, or auto"),
    (["train", "--resume"], 2, "--resume goes with --out"),
    (["train", "--resume", "--out", "nowhere"], 2, "leaves none: type the same words without --resume"),
    (["train", "--resume", "--out", "."], 2, "holds no run"),
    (["train"], 2, "no data"),
    (["train", "digits@20", "--config", "none.toml"], 2, "none.toml"),
    (["train", "digits@20", "--config", "papr"], 2, "did you mean 'paper'"),
    (["settings", "fast-1min"], 2, "fast-1min is a recipe, not a data set: type --config fast-1min"),
    (["train", "digits@20", "--method", "nosuchfile:Mine"], 2, "type PYTHONPATH=ITS_FOLDER maxmatch"),
    (["evaluate", "nowhere"], 2, "nowhere"),
    (["predict", "nowhere", "."], 2, "nowhere"),
    (["report", "nowhere"], 2, "there is no such run folder"),
    (["report", "."], 2, "holds no run"),
    (["report", ".", "."], 2, "a run is named twice"),
    (["report", ".", "--out", "."], 2, "give the page a name"),
    (["report", ".", "--out", "none/r.html"], 2, "there is no folder none"),
    (["report"], 2, "type maxmatch report --help"),
    (["preview", "digits", "--k", "0"], 2, "--k"),
    (["trian"], 2, "trian"),
    (["data", "ftch"], 2, "did you mean 'fetch'"),
    (["data", "fetch"], 2, "type maxmatch data fetch cifar10"),
    (["data", "fetch", "cifar"], 2, "did you mean 'cifar10'"),
    (["data", "fetch", "digits"], 2, "comes with scikit-learn"),
    (["data", "remove", "imagenet"], 2, "a folder of your own pictures"),
    (["train", "cifar11@40"], 2, "did you mean 'cifar10'"),
    (["train", "svhn-extra@40", "--protocol", "google"], 2, "type svhn"),
    (["train", "digits@20", "--protocol", "gogle"], 2, "choose from balanced, proportional, google, usb, paper"),
    (["--foo"], 2, "type maxmatch --help"),
    (["train", "digits@²"], 2, "type a number of labels"),
    (["train", "digits@all", "--set", "data.exclude_labelled=true"], 2, "no unlabelled one is left"),
    (["train", "digits@20", "--seed", "99999999999999999999999"], 2, "below 2^63"),
    (["train", "digits@20", "--set", "method.k=[]"], 2, "type --k 3"),
    (["train", "digits@20", "--set", "train.lr=inf"], 2, "finite"),
    (["train", "digits@20", "--set", "method.weight=nan"], 2, "0 or more"),
    (["train", "digits@20", "--set", "net.batchnorm_momentum=5"], 2, "in (0, 1]"),
    (["train", "digits@20", "--init", "nowhere"], 2, "give the folder of a run"),
    (["train", "digits@20", "--device", "mps"], 2, "there is none here"),
    (["train", "digits@20", "--method", "os:getcwd"], 2, "no subclass"),
    (["train", "./photos"], 2, "no such folder"),
    (["preview", "digits", "--out", "p.xyz"], 2, "preview.png"),
    (["demo", "--labels", "5000"], 2, "only 1195"),
    (["train", "digits@20", "--set", "train.learning_rate=1"], 2, "did you mean 'train.lr'"),
    (["train", "digits@20", "--set", "train.precision=fp16"], 2, "choose from auto, float64, float32, bf16"),
    (["train", "digits@20", "--k", "1,2,x"], 2, "method.k = 1,2,x"),
    (["train", "digits@20", "--k", "1.."], 2, "method.k = 1..: whole numbers are wanted"),
    (["train", "digits@20", "--k", "3,1,3"], 2, "each K once"),
    (["train", "digits@20", "--k", "1:.2..3"], 2, "give each K a weight, or none"),
    (["train", "digits@20", "--k", "1:2:3..4:5:6"], 2, "whole numbers are wanted"),
    (["train", "digits@20", "--k", "1:inf,3:1"], 2, "a weight is a number above 0"),
    (["train", "digits@20", "--k", "1:0,3:1"], 2, "a weight is a number above 0"),
    (["train", "digits@20", "--k", "0..3"], 2, "at least one strong view"),
    (["tran", "digits@20"], 2, "(type maxmatch --help)"),
    (["train", "digits@20", "--log", "tensorbord"], 2, "did you mean 'tensorboard'"),
    (["benchmark"], 2, "type maxmatch benchmark digits@40"),
    (["benchmark", "digits@20", "--methods", "fixmatch,maxmach"], 2, "did you mean 'maxmatch'"),
    (["benchmark", "digits@20", "--methods", "fixmatch,maxmatch:kay=3"], 2, "did you mean 'method.k'"),
    (["benchmark", "digits@20", "--methods", "uda,uda"], 2, "name each method once"),
    (["benchmark", "digits@20", "--folds", "0"], 2, "--folds 0"),
    (["benchmark", "digits@20", "--folds", "1,1"], 2, "a fold stands there twice"),
    (["benchmark", "digits@20", "--folds", "one"], 2, "type 5 for folds 1 to 5"),
    (["benchmark", "digits@20", "--set", "train.fold=2"], 2, "type --folds 5"),
    (["benchmark", "digits@20", "--set", "method.name=uda"], 2, "type --methods"),
    (["benchmark", "digits@20", "--methods", "uda:k=2", "--set", "method.k=3"], 2, "method.k is given twice"),
    (["benchmark", "digits@5"], 2, "at least one a class"),
    (["benchmark", "digits@20", "--set", "net.name=resnet"], 2, "wrn-DEPTH-WIDTH"),
    (["benchmark", "digits@20", "--jobs", "0"], 2, "--jobs"),
    (["benchmark", "digits@20", "--only-table"], 1, "type it without --only-table"),
    (["paper", "lst"], 2, "did you mean 'list'"),
    (["paper", "run"], 2, "type maxmatch paper list"),
    (["paper", "run", "fig-kay"], 2, "did you mean 'fig-k'"),
    (["paper", "list", "fig-svnh"], 2, "did you mean 'fig-svhn'"),
    (["paper", "run", "fig-k", "--budget", "shrt"], 2, "did you mean 'short'"),
    (["paper", "run", "fig-k", "--budget", "full", "--steps", "9"], 2, "type --budget short --steps 9"),
    (["paper", "run", "fig-k", "--data", "cifar11"], 2, "did you mean 'cifar10'"),
    (["paper", "run", "fig-k", "--labels", "2,x"], 2, "type 250 or 250,4000"),
    (["paper", "run", "fig-k", "--labels", "5"], 2, "at least one a class"),
    (["paper", "run", "fig-losses", "--labels", "20,40"], 2, "type --labels 20"),
    (["paper", "run", "fig-k", "--folds", "0"], 2, "--folds 0"),
    (["paper", "run", "fig-k", "--device", "gpu"], 2, "train.device"),
    (["paper", "run", "fig-k", "--only-page"], 1, "type it without --only-page"),
    (["paper", "run", "table-notation"], 2, "docs/notation.md"),
    (["train", "digits@20", "--set", "net.name=nowhere:Net"], 2, "read as package.module:Class"),
    (["train", "digits@20", "--set", "net.name=wrn-28"], 2, "type wrn-DEPTH-WIDTH"),
    (["train", "digits@20", "--set", "net.pretrained=true"], 2, "has no published weights"),
    (["predict", "nowhere"], 2, "or maxmatch predict --unlabeled RUN"),
    (["predict", "nowhere", "."], 2, "no such run folder"),
    (["predict", "nowhere", ".", "--format", "xml"], 2, "choose from csv, jsonl"),
    (["predict", "nowhere", ".", "--out", "x.xlsx"], 2, "type a file that ends in .csv or .jsonl"),
    (["train", "digits", "--steps", "3", "--epochs", "2"], 2, "--steps 3 and --epochs 2: they say the same thing"),
    (["predict", "nowhere", ".", "--k", "3"], 2, "it is for --unlabeled"),
    (["predict", "nowhere", ".", "--workers", "0"], 2, "--workers 0: it must be at least 1"),
    (["train", "digits@20", "--steps", "ten"], 2, "--steps ten: a whole number is wanted"),
    (["report", ".", "--seconds=x"], 2, "--seconds x: a number is wanted"),
    (["preview", "digits", "--images", "0"], 2, "--images 0: it must be at least 1"),
    (["preview", "digits", "--images=65"], 2, "--images 65: it must be at most 64"),
    (["preview"], 2, "no data: type maxmatch preview ./photos, or maxmatch preview digits"),
    (["preview", "digits", "--out", "p.psd"], 2, "preview.png"),  # a kind that is read alone
    (["train", "digits@20", "--set", "train.stesp=4"], 2, "did you mean 'train.steps'"),
    (["train", "digits@20", "--set", "train.threads=9999"], 2, "train.threads = 9999: it must be from 1 to 4096, or auto"),
    (["train", "digits@20", "--lr", "0.1"], 2, "maxmatch: --lr: type --set train.lr=0.1\n"),
    (["train", "digits@20", "--step", "30"], 2, "No such option: --step (Possible options: --"),  # and no train.step=30
    (["train", "digits@20", "--step", "eager"], 2, "maxmatch: --step: type --set train.step=eager\n"),
    (["train", "digits@20", "--threshold=0.9"], 2, "--threshold: type --set method.threshold=0.9\n"),
    (["train", "--method", "softmatch", "--n-sigma", "3"], 2, "--n-sigma: type --set method.n_sigma=3\n"),
    (["train", "--method", "sofmatch", "--lr", "3"], 2, "--lr: type --set train.lr=3\n"),
    (["train", "digits@20", "--n-sigma", "3"], 2, "No such option: --n-sigma"),  # MaxMatch has none
    (["pretrain", "digits", "--queue", "9"], 2, "--queue: type --set method.queue=9\n"),
    (["train", "digits@20", "--lr", "--k", "3"], 2, "--lr: type --set train.lr=VALUE\n"),
    (["train", "--nesterov", "digits@20"], 2, "--nesterov: type --set train.nesterov=true\n"),
    (["train", "digits@20", "--flip", "False"], 2, "--flip: type --set augment.flip=false\n"),
    (["train", "digits@20", "--nesterov=0"], 2, "--nesterov: type --set train.nesterov=false\n"),
    (["benchmark", "digits@20", "--fold", "3"], 2, "--fold: type --folds 3,\n"),
    (["benchmark", "here", "--labels", "a b.csv"], 2, "--labels: type --set 'data.label_file=a b.csv'\n"),
    (["pretrain", "here", "--labels"], 2, "--labels: type --set data.label_file=VALUE\n"),
    (["train", "digits@20", "--batch", "8"], 2, "type --set train.batch=8 or --set evaluate.batch=8\n"),
    (["train", "digits@20", "--learning-rate", ".1"], 2, "--learning-rate: type --set train.lr=.1\n"),
    (["train", "digits@20", "--iterations", "9"], 2, "--iterations: type --steps 9\n"),
    (["settings", "--policy", "a b"], 2, "--policy: type --set 'augment.policy=a b'\n"),
    (["train", "digits@20", "--net", "resnet18"], 2, "--net: type --set net.name=resnet18\n"),
    (["train", "digits@20", "--net"], 2, "--net: type --set net.name=NAME\n"),
    (["evaluate", "nowhere", "--lr", "1"], 2, "No such option: --lr"),  # it takes no --set
    (["predict", "--unlabeled", "nowhere"], 2, "holds no run"),
    (["predict", "--unlabeled", "nowhere", "."], 2, "leave one of them out"),
    (["predict", "--unlabeled", "nowhere", "--top", "2"], 2, "are for a folder of pictures"),
    (["export", "nowhere", "model.onnx"], 2, "no such run folder"),
    (["bound", "nowhere"], 2, "nowhere"),
    (["bound", "nowhere", "--delta", "2"], 2, "delta = 2: it is the probability that the bound fails"),
    (["bound", "nowhere", "--json", "missing/b.json"], 2, "there is no folder missing"),
    (["train", "digits@20", "--set", "net.name=plain-conv", "--set", "net.dropout=0.1"], 2, "plain-conv has no dropout"),
    (["export", "nowhere", "model.h5"], 2, "ends in .onnx or .pt2"),
    (["export", "nowhere", "model.onnx", "--format", "h5"], 2, "choose from onnx, torch"),
    (["train", "digits@20", "--set", "method.teacher=emen"], 2, "choose from own, eman"),
    (["train", "digits@20", "--method", "vat", "--set", "method.teacher=eman"], 2, "teacher = eman: the target is"),
    (["train", "digits@20", "--method", "moco"], 2, "type maxmatch pretrain DATA"),
    (["pretrain"], 2, "type maxmatch pretrain digits"),
    (["pretrain", "digits@40"], 2, "looks at no labels; type maxmatch pretrain digits"),
    (["pretrain", "digit"], 2, "did you mean 'digits'"),
    (["pretrain", "digits", "--set", "method.name=fixmatch"], 2, "it learns from labels; type maxmatch train"),
    (["pretrain", "digits", "--set", "method.queu=5"], 2, "did you mean 'method.queue'"),
    (["pretrain", "digits", "--config", "paper"], 2, "recipe paper is not for moco"),
    (["pretrain", "digits", "--set", "augment.scale=[0.9,0.1]"], 2, "the smaller first"),
    (["pretrain", "./photos"], 2, "no such folder"),
    (["benchmark", "digits@20", "--methods", "moco"], 2, "it learns no classes; type maxmatch pretrain"),
    (["pretrain", "--resume"], 2, "--resume goes with --out"),
    (["pretrain", "digits", "--steps", "5", "--epochs", "2"], 2, "--steps 5 and --epochs 2: they say the same thing"),
    (["benchmark", "digits@20", "--steps", "3", "--epochs", "2"], 2, "--steps 3 and --epochs 2: they say the same"),
    (["bench", "--net", "wrn-10-1"], 2, "It measures wrn-28-2, wrn-28-8, resnet50."),
    (
        ["train", "digits@20", "--config", "imagenet-paper", "--epochs", "2"],
        2,
        "train.warmup_epochs = 5: it must be from 0 to train.epochs, which must be set; in a shorter run type --set",
    ),
    (["pretrain", "digits", "--epochs", "0"], 2, "train.epochs = 0: it must be at least 1"),
    (["train", "digits@20", "--method", "supervised", "--k", "3"], 2, "supervised has no views to choose from"),
    (["pretrain", "digits", "--set", "train.ema_decay=0"], 2, "the average is the teacher of moco"),
    (
        ["train", "digits@20", "--method", "ict", "--set", "train.ema_decay=0"],
        2,
        "train.ema_decay = 0.0: it must be above 0, 0.999 for example: the average is the teacher of ict",
    ),
    (["train", "digits@20", "--method", "mean-teacher", "--set", "train.ema_decay=0"], 2, "teacher of mean-teacher"),
    (
        ["train", "digits@20", "--set", "method.teacher=eman", "--set", "train.ema_decay=0"],
        2,
        "the average is the teacher of maxmatch with teacher = eman",
    ),
    (["pretrain", "digits", "--init", "nowhere"], 2, "give the folder of a run"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "code", "message"), MISTAKES, ids=lambda v: " ".join(v) if isinstance(v, list) else None
)
def test_every_mistake_is_one_line_that_helps(capsys, tmp_path, monkeypatch, typed, code, message):
    monkeypatch.chdir(tmp_path)
    found, out, err = call(capsys, *typed)
    assert found == code, err
    assert out == ""
    assert message in err
    assert err.count("\n") == 1, err
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_an_old_checkpoint_and_an_old_model_are_refused_in_one_line(trained, tmp_path, capsys):
    import shutil

    from safetensors.torch import load_file, save_file

    old = tmp_path / "old"
    shutil.copytree(trained, old)
    (old / "result.json").unlink()
    for path in (*(old / "checkpoint").iterdir(), old / "model.safetensors"):
        save_file(load_file(path), path, {"format_version": "0"})
    code, _, err = call(capsys, "train", "--resume", "--out", old)
    assert (code, err.count("\n")) == (1, 1)
    assert "has format 0, this version reads 2" in err
    code, _, err = call(capsys, "evaluate", old)
    assert code == 1
    assert "has format 0, this version reads 1" in err


def test_an_unwritable_place_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    code, _, err = call(capsys, "train", "digits@20", *SMALL, "--out", tmp_path / "file" / "run")
    assert code == 1
    assert err.count("\n") == 1
    assert "Not a directory" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('method = "fixmatch"', "outside a section"),
        ("steps = 3", "such as [train]"),
        ("recipe = [1]", "unknown recipe"),
        ("settled = 3", "a list of section.field"),
    ],
)
def test_a_config_of_the_wrong_shape_is_one_line(tmp_path, capsys, text, message):
    (tmp_path / "x.toml").write_text(text + "\n")
    code, _, err = call(capsys, "train", "digits@20", "--config", tmp_path / "x.toml", "--out", tmp_path / "a")
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_a_run_s_recipe_serves_another_run_of_another_length(trained, tmp_path, capsys):
    """What was `auto` there is settled anew here; resuming keeps what was settled."""
    typed = ["train", "--config", trained / "recipe.json", "--steps", 12, "--out", tmp_path / "b"]
    assert call(capsys, *typed)[0] == 0
    old, new = (json.loads((folder / "recipe.json").read_text()) for folder in (trained, tmp_path / "b"))
    assert (old["train"]["ema_decay"], new["train"]["ema_decay"]) == (0.5, 0.5)  # both horizons are below two steps
    assert old["settled"] == new["settled"]
    from maxmatch.train.recipes import compose

    longer = compose(config=str(trained / "recipe.json"), given={"train": {"steps": 4000}})
    assert (longer.train.ema_decay, longer.net.batchnorm_momentum) == ("auto", "auto")
    assert call(capsys, "train", "--resume", "--steps", 14, "--out", tmp_path / "b")[0] == 0
    assert json.loads((tmp_path / "b" / "recipe.json").read_text())["settled"] == new["settled"]


def test_settings_of_another_data_set_are_not_taken_by_mistake(tmp_path, capsys):
    """Digits' labels and views for a folder of photos, say: half the labels would be hidden without a word."""
    (tmp_path / "mine.toml").write_text(call(capsys, "settings")[1])
    (tmp_path / "photos").mkdir()
    for data in ("cifar10", tmp_path / "photos"):
        code, _, err = call(capsys, "settings", data, "--config", tmp_path / "mine.toml")
        assert code == 2
        assert f"has the [data] of digits, but {data} was asked for: delete that section" in err
    (tmp_path / "mine.toml").write_text('[data]\nname = "digits"\n[train]\nlr = 0.7\n')
    assert compose("cifar10", config=str(tmp_path / "mine.toml")).train.lr == 0.7


def test_help_names_every_recipe(capsys):
    found = "".join(call(capsys, "train", "--help")[1].replace("│", " ").split())
    assert all(name in found for name in RECIPES)


def test_settings_lists_everything_and_can_be_given_back(tmp_path, capsys):
    code, out, _ = call(capsys, "settings", "digits@40", "--method", "fixmatch")
    assert code == 0
    for word in ("[train]", "lr = 0.4", "labels = 40", 'cutout = "unset"', "threshold = 0.95", "[evaluate]"):
        assert word in out, word
    (tmp_path / "mine.toml").write_text(out)
    assert call(capsys, "settings", "digits@40", "--config", tmp_path / "mine.toml")[1] == out
    assert "lr = 0.1\n" in call(capsys, "settings", "digits@40", "--set", "train.lr=0.1")[1]


def test_settings_are_told_as_a_page_of_them_all(capsys):
    from maxmatch.cli.reference import page

    assert call(capsys, "settings", "--markdown")[:2] == (0, page())
    code, out, err = call(capsys, "settings", "digits@40", "--markdown")
    assert (code, out) == (2, "")
    assert "type it alone" in err


def test_a_program_reads_the_result_and_a_person_is_told_where_it_is(tmp_path, capsys, monkeypatch):
    code, out, err = call(capsys, "train", "digits@20", *SMALL, "--out", tmp_path / "a")
    assert code == 0
    assert json.loads(out) == json.loads((tmp_path / "a" / "result.json").read_text())
    assert "result.json" not in err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    code, out, err = call(capsys, "train", "digits@20", *SMALL, "--out", tmp_path / "b")
    assert (code, out) == (0, "")
    assert f"result: {tmp_path / 'b' / 'result.json'}\n" in err


def test_a_folder_of_other_things_is_left_alone(tmp_path, capsys):
    (tmp_path / "holiday.jpg").write_bytes(b"precious")
    for force in ([], ["--force"]):
        code, _, err = call(capsys, "train", "digits@20", *SMALL, *force, "--out", tmp_path)
        assert code == 2
        assert "is not empty and holds no run" in err
    assert [p.name for p in tmp_path.iterdir()] == ["holiday.jpg"]


def test_a_run_cannot_replace_the_one_it_starts_from(trained, capsys):
    code, _, err = call(capsys, "train", "digits@20", *SMALL, "--init", trained, "--force", "--out", trained)
    assert code == 2
    assert "give another --out" in err
    assert (trained / "model.safetensors").exists()


def test_a_stopped_demo_goes_on(tmp_path, capsys, monkeypatch):
    import os
    import signal

    from maxmatch.train.step import Step

    monkeypatch.chdir(tmp_path)
    whole, calls = Step.__call__, []

    def stopping(self, t):
        calls.append(t)
        if len(calls) == 5:  # in the second of three runs of three steps
            os.kill(os.getpid(), signal.SIGINT)
        whole(self, t)

    monkeypatch.setattr(Step, "__call__", stopping)
    code, _, err = call(capsys, "demo", "--steps", 3, "--no-report")
    assert code == 130
    assert "type maxmatch demo to go on" in err
    code, out, _ = call(capsys, "demo", "--steps", 3, "--no-report")
    assert code == 0
    assert len(calls) == 9  # no step was done twice
    assert "maxmatch" in out
    assert call(capsys, "demo", "--steps", 3, "--no-report")[0] == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["demo", "demo-2"]
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    code, _, err = call(capsys, "demo", "--steps", 3, "--out", tmp_path / "photos")
    assert (code, err.count("\n")) == (2, 1)
    assert "photos is not empty and holds no demo: give another --out" in err
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_a_config_s_method_names_the_folder_and_its_options_belong_to_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text('[method]\nname = "FixMatch"\nthreshold = 0.5\n')
    assert call(capsys, "train", "digits@20", *SMALL, "--config", "x.toml")[0] == 0
    recipe = json.loads((tmp_path / "runs" / "digits@20-fixmatch-1" / "recipe.json").read_text())
    assert (recipe["method"]["name"], recipe["method"]["threshold"]) == ("fixmatch", 0.5)
    code, _, err = call(capsys, "train", "digits@20", *SMALL, "--config", "x.toml", "--method", "maxmatch")
    assert code == 2
    assert "options of FixMatch, but maxmatch was asked for" in err


def test_the_same_number_typed_two_ways_is_one(tmp_path, capsys):
    typed = ["train", "digits@20", *SMALL, "--set", "train.steps=6.0", "--out", tmp_path / "my run"]
    code, _, err = call(capsys, *typed)
    assert code == 0
    assert f"maxmatch evaluate '{tmp_path / 'my run'}'" in err


def test_retyping_one_option_of_a_method_on_resume_agrees(tmp_path, capsys):
    typed = ["--method", "fixmatch", "--k", 2, "--over", "worst", "--strategy", "select"]
    assert call(capsys, "train", "digits@20", *SMALL, *typed, "--out", tmp_path / "a")[0] == 0
    assert (
        call(capsys, "train", "--resume", "--strategy", "select", "--device", "auto", "--out", tmp_path / "a")[0] == 0
    )
    code, _, err = call(capsys, "train", "--resume", "--strategy", "auto", "--out", tmp_path / "a")
    assert code == 2
    assert "method.strategy = auto" in err


def test_names_that_are_no_text_are_predicted_too(trained, pictures, tmp_path, capsys):
    import os
    import shutil

    odd = os.fsencode(pictures) + b"/\xff.png"
    shutil.copy(pictures / "a.png", odd)
    assert call(capsys, "predict", trained, pictures, "--out", tmp_path / "labels.csv")[0] == 0
    assert b"\xff.png," in (tmp_path / "labels.csv").read_bytes()
    assert call(capsys, "predict", trained, pictures)[0] == 0
    code, _, err = call(capsys, "predict", trained, pictures, "--out", tmp_path / "none" / "labels.csv")
    assert code == 2
    assert "can't be written" in err


def test_a_really_full_disk(tmp_path, capsys):
    """A file system of a few hundred kilobytes; needs the right to mount one."""
    import subprocess

    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", str(place)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small file system here")
    typed = ["train", "digits@20", *SMALL, "--set", "train.checkpoint_every=2", "--out"]
    try:
        code, _, err = call(capsys, *typed, place / "a")
        assert (code, err.count("\n")) == (1, 1)
        assert "No space left on device" in err
        assert call(capsys, *typed, tmp_path / "whole")[0] == 0
        subprocess.run(["mount", "-o", "remount,size=20m", str(place)], check=True)
        assert call(capsys, "train", "--resume", "--out", place / "a")[0] == 0
        from safetensors.torch import load_file

        ended, whole = (load_file(folder / "model.safetensors") for folder in (place / "a", tmp_path / "whole"))
        assert all(ended[name].equal(whole[name]) for name in whole)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_is_one_line_and_the_run_can_go_on(tmp_path, capsys, monkeypatch):
    """The disk is full from the second checkpoint on: the first survives, and with room again the run ends the same."""
    from maxmatch.nets import model_file
    from maxmatch.train import checkpoint, fit, loop

    typed = ["train", "digits@20", *SMALL, "--set", "train.checkpoint_every=2", "--out", tmp_path / "a"]
    assert call(capsys, *[*typed[:-1], tmp_path / "whole"])[0] == 0
    written = []

    def full(path, content):
        written.append(path)
        if len([p for p in written if p.parent.name == "checkpoint"]) > 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        model_file_write(path, content)

    model_file_write = model_file.write_safely
    with monkeypatch.context() as patch:
        for module in (checkpoint, fit, loop, model_file):
            patch.setattr(module, "write_safely", full)
        code, _, err = call(capsys, *typed)
    assert code == 1
    assert "No space left on device" in err
    assert "--resume --out" in err
    assert call(capsys, "train", "--resume", "--out", tmp_path / "a")[0] == 0
    from safetensors.torch import load_file

    ended, whole = (load_file(tmp_path / name / "model.safetensors") for name in ("a", "whole"))
    assert all(ended[name].equal(whole[name]) for name in whole)


def test_a_write_that_fails_leaves_the_old_file_and_no_scraps(tmp_path, monkeypatch):
    import os

    from maxmatch.nets.model_file import write_safely

    path = tmp_path / "x"
    write_safely(path, b"old")

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space") as told:
        write_safely(path, b"new")
    assert told.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_of_two_who_write_one_file_at_once_each_writes_its_own(tmp_path):
    """Who ends last has its place, whole; the first has the name by which `maxmatch data shard` knows what is left."""
    from maxmatch.files import write_safely, writing_safely

    path = tmp_path / "race.csv"
    with writing_safely(path) as first:
        first.write(b"the first, and the longer one")
        assert [p.name for p in tmp_path.iterdir()] == [".race.csv.tmp"]
        with writing_safely(path) as second:
            second.write(b"the second")
            assert all(p.name.startswith(".race.csv.") and p.suffix == ".tmp" for p in tmp_path.iterdir())
        assert path.read_bytes() == b"the second"
        with pytest.raises(KeyboardInterrupt), writing_safely(path):
            raise KeyboardInterrupt
    assert path.read_bytes() == b"the first, and the longer one"
    assert [p.name for p in tmp_path.iterdir()] == ["race.csv"]
    (tmp_path / ".race.csv.tmp").write_bytes(b"as a kill leaves it")
    write_safely(path, b"another")
    assert path.read_bytes() == b"another"
    assert [p.name for p in tmp_path.iterdir()] == ["race.csv"]  # what a kill has left does not stay


def test_a_file_that_took_its_place_before_it_was_locked_is_not_written_to(tmp_path, monkeypatch):
    from maxmatch import files

    path, lock = tmp_path / "race.csv", files._lock

    def late(place: int) -> bool:
        os.replace(tmp_path / ".race.csv.tmp", path)  # who held it until now is done
        return lock(place)

    monkeypatch.setattr(files, "_lock", late)
    with files.written_aside(path) as aside:
        assert aside.name != ".race.csv.tmp"
        aside.write_bytes(b"mine")
        assert path.read_bytes() == b""
    assert path.read_bytes() == b"mine"
    assert [p.name for p in tmp_path.iterdir()] == ["race.csv"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes by name")
def test_what_is_no_file_is_not_replaced_and_a_link_stays_one(tmp_path):
    from maxmatch.files import write_safely

    pipe, link, target = (tmp_path / name for name in ("pipe", "link.csv", "target.csv"))
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="pipe is no ordinary file: give the name of one"):
        write_safely(pipe, b"rows")
    assert pipe.is_fifo()
    target.write_bytes(b"old")
    link.symlink_to("target.csv")
    write_safely(link, b"new")
    assert (link.is_symlink(), target.read_bytes()) == (True, b"new")
    (tmp_path / "far").symlink_to(tmp_path / "later.csv")  # leads to what is not there yet
    write_safely(tmp_path / "far", b"first")
    assert (tmp_path / "later.csv").read_bytes() == b"first"


def test_names_with_any_line_ending_are_one_row():
    from maxmatch.files import csv_lines

    rows = [["Icon\r.jpg", "cat"], ["a\nb", 'say "x"'], ["plain", "dog"], ["\udcff.png", ""]]
    text = csv_lines(rows).decode(errors="surrogateescape")
    assert list(csv.reader(io.StringIO(text, newline=""))) == rows
    assert "plain,dog\n" in text  # no marks where none are needed


@pytest.mark.skipif(sys.platform == "win32", reason="a shell is wanted")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_are_closed_are_no_traceback(tmp_path, closed):
    source = Path(maxmatch.__file__).parents[1]
    words = f"'{sys.executable}' -m maxmatch train digits@20 --steps 1 --no-report --out '{tmp_path}/run' {closed}"
    done = subprocess.run(["sh", "-c", words], env={**os.environ, "PYTHONPATH": str(source)}, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr + done.stdout
    assert (tmp_path / "run" / "result.json").exists()


def test_a_file_is_known_as_ours_by_its_beginning(tmp_path):
    from maxmatch.files import refuse_to_replace

    path = tmp_path / "page.html"
    path.write_bytes(b"<!-- ours -->" + bytes(9000))
    refuse_to_replace(path, force=False, ours=b"ours")
    path.write_bytes(bytes(9000) + b"a page that quotes ours")
    with pytest.raises(UsageError, match="is there already: give another --out, or type --force"):
        refuse_to_replace(path, force=False, ours=b"ours")
    refuse_to_replace(path, force=True, ours=b"ours")


def test_of_several_processes_one_speaks(capsys, monkeypatch, trained):
    monkeypatch.setenv("RANK", "1")
    assert call(capsys, "train", "digits@20", "--set", "train.bach=3") == (2, "", "")
    assert call(capsys, "train", "--resume", "--out", trained) == (0, "", "")
    monkeypatch.setenv("RANK", "0")
    assert call(capsys, "train", "digits@20", "--set", "train.bach=3")[2].startswith("maxmatch: unknown setting")


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["trian"], 2)])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_one_of_several_processes_leaves_all_said_and_without_python_s_end(words, code, processes):
    """gloo's threads abort a Python that is ending; here anything that is done at its end does."""
    script = f"import atexit, os; atexit.register(os.abort); from maxmatch.cli import main; main({words!r})"
    environment = {**os.environ, "PYTHONPATH": str(Path(maxmatch.__file__).parents[1]), "WORLD_SIZE": processes}
    environment.pop("PYTHONUNBUFFERED", None)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == (code if processes == "2" else -signal.SIGABRT)
    assert processes == "1" or (done.stdout or done.stderr).startswith("maxmatch")


def test_started_again_by_torchrun_a_run_goes_on(capsys, monkeypatch, trained):
    words = ("train", "digits@20", *SMALL, "--out", trained)
    assert "already holds a run" in call(capsys, *words)[2]
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    note_job(trained, [launcher()])  # as if it had been begun by the torchrun that starts this again
    code, out, said = call(capsys, *words, "--force")
    assert (code, json.loads(out)["steps"]) == (0, 6)
    assert "is finished" in said

"""A folder becomes rows: in order, the same for any number of threads, little held at a time; formats read back."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import maxmatch
from maxmatch import progress
from maxmatch.cli import run as command
from maxmatch.errors import UsageError, UserError
from maxmatch.evaluate import label
from maxmatch.evaluate.label import batch_size, batches, label_folder, read_ahead
from maxmatch.evaluate.rows import choose_format, writing_rows
from maxmatch.train.fit import fit


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    given = {"net": {"name": "wrn-10-1"}, "train": {"steps": 4, "batch": 8, "ratio": 2, "threads": 1}}
    folder = tmp_path_factory.mktemp("label") / "run"
    maxmatch.fit(maxmatch.compose("digits", "fixmatch", given=given), folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Three hundred digits in folders, one file in fifty broken."""
    folder = tmp_path_factory.mktemp("pictures")
    for number, image in enumerate(maxmatch.load_images("digits").test_x[:300]):
        path = folder / f"{number % 7}" / f"{number:04d}.png"
        path.parent.mkdir(exist_ok=True)
        if number % 50 == 3:
            path.write_bytes(b"broken")
        else:
            Image.fromarray(image[0].numpy()).save(path)
    return folder


def test_rows_come_in_order_and_are_the_same_for_any_number_of_threads(run, pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(label, "PORTION", 5)
    monkeypatch.setattr(label, "BATCH", 64)
    written = []
    for workers in (1, 2, 5):
        out = tmp_path / f"{workers}.csv"
        assert label_folder(run, pictures, out, workers=workers) == 6
        err = capsys.readouterr().err.splitlines()
        assert [line.split(":")[1].strip()[-8:] for line in err] == sorted(
            (p.name for p in pictures.rglob("*.png") if p.read_bytes() == b"broken"),
            key=lambda name: f"{int(name[:4]) % 7}/{name}",
        )
        written.append(out.read_bytes())
    assert written[0] == written[1] == written[2]
    rows = list(csv.DictReader((tmp_path / "1.csv").open()))
    assert list(rows[0]) == ["path", "label", "confidence"]
    assert [row["path"] for row in rows] == sorted(row["path"] for row in rows)
    assert len(rows) == 294
    # oracle: the classifier on the arrays that the files were made from
    chances = maxmatch.load(run).predict_proba(maxmatch.load_images("digits").test_x[:300])
    for row in rows:
        chance = chances[int(row["path"][2:6])]
        assert row["label"] == str(chance.argmax())
        assert float(row["confidence"]) == pytest.approx(chance.max(), abs=1e-4)


def test_the_next_likely_classes(run, pictures, tmp_path):
    label_folder(run, pictures, tmp_path / "a.csv", top=3)
    label_folder(run, pictures, tmp_path / "a.jsonl", top=3)
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert list(rows[0]) == ["path", "label", "confidence", "label_2", "confidence_2", "label_3", "confidence_3"]
    chances = maxmatch.load(run).predict_proba(maxmatch.load_images("digits").test_x[:300])
    for row, line in zip(rows, lines, strict=True):
        chance = chances[int(row["path"][2:6])]
        expected = np.argsort(-chance, kind="stable")[:3]
        assert [row["label"], row["label_2"], row["label_3"]] == [str(i) for i in expected]
        assert float(row["confidence_3"]) == pytest.approx(chance[expected[2]], abs=1e-4)
        assert line["top"] == [
            {"label": row[f"label{n}"], "confidence": float(row[f"confidence{n}"])} for n in ("", "_2", "_3")
        ]
        assert (line["path"], line["label"], line["confidence"]) == (
            row["path"],
            row["label"],
            line["top"][0]["confidence"],
        )
    label_folder(run, pictures / "0", tmp_path / "all.jsonl", top=10)
    for line in (tmp_path / "all.jsonl").read_text().splitlines():
        assert {each["label"] for each in json.loads(line)["top"]} == {str(i) for i in range(10)}
    with pytest.raises(UsageError, match="--top 11: there are 10 classes"):
        label_folder(run, pictures, None, top=11)


def test_a_folder_is_labelled_by_the_middle_that_the_run_was_judged_by(run, tmp_path, monkeypatch):
    """Oracle: the classifier, asked about the files themselves."""
    classifier = maxmatch.load(run)
    classifier.preprocessing = replace(classifier.preprocessing, middle=0.5)
    monkeypatch.setattr(label, "load", lambda *_: classifier)
    generator = np.random.default_rng(0)
    for number, image in enumerate(maxmatch.load_images("digits").test_x[:8]):
        framed = generator.integers(0, 256, (16, 16), np.uint8)
        framed[4:12, 4:12] = image[0]
        Image.fromarray(framed).save(tmp_path / f"{number}.png")
    assert label_folder(run, tmp_path, tmp_path / "rows.jsonl") == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    chances = classifier.predict_proba(sorted(tmp_path.glob("*.png")))
    assert [row["label"] for row in rows] == [classifier.classes[likely] for likely in chances.argmax(1)]
    assert [row["confidence"] for row in rows] == pytest.approx(chances.max(1), abs=1e-4)


def test_of_classes_that_are_as_likely_the_first_comes_first():
    class Undecided:
        classes = ("a", "b", "c", "d")

        def predict_proba(self, pixels):
            return np.array([[0.1, 0.4, 0.1, 0.4], [0.25, 0.25, 0.25, 0.25]])

    pictures = [(name, torch.zeros(1, 8, 8, dtype=torch.uint8)) for name in ("x", "y")]
    found = label.rows(Undecided(), pictures, 3, "jsonl")
    assert [[each["label"] for each in row["top"]] for row in found] == [["b", "d", "a"], ["a", "b", "c"]]
    assert [row["label"] for row in found] == ["b", "a"]


def test_a_dash_is_standard_output(run, pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(["predict", str(run), str(pictures), "--out", "-"]) == 0
    assert capsys.readouterr().out.startswith("path,label,confidence\n0/0000.png,")
    assert not Path("-").exists()


def test_only_a_bounded_number_of_pictures_is_held(pictures, monkeypatch):
    """However slow the reader is, no more files are opened than the queue holds."""
    opened = []

    def read(path, shape, middle):
        opened.append(path)
        return torch.zeros(shape, dtype=torch.uint8)

    monkeypatch.setattr(label, "read_image", read)
    monkeypatch.setattr(label, "PORTION", 4)
    names = [f"{number}.png" for number in range(400)]
    files = read_ahead(pictures, names, (1, 8, 8), workers=2)
    seen = []
    for number, (name, _) in enumerate(files):
        seen.append(name)
        assert len(opened) <= number + 4 * 6  # the portion at hand and 2 * 2 + 1 more
    assert seen == names
    stopped = read_ahead(pictures, names, (1, 8, 8), workers=2)
    opened.clear()
    next(stopped)
    stopped.close()  # who reads may stop early; the threads end
    assert len(opened) <= 4 * 6


def test_batches_and_their_size():
    assert [len(batch) for batch in batches(((str(n), "") for n in range(10)), 4)] == [4, 4, 2]
    assert (batch_size((1, 8, 8)), batch_size((3, 224, 224)), batch_size((3, 5000, 5000))) == (256, 111, 1)


def test_nothing_has_the_name_until_all_is_written(run, pictures, tmp_path, monkeypatch):
    out = tmp_path / "labels.csv"
    out.write_text("old")
    calls = []

    def rows(*given):
        calls.append(out.read_text())
        if len(calls) == 3:
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr(label, "rows", rows)
    monkeypatch.setattr(label, "BATCH", 50)
    with pytest.raises(KeyboardInterrupt):
        label_folder(run, pictures, out)
    assert calls == ["old"] * 3
    assert [p.name for p in tmp_path.iterdir()] == ["labels.csv"]
    assert out.read_text() == "old"


def test_the_format_is_the_one_asked_for_or_that_of_the_ending(tmp_path):
    assert choose_format(None, None) == "csv"
    assert choose_format(None, Path("x.txt")) == "csv"
    assert choose_format(None, Path("x.JSONL")) == "jsonl"
    assert choose_format("csv", Path("x.jsonl")) == "csv"
    with pytest.raises(UsageError, match="choose from csv, jsonl"):
        choose_format("xml", None)
    with pytest.raises(UsageError, match="that is a folder"), writing_rows(tmp_path, "csv", ["a"]):
        pass


def test_odd_names_survive_both_formats(tmp_path):
    row = {"path": 'a,"b"\n' + os.fsdecode(b"\xff") + "ä", "label": "x"}
    for kind in ("csv", "jsonl"):
        with writing_rows(tmp_path / kind, kind, ["path", "label"]) as write:
            write([row])
    assert json.loads((tmp_path / "jsonl").read_text()) == row
    with open(tmp_path / "csv", newline="", encoding="utf-8", errors="surrogateescape") as file:
        assert list(csv.DictReader(file)) == [row]


def test_names_that_are_no_text_are_told_where_a_table_has_them(tiny, tmp_path, capsys):
    fit(tiny(), tmp_path / "run", quiet=True)
    (tmp_path / "all").mkdir()
    for name in (b"1.png", b"bad\xff.png"):
        Image.new("L", (8, 8)).save(tmp_path / "all" / os.fsdecode(name))
    for kind, told in (("csv", 1), ("jsonl", 0)):
        capsys.readouterr()
        label_folder(tmp_path / "run", tmp_path / "all", tmp_path / f"out.{kind}", format=kind)
        assert capsys.readouterr().err.count("1 names are not in UTF-8 (") == told


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    """As `maxmatch predict ... | head -1` does, in a process of its own."""
    script = (
        "from maxmatch.evaluate.rows import *\n"
        "try:\n"
        "    with writing_rows(None, 'csv', ['n']) as write:\n"
        "        for n in range(100000): write([{'n': n}])\n"
        "except ReaderGone: pass\n"
    )
    source = str(Path(maxmatch.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"PYTHONPATH": source}
    ) as process:
        assert process.stdout.readline() == b"n\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_rows_are_utf_8_whatever_the_terminal_shows():
    """In a process of its own, whose standard output can show ASCII alone; and where it has no bytes, as in a notebook."""
    script = (
        "import contextlib, io, sys\n"
        "from maxmatch.evaluate.rows import *\n"
        "def write_one():\n"
        "    with writing_rows(None, 'csv', ['path', 'label']) as write:\n"
        "        write([{'path': '\\udcff', 'label': 'zéro ö'}])\n"
        "print('before')\n"
        "write_one()\n"
        "with contextlib.redirect_stdout(io.StringIO()) as shown: write_one()\n"
        "print(shown.getvalue().encode() == 'path,label\\n\\ufffd,zéro ö\\n'.encode())\n"
    )
    environment = {"PYTHONPATH": str(Path(maxmatch.__file__).parents[1]), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment, check=True)
    assert done.stdout.decode() == "before\npath,label\n\ufffd,zéro ö\nTrue\n"


def test_rows_stay_in_the_pipe_while_a_bar_is_on_the_terminal():
    """As `maxmatch predict ... > labels.csv` has it: standard error is a terminal, standard output is not."""
    pty = pytest.importorskip("pty")
    script = (
        "from maxmatch.evaluate.rows import *\n"
        "from maxmatch.progress import Bar\n"
        "with writing_rows(None, 'csv', ['n']) as write, Bar('working', 3) as bar:\n"
        "    for n in range(3): write([{'n': n}]); bar.advance(1)\n"
    )
    environment = {"PYTHONPATH": str(Path(maxmatch.__file__).parents[1]), "TERM": "xterm"}
    terminal, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=theirs, env=environment, check=True
    )
    os.close(theirs)
    shown = os.read(terminal, 100_000)
    os.close(terminal)
    assert done.stdout == b"n\n0\n1\n2\n"
    assert b"working" in shown


def test_long_work_is_not_silent(run, pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "SILENCE", -1.0)
    monkeypatch.setattr(label, "BATCH", 100)
    label_folder(run, pictures, tmp_path / "a.csv")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("labelling")]
    assert [line.partition(", about ")[0] for line in lines] == [f"labelling {done}/300" for done in (100, 200, 300)]
    assert [line.endswith(" left") for line in lines] == [True, True, False]


def test_where_no_file_can_be_read_it_is_an_error_and_no_file_is_written(run, tmp_path, capsys):
    (tmp_path / "only.png").write_bytes(b"broken")
    for place, line in (
        (tmp_path, "none of 1 files can be read as"),
        (tmp_path / "only.png", r"only\.png: it can't be"),
    ):
        with pytest.raises(UserError, match=line):
            label_folder(run, place, tmp_path / "a.csv")
        assert not (tmp_path / "a.csv").exists()
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(UserError, match="none of 1 files can be read as a picture"):
        label_folder(run, tmp_path, tmp_path / "a.csv")
    Image.new("L", (8, 8)).save(tmp_path / "good.png")
    assert label_folder(run, tmp_path, tmp_path / "a.csv") == 2


def test_a_signal_ends_a_command_and_leaves_nothing_half_written(run, pictures, tmp_path, monkeypatch, capsys):
    whole = label.rows

    def stopped(*given):
        os.kill(os.getpid(), signal.SIGTERM)
        return whole(*given)

    monkeypatch.setattr(label, "rows", stopped)
    out = tmp_path / "out" / "labels.csv"
    out.parent.mkdir()
    assert command(["predict", str(run), str(pictures), "--out", str(out)]) == 143
    assert list(out.parent.iterdir()) == []
    assert capsys.readouterr().err.endswith("\nmaxmatch: stopped\n")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

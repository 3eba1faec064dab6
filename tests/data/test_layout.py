"""Folders of pictures, good and bad: what is found in them, what is kept for the test, what is said of them."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from maxmatch.data import copies, layout
from maxmatch.data.folder import find_pictures
from maxmatch.data.layout import read_layout
from maxmatch.errors import UsageError


def put(root, *names, colour=0):
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 9), (colour + 7 * number + 31 * len(name)) % 256).save(path)


def labels_of(listing):
    return {f: listing.classes[y] if y >= 0 else None for f, y in zip(listing.files, listing.labels, strict=True)}


def test_labelled_and_unlabelled_beside_each_other(tmp_path):
    put(tmp_path, "labeled/cat/a.png", "labeled/dog/deep/er/b.png", "unlabeled/c.png", "unlabeled/x/d.png")
    put(tmp_path, "unlabeled/.hidden.png", "notes/e.png", "loose.png")
    (tmp_path / "unlabeled/readme.txt").write_text("no picture")
    listing = read_layout(tmp_path)
    assert labels_of(listing) == {
        "labeled/cat/a.png": "cat", "labeled/dog/deep/er/b.png": "dog", "unlabeled/c.png": None, "unlabeled/x/d.png": None,
    }  # fmt: skip
    assert listing.classes == ("cat", "dog")
    assert listing.test_files == ()
    assert "notes: 1 picture that is not in labeled/; left out" in listing.notes[0]
    assert "1 picture lies in no class folder (loose.png); left out" in listing.notes[1]
    assert "no error is measured" in listing.notes[2]


def test_the_other_spelling(tmp_path):
    put(tmp_path, "labelled/a/1.png", "labelled/b/2.png", "unlabelled/3.png")
    assert set(labels_of(read_layout(tmp_path)).values()) == {"a", "b", None}


def test_capitals_are_the_same_names(tmp_path):
    put(tmp_path / "a", "Train/a/1.png", "Train/b/2.png", "Unlabeled/3.png", "TEST/a/4.png")
    listing = read_layout(tmp_path / "a")
    assert labels_of(listing) == {"Train/a/1.png": "a", "Train/b/2.png": "b", "Unlabeled/3.png": None}
    assert listing.test_files == ("TEST/a/4.png",)
    put(tmp_path / "b", "Labeled/a/1.png", "Labeled/b/2.png", "UNLABELLED/3.png")
    assert labels_of(read_layout(tmp_path / "b")) == {
        "Labeled/a/1.png": "a", "Labeled/b/2.png": "b", "UNLABELLED/3.png": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Training", "train"),
        ("valid", "val"),
        ("validation", "val"),
        ("testing", "test"),
        ("unlabelled_pics", "unlabeled"),
    ],
)
def test_what_others_call_a_folder_is_no_class(tmp_path, name, meant):
    put(tmp_path, "a/1.png", "b/2.png", f"{name}/3.png")
    with pytest.raises(UsageError, match=f"{name}: if {meant}/ is meant, call it so"):
        read_layout(tmp_path)
    put(tmp_path, "labeled/a/1.png", "labeled/b/2.png")  # nor is it left out beside labeled/
    with pytest.raises(UsageError, match=f"if {meant}/ is meant"):
        read_layout(tmp_path)


@pytest.mark.parametrize(
    ("meant", "names"),
    [
        (
            "unlabeled",
            "unlabled unlabeld Unlabled unlabel unlable unlabelld ulabeled un-labeled unlabeled_2 unlaballed",
        ),
        ("labeled", "labled Labled labeld lebeled labelld labaled labelled_pics"),
        ("test", "tets tset tests test_set Test-Data testset testing_images"),
        ("train", "trian tarin training_set train_data trainset"),
        ("val", "valdation validaton validation_set"),
    ],
)
def test_a_misspelt_name_is_no_class(tmp_path, meant, names):
    for name in names.split():
        for beside in ("a/1.png", "labeled/a/1.png", "train/a/1.png"):
            put(tmp_path / name / beside[0], beside, beside.replace("a/1", "b/2"), f"{name}/a/3.png")
            with pytest.raises(UsageError, match=f"{name}: if {meant}/ is meant, call it so"):
                read_layout(tmp_path / name / beside[0])


def test_a_misspelt_name_within_labeled_is_no_class(tmp_path):
    put(tmp_path, "labeled/a/1.png", "labeled/b/2.png", "labeled/unlabled/3.png")
    with pytest.raises(UsageError, match="labeled/unlabled: a class can't have that name"):
        read_layout(tmp_path)


def test_labeled_does_not_hide_a_class_folder_of_the_same_name(tmp_path):
    put(tmp_path, "cat/1.png", "cat/2.png", "dog/3.png", "unlabeled/4.png")
    put(tmp_path, "labeled/cat/5.png", "labeled/dog/6.png")
    with pytest.raises(
        UsageError, match="cat and .*labeled/cat are the same class: move the 2 pictures of the one into"
    ):
        read_layout(tmp_path)
    assert len(read_layout(tmp_path, labels=False).files) == 3
    (tmp_path / "cat").rename(tmp_path / ".cat")
    (tmp_path / "labelled").mkdir()
    (tmp_path / "labeled" / "dog").rename(tmp_path / "labelled" / "dog")
    with pytest.raises(UsageError, match="dog and .*labelled/dog are the same class"):
        read_layout(tmp_path)


@pytest.mark.parametrize(
    "inside", ["labeled/cat labeled/dog unlabeled", "labeled/cat labeled/dog", "train/cat train/dog"]
)
def test_of_the_folder_above_the_one_below_is_meant(tmp_path, inside):
    put(tmp_path / "photos", *(f"{name}/{number}.png" for number, name in enumerate(inside.split())))
    with pytest.raises(UsageError, match=f"if {tmp_path}/photos is the folder of pictures, type that"):
        read_layout(tmp_path)
    assert read_layout(tmp_path / "photos").classes == ("cat", "dog")


def test_a_folder_of_runs_beside_the_classes_is_none(tmp_path):
    put(tmp_path, *(f"{name}/{number}.png" for name in ("a", "b") for number in range(6)))
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "x" / "recipe.json").write_text("{}")
    assert read_layout(tmp_path, strict=True).classes == ("a", "b")
    (tmp_path / "c").mkdir()
    with pytest.raises(UsageError, match="c: no pictures in it; the class would be left out"):
        read_layout(tmp_path, strict=True)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('path,label\n1.png,a\n2.png,"b\n3.png,b\n4.png,a\n', 3),  # to the end of the file
        ('path,label\n1.png,a\n2.png,"b\n3.png,b"\n4.png,a\n', 3),  # to another one
        ('1.png,a\n2.png,b\n4.png,"a\n', 3),
        ('sep=,\n1.png,a\n"2.png,b\n3.png,b\n4.png,a\n', 3),
        ('note,label,path\n"two\nlines",a,1.png\n,"b\n,b,3.png\n', 4),
    ],
)
def test_a_quotation_mark_too_many_is_told_by_its_line(tmp_path, text, line):
    put(tmp_path / "all", "1.png", "2.png", "3.png", "4.png")
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UsageError, match=rf"t\.csv: line {line} has a quotation mark too many or too few"):
        read_layout(tmp_path / "all", tmp_path / "t.csv")


def test_quotation_marks_that_are_no_fault_are_none(tmp_path):
    put(tmp_path / "all", "1.png", "2.png", "a\nb.png")
    (tmp_path / "t.csv").write_text('path,label,note\n"1.png" ,"a","two\nlines"\n2.png,"b"\n"a\nb.png",b,\n')
    assert {*labels_of(read_layout(tmp_path / "all", tmp_path / "t.csv")).values()} == {"a", "b"}


def test_a_table_whose_rows_have_no_label_is_told_how_they_are_written(tmp_path):
    put(tmp_path / "all", "1.png", "2.png")
    (tmp_path / "t.csv").write_text("1.png\n2.png\n")
    with pytest.raises(UsageError, match=r"t\.csv: no row of it has a label; .* behind a comma"):
        read_layout(tmp_path / "all", tmp_path / "t.csv")


@pytest.mark.parametrize("name", ["Labels", "label", "lables", "annotated"])
def test_a_folder_of_classes_that_is_the_only_one_is_told_its_name(tmp_path, name):
    put(tmp_path, f"{name}/cat/1.png", f"{name}/dog/2.png", "unlabeled/3.png")
    line = f"all labels are '{name}'; at least two classes are needed; if they are cat, dog, call {name}/ labeled/"
    with pytest.raises(UsageError, match=line):
        read_layout(tmp_path)
    (tmp_path / name).rename(tmp_path / "labeled")
    assert read_layout(tmp_path).classes == ("cat", "dog")


ORDINARY = """
    airplane apple bag ball banana barrel bear bed best bicycle bird blade boat book bottle brain bread bridge bus
    butterfly cabinet cable cabled camel car castle cat chest class code color deer desk dog drain elephant enabled face
    first flower forest fork frog grain grape horse house invalid key knife label labels lamp left leopard level lion
    mislabeled mountain nest none normal oval other pest pizza plain positive rabbit rain raining rest resting right rose
    sheep ship sign stable strain table tabled tables tablet tent terrain test1 text toast trail trailer trailing trains
    traits tram tree truck unable unknown unlocked valley valve van vest wales wall west woman zebra
"""


def test_ordinary_words_are_classes(tmp_path):
    names = ORDINARY.split()
    for number, name in enumerate(names):
        noise(tmp_path, f"tops/{name}/1.png", number)
        noise(tmp_path, f"within/labeled/{name}/1.png", number)
    assert len(names) > 100
    for place in ("tops", "within"):
        assert read_layout(tmp_path / place).classes == tuple(sorted(names))


def test_where_no_labels_are_needed_folders_may_have_any_name(tmp_path):
    put(tmp_path, "training/1.png", "valid/2.png", "unlabeled_2/3.png")
    assert len(read_layout(tmp_path, labels=False).files) == 3


def test_no_class_within_labeled_is_called_unlabeled(tmp_path):
    put(tmp_path, "labeled/a/1.png", "labeled/b/2.png", "labeled/Unlabeled/3.png")
    with pytest.raises(UsageError, match="labeled/Unlabeled: a class can't have that name"):
        read_layout(tmp_path)


def test_words_that_stand_for_no_label(tmp_path):
    put(tmp_path / "all", *(f"{i}.png" for i in range(9)))
    rows = ["filename,class", "0.png,a", "1.png,b", "2.png,NaN", "3.png,nan", "4.png,n/a", "5.png,none", "6.png,-1"]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    listing = read_layout(tmp_path / "all", tmp_path / "t.csv")
    assert listing.classes == ("a", "b", "none")
    assert {f for f, label in labels_of(listing).items() if label} == {"0.png", "1.png", "5.png"}
    told = " ".join(listing.notes)
    assert "1 rows say 'NaN', taken as unlabelled" in told
    assert "1 rows say 'none', taken as a class; leave the label blank" in told
    assert "filename" not in told


def test_predictions_are_no_labels(tmp_path):
    put(tmp_path / "all", "1.png", "2.png")
    (tmp_path / "next.csv").write_text("path,label,confidence,disagreement\n1.png,a,0.9,0.1\n2.png,b,0.4,0.3\n")
    with pytest.raises(UsageError, match=r"next\.csv: these are predictions, which nobody has checked"):
        read_layout(tmp_path / "all", tmp_path / "next.csv")


def test_a_class_that_is_wholly_in_the_test_is_told_so(tmp_path):
    put(tmp_path, "labeled/a/1.png", "labeled/b/2.png", "labeled/b/3.png", "unlabeled/4.png")
    for name in ("test/a/5.png", "test/b/6.png"):
        (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / "test/a/5.png").write_bytes((tmp_path / "labeled/a/1.png").read_bytes())
    (tmp_path / "test/b/6.png").write_bytes((tmp_path / "labeled/b/2.png").read_bytes())
    with pytest.raises(UsageError, match="every picture labelled 'a' is also in the test"):
        read_layout(tmp_path)


def test_plain_class_folders_and_a_test_folder(tmp_path):
    put(tmp_path, *(f"{name}/{i}.jpg" for name in ("a", "b") for i in range(6)), "test/a/7.jpg", "test/b/8.jpg")
    listing = read_layout(tmp_path)
    assert len(listing.files) == 12  # with a test folder none are kept back
    assert [listing.classes[y] for y in listing.test_labels] == ["a", "b"]


def noise(root, name, seed):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (9, 9), np.uint8)).save(path)


def test_about_a_fifth_of_each_class_is_kept_for_the_test_and_growing_moves_none_into_it(tmp_path):
    for number in range(60):
        noise(tmp_path, f"a/{number}.png", number)
    for number in range(4):
        noise(tmp_path, f"b/{number}.png", 100 + number)
    before = read_layout(tmp_path)
    assert 5 <= len(before.test_files) <= 20
    assert {before.classes[y] for y in before.test_labels} == {"a"}  # b has too few
    assert not set(before.files) & set(before.test_files)
    assert read_layout(tmp_path) == before
    for number in range(60, 73):
        noise(tmp_path, f"a/{number}.png", number)
    after = read_layout(tmp_path)
    assert not set(after.test_files) & set(before.files)
    assert set(before.test_files) <= set(after.test_files)


def test_no_class_loses_more_than_a_third_to_the_test(tmp_path):
    """By their numbers alone, of classes of 5, 6, 10 and 20 some would lose half or more: it is a matter of chance."""
    sizes = {f"{size}-{number}": size for size in (5, 6, 10, 20) for number in range(12)}
    for name, size in sizes.items():
        for number in range(size):
            noise(tmp_path, f"{name}/{number}.png", (size, number, len(name), int(name.partition("-")[2])))
    listing = read_layout(tmp_path)
    kept = Counter(listing.classes[label] for label in listing.test_labels)
    assert all(1 <= kept[name] <= size // 3 for name, size in sizes.items())
    assert sum(kept.values()) == pytest.approx(sum(sizes.values()) / 5, rel=0.2)


def test_thumbnails_that_a_program_keeps_beside_pictures_are_none(tmp_path):
    put(tmp_path, "labeled/a/1.png", "labeled/a/@eaDir/1.png/THUMB.png", "labeled/b/2.png", "labeled/@eaDir/3.png",
        "__MACOSX/labeled/a/1.png", "unlabeled/4.png", "unlabeled/#recycle/5.png")  # fmt: skip
    listing = read_layout(tmp_path)
    assert listing.classes == ("a", "b")
    assert sorted(listing.files) == ["labeled/a/1.png", "labeled/b/2.png", "unlabeled/4.png"]
    assert not any("__MACOSX" in note or "eaDir" in note for note in listing.notes)


def test_every_class_of_five_has_a_test_and_a_copy_is_on_the_same_side(tmp_path):
    for label in "abcdefghij":
        for number in range(5):
            noise(tmp_path, f"{label}/{number}.png", (ord(label), number))
            (tmp_path / f"{label}/copy {number}.png").write_bytes((tmp_path / f"{label}/{number}.png").read_bytes())
    listing = read_layout(tmp_path)
    assert {listing.classes[y] for y in listing.test_labels} == set("abcdefghij")
    content = {
        side: {(tmp_path / f).read_bytes() for f in files}
        for side, files in (("x", listing.files), ("t", listing.test_files))
    }
    assert not content["x"] & content["t"]


def test_names_with_a_meaning_are_never_classes(tmp_path):
    put(tmp_path / "1", "a/1.png", "b/2.png", "unlabeled/3.png", "test/a/4.png", "val/b/5.png")
    listing = read_layout(tmp_path / "1")
    assert listing.classes == ("a", "b")
    assert labels_of(listing)["unlabeled/3.png"] is None
    assert listing.test_files == ("test/a/4.png",)
    assert any("val: left out" in note for note in listing.notes)
    put(tmp_path / "2", "train/a/1.png", "train/b/2.png", "unlabeled/3.png", "c/4.png")
    listing = read_layout(tmp_path / "2")
    assert labels_of(listing) == {"train/a/1.png": "a", "train/b/2.png": "b", "unlabeled/3.png": None}
    assert any("not in train/; left out" in note for note in listing.notes)


def test_a_training_picture_that_is_in_the_test_is_left_out(tmp_path):
    put(tmp_path, "a/1.png", "a/2.png", "b/3.png", "b/4.png", "test/a/5.png", "test/b/6.png")
    (tmp_path / "unlabeled").mkdir()
    (tmp_path / "unlabeled/same.png").write_bytes((tmp_path / "test/a/5.png").read_bytes())
    listing = read_layout(tmp_path)
    assert "unlabeled/same.png" not in listing.files
    assert any("also in the test (unlabeled/same.png)" in note for note in listing.notes)


def test_a_copy_of_a_held_out_picture_is_not_trained_on_without_its_label(tmp_path):
    for number in range(30):
        noise(tmp_path, f"labeled/{'ab'[number % 2]}/{number}.png", number)
    (tmp_path / "unlabeled").mkdir()
    for path in sorted(tmp_path.glob("labeled/*/*.png")):
        (tmp_path / "unlabeled" / path.name).write_bytes(path.read_bytes())
    listing = read_layout(tmp_path)
    held = {(tmp_path / name).read_bytes() for name in listing.test_files}
    assert held
    assert not held & {(tmp_path / name).read_bytes() for name in listing.files}
    assert any("also in the test" in note for note in listing.notes)


def test_links_that_lead_nowhere_or_back(tmp_path):
    put(tmp_path, "a/1.png", "b/2.png")
    (tmp_path / "a/gone.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "a/back").symlink_to(tmp_path)
    (tmp_path / "b/other.png").symlink_to(tmp_path / "b/2.png")
    assert "a/gone.png" not in find_pictures(tmp_path)
    assert find_pictures(tmp_path / "b") == ["2.png", "other.png"]
    assert find_pictures(tmp_path / "a") == ["1.png", "back/b/2.png", "back/b/other.png"]  # once, and no further
    (tmp_path / "a/back").unlink()
    (tmp_path / "b/other.png").unlink()
    assert "1 links lead nowhere (a/gone.png); left out" in read_layout(tmp_path).notes[0]
    with pytest.raises(UsageError, match="lead nowhere .*; would be left out: mend that"):
        read_layout(tmp_path, strict=True)


def test_pictures_that_pillow_can_not_read_are_found_and_so_named_when_they_are_read(tmp_path):
    put(tmp_path, "a/1.png", "b/2.png")
    for name in ("a/3.HEIC", "a/4.jfif", "b/5.nef", "b/6.txt"):
        (tmp_path / name).write_bytes(b"?")
    assert find_pictures(tmp_path) == ["a/1.png", "a/3.HEIC", "a/4.jfif", "b/2.png", "b/5.nef"]


def test_a_csv_file_of_labels(tmp_path):
    put(tmp_path / "all", "1.png", "two words.png", "ü/3.png", "4.png", "5.png")
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n1.png,cat\ntwo words.png,dog\nü/3.png,\n./4.png, cat \n", encoding="utf-8")
    found = labels_of(read_layout(tmp_path / "all", table))
    assert found == {"1.png": "cat", "two words.png": "dog", "ü/3.png": None, "4.png": "cat", "5.png": None}
    table.write_text("1.png,1\ntwo words.png,0\n4.png,-1\n")  # as in arrays
    assert labels_of(read_layout(tmp_path / "all", table))["4.png"] is None
    table.write_text("1.png,cat\n4.png,dog\n")  # without a head
    assert labels_of(read_layout(tmp_path / "all", table))["4.png"] == "dog"


def test_tables_as_spreadsheets_write_them_and_paths_from_the_root(tmp_path):
    put(tmp_path / "all", "1.png", "2.png")
    table = tmp_path / "labels.csv"
    for content in (
        "path;label\r\n1.png;cat\r\n2.png;dog\r\n",
        "1.png\tcat\n2.png\tdog\n",
        f"{tmp_path}/all/1.png,cat\n2.png,dog\n",
    ):
        table.write_text(content)
        assert labels_of(read_layout(tmp_path / "all", table)) == {"1.png": "cat", "2.png": "dog"}
    table.write_text("elsewhere/1.png,cat\nelsewhere/2.png,dog\n")
    with pytest.raises(UsageError, match="none of its 2 paths is in .*the first is 'elsewhere/1.png'"):
        read_layout(tmp_path / "all", table)


def test_a_folder_that_may_not_be_read_is_said(tmp_path, monkeypatch):
    put(tmp_path, "a/1.png", "b/2.png")

    scan = os.scandir

    def refused(top):
        if str(top).endswith("b"):
            raise PermissionError(13, "Permission denied", str(top))
        return scan(top)

    monkeypatch.setattr("maxmatch.data.folder.os.scandir", refused)
    with pytest.raises(UsageError, match="Permission denied"):
        read_layout(tmp_path)


def test_contradictions_are_named_and_left_out_or_refused(tmp_path):
    put(tmp_path, "a/1.png", "a/2.png", "b/3.png", "b/4.png")
    (tmp_path / "b/same.png").write_bytes((tmp_path / "a/1.png").read_bytes())
    listing = read_layout(tmp_path)
    assert set(listing.files) == {"a/2.png", "b/3.png", "b/4.png"}
    assert any("a/1.png, b/same.png" in note and "two labels" in note for note in listing.notes)
    with pytest.raises(UsageError, match="two labels.*would be left out: mend that, or leave --strict out"):
        read_layout(tmp_path, strict=True)


def test_what_a_csv_file_gets_wrong_is_said(tmp_path):
    put(tmp_path / "all", "1.png", "2.png", "3.png")
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n1.png,cat\n2.png,dog\n3.png,cat\n3.png,dog\n9.png,cat\n")
    listing = read_layout(tmp_path / "all", table)
    assert labels_of(listing) == {"1.png": "cat", "2.png": "dog", "3.png": None}
    assert any("9.png" in note and "not in" in note for note in listing.notes)
    assert any("3.png" in note and "unlabelled" in note for note in listing.notes)


def test_a_label_that_may_be_misspelt_is_asked_about(tmp_path):
    put(tmp_path / "all", *(f"{number}.png" for number in range(8)))
    table = tmp_path / "labels.csv"
    words = ["eight"] * 3 + ["zebra"] * 3 + ["eihgt", "cat"]
    table.write_text("path,label\n" + "".join(f"{number}.png,{word}\n" for number, word in enumerate(words)))
    said = [note for note in read_layout(tmp_path / "all", table).notes if "is meant" in note]
    assert said == ["class eihgt has 1: if eight is meant, mend its label"]


def test_an_empty_class_and_loose_pictures_are_left_out_and_an_unbalanced_one_is_told(tmp_path):
    put(tmp_path, "a/1.png", "a/2.png", "a/3.png", "b/4.png", "loose.png")
    (tmp_path / "c").mkdir()
    listing = read_layout(tmp_path)
    assert listing.classes == ("a", "b")
    said = "\n".join(listing.notes)
    assert "no pictures in it; the class is left out" in said
    assert "loose.png" in said
    assert "not balanced: up to 3 labelled pictures, but 1 or fewer of b" in said


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ([], "no picture has a label"),
        (["labeled/a/1.png", "unlabeled/2.png"], "at least two classes"),
        (["unlabeled/1.png"], "at least two classes|no picture has a label"),
        (["a/1.png", "b/2.png", "test/c/3.png"], "test has the class 'c'"),
    ],
)
def test_folders_that_can_not_be_learned_from(tmp_path, files, line):
    put(tmp_path, *files)
    with pytest.raises(UsageError, match=line):
        read_layout(tmp_path)


def test_tables_that_are_none(tmp_path):
    put(tmp_path / "all", "1.png")
    for content, line in ((b"", "no rows"), (b"path,kind\n1.png,a\n", "no column 'label'"), (b"\xff\xfe\x00", "CSV")):
        (tmp_path / "t.csv").write_bytes(content)
        with pytest.raises(UsageError, match=line):
            read_layout(tmp_path / "all", tmp_path / "t.csv")
    with pytest.raises(UsageError, match="no such file"):
        read_layout(tmp_path / "all", tmp_path / "none.csv")


def test_the_digest_knows_names_sizes_and_labels(tmp_path):
    put(tmp_path, "a/1.png", "b/2.png", "b/3.png")
    first = read_layout(tmp_path).sha256()
    assert read_layout(tmp_path).sha256() == first
    (tmp_path / "b/3.png").rename(tmp_path / "a/3.png")
    second = read_layout(tmp_path).sha256()
    (tmp_path / "a/3.png").write_bytes((tmp_path / "a/3.png").read_bytes() + b"\0")
    assert len({first, second, read_layout(tmp_path).sha256()}) == 3


def test_pictures_are_found_by_their_endings_in_order(tmp_path):
    put(tmp_path, "b.PNG", "a/z.jpg", "a/b/y.webp")
    (tmp_path / "x.txt").write_text("")
    assert find_pictures(tmp_path) == ["a/b/y.webp", "a/z.jpg", "b.PNG"]


def test_a_large_pool_is_not_searched_for_pictures_of_the_test(tmp_path, monkeypatch):
    for number in range(6):
        folder = tmp_path / ("val" if number > 3 else "train") / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(b"0" * (1 + number % 2))  # those of one class are copies
    with pytest.raises(UsageError, match="every labelled picture is also in the test"):
        read_layout(tmp_path)
    monkeypatch.setattr(copies, "SEARCHED", 3)
    monkeypatch.setattr(copies, "digest_of", None)  # nobody may call it
    assert len(read_layout(tmp_path).files) == 4


def test_a_table_may_name_files_as_windows_does_by_detours_and_with_names_that_are_no_text(tmp_path):
    odd = os.fsdecode(b"bad\xff.png")
    put(tmp_path / "all", "x/1.png", "x/2.png", odd)
    table = tmp_path / "labels.csv"
    table.write_bytes(b"path,label\nx\\1.png,cat\nx/../x/2.png,dog\nbad\xff.png,cat\n")
    assert labels_of(read_layout(tmp_path / "all", table)) == {"x/1.png": "cat", "x/2.png": "dog", odd: "cat"}
    table.write_bytes(b"path,label\nx/1.png,caf\xe9\nx/2.png,dog\n")
    with pytest.raises(UsageError, match="'café' is not written in UTF-8; save the file as UTF-8"):
        read_layout(tmp_path / "all", table)


def test_a_table_finds_names_whose_accents_are_written_otherwise(tmp_path):
    apart, whole = (unicodedata.normalize(form, "küche.png") for form in ("NFD", "NFC"))
    assert apart != whole
    put(tmp_path / "all", apart, "2.png")
    table = tmp_path / "labels.csv"
    table.write_text(f"{whole},cat\n2.png,dog\n")
    listing = read_layout(tmp_path / "all", table)
    assert labels_of(listing) == {apart: "cat", "2.png": "dog"}
    table.write_text(f"x\\..\\{whole},cat\n2.png,dog\n")
    assert labels_of(read_layout(tmp_path / "all", table))[apart] == "cat"
    table.write_text(f"{whole},cat\n2.png,dog\n")
    put(tmp_path / "all", whole)  # both are there: each is itself
    assert labels_of(read_layout(tmp_path / "all", table)) == {apart: None, whole: "cat", "2.png": "dog"}


def test_a_class_is_not_lost_by_its_paths_or_by_another_class(tmp_path):
    put(tmp_path / "all", "u/1.png", "u/2.png", "u/3.png")
    table = tmp_path / "labels.csv"
    table.write_text("u/1.png,cat\nU/2.png,dog\nu/3.png,cow\n")
    notes = read_layout(tmp_path / "all", table).notes
    told = "no row of dog names a picture that is there and has no other label, so that class is left out"
    assert told in " ".join(notes)
    table.write_text("id,breed\nu/1.png,cat\nu/2.png,dog\n")  # a heading in words of one's own
    assert "class is left out" not in " ".join(read_layout(tmp_path / "all", table).notes)
    table.write_text("U/1.png,cat\nU/2.png,dog\n")
    with pytest.raises(UsageError, match="capitals count, and there is 'u/1.png'"):
        read_layout(tmp_path / "all", table)
    table.write_text("u/1.png,cat\nU/2.png,dog\nu/3.png,dog\nu/4.png,nan\n")
    (note,) = read_layout(tmp_path / "all", table).notes[:1]
    assert "2 files are not in" in note
    assert "'u/2.png' is there, in other capitals; left out" in note
    for place in ("labeled/cat", "labeled/dog", "labeled/cow", "labeled/pig"):
        (tmp_path / "two" / place).mkdir(parents=True)
        for number in (1, 2):
            (tmp_path / "two" / place / f"{number}.png").write_bytes(
                b"0" * (number + 4 * (place[-3:] in ("cow", "pig")) + (place[-3:] == "pig") * 4)
            )
    notes = read_layout(tmp_path / "two").notes
    assert "every picture of cat, dog has another label too, so that class is left out" in " ".join(notes)


@pytest.mark.parametrize("first", ["all/u/1.png", "C:\\photos\\u\\1.png"])
def test_paths_with_more_in_front_are_told_as_they_should_be(tmp_path, first):
    put(tmp_path / "all", "u/1.png", "u/2.png")
    table = tmp_path / "labels.csv"
    table.write_text(f"{first},cat\n{first.replace('1', '2')},dog\n")
    with pytest.raises(UsageError, match="they are relative to that folder, capitals count, and there is 'u/1.png'"):
        read_layout(tmp_path / "all", table)


def test_the_first_line_of_excel_says_what_stands_between(tmp_path):
    put(tmp_path / "all", "1.png", "2.png")
    table = tmp_path / "labels.csv"
    for above in ("sep=;", '"sep=;"'):
        table.write_text(f"{above}\r\nlabel;path\r\ncat, small;1.png\r\ndog;2.png\r\n")
        listing = read_layout(tmp_path / "all", table)
        assert labels_of(listing) == {"1.png": "cat, small", "2.png": "dog"}
        assert not any("left out" in note for note in listing.notes)


def test_a_table_that_names_its_labels_and_not_its_pictures_is_refused(tmp_path):
    put(tmp_path / "all", "1.png", "2.png")
    table = tmp_path / "labels.csv"
    table.write_text("image_id,year,label\n1.png,2020,cat\n2.png,2021,dog\n")
    with pytest.raises(UsageError, match=r"a column 'label' and none for the pictures \(image_id, year, label\)"):
        read_layout(tmp_path / "all", table)
    table.write_text("path,year,label\n1.png,2020,cat\n2.png,2021,dog\n")
    assert labels_of(read_layout(tmp_path / "all", table)) == {"1.png": "cat", "2.png": "dog"}


def test_a_table_may_list_the_test_too(tmp_path):
    put(tmp_path / "all", "1.png", "2.png", "test/cat/3.png", "test/dog/4.png")
    table = tmp_path / "labels.csv"
    table.write_text("1.png,cat\n2.png,dog\ntest/cat/3.png,cat\ntest/dog/4.png,\n")
    listing = read_layout(tmp_path / "all", table, strict=True)  # nothing is left out
    assert listing.test_files == ("test/cat/3.png", "test/dog/4.png")
    table.write_text("1.png,cat\n2.png,dog\ntest/cat/3.png,dog\n")
    (note,) = [note for note in read_layout(tmp_path / "all", table).notes if "another label" in note]
    assert "1 test picture has another label than their folder (test/cat/3.png); the folder's counts" in note
    with pytest.raises(UsageError, match="the other would be left out"):
        read_layout(tmp_path / "all", table, strict=True)


def test_pictures_of_train_beside_labeled_are_told_to_be_left_out(tmp_path):
    put(tmp_path, "labeled/cat/1.png", "labeled/dog/2.png", "train/cat/3.png", "train/4.png")
    notes = read_layout(tmp_path).notes
    assert any("train: 2 pictures that are not in labeled/; left out" in note for note in notes)
    with pytest.raises(UsageError, match="would be left out"):
        read_layout(tmp_path, strict=True)


def test_a_file_called_index_is_no_shard(tmp_path):
    put(tmp_path, "labeled/cat/1.png", "labeled/dog/2.png")
    (tmp_path / "index.csv").write_text("path,label\nlabeled/cat/1.png,dog\n")
    assert labels_of(read_layout(tmp_path)) == {"labeled/cat/1.png": "cat", "labeled/dog/2.png": "dog"}


def test_a_labelled_picture_that_may_not_be_read_ends_nothing(tmp_path, monkeypatch):
    put(tmp_path, *(f"labeled/{name}/{number}.png" for name in ("cat", "dog") for number in range(6)))
    whole = type(tmp_path).read_bytes

    def refusing(self):
        if self.name == "3.png":
            raise PermissionError(13, "Permission denied", str(self))
        return whole(self)

    monkeypatch.setattr(type(tmp_path), "read_bytes", refusing)
    listing = read_layout(tmp_path)
    assert len(listing.files) + len(listing.test_files) == 12  # who decodes it leaves it out


def test_labels_of_folders_that_a_table_does_not_repeat_are_said_to_be_lost(tmp_path):
    put(tmp_path, "labeled/cat/1.png", "labeled/dog/2.png", "unlabeled/3.png", "unlabeled/4.png")
    table = tmp_path / "more.csv"
    table.write_text("unlabeled/3.png,cat\nunlabeled/4.png,dog\nlabeled/cat/1.png,cat\n")
    listing = read_layout(tmp_path, table)
    assert labels_of(listing)["labeled/dog/2.png"] is None
    (note,) = [note for note in listing.notes if "it alone says the labels" in note]
    assert "1 picture of labeled/ (labeled/dog/2.png) has no row; taken as unlabelled" in note
    assert labels_of(read_layout(tmp_path, table, strict=True)) == labels_of(listing)  # nothing is left out
    table.write_text(table.read_text() + "labeled/dog/2.png,\n")  # said to have none
    assert not any("it alone" in note for note in read_layout(tmp_path, table).notes)


def test_paths_from_the_root_and_a_folder_by_a_detour_find_each_other(tmp_path):
    put(tmp_path / "all", "1.png", "2.png")
    (tmp_path / "sub").mkdir()
    table, folder = tmp_path / "labels.csv", tmp_path / "sub" / ".." / "all"
    for first in (folder, tmp_path / "all"):
        table.write_text(f"{first}/1.png,cat\n{tmp_path}/all/2.png,dog\n")
        assert labels_of(read_layout(folder, table)) == {"1.png": "cat", "2.png": "dog"}


def test_a_table_in_another_encoding_loses_no_labels_silently(tmp_path):
    put(tmp_path / "all", "käfer.png", "2.png", "3.png")
    table = tmp_path / "labels.csv"
    table.write_bytes("käfer.png,cat\n2.png,dog\n3.png,cat\n".encode("latin-1"))
    with pytest.raises(UsageError, match="'käfer.png' is not written in UTF-8; save the file as UTF-8"):
        read_layout(tmp_path / "all", table)


def test_a_file_that_is_no_picture_is_not_the_only_test_of_its_class(tmp_path):
    def number(content):
        return int(hashlib.sha256(content).hexdigest(), 16) % layout.HELD_OUT

    for label in "ab":
        seed = 0
        while len(list(tmp_path.glob(f"{label}/*.png"))) < 5:  # none of them would be kept by its own number
            noise(tmp_path, f"{label}/{seed}.png", (ord(label), seed))
            path = tmp_path / f"{label}/{seed}.png"
            if number(path.read_bytes()) == 0:
                path.unlink()
            seed += 1
    broken = next(text for text in (f"broken {n}".encode() for n in range(99)) if number(text) == 0)
    (tmp_path / "a" / "broken.png").write_bytes(broken)
    listing = read_layout(tmp_path)
    tested = {listing.classes[y]: name for name, y in zip(listing.test_files, listing.test_labels, strict=True)}
    assert set(tested) == {"a", "b"}
    assert tested["a"] != "a/broken.png"
    assert "a/broken.png" in listing.files  # named when it is read
    for path in tmp_path.glob("a/*.png"):
        path.write_bytes(path.name.encode())  # then there is nothing better
    assert len([name for name in read_layout(tmp_path).test_files if name.startswith("a/")]) >= 1


@pytest.mark.parametrize("names", [("Cat", "cat"), ("cat", "cat "), ("Käfer", "ka\u0308fer")])
def test_classes_that_differ_in_capitals_or_spaces_alone_are_refused(tmp_path, names):
    one, two = names
    line = "'.+' \\(.*1.png\\) and '.+' \\(.*2.png\\) differ in capitals or spaces alone; give both one name, or one of"
    for layout_of in ("{}/{}.png", "labeled/{}/{}.png", "train/{}/{}.png"):
        root = tmp_path / layout_of[:1]
        put(root, layout_of.format(one, 1), layout_of.format(two, 2), layout_of.format("dog", 3))
        with pytest.raises(UsageError, match=line):
            read_layout(root)
        put(root / "tested", layout_of.format(one, 1), layout_of.format("dog", 3), f"test/{two}/2.png")
        with pytest.raises(UsageError, match=line):
            read_layout(root / "tested")


def test_labels_of_a_table_that_differ_in_capitals_alone_are_refused(tmp_path):
    put(tmp_path / "all", "1.png", "2.png", "3.png")
    table = tmp_path / "t.csv"
    table.write_text("path,label\n1.png,cat\n2.png,Cat\n3.png,dog\n")
    with pytest.raises(UsageError, match=r"t.csv: the classes 'cat' \(1.png\) and 'Cat' \(2.png\) differ in capitals"):
        read_layout(tmp_path / "all", table)


def test_letters_may_differ_in_capitals_alone(tmp_path):
    put(tmp_path, "A/1.png", "a/2.png", "Ä/3.png", "a\u0308/4.png")
    assert read_layout(tmp_path).classes == ("A", "a", "Ä", "ä")


def test_where_no_labels_are_needed_classes_may_be_alike(tmp_path):
    put(tmp_path, "Cat/1.png", "cat/2.png")
    assert len(read_layout(tmp_path, labels=False).files) == 2


def test_accents_within_letters_or_behind_them_are_the_same_class(tmp_path):
    whole, apart = "K\u00e4fer", "Ka\u0308fer"  # as a zip of a Mac has it
    put(tmp_path, f"labeled/{apart}/1.png", "labeled/dog/2.png", f"test/{whole}/3.png", "test/dog/4.png")
    listing = read_layout(tmp_path)
    assert listing.classes == (whole, "dog")
    assert listing.files == (f"labeled/{apart}/1.png", "labeled/dog/2.png")  # found by the names that they have
    assert listing.test_labels == (0, 1)
    put(tmp_path / "all", "1.png", "2.png", "3.png", "4.png")
    (tmp_path / "t.csv").write_text(f"1.png,{whole}\n2.png,{apart}\n3.png,dog\n4.png,dog\n", encoding="utf-8")
    assert labels_of(read_layout(tmp_path / "all", tmp_path / "t.csv"))["2.png"] == whole


def test_pictures_that_were_copied_and_not_moved_to_their_label_are_told(tmp_path):
    for number in range(8):
        noise(tmp_path, f"unlabeled/{number}.png", number)
    for number, place in ((5, "labeled/a"), (2, "labeled/b")):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / f"new {number}.png").write_bytes((tmp_path / f"unlabeled/{number}.png").read_bytes())
    for place in ("labeled/a", "unlabeled"):
        (tmp_path / place / "empty.png").write_bytes(b"")
    listing = read_layout(tmp_path)
    assert {"unlabeled/2.png", "unlabeled/5.png"} <= {*listing.files}  # as before
    (note,) = [note for note in listing.notes if "copies" in note]
    assert "2 files without a label are copies of labelled ones (unlabeled/2.png, unlabeled/5.png); remove what" in note
    assert read_layout(tmp_path, strict=True) == listing  # nothing is left out
    table = tmp_path / "t.csv"
    table.write_text("labeled/a/new 5.png,a\nlabeled/b/new 2.png,b\nunlabeled/2.png,b\n")
    assert any("1 file without a label is a copy" in note for note in read_layout(tmp_path, table).notes)
    for number in (2, 5):
        (tmp_path / f"unlabeled/{number}.png").unlink()
    assert not any("copies" in note for note in read_layout(tmp_path).notes)


def test_a_large_pool_is_not_searched_for_copies_of_labelled_pictures(tmp_path, monkeypatch):
    put(tmp_path, "labeled/a/1.png", "labeled/b/2.png", "unlabeled/3.png")
    (tmp_path / "unlabeled/3.png").write_bytes((tmp_path / "labeled/a/1.png").read_bytes())
    assert any("a copy of a labelled one" in note for note in read_layout(tmp_path).notes)
    monkeypatch.setattr(copies, "COMPARED", 1)
    monkeypatch.setattr(copies, "digest_of", None)  # nobody may call it
    assert not any("a copy of a labelled one" in note for note in read_layout(tmp_path).notes)

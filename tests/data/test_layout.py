"""Folders of pictures, good and bad: what is found in them, what is kept for the test, what is said of them."""

from __future__ import annotations

import pytest
from PIL import Image

from maxmatch.data.layout import find_pictures, read_layout
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
    put(tmp_path, "unlabeled/.hidden.png", "notes/e.png")
    (tmp_path / "unlabeled/readme.txt").write_text("no picture")
    listing = read_layout(tmp_path)
    assert labels_of(listing) == {
        "labeled/cat/a.png": "cat", "labeled/dog/deep/er/b.png": "dog", "unlabeled/c.png": None, "unlabeled/x/d.png": None,
    }  # fmt: skip
    assert listing.classes == ("cat", "dog")
    assert listing.test_files == ()
    assert "no error is measured" in listing.notes[0]


def test_the_other_spelling(tmp_path):
    put(tmp_path, "labelled/a/1.png", "labelled/b/2.png", "unlabelled/3.png")
    assert set(labels_of(read_layout(tmp_path)).values()) == {"a", "b", None}


def test_plain_class_folders_and_a_test_folder(tmp_path):
    put(tmp_path, *(f"{name}/{i}.jpg" for name in ("a", "b") for i in range(6)), "test/a/7.jpg", "test/b/8.jpg")
    listing = read_layout(tmp_path)
    assert len(listing.files) == 12  # with a test folder none are kept back
    assert [listing.classes[y] for y in listing.test_labels] == ["a", "b"]


def test_a_fifth_of_each_class_is_kept_for_the_test_the_same_one_always(tmp_path):
    put(tmp_path, *(f"a/{i}.png" for i in range(11)), *(f"b/{i}.png" for i in range(4)))
    listing = read_layout(tmp_path)
    assert [listing.classes[y] for y in listing.test_labels] == ["a", "a"]
    assert len(listing.files) == 13
    assert not set(listing.files) & set(listing.test_files)
    assert read_layout(tmp_path) == listing


def test_a_csv_file_of_labels(tmp_path):
    put(tmp_path / "all", "1.png", "two words.png", "ü/3.png", "4.png", "5.png")
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n1.png,cat\ntwo words.png,dog\nü/3.png,\n./4.png, cat \n", encoding="utf-8")
    found = labels_of(read_layout(tmp_path / "all", table))
    assert found == {"1.png": "cat", "two words.png": "dog", "ü/3.png": None, "4.png": "cat", "5.png": None}
    table.write_text("1.png,cat\n4.png,dog\n")  # without a head
    assert labels_of(read_layout(tmp_path / "all", table))["4.png"] == "dog"


def test_contradictions_are_named_and_left_out_or_refused(tmp_path):
    put(tmp_path, "a/1.png", "a/2.png", "b/3.png", "b/4.png")
    (tmp_path / "b/same.png").write_bytes((tmp_path / "a/1.png").read_bytes())
    listing = read_layout(tmp_path)
    assert set(listing.files) == {"a/2.png", "b/3.png", "b/4.png"}
    assert any("a/1.png, b/same.png" in note and "two labels" in note for note in listing.notes)
    with pytest.raises(UsageError, match="two labels.*--strict refuses"):
        read_layout(tmp_path, strict=True)


def test_what_a_csv_file_gets_wrong_is_said(tmp_path):
    put(tmp_path / "all", "1.png", "2.png", "3.png")
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n1.png,cat\n2.png,dog\n3.png,cat\n3.png,dog\n9.png,cat\n")
    listing = read_layout(tmp_path / "all", table)
    assert labels_of(listing) == {"1.png": "cat", "2.png": "dog", "3.png": None}
    assert any("9.png" in note and "not in" in note for note in listing.notes)
    assert any("3.png" in note and "unlabelled" in note for note in listing.notes)


def test_an_empty_class_and_loose_pictures_are_left_out_and_an_unbalanced_one_is_told(tmp_path):
    put(tmp_path, "a/1.png", "a/2.png", "a/3.png", "b/4.png", "loose.png")
    (tmp_path / "c").mkdir()
    listing = read_layout(tmp_path)
    assert listing.classes == ("a", "b")
    said = "\n".join(listing.notes)
    assert "no pictures in it; the class is left out" in said
    assert "loose.png" in said
    assert "not balanced: up to 3 labelled pictures, but at most 1 of b" in said


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
    for content, line in ((b"", "no rows"), (b"path,class\n1.png,a\n", "no column 'label'"), (b"\xff\xfe\x00", "CSV")):
        (tmp_path / "t.csv").write_bytes(content)
        with pytest.raises(UsageError, match=line):
            read_layout(tmp_path / "all", tmp_path / "t.csv")
    with pytest.raises(UsageError, match="CSV"):
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

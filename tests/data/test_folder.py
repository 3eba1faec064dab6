"""Which files in a folder are pictures."""

from __future__ import annotations

import pytest

from maxmatch.data.folder import list_images
from maxmatch.errors import UsageError


def test_files_are_listed_sorted_and_by_their_ending(tmp_path):
    for name in ("b.PNG", "a/c.jpg", "notes.txt", "a/ä ö.webp"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    assert [p.relative_to(tmp_path).as_posix() for p in list_images(tmp_path)] == [
        "a/c.jpg",
        "a/ä ö.webp",
        "b.PNG",
    ]


def test_a_folder_without_pictures_is_one_line(tmp_path):
    with pytest.raises(UsageError, match="no pictures"):
        list_images(tmp_path)
    with pytest.raises(UsageError, match="no such folder"):
        list_images(tmp_path / "none")


def test_files_are_sorted_as_text(tmp_path):
    for name in ("B.png", "a/c.png", "a-b.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert [p.relative_to(tmp_path).as_posix() for p in list_images(tmp_path)] == ["B.png", "a-b.png", "a/c.png"]

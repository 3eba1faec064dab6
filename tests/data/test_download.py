"""Downloads from a server on this machine that is cut, wrong, slow to mend or not there."""

from __future__ import annotations

import pytest
from originals import checksum, serve

from maxmatch.data import download as module
from maxmatch.data.download import Unreachable, WrongChecksum, download


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0)
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "file").write_bytes(bytes(range(256)) * 64)
    with serve(folder) as files:
        yield files


def get(files, to, sum_=None):
    download(f"{files.url}/file", to, sum_ or checksum(files.folder / "file"), "file")


def test_a_file_arrives_and_its_progress_is_shown(there, tmp_path, capsys):
    get(there, tmp_path / "here" / "file")
    assert (tmp_path / "here" / "file").read_bytes() == (there.folder / "file").read_bytes()
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["file"]
    assert capsys.readouterr().err == "file: 0 B of 16 KiB\n"


def test_a_cut_connection_is_gone_on_with(there, tmp_path):
    there.cuts, there.cut_at = 2, 5000
    get(there, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == (there.folder / "file").read_bytes()
    assert [wanted for _, wanted in there.asked] == [None, "bytes=5000-", "bytes=10000-"]


def test_what_has_come_stays_for_the_next_time(there, tmp_path):
    there.cuts, there.cut_at = 99, 1000
    with pytest.raises(Unreachable, match="the connection was cut"):
        get(there, tmp_path / "file")
    assert not (tmp_path / "file").exists()
    assert (tmp_path / "file.part").stat().st_size == 1000 * module.ATTEMPTS
    there.cuts = 0
    get(there, tmp_path / "file")
    assert there.asked[-1][1] == f"bytes={1000 * module.ATTEMPTS}-"
    assert not (tmp_path / "file.part").exists()


def test_a_server_without_ranges_sends_all_again(there, tmp_path):
    there.ranges = False
    (tmp_path / "file.part").write_bytes(b"old")
    get(there, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == (there.folder / "file").read_bytes()


@pytest.mark.parametrize("begun", [b"of another file", bytes(99_999)])
def test_the_beginning_of_another_file_is_dropped(there, tmp_path, begun):
    (tmp_path / "file.part").write_bytes(begun)
    get(there, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == (there.folder / "file").read_bytes()


def test_a_wrong_checksum_is_refused_and_nothing_stays(there, tmp_path):
    with pytest.raises(WrongChecksum, match=r"/file: .* another checksum than sha256:00, so it is refused"):
        get(there, tmp_path / "file", "sha256:00")
    assert not (tmp_path / "file").exists()
    assert not (tmp_path / "file.part").exists()


def test_a_missing_file_and_a_missing_server_are_unreachable(there, tmp_path):
    with pytest.raises(Unreachable, match=r"127.0.0.1: it answers 404"):
        download(f"{there.url}/none", tmp_path / "none", "md5:0", "none")
    assert len(there.asked) == 1  # it would answer the same again
    with pytest.raises(Unreachable, match="refused"):
        download("http://127.0.0.1:1/file", tmp_path / "file", "md5:0", "file")

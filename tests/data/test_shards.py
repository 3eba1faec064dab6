"""Shards: the same pictures as the folder's, found by offset, whole or mended, and runs that move between the two."""

from __future__ import annotations

import json
import shlex
import shutil
import tarfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from slots import read_slot

from maxmatch.cli import run
from maxmatch.data.layout import read_layout
from maxmatch.data.shards import open_shards
from maxmatch.errors import UserError
from maxmatch.train.checkpoint import checkpoints

TRAIN = ["--config", "imagenet-paper", "--set", "data.side=16", "--set", "net.name=wrn-10-1", "--set", "train.batch=2",
         "--set", "data.labels=50%", "--set", "train.warmup_epochs=0", "--set", "evaluate.unlabelled=4", "--set",
         "train.checkpoint_every=1", "--set", "data.resident=false", "--device", "cpu"]  # fmt: skip


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    root = tmp_path_factory.mktemp("packed") / "pictures"
    rng = np.random.default_rng(0)
    for number in range(52):
        place = root / ("val" if number >= 48 else "train") / ("cat", "dög")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        height, width = rng.integers(18, 40, 2)
        Image.fromarray(rng.integers(0, 255, (height, width, 3), np.uint8)).save(place / f"a {number}.png")
    return root


@pytest.fixture(scope="module")
def shards(pictures, tmp_path_factory):
    from maxmatch.data.shards import Member, write_shards

    listing, out = read_layout(pictures), tmp_path_factory.mktemp("packed") / "shards"
    parts = [(listing.files, listing.labels, False), (listing.test_files, listing.test_labels, True)]
    members = [
        Member(name, listing.classes[label], test, (pictures / name).stat().st_size)
        for names, labels, test in parts
        for name, label in zip(names, labels, strict=True)
    ]
    heard: list[int] = []
    count = write_shards(pictures, out, members, size=20_000, advance=heard.append)
    assert count == len(list(out.glob("*.tar"))) > 3  # several, each of about that size
    assert max(path.stat().st_size for path in out.glob("*.tar")) < 20_000 + 60 * 1024
    assert sum(heard) == 52
    return out


def test_the_listing_and_its_digest_are_those_of_the_folder(pictures, shards):
    one, other = read_layout(pictures), read_layout(shards)
    assert (one.classes, one.files, one.labels) == (other.classes, other.files, other.labels)
    assert (one.test_files, one.test_labels) == (other.test_files, other.test_labels)
    assert one.sha256() == other.sha256()  # so that a run may go on with either


def test_every_picture_is_found_by_its_offset_from_any_thread(pictures, shards):
    found = open_shards(shards)
    names = list(found.names) * 4
    with ThreadPoolExecutor(8) as pool:
        for name, content in zip(names, pool.map(lambda name: found.open(name).read(), names), strict=True):
            assert content == (pictures / name).read_bytes()
    listing = read_layout(shards)
    slot, size = read_slot(listing.open(listing.files[5]), 3, 32)
    expected, expected_size = read_slot(pictures / listing.files[5], 3, 32)
    assert torch.equal(slot, expected)
    assert size == expected_size


def test_any_tar_reads_them_and_the_same_folder_gives_the_same_bytes(pictures, shards, tmp_path, capsys):
    with tarfile.open(shards / "00000.tar") as tar:
        names = tar.getnames()
        assert names[0] == "labels.csv"
        content = tar.extractfile("labels.csv").read().decode().splitlines()
        assert content[0] == "path,label,test"
        assert [line.split(",")[0] for line in content[1:]] == names[1:]
        assert tar.extractfile(names[1]).read() == (pictures / names[1]).read_bytes()
    for out in ("a", "b"):
        assert run(["data", "shard", str(pictures), str(tmp_path / out)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert "52 pictures in 1 shards" in printed.err
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_lost_index_is_made_again_from_the_shards(pictures, shards, tmp_path):
    shutil.copytree(shards, tmp_path / "copy")
    (tmp_path / "copy/index.csv").unlink()
    one, other = open_shards(shards), open_shards(tmp_path / "copy")
    assert (list(one.names), list(one.places), one.tests) == (list(other.names), list(other.places), other.tests)
    assert read_layout(tmp_path / "copy").sha256() == read_layout(pictures).sha256()


def test_damage_is_one_line_or_one_picture(shards, tmp_path):
    shutil.copytree(shards, tmp_path / "gone")
    (tmp_path / "gone/00001.tar").unlink()
    with pytest.raises(UserError, match=r"00001.tar: a shard that the index names is missing"):
        open_shards(tmp_path / "gone")
    shutil.copytree(shards, tmp_path / "other")
    (tmp_path / "other/index.csv").write_text("path,label\na,b\n")
    with pytest.raises(UserError, match=r"does not begin with path,label,test"):
        open_shards(tmp_path / "other")
    shutil.copytree(shards, tmp_path / "cut")
    last = tmp_path / "cut/00000.tar"
    found = open_shards(tmp_path / "cut")
    last.write_bytes(last.read_bytes()[:6000])
    with pytest.raises(UserError, match=r"00000.tar has 6,000 bytes, its pictures take [\d,]+: copy it there again"):
        open_shards(tmp_path / "cut")
    lost = next(name for name, place in zip(found.names, found.places, strict=True) if place[1] + place[2] > 6000)
    with pytest.raises(OSError, match="cut off before the end of"):
        found.open(lost)


def test_a_run_on_shards_is_that_on_the_folder_and_goes_on_with_either_in_mid_epoch(pictures, shards, tmp_path):
    for data, out in ((pictures, "folder"), (shards, "shards")):
        assert run(["train", str(data), *TRAIN, "--epochs", "2", "--out", str(tmp_path / out)]) == 0
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("folder", "shards"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    whole = json.loads((tmp_path / "folder/result.json").read_text())
    assert whole["steps"] == 4
    shutil.copytree(tmp_path / "folder", tmp_path / "cut")
    checkpoints(tmp_path / "cut/checkpoint")[-1].unlink()  # as if it had been killed after its third step of four
    for name in ("result.json", "model.safetensors"):
        (tmp_path / "cut" / name).unlink()
    assert run(["train", str(shards), "--resume", "--out", str(tmp_path / "cut")]) == 0
    again = load_file(tmp_path / "cut/model.safetensors")
    assert all(torch.equal(ours[name], again[name]) for name in ours)
    found = json.loads((tmp_path / "cut/result.json").read_text())
    assert [found[name] for name in ("error", "unlabelled_error")] == [whole["error"], whole["unlabelled_error"]]


def test_a_packing_that_was_broken_off_is_refused_until_it_is_done_again(
    pictures, shards, tmp_path, capsys, monkeypatch
):
    from maxmatch.data import shards as module

    out, size = tmp_path / "my shards", []
    portions, tar = module._portions, module._tar

    def killed(root, held, file):
        for number, member in enumerate(tar(root, held, file)):
            if size == [1, 1] and number == 2:
                raise KeyboardInterrupt
            yield member
        size.append(1)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_portions", lambda members, _: portions(members, 20_000))
        patch.setattr(module, "_tar", killed)
        assert run(["data", "shard", str(pictures), str(out), "--size", "3"]) == 130
    left = [".00002.tar.123-0af9.tmp", ".00002.tar.tmp"]
    for name in left:
        (out / name).write_bytes(b"as a kill leaves it")
    assert sorted(path.name for path in out.iterdir()) == [*left, ".unfinished", "00000.tar", "00001.tar"]
    capsys.readouterr()
    for words in (["train", str(out), *TRAIN, "--epochs", "1", "--out", str(tmp_path / "run")], ["preview", str(out)]):
        assert run(words) == 1
        (said,) = capsys.readouterr().err.strip().splitlines()
        assert "not all its shards were written; type maxmatch data shard" in said
    assert not (tmp_path / "run").exists()
    again = shlex.split(said.partition("; type maxmatch ")[2])
    (out / "mine.txt").write_text("not ours to delete")
    assert run(again) == 2
    (out / "mine.txt").unlink()
    assert run(again) == 0
    assert run(["data", "shard", str(pictures), str(tmp_path / "whole"), "--size", "3"]) == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()
    }
    assert read_layout(out).sha256() == read_layout(pictures).sha256()


def test_imagenet_may_be_shards(shards, tmp_path, monkeypatch):
    from maxmatch.data.datasets import imagenet_folder

    monkeypatch.setenv("MAXMATCH_DATA", str(tmp_path))
    (tmp_path / "imagenet").symlink_to(shards)
    assert imagenet_folder() == tmp_path / "imagenet"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["shard"], "two folders are wanted"),
        (["shard", "PICTURES"], "two folders are wanted"),
        (["shard", "PICTURES", "PICTURES/shards"], "can't lie within the pictures"),
        (["shard", "PICTURES", "SHARDS"], "is not empty"),
        (["shard", "SHARDS", "OUT"], "it holds shards already"),
        (["shard", "./nowhere", "OUT"], "there is no such folder"),
        (["list", "digits", "OUT"], "are for maxmatch data shard DIR OUT"),
    ],
)
def test_mistakes_with_shards_are_one_line(pictures, shards, tmp_path, capsys, words, line):
    for name, place in (("PICTURES", pictures), ("SHARDS", shards), ("OUT", tmp_path / "out")):
        words = [word.replace(name, str(place)) for word in words]
    assert run(["data", *words]) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert line in said
    assert not (tmp_path / "out").exists()


def test_a_test_picture_shows_its_middle_as_torchvision_cuts_it(tmp_path):
    from torchvision.transforms import CenterCrop, Resize

    from maxmatch.data.picture_file import read_image

    rng = np.random.default_rng(1)
    for height, width in ((300, 400), (411, 257), (256, 256), (90, 133), (225, 224), (256, 259), (259, 256)):
        picture = Image.fromarray(rng.integers(0, 255, (height, width, 3), np.uint8))
        picture.save(tmp_path / "a.png")
        expected = np.array(CenterCrop(224)(Resize(256)(picture))).transpose(2, 0, 1)
        assert (read_image(tmp_path / "a.png", (3, 224, 224), middle=0.875).numpy() == expected).all()

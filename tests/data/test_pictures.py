"""Picture files of every kind in slots, and whole folders as `Images`: PIL is the oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from slots import read_slot

from maxmatch.data.files import Files
from maxmatch.data.layout import read_layout
from maxmatch.data.pictures import load_pictures, look_at
from maxmatch.errors import UsageError, UserError

RAMP = np.add.outer(np.arange(20), 3 * np.arange(30)).astype(np.uint8)  # (height 20, width 30)


def colour(shift=0):
    return Image.fromarray(np.stack([RAMP + shift, RAMP[::-1], 255 - RAMP], 2))


def save_each_kind(folder):
    """One picture as every kind of file; returns how far each may be from it."""
    folder.mkdir(exist_ok=True)
    picture = colour()
    picture.save(folder / "plain.png")
    picture.save(folder / "plain.bmp")
    picture.save(folder / "plain.tiff")
    picture.save(folder / "lossless.webp", lossless=True)
    picture.save(folder / "fine.jpg", quality=98, subsampling=0)
    picture.convert("CMYK").save(folder / "cmyk.jpg", quality=98, subsampling=0)
    picture.quantize(256).save(folder / "palette.png")
    picture.quantize(256).save(folder / "first.gif", save_all=True, append_images=[colour(90).quantize(256)])
    solid = picture.copy()
    solid.putalpha(255)
    solid.save(folder / "alpha.png")
    turned = picture.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees to the right
    turned.save(folder / "turned.png", exif=exif)
    return {"fine.jpg": 6, "cmyk.jpg": 8, "palette.png": 12, "first.gif": 12}


def test_every_kind_of_file_is_the_same_picture(tmp_path):
    slack = save_each_kind(tmp_path / "all")
    wanted = torch.from_numpy(np.array(colour())).permute(2, 0, 1).int()
    for path in sorted((tmp_path / "all").iterdir()):
        slot, size = read_slot(path, 3, 32)
        assert size == (20, 30), path.name
        assert (slot[:, :20, :30].int() - wanted).abs().max() <= slack.get(path.name, 0), path.name
        assert not slot[:, 20:].any()
        assert not slot[:, :, 30:].any()


def test_greys_of_8_and_16_bits_and_what_is_transparent(tmp_path):
    Image.fromarray(RAMP).save(tmp_path / "8.png")
    Image.fromarray(RAMP.astype(np.uint16) * 257).save(tmp_path / "16.png")
    for name in ("8.png", "16.png"):
        assert torch.equal(read_slot(tmp_path / name, 1, 32)[0][0, :20, :30], torch.from_numpy(RAMP))
        assert torch.equal(read_slot(tmp_path / name, 3, 32)[0][2, :20, :30], torch.from_numpy(RAMP))
    for mode, back, front in (("RGB", (0, 0, 0), (255, 0, 0)), ("L", 0, 128), ("1", 0, 1)):  # one colour is transparent
        picture = Image.new(mode, (30, 20), back)
        picture.paste(front, (10, 5, 20, 15))
        picture.save(tmp_path / "one.png", transparency=back)
        slot = read_slot(tmp_path / "one.png", 3, 32)[0]
        assert slot[:, 0, 0].tolist() == [255, 255, 255], mode
        assert slot[:, 10, 15].tolist() == {"RGB": [255, 0, 0], "L": [128] * 3, "1": [255] * 3}[mode]
    clear = colour()
    clear.putalpha(0)
    clear.save(tmp_path / "clear.png")
    assert (read_slot(tmp_path / "clear.png", 3, 32)[0][:, :20, :30] == 255).all()


def test_large_pictures_are_shrunk_in_shape_and_small_ones_never_enlarged(tmp_path):
    colour().resize((300, 200)).save(tmp_path / "large.jpg")
    colour().resize((5, 3)).save(tmp_path / "small.png")
    assert read_slot(tmp_path / "large.jpg", 3, 60)[1] == (40, 60)
    assert read_slot(tmp_path / "small.png", 3, 60)[1] == (3, 5)


def test_half_a_jpeg_file_is_no_picture(tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(tmp_path / "whole.jpg")
    data = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "half.jpg").write_bytes(data[: len(data) // 2])
    with pytest.raises(OSError, match=r"half\.jpg: cannot be read as a picture"):
        read_slot(tmp_path / "half.jpg", 3, 80)


def test_a_picture_of_too_many_pixels_is_told_so(tmp_path, monkeypatch):
    colour().save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4)
    with pytest.raises(OSError, match=r"a\.png: cannot be read as a picture \(over 8 pixels\)"):
        read_slot(tmp_path / "a.png", 3, 80)


def test_why_a_file_is_left_out_is_told_once_for_all_that_have_the_reason(folder, monkeypatch):
    for name in ("labeled/a/no.png", "unlabeled/nor this.png"):
        (folder / name).write_bytes(b"no picture")
    colour().resize((90, 90)).save(folder / "unlabeled/large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    said: list[str] = []
    load(folder, say=said.append)
    unknown = "UnidentifiedImageError: labeled/a/no.png, unlabeled/nor this.png"
    assert f"3 files can't be read as pictures ({unknown}; over 4,000 pixels: unlabeled/large.png); left out" in said[0]
    with pytest.raises(UsageError, match="; over 4,000 pixels: unlabeled/large.png"):
        load(folder, strict=True)


def test_want_of_memory_is_not_a_broken_picture(tmp_path, monkeypatch):
    colour().save(tmp_path / "a.png")

    def too_large(*_, **__):
        raise MemoryError

    monkeypatch.setattr(Image.Image, "convert", too_large)
    files = Files(tmp_path, ("a.png",), 3, 32)
    with pytest.raises(MemoryError):
        files.read(0)
    assert not files.broken


@pytest.mark.parametrize("name", ["a.jpg", "a.png"])
def test_pictures_are_shrunk_as_pil_does_it_to_a_rounding(tmp_path, name):
    rng = np.random.default_rng(1)
    Image.fromarray(rng.integers(0, 256, (10, 15, 3), np.uint8)).resize((90, 60)).save(tmp_path / name)
    wanted = np.array(Image.open(tmp_path / name).resize((64, 43), Image.Resampling.BICUBIC)).transpose(2, 0, 1)
    slot, size = read_slot(tmp_path / name, 3, 64)
    assert size == (43, 64)
    assert np.abs(slot[:, :43].numpy().astype(int) - wanted).max() <= 1
    assert not slot[:, 43:].any()


@pytest.fixture
def folder(tmp_path):
    for number in range(12):
        path = tmp_path / "photos" / (("labeled/a", "labeled/b", "unlabeled")[number % 3]) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        colour(5 * number).resize((20 + number, 30 - number)).save(path)
    return tmp_path / "photos"


def load(folder, **options):
    return load_pictures(folder, **{"side": 16, "slot": 32, "channels": 3, **options})


def test_a_folder_becomes_images(folder):
    images = load(folder)
    assert images.classes == ("a", "b")
    assert images.shape == (3, 16, 16)
    assert len(images.y) == 12
    assert images.test_x is None
    assert not images.streamed
    for number, name in enumerate(images.files.names):
        slot, size = read_slot(folder / name, 3, 32)
        assert torch.equal(images.x[number], slot)
        assert tuple(images.sizes[number].tolist()) == size


def test_kept_or_read_again_it_is_the_same(folder):
    kept, streamed = load(folder, resident=True), load(folder, resident=False)
    assert streamed.streamed
    assert len(streamed.x) == 0
    assert kept.sha256() == streamed.sha256()
    index = np.array([3, 0, 7])
    for ours, theirs in zip(kept.take(index), streamed.take(index), strict=True):
        assert torch.equal(ours, theirs)
    assert load(folder, memory=12 * 3 * 32 * 32 - 1).streamed
    assert not load(folder, memory=12 * 3 * 32 * 32).streamed


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_the_number_of_workers_changes_nothing(folder, workers):
    assert torch.equal(load(folder, workers=workers).x, load(folder).x)


def test_broken_files_are_named_counted_and_left_out_or_refused(folder):
    (folder / "unlabeled/empty.jpg").write_bytes(b"")
    whole = (folder / "unlabeled/2.png").read_bytes()
    (folder / "unlabeled/cut.png").write_bytes(whole[: len(whole) // 2])  # its head is sound
    said: list[str] = []
    images = load(folder, say=said.append)
    assert len(images.y) == len(images.x) == len(images.files.names) == 12
    assert any("empty.jpg" in line for line in said)
    assert any("cut.png" in line for line in said)
    labelled = int((images.y >= 0).sum())
    assert any(line.endswith(f"left out, which leaves 12 to learn from, {labelled} with a label") for line in said)
    assert images.left_out == ("unlabeled/cut.png", "unlabeled/empty.jpg")
    for name in ("empty.jpg", "cut.png"):
        with pytest.raises(UsageError, match="--strict"):
            load(folder, strict=True)
        (folder / "unlabeled" / name).unlink()
    assert len(load(folder, strict=False).y) == 12


def test_empty_files_are_copies_of_nothing_but_can_not_be_read(folder):
    empty = [f"{place}/empty.png" for place in ("labeled/a", "labeled/b", "test/a", "unlabeled")]
    (folder / "test/a").mkdir(parents=True)
    colour(200).save(folder / "test/a/whole.png")
    for name in empty:
        (folder / name).write_bytes(b"")
    assert not any("two labels" in note or "in the test" in note for note in read_layout(folder).notes)
    said: list[str] = []
    assert load(folder, say=said.append).left_out == tuple(empty)
    assert "4 files can't be read as pictures" in said[0]
    with pytest.raises(UsageError, match="4 files can't be read as pictures .* or leave --strict out"):
        load(folder, strict=True)


def test_a_class_of_which_nothing_can_be_read(folder):
    for path in (folder / "labeled/b").iterdir():
        path.write_bytes(b"no picture")
    with pytest.raises(UserError, match="no picture with the label 'b' can be read"):
        load(folder)


def test_a_file_that_breaks_on_the_way_is_grey_and_noted(folder):
    files = Files(folder, ("labeled/a/0.png", "unlabeled/gone.png"), 3, 32)
    slot, size = files.read(1)
    assert slot.unique().tolist() == [127]
    assert size == (32, 32)
    assert list(files.broken) == ["unlabeled/gone.png"]


def test_a_first_look(folder, tmp_path):
    look = look_at(read_layout(folder))
    assert (look.pictures, look.classes, look.same_size, look.grey) == (12, 2, False, False)
    assert 20 <= look.short_side <= 25
    for name in ("a/1.png", "a/2.png", "b/3.png"):
        (tmp_path / "grey" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (28, 28), ord(name[2])).save(tmp_path / "grey" / name)
    look = look_at(read_layout(tmp_path / "grey"))
    assert (look.short_side, look.same_size, look.grey) == (28, True, True)


def test_a_class_whose_test_pictures_can_not_be_read_is_named(tmp_path):
    for name in ("a", "b"):
        for part in ("train", "test"):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(2):
                colour(10 * number + 3 * len(part) + ord(name)).save(tmp_path / part / name / f"{number}.png")
    said = []
    (tmp_path / "test" / "a" / "0.png").write_bytes(b"broken")
    load_pictures(tmp_path, side=8, slot=8, channels=3, say=said.append)
    assert not any("no test picture" in line for line in said)
    (tmp_path / "test" / "a" / "1.png").write_bytes(b"broken")
    images = load_pictures(tmp_path, side=8, slot=8, channels=3, say=said.append)
    assert images.test_y.tolist() == [1, 1]
    assert said[-1].endswith("no test picture of a can be read: no error is measured there")


@pytest.fixture
def tested(folder):
    """The same folder with a test of six pictures that are wider than high, or higher than wide."""
    for number in range(6):
        path = folder / "test" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        colour(30 * number).resize((40 - 4 * number, 20 + 5 * number)).save(path)
    return folder


def test_a_broken_test_picture_takes_its_own_pixels_and_label_with_it(tested):
    whole = load(tested)
    (tested / whole.tested[1]).write_bytes(b"broken")
    images = load(tested)
    kept = [0, 2, 3, 4, 5]
    assert images.tested == tuple(whole.tested[place] for place in kept)
    assert images.left_out == (whole.tested[1],)
    assert torch.equal(images.test_x, whole.test_x[kept])
    assert torch.equal(images.test_y, whole.test_y[kept])


@pytest.mark.parametrize(("size", "told"), [((160, 32), True), ((32, 160), True), ((48, 32), False), ((32, 32), False)])
@pytest.mark.parametrize("slot", [32, 48])
def test_pictures_of_which_a_square_is_little_are_told_of(tmp_path, size, told, slot):
    for number in range(4):
        path = tmp_path / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", size, (60 * number, 0, 0)).save(path)
    notes = load_pictures(tmp_path, side=32, slot=slot, channels=3, quiet=True).notes
    said = [note for note in notes if "the square in their middle alone" in note]
    assert len(said) == told
    if told:
        assert "most pictures are 5.0 times as long one way as the other" in said[0]
        assert ("the views and the test see" in said[0]) == (slot == 32)


def test_a_look_that_finds_nothing_ends_no_run(tmp_path):
    """Streamed pictures are not looked at again where a run goes on."""
    for number in range(12):
        path = tmp_path / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), (20 * number, 0, 0)).save(path)
    files = load_pictures(tmp_path, side=8, slot=8, channels=3, quiet=True).files.names
    for name in files:
        (tmp_path / name).write_bytes(f"no picture {name}".encode())
    images = load_pictures(tmp_path, side=8, slot=8, channels=3, resident=False, left_out=(), quiet=True)
    assert not any("square" in note for note in images.notes)

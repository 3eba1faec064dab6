"""A classifier takes pictures in every form, each as a file of it, and says in one line what it does not take."""

from __future__ import annotations

import errno
import io

import numpy as np
import pytest
import torch
from PIL import Image

from maxmatch.data.picture_file import read_image
from maxmatch.errors import UsageError
from maxmatch.evaluate.classifier import Classifier, load
from maxmatch.nets.preprocess import Preprocessing


def classifier(channels: int = 3) -> Classifier:
    """Its classes are the values of a picture of 8 x 8, the likeliest is the brightest of them."""
    count = channels * 64
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(count, count, bias=False))
    torch.nn.init.eye_(net[1].weight)
    return Classifier(net, tuple(map(str, range(count))), Preprocessing(channels, 8, 8))


def turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to view
    return exif


class Place:
    """A path that is no Path, as other libraries have them."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return str(self.path)


@pytest.fixture
def picture():
    """A photograph's worth of colours, 20 x 12."""
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (12, 20, 3), np.uint8))


def test_it_says_what_it_is_for():
    assert repr(classifier(1)) == "<Classifier: 64 classes, images of 1 x 8 x 8>"


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", ["P", "P see-through", "RGBA", "LA", "1", "I;16", "F", "CMYK", "RGB", "RGB turned"])
def test_a_picture_of_pil_is_taken_as_its_file(tmp_path, picture, kind, channels):
    mode, _, special = kind.partition(" ")
    if mode == "I;16":
        made = Image.fromarray(np.arange(240, dtype=np.uint16).reshape(12, 20) * 257)
    else:
        made = picture.quantize(16) if mode == "P" else picture.convert(mode)
    told = {"transparency": 3} if special == "see-through" else {"exif": turned()} if special == "turned" else {}
    file = tmp_path / ("x.tif" if mode in ("F", "CMYK") else "x.png")
    made.save(file, **told)
    expected = read_image(file, (channels, 8, 8))
    with Image.open(file) as opened:
        assert torch.equal(classifier(channels).pixels([opened])[0], expected)
        opened.load()
        assert torch.equal(classifier(channels).pixels(opened)[0], expected)
    if not special:
        assert torch.equal(classifier(channels).pixels([made, str(file)]), torch.stack([expected, expected]))


@pytest.mark.parametrize("mode", ["HSV", "YCbCr"])
def test_a_mode_that_no_png_has_is_its_colours(picture, mode):
    found = classifier().pixels([picture.convert(mode)]).int() - classifier().pixels([picture]).int()
    assert found.abs().max() < 12  # the rounding of eight bits of hue


def test_every_form_of_a_file_is_the_same(tmp_path, picture):
    file = tmp_path / "x.png"
    picture.save(file)
    content, expected = file.read_bytes(), classifier().predict_proba(str(file))
    assert expected.shape == (1, 192)
    upload = io.BytesIO(content)
    upload.read(7)  # somebody has looked at it
    with file.open("rb") as opened:
        forms = [file, Place(file), content, bytearray(content), memoryview(content), upload, opened, picture]
        for form in forms:
            assert np.array_equal(classifier().predict_proba(form), expected), form
        assert np.array_equal(classifier().predict_proba(forms), expected.repeat(len(forms), 0))
        assert not opened.closed
    assert not upload.closed
    for names in (np.array([str(file)] * 2), np.array([file] * 2, object)):
        assert np.array_equal(classifier().predict_proba(names), expected.repeat(len(names), 0))
    assert np.array_equal(classifier().predict_proba(np.array(str(file))), expected)


@pytest.mark.parametrize(
    ("images", "line"),
    [
        (None, "images of NoneType: arrays or tensors of uint8 are wanted"),
        (3, "images of int64: uint8"),
        ([np.zeros((8, 8), np.uint8), np.zeros((9, 8), np.uint8)], r"images of several sizes: .*Image.fromarray\(x\)"),
        ([torch.zeros(8, 8), torch.zeros(9, 8)], "images of several sizes"),
        (np.zeros((2, 8, 8)), "images of float64: uint8 from 0 to 255"),
        (np.zeros((2, 8, 8), complex), "arrays or tensors of uint8"),
        (["a.png", np.zeros((8, 8), np.uint8)], "some are files or pictures of PIL's, others not"),
        (np.zeros((2, 9, 9, 3), np.uint8), "give files, or Image.fromarray"),
    ],
)
def test_what_is_no_picture_is_one_line(images, line):
    with pytest.raises(UsageError, match=line) as told:
        classifier().predict(images)
    assert "\n" not in str(told.value)


def test_what_can_not_be_decoded_is_one_line(tmp_path, picture):
    picture.save(tmp_path / "x.png")
    (tmp_path / "x.png").write_bytes((tmp_path / "x.png").read_bytes()[:200])
    with Image.open(tmp_path / "x.png") as half:
        for form, name in ((half, "x.png"), (b"no picture", "a file"), (io.StringIO("no picture"), "a file")):
            with pytest.raises(OSError, match=f"{name}: cannot be read as a picture") as told:
                classifier().predict([form])
            assert "\n" not in str(told.value)


def test_of_a_file_that_is_not_there_the_system_s_error_is_raised(tmp_path):
    with pytest.raises(FileNotFoundError, match="nope.png") as told:
        classifier().predict(str(tmp_path / "nope.png"))
    assert told.value.errno == errno.ENOENT
    with pytest.raises(IsADirectoryError):
        classifier().predict([tmp_path])


def test_an_array_that_may_only_be_read_is_no_warning(tmp_path, no_warning):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8)
    np.save(tmp_path / "x.npy", pixels)
    found = classifier().pixels(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert np.array_equal(found.permute(0, 2, 3, 1).numpy(), pixels)


def test_a_device_of_torch_is_taken_by_its_name(tiny, tmp_path):
    import maxmatch

    maxmatch.fit(tiny(train={"steps": 1}), tmp_path / "run", quiet=True)
    assert load(tmp_path / "run", device=torch.device("cpu")).classes == tuple("0123456789")
    judged = [maxmatch.judge(tmp_path / "run", 1, device, quiet=True) for device in ("cpu", torch.device("cpu"))]
    assert judged[0] == judged[1]
    with pytest.raises(UsageError, match="unknown device 'meta'"):
        load(tmp_path / "run", device=torch.device("meta"))

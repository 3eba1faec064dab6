"""What the saved model says of its test set, measured for the report within a time, on a drawn part if need be.

Which images are drawn depends on a stream of the report's own and is the same for every run, so that runs are compared
image by image: a smaller part is the beginning of a larger one.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from maxmatch.data import DATASETS, store
from maxmatch.data.datasets import Images
from maxmatch.data.layout import read_layout
from maxmatch.data.plan import Plan
from maxmatch.data.sources import SOURCES
from maxmatch.data.split import name_of_pool, saved_left_out, saved_tested
from maxmatch.errors import UserError
from maxmatch.evaluate.calibration import Reliability, reliability
from maxmatch.evaluate.errors import in_batches
from maxmatch.nets import features, num_features
from maxmatch.nets.device import best_device
from maxmatch.report.folder import RunFolder
from maxmatch.report.pool import Pool, judge_pool
from maxmatch.train.finished import Finished, open_run
from maxmatch.train.fit import is_changed
from maxmatch.train.result import untested
from maxmatch.train.unlabelled import without_label

LEFT_OUT = "Confusion matrix, calibration, errors by class, the gallery of views and the map"
LABELLED_SINCE = (
    "Pictures or labels were changed since it was trained, but the test has the same names: all are taken as they are "
    "now."
)
MAPPED = 600  # points of the map
MOST = 4096  # images of the pool that are looked at: enough for every figure, and the gallery stays quick


class Answers(NamedTuple):
    """Test images by their position (N,), with their label and the probabilities (N, C) of each class."""

    position: npt.NDArray[np.int64]
    label: Tensor
    probabilities: Tensor
    total: int  # how many there are in all
    digest: str  # of the pixels or files of all of them, and their labels: which test set it is

    @property
    def predicted(self) -> Tensor:
        return self.probabilities.argmax(-1)

    @property
    def confusion(self) -> Tensor:
        """(C, C) counts: rows are the truth, columns what was predicted."""
        classes = self.probabilities.shape[1]
        flat = torch.bincount(self.label * classes + self.predicted, minlength=classes * classes)
        return flat.view(classes, classes)

    @property
    def reliability(self) -> Reliability:
        return reliability(self.probabilities, self.label)


class Map(NamedTuple):
    """Places (N, 2) of images on a plane, near where the net sees them alike; label, and what it has wrong."""

    place: npt.NDArray[np.float32]
    label: list[int]
    wrong: list[bool]
    truth: bool  # whether the labels are true ones; else they are predicted


@dataclass
class Measured:
    """What could be measured, and in words what could not and why."""

    finished: Finished | None = None
    test: Answers | None = None
    pool: Pool | None = None
    map: Map | None = None
    missing: list[str] = field(default_factory=list)
    untested: list[str] = field(default_factory=list)  # classes that no test image is of

    @property
    def classes(self) -> tuple[str, ...]:
        return self.finished.classifier.classes if self.finished else ()


def measure(run: RunFolder, seconds: float, data: Images | None = None, mapped: bool = True) -> Measured:
    """Measure a run for about so many seconds; what can't be is said in `missing`. The map comes if there is time."""
    found, begun = Measured(), time.perf_counter()
    try:
        now = data is None and _labelled_since(run)
        finished = _open(run, data, now)
    except (UserError, OSError) as error:
        why = _other_test(run) or f"the model or its data can't be opened: {error}"
        found.missing.append(f"{LEFT_OUT} are left out, because {why}.")
        return found
    found.finished = finished
    if now:
        found.missing.append(LABELLED_SINCE)
    each = _seconds_an_image(finished)
    images = finished.images
    found.untested = untested(images)
    if images.test_x is None or images.test_y is None or not len(images.test_x):
        found.missing.append("There is no test set, so error, confusion and calibration are not measured.")
    else:
        found.test = judge_test(finished, int(0.4 * seconds / each))
    alone = without_label(finished)
    if len(alone):
        k = run.views
        many = max(32, min(MOST, int(0.6 * seconds / (each * (1 + 1.5 * k)))))
        drawn = Plan(0).indices("report/pool", 0, min(many, len(alone)), len(alone))
        found.pool = judge_pool(finished, np.sort(alone[drawn]), k, len(alone))
    else:
        found.missing.append("Every image has a label, so there is no gallery of unlabelled ones.")
    if mapped and time.perf_counter() - begun < 1.5 * seconds:
        found.map = make_map(finished, found.test, found.pool)
    return found


def judge_test(finished: Finished, most: int) -> Answers:
    """Probabilities of the test images, of a drawn part if there are more than `most`."""
    images = finished.images
    assert images.test_x is not None
    assert images.test_y is not None
    total = len(images.test_x)
    position = np.sort(Plan(0).indices("report/test", 0, min(max(most, 64), total), total))
    logits = finished.logits(images.test_x[torch.from_numpy(position)].to(finished.device))
    label = images.test_y[torch.from_numpy(position)]
    digest = images.test_digest or digest_of(images.test_x, images.test_y)
    return Answers(position, label, torch.softmax(logits.double(), -1).cpu(), total, digest)


def digest_of(pixels: Tensor, labels: Tensor) -> str:
    """Two test sets are the same if shape, pixels and labels are; labels alone are often alike."""
    made = hashlib.sha256(f"{tuple(pixels.shape)} {pixels.dtype}".encode())
    parts = (pixels[first : first + 4096] for first in range(0, len(pixels), 4096))  # they may be mapped from a file
    for part in (*parts, labels.long()):
        made.update(part.cpu().contiguous().numpy().tobytes())
    return made.hexdigest()


def make_map(finished: Finished, test: Answers | None, pool: Pool | None) -> Map | None:
    """t-SNE of the features that the net's head sees, of test images, or of unlabelled ones where there are none."""
    if num_features(finished.classifier.net) == 0:
        return None
    if test is not None and finished.images.test_x is not None:
        some = torch.from_numpy(Plan(0).indices("report/map", 0, min(MAPPED, len(test.label)), len(test.label)))
        pixels = finished.images.test_x[torch.from_numpy(test.position)[some]]
        label, wrong = test.label[some], (test.predicted != test.label)[some]
    elif pool is not None:
        some = torch.from_numpy(Plan(0).indices("report/map", 0, min(MAPPED, len(pool.label)), len(pool.label)))
        pixels = pool.judged(finished, some)
        label, wrong = pool.label[some], torch.zeros(len(some), dtype=torch.bool)
    else:
        return None
    if len(label) < 20:
        return None
    net, preprocessing = finished.classifier.net, finished.classifier.preprocessing
    dtype = next(net.parameters()).dtype
    seen = in_batches(lambda x: features(net, preprocessing(x, dtype)), pixels.to(finished.device), 256).float().cpu()
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    near = min(30.0, len(seen) / 4)
    with threadpool_limits(1):  # so few points: threads would wait for one another, for long where a core is busy
        place = TSNE(init="pca", perplexity=near, max_iter=500, random_state=0).fit_transform(seen.numpy())
    return Map(place, label.tolist(), wrong.tolist(), test is not None)


def _labelled_since(run: RunFolder) -> bool:
    """Whether pictures of a folder were added or labelled since the run, and its test is still of the same ones."""
    then, now = _tests(run)
    return bool(now) and then == now


def _other_test(run: RunFolder) -> str:
    """What to say where the pictures that a folder is tested on are others now: the run may have learned from them."""
    try:
        then, now = _tests(run)
    except (UserError, OSError):
        return ""
    if then == now:
        return ""
    told = f"from {len(then)} pictures to {len(now)}"
    if len(then) == len(now):
        told = f"{len(now - then)} of its {len(now)} pictures have other names or places"
    what = f"the test has changed since it was trained, {told}"
    return (
        f"{what}: a test that stays the same, to compare by, is one of pictures in {run.recipe.data.path}/test/CLASS/"
    )


def _tests(run: RunFolder) -> tuple[set[str], set[str]]:
    """The test pictures of a folder that was changed since the run, then and now; of one that was not, none."""
    if run.recipe.data.name != "folder" or not is_changed(run.recipe, run.path):
        return set(), set()
    split, data = run.path / "split.json", run.recipe.data
    label_file = Path(data.label_file) if data.label_file else None
    listing = read_layout(Path(str(data.path)), label_file, data.strict, run.recipe.method.needs.labelled)
    return {*(saved_tested(split) or ())}, {*listing.without(saved_left_out(split)).test_files}


def _open(run: RunFolder, data: Images | None, now: bool) -> Finished:
    """The run with its data, if those are here: a report never downloads anything."""
    settings = run.recipe.data
    if data is None and settings.name in DATASETS:
        pool = name_of_pool(settings.name, settings.protocol)
        if pool in SOURCES and not store.kept_at(pool).exists():
            raise UserError(f"{pool} is not here; type maxmatch data fetch {pool}")
    call = "maxmatch.report.page.write_report([folder], data=...)"
    on_gpu = run.recipe.train.device == "cuda" and best_device() == "cuda"
    # What is wrong with its method was told when the folder was read.
    return open_run(run.path, "cuda" if on_gpu else "cpu", data, call, now, warn=lambda line: None)


def _seconds_an_image(finished: Finished) -> float:
    """How long the net takes for one image here, by a few of them after a first pass."""
    shape = finished.classifier.preprocessing.shape
    images = torch.zeros((32, *shape), dtype=torch.uint8, device=finished.device)
    finished.logits(images)
    begun = time.perf_counter()
    finished.logits(images).argmax().item()  # waits for the device
    return max((time.perf_counter() - begun) / len(images), 1e-7)


def shared_images(first: Answers, other: Answers) -> tuple[Tensor, Tensor]:
    """Right or wrong, of both, on the test images that both were asked about."""
    if first.digest != other.digest:
        raise UserError("they have other test images")
    _, here, there = np.intersect1d(first.position, other.position, return_indices=True)
    if not len(here):
        raise UserError("no test image was shown to both")
    return tuple(
        (test.predicted == test.label)[torch.from_numpy(places)] for test, places in ((first, here), (other, there))
    )  # type: ignore[return-value]

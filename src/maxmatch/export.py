"""A classifier as one file for other programs: ONNX, or torch.export's .pt2, with all that happens to a picture inside.

Input `images`: uint8 (N, H, W, 3), upright RGB, every size. Output `probabilities`: (N, C). Inside: grey if the net is,
scaled to cover by a bicubic filter, cropped centrally, normalised, the net, softmax. The names of the classes and the
preprocessing are in the file's metadata, as JSON.

The resize is PIL's, as prediction has it: its weights are made from the picture's size and multiplied in, along rows
and then along columns, each time rounded to 0..255. Where PIL goes the same way it differs by one level at most, in
fewer than one value in a hundred; Pillow 13 takes the columns of some pictures first, and there it is a level or two in
more of them. ONNX's Resize, which does not round in between, is further off (tests/test_export.py). The price is a
dense product: large photographs take longer than in PIL, and as floats four times their memory.

A file is written only when what will stand in it, run by onnxruntime or by a loaded torch program, has agreed with the
run's classifier on real images of several sizes.
"""

from __future__ import annotations

import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from maxmatch import __version__
from maxmatch.data import DATASETS, store
from maxmatch.data.datasets import load_images
from maxmatch.data.folder import find_pictures
from maxmatch.data.picture_file import fit_picture, open_image
from maxmatch.data.sources import SOURCES
from maxmatch.data.split import name_of_pool
from maxmatch.errors import UsageError, UserError, said, unknown
from maxmatch.evaluate.classifier import Classifier, load
from maxmatch.files import write_safely
from maxmatch.nets.model_file import read_info
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train.resume import saved_data

ENDINGS = {".onnx": "onnx", ".pt2": "torch"}
FORMAT_VERSION = 1
# Largest difference of a probability: between the same arithmetic in two programs, and between PIL's resize and ours,
# where some pixels are a level off.
SAME, CLOSE = 1e-4, 0.02

Pictures = npt.NDArray[np.uint8]  # (N, H, W, 3)
Probabilities = npt.NDArray[np.float64]  # (N, C)
Program = Callable[[Pictures], Probabilities]


class Agreement(NamedTuple):
    """What was compared, and how far apart the probabilities were at most."""

    images: int
    sizes: int
    program: float  # between the file and the same arithmetic in torch
    picture: float  # between the file and the classifier, which resizes by PIL

    def __str__(self) -> str:
        return (
            f"agrees with torch on {self.images} real images of {self.sizes} sizes: probabilities differ by "
            f"{self.program:.1e} at most, by {self.picture:.1e} where PIL resizes"
        )


def export_run(run: str | Path, out: str | Path, format: str | None = None) -> Agreement:
    """Write the classifier of a run to `out`, or refuse in one line; says how well the file agrees with torch."""
    run, out = Path(run), Path(out)
    kind = choose_format(format, out)
    if out.is_dir() or not os.access(out.parent, os.W_OK):
        raise UsageError(f"{out}: its folder is not there or can't be written to; give the file to write")
    classifier = load(run)
    pictures = real_pictures(run)
    content, program = (to_onnx if kind == "onnx" else to_torch)(classifier, net_name(run))
    found = compare(classifier, program, pictures)
    if not (found.program <= SAME and found.picture <= CLOSE):
        raise UserError(
            f"{out} is not written: its probabilities differ from torch's by {found.program:.1e} (at most {SAME:g} is "
            f"allowed), by {found.picture:.1e} where PIL resizes (at most {CLOSE:g})"
        )
    write_safely(out, content)
    return found


def choose_format(asked: str | None, out: Path) -> str:
    """The format asked for, else that of the file's ending."""
    if asked is not None and asked not in ENDINGS.values():
        raise UsageError(unknown("format", asked, ENDINGS.values()))
    found = asked or ENDINGS.get(out.suffix.lower())
    if found is None:
        raise UsageError(f"{out}: type a file that ends in {' or '.join(ENDINGS)}, or --format onnx or torch")
    return found


class Whole(nn.Module):
    """All of prediction as one module: pictures of any size (N, H, W, 3) to probabilities (N, C)."""

    def __init__(self, net: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.net, self.preprocessing = net, preprocessing

    def forward(self, images: Tensor) -> Tensor:
        return torch.softmax(self.net(self.preprocessing(self.fitted(images))), -1)

    def fitted(self, images: Tensor) -> Tensor:
        """Levels 0..255 as floats (N, C, h, w) in the net's size: what data.picture_file.fit_picture makes."""
        channels, height, width = self.preprocessing.shape
        x = images.permute(0, 3, 1, 2)
        x = (grey(x) if channels == 1 else x).float()
        rows = torch.arange(x.shape[2], dtype=torch.float64, device=x.device)
        columns = torch.arange(x.shape[3], dtype=torch.float64, device=x.device)
        high, wide = rows[-1] + 1, columns[-1] + 1  # as tensors, so that the sizes stay open
        if self.preprocessing.middle < 1:
            return self._middle(x, rows, columns)
        step = torch.minimum(high / height, wide / width)  # the picture is scaled to cover
        x = _levels(x @ bicubic(columns, (wide - step * width) / 2, step, width).T)
        return _levels(bicubic(rows, (high - step * height) / 2, step, height) @ x)

    def _middle(self, x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """The middle alone, by PIL's bilinear filter: fit_picture with `middle`."""
        _, height, width = self.preprocessing.shape
        short = round(min(height, width) / self.preprocessing.middle)
        least = torch.minimum(rows[-1], columns[-1]) + 1
        for positions, count, turned in ((columns, width, False), (rows, height, True)):
            length = positions[-1] + 1
            scaled = torch.floor(short * length / least)
            step, first = length / scaled, torch.round((scaled - count) / 2)
            weights = bilinear(positions, first * step, step, count)
            x = _levels(weights @ x if turned else x @ weights.T)
        return x


def grey(images: Tensor) -> Tensor:
    """RGB (N, 3, H, W) to PIL's grey (N, 1, H, W): luma in 16 bits of fraction, rounded."""
    red, green, blue = images.to(torch.int32).unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16)[:, None]


def bicubic(positions: Tensor, first: Tensor, step: Tensor, count: int) -> Tensor:
    """Weights (count, n) of PIL's bicubic filter (a = -1/2), which take n pixels at `positions` to `count`.

    The count pixels are `step` apart and begin at `first`; the filter is as wide as the step where that shrinks.
    """
    x = _distances(positions, first, step, count)
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    weights = torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))
    return (weights / weights.sum(1, keepdim=True)).float()


def bilinear(positions: Tensor, first: Tensor, step: Tensor, count: int) -> Tensor:
    """The same of PIL's bilinear filter."""
    weights = (1 - _distances(positions, first, step, count)).clamp(min=0)
    return (weights / weights.sum(1, keepdim=True)).float()


def _distances(positions: Tensor, first: Tensor, step: Tensor, count: int) -> Tensor:
    centres = first + (torch.arange(count, dtype=torch.float64, device=positions.device) + 0.5) * step
    return (positions + 0.5 - centres[:, None]).abs() / step.clamp(min=1)


def to_onnx(classifier: Classifier, net: str) -> tuple[bytes, Program]:
    """The classifier as the content of an ONNX file, and that content as onnxruntime runs it."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  torch.onnx needs it
    except ImportError as error:
        raise UsageError(f'{error.name} is missing: pip install "maxmatch[onnx]"') from None
    with _quiet(), _one_line(net):
        made = torch.onnx.export(
            _traced(classifier),
            input_names=["images"],
            output_names=["probabilities"],
            dynamic_shapes={"images": {0: "N", 1: "H", 2: "W"}},
            dynamo=True,
            verbose=False,
        )
        assert made is not None
        made.model.metadata_props.update(metadata(classifier, net))
        content: bytes = made.model_proto.SerializeToString()
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def program(images: Pictures) -> Probabilities:
        with _one_line(net):
            (found,) = session.run(["probabilities"], {"images": images})
        return np.asarray(found, np.float64)

    return content, program


def to_torch(classifier: Classifier, net: str) -> tuple[bytes, Program]:
    """The classifier as the content of a .pt2 file, and that content as torch.export loads and runs it."""
    file = io.BytesIO()
    with _quiet(), _one_line(net):
        torch.export.save(_traced(classifier), file, extra_files=metadata(classifier, net))
        file.seek(0)
        loaded: Any = torch.export.load(file).module()

    def program(images: Pictures) -> Probabilities:
        with torch.no_grad(), _one_line(net):
            return loaded(torch.from_numpy(images)).double().numpy()  # type: ignore[no-any-return]

    return file.getvalue(), program


def metadata(classifier: Classifier, net: str) -> dict[str, str]:
    """What the file says of itself, JSON under each name."""
    values = {
        "format_version": FORMAT_VERSION,
        "maxmatch": __version__,
        "classes": classifier.classes,
        "preprocessing": asdict(classifier.preprocessing),
        "net": net,
    }
    return {name: json.dumps(value) for name, value in values.items()}


def compare(classifier: Classifier, program: Program, pictures: list[Pictures]) -> Agreement:
    """How far a program is from the same arithmetic in torch, and from the classifier, on batches of pictures."""
    whole = _whole(classifier)
    channels = classifier.preprocessing.channels
    in_program, in_picture = 0.0, 0.0
    for batch in pictures:
        found = program(batch)
        with torch.no_grad():
            same = whole(torch.from_numpy(batch)).double().numpy()
        shown = [Image.fromarray(picture).convert("RGB" if channels == 3 else "L") for picture in batch]
        shape, middle = classifier.preprocessing.shape, classifier.preprocessing.middle
        close = classifier.predict_proba(torch.stack([fit_picture(p, shape, middle) for p in shown]))
        # A NaN must not pass as agreement, and max() would drop it.
        in_program = float(np.maximum(in_program, np.abs(found - same).max()))
        in_picture = float(np.maximum(in_picture, np.abs(found - close).max()))
    return Agreement(sum(map(len, pictures)), len({batch.shape[1:3] for batch in pictures}), in_program, in_picture)


def real_pictures(run: Path) -> list[Pictures]:
    """Batches of real images of several sizes: parts of two photographs, and the run's own as far as they are here."""
    from sklearn.datasets import load_sample_images

    china, flower = (np.array(photograph, np.uint8) for photograph in load_sample_images().images)  # 427 x 640
    found = [china[None], np.stack([flower[:, :240], china[:, 400:]]), china[None, 60:80, 100:131]]
    found += [np.stack([china[y : y + 64, x : x + 64] for y in range(0, 300, 100) for x in range(0, 500, 100)])]
    data = saved_data(run)
    if data.name in DATASETS and data.name != "imagenet":
        pool = name_of_pool(data.name, data.protocol)
        if pool not in SOURCES or store.kept_at(pool).exists():  # nothing is downloaded for a comparison
            images = load_images(data.name, data.protocol)
            own = (images.x if images.test_x is None else images.test_x)[:16]
            found.append(own.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy())
    elif data.path is not None and Path(data.path).is_dir():
        for name in find_pictures(Path(data.path))[:16]:  # shards have none
            with suppress(OSError):
                found.append(np.array(open_image(Path(data.path) / name, 3))[None])
    return [np.ascontiguousarray(batch) for batch in found]


def net_name(run: Path) -> str:
    """The name of a run's net."""
    return str(read_info(run / "model.safetensors").net["name"])


def _whole(classifier: Classifier) -> Whole:
    return Whole(classifier.net.float(), classifier.preprocessing).eval()


def _traced(classifier: Classifier) -> torch.export.ExportedProgram:
    anything = torch.export.Dim.DYNAMIC
    example = torch.zeros(2, 24, 40, 3, dtype=torch.uint8)
    return torch.export.export(
        _whole(classifier), (example,), dynamic_shapes={"images": {0: anything, 1: anything, 2: anything}}
    )


def _levels(x: Tensor) -> Tensor:
    return torch.floor(x + 0.5).clamp(0, 255)


@contextmanager
def _quiet() -> Iterator[None]:
    """Within: the exporters' remarks on themselves are not shown; what matters is whether the results agree."""
    held = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(held)


@contextmanager
def _one_line(net: str) -> Iterator[None]:
    """A net may do what an exporter can't follow, which shows in every way there is: say it in one line."""
    try:
        yield
    except Exception as error:
        what = f"{net} can't be exported ({said(error)})"
        raise UserError(f"{what}: try the other format, --format onnx or torch") from None

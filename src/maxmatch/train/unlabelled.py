"""The pseudo-labels of a run's own training pool, sorted so that the first rows are what to label next.

An image is worth a label where the net is unsure of it and where strong views of it change the net's mind:
score = (1 - confidence) + disagreement, the highest first. Confidence is the probability of the pseudo-label,
disagreement the share of K strong views, drawn from an evaluation stream of the plan by the run's own policy and seed,
whose prediction differs from that of the image itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from maxmatch.augment import ResizedCrop
from maxmatch.data.datasets import Images
from maxmatch.data.plan import Plan
from maxmatch.errors import counted, listed, tell
from maxmatch.evaluate.rows import ReaderGone, Row, choose_format, writing_rows
from maxmatch.progress import Bar
from maxmatch.train.finished import Finished, open_run

CHUNK = 512  # images whose views are made at a time; part of the stream, so another number gives other views


class PseudoLabels(NamedTuple):
    """What the net says of images: their positions in the pool, label, confidence and disagreement, all (N,)."""

    position: Tensor
    label: Tensor
    confidence: Tensor
    disagreement: Tensor

    def next_first(self) -> PseudoLabels:
        """Least sure and most disagreeing first; equals stay in the order of the pool.

        >>> three = PseudoLabels(*map(torch.tensor, ([0, 1, 2], [5, 5, 5], [0.9, 0.5, 0.8], [0.0, 0.0, 1.0])))
        >>> three.next_first().position.tolist()
        [2, 1, 0]
        """
        order = by_worth(self.confidence, self.disagreement)
        return PseudoLabels(*(column[order] for column in self))


def by_worth(confidence: Tensor, disagreement: Tensor) -> Tensor:
    """Places of images by how much a label of theirs would tell: the least sure and most disagreeing first."""
    return (1 - confidence.double() + disagreement.double()).argsort(descending=True, stable=True)


def label_unlabelled(
    run: str | Path,
    out: str | Path | None,
    device: str = "cpu",
    *,
    k: int | None = None,
    format: str | None = None,
    data: Images | None = None,
) -> int:
    """Write a row for each image of the run's pool without a label, what to label next first; returns their number."""
    run, out = Path(run), None if out is None else Path(out)
    kind = choose_format(format, out)
    call = "maxmatch.train.unlabelled.label_unlabelled(folder, out, data=...)"
    finished = open_run(run, device, data, call, now=True, test=False)
    with Bar("labelling", len(without_label(finished))) as bar:
        found = pseudo_labels(finished, k or finished.recipe.evaluate.robust_views, bar.advance).next_first()
    files = finished.images.files
    names = None if files is None else files.names
    if files is not None and files.broken:
        readable = torch.tensor([files.names[i] not in files.broken for i in found.position.tolist()], dtype=torch.bool)
        found = PseudoLabels(*(column[readable] for column in found))
        tell(f"maxmatch: {counted(len(files.broken), 'file', 'files')} can't be read: {listed(sorted(files.broken))}")
    first = "index" if names is None else "path"
    try:
        with writing_rows(out, kind, (first, "label", "confidence", "disagreement")) as write:
            write(_rows(found, finished.classifier.classes, first, names))
    except ReaderGone:
        pass
    return len(found.position)


def pseudo_labels(finished: Finished, k: int, advance: Callable[[int], None] = lambda count: None) -> PseudoLabels:
    """Pseudo-label, confidence and disagreement over k strong views of all images that have no label, in pool order.

    `advance` is called with the number of images after each chunk.
    """
    plan, pool = Plan(finished.recipe.train.seed), len(finished.images.y)
    wanted = without_label(finished)
    parts = []
    for number in range(-(-pool // CHUNK)):
        index = torch.from_numpy(wanted[wanted // CHUNK == number])
        if len(index):
            parts.append(_judge(finished, plan, number, index, k))
            advance(len(index))
    if not parts:
        return PseudoLabels(torch.zeros(0).long(), torch.zeros(0).long(), torch.zeros(0), torch.zeros(0))
    return PseudoLabels(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def without_label(finished: Finished) -> npt.NDArray[np.int64]:
    """The positions of the pool's images whose label was not shown."""
    return np.setdiff1d(finished.split.unlabelled, finished.split.labelled)


def judged_images(finished: Finished, index: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Images of the pool as the net judges them, as views are made of them, and the sizes of those in slots."""
    slots, sizes = finished.images.take(index.numpy())
    slots, sizes = slots.to(finished.device), None if sizes is None else sizes.to(finished.device)
    weak = finished.views.weak
    if sizes is not None and isinstance(weak, ResizedCrop):  # pictures in slots: their middle is what is judged
        return weak.apply(slots, weak.centre(sizes, finished.images.middle)), slots, sizes
    return slots, slots, sizes


def view_draws(finished: Finished, plan: Plan, number: int, index: Tensor, view: str) -> Tensor:
    """The uniforms (B, R) of a view, `weak` or its number, of images of chunk `number` of the pool.

    They belong to the images' places in it, whoever is labelled.
    """
    uniforms = finished.views.weak_uniforms if view == "weak" else finished.views.strong_uniforms
    whole = plan.uniforms(f"evaluate/unlabelled/{view}", number, (CHUNK, uniforms))
    return torch.from_numpy(whole)[index - number * CHUNK].to(finished.device)


def _judge(finished: Finished, plan: Plan, number: int, index: Tensor, k: int) -> PseudoLabels:
    """The images `index` of one chunk of the pool."""
    images, slots, sizes = judged_images(finished, index)
    confidence, label = torch.softmax(finished.logits(images).double(), -1).max(-1)
    weak = view_draws(finished, plan, number, index, "weak")
    differs = torch.zeros(len(index), dtype=torch.float64, device=finished.device)
    for view in range(k):
        u = view_draws(finished, plan, number, index, str(view))[None]
        strong = finished.views.strong_views(slots, u, weak, sizes=sizes).images[0]
        differs += (finished.logits(strong).argmax(-1) != label).double()
    return PseudoLabels(index, label.cpu(), confidence.cpu(), (differs / k).cpu())


def _rows(found: PseudoLabels, classes: tuple[str, ...], first: str, names: Sequence[str] | None) -> Iterator[Row]:
    for index, label, confidence, disagreement in zip(*(column.tolist() for column in found), strict=True):
        place = index if names is None else names[index]
        yield {
            first: place, "label": classes[label], "confidence": round(confidence, 4),
            "disagreement": round(disagreement, 4),
        }  # fmt: skip

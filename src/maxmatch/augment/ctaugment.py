"""CTAugment: the policy that learns how far each operation may go before the model no longer knows the class.

Every parameter of an operation lies in [0, 1], cut into bins, and each bin has a rate: how close to the label the model
came, lately, on labelled images changed by it. Strong views are drawn from the bins whose rate is near the best one of
the parameter; probes, from which the rates are learned, are drawn from all of them. Rates live on the device, nothing
is read back, and all that is random is a uniform number of the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from maxmatch.augment.cta_ops import BINS, SQUARE, Change
from maxmatch.augment.cta_ops import apply as apply_op
from maxmatch.augment.kernels import real
from maxmatch.augment.ops import CODE, OPS, Path
from maxmatch.augment.policy import whole
from maxmatch.augment.resample import FILTERS
from maxmatch.errors import UsageError, unknown

CTA_PRESETS = ("cta", "cta-fixed")

NAMES = tuple(BINS)
MOST = max(bins for counts in BINS.values() for bins in counts)
# A row of rates for the first parameter of each operation, and one for the second parameter of rescale, its filter.
COUNTS = (*(counts[0] if counts else 0 for counts in BINS.values()), BINS["rescale"][1])
RESCALE, FILTER = NAMES.index("rescale"), len(NAMES)
SIGNED = frozenset({"rotate", "shear-x", "shear-y", "translate-x", "translate-y"})


class Drawn(NamedTuple):
    """What CTAugment does: its operations in order, each part (B, N) or (B, N, 4) as in `Change`, then box (B, 4).

    `kind` and `boxes` mean something for rescale and for cutout alone.
    """

    op: Tensor
    magnitude: Tensor
    kind: Tensor
    boxes: Tensor
    box: Tensor


class Learned(nn.Module):
    """What CTAugment has learned: `rates` (rows, bins), 1 for every bin at first, 0 where a row has no such bin."""

    rates: Tensor
    counts: Tensor  # bins of each row
    codes: Tensor  # indices into `OPS` of the operations

    def __init__(self) -> None:
        super().__init__()
        counts = torch.tensor(COUNTS)
        self.register_buffer("rates", (torch.arange(MOST) < counts[:, None]).float())
        self.register_buffer("counts", counts, persistent=False)
        self.register_buffer("codes", torch.tensor([CODE[name] for name in NAMES]), persistent=False)


@dataclass(frozen=True)
class CTAugment:
    """`depth` operations drawn uniformly with replacement, at magnitudes that have proved safe, then cutout.

    `cta` is Google's code to the letter, where a translation by up to 0.3 pixels moves nothing; in `cta-fixed` it is
    0.3 image widths. `threshold` is the share of the best rate below which a bin is not drawn. The square that ends
    every strong view has half the side (cutout at level 1), or `cutout` pixels, 0 for none.

    >>> policy = CTAugment("cta")
    >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    >>> probes, record = policy.probe(images, torch.rand(4, policy.probe_uniforms))
    >>> policy.update(record, torch.tensor([0.9, 0.2, 0.7, 1.0]))
    >>> policy.sample(torch.rand(4, policy.uniforms), (32, 32)).op.shape
    torch.Size([4, 2])
    """

    name: str = "cta"
    depth: int = 2
    decay: float = 0.99
    threshold: float = 0.80
    cutout: int | None = None
    learned: Learned = field(default_factory=Learned, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse a name that is unknown and numbers out of range."""
        if self.name not in CTA_PRESETS:
            raise UsageError(unknown("CTAugment preset", self.name, CTA_PRESETS))
        if self.depth < 1:
            raise UsageError(f"depth = {self.depth}: type 1 or more")
        if not 0 < self.decay < 1:
            raise UsageError(f"decay = {self.decay}: type a number between 0 and 1")
        if not 0 <= self.threshold <= 1:
            raise UsageError(f"threshold = {self.threshold}: type a number from 0 to 1")
        if self.cutout is not None and self.cutout < 0:
            raise UsageError(f"cutout pixels = {self.cutout} is too small: type 1 or more, or 0 for none")

    @property
    def uniforms(self) -> int:
        """How many uniform numbers a strong view needs: 5 a slot (operation, bin, place in it, 2 more), 2 for cutout.

        The two more are the filter's bin and the place in it for rescale, the row and the column for cutout.
        """
        return 5 * self.depth + (0 if self.cutout == 0 else 2)

    @property
    def probe_uniforms(self) -> int:
        """How many a probe needs: 4 a slot (operation, value, and the filter of rescale or the place of cutout)."""
        return 4 * self.depth

    def weights(self) -> Tensor:
        """How likely each bin is (rows, bins): in proportion to its rate, 0 where that is far below the row's best."""
        there = torch.arange(MOST, device=self.learned.rates.device) < self.learned.counts[:, None]
        p = torch.where(there, real(self.learned.rates) + (1 - self.decay), 0.0)
        p = p / p.amax(1, keepdim=True).clamp(min=1e-9)  # the identity has no bin
        p = torch.where(p < self.threshold, 0.0, p)
        return p / p.sum(1, keepdim=True).clamp(min=1e-9)

    def sample(self, u: Tensor, size: tuple[int, int]) -> Drawn:
        """Draw strong views of images of size (H, W) from uniforms u (B, R) with R = `uniforms`."""
        slots = u[:, : 5 * self.depth].reshape(len(u), self.depth, 5)
        choice, which, within, a, b = slots.unbind(2)
        row, totals = whole(choice, len(NAMES)), _running_totals(self.weights())
        value = (_pick(which, totals[row]) + real(within)) / self.learned.counts[row].clamp(min=1)
        kind_value = (_pick(a, totals[FILTER]) + real(b)) / COUNTS[FILTER]
        if self.cutout == 0:
            box = torch.zeros((len(u), 4), dtype=torch.int64, device=u.device)
        else:
            level = torch.ones_like(u[:, 0], dtype=value.dtype)
            side = _side(level, size) if self.cutout is None else torch.full_like(level, self.cutout).long()
            box = _square(side, u[:, -2], u[:, -1], size)
        return self._drawn(row, value, kind_value, a, b, size, box)

    def apply(self, images: Tensor, draw: Drawn, path: Path = "auto") -> Tensor:
        """Change images (B, C, H, W) as drawn: the operations in their order, then the cutout."""
        for slot in range(self.depth):
            images = apply_op(images, Change(*(part[:, slot] for part in draw[:4])), path)
        return images if self.cutout == 0 else SQUARE.apply(images, draw.box)

    def probe(self, images: Tensor, u: Tensor, path: Path = "auto") -> tuple[Tensor, Tensor]:
        """Images (B, C, H, W) changed by operations at any magnitude, whatever the rates, from u (B, `probe_uniforms`).

        With them the record (B, depth, 2) of the bins that were hit, for `update`: places in the flat `rates`, -1 for
        none. No cutout follows.
        """
        size = (images.shape[2], images.shape[3])
        choice, value, a, b = real(u).view(len(u), self.depth, 4).unbind(2)
        row = whole(choice, len(NAMES))
        box = torch.zeros((len(u), 4), dtype=torch.int64, device=u.device)
        draw = self._drawn(row, value, a, a, b, size, box)
        for slot in range(self.depth):
            images = apply_op(images, Change(*(part[:, slot] for part in draw[:4])), path)
        # Google's code finds a value's bin with a factor of .999, which keeps a value of 1 in the last one.
        hit = row * MOST + (value * self.learned.counts[row] * 0.999).long()
        hit_filter = FILTER * MOST + (a * COUNTS[FILTER] * 0.999).long()
        record = [torch.where(self.learned.counts[row] > 0, hit, -1), torch.where(row == RESCALE, hit_filter, -1)]
        return images, torch.stack(record, 2)

    @torch.no_grad()
    def update(self, record: Tensor, proximity: Tensor) -> None:
        """Learn from probes: the rate of each bin of the record (B, depth, 2) moves towards proximity (B,).

        One hit: rate <- decay rate + (1 - decay) proximity. The n hits of a step on one bin come at the same time and
        have no order, so they move it by n such steps towards their mean: decay^n rate + (1 - decay^n) mean proximity.
        """
        places = torch.arange(self.learned.rates.numel(), device=record.device)
        hit = record.flatten(1)[:, :, None] == places  # (B, 2 depth, places)
        count = real(hit.sum((0, 1)))
        total = torch.where(hit, real(proximity)[:, None, None], 0.0).sum((0, 1))
        kept = self.decay**count
        moved = kept * real(self.learned.rates).flatten() + (1 - kept) * total / count.clamp(min=1)
        self.learned.rates.copy_(moved.view(self.learned.rates.shape))

    def describe(self, draw: Drawn) -> list[list[str]]:
        """Name what each image gets, such as ["rotate +21", "rescale 0.11 bicubic", "cutout 16x16"]."""
        views = []
        for codes, values, kinds, boxes, box in zip(*(part.tolist() for part in draw), strict=True):
            view = []
            for code, value, kind, square in zip(codes, values, kinds, boxes, strict=True):
                name = OPS[code]
                if name == "cutout":
                    view += _named(square)
                elif name != "identity":
                    number = f"{value + 0.0:+.3g}" if name in SIGNED else f"{value:.3g}"
                    view.append(f"{name} {number} {FILTERS[kind]}" if name == "rescale" else f"{name} {number}")
            views.append([*view, *_named(box)])
        return views

    def _drawn(
        self, row: Tensor, value: Tensor, kind_value: Tensor, a: Tensor, b: Tensor, size: tuple[int, int], box: Tensor
    ) -> Drawn:
        """Operations by row (B, N) with parameters value and kind_value (B, N) in [0, 1]; a, b place the cutout."""
        magnitude = value  # the share of the changed image in a blend; cutout has a box instead
        for names, amount in self._magnitudes(value, size).items():
            here = torch.stack([row == NAMES.index(name) for name in names]).any(0)
            magnitude = torch.where(here, amount, magnitude)
        kind = (kind_value * 5.99).long()
        boxes = _square(_side(value, size), a, b, size)
        return Drawn(self.learned.codes[row], magnitude.to(torch.float32), kind, boxes, box)

    def _magnitudes(self, value: Tensor, size: tuple[int, int]) -> dict[tuple[str, ...], Tensor]:
        """What a parameter in [0, 1] means for operations that do not blend."""
        signed = 2 * value - 1
        # Google's code means shares of the image and says pixels: less than half a pixel, which moves nothing.
        translation = 0.3 * size[1] if self.name == "cta-fixed" else 0.3
        return {
            ("brightness", "color", "contrast", "sharpness"): 0.1 + 1.9 * value,
            ("posterize",): 1 + (value * 7.999).floor(),  # bits
            ("rescale",): 0.25 * value,  # of the side, from each edge
            ("rotate",): (signed * 45).round(),  # degrees
            ("shear-x", "shear-y"): signed * 0.3,
            ("solarize",): (value * 255.999).floor(),
            ("translate-x", "translate-y"): signed * translation,
        }


def proximity(p: Tensor, label: Tensor) -> Tensor:
    """How close predictions p (B, C) come to the labels (B,): 1 - 1/2 |p - onehot|_1, from 0 to 1.

    >>> proximity(torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]]), torch.tensor([0, 2]))
    tensor([0.7000, 0.1000])
    """
    onehot = label[:, None] == torch.arange(p.shape[1], device=p.device)
    return 1 - 0.5 * (p - onehot.to(p.dtype)).abs().sum(1)


def _running_totals(weights: Tensor) -> Tensor:
    # One after the other, not by cumsum: the same bits on every device, and a bin of weight 0 adds nothing.
    totals = [weights[:, 0]]
    for column in weights.unbind(1)[1:]:
        totals.append(totals[-1] + column)
    return torch.stack(totals, 1)


def _pick(u: Tensor, totals: Tensor) -> Tensor:
    """The bin that uniform u (B, N) falls into, by inverse distribution: the first whose running total exceeds it.

    The identity, which has no bin, gets a number that nobody looks at.
    """
    return (real(u).unsqueeze(-1) * totals[..., -1:] >= totals).sum(-1)


def _side(level: Tensor, size: tuple[int, int]) -> Tensor:
    # Cutout reaches half of this number of pixels to either side of its centre.
    return (1 + (level * min(size) * 0.499).long()) // 2 * 2


def _square(side: Tensor, row: Tensor, column: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes (..., 4) of a side around a centre given by uniforms, clipped to an image of size (H, W)."""
    top, left = whole(row, size[0]) - side // 2, whole(column, size[1]) - side // 2
    low = [top.clamp(min=0), left.clamp(min=0)]
    return torch.stack([*low, (top + side).clamp(max=size[0]), (left + side).clamp(max=size[1])], -1)


def _named(box: list[int]) -> list[str]:
    height, width = box[2] - box[0], box[3] - box[1]
    return [f"cutout {height}x{width}"] if height > 0 and width > 0 else []

"""Which change an image gets: the weak flip-and-shift, and RandAugment with its cutout.

Sampling is a pure function of uniform numbers handed in, so any view can be drawn again: `sample` turns
uniforms into a `Placement` or a `Draw`, `apply` turns pixels into pixels. Named policies are in `presets`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from maxmatch.augment.kernels import colour, real, take
from maxmatch.augment.ops import CODE, OPS, RANDAUGMENT, Path
from maxmatch.augment.ops import apply as apply_op
from maxmatch.errors import UsageError, unknown

Fill = int | tuple[int, int, int]
PARAMETERLESS = frozenset({"identity", "autocontrast", "equalize", "invert"})


class Placement(NamedTuple):
    """Where the weak view lies: flip (B,) bool, and shift (B, 2) int64 of the window, rows then columns."""

    flip: Tensor
    shift: Tensor


class Draw(NamedTuple):
    """What RandAugment does: op (B, N) indexes `OPS`, magnitude (B, N), box (B, 4) top left bottom right.

    An operation that is not applied is 0, the identity; an empty box cuts nothing out.
    """

    op: Tensor
    magnitude: Tensor
    box: Tensor


@dataclass(frozen=True)
class Weak:
    """The weak augmentation: flip with probability 1/2, then reflect-pad by `shift` of the side and crop.

    The padding is `round(shift * side)` pixels: 4 at 32, 12 at 96. Uniforms: flip, rows, columns.

    >>> weak = Weak(flip=True, shift=0.125)
    >>> placement = weak.sample(torch.tensor([[0.2, 0.0, 0.99]]), (32, 32))
    >>> placement.flip.tolist(), placement.shift.tolist()
    ([True], [[-4, 4]])
    """

    flip: bool = True
    shift: float = 0.125
    uniforms: ClassVar[int] = 3

    def __post_init__(self) -> None:
        """Refuse a shift that reflection cannot fill."""
        if not 0 <= self.shift <= 0.5:
            raise UsageError(f"shift = {self.shift} is not a share of the side: type a number from 0 to 0.5")

    def sample(self, u: Tensor, size: tuple[int, int]) -> Placement:
        """Place the weak view of images of size (H, W) from uniforms u (B, 3)."""
        flip = (u[:, 0] < 0.5) & self.flip
        shift = [whole(u[:, 1 + i], 2 * round(self.shift * size[i]) + 1) for i in range(2)]
        return Placement(flip, torch.stack([shift[i] - round(self.shift * size[i]) for i in range(2)], 1))

    def apply(self, images: Tensor, placement: Placement) -> Tensor:
        """Flip and shift images (B, C, H, W), each by its own placement."""
        height, width = images.shape[2:]
        shift = placement.shift.to(torch.int32)
        row = _reflect(shift[:, :1] + torch.arange(height, dtype=torch.int32, device=shift.device), height)
        column = _reflect(shift[:, 1:] + torch.arange(width, dtype=torch.int32, device=shift.device), width)
        column = torch.where(placement.flip.unsqueeze(1), width - 1 - column, column)
        source = row.unsqueeze(2) * width + column.unsqueeze(1)
        return take(images.flatten(2), source.view(len(images), 1, -1)).view(images.shape)


@dataclass(frozen=True)
class Magnitude:
    """An operation's magnitude at l = level / 10: start + slope * l, with what `floor` and the rest change.

    `floor` drops the fraction of slope * l, towards zero. `of_width` measures the slope in image widths, for
    both axes. `signed` gives the whole a random sign.
    """

    start: float
    slope: float
    floor: bool = False
    signed: bool = False
    of_width: bool = False

    def value(self, level: Tensor, negative: Tensor, width: int) -> Tensor:
        """The magnitude at a level from 0 to 10, minus it where `negative`, on images `width` pixels wide."""
        slope = self.slope * width if self.of_width else self.slope
        part = slope * real(level) / 10
        if self.floor:
            # 0.3 * 10 is a hair off 3 in binary: without the margin a whole number could lose one.
            part = part.sign() * (part.abs() + 1e-9).floor()
        value = self.start + part
        return torch.where(negative, -value, value) if self.signed else value


@dataclass(frozen=True)
class Cutout:
    """A square of one colour, its centre uniform over the pixels, clipped at the border.

    The side is uniform between `low` and `high` image widths, rounded to the nearest pixel, or `pixels` if
    that is given. The centre is a pixel; rows from centre - side // 2 on, `side` of them, are covered.
    """

    low: float = 0.0
    high: float = 0.0
    fill: Fill = 127
    pixels: int | None = None
    uniforms: ClassVar[int] = 3

    def __post_init__(self) -> None:
        """Refuse sides that are no shares of the width or no number of pixels."""
        if not 0 <= self.low <= self.high <= 1:
            rule = "type 0 <= low <= high <= 1, shares of the width"
            raise UsageError(f"cutout from {self.low} to {self.high} is no range: {rule}")
        if self.pixels is not None and self.pixels < 1:
            raise UsageError(f"cutout pixels = {self.pixels} is too small: type 1 or more")

    def sample(self, u: Tensor, size: tuple[int, int]) -> Tensor:
        """Boxes (B, 4) top, left, bottom, right from uniforms u (B, 3): side, centre row, centre column."""
        if self.pixels is None:
            share = self.low + (self.high - self.low) * real(u[:, 0])
            side = (share * size[1] + 0.5).long()
        else:
            side = torch.full_like(u[:, 0], self.pixels, dtype=torch.int64)
        start = [whole(u[:, 1 + i], size[i]) - side // 2 for i in range(2)]
        edges = [start[i].clamp(min=0) for i in range(2)]
        edges += [(start[i] + side).clamp(max=size[i]) for i in range(2)]
        return torch.stack(edges, 1)

    def apply(self, images: Tensor, box: Tensor) -> Tensor:
        """Cover box (B, 4) of each of images (B, C, H, W)."""
        height, width = images.shape[2:]
        top, left, bottom, right = (edge.view(-1, 1, 1, 1) for edge in box.unbind(1))
        row = torch.arange(height, device=images.device).view(1, 1, -1, 1)
        column = torch.arange(width, device=images.device).view(1, 1, 1, -1)
        covered = ((row >= top) & (row < bottom)) & ((column >= left) & (column < right))
        return torch.where(covered, colour(images, fill_for(self.fill, images.shape[1])), images)


@dataclass(frozen=True)
class RandAugment:
    """RandAugment: `n` operations drawn uniformly with replacement, each applied with probability `p`.

    `levels` are the integers drawn from, both ends included, or None for l uniform in [0, 1). `magnitudes`
    pairs each operation that has one with its `Magnitude`. n = 0 leaves the cutout alone.
    """

    name: str
    ops: tuple[str, ...]
    n: int
    p: float
    levels: tuple[int, int] | None
    magnitudes: tuple[tuple[str, Magnitude], ...]
    fill: Fill = 0
    cutout: Cutout | None = None

    def __post_init__(self) -> None:
        """Refuse names that are unknown and numbers out of range."""
        for op in (*self.ops, *dict(self.magnitudes)):
            if op not in RANDAUGMENT:
                raise UsageError(unknown("operation", op, RANDAUGMENT))
        for op in self.ops:
            if op not in PARAMETERLESS and op not in dict(self.magnitudes):
                raise UsageError(f"policy {self.name} has no magnitude for '{op}': add one or drop '{op}'")
        if self.n < 0 or (self.n > 0 and not self.ops):
            rule = "type n = 1 or more, or 0 for cutout alone"
            raise UsageError(f"n = {self.n} of {len(self.ops)} operations cannot be drawn: {rule}")
        if not 0 <= self.p <= 1:
            raise UsageError(f"p = {self.p} is not a probability: type a number from 0 to 1")
        if self.levels is not None and not 0 <= self.levels[0] <= self.levels[1] <= 10:
            raise UsageError(f"levels = {self.levels} is no range: type low, high with 0 <= low <= high <= 10")

    @property
    def uniforms(self) -> int:
        """How many uniform numbers one image needs: 4 a slot (op, apply, level, sign) and 3 for cutout."""
        return 4 * self.n + (self.cutout.uniforms if self.cutout else 0)

    def sample(self, u: Tensor, size: tuple[int, int]) -> Draw:
        """Draw for images of size (H, W) from uniforms u (B, R) with R = `uniforms`."""
        choice, coin, height, sign = u[:, : 4 * self.n].reshape(len(u), self.n, 4).unbind(2)
        chosen = torch.where(coin < self.p, whole(choice, max(1, len(self.ops))), -1)
        if self.levels is None:
            level = 10 * real(height)
        else:
            level = self.levels[0] + whole(height, self.levels[1] - self.levels[0] + 1)
        op, magnitude = torch.zeros_like(chosen), torch.zeros_like(choice, dtype=torch.float32)
        magnitudes, negative = dict(self.magnitudes), sign < 0.5
        values = {m: m.value(level, negative, size[1]).to(torch.float32) for m in set(magnitudes.values())}
        for index, name in enumerate(self.ops):
            here = chosen == index
            op = torch.where(here, CODE[name], op)
            if name in magnitudes:
                magnitude = torch.where(here, values[magnitudes[name]], magnitude)
        if self.cutout is None:
            box = torch.zeros((len(u), 4), dtype=torch.int64, device=u.device)
        else:
            box = self.cutout.sample(u[:, 4 * self.n :], size)
        return Draw(op, magnitude, box)

    def apply(self, images: Tensor, draw: Draw, path: Path = "auto") -> Tensor:
        """Change images (B, C, H, W) as drawn: the operations in their order, then the cutout."""
        fill = fill_for(self.fill, images.shape[1])
        for slot in range(self.n):
            images = apply_op(images, draw.op[:, slot], draw.magnitude[:, slot], fill, path)
        return images if self.cutout is None else self.cutout.apply(images, draw.box)

    def describe(self, draw: Draw) -> list[list[str]]:
        """Name what each image gets, such as ["rotate +21", "posterize 4", "cutout 16x16"]."""
        signed = {name for name, magnitude in self.magnitudes if magnitude.signed}
        views = []
        for codes, values, box in zip(*(part.tolist() for part in draw), strict=True):
            view = []
            for code, magnitude in zip(codes, values, strict=True):
                name, value = OPS[code], magnitude + 0.0  # no "-0"
                if name in PARAMETERLESS:
                    view += [] if name == "identity" else [name]
                else:
                    view.append(f"{name} {value:+.4g}" if name in signed else f"{name} {value:.4g}")
            height, width = box[2] - box[0], box[3] - box[1]
            views.append([*view, f"cutout {height}x{width}"] if height > 0 and width > 0 else view)
        return views


def fill_for(fill: Fill, channels: int) -> tuple[int, ...]:
    """The fill colour for images of 1 or 3 channels; one channel gets the mean of three, rounded."""
    if isinstance(fill, int):
        return (fill,)
    return fill if channels == 3 else (round(sum(fill) / 3),)


def whole(u: Tensor, count: int) -> Tensor:
    """A whole number below `count`, each as likely, from uniforms u in [0, 1)."""
    # The largest float32 below 1 times any count rounds to less than that count.
    return (u * count).long()


def _reflect(index: Tensor, side: int) -> Tensor:
    return (side - 1) - ((side - 1) - index.abs()).abs()

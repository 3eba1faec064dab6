"""RandAugment and its cutout on a GPU in one CUDA kernel, randaugment.cu: each image is read once, and little compiled.

The source compiles in a fraction of a second; as tensors the same operations are most of a graph that takes half a
minute. `policy.RandAugment` is the truth: tests/augment and tests/gpu hold this file to it, pixel for pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path as File
from typing import Any, TypeGuard

import torch
from torch import Tensor

from maxmatch.augment.ops import CODE, RANDAUGMENT, Path, matrices
from maxmatch.augment.policy import Draw, RandAugment, fill_for
from maxmatch.nvrtc import can_compile, compile_kernel

THREADS = 256
SHARED_MEMORY = 48 << 10  # bytes that any GPU gives a block without being asked
OPTIONS = ("--fmad=false",)  # a product and a sum are rounded one after the other
SOURCE = File(__file__).with_name("randaugment.cu")


class FusedRandAugment(RandAugment):
    """A RandAugment whose operations and cutout are one kernel."""

    def apply(self, images: Tensor, draw: Draw, path: Path = "auto") -> Tensor:
        channels = images.shape[1]
        fill = fill_for(self.fill, channels)
        cover = fill if self.cutout is None else fill_for(self.cutout.fill, channels)
        matrix = matrices(draw.op.flatten(), draw.magnitude.flatten(), images).view(*draw.op.shape, 6)
        colours = [[*colour] * (channels // len(colour)) for colour in (fill, cover)]
        found: Tensor = torch.ops.maxmatch.randaugment(images, draw.op, draw.magnitude, matrix, draw.box, *colours)
        return found


def fuse(policy: RandAugment) -> FusedRandAugment:
    """The same policy by one kernel."""
    return FusedRandAugment(**{field.name: getattr(policy, field.name) for field in fields(policy)})


def can_fuse(policy: object, shape: tuple[int, int, int], device: torch.device) -> TypeGuard[RandAugment]:
    """Whether the kernel makes a policy's views of this shape on this device."""
    channels, height, width = shape
    room = channels * (height * width + 5 * 256) + 16 <= SHARED_MEMORY
    known = type(policy) is RandAugment and channels in (1, 3) and room
    return known and device.type == "cuda" and can_compile()


@torch.library.custom_op("maxmatch::randaugment", mutates_args=(), device_types="cuda")
def _randaugment(
    images: Tensor,
    op: Tensor,
    magnitude: Tensor,
    matrix: Tensor,
    box: Tensor,
    fill: Sequence[int],
    cover: Sequence[int],
) -> Tensor:
    """Images (B, C, H, W) changed by op (B, N) at magnitude (B, N), warps by matrix (B, N, 6), then box (B, 4)."""
    given = [part.contiguous() for part in (images, op, magnitude, matrix, box)]
    assert [part.dtype for part in given] == [torch.uint8, torch.int64, torch.float32, torch.float64, torch.int64]
    results = torch.empty_like(given[0])
    if len(images):
        kernel = _kernel(images.device, tuple(images.shape[1:]), op.shape[1], tuple(fill), tuple(cover))
        kernel(grid=(len(images), 1, 1), block=(THREADS, 1, 1), args=[*given, results])
    return results


@_randaugment.register_fake
def _randaugment_like(images: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(images, memory_format=torch.contiguous_format)


@cache
def _kernel(
    device: torch.device, shape: tuple[int, ...], slots: int, fill: tuple[int, ...], cover: tuple[int, ...]
) -> Any:
    """Loaded on the current device, which is that of the images."""
    return compile_kernel(source(shape, slots, fill, cover), "randaugment", options=OPTIONS)


def source(shape: tuple[int, ...], slots: int, fill: Sequence[int], cover: Sequence[int]) -> str:
    """The kernel's source for images of a shape (C, H, W), so many operations each, and two colours."""
    values: dict[str, object] = dict(zip(("CHANNELS", "HEIGHT", "WIDTH"), shape, strict=True))
    values |= {"SLOTS": slots, "FILL": ", ".join(map(str, fill)), "COVER": ", ".join(map(str, cover))}
    values |= {name.replace("-", "_").upper(): CODE[name] for name in RANDAUGMENT}
    return "".join(f"#define {name} {value}\n" for name, value in values.items()) + SOURCE.read_text()

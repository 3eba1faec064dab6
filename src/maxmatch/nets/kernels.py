"""The CUDA kernels of the fused pass as torch operators: compiled when first used, for the shapes they meet.

`convolve`, `convolve_back` and `weight_gradient` are what tile.cuh, convolution.cu and gradient.cu do; their formulas
stand there. torch compiles the sources itself (NVRTC): no compiler need be installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from maxmatch.nets.wide_resnet import SLOPE
from maxmatch.nvrtc import compile_kernel

CHANNELS = (16, 32, 64)
SHARED_MEMORY = (
    228 << 10
)  # bytes that the blocks of a multiprocessor share on a Hopper GPU; each takes 1 KiB for itself
UINT4 = 16  # bytes
HOPPER = "90a"

Values = tuple[tuple[str, str | int], ...]
_wanted: set[tuple[str, Values, int]] | None = None  # while `compile_for` looks: the kernels that would start


class Launch(NamedTuple):
    """The values that a kernel is compiled with, its blocks, and the bytes of shared memory of each."""

    values: Values
    blocks: int
    shared: int

    @property
    def threads(self) -> int:
        return int(dict(self.values)["THREADS"])


def convolve(
    x: Tensor, packed: Tensor, before: Tensor | None, gamma: Tensor, beta: Tensor, other: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """conv(leaky(BatchNorm(x))) + other, its sums, and the moments of x; of uint8 images conv(gamma x + beta)."""
    out, sums, moments = torch.ops.maxmatch.convolve(x, packed, before, gamma, beta, other, eps)
    return out, sums, moments


def convolve_back(
    delta: Tensor, packed: Tensor, moments: Tensor, gamma: Tensor, beta: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    """conv(delta) leaky'(BatchNorm(x)), and the sums of that and of that times (x - mean)."""
    out, sums = torch.ops.maxmatch.convolve_back(delta, packed, moments, gamma, beta, x)
    return out, sums


def weight_gradient(x: Tensor, moments: Tensor | None, gamma: Tensor, beta: Tensor, delta: Tensor, taps: int) -> Tensor:
    """(blocks, O, taps, I): each block's share of the gradient of the weights."""
    found: Tensor = torch.ops.maxmatch.weight_gradient(x, moments, gamma, beta, delta, taps)
    return found


@torch.library.custom_op("maxmatch::convolve", mutates_args=(), device_types="cuda")
def _convolve(
    x: Tensor, packed: Tensor, before: Tensor | None, gamma: Tensor, beta: Tensor, other: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    launch = _launch_convolution(x, packed, ADD=int(other is not None), EPSILON=f"{eps!r}f")
    out, sums, moments = _convolve_like(x, packed, before, gamma, beta, other, eps)
    before = sums if before is None else before
    arguments = [x, packed, before, gamma, beta, out if other is None else other, moments, out, sums]
    _start("convolution", launch, [*arguments, len(x), len(before)])
    return out, sums, moments


@_convolve.register_fake
def _convolve_like(
    x: Tensor, packed: Tensor, before: Tensor | None, gamma: Tensor, beta: Tensor, other: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return (*_empty_result(x, packed), x.new_empty(2, 8 * packed.shape[1], dtype=torch.float32))


@torch.library.custom_op("maxmatch::convolve_back", mutates_args=(), device_types="cuda")
def _convolve_back(
    delta: Tensor, packed: Tensor, moments: Tensor, gamma: Tensor, beta: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    launch = _launch_convolution(delta, packed, BACK=1)
    out, sums = _empty_result(delta, packed)
    _start("convolution", launch, [delta, packed, sums, gamma, beta, x, moments, out, sums, len(x), 0])
    return out, sums


@_convolve_back.register_fake
def _convolve_back_like(
    delta: Tensor, packed: Tensor, moments: Tensor, gamma: Tensor, beta: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    return _empty_result(delta, packed)


@torch.library.custom_op("maxmatch::weight_gradient", mutates_args=(), device_types="cuda")
def _weight_gradient(
    x: Tensor, moments: Tensor | None, gamma: Tensor, beta: Tensor, delta: Tensor, taps: int
) -> Tensor:
    launch = _launch_gradient(x, delta, taps)
    out: Tensor = _weight_gradient_like(x, moments, gamma, beta, delta, taps)
    _start("gradient", launch, [x, gamma if moments is None else moments, gamma, beta, delta, out, len(x)])
    return out


@_weight_gradient.register_fake
def _weight_gradient_like(
    x: Tensor, moments: Tensor | None, gamma: Tensor, beta: Tensor, delta: Tensor, taps: int
) -> Tensor:
    blocks = _launch_gradient(x, delta, taps).blocks
    return x.new_empty(blocks, delta.shape[2], taps, _inputs(x), dtype=torch.float32)


def _empty_result(x: Tensor, packed: Tensor) -> tuple[Tensor, Tensor]:
    outputs = packed.shape[2]
    out = x.new_empty(len(x), side_of(x) ** 2, outputs, dtype=torch.bfloat16)
    return out, x.new_empty(_launch_convolution(x, packed).blocks, 2, outputs, dtype=torch.float32)


def _launch_convolution(x: Tensor, packed: Tensor, **values: str | int) -> Launch:
    taps, chunks, outputs, _ = packed.shape
    side = side_of(x)

    def shared(rows: int) -> int:
        factors = 4 * max(5 * 8 * chunks, 3 * outputs)
        return UINT4 * (chunks * _plane(rows, side, taps) + taps * chunks * outputs) + factors

    tile = _tile(x, 8 * chunks, outputs, taps, shared, resident=2)
    tile |= {"THREADS": 256, "FILLERS": 256, "ADD": 0, "BACK": 0, "EPSILON": "0.f"} | values
    tile["NORM"] = int(not tile["BACK"] and not tile["IMAGES"])
    return _launch(x, tile, shared)


def _launch_gradient(x: Tensor, delta: Tensor, taps: int) -> Launch:
    inputs, outputs, side = _inputs(x), delta.shape[2], side_of(x)
    # A warp has `near` taps, 16 `deep` input and 8 `wide` output channels; spare warps split the pixels.
    near, deep, wide = min(taps, 3), max(1, inputs // 32), min(outputs // 8, 4)
    warps = taps // near * (inputs // 16 // deep) * (outputs // 8 // wide)
    splits, fillers = max(1, 12 // warps), 256 if deep == 1 else 128

    def shared(rows: int) -> int:
        positions = -(-(rows * (side + 1) - 1) // 16) * 16
        band = inputs // 8 * _plane(rows, side, taps) + outputs // 8 * _padded(positions)
        return max(2 * UINT4 * band + 4 * 3 * inputs, 4 * taps * inputs * outputs * (splits > 1))

    tile = _tile(x, inputs, outputs, taps, shared, resident=1, rows=8)
    tile |= {"THREADS": 32 * warps * splits + fillers, "FILLERS": fillers, "NORM": int(not tile["IMAGES"])}
    tile |= {"NEAR": near, "IN": deep, "OUT": wide, "SPLITS": splits}
    return _launch(x, tile, shared)


def _launch(x: Tensor, tile: dict[str, Any], shared: Callable[[int], int]) -> Launch:
    bands, places = len(x) * (tile["SIDE"] // tile["ROWS"]), _multiprocessors(x.device) * tile["RESIDENT"]
    return Launch(tuple(tile.items()), min(bands, places), shared(tile["ROWS"]))


def _tile(
    x: Tensor, inputs: int, outputs: int, taps: int, shared: Callable[[int], int], resident: int, rows: int = 64
) -> dict[str, Any]:
    """The sizes that a kernel is compiled for, with as many rows in a band as shared memory holds, up to `rows`."""
    side, limit = side_of(x), SHARED_MEMORY // resident - 1024
    rows = next(r for r in range(min(rows, side), 0, -1) if side % r == 0 and shared(r) <= limit)
    images = x.shape[1] if x.dtype == torch.uint8 else 0
    sizes = {"SIDE": side, "CIN": inputs, "COUT": outputs, "TAPS": taps, "ROWS": rows, "IMAGES": images}
    return {**sizes, "SLOPE": f"{SLOPE}f", "RESIDENT": resident}


def side_of(x: Tensor) -> int:
    """Pixels of a side, of uint8 images (B, C, H, W) or of what the kernels hold, (B, H W, C)."""
    return x.shape[2] if x.dtype == torch.uint8 else math.isqrt(x.shape[1])


def _inputs(x: Tensor) -> int:
    return 16 if x.dtype == torch.uint8 else x.shape[2]


def _plane(rows: int, side: int, taps: int) -> int:
    halo = taps == 9
    return _padded((rows + 2 * halo) * (side + 1) + 1)


def _padded(pixels: int) -> int:
    return (pixels + 5) // 8 * 8 + 2


@cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


@cache
def _kernel(name: str, compiled_with: Values, shared: int) -> Any:
    kernel = compile_kernel(_source(name, compiled_with), name, HOPPER)
    kernel.set_shared_memory_config(shared)
    return kernel


def _source(name: str, compiled_with: Values) -> str:
    values = dict(compiled_with)
    folder = Path(__file__).parent
    source = "".join(f"#define {key} {value}\n" for key, value in values.items()) + (folder / "tile.cuh").read_text()
    source += _instruction(int(values["COUT"])) if name == "convolution" else ""
    return source + (folder / f"{name}.cu").read_text()


def _instruction(columns: int) -> str:
    """wgmma(d, a, b, more): d = a b, plus d where `more`, of 64 rows and 16 summands; d has columns / 2 registers."""
    count = columns // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    held = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return f"""
__device__ __forceinline__ void wgmma(float (&d)[{count}], u64 a, u64 b, int more) {{
    asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + 2}, 0; "
                 "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{registers}}}, "
                 "%{count}, %{count + 1}, p, 1, 1, 0, 0; }}" : {held} : "l"(a), "l"(b), "r"(more));
}}
"""


def _start(name: str, launch: Launch, arguments: list[Any]) -> None:
    if _wanted is not None:
        _wanted.add((name, launch.values, launch.shared))
        return
    assert all(t.is_contiguous() for t in arguments if isinstance(t, Tensor))
    kernel = _kernel(name, launch.values, launch.shared)
    kernel(grid=(launch.blocks, 1, 1), block=(launch.threads, 1, 1), args=arguments, shared_mem=launch.shared)


def compile_for(call: Callable[[], object]) -> None:
    """Compile the kernels of a call side by side. To see which they are it is made once, without starting them."""
    global _wanted
    _wanted = set()
    try:
        call()
        found = sorted(_wanted, key=str)
    finally:
        _wanted = None
    device = torch.cuda.current_device()
    # What fails here fails again, and is told, when it is used.
    with suppress(Exception), ThreadPoolExecutor(8, initializer=_work_for, initargs=(device,)) as pool:
        list(pool.map(lambda kernel: _kernel(*kernel), found))


def _work_for(device: int) -> None:
    """Give a thread the context of a device: that is where its kernels are loaded."""
    torch.cuda.set_device(device)
    torch.cuda.synchronize()

"""What can be said of the CUDA kernels without a GPU: they compile, and side by side. What they compute: tests/gpu."""

from __future__ import annotations

import threading

import pytest
import torch

from maxmatch.nets import kernels
from maxmatch.nets.kernels import HOPPER, Launch, compile_for

try:
    from torch.cuda._utils import _nvrtc_compile
except ImportError:
    pytest.skip("this torch compiles no CUDA kernels", allow_module_level=True)


def pixels(side: int, channels: int) -> torch.Tensor:
    return torch.empty(4, side * side, channels, dtype=torch.bfloat16, device="meta")


def packed(taps: int, inputs: int, outputs: int) -> torch.Tensor:
    return torch.empty(taps, inputs // 8, outputs, 8, dtype=torch.bfloat16, device="meta")


PICTURES = torch.empty(4, 3, 32, 32, dtype=torch.uint8, device="meta")
NORM = {"EPSILON": "0.001f"}
KERNELS = {  # all kinds that a WRN-28-2 on 32 px starts
    "stem": ("convolution", lambda: kernels._launch_convolution(PICTURES, packed(9, 16, 16), **NORM)),
    "wider": ("convolution", lambda: kernels._launch_convolution(pixels(32, 16), packed(9, 16, 32), **NORM)),
    "shortcut": ("convolution", lambda: kernels._launch_convolution(pixels(32, 16), packed(1, 16, 32), **NORM)),
    "residual": ("convolution", lambda: kernels._launch_convolution(pixels(16, 64), packed(9, 64, 64), ADD=1, **NORM)),
    "back": ("convolution", lambda: kernels._launch_convolution(pixels(32, 32), packed(9, 32, 32), BACK=1)),
    "gradient of the stem": ("gradient", lambda: kernels._launch_gradient(PICTURES, pixels(32, 16), 9)),
    "gradient": ("gradient", lambda: kernels._launch_gradient(pixels(16, 64), pixels(16, 64), 9)),
    "gradient of a shortcut": ("gradient", lambda: kernels._launch_gradient(pixels(32, 16), pixels(32, 32), 1)),
}


@pytest.mark.skipif(not torch.version.cuda, reason="a torch without CUDA has no NVRTC")
@pytest.mark.parametrize("kind", KERNELS)
def test_a_kernel_compiles_for_a_hopper_gpu(kind):
    name, launch = KERNELS[kind]
    binary, mangled = _nvrtc_compile(kernels._source(name, launch().values), name, HOPPER)
    assert binary.startswith(b"\x7fELF")
    assert mangled == name


@pytest.fixture
def second_gpu(monkeypatch) -> list[int]:
    """A GPU in words; the list says which one each thread works for."""
    told: list[int] = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", told.append)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return told


def test_kernels_are_compiled_side_by_side_before_any_of_them_starts(monkeypatch, second_gpu):
    both, compiled, started = threading.Barrier(2, timeout=20), [], []

    def compile_one(name, values, shared):
        both.wait()  # passes only if two are being compiled at the same time
        compiled.append((name, values, shared))
        return lambda **given: started.append((name, given["grid"]))

    monkeypatch.setattr(kernels, "_kernel", compile_one)
    small, large = Launch((("THREADS", 32),), 3, 64), Launch((("THREADS", 64),), 5, 64)

    def call():
        for launch in (small, large, small):
            kernels._start("convolution", launch, [])

    compile_for(call)
    assert sorted(compiled) == [("convolution", launch.values, 64) for launch in (small, large)]
    assert not started
    assert set(second_gpu) == {1}
    monkeypatch.setattr(kernels, "_kernel", lambda name, *rest: lambda **given: started.append((name, given["grid"])))
    call()
    assert started == [("convolution", (launch.blocks, 1, 1)) for launch in (small, large, small)]


def test_a_kernel_that_does_not_compile_says_so_where_it_is_used(monkeypatch, second_gpu):
    def broken(*wanted):
        raise RuntimeError("Kernel compilation failed")

    monkeypatch.setattr(kernels, "_kernel", broken)

    def call():
        kernels._start("gradient", Launch((("THREADS", 32),), 1, 64), [])

    compile_for(call)
    with pytest.raises(RuntimeError, match="Kernel compilation failed"):
        call()


def test_a_call_that_fails_leaves_kernels_as_they_were(monkeypatch):
    started = []
    monkeypatch.setattr(kernels, "_kernel", lambda *wanted: lambda **given: started.append(given["grid"]))
    with pytest.raises(ZeroDivisionError):
        compile_for(lambda: 1 / 0)
    kernels._start("gradient", Launch((("THREADS", 32),), 1, 64), [])
    assert started == [(1, 1, 1)]

"""What can be said of the CUDA kernels without a GPU: they compile, and side by side. What they compute: tests/gpu."""

from __future__ import annotations

import threading

import pytest
import torch

from maxmatch.nets import kernels, make_net
from maxmatch.nets.batchnorm import still
from maxmatch.nets.fused import Fused
from maxmatch.nets.kernels import HOPPER, Launch, compile_for
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.nvrtc import without_toolkit

try:
    from torch.cuda._utils import _nvrtc_compile
except ImportError:
    pytest.skip("this torch compiles no CUDA kernels", allow_module_level=True)


@pytest.fixture
def second_gpu(monkeypatch) -> list[int]:
    """A GPU in words; the list says which one each thread works for."""
    told: list[int] = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", told.append)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return told


@pytest.mark.skipif(not torch.version.cuda, reason="a torch without CUDA has no NVRTC")
def test_every_kernel_that_a_step_of_a_wide_resnet_starts_compiles_for_a_hopper_gpu(monkeypatch, second_gpu):
    """The pass runs on the CPU, where it starts nothing: what it asks for is compiled by NVRTC, which needs no GPU."""
    for operator in (kernels._convolve, kernels._convolve_back, kernels._weight_gradient):
        operator.register_kernel("cpu")(operator._init_fn)
    net = make_net("wrn-28-2", 10, 3).to(memory_format=torch.channels_last)
    fused, images = Fused(net, Preprocessing(3, 32, 32)), torch.zeros(2, 3, 32, 32, dtype=torch.uint8)

    def once():
        with still(net), torch.autocast("cpu", torch.bfloat16):
            torch.autograd.grad(fused(images).float().sum(), net.stem.weight)

    compiled = {}

    def compile_one(name, values, shared):
        with without_toolkit():
            compiled[name, values] = _nvrtc_compile(kernels._source(name, values), name, HOPPER)

    monkeypatch.setattr(kernels, "_kernel", compile_one)
    compile_for(once)
    kinds = [(name, dict(values)["CIN"], dict(values)["COUT"]) for name, values in compiled]
    # The stem, then 16 to 32 channels by 3x3 and 1x1, then 32 and 64, alone and with a residual, forth and back.
    assert {kind: kinds.count(kind) for kind in kinds} == {
        ("convolution", 16, 16): 1, ("convolution", 16, 32): 2, ("convolution", 32, 16): 2,
        ("convolution", 32, 32): 3, ("convolution", 64, 64): 3,
        ("gradient", 16, 16): 1, ("gradient", 16, 32): 2, ("gradient", 32, 32): 1, ("gradient", 64, 64): 1,
    }  # fmt: skip
    for (name, _), (binary, mangled) in compiled.items():
        assert binary.startswith(b"\x7fELF")
        assert mangled == name


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

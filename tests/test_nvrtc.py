"""Kernels are compiled without a CUDA toolkit, which pip does not install."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.utils import cpp_extension

from maxmatch import nvrtc


@pytest.mark.parametrize("home", [None, "/opt/cuda"])
def test_torch_is_not_asked_for_a_toolkit_that_is_not_there(monkeypatch, home):
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", home)
    both, seen = threading.Barrier(2, timeout=20), []

    def compile_one(source, name, compute_capability, nvcc_options):
        both.wait()  # while one is compiled another begins,
        seen.append((cpp_extension.include_paths("cuda"), nvcc_options))
        if name == "second":
            first.join()  # and goes on when the first is done
            seen.append((cpp_extension.include_paths("cuda"), nvcc_options))

    monkeypatch.setattr(torch.cuda, "_compile_kernel", compile_one, raising=False)
    first = threading.Thread(target=nvrtc.compile_kernel, args=("", "first"))
    first.start()
    nvrtc.compile_kernel("", "second", options=("--fmad=false",))
    assert len(seen) == 3
    assert all(("/opt/cuda/include" in paths) == (home is not None) for paths, _ in seen)
    assert seen[-1][1] == ["--fmad=false"]
    assert home == cpp_extension.CUDA_HOME


def test_a_compiler_that_fails_leaves_things_as_they_were(monkeypatch):
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)

    def broken(*given, **options):
        raise RuntimeError("no NVRTC")

    monkeypatch.setattr(torch.cuda, "_compile_kernel", broken, raising=False)
    with pytest.raises(RuntimeError, match="no NVRTC"):
        nvrtc.compile_kernel("", "some")
    assert cpp_extension.CUDA_HOME is None

"""A CUDA kernel as a C++ function: what randaugment.cu computes, without a GPU. Its threads are a CPU's."""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

AROUND = """
#include <barrier>
#include <cmath>
#include <thread>
#include <vector>
#define __global__
#define __device__ static
#define __shared__ static
#define __syncthreads() everyone->arrive_and_wait()
using std::floor, std::fmax, std::fmin;
struct Index { int x; };
static thread_local Index threadIdx;
static Index blockIdx, blockDim;
static std::barrier<>* everyone;
static int atomicAdd(int* to, int more) { return __atomic_fetch_add(to, more, __ATOMIC_RELAXED); }
%s
extern "C" void run(int blocks, int threads, const u8* a, const i64* b, const float* c, const double* d, const i64* e,
                    u8* f) {
    blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        std::barrier<> met(threads);
        everyone = &met;
        std::vector<std::thread> team;
        for (int i = 1; i < threads; i++)
            team.emplace_back([=] { threadIdx.x = i; randaugment(a, b, c, d, e, f); });
        threadIdx.x = 0;
        randaugment(a, b, c, d, e, f);
        for (auto& one : team) one.join();
    }
}
"""


class Emulated:
    """Called as torch calls a compiled kernel; with one thread a block unless told otherwise."""

    def __init__(self, source: str, threads: int = 1) -> None:
        self.run, self.threads = _library(source).run, threads

    def __call__(self, grid, block, args) -> None:
        assert block[0] <= 1024
        assert all(isinstance(part, torch.Tensor) and part.is_contiguous() for part in args)
        self.run(grid[0], self.threads, *(ctypes.c_void_p(part.data_ptr()) for part in args))


@cache
def _library(source: str) -> ctypes.CDLL:
    options = ["-std=c++20", "-O1", "-ffp-contract=off", "-Werror", "-shared", "-fPIC", "-pthread"]
    with TemporaryDirectory() as folder:  # what is loaded stays when its file is gone
        Path(folder, "kernel.cpp").write_text(AROUND % source)
        subprocess.run(["g++", *options, "kernel.cpp", "-o", "kernel.so"], cwd=folder, check=True)
        return ctypes.CDLL(f"{folder}/kernel.so")

"""Freed memory: kept while a run trains on the CPU, given back afterwards."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from maxmatch.train import memory
from maxmatch.train.memory import give_freed_memory_back, keep_freed_memory

# In a process of its own: one that has once run out of memory, as another test's does, has a second heap for good.
PROGRAM = """
import ctypes, json, resource
from maxmatch.train.memory import give_freed_memory_back, keep_freed_memory

C, BLOCK, PAGE = ctypes.CDLL(None), 2**26, resource.getpagesize()
C.malloc.restype, C.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
C.memset.argtypes, C.free.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], [ctypes.c_void_p]

def fill_and_free():
    block = C.malloc(BLOCK)
    C.memset(block, 1, BLOCK)
    C.free(block)

def share_cleared_anew():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        fill_and_free()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * PAGE / BLOCK / 5

def blocks_held():
    return int(open("/proc/self/statm").read().split()[1]) * PAGE / BLOCK

empty = blocks_held()
keep_freed_memory()
fill_and_free()
kept = share_cleared_anew(), blocks_held() - empty
give_freed_memory_back()
print(json.dumps([kept, (share_cleared_anew(), blocks_held() - empty)]))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc's malloc")
def test_a_freed_block_is_kept_and_used_again_until_it_is_given_back():
    environment = {**os.environ, "PYTHONPATH": str(Path(memory.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment)
    (cleared, held), (cleared_after, held_after) = json.loads(done.stdout)
    assert cleared < 0.1
    assert held > 0.9
    assert cleared_after > 0.9
    assert held_after < 0.1


def test_nothing_is_asked_of_another_malloc(monkeypatch):
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: object())
    keep_freed_memory()
    give_freed_memory_back()


@pytest.mark.parametrize("name", ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_a_malloc_that_the_user_has_set_up_is_left_alone(monkeypatch, name):
    monkeypatch.setenv(name, "1")
    monkeypatch.setattr(memory, "_glibc", lambda name: pytest.fail(f"{name} was called"))
    assert not keep_freed_memory()

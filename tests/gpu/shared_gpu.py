"""What torchrun starts in test_ranks_gpu.py: `maxmatch` in processes that share one GPU and speak by gloo.

NCCL, which a run takes, wants a GPU for each process, and so does `maxmatch`.
"""

from __future__ import annotations

import sys

from maxmatch.cli import leave, run
from maxmatch.train import distributed

if __name__ == "__main__":
    meet = distributed._meet
    distributed._own_gpu, distributed._meet = lambda place: 0, lambda backend: meet("cpu:gloo,cuda:gloo")
    leave(run(sys.argv[1:]))

"""On a GPU: two processes that share it end where one ends, and NCCL takes all that a run says. Run with -m gpu."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from maxmatch.train.distributed import Ranks, Whole, _meet, _Stacked

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")]

DEVICE, BACKENDS = "cuda", "cpu:gloo,cuda:nccl"
WORKER = Path(__file__).parent / "shared_gpu.py"
SETTINGS = {
    "train.precision": "float64", "train.batch": 4, "train.ratio": 3, "train.checkpoint_every": 20,
    "train.evaluate_every": 20, "method.threshold": 0.3, "net.name": "wrn-10-1",
}  # fmt: skip


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(WORKER)]


def trained(launch: list[str], out: Path, **settings: str) -> tuple[dict, dict]:
    """What a run leaves: its result and its averaged weights."""
    words = ["train", "digits@20", "--steps", "20", "--device", DEVICE, "--no-report", "--out", str(out)]
    words += [word for name, value in {**SETTINGS, **settings}.items() for word in ("--set", f"{name}={value}")]
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, *launch, *words], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((out / "result.json").read_text()), load_file(out / "model.safetensors")


def test_two_processes_on_the_gpu_end_where_one_ends(tmp_path):
    # Gathering on the GPU inside a compiled pass is NCCL's alone: with gloo torch 2.11 ends by a segmentation fault.
    shared = {"train.sync_batchnorm": "true"}
    two, theirs = trained(TORCHRUN, tmp_path / "two", **shared, **{"train.step": "eager"})
    one, ours = trained(["-m", "maxmatch"], tmp_path / "one", **shared)
    assert (two["ranks"], two["device"]) == (2, one["device"])
    assert (two["mode"], one["mode"]) == ("eager", "captured")
    apart = {name: (ours[name] - theirs[name]).abs().max().item() for name in ours}
    assert max(apart.values()) < 1e-9, apart
    assert two["mask_rate"] == pytest.approx(one["mask_rate"])
    assert 0 < two["mask_rate"] < 1


def test_two_processes_on_the_gpu_run_compiled_as_they_run_eagerly(tmp_path):
    compiled, ours = trained(TORCHRUN, tmp_path / "compiled")
    eager, theirs = trained(TORCHRUN, tmp_path / "eager", **{"train.step": "eager"})
    assert (compiled["mode"], eager["mode"]) == ("compiled", "eager")
    apart = {name: (ours[name] - theirs[name]).abs().max().item() for name in ours}
    assert max(apart.values()) < 1e-9, apart


def test_nccl_takes_what_ranks_say_to_each_other(monkeypatch):
    """With one GPU a rank can only speak to itself: that the calls and types are NCCL's is all this shows."""
    environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    torch.cuda.set_device(0)
    assert _meet(BACKENDS) == Ranks(0, 1)
    try:
        for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8):
            value = torch.arange(6, device=DEVICE).to(dtype).view(2, 3).mT
            assert torch.equal(_Stacked.apply(value, 0, 1)[0], value)
            dist.broadcast(value.contiguous(), 0)
        largest, said = torch.tensor(7), ["word", {"k": 3}]
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        dist.broadcast_object_list(said, 0)
        assert (int(largest), said) == (7, ["word", {"k": 3}])
        net = nn.Linear(3, 2).to(DEVICE)
        alone = torch.autograd.grad(net(torch.ones(4, 3, device=DEVICE)).square().sum(), net.weight)[0]
        whole = DistributedDataParallel(Whole(lambda batch: net(batch).square().sum(), net, None))
        whole(torch.ones(4, 3, device=DEVICE)).backward()
        assert net.weight.grad is not None
        torch.testing.assert_close(net.weight.grad, alone)
    finally:
        dist.destroy_process_group()

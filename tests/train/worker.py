"""What torchrun starts in test_distributed.py: every job of a list, one after the other, in one process group.

A job is a recipe's values, where the run goes and whether it goes on. Starting Python and torch takes longer than
training does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from maxmatch.nets import make_net
from maxmatch.nets.batchnorm import set_mode, synchronise
from maxmatch.train.distributed import Ranks, joined
from maxmatch.train.fit import fit
from maxmatch.train.recipe import Recipe


def normalise(ranks: Ranks, out: Path, net_name: str) -> None:
    """One pass with synchronised BatchNorm over this rank's part of a batch: logits, gradients, running statistics."""
    found = passed(net_name, ranks)
    torch.save(found, out / f"{net_name}-{ranks.rank}.pt")


def passed(net_name: str, ranks: Ranks) -> dict[str, torch.Tensor]:
    """The same net and images on every rank; the loss is the sum over all images, whoever has them."""
    torch.manual_seed(3)
    net = make_net(net_name, classes=4, channels=3, momentum=0.3).double()
    images, weight = torch.randn(12, 3, 16, 16).double() * 2 + 1, torch.randn(12, 4).double()
    if ranks.count > 1:
        synchronise(net, ranks.stacked)
    set_mode(net, "train")
    mine = ranks.share(images).clone().requires_grad_()
    logits = net(mine)
    (logits * ranks.share(weight)).square().sum().backward()
    found = {f"gradient.{n}": ranks.stacked(p.grad).sum(0) for n, p in net.named_parameters()}
    found |= {n: b.clone() for n, b in net.named_buffers()}
    return found | {"logits": ranks.gather(logits.detach()), "images": ranks.gather(mine.grad)}


def main(jobs: Path) -> None:
    with joined("cpu") as ranks:
        for job in json.loads(jobs.read_text()):
            out = Path(job["out"])
            if "net" in job:
                normalise(ranks, out, job["net"])
                continue
            result = fit(Recipe.from_dict(job["recipe"]), out, resume=job.get("resume", False), quiet=True)
            assert result["ranks"] == ranks.count
            (out / f"seen-{ranks.rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))

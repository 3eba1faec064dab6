"""What torchrun starts in the tests: every job of a list, one after the other, in one process group.

A job is a recipe's values or the words of a command, where the run goes, and what is to happen on the way. Starting
Python and torch takes longer than training does, so there is one start for all of them.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from torch import nn

from maxmatch.cli import leave, run
from maxmatch.data.datasets import Images, from_arrays
from maxmatch.errors import UserError
from maxmatch.nets import make_net
from maxmatch.nets.batchnorm import set_mode, synchronise
from maxmatch.train import pictures
from maxmatch.train.checkpoint import digest
from maxmatch.train.distributed import Ranks, joined
from maxmatch.train.fit import fit
from maxmatch.train.loop import Training
from maxmatch.train.recipe import Recipe
from maxmatch.train.step import Step


class Broken(BaseException):
    """A power cut, as far as a run can tell."""


def few_images() -> Images:
    """Five noisy images of each of ten patterns: a batch of 12 goes round so soon that some hold an image twice."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(50) % 10
    patterns = torch.randint(0, 256, (10, 8, 8), generator=generator)[y]
    noise = torch.randint(-90, 91, (50, 8, 8), generator=generator)
    return from_arrays((patterns + noise).clamp(0, 255).to(torch.uint8), y, name="few")


def train(job: dict, out: Path) -> dict:
    """Run a job; all that a rank holds after its last step is told by `held`."""

    def steps(self: Training, *rest: object) -> None:
        whole_steps(self, *rest)
        tensors = {name: t.contiguous() for name, t in self._tensors().items()}
        (out / f"held-{self.ranks.rank}").write_text(digest(tensors, {}))

    def step(self: Step, t: int) -> None:
        if t == job.get("stop"):
            raise Broken
        if (t, self.ranks.rank) == (2, job.get("bad_on")):
            self.method = replace(self.method, threshold=0.0, weight=1e308)  # a loss that is not finite
        one_step(self, t)

    whole_steps, one_step = Training._steps, Step.__call__
    with (
        mock.patch.object(Training, "_steps", steps), mock.patch.object(Step, "__call__", step),
        mock.patch.object(torch, "compile", partial(compiled_by, torch.compile, job.get("backend"))),
        mock.patch.object(pictures, "_room", partial(room_of, pictures._room, job.get("room"))),
    ):  # fmt: skip
        try:
            return trained(job, out)
        except Broken:
            return {}
        except UserError as error:
            return {"said": str(error)}


def trained(job: dict, out: Path) -> dict:
    """What a run leaves, by the command line or by `fit`."""
    if "words" in job:
        assert run([*job["words"], "--out", str(out)]) == 0
        return json.loads((out / "result.json").read_text())
    images = few_images()
    if job.get("fewer_on") == int(os.environ.get("RANK", "0")):
        images = replace(images, x=images.x[:-5], y=images.y[:-5])
    recipe, resume = Recipe.from_dict(job["recipe"]), job.get("resume", False)
    return fit(recipe, out, images, resume=resume, quiet=True, warn=lambda _: None)


def compiled_by(compile, backend, function, **options):
    """torch.compile, by another backend if one is given: making machine code takes a minute and knows no ranks."""
    return compile(function, **options) if backend is None else compile(function, dynamic=False, backend=backend)


def room_of(room, each, *rest):
    """How much memory is free: as much as a job says of each rank."""
    return room(*rest) if each is None else each[int(os.environ.get("RANK", "0"))]


def passed(net_name: str, ranks: Ranks) -> dict[str, torch.Tensor]:
    """One pass of images, of which each rank has its part: logits, gradients, running statistics.

    Net and images are the same on every rank; the loss is the sum over all images, whoever has them.
    """
    torch.manual_seed(3)
    net = elsewhere() if net_name == "elsewhere" else make_net(net_name, classes=4, channels=3, momentum=0.3)
    net.double()
    images, weight = torch.randn(12, 3, 16, 16).double() * 2 + 1, torch.randn(12, 4).double()
    if ranks.count > 1:
        synchronise(net, ranks.stacked)
    set_mode(net, "train")
    mine = ranks.share(images).clone().requires_grad_()
    logits = net(mine)
    (logits * ranks.share(weight)).square().sum().backward()
    found = {f"gradient.{name}": ranks.stacked(p.grad).sum(0) for name, p in net.named_parameters()}
    found |= {name: buffer.clone() for name, buffer in net.named_buffers()}
    return found | {"logits": ranks.gather(logits.detach()), "images": ranks.gather(mine.grad)}


def elsewhere() -> nn.Module:
    """A net with torch's own BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.BatchNorm2d(8, affine=False),
        nn.ReLU(), nn.Flatten(), nn.Linear(288, 4),
    )  # fmt: skip


def main(jobs: Path) -> None:
    wanted = json.loads(jobs.read_text())
    with joined("cpu") as ranks:
        for job in wanted:
            out = Path(job["out"])
            if "net" in job:
                torch.save(passed(job["net"], ranks), f"{out}-{ranks.rank}.pt")
            elif "apart" not in job:
                out.mkdir(exist_ok=True)
                (out / f"returned-{ranks.rank}.json").write_text(json.dumps(train(job, out)))
    for job in wanted:  # in a group of its own each, as a script has them that calls fit several times
        if "apart" in job:
            train(job, Path(job["out"]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
    leave(0)

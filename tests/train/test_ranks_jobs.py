"""More that torchrun's processes do as one: compiled steps, streamed pictures, a pretraining, an end with torchrun."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch
from safetensors.torch import load_file
from torch.nn import functional
from train.ranks_worker import train
from train.test_distributed import CASES, CLOSE, differences, distance, recipe, rounded, run_jobs
from train.test_tiny_imagenet import tiny

from maxmatch.nets.batchnorm import BatchNorm
from maxmatch.pretrain import moco
from maxmatch.train.log import read_metrics

CASES = {**CASES, "pseudo-label": ("pseudo-label", {"method": {"threshold": 0.3, "ramp": 0.0}, "train": {"steps": 3}})}
SOURCE = str(Path(__file__).parents[2] / "src")
SETS = ("data.side=16", "data.workers=1", "net.name=wrn-10-1", "train.batch=4", "train.ratio=2", "train.lr=0.01",
        "train.precision=float64", "train.threads=1", "train.log_every=2", "train.checkpoint_every=4",
        "train.evaluate_every=4")  # fmt: skip


def words(verb, data, *sets, steps=6):
    found = [word for text in (*SETS, f"train.steps={steps}", *sets) for word in ("--set", text)]
    return [verb, str(data), "--device", "cpu", *(["--no-report"] * (verb == "train")), *found]


def killed_by_torchrun(data, out):
    """Train in small as on ImageNet by two processes, kill the torchrun above them, and wait until they have ended."""
    words = tiny.recipe_words(data, epochs=3)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "maxmatch"]
    assert tiny.stopped([*command, "train", *words, "--out", str(out)], out, signal.SIGKILL, checkpoints=1) == -9
    return ["train", *words]


def test_ranks_do_more_than_plain_steps_as_one(tmp_path, monkeypatch):
    """One test, since starting processes is what takes the time; it names everything that is wrong."""
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    unkilled = killed_by_torchrun(tiny.make_folder(tmp_path / "imagenet", train=10), tmp_path / "killed")
    pictures = tiny.make_folder(tmp_path / "pictures", classes=3, train=6, val=2)
    learn = words("train", f"{pictures}@6", "train.sync_batchnorm=true", "method.name=maxmatch", "method.threshold=0.4")
    contrast = words("pretrain", pictures, "method.queue=20", "method.dimension=8", "method.companies=2")
    with mock.patch.dict("train.test_distributed.CASES", CASES):
        plain, compiled = recipe("pseudo-label"), recipe("pseudo-label", step="compiled")
    jobs = {
        "compiled": {"recipe": compiled, "backend": "aot_eager"},
        "streamed": {"words": [*learn, "--set", "data.resident=false"]},
        "unequal": {"words": words("train", f"{pictures}@6", steps=2), "room": [2**40, 0]},
        "moco": {"words": [*contrast, "--set", "data.resident=false"]},
        "moco-sync": {"words": [*contrast, "--set", "train.sync_batchnorm=true"]},
        "killed": {"words": ["train", "--resume", "--no-report"]},
        "unkilled": {"words": unkilled},
        "fewer": {"recipe": plain, "fewer_on": 1},  # the last: who has once failed is silent afterwards
    }
    for name, job in jobs.items():
        job["out"] = str(tmp_path / name)
        (tmp_path / name).mkdir(exist_ok=True)
    many = run_jobs(tmp_path, 2, list(jobs.values()))
    train({"recipe": plain}, tmp_path / "compiled-1")
    train({"words": [*learn, "--set", "data.resident=true"]}, tmp_path / "streamed-1")
    train({"words": contrast}, tmp_path / "moco-sync-1")  # synchronised ranks make its two companies
    with as_two_ranks():
        train({"words": [*contrast, "--set", "data.resident=true"]}, tmp_path / "moco-1")
    said = many.communicate()[1]
    assert many.returncode == 0, said[-3000:]
    wrong = []
    for look, *what in [
        (same_end, "compiled"), (same_end, "streamed"), (same_end, "moco"), (same_end, "moco-sync"), (same_bits, "compiled", "streamed", "moco"),
        (same_to_the_last_bit, "killed", "unkilled"), (ran_compiled,), (all_streamed,), (told_of_other_images,),
    ]:  # fmt: skip
        try:
            look(tmp_path, *what)
        except AssertionError as error:
            wrong.append(f"{look.__name__} {what}: {error}")
    assert not wrong, "\n".join(wrong)


@contextmanager
def as_two_ranks():
    """One process that normalises each half of a batch by itself, and deals the keys' images as two ranks would."""

    def forward(self, x):
        if self.mode == "eval":
            return functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        moved, made = [], []
        for half in x.chunk(2):
            kept = (self.running_mean.clone(), self.running_var.clone())
            made.append(functional.batch_norm(half, *kept, self.weight, self.bias, True, self.momentum, self.eps))
            moved.append(kept)
        if self.mode == "train":
            for buffer, parts in zip((self.running_mean, self.running_var), zip(*moved, strict=True), strict=True):
                buffer.copy_(sum(parts) / 2)
        return torch.cat(made)

    def dealt(forward, images, u, *_):
        order = u.argsort()
        return forward(images[order])[order.argsort()]

    with mock.patch.object(BatchNorm, "forward", forward), mock.patch.object(moco, "shuffled_pass", dealt):
        yield


def same_end(runs, name):
    """Weights, averages, momenta, memories and metrics are those of one process."""
    one, many = runs / f"{name}-1", runs / name
    apart = differences(one, many)
    assert max(apart.values()) < CLOSE, max(apart, key=apart.get)
    initial, final = (load_file(one / f"{file}.safetensors") for file in ("initial", "model"))
    assert max(distance(initial[n], final[n]) for n in final) > 1e-6  # there was something to differ in
    lines = [[rounded(line) for line in read_metrics(run / "metrics.jsonl") if line["kind"] != "speed"]
             for run in (one, many)]  # fmt: skip
    assert lines[0] == lines[1]


def same_bits(runs, *names):
    for name in names:
        assert (runs / name / "held-0").read_text() == (runs / name / "held-1").read_text(), name
        assert json.loads((runs / name / "result.json").read_text())["ranks"] == 2


def same_to_the_last_bit(runs, *names):
    assert tiny.differences(*(runs / name for name in names)) == []


def ran_compiled(runs):
    assert json.loads((runs / "compiled" / "result.json").read_text())["mode"] == "compiled"


def all_streamed(runs):
    """Where the pictures fit into the memory that one rank finds, but not into the other's, none keeps them."""
    assert any(line["kind"] == "speed" for line in read_metrics(runs / "unequal" / "metrics.jsonl"))
    assert json.loads((runs / "unequal" / "result.json").read_text())["steps"] == 2


def told_of_other_images(runs):
    said = sorted(json.loads((runs / "fewer" / f"returned-{rank}.json").read_text())["said"] for rank in range(2))
    assert said[0] == "another process of this run has said why it ends"
    assert "do not find the same images" in said[1]

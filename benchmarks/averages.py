"""How low is the error of a run with other averages of its weights, and with statistics that fit them?

    python benchmarks/averages.py NAME RUN SNAPSHOTS

SNAPSHOTS holds checkpoints of RUN that were copied while it ran, a new one every `train.checkpoint_every` steps. For
each of them: the error of the average as it is, and of average and net with statistics counted anew; then that of the
mean of the net's weights over the last 2, 4, 8, ... of them. Statistics are those of batches like the run's own, 64
labelled images beside 448 strong views, or of weak views alone. `flip` has each test image and its mirror image judged
together: another way to use a model, and no result. The record is records/NAME.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from record import Record
from torch import Tensor

from maxmatch.data.plan import Plan
from maxmatch.evaluate.errors import error_rate, predict_logits
from maxmatch.nets.batchnorm import BatchNorm, set_mode
from maxmatch.nets.model_file import read_tensors
from maxmatch.train.finished import Finished, open_run

BATCHES = 24
Weights = Mapping[str, Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("run", type=Path)
    parser.add_argument("snapshots", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first step to look at")
    parser.add_argument("--every", type=int, default=1, help="how many snapshots on the next look is taken")
    asked = parser.parse_args()
    record = Record(asked.name)
    judge = Judge(open_run(asked.run, asked.device))
    nets: list[Weights] = []
    rows = []
    paths = sorted(asked.snapshots.glob("[0-9]*.safetensors"))
    for number, path in enumerate(paths):
        held, _ = read_tensors(path)
        parts = {
            name: {n.removeprefix(f"{name}."): t for n, t in held.items() if n.startswith(f"{name}.")}
            for name in ("net", "average")
        }
        nets.append(parts["net"])
        if int(path.stem) < asked.first or (len(paths) - 1 - number) % asked.every:
            continue
        row: dict[str, Any] = {"step": int(path.stem), "average": judge(parts["average"])}
        row["average, flip"] = judge(parts["average"], flip=True)
        row["average, own statistics"] = judge(parts["average"], company="strong")
        row["average, of weak views"] = judge(parts["average"], company="weak")
        row["net, own statistics"] = judge(parts["net"], company="strong")
        many = 2
        while many <= len(nets):
            row[f"mean of {many}"] = judge(mean(nets[-many:]), company="strong")
            many *= 2
        rows.append(row)
        record.say(", ".join(f"{name} {value:g}" for name, value in row.items()))
    record.save(rows)


def mean(of: list[Weights]) -> Weights:
    return {name: torch.stack([weights[name].double() for weights in of]).mean(0) for name in of[0]}


class Judge:
    """The error of given weights on the run's test set."""

    def __init__(self, run: Finished) -> None:
        self.run, self.net = run, run.classifier.net
        assert run.images.test_x is not None
        assert run.images.test_y is not None
        self.test = run.images.test_x.to(run.device), run.images.test_y.to(run.device)
        self.layers = [module for module in self.net.modules() if isinstance(module, BatchNorm)]
        self.batches = {kind: self._batches(kind) for kind in ("strong", "weak")}

    def __call__(self, weights: Weights, company: str | None = None, flip: bool = False) -> float:
        self.net.load_state_dict(dict(weights))
        if company is not None:
            self._count(self.batches[company])
        set_mode(self.net, "eval")
        logits = self.run.logits(self.test[0])
        if flip:
            logits = logits.softmax(-1) + self.run.logits(self.test[0].flip(-1)).softmax(-1)
        return error_rate(logits, self.test[1])

    @torch.no_grad()
    def _count(self, batches: list[Tensor]) -> None:
        set_mode(self.net, "train")
        for number, batch in enumerate(batches):
            for layer in self.layers:
                layer.momentum = 1 / (number + 1)  # the mean of all batches
            predict_logits(self.net, batch, self.run.classifier.preprocessing, len(batch))

    def _batches(self, kind: str) -> list[Tensor]:
        plan, views, images, split = Plan(0), self.run.views, self.run.images.x, self.run.split
        made = []
        for number in range(BATCHES):
            x = images[torch.from_numpy(split.labelled[plan.indices("x", number, 64, len(split.labelled))])]
            u = images[torch.from_numpy(split.unlabelled[plan.indices("u", number, 448, len(split.unlabelled))])]
            x, u = x.to(self.run.device), u.to(self.run.device)
            draws = [
                torch.from_numpy(plan.uniforms(name, number, (1, many, uniforms)).copy()).to(self.run.device)
                for name, many, uniforms in (
                    ("x", 64, views.weak_uniforms),
                    ("u", 448, views.uniforms("strong" if kind == "strong" else "weak")),
                )
            ]
            shown = views.strong_views(u, draws[1]).images if kind == "strong" else views.weak_views(u, draws[1])
            made.append(torch.cat([views.weak_views(x, draws[0])[0], shown[0]]))
        return made


if __name__ == "__main__":
    main()

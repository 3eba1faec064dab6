"""How much is left to learn, and from how many images: which share of a step's gradient do the hardest of them hold?

    python benchmarks/hardness.py NAME RUN

Images of the pool are scored as `select` scores them, a weak and three strong views in one pass, by the averaged net of
a finished run. An image counts by 1 - p, p the probability that its worst view has for the label of its weak one: the
size of the cross-entropy's gradient. No threshold leaves any out. The record is records/NAME.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from record import Record

from maxmatch.data.plan import Plan
from maxmatch.evaluate.errors import predict_logits
from maxmatch.nets.batchnorm import set_mode
from maxmatch.train.finished import Finished, open_run

BATCH, BATCHES, K = 448, 6, 3
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("run", type=Path)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    record = Record(asked.name)
    size, wrong = scored(open_run(asked.run, asked.device))
    hardest = size.argsort(descending=True)
    rows = []
    for share in SHARES:
        first = hardest[: round(share * len(hardest))]
        held, errs = 100 * (size[first].sum() / size.sum()).item(), 100 * wrong[first].double().mean().item()
        record.say(
            f"the hardest {100 * share:g} %: {held:.1f} % of the gradient, {errs:.1f} % of their labels are wrong"
        )
        rows.append({"share": share, "gradient": held, "wrong": errs})
    learned = 100 * (size <= 0.05).double().mean().item()
    errs = 100 * wrong.double().mean().item()
    record.say(f"{len(size)} images, {errs:.1f} % of their labels wrong; {learned:.1f} % have p of .95 or more")
    record.save({"shares": rows, "images": len(size), "wrong": errs, "learned": learned})


def scored(run: Finished) -> tuple[torch.Tensor, torch.Tensor]:
    """For each image the size of its gradient, and whether its label is wrong."""
    plan, views, split = Plan(0), run.views, run.split
    set_mode(run.classifier.net, "score")
    sizes, wrong = [], []
    for number in range(BATCHES):
        index = torch.from_numpy(split.unlabelled[plan.indices("images", number, BATCH, len(split.unlabelled))])
        images = run.images.x[index].to(run.device)
        weak, strong = (
            torch.from_numpy(plan.uniforms(kind, number, (many, BATCH, uniforms)).copy()).to(run.device)
            for kind, many, uniforms in (("weak", 1, views.weak_uniforms), ("strong", K, views.strong_uniforms))
        )
        shown = torch.cat([views.weak_views(images, weak)[0], *views.strong_views(images, strong).images])
        logits = predict_logits(run.classifier.net, shown, run.classifier.preprocessing, len(shown))
        first, *others = torch.split(logits.double().softmax(-1), BATCH)
        label = first.argmax(-1)
        sizes.append(1 - torch.stack([p.gather(1, label[:, None])[:, 0] for p in others]).amin(0))
        wrong.append(label != run.images.y[index].to(run.device))
    return torch.cat(sizes).cpu(), torch.cat(wrong).cpu()


if __name__ == "__main__":
    main()

"""Does a pretraining learn? The error of a linear classifier on the features of digits, before it and after it.

    python benchmarks/linear_probe.py                seeds 1 to 5, 150 steps: a minute on 2 cores

All 1,195 training images are labelled for the classifier, which is scikit-learn's; the encoder has seen no label.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
from record import Record
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from maxmatch import compose, fit, load_images
from maxmatch.nets import features
from maxmatch.nets.model_file import load_model

CROPS = {"the recipe's parts": (0.5, 1.0), "the paper's parts": (0.2, 1.0)}
COMPANIES = {"8 companies": 8, "1 company": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--steps", type=int, default=150)
    asked = parser.parse_args()
    record, found = Record("linear-probe"), []
    for crop, scale in CROPS.items():
        for company, many in COMPANIES.items():
            for seed in asked.seeds:
                given = {"augment": {"scale": scale}, "method": {"companies": many}, "train": {"seed": seed}}
                found.append({"crop": crop, "companies": company, "seed": seed, **pretrained(given, asked.steps)})
    record.say(f"digits, {asked.steps} steps, seeds {asked.seeds}: mean +- deviation of the probe's error in percent")
    record.say(f"{'as it was drawn':<36}{spread([row['random'] for row in found[: len(asked.seeds)]])}")
    for crop in CROPS:
        for company in COMPANIES:
            rows = [row for row in found if (row["crop"], row["companies"]) == (crop, company)]
            loss = statistics.mean(row["loss"] for row in rows)
            record.say(f"{f'{crop}, {company}':<36}{spread([row['learned'] for row in rows])}, loss {loss:.2f}")
    record.save(found)


def pretrained(given: dict[str, Any], steps: int) -> dict[str, float]:
    """The probe's error before and after, and the loss at the end."""
    given = {**given, "train": {**given["train"], "steps": steps, "threads": 1}}
    with tempfile.TemporaryDirectory() as folder:
        result = fit(compose("digits", "moco", given=given), folder, quiet=True)
        random, learned = (probe_error(Path(folder) / f"{name}.safetensors") for name in ("initial", "model"))
    return {"random": random, "learned": learned, "loss": result["contrastive_loss"]}


def probe_error(path: Path) -> float:
    """The error of a linear classifier on the features of a weight file's net, in percent."""
    net, info = load_model(path)
    digits = load_images("digits")
    with torch.no_grad():
        seen, unseen = (features(net, info.preprocessing(x)).numpy() for x in (digits.x, digits.test_x))
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(seen, digits.y)
    return 100 * (1 - float(probe.score(unseen, digits.test_y)))


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):6.2f} +- {statistics.pstdev(values):.2f}"


if __name__ == "__main__":
    main()

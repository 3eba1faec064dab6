"""`maxmatch demo`: supervised, FixMatch and MaxMatch on the same few labelled digits, LabelSpreading beside them."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from maxmatch.data.datasets import Images, load_images
from maxmatch.data.split import Split, make_split
from maxmatch.errors import Interrupted
from maxmatch.evaluate.errors import error_rate
from maxmatch.evaluate.robust import robust_errors
from maxmatch.files import refuse_other_things
from maxmatch.report.page import report_or_warn
from maxmatch.train.batches import make_views
from maxmatch.train.fit import fit
from maxmatch.train.recipe import Recipe
from maxmatch.train.recipes import compose

METHODS = ("supervised", "fixmatch", "maxmatch")


def run_demo(out: Path | None, labels: int, seed: int, steps: int | None, report: bool = True) -> None:
    """Train all three on one split, print one table, write one page, and say what to type next."""
    folder = out or _free_folder(Path("runs/demo"))
    refuse_other_things(folder, METHODS, "demo")
    recipes = {name: _recipe(name, labels, seed, steps) for name in METHODS}
    images = load_images("digits")
    split = make_split(images.y, labels, seed)
    rows = [("label spreading (scikit-learn)", *label_spreading(images, split, recipes["maxmatch"]))]
    for name, recipe in recipes.items():
        try:
            result = fit(recipe, folder / name, resume=(folder / name / "recipe.json").exists())
        except Interrupted as stopped:
            again = "maxmatch demo" if out is None else f"maxmatch demo --out {shlex.quote(str(out))}"
            what = str(stopped).partition(": ")[0]  # "stopped after step 5 of 800, nothing is lost", for example
            raise Interrupted(f"{name} {what}: type {again} to go on", stopped.code - 128) from None
        rows.append((name, result["error"]["last"], result["robust_error"], result["seconds"]))
    table = Table(
        "method",
        "error %",
        "robust error %",
        "seconds",
        title=f"digits, {labels} of {len(images.y)} labelled, seed {seed}",
    )
    for name, error, robust, seconds in rows:
        table.add_row(name, f"{error:.1f}", f"{robust:.1f}", f"{seconds:.0f}")
    console = Console(emoji=False, highlight=False, soft_wrap=True)
    console.print(table)
    console.print("robust error: the image or any of 3 strongly augmented views of it is misclassified")
    console.print("one run each, and single runs differ by several points: maxmatch benchmark has means over folds")
    page = report_or_warn([folder / name for name in METHODS], folder / "report.html") if report else None
    if page is not None:
        console.print(f"report: {page}", markup=False)
    console.print(f"next:  maxmatch evaluate {folder / 'maxmatch'}", markup=False)
    console.print("       maxmatch preview digits", markup=False)
    console.print(f"       maxmatch train digits@{labels} --method maxmatch --k 5", markup=False)
    if shutil.which("maxmatch") is None:
        source = Path(__file__).parents[1]
        console.print(
            f"(maxmatch is not on your PATH: pip install . or PYTHONPATH={source} {sys.executable} -m maxmatch)"
        )


def label_spreading(images: Images, split: Split, recipe: Recipe) -> tuple[float, float, float]:
    """(error, robust error, seconds to fit) of scikit-learn's LabelSpreading on the pixels of the same split."""
    from sklearn.semi_supervised import LabelSpreading

    assert images.test_x is not None
    assert images.test_y is not None
    begun = time.perf_counter()
    shown = np.full(len(images.y), -1)
    shown[split.labelled] = images.y.numpy()[split.labelled]
    model: Any = LabelSpreading().fit(_flat(images.x), shown)
    seconds = time.perf_counter() - begun

    def predict(x: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(model.predict(_flat(x))))

    scores = torch.nn.functional.one_hot(predict(images.test_x), len(images.classes)).float()
    robust = robust_errors(
        predict,
        images.test_x,
        images.test_y,
        make_views(recipe.augment),
        recipe.evaluate.robust_views,
        recipe.train.seed,
    )
    return error_rate(scores, images.test_y), robust.robust_error, seconds


def _recipe(method: str, labels: int, seed: int, steps: int | None) -> Recipe:
    train = {"seed": seed, **({} if steps is None else {"steps": steps})}
    return compose("digits", method, given={"data": {"labels": labels}, "train": train})


def _flat(x: Tensor) -> np.ndarray:
    return x.flatten(1).numpy() / 255


def _free_folder(wanted: Path) -> Path:
    """`wanted`, `wanted`-2, ...: the first that is free or holds a demo that was stopped. None is overwritten."""
    number, folder = 1, wanted
    while (folder / METHODS[-1] / "result.json").exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder

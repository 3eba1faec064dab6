"""What a run folder alone can tell: recipe, figures, how far it came. Nothing here needs the data or the net."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxmatch.data import DATASETS
from maxmatch.methods import method_name
from maxmatch.train.checkpoint import checkpoints
from maxmatch.train.log import read_metrics
from maxmatch.train.pictures import title
from maxmatch.train.recipe import Recipe
from maxmatch.train.result import is_result
from maxmatch.train.resume import read_recipe

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class RunFolder:
    """A run as its files tell it. `result` is empty where result.json is not there, or `damaged`."""

    path: Path
    recipe: Recipe
    result: dict[str, Any]
    metrics: Sequence[dict[str, Any]]
    labelled: int | None  # how many images had a label
    unlabelled: int | None  # how many of the pool had none
    damaged: bool = False  # whether there is a result.json that can't be read

    @property
    def method(self) -> str:
        return method_name(self.recipe.method)

    @property
    def data(self) -> str:
        """The data set, or the folder of pictures, as `name@labels`."""
        return f"{title(self.recipe.data)}@{self.recipe.data.labels}"

    @property
    def labels(self) -> int | str:
        """The number of labels as the recipe says it; of your own data, which may get more, how many there were."""
        said = self.recipe.data.labels
        counted = self.recipe.data.name not in DATASETS and not isinstance(said, int)
        return self.labelled if counted and self.labelled is not None else said

    @property
    def data_name(self) -> str:
        """The same without the number of labels."""
        return title(self.recipe.data)

    @property
    def data_path(self) -> str:
        """Where a folder of pictures lies; the name of any other data."""
        folder = self.recipe.data.name == "folder" and self.recipe.data.path
        return str(Path(folder).resolve()) if folder else self.data_name

    @property
    def diverged_at(self) -> int | None:
        """The first step of metrics.jsonl at which a loss was no finite number."""
        for line in self.metrics:
            values = [value for name, value in line.items() if "loss" in name and isinstance(value, float)]
            if not all(map(math.isfinite, values)):
                return int(line["step"])
        return None

    @property
    def steps(self) -> int:
        """How many steps are done, as far as the folder tells."""
        logged = max((int(line["step"]) for line in self.metrics), default=0)
        saved = max((int(p.stem) for p in checkpoints(self.path / "checkpoint") if p.stem.isdigit()), default=0)
        return int(self.result.get("steps", max(logged, saved)))

    @property
    def finished(self) -> bool:
        return bool(self.result) and self.steps >= self.recipe.train.steps

    @property
    def k(self) -> int:
        """How many variants of an image the run trains on, the most where it changes; 0 for a method without."""
        return self.recipe.method.needs.most

    @property
    def views(self) -> int:
        """How many strong views the page shows: K, and no fewer than the robust errors have."""
        return max(self.k if self.trains_on_strong else 0, self.recipe.evaluate.robust_views)

    @property
    def trains_on_strong(self) -> bool:
        """Whether the method trains on strong views of unlabelled images."""
        return self.k > 0 and self.recipe.method.needs.variants == "strong"

    @property
    def own_data(self) -> bool:
        """Whether the run was made in Python of arrays, which no command can name."""
        return self.recipe.data.name not in (*DATASETS, "folder")

    @property
    def fixed_views(self) -> bool:
        """Whether every step has the same K."""
        return len(self.recipe.method.needs.choices()) == 1

    @property
    def error(self) -> float | None:
        """The last error in percent: of result.json, or of the last evaluation of a run that has none yet."""
        if self.result:
            last: float | None = self.result["error"]["last"]
            return last
        found = self.curve("error", "evaluate")
        return found[-1][1] if found else None

    def figure(self, name: str) -> float | None:
        """A figure of result.json, or of the last line of metrics.jsonl that has it; None if not measured."""
        if self.result:
            value = self.result.get(name)
            return value if isinstance(value, int | float) else None
        found = self.curve(name)
        return found[-1][1] if found else None

    def curve(self, name: str, kind: str = "train", scale: float = 1.0) -> Points:
        """(step, value) of every line of metrics.jsonl that has the figure."""
        lines = [line for line in self.metrics if line.get("kind") == kind]
        return [(line["step"], scale * line[name]) for line in lines if isinstance(line.get(name), int | float)]

    @property
    def wins(self) -> dict[str, float]:
        """How often a view with an operation decided in the last log interval, over how often it stood for choice."""
        for line in reversed(self.metrics):
            if isinstance(line.get("op_wins"), dict):
                found: dict[str, float] = line["op_wins"]
                return found
        return {}


def read_run(path: Path) -> RunFolder:
    """The run of a folder; refused in one line if there is none."""
    recipe = read_recipe(path)
    split = _read(path / "split.json")
    counts: tuple[int | None, int | None] = (None, None)
    if isinstance(split.get("labelled"), list) and isinstance(split.get("unlabelled"), list):
        counts = len(split["labelled"]), len(set(split["unlabelled"]) - set(split["labelled"]))
    result = _read(path / "result.json")
    damaged = (path / "result.json").exists() and not is_result(result)
    return RunFolder(path, recipe, {} if damaged else result, read_metrics(path / "metrics.jsonl"), *counts, damaged)


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none or it is damaged."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}

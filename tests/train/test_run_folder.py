"""docs/run_folder.md: it names the files and keys of a real run, all of them and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from maxmatch.methods import METHODS, method_class
from maxmatch.pretrain.moco import MoCo
from maxmatch.train.claim import BEFORE, PARTS
from maxmatch.train.fit import fit
from maxmatch.train.launcher import NOTE
from maxmatch.train.log import read_metrics
from maxmatch.train.recipes import compose
from maxmatch.train.stages import Stages

PAGE = (Path(__file__).parents[2] / "docs" / "run_folder.md").read_text()


def rows(heading: str, column: str = "key") -> dict[str, list[str]]:
    """The rows of the table under a heading whose first column is so called: the name, and the other cells."""
    section = re.split(r"\n#+ ", PAGE.partition(f"# {heading}\n")[2])[0]
    body = re.search(rf"\| {column} \|.*\n\|[-|]+\n((?:\|.*\n)+)", section)[1]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]
    return {name.strip("`"): rest for name, *rest in cells}


def flat(values: dict) -> dict:
    """`error.last` of {"error": {"last": ...}}."""
    found = {}
    for key, value in values.items():
        inside = {f"{key}.{name}": v for name, v in flat(value).items()} if isinstance(value, dict) else {key: value}
        found |= inside
    return found


def metadata(path: Path) -> tuple[dict[str, str], set[str]]:
    """The metadata of a safetensors file, and what the names of its tensors begin with."""
    with safe_open(path, "pt") as file:
        return file.metadata(), {name.partition(".")[0] for name in file.keys()}  # noqa: SIM118


@pytest.fixture
def run(tiny, tmp_path):
    """A run that has all that a run without pictures can have."""
    sections = {"train": {"steps": 3, "head_lr": 0.1, "log_every": 2}, "evaluate": {"unlabelled": 20}}
    fit(tiny("maxmatch", **sections), tmp_path / "run", quiet=True)
    return tmp_path / "run"


def test_every_file_and_key_of_a_run_is_on_the_page_and_no_other(run):
    assert set(rows("Files", "file")) == {*PARTS, BEFORE, NOTE} >= {path.name for path in run.iterdir()}
    assert set(rows("result.json")) == set(flat(json.loads((run / "result.json").read_text())))
    both = set(rows("metrics.jsonl"))
    kinds = {line["kind"]: set(line) for line in read_metrics(run / "metrics.jsonl")}
    assert kinds == {kind: both | set(rows(kind)) for kind in ("train", "evaluate")}
    recipe = json.loads((run / "recipe.json").read_text())
    assert set(rows("recipe.json")) == set(recipe)
    assert {
        name for section in recipe if section != "settled" for name in _still_auto(section, recipe[section])
    } == set(re.findall(r"`([a-z.]+)`", re.search(r"\n(`.*) stay `auto`", PAGE)[1]))
    assert set(rows("split.json")) == set(json.loads((run / "split.json").read_text()))
    for name in ("model.safetensors", "initial.safetensors"):
        assert set(rows("model.safetensors")) == set(metadata(run / name)[0])
    inside = {key: set(json.loads(metadata(run / "model.safetensors")[0][key])) for key in ("net", "preprocessing")}
    for key, names in inside.items():
        assert names <= set(re.findall(r"`(\w+)`", rows("model.safetensors")[key][0])), key


def _still_auto(section, values):
    return [f"{section}.{name}" for name, value in values.items() if value == "auto" and section != "method"]


def test_checkpoints_are_as_the_page_has_them(run, tiny, tmp_path):
    fit(tiny("freematch", train={"steps": 2}, augment={"policy": "cta"}), tmp_path / "cta", quiet=True)
    (newest,) = (tmp_path / "cta" / "checkpoint").iterdir()
    assert re.fullmatch(r"\d{9}\.safetensors", newest.name)
    found, tensors = metadata(newest)
    assert tensors == set(rows("Checkpoints", "tensors"))
    assert set(found) == set(rows("Checkpoints", "metadata"))
    told = re.findall(r"`(\w+)`", rows("Checkpoints", "metadata")["progress"][0])
    assert set(json.loads(found["progress"])) == set(told) - {"method_code"}


def test_the_speed_of_streamed_pictures_has_the_keys_of_the_page():
    assert set(rows("speed")) == set(Stages(1, torch.device("cpu")).read())


def test_a_pretraining_has_the_same_keys_and_null_where_the_page_says_so(tmp_path):
    small = {"steps": 1, "batch": 16, "threads": 1}
    recipe = compose("digits", "moco", given={"train": small, "method": {"queue": 32, "dimension": 8}})
    found = flat(fit(recipe, tmp_path / "run", quiet=True))
    told = rows("result.json")
    assert set(found) == {*told, "contrastive_loss"}
    for name, value in found.items():
        if value is None:
            assert told[name][-1], f"{name} is null, and the page does not say where"
    assert found["error.last"] is found["mask_rate"] is found["k"] is None
    assert (found["test_images"], found["labels"]) == (0, 0)


def test_every_term_of_a_method_is_named():
    terms = {term for method in (*map(method_class, METHODS), MoCo) for term in method.terms}
    assert all(f"`{term}_loss`" in PAGE for term in terms)


def test_the_example_reads_a_run(run, monkeypatch):
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    monkeypatch.chdir(run.parent)
    run.rename(run.parent / "a")
    found: dict = {}
    exec(code.replace("runs/a", "a"), found)
    assert found["curve"] == [(3, found["result"]["error"]["last"])]
    assert found["classes"] == [str(digit) for digit in range(10)]

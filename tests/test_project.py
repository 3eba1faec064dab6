"""The project as a whole: examples run, the README tells the truth, nothing is named that is not there."""

from __future__ import annotations

import gzip
import importlib.util
import inspect
import itertools
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from gpu.test_steps import AGREE
from gpu.test_steps import recipe as gpu_recipe

import maxmatch
from maxmatch.augment.contrastive import CONTRASTIVE
from maxmatch.augment.ctaugment import CTA_PRESETS
from maxmatch.augment.presets import PRESETS
from maxmatch.cli import reference
from maxmatch.methods import METHODS
from maxmatch.methods.catalogue import page
from maxmatch.nets.foreign import PLAIN, RESNETS
from maxmatch.train.recipes import fast_10min

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_every_example_runs_and_is_short(path, capsys, monkeypatch):
    import sys

    assert len(path.read_text().splitlines()) < 60
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    module.main(steps=2)
    assert "error" in capsys.readouterr().out


def test_the_python_example_of_the_readme_runs(tmp_path, monkeypatch):
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    exec(code.replace('"steps": 800', '"steps": 2'), {})
    assert (tmp_path / "runs" / "c" / "result.json").exists()


def test_public_names_are_there_and_only_those():
    for name in maxmatch.__all__:
        assert getattr(maxmatch, name) is not None
    assert set(maxmatch.__all__) == set(maxmatch._PLACES)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        maxmatch.nothing  # noqa: B018


def test_every_public_name_has_words_of_its_own():
    for name in maxmatch.__all__:
        said = inspect.getdoc(getattr(maxmatch, name))
        assert not said.startswith(f"{name}("), f"{name}: a dataclass without a docstring shows its signature alone"
    said = re.findall(r"`(\w+)`", inspect.getdoc(maxmatch.judge))
    assert set(inspect.signature(maxmatch.judge).parameters) <= set(said)


TYPED = """\
import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import maxmatch
from maxmatch import FixMatch, LabeledKFold, MaxMatch, MaxMatchClassifier, Recipe
from maxmatch.export import export_run
from maxmatch.methods.base import Consistency, Target
from maxmatch.methods.ranges import Weight


@dataclass(frozen=True)
class Weighted(Consistency):
    power: Weight = 2.0

    def targets(self, p: Tensor) -> Target:
        return Target(p, p.new_ones(len(p)))


x, cpu = np.zeros((4, 8, 8), np.uint8), torch.device("cpu")
for recipe in (
    maxmatch.compose("digits", config=Path("mine.toml"), given={"train": {"steps": 2}}),
    Recipe(method=MaxMatch(k=3, over="worst")),
    replace(Recipe(), method=Weighted(k="1..3", over="soft:1")),
    Recipe(method=FixMatch(3, over=MaxMatch().over)),
):
    maxmatch.fit(recipe, out="runs/b", data=maxmatch.from_arrays(x, [0, 1, -1, -1]))["error"]
classifier = maxmatch.load("runs/b", device=cpu)
classifier.predict("a.png").tolist() + classifier.predict_proba([io.BytesIO(b""), Path("a.png")]).tolist()
classifier.predict(maxmatch.load_images(Path("digits"), "google").x)
maxmatch.judge("runs/b", k=3, device=cpu)["error"]
MaxMatchClassifier(k=3, over="worst", device=cpu).fit(x, [0, 1, -1, -1]).predict_proba(x).tolist()
for train, test in LabeledKFold(2).split(None, [0, 1]):
    train + test
print(MaxMatch().over.spell(), maxmatch.__version__, export_run("runs/b", "model.onnx").images)
"""
WRONG = {
    "from maxmatch import lod": 'has no attribute "lod"',
    "maxmatch.fitt": 'has no attribute "fitt"',
    'MaxMatch(ovr="worst")': 'Unexpected keyword argument "ovr"',
    "MaxMatch(over=3)": 'Argument "over" to "MaxMatch" has incompatible type "int"; expected "Reduction | str"',
    'maxmatch.load_images("digits", "goggle")': "Literal['goggle']",
}


def test_a_type_checker_takes_what_the_docs_call_and_finds_names_that_are_misspelt(tmp_path):
    """mypy on a user's script, the package as if it were installed; libraries below it are left out, which is quick."""
    (tmp_path / "typed.py").write_text(TYPED)
    (tmp_path / "wrong.py").write_text("\n".join(["import maxmatch; from maxmatch import MaxMatch", *WRONG]))
    others = "[mypy-torch.*,torchvision.*,sklearn.*,PIL.*]\nfollow_imports = skip\nignore_missing_imports = true\n"
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\nfollow_imports = silent\n{others}")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "typed.py", "wrong.py"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
    )  # fmt: skip
    *found, _ = done.stdout.splitlines()
    assert len(found) == len(WRONG), done.stdout + done.stderr
    for number, (line, told) in enumerate(zip(found, WRONG.values(), strict=True), start=2):
        assert line.startswith(f"wrong.py:{number}: error: ")
        assert told in line


def test_files_named_in_the_architecture_exist():
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = defaultdict(set)
    for folder, files in re.findall(r"^\| `(\w+)/`[\w ]* \| (.*) \|$", text, re.MULTILINE):
        rows[folder] |= set(re.findall(r"`(\w+\.py)`", files)) | {"__init__.py"}
    assert set(rows) >= {path.parent.name for path in (ROOT / "src" / "maxmatch").glob("*/__init__.py")}
    for folder, named in rows.items():
        there = {p.name for p in (ROOT / "src" / "maxmatch" / folder).glob("*.py")}
        missing = named - there
        assert not missing, f"docs/architecture.md names {folder}/{missing}"
        unnamed = there - named - {f"{place.split(':')[0]}.py" for place in METHODS.values()}
        assert not unnamed, f"docs/architecture.md does not name {folder}/{unnamed}"


def test_the_version_is_written_once_and_the_same():
    import tomllib

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == maxmatch.__version__


def test_the_page_of_methods_is_what_the_command_prints():
    assert (ROOT / "docs" / "methods.md").read_text() == page()


def test_the_page_of_settings_is_what_the_command_prints():
    assert (ROOT / "docs" / "settings.md").read_text() == reference.page()


@pytest.mark.parametrize("section", reference.SECTIONS)
def test_every_setting_has_a_sentence(section):
    for setting in reference.settings_of(section):
        assert re.fullmatch(r"[A-Z0-9`].{20,}\.", setting.sentence), f"{setting.name}: {setting.sentence!r}"
        words = re.findall(r"`([\w-]+)`", setting.takes)
        assert "auto" not in words or "`auto`: " in setting.sentence, f"{setting.name}: what is auto?"
        assert "unset" not in words or "`unset`: " in setting.sentence, f"{setting.name}: what is unset?"


def test_the_page_of_settings_names_what_no_type_does():
    said = {
        setting.name: setting.sentence for section in reference.SECTIONS for setting in reference.settings_of(section)
    }
    for name in (*PRESETS, *CTA_PRESETS, *CONTRASTIVE):
        assert f"`{name}`" in said["augment.policy"]
    for name in (PLAIN, *RESNETS):
        assert f"`{name}`" in said["net.name"]
    named = re.findall(r"`([a-z]+\.[a-z_]+)`", (ROOT / "docs" / "settings.md").read_text())
    assert {name for name in named if name.partition(".")[0] in reference.SECTIONS} == set(said)


def test_the_examples_of_the_page_of_settings_say_the_same(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "settings.md").read_text()
    toml, code = (re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL)[1] for kind in ("toml", "python"))
    (tmp_path / "mine.toml").write_text(toml)
    trained = []
    monkeypatch.setattr(maxmatch, "fit", lambda recipe, out: trained.append(recipe), raising=False)
    exec(code, {})
    assert trained == [maxmatch.compose("cifar10@250", config=str(tmp_path / "mine.toml"))]
    assert (trained[0].train.lr, trained[0].train.steps) == (0.05, maxmatch.compose(config="fast-10min").train.steps)


def test_the_method_of_the_guide_trains(tmp_path, monkeypatch):
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "write_a_method.md").read_text(), re.DOTALL)[1]
    assert f"```python\n{code}```" in (ROOT / "README.md").read_text()
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    (tmp_path / "weighted.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    given = {"train": {"steps": 12}, "data": {"labels": 20}, "method": {"k": 3, "over": "worst"}}
    result = maxmatch.fit(maxmatch.compose("digits", "weighted:Weighted", given=given), tmp_path / "run", quiet=True)
    assert result["method"] == "weighted:Weighted"
    with pytest.raises(maxmatch.errors.UsageError, match="method.power = nan: a number of 0 or more is wanted"):
        maxmatch.compose("digits", "weighted:Weighted", given={"method": {"power": float("nan")}})
    assert result["unlabeled_loss"] > 0


def test_the_recipes_of_the_gpu_s_tests_can_be_made():
    """Those tests are skipped without a GPU: a word in them that is wrong would be seen there alone."""
    made = {gpu_recipe("captured", **options).to_json() for options in AGREE}
    assert len(made) == len(AGREE)


def test_the_net_of_the_guide_trains_and_is_pretrained(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "write_a_method.md").read_text(), re.DOTALL)
    (tmp_path / "small.py").write_text(blocks[1])
    monkeypatch.syspath_prepend(tmp_path)
    net = {"name": "small:Small"}
    first = maxmatch.compose("digits", "moco", given={"train": {"steps": 2, "batch": 16}, "net": net})
    maxmatch.fit(first, tmp_path / "first", quiet=True)
    given = {"train": {"steps": 2, "init": str(tmp_path / "first")}, "net": net}
    for method in ("maxmatch", "remixmatch"):
        result = maxmatch.fit(maxmatch.compose("digits", method, given=given), tmp_path / method, quiet=True)
        assert result["net"] == "small:Small"
        assert result["steps"] == 2


def test_the_errors_and_seconds_of_readme_and_results_are_those_of_the_records():
    readme, page, speed = ((ROOT / name).read_text() for name in ("README.md", "docs/results.md", "docs/speed.md"))
    records = ROOT / "benchmarks" / "records"
    both = {".95": ("-maxmatch", "-fixmatch"), "FreeMatch's": ("", "-one-view")}
    heads = {
        "": "| {} ({}) |",
        "-52000": "**{}** (folds 3 to 5: {})",
        "-one-view": "| {} ({}) |",
        "-fixmatch": "| {} ({}) |",
        "-searched": "| {} ({}) |",
    }
    means = {}
    for name, head in heads.items():
        runs = json.loads((records / f"cifar10-250-finals{name}" / "benchmark.json").read_text())["runs"]
        errors = [run["last"] for run in runs]
        means[name] = f"{np.mean(errors):.2f}"
        assert head.format(means[name], ", ".join(f"{error:.2f}" for error in errors)) in page, name
        if name == "-52000":
            steps = {run["steps"] for run in runs}
    recipe = maxmatch.compose("cifar10", config="fast-10min").train
    assert steps == {recipe.steps}
    assert f"worst of three views, {recipe.steps:,} steps" in page
    command = json.loads((records / "cifar10-250-finals-52000" / "benchmark.json").read_text())["command"]
    assert f"--set train.lr={recipe.lr:g}" in command
    rows = {
        "fast-10min-52000": "{1:,.0f} | [errors]",
        "fast-10min": "The shorter run had {} % there",
        "fast-1min": "| {} (fold 3) | {:,.0f} |",
        "floor-70000": "| {} (fold 3) | {:,.0f} |",
        "fast-10min-200000": "| {} (fold 3) | {:,.0f} |",
    }
    for name, row in rows.items():
        alone = json.loads((records / "cifar10-250-alone" / f"{name}.json").read_text())
        assert row.format(f"{alone['result']['error']['last']:.2f}", alone["seconds_by_the_clock"]) in page, name
    assert f"it was at {alone['result']['error']['best']:.2f} after" in page
    five = json.loads((records / "cifar10-250-folds" / "benchmark.json").read_text())["table"]["methods"]
    of_five = {row["method"]: row["last"]["mean"] for row in five}
    assert f"| {of_five['maxmatch']:.2f}, and {of_five['fixmatch']:.2f} (five folds" in page
    plain = json.loads((records / "cifar10-250-maxmatch.json").read_text())
    assert f"| {plain['results']['error']['last']:.2f} | |" in page
    docstring, few = " ".join(fast_10min.__doc__.split()), {}
    of_speed = re.findall(r"^\| ([\d,]+) labels.* \| (.*) \| (.*) \| (.*) \|$", speed, re.MULTILINE)
    for labels, (thresholds, ends) in itertools.product(("40", "4,000"), both.items()):
        folders = [records / f"cifar10-{labels.replace(',', '')}{end}" / "benchmark.json" for end in ends]
        found = [json.loads(folder.read_text())["runs"][0]["last"] for folder in folders]
        plain = tuple(f"{error:.2f}" for error in found)
        few[labels, thresholds] = [f"**{one}**" if one == f"{min(found):.2f}" else one for one in plain]
        assert f"| {labels} | {thresholds} | {' | '.join(few[labels, thresholds])} |" in page
        assert (labels, thresholds, *plain) in of_speed
        assert " and ".join(plain) in docstring
    seconds = json.loads((records / "cifar10-250-alone" / "fast-10min-52000.json").read_text())["seconds_by_the_clock"]
    headline = re.search(r"\*\*250 labels.*?\*\*", readme, re.DOTALL)[0]
    assert f"{means['-52000']} % error in {seconds:.0f} seconds" in headline
    first, *more = (
        f"{error:.2f}" for error in _by_fold(records / "cifar10-250-finals-52000", "freematch:k=3:over=worst")["last"]
    )
    assert f"({first}, {' and '.join(more)})" in readme
    assert re.search(rf"\*\*{means['-52000']}\*\* \(`fast-10min`.*\| {means['-fixmatch']}, higher on each fold", readme)
    three, one = few["40", "FreeMatch's"]
    assert f"| {three} (three views) | {one} (one view)" in readme
    for labels in ("40", "4,000"):
        assert re.search(rf"10, {labels} labels, .* \| {re.escape(' | '.join(few[labels, '.95']))} \|", readme)


def test_what_is_said_of_four_labels_a_class_is_that_of_the_records():
    text = " ".join((ROOT / "docs" / "speed.md").read_text().split())
    records, seconds, wrong = ROOT / "benchmarks" / "records", {}, {}
    for method in ("maxmatch", "fixmatch"):
        folders = [records / f"cifar10-{labels}-{method}" for labels in (40, 4000)]
        runs = [json.loads((folder / "benchmark.json").read_text())["runs"][0] for folder in folders]
        seconds[method] = " and ".join(f"{time:,.0f}" for time in sorted(run["seconds"] for run in runs))
        rows = _logged(folders[0] / method / "fold-3" / "metrics.jsonl.gz")
        wrong[method] = [_wrong(rows, step) for step in (12_000, runs[0]["steps"])]
    assert f"took as long: {seconds['maxmatch']} s of steps, and {seconds['fixmatch']}." in text
    one, three = wrong["fixmatch"], wrong["maxmatch"]
    assert f"after 12,000 steps {one[0]:.0f} % are wrong, {one[1]:.0f} % at the end" in text
    assert f"of those of three views {three[0]:.0f} and {three[1]:.0f} %" in text


def _wrong(rows, step):
    """How many of the guesses kept in the last 1,000 steps were wrong, in percent."""
    rows = [row for row in rows if step - 1000 < row["step"] <= step]
    kept = [row["mask_rate"] for row in rows]
    return 100 * (1 - np.average([row["pseudo_label_accuracy"] for row in rows], weights=kept))


def test_the_finals_of_the_page_on_speed_are_those_of_their_records():
    """The errors of each row, what is lower by how much, fold by fold, and what the guesses were worth at the end."""
    text, search = ((ROOT / "docs" / name).read_text() for name in ("speed.md", "search.md"))
    table = text.partition("## Time to accuracy")[2]
    rows = re.findall(r"^\| .* \| ([\d,]+) \| \.(\d+) \| (.*) \| \[.*\]\(\.\./(.*finals.*)\) \|$", table, re.MULTILINE)
    assert len(rows) == 5
    errors, robust = {}, {}
    for steps, rate, shown, folder in rows:
        record = json.loads((ROOT / folder / "benchmark.json").read_text())
        name = folder.partition("finals")[2]
        logged = _logged(next((ROOT / folder).glob("*.jsonl.gz")))[0]
        falls = (1 + np.cos(np.pi * logged["step"] / record["runs"][0]["steps"])) / 2
        assert logged["lr"] == pytest.approx(float(f"0.{rate}") * falls, rel=1e-3)
        assert {f"{run['steps']:,}" for run in record["runs"]} == {steps}, name
        errors[name] = np.array([run["last"] for run in record["runs"]])
        robust[name] = [run["robust_error"] for run in record["runs"]]
        told = f"{errors[name].mean():.2f} +- {errors[name].std():.2f}"
        assert shown == " | ".join([*(f"{error:.2f}" for error in errors[name]), told]), name
    for better, worse in (("-52000", "-fixmatch"), ("", "-one-view"), ("", "-searched")):
        less = errors[worse] - errors[better]
        told = f"| {', '.join(f'{gap:.2f}' for gap in less)} | {less.mean():.2f} +- {less.std(ddof=1) / 3**0.5:.2f} |"
        spans = [f"{min(found):.1f} to {max(found):.1f}" for found in (robust[better], robust[worse])]
        assert f"{told} {spans[0]} % and {spans[1]} |" in table, worse
    part = search.partition("**In a longer run that gain is gone.**")[2].partition("\n\n")[0]
    for place in ("searched/fixmatch", "one-view/one-view", "fixmatch/fixmatch"):
        places = [ROOT / f"benchmarks/records/cifar10-250-finals-{place}-{fold}.jsonl.gz" for fold in (3, 4, 5)]
        last = [_logged(path)[-1] for path in places]
        kept = [100 * row["mask_rate"] for row in last]
        wrong = [100 * (1 - row["pseudo_label_accuracy"]) for row in last]
        for found in (kept, wrong):
            assert f"{min(found):.1f} to {max(found):.1f} %" in part, place
    for name in ("-searched", "-one-view"):
        first, second, third = (f"{error:.2f}" for error in errors[name])
        assert f"{first}, {second} and {third}" in part


def _logged(path):
    rows = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    return [row for row in rows if row["kind"] == "train"]


def test_the_errors_on_digits_are_those_of_the_record():
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs" / "results.md").read_text()
    runs = json.loads((ROOT / "benchmarks" / "records" / "digits.json").read_text())["results"]
    for labels in (20, 40):
        errors = {
            method: np.array([r["error"]["last"] for r in runs if (r["method"], r["labels"]) == (method, labels)])
            for method in ("supervised", "fixmatch", "maxmatch")
        }
        means = {method: f"{found.mean():.2f}" for method, found in errors.items()}
        less = errors["maxmatch"] - errors["fixmatch"]
        told = f"{less.mean():.2f} +- {less.std(ddof=1) / len(less) ** 0.5:.2f}"
        row = re.search(rf"^\| {labels} \| {means['supervised']} \| .*$", page, re.MULTILINE)[0]
        assert row.endswith(f"| {means['fixmatch']} | **{means['maxmatch']}** | {told} |")
        assert re.search(rf"digits, {labels} labels.* \| \*\*{means['maxmatch']}\*\* \| {means['fixmatch']} \|", readme)


def test_the_errors_of_methods_that_were_searched_alike_are_those_of_the_record():
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs" / "results.md").read_text()
    runs = json.loads((ROOT / "benchmarks" / "records" / "digits-equal-search.json").read_text())["results"]
    assert f"{len(runs)} runs, `python benchmarks/equal_search.py`" in page

    def errors(method, change, labels, seeds):
        found = {r["seed"]: r["error"]["last"] for r in runs
                 if (r["method"], r["change"], r["labels"]) == (method, change, labels)}  # fmt: skip
        return np.array([found.get(seed, np.nan) for seed in seeds])

    best = {}
    for method, name in (("fixmatch", "FixMatch"), ("maxmatch", "MaxMatch")):
        tried = {r["change"] for r in runs if (r["method"], r["labels"]) == (method, 20)}
        means = {change: errors(method, change, 20, range(11, 21)).mean() for change in tried}
        best[method] = min((change for change in means if means[change] > 0), key=means.__getitem__)
        assert f"{name}'s `{best[method]}`" in page or f"{name}'s best is `{best[method]}`" in page
    for labels in (20, 40):
        for title, chosen in (("the recipe as it is", dict.fromkeys(best, "as it is")), ("each with its best", best)):
            fixmatch, maxmatch = (errors(method, chosen[method], labels, range(1, 11)) for method in best)
            less = maxmatch - fixmatch
            told = f"{less.mean():+.2f} +- {less.std(ddof=1) / len(less) ** 0.5:.2f}"
            row = f"| {labels} labels, {title} | {fixmatch.mean():.2f} | **{maxmatch.mean():.2f}** | {told} |"
            assert row in page
            if (labels, chosen) == (20, best):
                assert (
                    f"searched alike, ten other seeds | **{maxmatch.mean():.2f}** | {fixmatch.mean():.2f}, within"
                    in readme
                )


def test_the_errors_on_a_folder_are_those_of_the_record():
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs" / "results.md").read_text()
    means = {}
    for record, beside, best in (
        ("pictures", "maxmatch", "chosen"),
        ("photographs", "maxmatch", None),
        ("photographs-published", "fixmatch", "chosen"),
    ):
        results = json.loads((ROOT / "benchmarks" / "records" / f"{record}.json").read_text())["results"]
        for name in ("chosen", beside, "supervised"):
            errors = [run["error"]["last"] for run in results[name]]
            robust = np.mean([run["robust_error"] for run in results[name]])
            means[record, name] = np.mean(errors)
            mark = "**" if name == best else ""
            each = " | ".join(f"{error:.2f}" for error in errors)
            row = f"| {each} | {mark}{np.mean(errors):.2f}{mark} | {robust:.1f} |"
            assert f"{row} {results[name][1]['seconds_total']:.0f} |" in page, (record, name)
    clothes, photographs, published = (
        [mean for (of, _), mean in means.items() if of == record]
        for record in ("pictures", "photographs", "photographs-published")
    )
    assert "| **{:.1f}** | (the labels alone: {:.1f}) |".format(*clothes[::2]) in readme
    told = "| {:.1f}: **no gain yet** | (the labels alone, in a fifth of the time: {:.1f}) |"
    assert told.format(*photographs[::2]) in readme
    assert "| **{:.2f}** | {:.2f} (the labels alone: {:.2f}) |".format(*published) in readme
    chosen, fixmatch, supervised = published
    helps = f"by {supervised - fixmatch:.1f} points with one view, by {supervised - chosen:.1f} with the worst of three"
    assert helps in page
    assert f"end at {chosen:.2f} % error instead of {photographs[0]:.1f} (" in readme
    guide = (ROOT / "docs" / "your_pictures.md").read_text()
    assert f"from {photographs[0]:.1f} % to {chosen:.2f}, in four minutes" in guide


def test_what_a_start_from_published_weights_needs_is_that_of_the_record():
    page = (ROOT / "docs" / "results.md").read_text().partition("**What such a start needs**")[2]
    results = json.loads((ROOT / "benchmarks" / "records" / "finetuning.json").read_text())["results"]
    shown = re.findall(r"^\| (.*) \| (\d\S+) \| (\S+) \| (\S+) \|$", page.partition("## ")[0], re.MULTILINE)
    assert len(shown) == len(results)
    for (name, *numbers), (arm, found) in zip(shown, results.items(), strict=True):
        errors = [result["error"]["last"] for result in found]
        wanted = [f"{error:.2f}" for error in (*errors, np.mean(errors))]
        assert [number.strip("*") for number in numbers] == wanted, (name, arm)
        assert {result["steps"] for result in found} == {900 if "900" in name else 300}, name
    alone = {result["method"] for arm, found in list(results.items())[:6] for result in found}
    assert (alone, results["MaxMatch, as chosen"][0]["method"]) == ({"supervised"}, "maxmatch")


def test_links_lead_to_files_and_headings_that_are_there():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
    wrong = []
    for source in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", source.read_text()):
            if "://" in link:
                continue
            path, _, heading = link.partition("#")
            there = (source.parent / path).resolve() if path else source
            if not there.exists() or (heading and heading not in _headings(there)):
                wrong.append(f"{source.relative_to(ROOT)}: {link}")
    assert not wrong


def _headings(page):
    """The names by which a page's headings are linked to, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_the_steps_beside_busy_programs_are_those_of_the_record():
    page = (ROOT / "docs" / "speed.md").read_text()
    rows = json.loads((ROOT / "benchmarks" / "records" / "busy.json").read_text())["results"]
    for name, programs in (("alone", 0), ("beside two busy programs", 2)):
        speeds = [f"{row['steps_per_second']:.1f}" for row in rows if row["beside"] == programs]
        assert f"| {name} | {' | '.join(speeds)} |" in page


def test_the_table_of_the_worst_case_is_that_of_its_records():
    text = (ROOT / "benchmarks" / "README.md").read_text()
    table = text.partition("### CIFAR-10 with 250 labels")[2].partition("What it says")[0]
    shown = [line.split(" | ")[1:] for line in table.splitlines() if re.match(r"\| .*\d+\.\d\d \|", line)]
    records = ROOT / "benchmarks" / "records"
    runs = json.loads((records / "cifar10-250-worst-case" / "benchmark.json").read_text())["runs"]
    errors = [[f"{run['last']:.2f}", f"{run['robust_error']:.2f}"] for run in runs]
    assert [row[:2] for row in shown] == errors
    timed = json.loads((records / "worst-case.json").read_text())["results"]["rows"]
    times = {row["method"]: np.mean(row["milliseconds"]) for row in timed}
    for run, row in zip(runs, shown, strict=True):
        if run["method"] in times:
            each = times[run["method"]]
            assert row[2:] == [f"{1e3 / each:.1f}", f"{each / times['fixmatch']:.2f} |"], run["method"]


def test_the_tables_of_the_search_are_those_of_their_records():
    """Each error of docs/search.md, by its steps; on digits by the method, its folds and the record it names."""
    text = (ROOT / "docs" / "search.md").read_text()
    records = ROOT / "benchmarks" / "records"
    runs = json.loads((records / "search-cifar10-250.json").read_text())
    known = {(f"{run['result']['steps']:,}", f"{run['result']['error']['last']:.2f}") for run in runs}
    settings = text.partition("## Settings")[2].partition("## Who")[0]
    rows = re.findall(r"^\| .* \| ([\d,]+) \|(.*)\|$", settings, re.MULTILINE)
    shown = {(steps, error) for steps, errors in rows for error in re.findall(r"\d+\.\d\d", errors)}
    assert len(shown) > 45
    assert shown <= known
    part = settings.partition("| FixMatch, one view")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| .* \| ([\d,]+) \| (\S+) \| (\S+) \| (\S+) \|$", part, re.MULTILINE)
    found = [run["result"] for run in runs if run["result"]["method"] == "fixmatch"]
    numbers = ("{0[steps]:,} {0[error][last]:.2f} {1:.1f} {2:.1f}".format(
        result, 100 * result["mask_rate"], 100 * (1 - result["pseudo_label_accuracy"])
    ) for result in found)  # fmt: skip
    assert sorted(map(" ".join, rows)) == sorted(numbers)  # every run of FixMatch has its row
    digits = text.partition("## On digits")[2]
    rows = re.findall(r"^\| .* \| `(\S+)` \| (\S+) \|(.*)\| (\S+) \| .*/(digits\S+)/", digits, re.MULTILINE)
    assert len(rows) > 15
    first = _by_fold(records / rows[0][4], rows[0][0])["last"]
    for method, error, difference, robust, folder in rows:
        found = _by_fold(records / folder, method)
        assert (error, robust) == (f"{found['last'].mean():.2f}", f"{found['robust_error'].mean():.1f}"), method
        more = found["last"] - first
        told = f" {more.mean():+.2f} +- {more.std(ddof=1) / len(more) ** 0.5:.2f} "
        assert difference == told or (method == rows[0][0] and not difference.strip()), method


def test_the_changes_tried_with_both_methods_are_those_of_the_records():
    records = ROOT / "benchmarks" / "records"
    runs = json.loads((records / "search-cifar10-250.json").read_text())
    errors = {run["name"]: f"{run['result']['error']['last']:.2f}" for run in runs}
    again = _by_fold(records / "cifar10-250-worst-case", "freematch:k=3:over=worst")["last"]
    errors["again"] = f"{again.item():.2f}"
    part = (ROOT / "docs" / "search.md").read_text().partition("| change | worst of three")[2].partition("\n\n")[0]
    rows = [re.findall(r"\d+\.\d\d", line) + line.count("not run") * [None] for line in part.splitlines()[2:]]
    names = """
        free3-lr.03 again free3-lr.02 fix.95-lr.03; free3-lr.02 fix.95-lr.02; free3-lr.05 fix-lr.05; free3-lr.02-momentum.95 fix-momentum.95;
        free3-lr.02-n1 fix-n1; usb fix-usb; align fix-align; soft fix-soft; 128+896 fix-128+896; whitened fix-whitened;
        free3-lr.02-linear fix-linear; wd.005 fix-decay.005; 32+224 fix-32+224;
        flex soft3-lr.02 fix-threshold.9 fix-threshold.8 fix-threshold.7 fix-threshold.8-align
    """
    assert rows == [[errors.get(name) for name in row.split()] for row in names.split(";")]
    asked = (ROOT / "benchmarks" / "plans" / "cifar10-250-fixmatch.txt").read_text()
    assert all(f"\n{name}: " in asked for name in ("fix-linear", "fix-decay.005", "fix-32+224"))


def test_the_errors_by_learning_rate_are_those_of_the_records():
    """Means of the evaluations within 2,100 steps of where a cosine from .02 has come down to the rate."""
    text, records = (ROOT / "docs" / "search.md").read_text(), ROOT / "benchmarks" / "records"
    table = text.partition("when the learning rate has come down to")[2].partition("(Means of")[0]
    rates = [float(rate) for rate in re.findall(r" (\.\d+) ", table.splitlines()[0].replace("|", " "))]
    assert len(rates) == 8
    for steps, place in (
        (36_000, "cifar10-250-finals-lr.02/worst-3-3"),
        (52_000, "cifar10-250-finals-52000/worst-3-3"),
        (200_000, "cifar10-250-alone/fast-10min-200000"),
    ):
        lines = gzip.decompress((records / f"{place}.jsonl.gz").read_bytes()).splitlines()
        logged = [line for line in map(json.loads, lines) if line["kind"] == "evaluate"]
        shown = re.search(rf"^\| {steps:,} steps .*?\) \| (.*) \|$", table, re.MULTILINE)[1].split(" | ")
        places = [steps * np.arccos(2 * rate / 0.02 - 1) / np.pi for rate in rates]
        near = [[line["error"] for line in logged if abs(line["step"] - at) <= 2100] for at in places]
        assert [float(error) for error in shown[:-1]] == pytest.approx([np.mean(e) for e in near], abs=0.051), steps
        assert shown[-1] == f"{logged[-1]['error']:.2f}"


def test_what_is_said_of_averages_and_of_learned_images_is_that_of_the_records():
    text, records = (ROOT / "docs" / "search.md").read_text(), ROOT / "benchmarks" / "records"
    part = text.partition("## Averages and statistics")[2].partition("## Images that are learned")[0]
    found = json.loads((records / "averages-floor-70000.json").read_text())["results"]
    assert [f"step {row['step']:,}" for row in found] == re.findall(r"step \d+,\d+", part.partition("|---")[0])
    names = ["average", "average, own statistics", "average, of weak views", "net, own statistics"]
    names += ["mean of 2", "mean of 4", "mean of 8", "average, flip"]
    shown = re.findall(r"^\| .* \| (\d\S+) \| (\S+) \| (\S+) \|$", part, re.MULTILINE)
    assert shown == [tuple(f"{row[name]:.2f}" for row in found) for name in names]
    part = text.partition("## Images that are learned")[2]
    found = json.loads((records / "hardness-floor-70000.json").read_text())["results"]
    assert f"{found['images']:,} images" in part
    assert f"worst view of {found['learned']:.0f} %" in part
    assert f"(of all: {found['wrong']:.1f})" in part
    for line, name in (("hold of the gradient", "gradient"), ("have wrong labels", "wrong")):
        row = re.search(rf"^\| {line}.*?\| (.*) \|$", part, re.MULTILINE)[1].split(" | ")
        assert row == [f"{share[name]:.1f}" for share in found["shares"]]
    runs = json.loads((records / "search-cifar10-250.json").read_text())
    plain = next(dict(map(tuple, run["evaluations"])) for run in runs if run["name"] == "cosine.02")
    mixed = [_evaluations(records / "cifar10-250-mixed" / f"{name}.jsonl.gz") for name in ("mixed.05", "mixed.5")]
    for step, told in ((16_000, "({}, {} and {} %)"), (20_000, "{}, {} and {} %"), (28_000, "{}, {} and {} after")):
        assert told.format(*(f"{errors[step]:.1f}" for errors in (*mixed, plain))) in part, step


def test_what_is_said_of_the_long_runs_is_that_of_their_records():
    pages = {name: (ROOT / name).read_text() for name in ("README.md", "docs/results.md", "docs/speed.md")}
    records = ROOT / "benchmarks" / "records"
    places = [records / "cifar10-250-floor-200000" / f"fold-{fold}" for fold in (3, 4, 5)]
    found = [json.loads(place.with_suffix(".json").read_text()) for place in places]
    seconds = [record["seconds_by_the_clock"] for record in found]
    in_words = "--config fast-10min --steps 200000 --set train.lr_floor=0.125"  # the recipe from before it had a name
    for record, words in zip(found, (in_words, in_words, "--config fast-30min"), strict=True):
        assert f"cifar10@250 {words} " in record["command"]
    long = {"train": {"steps": 200_000, "lr_floor": 0.125}}
    assert maxmatch.compose(config="fast-30min") == maxmatch.compose(config="fast-10min", given=long)
    errors = {name: [record["result"]["error"][name] for record in found] for name in ("last", "median20")}
    ends, mean = [f"{error:.2f}" for error in errors["last"]], f"{np.mean(errors['last']):.2f}"
    short = json.loads((records / "cifar10-250-finals-52000" / "benchmark.json").read_text())["runs"]
    less = [f"{run['last'] - error:.2f}" for run, error in zip(short, errors["last"], strict=True)]
    robust = [f"{record['result']['robust_error']:.1f}" for record in found]
    assert f"**{mean}** (`fast-30min`, folds 3 to 5)" in pages["README.md"]
    assert f"**{mean}** (folds 3 to 5: {', '.join(ends)}) | {seconds[2]:,.0f} |" in pages["docs/results.md"]
    middle, middles = np.mean(errors["median20"]), [f"{error + 1e-9:.2f}" for error in errors["median20"]]
    text = " ".join(pages["docs/results.md"].split())
    assert "the three runs have {}, {} and {}, mean {:.2f}".format(*middles, middle) in text
    assert f"end {float(mean) - 5.07:.2f} above that" in text
    assert "{}, {} and {} % on folds 3 to 5".format(*ends) in pages["docs/speed.md"]
    of_all = "{}, {} and {} below `fast-10min`; mean {} +- {:.2f}, by the median of the last 20 evaluations {:.2f}."
    assert of_all.format(*less, mean, np.std(errors["last"]), middle) in pages["docs/speed.md"]
    assert "The robust error is {}, {} and {} %.".format(*robust) in pages["docs/speed.md"]
    assert f"to itself and took {seconds[2]:,.0f} s by the clock" in pages["docs/speed.md"]
    assert f"Fold 4 took {seconds[1]:,.0f}," in pages["docs/speed.md"]
    text = " ".join((ROOT / "docs" / "search.md").read_text().split())
    curves = [_evaluations(place.with_suffix(".jsonl.gz")) for place in places]
    curves.append(_evaluations(records / "cifar10-250-alone" / "fast-10min-200000.jsonl.gz"))
    assert "end at {}, {} and {} % on folds 3 to 5".format(*ends) in text
    tails = [np.mean([curve[step] for step in sorted(curve)[-10:]]) for curve in curves]
    of_tails = "are {:.2f}, {:.2f} and {:.2f} on average, where those of the run to 0 (fold 3) are {:.1f},"
    assert of_tails.format(*tails) in text
    tens = [(end - 8_000, end - 6_000, end - 4_000, end - 2_000, end) for end in range(150_000, 210_000, 10_000)]
    names = (*(f"fold {fold}, to an eighth" for fold in (3, 4, 5)), "fold 3, to 0")
    for name, curve in zip(names, curves, strict=True):
        row = " | ".join(f"{np.mean([curve[step] for step in ten]):.2f}" for ten in tens)
        assert f"| {name} | {row} |" in text


def _evaluations(path):
    lines = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    return {line["step"]: line["error"] for line in lines if line["kind"] == "evaluate"}


def _by_fold(folder, method):
    runs = json.loads((folder / "benchmark.json").read_text())["runs"]
    own = sorted((run for run in runs if run["method"] == method), key=lambda run: run["fold"])
    return {name: np.array([run[name] for run in own]) for name in ("last", "robust_error")}

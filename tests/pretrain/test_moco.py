"""MoCo v2: the loss against NumPy, the queue over many steps, the momentum encoder, and the run around them."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import maxmatch
from maxmatch.cli import run as command
from maxmatch.errors import Interrupted, UsageError
from maxmatch.methods import make_method, method_values
from maxmatch.nets import features, make_net, num_features
from maxmatch.nets.batchnorm import set_mode
from maxmatch.nets.model_file import load_model
from maxmatch.pretrain import moco
from maxmatch.pretrain.moco import MoCo, Queue, info_nce
from maxmatch.train.epochs import settle_epochs
from maxmatch.train.fit import begin, fit
from maxmatch.train.recipe import resolve
from maxmatch.train.recipes import compose
from maxmatch.train.step import Step


def recipe_of(**sections):
    train = {"steps": 9, "batch": 8, "checkpoint_every": 4, "log_every": 3, "threads": 1, **sections.pop("train", {})}
    given = {"train": train, "method": {"queue": 20, "dimension": 16, **sections.pop("method", {})}, **sections}
    return compose("digits", "moco", given=given)


def settled(**sections):
    return resolve(recipe_of(**sections), device="cpu", threads=1)


def softmax_loss(q, k, queue, temperature):
    """-log of the share of the right key, by NumPy, one query after the other."""
    losses = []
    for query, key in zip(q, k, strict=True):
        right, wrong = np.exp(query @ key / temperature), np.exp(queue @ query / temperature).sum()
        losses.append(-np.log(right / (right + wrong)))
    return np.array(losses)


def unit(points):
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def test_the_loss_by_numpy():
    rng = np.random.default_rng(0)
    q, k, queue = (unit(rng.normal(size=shape)) for shape in ((6, 8), (6, 8), (11, 8)))
    for temperature in (0.07, 0.2, 1.0):
        found = info_nce(*(torch.from_numpy(part) for part in (q, k, queue)), temperature)
        np.testing.assert_allclose(found.numpy(), softmax_loss(q, k, queue, temperature), rtol=1e-12)


def test_points_of_half_precision_are_compared_in_float32():
    points = torch.randn(5, 128, generator=torch.Generator().manual_seed(0))
    half = moco.unit(points.bfloat16())
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.norm(dim=1), torch.ones(5), atol=1e-6, rtol=0)
    assert moco.unit(points.double()).dtype == torch.float64


def test_the_queue_replaces_the_oldest_and_wraps_around():
    queue, oracle = Queue(7, 1), []
    begun = queue.keys.clone()
    torch.testing.assert_close(begun.norm(dim=1), torch.ones(7))
    for number in range(10):
        keys = torch.arange(3.0)[:, None] + 3 * number + 100
        queue.push(keys)
        oracle += keys[:, 0].tolist()
        slots = begun[:, 0].tolist()
        for place, value in enumerate(oracle):  # key n lies in slot n modulo 7 until key n + 7 comes
            slots[place % 7] = value
        assert queue.keys[:, 0].tolist() == slots
        assert queue.next.item() == len(oracle) % 7
    queue.push(torch.arange(9.0)[:, None])  # more than it holds: the last seven
    assert sorted(queue.keys[:, 0].tolist()) == [2, 3, 4, 5, 6, 7, 8]


def test_steps_of_a_run_by_hand(tmp_path):
    """Query and key views, keys from the average, the loss, the queue's content and the momentum, step by step."""
    recipe = settled(train={"precision": "float64", "ema_decay": 0.9})
    step = begin(recipe, tmp_path, quiet=True).step
    channels = step.batches.shape[0]
    queue = step.state.keys.double().numpy().copy()
    average = {name: value.clone() for name, value in step.average.net.state_dict().items()}
    place = 0
    for t in range(4):  # 32 keys through a queue of 20
        net = make_net("wrn-10-1", 1, channels, momentum=0.1, projection=16).double()
        encoder = make_net("wrn-10-1", 1, channels, projection=16).double()
        net.load_state_dict(step.net.state_dict())
        encoder.load_state_dict(average)
        step.rows.load(t)
        batch, _ = step.batches(step.rows.row, 2)
        assert batch.x.shape == (0, *step.batches.shape)
        assert not torch.equal(batch.strong[0], batch.strong[1])
        set_mode(encoder, "score")  # statistics of the company: 8 images in 4, every fourth of the plan's permutation
        order = np.argsort(batch.mix.order[:8].numpy(), kind="stable")
        with torch.no_grad():
            queries, keys = (step.run.pixels(view) for view in batch.strong)
            q, k = unit(net(queries).numpy()), np.empty((8, 16))
            for company in (order[first::4] for first in range(4)):
                k[company] = unit(encoder(keys[torch.from_numpy(company)]).numpy())
        expected = softmax_loss(q, k, queue, 0.2).mean()
        before = step.health.sums["terms"].item()
        step(t)
        assert step.health.sums["terms"].item() - before == pytest.approx(expected, rel=1e-6)
        for key in k:
            queue[place % 20] = key
            place += 1
        np.testing.assert_allclose(step.state.keys.numpy(), queue, atol=1e-6)
        for name, value in step.net.state_dict().items():
            moved = "running" not in name
            average[name] = 0.9 * average[name] + 0.1 * value if moved else value.clone()
            torch.testing.assert_close(step.average.net.state_dict()[name], average[name])


def cut_off(monkeypatch, recipe, folder, at):
    """Begin a run that dies at a step."""
    advance = Step.__call__

    def dies(self, t):
        if t == at:
            raise KeyboardInterrupt
        advance(self, t)

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", dies)
        with pytest.raises(KeyboardInterrupt):
            fit(recipe, folder, quiet=True)


@pytest.mark.parametrize("at", [2, 6])
def test_a_run_that_died_goes_on_as_if_it_had_not(tmp_path, monkeypatch, at):
    recipe = recipe_of()
    fit(recipe, tmp_path / "whole", quiet=True)
    cut_off(monkeypatch, recipe, tmp_path / "cut", at)
    fit(recipe, tmp_path / "cut", resume=True, quiet=True)
    for name in ("model.safetensors", "initial.safetensors", "checkpoint/000000009.safetensors"):
        whole, cut = (load_file(tmp_path / folder / name) for folder in ("whole", "cut"))
        assert whole.keys() == cut.keys()
        assert all(torch.equal(whole[key], cut[key]) for key in whole), name
    assert {"state.keys", "state.next"} <= whole.keys()
    lines = [(tmp_path / folder / "metrics.jsonl").read_text() for folder in ("whole", "cut")]
    assert lines[0] == lines[1]
    assert json.loads(lines[0].splitlines()[0])["contrastive_loss"] > 0


def test_a_signal_says_how_to_go_on(tmp_path, monkeypatch):
    advance = Step.__call__

    def signalled(self, t):
        advance(self, t)
        if t == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Step, "__call__", signalled)
    with pytest.raises(Interrupted, match="stopped after step 4 of 9, .* type maxmatch pretrain --resume --out"):
        fit(recipe_of(), tmp_path, quiet=True)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "p"
    fit(recipe_of(), folder, quiet=True)
    return folder


@pytest.mark.parametrize("method", ["supervised", "maxmatch"])
def test_init_loads_all_but_the_head_into_net_and_average(pretrained, tmp_path, tiny, method):
    options = {"teacher": "eman"} if method == "maxmatch" else {}
    made = {}
    for name, init in (("fresh", None), ("from", str(pretrained))):
        recipe = resolve(tiny(method, train={"init": init}, method=options), device="cpu", threads=1)
        made[name] = begin(recipe, tmp_path / name, quiet=True).step
    weights, fresh = load_file(pretrained / "model.safetensors"), made["fresh"].net.state_dict()
    encoder = {name for name in weights if not name.startswith("head.")}
    assert encoder == {name for name in fresh if not name.startswith("head.")}
    assert any("running_mean" in name for name in encoder)
    for net in (made["from"].net, made["from"].average.net):
        for name, value in net.state_dict().items():
            assert torch.equal(value, weights[name] if name in encoder else torch.zeros_like(value)), name
    assert not all(torch.equal(fresh[name], weights[name]) for name in encoder)
    assert all(p.requires_grad for p in made["from"].net.parameters())


def test_an_unfinished_pretraining_gives_its_query_encoder(pretrained, tmp_path, tiny):
    shutil.copytree(pretrained, tmp_path / "p")
    (tmp_path / "p" / "model.safetensors").unlink()
    recipe = resolve(tiny("maxmatch", train={"init": str(tmp_path / "p")}), device="cpu", threads=1)
    made = begin(recipe, tmp_path / "run", quiet=True).step.net.state_dict()
    weights = load_file(pretrained / "model.safetensors")
    assert all(torch.equal(made[name], t) for name, t in weights.items() if not name.startswith("head."))


def test_the_query_encoder_is_saved_and_knows_no_classes(pretrained):
    net, info = load_model(pretrained / "model.safetensors")
    assert info.classes == ()
    assert info.net["projection"] == 16
    assert json.loads((pretrained / "result.json").read_text())["k"] is None  # two views, of which none is chosen
    held = load_file(pretrained / "checkpoint" / "000000009.safetensors")
    assert all(torch.equal(value, held[f"net.{name}"]) for name, value in net.state_dict().items())
    assert not torch.equal(held["net.head.2.weight"], held["average.head.2.weight"])
    with pytest.raises(UsageError, match="is a pretraining and knows no classes: type maxmatch train DATA --init"):
        maxmatch.load(pretrained)


def test_a_linear_probe_on_digits_beats_a_random_encoder(tmp_path, monkeypatch):
    """Seen: 8.0 % error of the random encoder, 4.0 % after 150 steps of the recipe (5.6 % with the paper's crops)."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from linear_probe import probe_error

    fit(compose("digits", "moco", given={"train": {"steps": 150, "threads": 1}}), tmp_path, quiet=True)
    random, learned = (probe_error(tmp_path / f"{name}.safetensors") for name in ("initial", "model"))
    assert learned < 0.6 * random


@pytest.mark.parametrize("name", ["wrn-10-1", "plain-conv", "resnet18", "timm:resnet10t", "pretrain.own_net:Mine"])
def test_every_kind_of_net_gets_a_projection(name):
    channels = 3
    net = make_net(name, 1, channels, size=(32, 32), projection=16)
    assert net(torch.zeros(2, channels, 32, 32)).shape == (2, 16)
    assert num_features(net) == features(net, torch.zeros(2, channels, 32, 32)).shape[1]


def test_a_net_without_a_linear_head_is_refused():
    with pytest.raises(UsageError, match="has no linear head to replace"):
        make_net("pretrain.own_net:Headless", 1, 3, projection=16)


def test_values():
    assert make_method(method_values(MoCo(queue=9))) == MoCo(queue=9)
    assert method_values(MoCo())["name"] == "moco"
    assert (MoCo().temperature, MoCo().queue, MoCo().dimension) == (0.2, 65_536, 128)
    for options, message in (
        ({"temperature": 0}, "temperature = 0"),
        ({"queue": 0}, "queue = 0: a whole number of at least 1"),
        ({"companies": 0}, "companies = 0: a whole number of at least 1"),
    ):
        with pytest.raises(UsageError, match=message):
            MoCo(**options)
    imagenet = compose("imagenet", "moco")
    assert (imagenet.net.name, imagenet.train.batch, imagenet.train.epochs) == ("resnet50", 256, 200)
    assert settle_epochs(resolve(imagenet, device="cpu", threads=1), 1_281_167).train.steps == 200 * 5004
    short = compose("imagenet", "moco", given={"train": {"steps": 40}}).train
    assert (short.epochs, short.steps) == (None, 40)
    assert (imagenet.augment.policy, imagenet.augment.scale, imagenet.method) == ("moco", (0.2, 1.0), MoCo())


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Pictures of several sizes without any label, some in a folder below."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number in range(12):
        place = root / ("more" if number % 3 else ".") / f"{number}.png"
        place.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40 + number, 60, 3), dtype=np.uint8)).save(place)
    return root


SMALL = ["--steps", "3", "--set", "train.batch=4", "--set", "train.threads=1", "--set", "method.queue=16"]


def call(capsys, *words):
    code = command([str(word) for word in words])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def test_a_pretraining_in_epochs_goes_on_in_epochs(photos, tmp_path, capsys):
    """12 pictures by 4 are 3 steps an epoch."""
    words = ["pretrain", photos, *SMALL[2:], "--epochs", "2", "--out", tmp_path / "a"]
    code, out, err = call(capsys, *words)
    assert code == 0, err
    assert json.loads(out)["steps"] == 6
    code, _, err = call(capsys, "pretrain", "--resume", "--out", tmp_path / "a", "--steps", "9")
    assert (code, "counts in epochs: type --epochs" in err) == (2, True)
    code, out, err = call(capsys, "pretrain", "--resume", "--out", tmp_path / "a", "--epochs", "3")
    assert code == 0, err
    assert json.loads(out)["steps"] == 9


def test_a_folder_without_labels_streamed_or_kept_gives_the_same(photos, tmp_path, capsys):
    for name, resident in (("kept", "true"), ("streamed", "false")):
        code, out, err = call(
            capsys, "pretrain", photos, *SMALL, "--set", f"data.resident={resident}", "--out", tmp_path / name
        )
        assert code == 0, err
        assert "12 pictures to learn from, none for a test" in err
        result = json.loads(out)
        assert (result["labels"], result["error"]["last"]) == (0, None)
    kept, streamed = (load_file(tmp_path / name / "model.safetensors") for name in ("kept", "streamed"))
    assert all(torch.equal(kept[name], streamed[name]) for name in kept)


def test_the_command_its_progress_and_the_training_after_it(tmp_path, capsys):
    out = tmp_path / "p"
    code, printed, err = call(capsys, "pretrain", "digits", *SMALL, "--set", "train.log_every=1", "--out", out)
    assert code == 0, err
    assert "digits moco 2/3 contrastive loss" in err
    assert f"Next: maxmatch train DATA --init {out}" in err
    assert json.loads(printed)["contrastive_loss"] > 0
    code, _, err = call(
        capsys, "train", "digits@20", "--method", "supervised", "--init", out, "--steps", 2, "--out", tmp_path / "f"
    )
    assert code == 0, err
    assert "error" in err
    code, _, err = call(capsys, "pretrain", "--resume", "--out", out)  # a finished run says what it was
    assert code == 0, err
    code, _, err = call(capsys, "pretrain", "--resume", "--out", tmp_path / "f")
    assert code == 2
    assert "is no pretraining: type maxmatch train --resume" in err
    code, _, err = call(capsys, "evaluate", out)
    assert code == 2
    assert err.count("\n") == 1
    code, _, err = call(capsys, "train", "digits@20", "--init", out, "--set", "net.name=plain-conv", "--out", "x")
    assert code == 2
    assert "this run has plain-conv" in err
    assert not Path("x").exists()
    code, _, err = call(
        capsys, "pretrain", "digits", *SMALL, "--init", out, "--set", "method.dimension=9", "--out", "x"
    )
    assert code == 2
    assert "a projection to 64 numbers, 1 channels; this run has wrn-10-1, a projection to 9 numbers" in err
    code, _, err = call(capsys, "pretrain", "digits", *SMALL, "--init", tmp_path / "f", "--out", "x")
    assert code == 2
    assert "wrn-10-1, 10 classes, 1 channels; this run has wrn-10-1, a projection to" in err


def test_a_restart_by_torchrun_goes_on_with_the_run_even_with_force(tmp_path, monkeypatch, capsys):
    words = [
        "pretrain",
        "digits",
        "--out",
        str(tmp_path / "a"),
        "--steps",
        "4",
        "--device",
        "cpu",
        "--set",
        "train.batch=8",
    ]
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    assert command(words) == 0
    before = (tmp_path / "a" / "model.safetensors").stat().st_mtime_ns
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    capsys.readouterr()
    assert command([*words, "--force"]) == 0
    steps = [json.loads(line)["step"] for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert len(steps) == len(set(steps))  # nothing was trained twice
    assert json.loads((tmp_path / "a" / "result.json").read_text())["steps"] == 4
    assert (tmp_path / "a" / "checkpoint").exists()
    assert (tmp_path / "a" / "initial.safetensors").stat().st_mtime_ns < before

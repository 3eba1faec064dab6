"""Exported files: the resize inside against PIL, the whole against the classifier, alone in a process without torch."""

from __future__ import annotations

import builtins
import json
import logging
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import nn

import maxmatch
from maxmatch import export
from maxmatch.cli import run as command
from maxmatch.data import fetch, store
from maxmatch.data.picture_file import fit_picture
from maxmatch.errors import UsageError, UserError
from maxmatch.evaluate.classifier import Classifier
from maxmatch.export import Whole, compare, export_run, real_pictures, to_onnx
from maxmatch.nets.preprocess import Preprocessing

CHINA, FLOWER = (np.array(photograph, np.uint8) for photograph in load_sample_images().images)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    given = {"net": {"name": "wrn-10-1"}, "train": {"steps": 20, "batch": 8, "ratio": 2, "threads": 1}}
    folder = tmp_path_factory.mktemp("export") / "run"
    maxmatch.fit(maxmatch.compose("digits", "fixmatch", given=given), folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def written(run) -> Path:
    """model.onnx of the run, by the command."""
    assert command(["export", str(run), str(run.parent / "model.onnx")]) == 0
    return run.parent / "model.onnx"


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 32, 32), (3, 24, 40), (1, 96, 50)])
def test_the_resize_inside_is_pil_s(shape):
    """Oracle: ImageOps.fit through PIL's bicubic filter, which rounds twice in fixed point."""
    whole = Whole(nn.Identity(), Preprocessing(*shape))
    noise = np.random.default_rng(0).integers(0, 256, (37, 53, 3), np.uint8)
    for picture in (CHINA, FLOWER[:300, :170], CHINA[:20, :31], FLOWER[100:132, 90:122], CHINA[50:58, 50:58], noise):
        expected = fit_picture(Image.fromarray(picture).convert("RGB" if shape[0] == 3 else "L"), shape).int()
        found = whole.fitted(torch.from_numpy(picture.copy())[None])[0].int()
        assert found.shape == shape
        difference = (found - expected).abs()
        assert difference.max() <= 2
        if picture.shape[1] > picture.shape[0]:  # others are scaled by columns first in newer versions of PIL
            assert difference.max() <= 1
            assert (difference > 0).float().mean() < 0.01


def test_onnx_s_own_resize_would_be_further_off():
    """Why the file has no Resize: the operator with PIL's filter, on the middle of two photographs."""
    import onnxruntime
    from onnx import TensorProto, helper

    options = {"mode": "cubic", "antialias": 1, "cubic_coeff_a": -0.5, "exclude_outside": 1}
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "", "size"], ["y"], **options)], "resize",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "H", "W"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("size", TensorProto.INT64, [4], [1, 3, 32, 32])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for picture in (CHINA[:400, :400], FLOWER[:200, :200]):
        pixels = torch.from_numpy(picture.copy()).permute(2, 0, 1)
        expected = fit_picture(Image.fromarray(picture), (3, 32, 32)).int()
        theirs = torch.from_numpy(session.run(None, {"x": pixels[None].float().numpy()})[0][0])
        ours = Whole(nn.Identity(), Preprocessing(3, 32, 32)).fitted(torch.from_numpy(picture.copy())[None])[0].int()
        wrong = [(found != expected).float().mean() for found in (ours, theirs.add(0.5).floor().clamp(0, 255).int())]
        assert wrong[0] < 0.01 < 0.03 < wrong[1]


def test_the_file_is_run_by_onnxruntime_alone(run, written):
    """In a process that has no torch, on a photograph, on a small part of one and on digits in their own size."""
    script = (
        "import sys, json, numpy, onnxruntime\n"
        "session = onnxruntime.InferenceSession(sys.argv[1])\n"
        "given, found = numpy.load(sys.argv[2]), {}\n"
        "for name in given.files: found[name] = session.run(None, {'images': given[name]})[0]\n"
        "numpy.savez(sys.argv[3], **found)\n"
        "meta = session.get_modelmeta().custom_metadata_map\n"
        "ports = [[p.name, p.type, p.shape] for p in (*session.get_inputs(), *session.get_outputs())]\n"
        "print(json.dumps({'torch': 'torch' in sys.modules, 'meta': meta, 'ports': ports}))\n"
    )
    digits = maxmatch.load_images("digits").test_x[:20]
    pictures = {
        "photograph": CHINA[None],
        "parts": np.stack([CHINA[:60, :41], FLOWER[200:260, 300:341]]),
        "digits": digits.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy(),
    }
    np.savez(run.parent / "given.npz", **pictures)
    command_line = [sys.executable, "-c", script, written, run.parent / "given.npz", run.parent / "found.npz"]
    done = subprocess.run(command_line, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
    told = json.loads(done.stdout)
    assert told["torch"] is False
    assert told["ports"] == [
        ["images", "tensor(uint8)", ["N", "H", "W", 3]],
        ["probabilities", "tensor(float)", ["N", 10]],
    ]
    meta = {name: json.loads(value) for name, value in told["meta"].items()}
    assert meta["classes"] == list("0123456789")
    assert meta["preprocessing"] == {"channels": 1, "height": 8, "width": 8, "mean": 0.5, "std": 0.5, "middle": 1.0}
    assert meta["net"] == "wrn-10-1"
    found = np.load(run.parent / "found.npz")
    classifier = maxmatch.load(run)
    np.testing.assert_allclose(found["digits"], classifier.predict_proba(digits), atol=1e-5)
    for name in ("photograph", "parts"):
        files = []
        for number, picture in enumerate(pictures[name]):
            files.append(run.parent / f"{name}{number}.png")
            Image.fromarray(picture).save(files[-1])
        np.testing.assert_allclose(found[name], classifier.predict_proba(files), atol=0.02)


def test_the_code_of_the_guide_says_what_prediction_says(run, written, tmp_path, monkeypatch):
    """As it stands there, on pictures that are turned, transparent, with a palette, grey and in CMYK."""
    guide = (Path(__file__).parents[1] / "docs" / "your_pictures.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert len(code.splitlines()) <= 12
    shutil.copy(written, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    classifier = maxmatch.load(run)
    turn = Image.Exif()
    turn[0x0112] = 6  # to be turned by 90 degrees to the right
    clear = Image.fromarray(FLOWER).convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    palette = Image.fromarray(FLOWER).quantize(4)
    most = int(np.bincount(np.array(palette).ravel()).argmax())
    kinds = [
        (Image.fromarray(CHINA), "PNG", {"exif": turn}),
        (clear, "PNG", {}),
        (clear, "PNG", {"exif": turn}),
        (palette, "PNG", {"transparency": most}),
        (Image.fromarray(FLOWER).convert("L"), "PNG", {}),
        (Image.fromarray(CHINA).convert("CMYK"), "JPEG", {}),
    ]
    careless = []
    for picture, kind, options in kinds:
        picture.save(tmp_path / "picture.png", format=kind, **options)
        names: dict[str, object] = {}
        exec(code, names)
        (expected,) = classifier.predict_proba([tmp_path / "picture.png"])
        np.testing.assert_allclose(names["probabilities"], expected, atol=0.02)
        assert names["label"] == classifier.classes[expected.argmax()]
        assert names["confidence"] == names["probabilities"].max()
        session, pixels = names["session"], np.array(picture.convert("RGB"))
        careless.append(abs(session.run(None, {"images": pixels[None]})[0][0] - expected).max())
    assert min(careless[:4]) > 0.1  # what the lines about EXIF and white are for


def test_the_onnx_file_is_a_sound_model(written):
    import onnx

    onnx.checker.check_model(onnx.load(written), full_check=True)


def test_torch_export_gives_the_same(run, capsys):
    path = run.parent / "model.pt2"
    assert command(["export", str(run), str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}\n"
    assert "agrees with torch on 35 real images of 5 sizes" in err
    extra = {"classes": ""}
    program = torch.export.load(path, extra_files=extra).module()
    assert json.loads(extra["classes"]) == list("0123456789")
    digits = maxmatch.load_images("digits").test_x[:5]
    found = program(digits.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).contiguous()).detach().numpy()
    np.testing.assert_allclose(found, maxmatch.load(run).predict_proba(digits), atol=1e-5)
    assert program(torch.from_numpy(CHINA[None, :100, :30].copy())).shape == (1, 10)


def test_places_may_be_words(run):
    agreed = export_run(str(run), str(run.parent / "words.pt2"))
    assert agreed == export_run(run, run.parent / "path.pt2")
    assert (run.parent / "words.pt2").exists()


def test_a_net_from_elsewhere_in_colour_is_exported_too(tmp_path):
    import onnxruntime

    from maxmatch.nets import make_net

    torch.manual_seed(0)
    net = make_net("nets.test_foreign:Own", 4, 3, size=(32, 32)).eval()
    classifier = Classifier(net, tuple("abcd"), Preprocessing(3, 32, 32))
    content, program = to_onnx(classifier, "nets.test_foreign:Own")
    found = compare(classifier, program, [CHINA[None], np.stack([FLOWER[:64, :64], CHINA[:64, :64]])])
    assert found.images == 3
    assert found.sizes == 2
    assert found.program < 1e-5
    assert found.picture < 0.01
    assert onnxruntime.InferenceSession(content).get_outputs()[0].shape == ["N", 4]


@pytest.mark.parametrize("wrong", [lambda p: p + 2e-4, lambda p: p * np.nan, lambda p: p[:, ::-1]])
def test_a_file_that_disagrees_is_not_written(run, tmp_path, monkeypatch, wrong):
    classifier = maxmatch.load(run)
    whole = export._whole(classifier)

    def made(*_):
        return b"content", lambda images: wrong(whole(torch.from_numpy(images)).detach().double().numpy())

    monkeypatch.setattr(export, "to_onnx", made)
    with pytest.raises(UserError, match=r"model.onnx is not written: its probabilities differ from torch's") as caught:
        export_run(run, tmp_path / "model.onnx")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_sees_other_pictures_than_prediction_is_not_written(run, tmp_path, monkeypatch):
    """The program agrees with torch, but both have another resize than PIL's."""
    monkeypatch.setattr(export, "fit_picture", lambda *picture: 255 - fit_picture(*picture))
    with pytest.raises(UserError, match=r"model.pt2 is not written: .* where PIL resizes \(at most 0.02\)"):
        export_run(run, tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fails", [False, True])
def test_exporting_leaves_the_log_of_others_as_it_was(fails):
    before = logging.root.manager.disable
    with suppress(ZeroDivisionError), export._quiet():
        assert logging.root.manager.disable == logging.WARNING
        if fails:
            raise ZeroDivisionError
    assert logging.root.manager.disable == before


def test_what_can_t_be_followed_is_one_line(run, tmp_path, monkeypatch):
    class Moody(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x) if x.sum().item() > 0 else -self.net(x)

    whole = maxmatch.load(run)
    whole.net = Moody(whole.net)
    monkeypatch.setattr(export, "load", lambda run: whole)
    with pytest.raises(UserError, match="wrn-10-1 can't be exported") as caught:
        export_run(run, tmp_path / "model.pt2")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_without_onnx_the_line_says_what_to_install(run, tmp_path, monkeypatch):
    whole = builtins.__import__

    def without(name, *rest, **more):
        if name == "onnxruntime":
            raise ImportError(name, name=name)
        return whole(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r'onnxruntime is missing: pip install "maxmatch\[onnx\]"'):
        export_run(run, tmp_path / "model.onnx")


def test_the_method_of_the_run_need_not_be_at_hand(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    recipe = json.loads((run / "recipe.json").read_text())
    recipe["method"]["name"] = "gone.with:TheWind"
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(recipe))
    assert export_run(tmp_path / "run", tmp_path / "m.pt2").images > 16  # the run's own digits are among them


def test_the_format_is_the_one_asked_for_or_that_of_the_ending(tmp_path):
    assert export.choose_format(None, Path("a.ONNX")) == "onnx"
    assert export.choose_format("torch", Path("a.bin")) == "torch"
    with pytest.raises(UsageError, match="ends in .onnx or .pt2"):
        export.choose_format(None, Path("a.bin"))
    with pytest.raises(UsageError, match="choose from onnx, torch"):
        export.choose_format("tflite", Path("a.onnx"))
    with pytest.raises(UsageError, match="can't be written"):
        export_run(tmp_path, tmp_path / "none" / "a.onnx")


def test_real_pictures_have_several_sizes_and_the_run_s_own(run):
    found = real_pictures(run)
    assert len({batch.shape[1:3] for batch in found}) == 5
    assert (8, 8) in {batch.shape[1:3] for batch in found}
    assert all(batch.dtype == np.uint8 and batch.shape[3] == 3 for batch in found)


def trained_on(folder: Path, **data: object) -> Path:
    """A run folder, as far as it tells what its data are."""
    folder.mkdir()
    (folder / "recipe.json").write_text(json.dumps({"data": data}))
    return folder


def test_a_folder_that_holds_shards_or_nothing_has_no_pictures_to_compare(tmp_path, capsys):
    for name in ("pictures/cat", "pictures/dog", "empty"):
        (tmp_path / name).mkdir(parents=True)
    for number in range(20):
        picture = Image.fromarray(CHINA[number : number + 30, :40])
        picture.save(tmp_path / "pictures" / ("cat", "dog")[number % 2] / f"{number}.png")
    assert command(["data", "shard", str(tmp_path / "pictures"), str(tmp_path / "shards")]) == 0
    sizes = {}
    for name in ("pictures", "shards", "empty"):
        run = trained_on(tmp_path / f"run-{name}", name="folder", path=str(tmp_path / name))
        sizes[name] = [batch.shape[1:3] for batch in real_pictures(run)]
    assert sizes["shards"] == sizes["empty"] == sizes["pictures"][:-16]
    assert sizes["pictures"][-16:] == [(30, 40)] * 16


def test_no_data_are_fetched_for_a_comparison(tmp_path, monkeypatch):
    def downloads(name):
        raise AssertionError(f"{name} is fetched")

    monkeypatch.setenv("MAXMATCH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(fetch, "_fetch", lambda name, source: downloads(name))
    run = trained_on(tmp_path / "run", name="svhn", protocol="usb")
    photographs = real_pictures(run)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32), np.uint8)
    arrays = {"x": pixels[:2], "y": np.array([0, 1]), "test_x": pixels[2:], "test_y": np.array([1])}
    store.keep("svhn", arrays, "nowhere")  # but the run was trained with the extra images
    assert len(real_pictures(run)) == len(photographs)
    store.keep("svhn-extra", arrays, "nowhere")
    *others, own = real_pictures(run)
    assert len(others) == len(photographs)
    np.testing.assert_array_equal(own, pixels[2:].transpose(0, 2, 3, 1))


@pytest.mark.parametrize("size", [(300, 400), (411, 257), (256, 256), (90, 133)])
def test_the_middle_alone_is_resized_as_pil_does_it(size):
    """Oracle: Resize(256) and CenterCrop(224) through PIL's bilinear filter, in fixed point."""
    picture = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    whole = Whole(nn.Identity(), Preprocessing(3, 224, 224, middle=0.875))
    ours = whole.fitted(torch.from_numpy(picture)[None])[0].int()
    expected = fit_picture(Image.fromarray(picture), (3, 224, 224), 0.875).int()
    assert (ours - expected).abs().max() <= 1
    assert (ours - expected).abs().float().mean() < 0.01

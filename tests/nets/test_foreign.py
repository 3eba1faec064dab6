"""Nets from elsewhere, none of them downloaded: heads, channels and sizes, the features, and a run that is loaded again."""

from __future__ import annotations

import builtins
import json

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torchvision.transforms.functional import normalize

import maxmatch
from maxmatch.errors import UsageError, UserError
from maxmatch.nets import features, head_prefixes, make_net, num_features
from maxmatch.nets.batchnorm import set_mode
from maxmatch.nets.foreign import pixel_values
from maxmatch.nets.model_file import read_info
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train.fit import fit
from maxmatch.train.resume import resumed_recipe

TIMM = [("timm:test_resnet", 3, (32, 32)), ("test_efficientnet", 1, (8, 8)), ("timm:test_vit", 1, (32, 48))]


class Own(nn.Module):
    """A net of one's own, with weights under two names and what ReMixMatch asks for."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))  # the first tensor is no float
        self.body = nn.Sequential(nn.Conv2d(channels, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU())
        self.again = self.body[0]
        self.num_features = 6
        self.head = nn.Linear(6, classes)

    def forward_features(self, x):
        return self.body(x)

    def forward(self, x):
        return self.head(self.forward_features(x).mean((2, 3)))


class Bare(nn.Module):
    """A net that shows nobody its features."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.all = nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))

    def forward(self, x):
        return self.all(x)


class Stubborn(nn.Module):
    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x):
        return self.head(x)


class Mean(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()


@pytest.mark.parametrize(("name", "channels", "size"), TIMM)
def test_a_net_of_timm_gets_its_head_channels_and_size(name, channels, size):
    torch.manual_seed(0)
    net = make_net(name, 7, channels, size=size)
    set_mode(net, "eval")
    x = torch.randn(3, channels, *size)
    seen = features(net, x)
    assert seen.shape == (3, num_features(net)) == (3, net.get_classifier().in_features)
    assert net.get_classifier().out_features == 7
    torch.testing.assert_close(net.get_classifier()(seen), net(x))


def test_the_head_of_a_timm_net_may_see_more_than_its_last_map_has():
    pytest.importorskip("timm")
    net = make_net("timm:mobilenetv3_small_050", 4, 3, size=(32, 32))
    assert net.training  # it was tried on such images, and is as it was made
    set_mode(net, "eval")
    assert net.num_features < num_features(net) == features(net, torch.zeros(2, 3, 32, 32)).shape[1]


def test_a_net_whose_positions_have_a_size_gets_that_of_the_images():
    pytest.importorskip("timm")
    net = make_net("timm:vit_tiny_patch16_224", 4, 3, size=(32, 48))
    assert net(torch.zeros(2, 3, 32, 48)).shape == (2, 4)
    assert net.pos_embed.shape[1] == 2 * 3 + 1  # patches of 16 pixels, and the class


def test_the_head_is_the_last_layer_that_sees_the_features():
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    net.forward_features, net.num_features = net[:2], 8
    assert head_prefixes(net) == ("2.",)


def test_timm_s_dropout_is_the_setting():
    assert make_net("timm:test_resnet", 7, 3, dropout=0.25).drop_rate == 0.25


def test_torchvision_s_pretrained_weights_are_taken_and_the_head_replaced(monkeypatch, capsys):
    """The download is stood in for by weights made here, and by what torch prints of it."""
    from torchvision.models import ResNet18_Weights, resnet18

    torch.manual_seed(0)
    published = resnet18(weights=None)

    def download(*_, **__):
        print('Downloading: "resnet18.pth"')
        return published.state_dict()

    monkeypatch.setattr(ResNet18_Weights, "get_state_dict", download)
    net = make_net("resnet18", 7, 3, pretrained=True, size=(32, 32))
    assert capsys.readouterr() == ("", 'Downloading: "resnet18.pth"\n')  # a run's result alone is on standard output
    assert torch.equal(net.conv1.weight, published.conv1.weight)
    assert net.fc.weight.shape == (7, 512)
    assert not torch.equal(make_net("resnet18", 7, 3).conv1.weight, published.conv1.weight)


@pytest.mark.parametrize("name", ["resnet18", "timm:test_resnet", "timm:test_vit", "timm:test_mambaout"])
def test_a_new_head_on_published_weights_says_nothing_yet(name, monkeypatch):
    """A drawn one would spoil in its first steps what is learned already (docs/results.md)."""
    import timm
    from torchvision.models import ResNet18_Weights, resnet18

    whole = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda *given, pretrained, **options: whole(*given, **options))
    monkeypatch.setattr(ResNet18_Weights, "get_state_dict", lambda *_, **__: resnet18(weights=None).state_dict())
    x = torch.randn(2, 3, 64, 64)
    net = make_net(name, 7, 3, pretrained=True, size=(64, 64)).eval()
    assert not net(x).any()
    assert any(p.any() for p in net.parameters())
    assert make_net(name, 7, 3, size=(64, 64)).eval()(x).any()


def test_a_run_that_began_with_published_weights_goes_on_without_them(tiny, tmp_path, monkeypatch):
    """The download is stood in for by ones. Oracle: the run that was not interrupted."""
    import timm

    whole, reached = timm.create_model, [True]

    def create(name, pretrained, **options):
        if pretrained and not reached[0]:
            raise ConnectionError("no route to host")
        net = whole(name, pretrained=False, **options)
        if pretrained:
            nn.init.ones_(next(net.parameters()))
        return net

    monkeypatch.setattr(timm, "create_model", create)
    net = {"name": "timm:test_resnet", "pretrained": True}
    given = {"steps": 2, "checkpoint_every": 1, "evaluate_every": 2, "schedule": "constant", "ema_decay": 0}
    recipe = tiny("fixmatch", net=net, train=given)
    maxmatch.fit(recipe, tmp_path / "whole", quiet=True)
    assert (load_file(tmp_path / "whole" / "initial.safetensors")["conv1.0.weight"] == 1).all()
    maxmatch.fit(tiny("fixmatch", net=net, train={**given, "steps": 1}), tmp_path / "cut", quiet=True)
    reached[0] = False
    maxmatch.fit(recipe, tmp_path / "cut", resume=True, quiet=True)
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("cut", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    maxmatch.fit(
        tiny("fixmatch", net=net, train={**given, "init": str(tmp_path / "whole")}), tmp_path / "b", quiet=True
    )
    with pytest.raises(UserError, match="no route to host"):
        maxmatch.fit(recipe, tmp_path / "new", quiet=True)


def test_timm_s_pretrained_weights_are_asked_for_and_a_failed_download_is_one_line(monkeypatch):
    import timm

    asked = []

    def create(name, pretrained, **options):
        asked.append((name, pretrained, options))
        if pretrained:
            raise ConnectionError("no route\nto host")
        return nn.Linear(1, 1)

    monkeypatch.setattr(timm, "create_model", create)
    with pytest.raises(UserError, match=r"net.pretrained = true: no weights of timm:test_resnet .*no route to host"):
        make_net("timm:test_resnet", 7, 1, pretrained=True)
    make_net("timm:test_resnet", 7, 1)
    assert asked == [("test_resnet", kind, {"num_classes": 7, "in_chans": 1}) for kind in (True, False)]


def test_without_timm_the_line_says_what_to_install(monkeypatch):
    whole = builtins.__import__

    def without(name, *rest, **more):
        if name == "timm":
            raise ImportError(name)
        return whole(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r'pip install "maxmatch\[timm\]"'):
        make_net("timm:resnet18", 10, 3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("timm:resnet19", {}, "did you mean 'timm:resnet"),
        ("zzzzzz", {}, "timm has no net of that name"),
        ("timm:test_convnext", {"size": (8, 8)}, "it can't take images of 3 x 8 x 8"),
        ("nowhere:Net", {}, "No module named 'nowhere'"),
        ("nets.test_foreign:Nobody", {}, "read as package.module:Class"),
        ("json:dumps", {}, "no subclass of torch.nn.Module"),
        ("nets.test_foreign:Mean", {}, r"made as Mean\(classes=, channels=\)"),
        ("nets.test_foreign:Stubborn", {"size": (8, 8)}, r"logits \(2, 7\) are wanted"),
        ("nets.test_foreign:Own", {"pretrained": True}, "write it into Own"),
        ("resnet18", {"dropout": 0.5}, "resnet18 has no dropout"),
        ("wrn-10-1", {"pretrained": True}, "type --set net.name=resnet18, or --init RUN"),
    ],
)
def test_what_can_t_be_made_is_one_line(name, options, message):
    with pytest.raises(UsageError, match=message) as caught:
        make_net(name, 7, 3, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["timm:test_resnet", "nets.test_foreign:Own"])
def test_a_run_with_it_is_loaded_again(tiny, tmp_path, name):
    """Oracle: the error that the run itself measured at its end."""
    recipe = tiny("fixmatch", net={"name": name}, train={"steps": 3, "batch": 10})
    result = maxmatch.fit(recipe, tmp_path / "a", quiet=True)
    assert result["net"] == name
    assert json.loads((tmp_path / "a" / "recipe.json").read_text())["net"]["pretrained"] is False
    digits = maxmatch.load_images("digits")
    wrong = maxmatch.load(tmp_path / "a").predict(digits.test_x) != [str(int(y)) for y in digits.test_y]
    assert 100 * wrong.mean() == pytest.approx(result["error"]["last"])


def test_remixmatch_asks_a_net_for_its_features(tiny, tmp_path):
    own = tiny("remixmatch", net={"name": "nets.test_foreign:Own"}, train={"steps": 2})
    assert maxmatch.fit(own, tmp_path / "a", quiet=True)["unlabeled_loss"] > 0
    with pytest.raises(UsageError, match="give your net forward_features"):
        maxmatch.fit(tiny("remixmatch", net={"name": "nets.test_foreign:Bare"}), tmp_path / "b", quiet=True)
    assert not (tmp_path / "b").exists()


def test_a_net_that_was_changed_after_training_is_refused(tiny, tmp_path, monkeypatch):
    import nets.test_foreign as here

    maxmatch.fit(
        tiny("fixmatch", net={"name": "nets.test_foreign:Own"}, train={"steps": 1}), tmp_path / "a", quiet=True
    )
    monkeypatch.setattr(here, "Own", Bare)
    with pytest.raises(UserError, match="restore the net as it was trained"):
        maxmatch.load(tmp_path / "a")


@pytest.mark.parametrize("name", ["resnet18", "timm:test_resnet"])
def test_the_momentum_of_batch_norm_is_the_setting(name):
    net = make_net(name, classes=3, channels=3, momentum=0.5)
    found = {m.momentum for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)}
    assert found == {0.5}


def test_pixels_are_those_that_published_weights_were_trained_with():
    assert pixel_values("resnet50", pretrained=False) == (0.5, 0.5)
    mean, std = pixel_values("resnet50", pretrained=True)
    images = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    theirs = normalize(images / 255, list(mean), list(std))
    made = Preprocessing(3, 4, 5, mean, std)
    torch.testing.assert_close(made(images), theirs, atol=1e-6, rtol=1e-5)
    assert made(images.double().float()).shape == images.shape
    timm = pytest.importorskip("timm")
    published = timm.get_pretrained_cfg("resnet18")
    assert pixel_values("timm:resnet18", pretrained=True) == (published.mean, published.std)
    assert pixel_values("timm:resnet18", pretrained=True, channels=1)[0] == pytest.approx(0.449, abs=1e-3)


def test_a_run_keeps_its_pixels_through_files_resume_and_init(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("maxmatch.train.fit.pixel_values", lambda *net: ((0.3,), (0.2,)))
    recipe = tiny("maxmatch", train={"steps": 4})
    fit(recipe, tmp_path / "a", quiet=True)
    monkeypatch.undo()
    assert read_info(tmp_path / "a" / "model.safetensors").preprocessing.mean == (0.3,)
    longer = resumed_recipe(tmp_path / "a", {"train": {"steps": 6}})
    fit(longer, tmp_path / "a", resume=True, quiet=True)
    assert read_info(tmp_path / "a" / "model.safetensors").preprocessing.std == (0.2,)
    fit(tiny("maxmatch", train={"steps": 2, "init": str(tmp_path / "a")}), tmp_path / "b", quiet=True)
    assert read_info(tmp_path / "b" / "model.safetensors").preprocessing.mean == (0.3,)


def test_a_net_whose_file_can_not_be_imported_is_named_with_its_line(tmp_path, monkeypatch):
    (tmp_path / "net_to_mend.py").write_text("import torch\nclass Net(torch.nn.Modul):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"net.name = 'net_to_mend:Net': .*net_to_mend.py, line 2, can't be imported"):
        make_net("net_to_mend:Net", classes=2, channels=1)


def test_of_a_file_that_fails_in_a_function_the_line_is_where_it_failed(tmp_path, monkeypatch):
    (tmp_path / "net_to_find.py").write_text("def sizes():\n    return [8, 16][2]\n\n\nsizes()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"net_to_find.py, line 2, can't be imported: IndexError"):
        make_net("net_to_find:Net", classes=2, channels=1)

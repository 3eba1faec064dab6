"""Nets from elsewhere: torchvision's ResNets, any net of timm by its name, a class of your own by `module:Class`.

They keep their own BatchNorm (batchnorm.py gives it the three modes). Their head is replaced by one for the classes at
hand. Nothing is downloaded unless `pretrained` asks for it.
"""

from __future__ import annotations

import difflib
import sys
from contextlib import redirect_stdout
from typing import Any

import torch
from torch import nn

from maxmatch.errors import UsageError, UserError, said
from maxmatch.settings import find_class

RESNETS = ("resnet18", "resnet34", "resnet50")
TIMM = "timm:"
PLAIN = "plain-conv"
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and deviation of its pixels, as everybody takes them
OURS = f"type wrn-DEPTH-WIDTH, for example wrn-28-2 or wrn-10-1, or {', '.join((PLAIN, *RESNETS))}"

Size = tuple[int, int]
Values = float | tuple[float, ...]  # for all channels, or one for each


def make_foreign(name: str, classes: int, channels: int, size: Size | None, dropout: float, pretrained: bool) -> Any:
    """The net of that name, which takes images of `size` if one is given; or one line that says why there is none."""
    if name in RESNETS:
        net = _torchvision(name, classes, channels, dropout, pretrained)
    elif is_own(name):
        net = _own(name, classes, channels, dropout, pretrained)
    else:
        net = _timm(name, classes, channels, size, dropout, pretrained)
    if size is not None:
        _try(name, net, classes, channels, size)
    return net


def is_own(name: str) -> bool:
    """Whether it is the place of a net of one's own, which may bring weights along."""
    return ":" in name and not name.startswith(TIMM)


def may_be_published(name: str) -> bool:
    """Whether weights of a net of that name may be had: torchvision's and timm's."""
    return name in RESNETS or name.startswith(TIMM)


def own_class(name: str) -> Any:
    """The class of a net of one's own by its place; None of all others."""
    place, _, attribute = name.partition(":")
    return find_class(place, attribute, f"net.name = '{name}'") if is_own(name) else None


def pixel_values(name: str, pretrained: bool, channels: int = 3) -> tuple[Values, Values]:
    """Mean and deviation of the pixels that a net expects: those its published weights were trained with, else 1/2."""
    if not pretrained:
        return 0.5, 0.5
    mean: tuple[float, ...]
    std: tuple[float, ...]
    mean, std = IMAGENET
    if name not in RESNETS:
        import timm

        published = timm.get_pretrained_cfg(name.removeprefix(TIMM))
        mean, std = (mean, std) if published is None else (tuple(published.mean), tuple(published.std))
    return (mean, std) if channels == len(mean) else (sum(mean) / len(mean), sum(std) / len(std))


def _torchvision(name: str, classes: int, channels: int, dropout: float, pretrained: bool) -> nn.Module:
    from torchvision import models

    if channels != 3:
        raise UsageError(
            f"net.name = '{name}': it takes colour images, these have {channels} channel; timm:{name} takes any"
        )
    if dropout:
        raise UsageError(f"net.dropout = {dropout:g}: {name} has no dropout; set it to 0, or take timm:{name}")
    if not pretrained:
        plain: nn.Module = getattr(models, name)(weights=None, num_classes=classes)
        return plain
    try:
        with redirect_stdout(sys.stderr):  # torch says there what it downloads; a run's result is read from it
            net = getattr(models, name)(weights="DEFAULT")
    except Exception as error:  # a download fails in every way there is
        raise _no_weights(name, error) from None
    net.fc = nn.Linear(net.fc.in_features, classes)
    return net  # type: ignore[no-any-return]


def _timm(name: str, classes: int, channels: int, size: Size | None, dropout: float, pretrained: bool) -> nn.Module:
    word = name.removeprefix(TIMM)
    if name.startswith("wrn-"):  # ours, misspelt
        raise UsageError(f"net.name = '{name}': {OURS}")
    try:
        import timm
    except ImportError:
        raise UsageError(f"net.name = '{name}': {OURS}; for a net of timm: pip install \"maxmatch[timm]\"") from None

    if not timm.is_model(word):
        near = difflib.get_close_matches(word, timm.list_models(), n=1, cutoff=0.6)
        hint = f"did you mean '{TIMM}{near[0]}'?" if near else "timm has no net of that name"
        raise UsageError(f"net.name = '{name}': {OURS}; {hint}")
    options: dict[str, Any] = {"drop_rate": dropout} if dropout else {}
    if size is not None and getattr(
        timm.get_pretrained_cfg(word), "fixed_input_size", False
    ):  # its position embedding has a size
        options["img_size"] = size
    try:
        net = timm.create_model(word, pretrained=pretrained, num_classes=classes, in_chans=channels, **options)
    except Exception as error:  # a download fails in every way there is, and so do options that a net does not have
        if pretrained:
            raise _no_weights(name, error) from None
        raise UsageError(f"net.name = '{name}': timm can't make it so ({said(error)})") from None
    return net


def _own(name: str, classes: int, channels: int, dropout: float, pretrained: bool) -> nn.Module:
    cls, attribute = own_class(name), name.partition(":")[2]
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        raise UsageError(f"net.name = '{name}': it is no subclass of torch.nn.Module")
    for setting, value in (("dropout", dropout), ("pretrained", pretrained)):
        if value:
            raise UsageError(f"net.{setting} = {value}: a net of your own has its own; write it into {attribute}")
    try:
        net: nn.Module = cls(classes=classes, channels=channels)
    except TypeError as error:
        raise UsageError(f"net.name = '{name}': {said(error)}; made as {attribute}(classes=, channels=)") from None
    if not any(True for _ in net.parameters()):
        raise UsageError(f"net.name = '{name}': it has no parameters to train")
    return net


def _try(name: str, net: nn.Module, classes: int, channels: int, size: Size) -> None:
    """Refuse, before anything is begun, a net that can't take such images or answers in another shape."""
    images = torch.zeros(2, channels, *size)
    net.eval()
    try:
        with torch.no_grad():
            answer = net(images)
    except Exception as error:  # nets refuse sizes in every way there is
        what = f"images of {channels} x {size[0]} x {size[1]}"
        raise UsageError(f"net.name = '{name}': it can't take {what} ({said(error)}); choose another net") from None
    finally:
        net.train()
    if not isinstance(answer, torch.Tensor) or tuple(answer.shape) != (2, classes):
        shape = tuple(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
        raise UsageError(f"net.name = '{name}': two images give {shape}, but logits (2, {classes}) are wanted")


def _no_weights(name: str, error: Exception) -> UserError:
    return UserError(
        f"net.pretrained = true: no weights of {name} could be had ({said(error)}); connect, or set it to false"
    )

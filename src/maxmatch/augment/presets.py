"""Strong policies by name: RandAugment's, which differ in ranges, probability, fill and cutout, CTAugment's, MoCo's.

l = level / 10; `fixmatch` is Google's code, `fixmatch-paper` the paper's own ranges, `usb` TorchSSL's and
USB's, `imagenet` the sixteen operations of EMAN and of the MaxMatch authors. `gentle` is ours, for digits and
characters: nothing in it turns one class into another.

Where a warp moves in what is outside, `fixmatch` has it grey at once; Google's code paints it when both operations are
done, so that a change of colour after a warp leaves it grey, and AutoContrast, Equalize, Posterize and Solarize make it
black.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from maxmatch.augment.contrastive import CONTRASTIVE, Contrastive
from maxmatch.augment.ctaugment import CTA_PRESETS, CTAugment
from maxmatch.augment.ops import RANDAUGMENT
from maxmatch.augment.policy import Cutout, Magnitude, RandAugment
from maxmatch.errors import UsageError, unknown

GREY = 127
BLACK = 0
ENHANCERS = ("color", "contrast", "brightness", "sharpness")


def strong_policy(
    preset: str,
    *,
    n: int | None = None,
    p: float | None = None,
    levels: Sequence[int] | None = None,
    ops: Sequence[str] | None = None,
    cutout: int | None = None,
) -> RandAugment | CTAugment | Contrastive:
    """A preset of any kind with some fields replaced; CTAugment, which learns its magnitudes, has `cutout` alone.

    >>> strong_policy("cta", cutout=0).uniforms
    10
    """
    if preset in (*CTA_PRESETS, *CONTRASTIVE):
        fixed = {"n": n, "p": p, "levels": levels, "ops": ops} | ({"cutout": cutout} if preset in CONTRASTIVE else {})
        for field, value in fixed.items():
            if value is not None:
                raise UsageError(f"{field} = {value}: policy {preset} has its own; leave {field} out")
        return CONTRASTIVE[preset] if preset in CONTRASTIVE else CTAugment(preset, cutout=cutout)
    if preset not in PRESETS:
        raise UsageError(unknown("policy", preset, (*PRESETS, *CTA_PRESETS, *CONTRASTIVE)))
    return randaugment(preset, n=n, p=p, levels=levels, ops=ops, cutout=cutout)


def randaugment(
    preset: str,
    *,
    n: int | None = None,
    p: float | None = None,
    levels: Sequence[int] | None = None,
    ops: Sequence[str] | None = None,
    cutout: int | None = None,
) -> RandAugment:
    """A preset with some fields replaced; None keeps the preset's own. `cutout` is in pixels, 0 for none.

    >>> randaugment("fixmatch", n=3, cutout=0).uniforms
    12
    """
    if preset not in PRESETS:
        raise UsageError(unknown("RandAugment preset", preset, PRESETS))
    policy = PRESETS[preset]
    if n is not None:
        policy = replace(policy, n=n)
    if p is not None:
        policy = replace(policy, p=p)
    if levels is not None:
        if len(levels) != 2:
            raise UsageError(f"levels = {list(levels)} is no range: type two integers, low and high")
        policy = replace(policy, levels=(levels[0], levels[1]))
    if ops is not None:
        policy = replace(policy, ops=tuple(ops))
    if cutout is not None:
        fill = policy.cutout.fill if policy.cutout else policy.fill
        policy = replace(policy, cutout=Cutout(fill=fill, pixels=cutout) if cutout else None)
    return policy


def _magnitudes(
    enhance: Magnitude,
    posterize: Magnitude,
    solarize: Magnitude,
    rotate: Magnitude,
    shear: Magnitude,
    translate: Magnitude,
) -> tuple[tuple[str, Magnitude], ...]:
    return (
        *((name, enhance) for name in ENHANCERS),
        ("posterize", posterize),
        ("solarize", solarize),
        ("rotate", rotate),
        ("shear-x", shear),
        ("shear-y", shear),
        ("translate-x", translate),
        ("translate-y", translate),
    )


_FOURTEEN = RANDAUGMENT[:14]
_SOLARIZE = Magnitude(256, -256, floor=True)
_ROTATE = Magnitude(0, 30, floor=True, signed=True)
_SHEAR = Magnitude(0, 0.3, signed=True)

PRESETS: dict[str, RandAugment] = {
    "fixmatch": RandAugment(
        name="fixmatch",
        ops=_FOURTEEN,
        n=2,
        p=0.5,
        levels=(1, 9),
        magnitudes=_magnitudes(
            enhance=Magnitude(0.1, 1.8),
            posterize=Magnitude(4, -4, floor=True),
            solarize=_SOLARIZE,
            rotate=_ROTATE,
            shear=_SHEAR,
            translate=Magnitude(0, 10, floor=True, signed=True),
        ),
        fill=GREY,
        cutout=Cutout(fill=GREY, pixels=16),
    ),
    "fixmatch-paper": RandAugment(
        name="fixmatch-paper",
        ops=_FOURTEEN,
        n=2,
        p=0.5,
        levels=(1, 9),
        magnitudes=_magnitudes(
            enhance=Magnitude(0.05, 0.9),
            posterize=Magnitude(4, 4, floor=True),
            solarize=_SOLARIZE,
            rotate=_ROTATE,
            shear=_SHEAR,
            translate=Magnitude(0, 0.3, floor=True, signed=True, of_width=True),
        ),
        fill=BLACK,
        cutout=Cutout(fill=GREY, pixels=16),
    ),
    "usb": RandAugment(
        name="usb",
        ops=_FOURTEEN,
        n=3,
        p=1.0,
        levels=None,
        magnitudes=_magnitudes(
            enhance=Magnitude(0.05, 0.9),
            posterize=Magnitude(4, 4, floor=True),
            solarize=Magnitude(0, 256),
            rotate=Magnitude(0, 30, signed=True),
            shear=_SHEAR,
            translate=Magnitude(0, 0.3, signed=True, of_width=True),
        ),
        fill=BLACK,
        cutout=Cutout(low=0.0, high=0.5, fill=(125, 123, 114)),
    ),
    "imagenet": RandAugment(
        name="imagenet",
        ops=RANDAUGMENT,
        n=2,
        p=1.0,
        levels=(1, 9),
        magnitudes=(
            *_magnitudes(
                enhance=Magnitude(0.1, 1.8),
                posterize=Magnitude(4, 4, floor=True),
                solarize=_SOLARIZE,
                rotate=Magnitude(0, 30, signed=True),
                shear=_SHEAR,
                translate=Magnitude(0, 0.45, signed=True, of_width=True),
            ),
            ("solarize-add", Magnitude(0, 110, floor=True)),
        ),
        fill=BLACK,
    ),
    "gentle": RandAugment(
        name="gentle",
        ops=(
            "identity",
            "rotate",
            "shear-x",
            "shear-y",
            "translate-x",
            "translate-y",
            "brightness",
            "contrast",
        ),
        n=2,
        p=1.0,
        levels=(1, 9),
        magnitudes=(
            ("rotate", Magnitude(0, 15, signed=True)),
            ("shear-x", Magnitude(0, 0.15, signed=True)),
            ("shear-y", Magnitude(0, 0.15, signed=True)),
            ("translate-x", Magnitude(0, 0.2, floor=True, signed=True, of_width=True)),
            ("translate-y", Magnitude(0, 0.2, floor=True, signed=True, of_width=True)),
            ("brightness", Magnitude(0.5, 1.0)),
            ("contrast", Magnitude(0.5, 1.0)),
        ),
        fill=BLACK,
        cutout=Cutout(low=0.25, high=0.25, fill=BLACK),
    ),
}

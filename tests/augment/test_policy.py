"""Weak placement, RandAugment's sampling, its presets and its cutout, against independent arithmetic."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from pil_oracle import pictures, pil_op
from torch import Tensor

from maxmatch.augment import OPS, PRESETS, Cutout, Draw, Magnitude, RandAugment, Weak, randaugment
from maxmatch.augment.policy import fill_for
from maxmatch.errors import UsageError

NEARLY_ONE = 1 - 2**-24


def uniforms(batch: int, count: int, seed: int = 0) -> Tensor:
    return torch.rand(batch, count, generator=torch.Generator().manual_seed(seed))


def value(preset: str, op: str, level: float, width: int = 32, negative: bool = False) -> float:
    magnitude = dict(PRESETS[preset].magnitudes)[op]
    return float(magnitude.value(torch.tensor(level), torch.tensor(negative), width))


@pytest.mark.parametrize("size", [(8, 8), (32, 32), (17, 40), (96, 96)])
@pytest.mark.parametrize("channels", [1, 3])
def test_weak_equals_flip_pad_and_crop(channels: int, size: tuple[int, int]) -> None:
    images = pictures(channels, *size).repeat(8, 1, 1, 1)
    weak = Weak()
    placement = weak.sample(uniforms(len(images), 3), size)
    pad = [round(0.125 * side) for side in size]
    out = weak.apply(images, placement)
    assert placement.flip.any()
    assert not placement.flip.all()
    for image, got, flip, shift in zip(images, out, placement.flip, placement.shift.tolist(), strict=True):
        flipped = image.flip(2) if flip else image
        padded = F.pad(flipped[None].float(), (pad[1], pad[1], pad[0], pad[0]), mode="reflect")[0].byte()
        top, left = pad[0] + shift[0], pad[1] + shift[1]
        assert torch.equal(got, padded[:, top : top + size[0], left : left + size[1]])


def test_weak_reaches_every_shift_equally_often_and_flips_half() -> None:
    placement = Weak().sample(uniforms(90_000, 3), (32, 96))
    for axis, pad in ((0, 4), (1, 12)):
        shift = placement.shift[:, axis]
        counts = torch.bincount(shift + pad, minlength=2 * pad + 1).float()
        mean = 90_000 / (2 * pad + 1)
        assert len(counts) == 2 * pad + 1
        assert ((counts - mean).abs() < 5 * mean**0.5).all()
    assert abs(float(placement.flip.float().mean()) - 0.5) < 5 * 0.5 / 300


def test_weak_without_flip_and_shift_is_the_identity() -> None:
    images = pictures(3, 17, 40)
    weak = Weak(flip=False, shift=0)
    assert torch.equal(weak.apply(images, weak.sample(uniforms(len(images), 3), (17, 40))), images)


def test_weak_without_flip_never_flips() -> None:
    assert not Weak(flip=False).sample(uniforms(1000, 3), (32, 32)).flip.any()


def test_the_largest_uniform_draws_the_last_of_any_count() -> None:
    for count in range(1, 3000):
        box = Cutout(pixels=1).sample(torch.full((1, 3), NEARLY_ONE), (count, count))
        assert box[0, :2].tolist() == [count - 1, count - 1]


@settings(max_examples=50, deadline=None)
@given(st.floats(0, NEARLY_ONE, width=32), st.integers(8, 300))
def test_any_uniform_stays_in_range(u: float, side: int) -> None:
    numbers = torch.full((1, 16), u)
    shift = Weak().sample(numbers, (side, side)).shift
    assert int(shift.abs().max()) <= round(0.125 * side)
    for policy in PRESETS.values():
        draw = policy.sample(numbers[:, : policy.uniforms], (side, side))
        assert 0 <= int(draw.op.min()) <= int(draw.op.max()) < len(OPS)
        assert 0 <= int(draw.box.min()) <= int(draw.box.max()) <= side


# Hand-computed from the published ranges: (preset, operation, level, width, magnitude).
BY_HAND = [
    ("fixmatch", "color", 1, 32, 0.28),
    ("fixmatch", "sharpness", 9, 32, 1.72),
    ("fixmatch", "posterize", 1, 32, 4),
    ("fixmatch", "posterize", 5, 32, 2),
    ("fixmatch", "posterize", 9, 32, 1),
    ("fixmatch", "solarize", 1, 32, 231),
    ("fixmatch", "solarize", 9, 32, 26),
    ("fixmatch", "rotate", 7, 32, 21),
    ("fixmatch", "shear-x", 7, 32, 0.21),
    ("fixmatch", "translate-x", 9, 32, 9),
    ("fixmatch", "translate-y", 9, 96, 9),
    ("fixmatch-paper", "contrast", 1, 32, 0.14),
    ("fixmatch-paper", "brightness", 9, 32, 0.86),
    ("fixmatch-paper", "posterize", 1, 32, 4),
    ("fixmatch-paper", "posterize", 5, 32, 6),
    ("fixmatch-paper", "posterize", 9, 32, 7),
    ("fixmatch-paper", "solarize", 5, 32, 128),
    ("fixmatch-paper", "rotate", 9, 32, 27),
    ("fixmatch-paper", "translate-x", 1, 32, 0),
    ("fixmatch-paper", "translate-x", 9, 32, 8),
    ("fixmatch-paper", "translate-y", 9, 96, 25),
    ("fixmatch-paper", "translate-y", 9, 100, 27),
    ("usb", "color", 0, 32, 0.05),
    ("usb", "color", 10, 32, 0.95),
    ("usb", "posterize", 0, 32, 4),
    ("usb", "posterize", 9.99, 32, 7),
    ("usb", "solarize", 2.5, 32, 64),
    ("usb", "rotate", 0.5, 32, 1.5),
    ("usb", "shear-y", 10, 32, 0.3),
    ("usb", "translate-x", 5, 32, 4.8),
    ("imagenet", "brightness", 5, 224, 1.0),
    ("imagenet", "posterize", 3, 224, 5),
    ("imagenet", "solarize", 3, 224, 180),
    ("imagenet", "rotate", 5, 224, 15),
    ("imagenet", "shear-x", 1, 224, 0.03),
    ("imagenet", "translate-y", 5, 224, 50.4),
    ("imagenet", "solarize-add", 9, 224, 99),
    ("imagenet", "solarize-add", 5, 224, 55),
    ("gentle", "rotate", 9, 32, 13.5),
    ("gentle", "shear-x", 9, 32, 0.135),
    ("gentle", "shear-y", 4, 32, 0.06),
    ("gentle", "translate-x", 9, 28, 5),
    ("gentle", "translate-y", 9, 8, 1),
    ("gentle", "brightness", 1, 32, 0.6),
    ("gentle", "contrast", 9, 32, 1.4),
]


@pytest.mark.parametrize(("preset", "op", "level", "width", "expected"), BY_HAND)
def test_preset_magnitudes_by_hand(preset: str, op: str, level: float, width: int, expected: float) -> None:
    assert value(preset, op, level, width) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("preset", PRESETS)
def test_only_geometry_is_signed(preset: str) -> None:
    for op, magnitude in PRESETS[preset].magnitudes:
        geometric = op == "rotate" or op.startswith(("shear", "translate"))
        sign = -1 if geometric else 1
        assert magnitude.signed == geometric
        assert value(preset, op, 7, negative=True) == sign * value(preset, op, 7)


def test_preset_frames() -> None:
    frame = {name: (len(p.ops), p.n, p.p, p.levels, p.fill, p.cutout, p.uniforms) for name, p in PRESETS.items()}
    assert frame == {
        "fixmatch": (14, 2, 0.5, (1, 9), 127, Cutout(fill=127, pixels=16), 11),
        "fixmatch-paper": (14, 2, 0.5, (1, 9), 0, Cutout(fill=127, pixels=16), 11),
        "usb": (14, 3, 1.0, None, 0, Cutout(0.0, 0.5, (125, 123, 114)), 15),
        "imagenet": (16, 2, 1.0, (1, 9), 0, None, 8),
        "gentle": (8, 2, 1.0, (1, 9), 0, Cutout(0.25, 0.25, 0), 11),
    }
    assert {"invert", "solarize-add"}.isdisjoint(PRESETS["fixmatch"].ops)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("channels", "size"), [(3, (32, 32)), (1, (17, 40)), (3, (17, 40))])
def test_a_sampled_policy_equals_pil_slot_by_slot(preset: str, channels: int, size: tuple[int, int]) -> None:
    policy = PRESETS[preset]
    images = pictures(channels, *size).repeat(20, 1, 1, 1)
    draw = policy.sample(uniforms(len(images), policy.uniforms, seed=3), size)
    fill = policy.fill
    expected = []
    for image, codes, values, box in zip(images, *(part.tolist() for part in draw), strict=True):
        for code, magnitude in zip(codes, values, strict=True):
            image = pil_op(image, OPS[code], magnitude, fill if channels == 1 else (fill,) * 3)
        array = image.numpy().copy()
        if policy.cutout:
            top, left, bottom, right = box
            colour = policy.cutout.fill
            patch = colour if isinstance(colour, int) else torch.tensor(colour).view(3, 1, 1).numpy()
            array[:, top:bottom, left:right] = 121 if preset == "usb" and channels == 1 else patch
        expected.append(torch.from_numpy(array))
    for path in ("dense", "grouped"):
        assert torch.equal(policy.apply(images, draw, path), torch.stack(expected))


@pytest.mark.parametrize("preset", PRESETS)
def test_sampling_is_a_function_of_the_uniforms(preset: str) -> None:
    policy = PRESETS[preset]
    u = uniforms(64, policy.uniforms)
    first, again = policy.sample(u, (32, 32)), policy.sample(u.clone(), (32, 32))
    half = policy.sample(u[32:], (32, 32))
    other = policy.sample(uniforms(64, policy.uniforms, seed=1), (32, 32))
    for part in range(3):
        assert torch.equal(first[part], again[part])
        assert torch.equal(first[part][32:], half[part])
    assert not torch.equal(first.op, other.op)


@pytest.mark.parametrize("p", [0.5, 1.0])
def test_operations_are_uniform_with_replacement(p: float) -> None:
    policy = randaugment("fixmatch", p=p)
    total = 112_000
    op = policy.sample(uniforms(total, policy.uniforms), (32, 32)).op
    for slot in range(2):
        counts, mean = torch.bincount(op[:, slot], minlength=14)[1:].float(), p * total / 14
        assert ((counts - mean).abs() < 5 * mean**0.5).all()
    pairs, mean = torch.bincount(op[:, 0] * 14 + op[:, 1], minlength=196).view(14, 14), p * p * total / 196
    assert ((pairs[1:, 1:].float() - mean).abs() < 5 * mean**0.5).all()


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_each_slot_is_applied_with_probability_p(p: float) -> None:
    policy = randaugment("fixmatch", p=p, ops=("invert",))
    applied = (policy.sample(uniforms(40_000, policy.uniforms), (32, 32)).op != 0).float()
    margin = 5 * (p * (1 - p) / 40_000) ** 0.5
    assert ((applied.mean(0) - p).abs() <= margin).all()
    assert abs(float(applied.prod(1).mean()) - p * p) <= 5 * (p * p * (1 - p * p) / 40_000) ** 0.5


def test_levels_and_signs_are_uniform() -> None:
    policy = randaugment("fixmatch", p=1.0, ops=("rotate",), n=1)
    magnitude = policy.sample(uniforms(36_000, policy.uniforms), (32, 32)).magnitude.flatten()
    expected = [sign * 3 * level for sign in (-1, 1) for level in range(1, 10)]
    found, counts = magnitude.unique(return_counts=True)
    assert found.tolist() == sorted(expected)
    assert ((counts - 2000).abs() < 5 * 2000**0.5).all()


@pytest.mark.parametrize("op", ["translate-x", "translate-y"])
def test_a_shift_is_drawn_in_widths_of_the_picture_whatever_its_height(op: str) -> None:
    policy = randaugment("imagenet", p=1.0, ops=(op,), n=1)
    u = torch.tensor([[0.0, 0.0, 0.5, 0.2], [0.0, 0.0, 0.5, 0.7]])  # the middle level of 1 to 9; below 1/2 is negative
    magnitude = policy.sample(u, (32, 96)).magnitude
    assert magnitude.flatten().tolist() == pytest.approx([-0.45 * 96 / 2, 0.45 * 96 / 2])


def test_op_in_a_draw_indexes_all_operations_whatever_the_policy_has() -> None:
    policy = randaugment("fixmatch", p=1.0, ops=("posterize", "rotate"))
    op = policy.sample(uniforms(100, policy.uniforms), (32, 32)).op
    assert set(op.flatten().tolist()) == {OPS.index("posterize"), OPS.index("rotate")}


def test_cutout_of_fixed_size_is_clipped_at_the_border() -> None:
    cutout = Cutout(pixels=16)
    u = torch.tensor([[0.5, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, NEARLY_ONE, NEARLY_ONE], [0.9, 0.0, 0.5]])
    assert cutout.sample(u, (32, 32)).tolist() == [
        [0, 0, 8, 8],
        [8, 8, 24, 24],
        [23, 23, 32, 32],
        [0, 8, 8, 24],
    ]


def test_cutout_of_a_share_is_rounded_to_the_nearest_pixel() -> None:
    u = torch.tensor([[0.0, 0.5, 0.5], [0.5, 0.5, 0.5], [0.65, 0.5, 0.5], [NEARLY_ONE, 0.5, 0.5]])
    box = Cutout(0.0, 0.5).sample(u, (20, 40))
    assert (box[:, 2] - box[:, 0]).tolist() == [0, 10, 13, 20]
    assert (box[:, 3] - box[:, 1]).tolist() == [0, 10, 13, 20]
    assert box[1].tolist() == [5, 15, 15, 25]


def test_cutout_covers_its_box_and_nothing_else() -> None:
    images = pictures(3, 17, 40)
    cutout = Cutout(0.1, 0.6, fill=(1, 2, 3))
    box = cutout.sample(uniforms(len(images), 3, seed=2), (17, 40))
    expected = images.numpy().copy()
    for array, (top, left, bottom, right) in zip(expected, box.tolist(), strict=True):
        for channel in range(3):
            array[channel, top:bottom, left:right] = channel + 1
    assert torch.equal(cutout.apply(images, box), torch.from_numpy(expected))


def test_no_operations_leaves_the_cutout_alone() -> None:
    policy = randaugment("fixmatch", n=0)
    images = pictures(3, 32, 32)
    draw = policy.sample(uniforms(len(images), policy.uniforms), (32, 32))
    assert draw.op.shape == (len(images), 0)
    assert torch.equal(policy.apply(images, draw), Cutout(pixels=16).apply(images, draw.box))


def test_describe_names_what_is_done() -> None:
    codes = [[OPS.index("rotate"), OPS.index("posterize")], [0, OPS.index("equalize")]]
    draw = Draw(torch.tensor(codes), torch.tensor([[21.0, 4.0], [0.0, 0.0]]), torch.tensor([[0, 4, 16, 20], [0] * 4]))
    assert PRESETS["fixmatch"].describe(draw) == [["rotate +21", "posterize 4", "cutout 16x16"], ["equalize"]]


def test_one_channel_takes_the_mean_of_a_colour() -> None:
    assert fill_for((125, 123, 114), 1) == (121,)
    assert fill_for((125, 123, 114), 3) == (125, 123, 114)
    assert fill_for(127, 3) == (127,)


def test_overrides_replace_fields_and_keep_the_rest() -> None:
    policy = randaugment("fixmatch", n=3, p=0.25, levels=[2, 4], ops=["rotate", "invert"], cutout=8)
    assert (policy.n, policy.p, policy.levels, policy.ops) == (3, 0.25, (2, 4), ("rotate", "invert"))
    assert policy.cutout == Cutout(fill=127, pixels=8)
    assert policy.magnitudes == PRESETS["fixmatch"].magnitudes
    assert randaugment("fixmatch", cutout=0).cutout is None
    assert randaugment("imagenet", cutout=8).cutout == Cutout(fill=0, pixels=8)
    assert randaugment("usb") is PRESETS["usb"]
    assert len({policy, randaugment("usb"), randaugment("usb")}) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: randaugment("fixmach"), "did you mean 'fixmatch'"),
        (lambda: randaugment("fixmatch", ops=("rotat",)), "did you mean 'rotate'"),
        (lambda: randaugment("fixmatch", ops=("solarize-add",)), "no magnitude for 'solarize-add'"),
        (lambda: randaugment("fixmatch", ops=()), "n = 2 of 0 operations"),
        (lambda: randaugment("fixmatch", n=-1), "n = -1"),
        (lambda: randaugment("fixmatch", p=1.5), "p = 1.5"),
        (lambda: randaugment("fixmatch", levels=(5, 3)), r"levels = \(5, 3\)"),
        (lambda: randaugment("fixmatch", levels=(1, 11)), r"levels = \(1, 11\)"),
        (lambda: randaugment("fixmatch", levels=(1,)), r"levels = \[1\]"),
        (lambda: randaugment("fixmatch", cutout=-3), "pixels = -3"),
        (lambda: Cutout(0.5, 0.2), "0.5 to 0.2"),
        (lambda: Weak(shift=0.7), "shift = 0.7"),
        (lambda: RandAugment("mine", (), 0, 1, None, (("rotat", Magnitude(0, 1)),)), "did you mean 'rotate'"),
    ],
)
def test_mistakes_are_named(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=message):
        make()

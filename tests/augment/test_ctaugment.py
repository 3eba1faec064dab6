"""CTAugment: its pixels against PIL, its arithmetic against NumPy and by hand, its place in a run.

`by_pil` and `Oracle` below know nothing of the code under test: they do what Google's code does, one image at a time.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from pil_oracle import pictures
from safetensors.torch import load_file
from torch import Tensor

from maxmatch.augment import OPS, PRESETS, CTAugment, Views, Weak, proximity, strong_policy
from maxmatch.augment.cta_ops import BINS
from maxmatch.augment.resample import FILTERS, rescale
from maxmatch.data.plan import Plan
from maxmatch.errors import UsageError, UserError
from maxmatch.train.batches import make_views
from maxmatch.train.checkpoint import checkpoints
from maxmatch.train.fit import begin, fit
from maxmatch.train.judge import judge
from maxmatch.train.log import read_metrics
from maxmatch.train.recipe import resolve
from maxmatch.train.step import EXACT

# Google's order, names and bins, written out again.
SEVENTEEN = ["autocontrast", "blur", "brightness", "color", "contrast", "cutout", "equalize", "invert"]
ORDER = [*SEVENTEEN, "identity", "posterize", "rescale", *["rotate", "sharpness", "shear-x", "shear-y", "smooth"]]
ORDER += ["solarize", "translate-x", "translate-y"]
COUNTS: dict[str, tuple[int, ...]] = dict.fromkeys(ORDER, (17,)) | {
    "identity": (),
    "posterize": (8,),
    "rescale": (17, 6),
}
METHODS = [getattr(Image.Resampling, name.upper()) for name in FILTERS]
PATHS = ["dense", "grouped"]
SIZES = [(8, 8), (32, 32), (17, 40), (28, 28)]


def uniforms(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def picture_of(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).squeeze(2).contiguous().numpy())


def tensor_of(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(picture).reshape(picture.height, picture.width, -1)).permute(2, 0, 1)


def by_pil(
    picture: Image.Image, name: str, v: float, w: float = 0.0, place: tuple[float, float] = (0, 0), fixed: bool = False
) -> Image.Image:
    """One operation at parameter v, for rescale also w, both in [0, 1]; `place` holds the uniforms of cutout's centre."""
    blended = {
        "autocontrast": ImageOps.autocontrast,
        "equalize": ImageOps.equalize,
        "invert": ImageOps.invert,
        "blur": lambda p: p.filter(ImageFilter.BLUR),
        "smooth": lambda p: p.filter(ImageFilter.SMOOTH),
    }
    enhance = ("brightness", "color", "contrast", "sharpness")
    width, height = picture.size
    if name in blended:
        return Image.blend(picture, blended[name](picture), v)
    if name in enhance:
        return getattr(ImageEnhance, name.capitalize())(picture).enhance(0.1 + 1.9 * v)
    if name == "cutout":
        half = (1 + int(v * min(picture.size) * 0.499)) // 2
        row, column = int(place[0] * height), int(place[1] * width)
        array = np.array(picture)
        array[max(0, row - half) : row + half, max(0, column - half) : column + half] = 127
        return Image.fromarray(array)
    if name == "posterize":
        return ImageOps.posterize(picture, 1 + int(v * 7.999))
    if name == "rescale":
        s = 0.25 * v
        box = (s * width, s * height, width * (1 - s), height * (1 - s))
        return picture.crop(box).resize(picture.size, METHODS[int(w * 5.99)])
    if name == "rotate":
        return picture.rotate(int(np.round((2 * v - 1) * 45)))
    if name == "solarize":
        return ImageOps.solarize(picture, int(v * 255.999))
    amount = float(np.float32((2 * v - 1) * 0.3 * (width if fixed and "translate" in name else 1)))
    matrix = {
        "identity": (1, 0, 0, 0, 1, 0),
        "shear-x": (1, amount, 0, 0, 1, 0),
        "shear-y": (1, 0, 0, amount, 1, 0),
        "translate-x": (1, 0, amount, 0, 1, 0),
        "translate-y": (1, 0, 0, 0, 1, amount),
    }[name]
    return picture.transform(picture.size, Image.Transform.AFFINE, matrix)


class Oracle:
    """CTAugment in NumPy: a dictionary of rates, one policy and one image at a time."""

    def __init__(self, decay: float = 0.99, threshold: float = 0.80) -> None:
        self.decay, self.threshold = decay, threshold
        self.rates = {name: [np.ones(count) for count in counts] for name, counts in COUNTS.items()}

    def weights(self, rate: NDArray[np.float64]) -> NDArray[np.float64]:
        p = rate + (1 - self.decay)
        p = p / p.max()
        p[p < self.threshold] = 0
        return p / p.sum()

    def choose(self, u: float, rate: NDArray[np.float64]) -> int:
        total = 0.0
        for index, p in enumerate(self.weights(rate)):
            total += p
            if u < total:
                return index
        raise AssertionError("the weights add up to 1")

    def draw(self, u: list[float]) -> list[tuple[str, list[float], tuple[float, float]]]:
        drawn = []
        for choice, which, within, a, b in np.reshape(u, (-1, 5)).tolist():
            name = ORDER[int(choice * 19)]
            places = [(which, within), (a, b)]
            values = [
                (self.choose(first, rate) + second) / len(rate)
                for rate, (first, second) in zip(self.rates[name], places, strict=False)
            ]
            drawn.append((name, values, (a, b)))
        return drawn

    def probe(self, u: list[float]) -> list[tuple[str, list[float], tuple[float, float]]]:
        slots = np.reshape(u, (-1, 4)).tolist()
        names = [ORDER[int(slot[0] * 19)] for slot in slots]
        return [
            (name, slot[1 : 1 + len(COUNTS[name])], (slot[2], slot[3])) for name, slot in zip(names, slots, strict=True)
        ]

    def update(
        self, policies: list[list[tuple[str, list[float], tuple[float, float]]]], closeness: list[float]
    ) -> None:
        hits: dict[tuple[str, int, int], list[float]] = {}
        for policy, value in zip(policies, closeness, strict=True):
            for name, values, _ in policy:
                for parameter, v in enumerate(values):
                    index = int(v * COUNTS[name][parameter] * 0.999)
                    hits.setdefault((name, parameter, index), []).append(value)
        for (name, parameter, index), values in hits.items():
            kept = self.decay ** len(values)
            rate = self.rates[name][parameter]
            rate[index] = kept * rate[index] + (1 - kept) * float(np.mean(values))

    def table(self) -> NDArray[np.float64]:
        """The rates laid out like `CTAugment.learned.rates`."""
        rows = [self.rates[name][0] if self.rates[name] else np.zeros(0) for name in ORDER]
        rows.append(self.rates["rescale"][1])
        return np.stack([np.pad(row, (0, 17 - len(row))) for row in rows])


def changed_by_pil(
    image: Tensor, policy: list[tuple[str, list[float], tuple[float, float]]], fixed: bool = False
) -> Tensor:
    picture = picture_of(image)
    for name, values, place in policy:
        v, w = [*values, 0.0, 0.0][:2]
        picture = by_pil(picture, name, v, w, place, fixed)
    return tensor_of(picture)


def set_rates(policy: CTAugment, seed: int, low: float = 0.3) -> Oracle:
    """Random rates from `low` to 1 in the policy and in an oracle."""
    oracle, generator = Oracle(), np.random.default_rng(seed)
    for rates in oracle.rates.values():
        for rate in rates:
            rate[:] = np.float32(generator.uniform(low, 1, len(rate)))
    policy.learned.rates.copy_(torch.from_numpy(oracle.table()))
    return oracle


def test_the_nineteen_operations_and_their_bins() -> None:
    assert list(BINS) == ORDER
    assert BINS == COUNTS
    assert set(ORDER) < set(OPS)
    rates = CTAugment().learned.rates
    assert int(rates.sum()) == 16 * 17 + 8 + 17 + 6
    assert torch.equal(rates, torch.from_numpy(Oracle().table()).float())


# Pixels.


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ORDER)
def test_every_operation_equals_pil(name: str, channels: int, size: tuple[int, int]) -> None:
    policy = CTAugment("cta-fixed", depth=1)
    values = torch.cat([torch.linspace(0, 1, 18), uniforms(18)]).repeat(6 if name == "rescale" else 1)
    images = pictures(channels, *size)
    batch = images[torch.arange(len(values)) % len(images)]
    more = uniforms(len(values), 2, seed=1)
    if name == "rescale":
        more[:, 0] = (torch.arange(len(values)) // 36 + 0.5) / 6
    u = torch.cat([torch.full((len(values), 1), (ORDER.index(name) + 0.5) / 19), values[:, None], more], 1)
    expected = torch.stack(
        [
            tensor_of(by_pil(picture_of(image), name, v, w, (w, b), fixed=True))
            for image, (_, v, w, b) in zip(batch, u.tolist(), strict=True)
        ]
    )
    for path in PATHS:
        assert torch.equal(policy.probe(batch, u, path)[0], expected), path
    unchanged = {("identity", channels, size), ("color", 1, size), ("equalize", channels, (8, 8))}
    if (name, channels, size) not in unchanged:
        assert not torch.equal(expected, batch)


@pytest.mark.parametrize(("side", "crop"), [(96, 64), (40, 32), (28, 16), (28, 24), (30, 20), (9, 6), (225, 150)])
def test_nearest_takes_pils_side_where_a_centre_falls_on_a_border(side: int, crop: int) -> None:
    images = pictures(3, side, side)
    share = (side - crop) / 2 / side
    got = rescale(images, torch.full((len(images),), share), torch.full((len(images),), FILTERS.index("nearest")))
    share = float(np.float32(share))
    box = (share * side, share * side, side * (1 - share), side * (1 - share))
    expected = [picture_of(image).crop(box).resize((side, side), Image.Resampling.NEAREST) for image in images]
    assert torch.equal(got, torch.stack([tensor_of(picture) for picture in expected]))


def test_an_image_too_small_for_a_filter_stays_as_it_is() -> None:
    policy = CTAugment(depth=1)
    for size in ((4, 7), (2, 9), (1, 1)):
        images = pictures(3, *size)
        for name in ("blur", "smooth", "sharpness"):
            u = torch.tensor([[(ORDER.index(name) + 0.5) / 19, 0.9, 0.5, 0.5]]).expand(len(images), 4)
            expected = torch.stack([tensor_of(by_pil(picture_of(image), name, float(u[0, 1]))) for image in images])
            for path in PATHS:
                assert torch.equal(policy.probe(images, u, path)[0], expected), (name, size, path)


def test_the_faithful_translation_moves_nothing() -> None:
    images = pictures(3, 32, 32)
    for name in ("translate-x", "translate-y"):
        for value in (0.0, 0.25, 0.99999):
            u = torch.tensor([[(ORDER.index(name) + 0.5) / 19, value, 0.5, 0.5]]).expand(len(images), 4)
            assert torch.equal(CTAugment("cta", depth=1).probe(images, u)[0], images)
            if value != 0.25:
                assert not torch.equal(CTAugment("cta-fixed", depth=1).probe(images, u)[0], images)


@pytest.mark.parametrize("name", ["cta", "cta-fixed"])
@pytest.mark.parametrize(("channels", "size"), [(3, (32, 32)), (1, (17, 40))])
def test_strong_views_are_the_policy_and_half_the_side_cut_out(name: str, channels: int, size: tuple[int, int]) -> None:
    policy = CTAugment(name)
    oracle = set_rates(policy, seed=4)
    images = pictures(channels, *size).repeat(12, 1, 1, 1)
    u = uniforms(len(images), policy.uniforms, seed=5)
    drawn = policy.sample(u, size)
    expected = []
    for image, row in zip(images, u.tolist(), strict=True):
        changed = changed_by_pil(image, oracle.draw(row[:10]), fixed=name == "cta-fixed")
        expected.append(tensor_of(by_pil(picture_of(changed), "cutout", 1.0, place=(row[10], row[11]))))
    for path in PATHS:
        assert torch.equal(policy.apply(images, drawn, path), torch.stack(expected)), path
    side = 16 if size == (32, 32) else 8
    heights, widths = drawn.box[:, 2] - drawn.box[:, 0], drawn.box[:, 3] - drawn.box[:, 1]
    assert int(heights.max()) == int(widths.max()) == side


def test_the_cutout_may_have_pixels_of_its_own_or_none() -> None:
    images = torch.full((50, 3, 32, 32), 9, dtype=torch.uint8)
    none, small = CTAugment(cutout=0), CTAugment(cutout=6)
    assert (none.uniforms, small.uniforms, CTAugment().uniforms, CTAugment().probe_uniforms) == (10, 12, 12, 8)
    u = uniforms(50, 12)
    u[:, [0, 5]] = (ORDER.index("identity") + 0.5) / 19
    assert torch.equal(none.apply(images, none.sample(u[:, :10], (32, 32))), images)
    covered = (small.apply(images, small.sample(u, (32, 32))) == 127).all(1).sum((1, 2))
    assert int(covered.max()) == 36


# The arithmetic.


def test_weights_by_hand() -> None:
    policy = CTAugment()
    row = ORDER.index("posterize")
    policy.learned.rates[row, :8] = torch.tensor([1.0, 0.9, 0.8, 0.79, 0.5, 0.0, 1.0, 0.7])
    # (0.8 + 0.01) / 1.01 = .80198 stays, (0.79 + 0.01) / 1.01 = .79208 goes.
    expected = np.array([1.01, 0.91, 0.81, 0, 0, 0, 1.01, 0]) / 3.74
    weights = policy.weights()
    assert weights[row, :8].tolist() == pytest.approx(expected.tolist())
    assert weights[row, 8:].tolist() == [0.0] * 9
    assert weights[ORDER.index("rotate")].tolist() == pytest.approx([1 / 17] * 17)
    assert weights[-1].tolist() == pytest.approx([1 / 6] * 6 + [0] * 11)
    assert weights[ORDER.index("identity")].tolist() == [0.0] * 17
    # Bins 0, 1, 2 and 6 end at .27005, .51337, .72995 and 1.
    u = torch.zeros(6, policy.uniforms)
    u[:, [0, 5]] = (row + 0.5) / 19
    u[:, 1] = u[:, 6] = torch.tensor([0.0, 0.27, 0.2701, 0.6, 0.73, 1 - 2**-24])
    u[:, 2] = u[:, 7] = 0.5
    bits = [1 + int((b + 0.5) / 8 * 7.999) for b in (0, 0, 1, 2, 6, 6)]
    assert policy.sample(u, (32, 32)).magnitude[:, 0].tolist() == bits


def test_several_hits_on_one_bin_by_hand() -> None:
    policy = CTAugment()
    rotate, solarize = ORDER.index("rotate"), ORDER.index("solarize")
    # Three images: rotate's bin 3 is hit by all of them, solarize's bin 0 by the second, the last also hits bin 4.
    record = torch.full((3, 2, 2), -1)
    record[:, 0, 0] = rotate * 17 + 3
    record[1, 1, 0] = solarize * 17
    record[2, 1, 0] = rotate * 17 + 4
    policy.update(record, torch.tensor([0.2, 0.4, 0.9]))
    expected = Oracle().table()
    expected[rotate, 3] = 0.970299 * 1 + 0.029701 * 0.5
    expected[solarize, 0] = 0.99 + 0.01 * 0.4
    expected[rotate, 4] = 0.99 + 0.01 * 0.9
    assert np.allclose(policy.learned.rates.numpy(), expected, atol=1e-7)
    policy.update(record[:1], torch.tensor([1.0]))
    expected[rotate, 3] = 0.99 * 0.9851495 + 0.01
    assert np.allclose(policy.learned.rates.numpy(), expected, atol=1e-7)


def test_one_hit_at_a_time_is_googles_rule() -> None:
    """Equal proximities: n hits at once are n hits one after the other."""
    at_once, in_turn = CTAugment(), CTAugment()
    record = torch.full((5, 2, 2), -1)
    record[:, 0, 0] = 40
    at_once.update(record, torch.full((5,), 0.3))
    for _ in range(5):
        in_turn.update(record[:1], torch.tensor([0.3]))
    assert torch.allclose(at_once.learned.rates, in_turn.learned.rates)


def test_proximity_by_hand() -> None:
    p = torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert proximity(p, torch.tensor([0, 2, 0, 0])).tolist() == pytest.approx([0.7, 0.1, 1.0, 0.0])


def test_eight_steps_equal_the_oracle() -> None:
    policy, oracle = CTAugment(decay=0.8), Oracle(decay=0.8)
    images = pictures(3, 8, 8).repeat(4, 1, 1, 1)
    for step in range(8):
        u = uniforms(len(images), policy.probe_uniforms, seed=step)
        closeness = uniforms(len(images), seed=100 + step)
        policies = [oracle.probe(row) for row in u.tolist()]
        probes, record = policy.probe(images, u)
        expected = torch.stack([changed_by_pil(x, p) for x, p in zip(images, policies, strict=True)])
        assert torch.equal(probes, expected)
        policy.update(record, closeness)
        oracle.update(policies, closeness.tolist())
        assert np.allclose(policy.learned.rates.numpy(), oracle.table(), atol=1e-6)
        u = uniforms(64, policy.uniforms, seed=200 + step)
        drawn = policy.sample(u, (8, 8))
        for row, op, magnitude in zip(u.tolist(), drawn.op.tolist(), drawn.magnitude.tolist(), strict=True):
            for (name, values, _), code, got in zip(oracle.draw(row[:10]), op, magnitude, strict=True):
                assert OPS[code] == name
                if name in ("blur", "smooth"):
                    assert got == pytest.approx(values[0], abs=1e-6)
                if name == "rescale":
                    assert got == pytest.approx(values[0] / 4, abs=1e-6)
    assert (oracle.table() < 0.8).any()


def test_bins_are_drawn_in_proportion_and_operations_uniformly() -> None:
    policy = CTAugment(depth=1, cutout=0)
    oracle = set_rates(policy, seed=1, low=0.6)
    total = 190_000
    u = uniforms(total, policy.uniforms, seed=3)
    op = policy.sample(u, (32, 32)).op[:, 0]
    counts = torch.bincount(op, minlength=len(OPS)).float()
    names = [name for name, count in zip(OPS, counts.tolist(), strict=True) if count]
    assert sorted(names) == sorted(ORDER)
    assert ((counts[counts > 0] - total / 19).abs() < 5 * (total / 19) ** 0.5).all()
    u[:, 0] = (ORDER.index("blur") + 0.5) / 19
    bins = (policy.sample(u, (32, 32)).magnitude[:, 0] * 17).long()
    expected = total * oracle.weights(oracle.rates["blur"][0])
    found = torch.bincount(bins, minlength=17)
    assert 0 < (expected == 0).sum() < 17
    assert (np.abs(found.numpy() - expected) <= 5 * np.sqrt(expected) + 1e-9).all()


def test_probes_ignore_the_rates_and_strong_views_do_not() -> None:
    images = pictures(3, 32, 32).repeat(10, 1, 1, 1)
    fresh, learned = CTAugment(), CTAugment()
    set_rates(learned, seed=2)
    u = uniforms(len(images), 12)
    for first, second in zip(fresh.probe(images, u[:, :8]), learned.probe(images, u[:, :8]), strict=True):
        assert torch.equal(first, second)
    assert not torch.equal(fresh.sample(u, (32, 32)).magnitude, learned.sample(u, (32, 32)).magnitude)
    again = learned.sample(u.clone(), (32, 32))
    for first, second in zip(learned.sample(u, (32, 32)), again, strict=True):
        assert torch.equal(first, second)
    half = learned.sample(u[45:], (32, 32))
    assert torch.equal(half.magnitude, again.magnitude[45:])


def test_extreme_uniforms_and_rates_stay_in_range() -> None:
    for u in (0.0, 0.5, 1 - 2**-24):
        for low in (0.0, 0.9):
            policy = CTAugment()
            set_rates(policy, seed=6, low=low)
            policy.learned.rates *= 0.0 if u == 0.5 else 1.0  # all of a row may fall to nothing
            for choice in range(19):
                numbers = torch.full((1, 12), u)
                numbers[:, [0, 5]] = (choice + 0.5) / 19
                drawn = policy.sample(numbers, (32, 32))
                assert bool(drawn.magnitude.isfinite().all())
                assert 0 <= int(drawn.kind.min()) <= int(drawn.kind.max()) <= 5
                if ORDER[choice] != "identity":
                    assert -45 <= float(drawn.magnitude.min()) <= float(drawn.magnitude.max()) <= 255
                _, record = policy.probe(pictures(3, 8, 8)[:1], numbers[:, :8])
                assert -1 <= int(record.min()) <= int(record.max()) < policy.learned.rates.numel()
                assert policy.learned.rates.flatten()[record[record >= 0]].numel() == (record >= 0).sum()


slow = pytest.mark.skipif(not os.environ.get("MAXMATCH_SLOW"), reason="a minute or two; set MAXMATCH_SLOW=1 to run it")


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=slow)])
def test_compiled_equals_eager_and_reads_no_value(backend: str) -> None:
    policy = CTAugment(depth=1)
    set_rates(policy, seed=7)
    views = Views(Weak(), policy)
    images = pictures(3, 8, 8).repeat(19, 1, 1, 1)

    def both(x: Tensor, u: Tensor, u_probe: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        strong = views.strong_views(x, u)
        return (*policy.probe(x, u_probe), strong.images, strong.op)

    options = EXACT if backend == "inductor" else None
    compiled = torch.compile(both, dynamic=False, fullgraph=True, backend=backend, options=options)
    for seed in range(3):
        u = uniforms(1, len(images), views.strong_uniforms, seed=seed)
        u_probe = uniforms(len(images), policy.probe_uniforms, seed=seed)
        expected = both(images, u, u_probe)
        for got, wanted in zip(compiled(images, u, u_probe), expected, strict=True):
            assert torch.equal(got, wanted)
        policy.update(expected[1], uniforms(len(images), seed=seed))  # the compiled code sees the new rates


# By name, and in a run.


def test_policies_by_name() -> None:
    assert strong_policy("cta") == CTAugment("cta")
    assert strong_policy("cta-fixed", cutout=8) == CTAugment("cta-fixed", cutout=8)
    assert strong_policy("usb") is PRESETS["usb"]
    assert (CTAugment().depth, CTAugment().decay, CTAugment().threshold) == (2, 0.99, 0.80)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policy": "cta", "n": 3}, "n = 3: policy cta has its own; leave n out"),
        ({"policy": "cta-fixed", "p": 0.5}, "p = 0.5: policy cta-fixed"),
        ({"policy": "cta", "levels": [1, 5]}, "levels = .* leave levels out"),
        ({"policy": "cta", "ops": ["rotate"]}, "ops = .* leave ops out"),
        ({"policy": "cta-fix"}, "did you mean 'cta-fixed'"),
        ({"policy": "fixmatch", "ops": ["blur"]}, "blur"),
    ],
)
def test_what_does_not_apply_is_refused(tiny, given, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=message) as caught:
        make_views(tiny(augment=given).augment)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [{"name": "ct"}, {"depth": 0}, {"decay": 1.0}, {"threshold": 1.5}, {"cutout": -1}])
def test_numbers_out_of_range_are_refused(given) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=str(next(iter(given.values())))):
        CTAugment(**given)


def test_describe_names_what_is_done() -> None:
    policy = CTAugment()
    slots = [("rotate", 0.9, 0, 0), ("rescale", 0.5, 0.3, 0.5), ("cutout", 0.999, 0.5, 0.5), ("identity", 0, 0, 0)]
    u = torch.tensor([(ORDER.index(name) + 0.5, v, a, b) for name, v, a, b in slots])
    u[:, 0] /= 19
    sampled = torch.zeros(2, 12)
    for number, (choice, v, a, b) in enumerate(u.tolist()):
        bins = 17 * v
        place = sampled[number // 2, 5 * (number % 2) :]
        place[:5] = torch.tensor([choice, (int(bins) + 0.5) / 17, bins - int(bins), a, b])
    sampled[:, 10:] = 0.5
    assert policy.describe(policy.sample(sampled, (32, 32))) == [
        ["rotate +36", "rescale 0.125 bicubic", "cutout 16x16"],
        ["cutout 16x16", "cutout 16x16"],
    ]


def checkpointed(folder: Path) -> dict[str, Tensor]:
    return load_file(checkpoints(folder / "checkpoint")[-1])


@pytest.mark.parametrize("method", ["maxmatch", "fixmatch", "supervised"])
def test_a_run_learns_its_rates_and_resumes_bit_for_bit(tiny, tmp_path, method: str) -> None:  # type: ignore[no-untyped-def]
    wanted = {} if method == "supervised" else {"method": {"threshold": 0.1}}
    recipe = tiny(method, augment={"policy": "cta"}, train={"lr": 0.05}, **wanted)
    fit(recipe, tmp_path / "whole", quiet=True)
    fit(recipe, tmp_path / "again", quiet=True)
    fit(recipe, tmp_path / "parts", quiet=True)
    # As if the run had been stopped after its first checkpoint that is kept.
    last = checkpoints(tmp_path / "parts" / "checkpoint")
    last[-1].unlink()
    (tmp_path / "parts" / "result.json").unlink()
    fit(recipe, tmp_path / "parts", resume=True, quiet=True)
    whole, again, parts = (checkpointed(tmp_path / name) for name in ("whole", "again", "parts"))
    assert whole.keys() == again.keys() == parts.keys()
    for name in whole:
        assert torch.equal(whole[name], again[name]), name
        assert torch.equal(whole[name], parts[name]), name
    rates = whole["policy.rates"]
    moved = (rates != CTAugment().learned.rates).sum()
    assert 100 < int(moved) < 303
    assert float(rates.min()) >= 0
    assert float(rates.max()) <= 1
    if method != "supervised":
        lines = [line for line in read_metrics(tmp_path / "whole" / "metrics.jsonl") if "op_wins" in line]
        assert {"blur", "rescale", "cutout"} & set().union(*(line["op_wins"] for line in lines))


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_step_teaches_the_policy_what_the_averaged_net_says(tiny, tmp_path, precision) -> None:  # type: ignore[no-untyped-def]
    """In the precision of its weights, whatever training runs in."""
    recipe = resolve(tiny(augment={"policy": "cta"}, train={"precision": precision}), device="cpu", threads=1)
    training = begin(recipe, tmp_path / "a", quiet=True)
    step, oracle, plan = training.step, Oracle(), Plan(recipe.train.seed)
    for t in range(4):
        step(t)
        row = step.rows.row
        assert np.array_equal(row["labelled/probe"][0].numpy(), plan.uniforms("labelled/probe/0", t, (8, 8)))
        batch, _ = step.batches(row, 0)
        policies = [oracle.probe(u) for u in row["labelled/probe"][0].tolist()]
        probes = torch.stack([changed_by_pil(x, p) for x, p in zip(batch.x, policies, strict=True)])
        p = torch.softmax(training.logits(probes), -1)
        oracle.update(policies, p[torch.arange(8), batch.y].tolist())  # 1 - 1/2 |p - onehot|_1 is the label's p
        assert np.allclose(step.learner.learned.rates.numpy(), oracle.table(), atol=1e-6)


def test_randaugment_learns_nothing_and_draws_no_probe(tiny, tmp_path) -> None:  # type: ignore[no-untyped-def]
    training = begin(resolve(tiny(), device="cpu", threads=1), tmp_path / "a", quiet=True)
    assert training.step.learner is None
    assert training.step.draws.floats["labelled/probe"][1] == (0, 8, 0)
    assert not [name for name in training.step.tensors() if name.startswith("policy.")]


def test_a_finished_run_is_judged_by_what_it_learned(tiny, tmp_path) -> None:  # type: ignore[no-untyped-def]
    recipe = tiny(augment={"policy": "cta-fixed"}, train={"steps": 6})
    fit(recipe, tmp_path / "a", quiet=True)
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    judged = judge(tmp_path / "a")
    assert judged["robust"]["policy"] == "cta-fixed"
    assert (judged["robust_error"], judged["robust_error_paper"]) == pytest.approx(
        (result["robust_error"], result["robust_error_paper"])
    )
    for path in checkpoints(tmp_path / "a" / "checkpoint"):
        path.unlink()
    with pytest.raises(UserError, match="holds no checkpoint"):
        judge(tmp_path / "a")


def test_views_of_both_kinds_have_the_same_frame() -> None:
    images = pictures(3, 32, 32)
    for name in ("cta", "fixmatch"):
        views = Views(Weak(), strong_policy(name), shared_crop=True)
        strong = views.strong_views(images, uniforms(3, 9, views.strong_uniforms), uniforms(9, 3))
        assert strong.images.shape == (3, *images.shape)
        assert strong.op.shape == (3, 9, 2)
    assert replace(views, strong=CTAugment()).learner is not None


def test_the_best_bins_are_drawn_at_any_threshold() -> None:
    """A bin at the threshold is drawn: at 1 the best ones are left, not none."""
    policy = CTAugment(threshold=1.0)
    assert policy.weights()[ORDER.index("rotate")].tolist() == pytest.approx([1 / 17] * 17)
    policy.learned.rates[ORDER.index("posterize"), :8] = torch.tensor([0.5, 0.9, 0.9, 0.1, 0.0, 0.8, 0.9, 0.7])
    assert policy.weights()[ORDER.index("posterize"), :8].tolist() == pytest.approx(
        [0, 1 / 3, 1 / 3, 0, 0, 0, 1 / 3, 0]
    )

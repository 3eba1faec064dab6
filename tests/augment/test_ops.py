"""Every operation against PIL, pixel for pixel, over every preset's range."""

from __future__ import annotations

import pytest
import torch
from pil_oracle import pictures, pil_op
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from maxmatch.augment import PRESETS
from maxmatch.augment.kernels import luminance
from maxmatch.augment.ops import CODE, apply, autocontrast, histogram
from maxmatch.augment.ops import RANDAUGMENT as OPS
from maxmatch.train.step import EXACT

SIZES = [(8, 8), (32, 32), (17, 40), (96, 96)]
PATHS = ["dense", "grouped"]


def magnitudes(op: str, width: int) -> Tensor:
    """Every magnitude the presets give `op`: levels 0 to 10 or, where uniform, twenty values in between."""
    values = []
    for policy in PRESETS.values():
        for name, magnitude in policy.magnitudes:
            if name == op and op in policy.ops:
                generator = torch.Generator().manual_seed(width)
                level = torch.arange(11) if policy.levels else 10 * torch.rand(20, generator=generator)
                for negative in (False, True) if magnitude.signed else (False,):
                    values.append(magnitude.value(level, torch.full(level.shape, negative), width))
    if not values:
        return torch.zeros(1)
    found = torch.cat(values).float().unique()
    return found[found >= 1] if op == "posterize" else found  # PIL refuses 0 bits


def colour_of(channels: int) -> tuple[int, ...]:
    return (125, 123, 114) if channels == 3 else (121,)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("op", OPS)
def test_every_operation_equals_pil(op: str, channels: int, size: tuple[int, int]) -> None:
    images, values = pictures(channels, *size), magnitudes(op, size[1])
    fill = colour_of(channels)
    # Each magnitude meets three of the nine pictures in turn; a lone magnitude meets all of them.
    magnitude = values.repeat_interleave(3 if len(values) > 3 else len(images))
    batch = images[torch.arange(len(magnitude)) % len(images)]
    expected = torch.stack(
        [
            pil_op(image, op, value, fill if channels == 3 else fill[0])
            for image, value in zip(batch, magnitude.tolist(), strict=True)
        ]
    )
    if op not in ("identity", "equalize") and (op, channels) != ("color", 1):
        assert not torch.equal(expected, batch)
    codes = torch.full((len(batch),), CODE[op])
    for path in PATHS:
        assert torch.equal(apply(batch, codes, magnitude, fill, path), expected), path


def test_equalize_changes_a_photograph() -> None:
    images = pictures(3, 32, 32)[-1:]
    out = apply(images, torch.tensor([CODE["equalize"]]), torch.zeros(1), (0,))
    assert not torch.equal(out, images)


@pytest.mark.parametrize("value", [2.5, -2.5, 2.4999998, 2.5000002, -2.5000002, 0.49999997, 31.5, -40.0])
def test_translation_by_a_fraction_falls_where_pil_puts_it(value: float) -> None:
    images = pictures(3, 32, 32)
    for op in ("translate-x", "translate-y"):
        magnitude = torch.full((len(images),), value)
        got = apply(images, torch.full((len(images),), CODE[op]), magnitude, (9, 8, 7), "dense")
        expected = [pil_op(image, op, float(magnitude[0]), (9, 8, 7)) for image in images]
        assert torch.equal(got, torch.stack(expected))


@pytest.mark.parametrize("angle", [45.0, 90.0, -90.0, 180.0, 200.5, 360.0])
def test_large_angles_equal_pil(angle: float) -> None:
    images = pictures(3, 32, 32)
    got = apply(images, torch.full((len(images),), CODE["rotate"]), torch.full((len(images),), angle), (5,))
    assert torch.equal(got, torch.stack([pil_op(image, "rotate", angle, (5, 5, 5)) for image in images]))


def mixed(channels: int, size: tuple[int, int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """A batch in which all sixteen operations occur, at random magnitudes."""
    generator = torch.Generator().manual_seed(seed)
    images = pictures(channels, *size, seed).repeat(16, 1, 1, 1)
    op = torch.arange(len(images)) % len(OPS)
    op = op[torch.randperm(len(op), generator=generator)]
    choices = [magnitudes(name, size[1]) for name in OPS]
    draws = torch.rand(len(op), generator=generator)
    magnitude = torch.stack(
        [choices[code][int(u * len(choices[code]))] for code, u in zip(op.tolist(), draws, strict=True)]
    )
    return images, op, magnitude


@pytest.mark.parametrize("size", [(8, 8), (17, 40)])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_mixed_batch_equals_each_image_alone(channels: int, size: tuple[int, int]) -> None:
    images, op, magnitude = mixed(channels, size, seed=1)
    fill = colour_of(channels)
    for path in PATHS:
        together = apply(images, op, magnitude, fill, path)
        alone = [apply(images[i : i + 1], op[i : i + 1], magnitude[i : i + 1], fill, path) for i in range(len(images))]
        assert torch.equal(together, torch.cat(alone)), path


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3])
def test_dense_equals_grouped_and_leaves_its_input_alone(channels: int, size: tuple[int, int]) -> None:
    images, op, magnitude = mixed(channels, size, seed=2)
    before = images.clone()
    dense = apply(images, op, magnitude, colour_of(channels), "dense")
    grouped = apply(images, op, magnitude, colour_of(channels), "grouped")
    assert torch.equal(dense, grouped)
    assert torch.equal(apply(images, op, magnitude, colour_of(channels)), grouped)
    assert torch.equal(images, before)
    assert dense.dtype == grouped.dtype == torch.uint8


def test_one_fill_value_stands_for_three() -> None:
    images, op, magnitude = mixed(3, (32, 32), seed=3)
    assert torch.equal(apply(images, op, magnitude, (127,)), apply(images, op, magnitude, (127, 127, 127)))


def test_identity_ignores_the_magnitude() -> None:
    images = pictures(3, 17, 40)
    for path in PATHS:
        for magnitude in (-300.0, 0.0, 7.0, 300.0):
            values = torch.full((len(images),), magnitude)
            out = apply(images, torch.zeros(len(images), dtype=torch.int64), values, (1, 2, 3), path)
            assert torch.equal(out, images)


def test_histogram_counts() -> None:
    images = pictures(3, 17, 40)
    counts = histogram(images)
    for image, count in zip(images, counts, strict=True):
        for channel in range(3):
            assert torch.equal(count[channel], torch.bincount(image[channel].flatten(), minlength=256).int())


def test_luminance_of_pure_colours_by_hand() -> None:
    pure = torch.eye(3, dtype=torch.uint8).view(3, 3, 1, 1) * 255
    assert luminance(pure).flatten().tolist() == [76, 150, 29]


def test_dense_path_reads_no_value_and_holds_no_constant() -> None:
    images, op, magnitude = mixed(3, (8, 8), seed=4)

    def changed(path: str):  # type: ignore[no-untyped-def]
        return lambda x, o, m: apply(x, o, m, (125, 123, 114), path)

    traced = make_fx(changed("dense"), tracing_mode="fake")(images, op, magnitude)
    assert not [node for node in traced.graph.nodes if node.op == "get_attr"]
    names = " ".join(str(node.target) for node in traced.graph.nodes)
    for forbidden in ("nonzero", "_local_scalar_dense", "masked_select", "rand", "bincount", "unique"):
        assert forbidden not in names
    other = mixed(3, (8, 8), seed=5)
    assert torch.equal(traced(*other), apply(*other, (125, 123, 114), "grouped"))
    with pytest.raises(Exception, match=r"data-dependent|nonzero"):
        make_fx(changed("grouped"), tracing_mode="fake")(images, op, magnitude)


def test_autocontrast_compiled_for_a_cpu_equals_eager() -> None:
    images = pictures(3, 8, 8)
    compiled = torch.compile(autocontrast, dynamic=False, options=EXACT)
    assert torch.equal(compiled(images, torch.zeros(9)), autocontrast(images, torch.zeros(9)))

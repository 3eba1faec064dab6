"""RandAugment's CUDA kernel, run on a CPU, against the tensors that are equal to PIL: the same pixels."""

from __future__ import annotations

import shutil

import pytest
import torch
from emulator import Emulated
from pil_oracle import pictures
from test_ops import SIZES, colour_of, magnitudes, mixed
from torch import Tensor

from maxmatch.augment import PRESETS, Draw, RandAugment, Views, Weak, fused, randaugment, strong_policy
from maxmatch.augment.fused import OPTIONS, FusedRandAugment, can_fuse, fuse, source
from maxmatch.augment.ops import CODE, apply
from maxmatch.augment.ops import RANDAUGMENT as OPS
from maxmatch.nvrtc import without_toolkit
from maxmatch.train.step import EXACT

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the kernel is built by g++ here")
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def emulated(monkeypatch) -> None:
    """The kernel runs on the CPU."""
    torch.manual_seed(1)
    monkeypatch.setattr(fused, "_kernel", lambda device, *given: Emulated(source(*given)))
    fused._randaugment.register_kernel("cpu")(fused._randaugment._init_fn)


def alone(images: Tensor, op: Tensor, magnitude: Tensor) -> tuple[RandAugment, Draw]:
    """One operation for each image, and nothing cut out."""
    fill = colour_of(images.shape[1])
    policy = RandAugment("alone", ("identity",), 1, 1.0, None, (), fill if len(fill) == 3 else fill[0])
    return policy, Draw(op.view(-1, 1), magnitude.view(-1, 1), torch.zeros(len(images), 4, dtype=torch.int64))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("channels", [1, 3])
def test_every_operation_has_the_pixels_that_are_equal_to_pil(channels: int, size: tuple[int, int]) -> None:
    images = pictures(channels, *size)
    for name in OPS:
        values = magnitudes(name, size[1])
        magnitude = values.repeat_interleave(3 if len(values) > 3 else len(images))
        batch = images[torch.arange(len(magnitude)) % len(images)]
        op = torch.full((len(batch),), CODE[name])
        expected = apply(batch, op, magnitude, colour_of(channels), "grouped")
        policy, draw = alone(batch, op, magnitude)
        assert torch.equal(fuse(policy).apply(batch, draw), expected), name


@pytest.mark.parametrize("value", [2.5, -2.5, 2.4999998, -2.5000002, 0.49999997, 31.5, -40.0, 300.0, 1e-9, 8.0, 9.5])
def test_magnitudes_out_of_the_ordinary_have_the_same_pixels(value: float) -> None:
    images = pictures(3, 32, 32)
    for name in OPS:
        op, magnitude = torch.full((len(images),), CODE[name]), torch.full((len(images),), value)
        policy, draw = alone(images, op, magnitude)
        expected = apply(images, op, magnitude, colour_of(3), "grouped")
        assert torch.equal(fuse(policy).apply(images, draw), expected), name


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (5, 2), (3, 3)])
def test_small_images_have_the_same_pixels(size: tuple[int, int]) -> None:
    images, op, magnitude = mixed(3, size, seed=3)
    policy, draw = alone(images, op, magnitude)
    assert torch.equal(fuse(policy).apply(images, draw), apply(images, op, magnitude, colour_of(3), "grouped"))


def test_a_grey_halfway_between_two_levels_is_rounded_up() -> None:
    """(0, 52, 184) is 51.5 in PIL's weights; one such image for each operation that looks at grey."""
    images = torch.tensor([0, 52, 184], dtype=torch.uint8).view(1, 3, 1, 1).expand(2, 3, 8, 8).contiguous()
    op, magnitude = torch.tensor([CODE["color"], CODE["contrast"]]), torch.zeros(2)
    policy, draw = alone(images, op, magnitude)
    assert fuse(policy).apply(images, draw).unique().tolist() == [52]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_whole_policies_make_the_same_views(preset: str, channels: int) -> None:
    policy = PRESETS[preset]
    assert isinstance(policy, RandAugment)
    images = pictures(channels, 32, 32).repeat(20, 1, 1, 1)
    draw = policy.sample(torch.rand(len(images), policy.uniforms), (32, 32))
    before = images.clone()
    changed = fuse(policy).apply(images, draw)
    assert torch.equal(changed, policy.apply(images, draw))
    assert torch.equal(images, before)
    assert not torch.equal(changed, images)


def test_no_operations_and_a_view_that_is_not_contiguous() -> None:
    policy = randaugment("fixmatch", n=0)
    images = pictures(3, 32, 32).permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    draw = policy.sample(torch.rand(len(images), policy.uniforms), (32, 32))
    changed = fuse(policy).apply(images, draw)
    assert torch.equal(changed, policy.apply(images, draw))
    assert changed.is_contiguous()


def test_no_images_are_no_launch_and_other_numbers_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(fused, "_kernel", None)
    policy, images = randaugment("fixmatch"), pictures(3, 8, 8)
    draw = policy.sample(torch.rand(9, policy.uniforms), (8, 8))
    assert fuse(policy).apply(images[:0], Draw(*(part[:0] for part in draw))).shape == (0, 3, 8, 8)
    for wrong in (draw._replace(op=draw.op.int()), draw._replace(box=draw.box.int())):
        with pytest.raises(AssertionError):
            fuse(policy).apply(images, wrong)


def test_threads_of_a_block_wait_for_each_other(monkeypatch) -> None:
    """Five real threads share each image; where one ran ahead, some pixel of some view would be another's."""
    monkeypatch.setattr(fused, "_kernel", lambda device, *given: Emulated(source(*given), threads=5))
    policy = randaugment("usb", n=4)
    images = pictures(3, 17, 40).repeat(30, 1, 1, 1)
    draw = policy.sample(torch.rand(len(images), policy.uniforms), (17, 40))
    assert torch.equal(fuse(policy).apply(images, draw), policy.apply(images, draw))


def test_views_compile_with_the_kernel_in_them() -> None:
    policy = randaugment("fixmatch")
    plain, ours = Views(Weak(), policy), Views(Weak(), fuse(policy))
    images, u = pictures(3, 32, 32), torch.rand(3, 9, plain.strong_uniforms)
    found = torch.compile(ours.strong_views, dynamic=False, fullgraph=True, options=EXACT)(images, u)
    expected = plain.strong_views(images, u)
    assert torch.equal(found.images, expected.images)
    assert torch.equal(found.op, expected.op)


def test_the_policy_stays_what_it_is_but_for_its_kernel() -> None:
    policy = randaugment("usb", n=3)
    ours = fuse(policy)
    assert isinstance(ours, FusedRandAugment)
    assert (ours.uniforms, ours.name, ours.magnitudes) == (policy.uniforms, policy.name, policy.magnitudes)


def test_where_it_can_be_used(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "_compile_kernel", None, raising=False)
    policy = PRESETS["fixmatch"]
    assert can_fuse(policy, (3, 32, 32), CUDA)
    assert can_fuse(policy, (3, 96, 96), CUDA)
    assert can_fuse(policy, (3, 122, 122), CUDA)
    assert not can_fuse(policy, (3, 123, 123), CUDA)  # more than a block's shared memory
    assert not can_fuse(policy, (2, 32, 32), CUDA)
    assert not can_fuse(policy, (3, 32, 32), torch.device("cpu"))
    assert not can_fuse(strong_policy("cta"), (3, 32, 32), CUDA)
    assert not can_fuse(fuse(policy), (3, 32, 32), CUDA)
    monkeypatch.delattr(torch.cuda, "_compile_kernel")
    assert not can_fuse(policy, (3, 32, 32), CUDA)


@pytest.mark.skipif(not torch.version.cuda, reason="a torch without CUDA has no NVRTC")
@pytest.mark.parametrize("capability", ["80", "90"])
def test_it_compiles_for_a_gpu(capability: str) -> None:
    utils = pytest.importorskip("torch.cuda._utils")
    text = source((3, 32, 32), 2, (127, 127, 127), (0, 0, 0))
    with without_toolkit():
        binary, name = utils._nvrtc_compile(text, "randaugment", capability, nvcc_options=list(OPTIONS))
    assert len(binary) > 1000
    assert name == "randaugment"

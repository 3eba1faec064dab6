"""A Wide ResNet pass in bf16 with BatchNorm and LeakyReLU fused into the convolutions, for Hopper GPUs.

Between two convolutions of a pre-activation net lie statistics, a normalisation and an activation: as kernels of their
own they cost as much as the convolutions. Here one kernel (convolution.cu) normalises while it loads, adds the residual
and sums the next layer's statistics while it stores; the same kernel is the backward pass with respect to the input,
and gradient.cu the one with respect to the weights, so that activated images are never in memory. What doesn't fit
(stride 2, 128 channels or more) runs as the net itself has it. `nets.wide_resnet` is the truth: tests/nets and
tests/gpu hold this file to it.

Inside, images are (B, H W, C), pixel after pixel (with four dimensions inductor would turn and copy them); `sums`
(blocks, 2, C) are each block's sums and sums of squares of them, and `moments` (2, C) their mean and one over their
deviation.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from maxmatch.nets.batchnorm import BatchNorm, is_frozen
from maxmatch.nets.kernels import CHANNELS, convolve, convolve_back, side_of, weight_gradient
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.nets.wide_resnet import SLOPE, Block, WideResNet
from maxmatch.nvrtc import can_compile

STEM = 16  # input channels of the stem, filled up with zeros


def can_fuse(net: nn.Module, shape: tuple[int, int, int], device: torch.device) -> bool:
    """Whether `Fused` runs here for uint8 images of this shape."""
    channels, height, width = shape
    fits = isinstance(net, WideResNet) and not any(b.dropout for b in net.blocks if isinstance(b, Block))
    fits = fits and not any(map(is_frozen, net.modules()))
    if not fits or height != width or height % 8 or height > 64 or channels > 4 or device.type != "cuda":
        return False
    return torch.cuda.get_device_capability(device) == (9, 0) and can_compile()


Moved = tuple[BatchNorm, Tensor, int]  # with the moments of what it normalised, and how many pixels that was


class Fused:
    """`fused(images)`: logits of uint8 images in `train` or `score` mode, under the caller's autocast to bf16."""

    def __init__(self, net: WideResNet, preprocessing: Preprocessing) -> None:
        self.net = net
        self.convolutions = [net.stem, *(m for m in net.blocks.modules() if isinstance(m, nn.Conv2d) and _fits(m))]
        device = net.stem.weight.device
        # `index` takes all weights, one after the other and a zero, to what the kernels read: forward, then backward.
        shapes: list[torch.Size] = []
        index: list[Tensor] = []
        nothing = sum(conv.weight.numel() for conv in self.convolutions)
        start = 0
        for conv in self.convolutions:
            outputs, inputs, side, _ = conv.weight.shape
            here = (
                torch.arange(start, start + conv.weight.numel()).view(outputs, side, side, inputs).permute(0, 3, 1, 2)
            )
            start += conv.weight.numel()
            more = STEM - inputs if conv is net.stem else 0
            forward = layout(functional.pad(here, (0, 0, 0, 0, 0, more), value=nothing))
            back = layout(here.flip(2, 3).transpose(0, 1)) if conv is not net.stem else here[:0]
            shapes += [forward.shape, back.shape]
            index += [forward.flatten(), back.flatten()]
        self._index = torch.cat(index).to(device)
        self._weights = torch.zeros(nothing + 1, dtype=net.stem.weight.dtype, device=device)
        self._packed = torch.empty(len(self._index), dtype=torch.bfloat16, device=device)
        parts = torch.split(self._packed, [shape.numel() for shape in shapes])
        pairs = zip(parts[::2], parts[1::2], shapes[::2], shapes[1::2], strict=True)
        self.packed = {c: (f.view(sf), b.view(sb)) for c, (f, b, sf, sb) in zip(self.convolutions, pairs, strict=True)}
        self.pixels = [torch.full((1,), value, device=device) for value in preprocessing.affine[0]]
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Take in the net's weights as they are now; once a step, before its passes."""
        sizes = [conv.weight.numel() for conv in self.convolutions]
        flat = [conv.weight.permute(0, 2, 3, 1) for conv in self.convolutions]
        parts = torch.split(self._weights[:-1], sizes)
        torch._foreach_copy_([part.view(w.shape) for part, w in zip(parts, flat, strict=True)], flat)
        self._packed.copy_(self._weights[self._index])

    def __call__(self, images: Tensor) -> Tensor:
        assert self.net.norm.mode != "eval", "the fused pass takes the batch's statistics"
        moved: list[Moved] = []
        x, sums = _Stem.apply(images, self.net.stem.weight, self.packed[self.net.stem][0], *self.pixels)
        for block in self.net.blocks:
            assert isinstance(block, Block)
            x, sums = self._block(block, x, sums, moved)
        _update_running(moved)
        return self.net.forward_head(functional.leaky_relu(self.net.norm(_channels_first(x)), SLOPE))

    def _block(self, block: Block, x: Tensor, sums: Tensor | None, moved: list[Moved]) -> tuple[Tensor, Tensor | None]:
        """As `Block.forward`."""

        def apply(norm: BatchNorm, conv: nn.Conv2d, x: Tensor, sums: Tensor, residual: Tensor | None) -> Any:
            out, sums, moments = _Convolution.apply(
                x, conv.weight, *self.packed[conv], sums, norm.weight, norm.bias, residual, norm.eps
            )
            moved.append((norm, moments, x.numel() // x.shape[-1]))
            return out, sums

        def activate(norm: BatchNorm, x: Tensor, sums: Tensor | None) -> Tensor:
            if sums is None:
                return _channels_last(functional.leaky_relu(norm(_channels_first(x)), SLOPE))
            out, moments = _Activation.apply(x, sums, norm.weight, norm.bias, norm.eps)
            moved.append((norm, moments, x.numel() // x.shape[-1]))
            return cast(Tensor, out)

        if _fits(block.conv1) and (block.shortcut is not None or not block.activate_shortcut):
            sums = _sums(x) if sums is None else sums
            h, sums_h = apply(block.norm1, block.conv1, x, sums, None)
            if block.activate_shortcut:
                assert block.shortcut is not None
                x, _ = apply(block.norm1, block.shortcut, x, sums, None)
                moved.pop()  # the same BatchNorm again
        else:
            y = activate(block.norm1, x, sums)
            h, sums_h = _channels_last(block.conv1(_channels_first(y))), None
            x = y if block.activate_shortcut else x
            if block.shortcut is not None:
                x = _channels_last(block.shortcut(_channels_first(x)))
        if _fits(block.conv2):
            x, sums = apply(block.norm2, block.conv2, h, _sums(h) if sums_h is None else sums_h, x)
            return x, sums
        y = activate(block.norm2, h, sums_h)
        return _channels_last(block.conv2(_channels_first(y))) + x, None


def layout(weight: Tensor) -> Tensor:
    """(O, I, k, k) weights in the order that convolution.cu reads: (taps, I / 8, O, 8).

    Column 8 j + 2 q + e of a group of 32 is its channel 8 q + 2 j + e: thread q of four holds channels in a row.
    """
    outputs, inputs, side, _ = weight.shape
    group = min(outputs, 32)
    weight = weight.permute(2, 3, 1, 0).reshape(side * side, inputs // 8, 8, outputs // group, 4, group // 8, 2)
    return weight.permute(0, 1, 3, 5, 4, 6, 2).reshape(side * side, inputs // 8, outputs, 8)


def _fits(conv: nn.Conv2d) -> bool:
    return conv.stride == (1, 1) and {conv.in_channels, conv.out_channels} <= set(CHANNELS)


def _channels_first(x: Tensor) -> Tensor:
    side = side_of(x)
    return x.view(len(x), side, side, -1).permute(0, 3, 1, 2)


def _channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).flatten(1, 2).contiguous()


@torch.no_grad()
def _sums(x: Tensor) -> Tensor:
    x = x if x.dtype == torch.float64 else x.float()
    return torch.stack([x.sum((0, 1)), x.square().sum((0, 1))])[None]


@torch.no_grad()
def _update_running(moved: list[Moved]) -> None:
    """Running statistics, as BatchNorm itself updates them."""
    for norm, (mean, inverse), count in moved:
        if norm.mode == "train":
            variance = (inverse**-2 - norm.eps) * (count / (count - 1))
            norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), norm.momentum)
            norm.running_var.lerp_(variance.to(norm.running_var.dtype), norm.momentum)


class _Stem(torch.autograd.Function):
    """The first convolution, of uint8 images."""

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, weight: Tensor, packed: Tensor, scale: Tensor, shift: Tensor
    ) -> tuple[Tensor, Tensor]:
        out, sums, _ = convolve(images, packed, None, scale, shift, None, 0.0)
        ctx.save_for_backward(images, scale, shift)
        ctx.mark_non_differentiable(sums)
        return out, sums

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        images, scale, shift = ctx.saved_tensors
        found = weight_gradient(images, None, scale, shift, gradients[0].contiguous(), 9)
        return None, _whole(found)[:, : images.shape[1]], None, None, None


class _Convolution(torch.autograd.Function):
    """conv(leaky(BatchNorm(x))) + residual, the sums of the result and the moments of x.

    The gradient with respect to x is the whole one: that of the moments, which x determines, is in it.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, packed: Tensor, packed_back: Tensor, sums: Tensor, gamma: Tensor,
        beta: Tensor, residual: Tensor | None, eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        out, sums, moments = convolve(x, packed, sums, gamma, beta, residual, eps)
        ctx.save_for_backward(x, packed_back, moments, gamma, beta)
        ctx.taps, ctx.residual = weight[0, 0].numel(), residual is not None
        ctx.mark_non_differentiable(sums, moments)
        return out, sums, moments

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, packed_back, moments, gamma, beta = ctx.saved_tensors
        delta = gradients[0].contiguous()
        found = _whole(weight_gradient(x, moments, gamma, beta, delta, ctx.taps))
        ds, sums = convolve_back(delta, packed_back, moments, gamma, beta, x)
        dx, by_gamma, by_beta = _back_through_norm(ds, sums.sum(0), x, moments, gamma)
        return dx, found, None, None, None, by_gamma, by_beta, delta if ctx.residual else None, None


class _Activation(torch.autograd.Function):
    """leaky(BatchNorm(x)) and the moments of x, where a convolution that doesn't fit follows one that gave the sums."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sums: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        mean, square = sums.to(gamma.dtype).sum(0) / (x.numel() // x.shape[-1])
        moments = torch.stack([mean, torch.rsqrt((square - mean.square()).clamp_min(0) + eps)])
        out = functional.leaky_relu((x - moments[0]) * (moments[1] * gamma) + beta, SLOPE).to(x.dtype)
        ctx.save_for_backward(x, moments, gamma, beta)
        ctx.mark_non_differentiable(moments)
        return out, moments

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, moments, gamma, beta = ctx.saved_tensors
        centred = x - moments[0]
        ds = gradients[0] * torch.where(centred * (moments[1] * gamma) + beta > 0, 1.0, SLOPE)
        totals = torch.stack([ds.sum((0, 1)), (ds * centred).sum((0, 1))])
        dx, by_gamma, by_beta = _back_through_norm(ds, totals, x, moments, gamma)
        return dx, None, by_gamma, by_beta, None


def _back_through_norm(
    ds: Tensor, totals: Tensor, x: Tensor, moments: Tensor, gamma: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, gamma and beta from that of BatchNorm's result; `totals` are the sums of ds and ds (x - mean)."""
    (by_beta, product), (mean, inverse), count = totals, moments, x.numel() // x.shape[-1]
    dx = gamma * inverse * (ds - by_beta / count - (x - mean) * (inverse.square() * product / count))
    return dx.to(x.dtype), inverse * product, by_beta


def _whole(shares: Tensor) -> Tensor:
    """Each block's share (blocks, O, taps, I) to the gradient of (O, I, k, k) weights."""
    total = shares.sum(0)
    side = 3 if total.shape[1] == 9 else 1
    return total.view(len(total), side, side, -1).permute(0, 3, 1, 2)

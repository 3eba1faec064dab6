"""Other weights to start from, in a net of the same size: does it learn sooner?

    python benchmarks/first_weights.py cifar10 whitened OUT          then maxmatch train cifar10@250 --init OUT ...

`whitened`: the first layer is the eight strongest principal components of 3x3 patches, each divided by its deviation,
and their negatives (as in airbench, Jordan 2024). `orthogonal`: all other convolutions have equal singular values.
`quiet`: what a block adds begins, and with Muon stays, at half its length. Lengths are else those that were drawn.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from maxmatch import compose
from maxmatch.nets.model_file import save_model
from maxmatch.nets.wide_resnet import Block, WideResNet
from maxmatch.train.fit import begin
from maxmatch.train.recipe import resolve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("kind", choices=("whitened", "orthogonal", "quiet"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    recipe = resolve(
        compose(asked.data, given={"train": {"seed": asked.seed}}), device="cpu", threads=torch.get_num_threads()
    )
    with tempfile.TemporaryDirectory() as folder:
        training = begin(recipe, Path(folder) / "run", quiet=True)
    net = training.step.net
    assert isinstance(net, WideResNet)
    with torch.no_grad():
        if asked.kind == "whitened":
            pixels = training.preprocessing(training.step.batches.pool[:5000])
            net.stem.weight.copy_(like(whitened(pixels, len(net.stem.weight)), net.stem.weight))
        elif asked.kind == "orthogonal":
            for conv in net.blocks.modules():
                if isinstance(conv, nn.Conv2d):
                    conv.weight.copy_(like(nn.init.orthogonal_(torch.empty(conv.weight.shape)), conv.weight))
        else:
            for block in net.blocks:
                assert isinstance(block, Block)
                block.conv2.weight.mul_(0.5)
    asked.out.mkdir(parents=True, exist_ok=True)
    save_model(asked.out / "model.safetensors", net, training.info)
    print(f"{asked.kind}. Next: maxmatch train {asked.data} --init {asked.out}")


def whitened(pixels: Tensor, filters: int) -> Tensor:
    """Filters (F, C, 3, 3) whose answers to pixels (B, C, H, W) are uncorrelated, but for each one's negative."""
    channels = pixels.shape[1]
    patches = functional.unfold(pixels, 3).transpose(1, 2).flatten(0, 1)  # (B h w, 9 C)
    variance, directions = torch.linalg.eigh(torch.cov(patches.T))
    strongest = (directions / (variance + 1e-4).sqrt()).T.flip(0)[: filters // 2]
    return torch.cat([strongest, -strongest]).view(filters, channels, 3, 3)


def like(weight: Tensor, drawn: Tensor) -> Tensor:
    """A weight with the length of the one that was drawn."""
    return weight * (drawn.norm() / weight.norm())


if __name__ == "__main__":
    main()

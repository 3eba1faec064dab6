"""What ImageNet costs on 8, 64 and 512 GPUs: hours, memory and network bytes a step, worked out from one GPU's record.

    python benchmarks/scale_cost.py [--record benchmarks/records/h200-resnet50.json] [--inside 200] [--between 25]

Nothing is run: step times, memory and parts are those that `maxmatch bench` measured on one GPU, the rest are the
formulas below. docs/scale.md holds what this prints, with the assumptions.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "records" / "h200-resnet50.json"
LABELLED, RATIO, EPOCHS = 64, 5, 300  # of the paper
UNLABELLED = 1_153_050  # 90 % of 1,281,167; rounding class by class moves it by some hundred, and no step
PICTURE_BYTES = 138e9 / 1_281_167  # the training archive's size, an assumption about JPEG bytes a picture
SLOT_BYTES = 3 * 320 * 320  # a decoded picture on its way to the device: data.canvas = 320
NODE = 8  # GPUs of a node
GPUS = (1, 8, 64, 512)
GIB = 2**30


@dataclass(frozen=True)
class Measured:
    """One GPU with 64 + 320 images: milliseconds of a step, of its backward pass and of the update; GiB."""

    step: float
    backward: float
    update: float
    memory: float


@dataclass(frozen=True)
class Net:
    parameters: int
    normalised: int  # channels of all BatchNorms


@dataclass(frozen=True)
class Links:
    """Bytes/s that a GPU sends in an all-reduce, inside a node and between nodes: assumed, not measured."""

    inside: float
    between: float


@dataclass(frozen=True)
class Cost:
    gpus: int
    labelled: int  # images a step in all
    steps: int  # of an epoch
    compute: float  # ms
    network: float  # ms, if nothing of it is hidden
    exposed: float  # ms, what the backward pass can't hide
    sent: float  # bytes that a GPU sends a step
    memory: float  # GiB a GPU

    @property
    def step(self) -> float:
        return self.compute + self.exposed

    @property
    def hours(self) -> float:
        """From start to end of 300 epochs."""
        return EPOCHS * self.steps * self.step / 3.6e6

    @property
    def images(self) -> int:
        return self.labelled * (1 + RATIO)

    @property
    def decoded(self) -> float:
        """Pictures a second, in all."""
        return self.images / self.step * 1000


def ring_bytes(size: float, gpus: int) -> float:
    """Bytes that each GPU sends in a ring all-reduce of `size` bytes: N - 1 parts of 1/N to reduce, as many to spread.

    >>> ring_bytes(100, 4)
    150.0
    """
    return 2 * (gpus - 1) / gpus * size


def cost(measured: Measured, net: Net, gpus: int, labelled: int, links: Links) -> Cost:
    """One step and one epoch of `labelled` + 5 x `labelled` images over so many GPUs.

    Everything but the update and what is held once a GPU goes with a GPU's share of images.
    """
    share = labelled / gpus / LABELLED
    held = 5 * 4 * net.parameters / GIB  # weights, gradients, momentum, average, and DDP's buckets, in float32
    compute = measured.update + (measured.step - measured.update) * share
    sent = ring_bytes(4 * net.parameters, gpus)
    bandwidth = links.inside if gpus <= NODE else links.between
    network = 1000 * sent / bandwidth
    exposed = max(0.0, network - measured.backward * share)
    memory = held + max(0.0, measured.memory - held) * share
    steps = max(1, UNLABELLED // (labelled * RATIO))
    return Cost(gpus, labelled, steps, compute, network, exposed, sent, memory)


def sync_bytes(net: Net, gpus: int, passes: int) -> float:
    """Bytes a GPU sends for SyncBatchNorm: two sums a channel, forward in each pass and backward in the last."""
    return ring_bytes(4 * 2 * net.normalised * (passes + 1), gpus)


def read_record(path: Path) -> dict[str, Measured]:
    """FixMatch as published; MaxMatch with K drawn evenly from 1, 2, 3 (K = 2: half-way between the others); K = 3."""
    record = json.loads(path.read_text())["nets"]["resnet50"]
    rows: dict[str, dict[str, Any]] = {row["name"]: row for row in record["rows"]}
    backward, update = record["parts"]["t_bp"], record["parts"]["t_opt"]
    fix, one, three = (rows[name] for name in ("fixmatch joint", "K=1 select", "K=3 select"))
    half = (one["step"] + three["step"]) / 2
    mean = (one["step"] + half + three["step"]) / 3
    return {
        "FixMatch, joint": Measured(fix["step"], backward, update, fix["memory_gib"]),
        "MaxMatch, K of {1, 2, 3}": Measured(mean, backward, update, three["memory_gib"]),
        "MaxMatch, K = 3": Measured(three["step"], backward, update, three["memory_gib"]),
    }


def resnet50() -> Net:
    """Counted on the net itself."""
    from torch import nn

    from maxmatch.nets import make_net

    net = make_net("resnet50", classes=1000, channels=3)
    channels = sum(m.num_features for m in net.modules() if isinstance(m, nn.BatchNorm2d))
    return Net(sum(p.numel() for p in net.parameters()), channels)


def table(measured: dict[str, Measured], net: Net, links: Links, per_gpu: int | None) -> list[str]:
    """Rows of Markdown: the paper's batch divided among the GPUs, or `per_gpu` labelled images on each."""
    heads = ["method", "GPUs", "images a step", "steps an epoch", "step, ms", "of it network, ms", "hours, 300 epochs",
             "GPU hours", "GiB a GPU", "MB sent a GPU and step", "pictures/s decoded"]  # fmt: skip
    lines = [heads, ["---"] * len(heads)]
    for name, one in measured.items():
        for gpus in GPUS:
            c = cost(one, net, gpus, per_gpu * gpus if per_gpu else max(LABELLED, gpus), links)
            images = f"{c.labelled:,} + {c.labelled * RATIO:,}"
            times = [f"{c.steps:,}", f"{c.step:.1f}", f"{c.exposed:.1f}", f"{c.hours:.3g}", f"{c.hours * gpus:.0f}"]
            sizes = [f"{c.memory:.1f}", f"{c.sent / 1e6:.0f}", f"{c.decoded:,.0f}"]
            lines.append([name, str(gpus), images, *times, *sizes])
    return [f"| {' | '.join(line)} |" for line in lines]


def page(path: Path, links: Links) -> list[str]:
    """All that is printed."""
    measured, net = read_record(path), resnet50()
    fix, best = measured["FixMatch, joint"], measured["MaxMatch, K of {1, 2, 3}"]
    three = measured["MaxMatch, K = 3"]
    epoch = {name: cost(one, net, 1, LABELLED, links) for name, one in measured.items()}
    hours = {name: c.steps * c.step / 3.6e6 for name, c in epoch.items()}
    sync = sync_bytes(net, 8, passes=2) / 1e6
    copied = epoch["MaxMatch, K of {1, 2, 3}"]
    return [
        "The paper's batch, 64 + 320 images in all (512 GPUs: one labelled image each, the fewest there can be):",
        "",
        *table(measured, net, links, None),
        "",
        "64 + 320 images on each GPU, as measured; the learning rate of such batches is not known:",
        "",
        *table(measured, net, links, LABELLED),
        "",
        f"* {net.parameters:,} parameters: {4 * net.parameters / 1e6:.1f} MB of gradients a step in float32; "
        f"SyncBatchNorm adds {sync:.1f} MB over 8 GPUs ({net.normalised:,} channels, two passes).",
        f"* One H200, GPU hours an epoch: {'; '.join(f'{name} {value:.4f}' for name, value in hours.items())}. "
        f"To FixMatch {best.step / fix.step:.2f} and {three.step / fix.step:.2f}; the paper's 4.512 / 3.016 = "
        f"{4.512 / 3.016:.2f}.",
        f"* One H200 with K of {{1, 2, 3}} decodes {copied.decoded:,.0f} pictures/s: "
        f"{copied.decoded * PICTURE_BYTES / 1e6:,.0f} MB/s of JPEG read, {copied.decoded * SLOT_BYTES / 1e9:.2f} GB/s "
        "copied to it.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--inside", type=float, default=200, help="GB/s of a GPU in an all-reduce inside a node")
    parser.add_argument("--between", type=float, default=25, help="GB/s of a GPU in an all-reduce between nodes")
    asked = parser.parse_args()
    print("\n".join(page(asked.record, Links(asked.inside * 1e9, asked.between * 1e9))))


if __name__ == "__main__":
    main()

"""What `maxmatch bench` found, to be read and to be kept: tables, and one JSON record that says how it came about."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from rich import box
from rich.table import Table

from maxmatch.bench.origin import commit, hardware, versions
from maxmatch.bench.wanted import SETTINGS, Wanted

COLUMNS = {
    "step": "ms/step", "steps_per_second": "steps/s", "images_per_second": "images/s", "memory_gib": "GiB",
    "tflops_per_second": "TFLOP/s", "ratio": "x FixMatch", "ratio_to_fastest": "x fastest",
}  # fmt: skip
CAPTION = "images: labelled ones, weak and strong views; x FixMatch: to its joint row, x fastest: to its faster row"
GIB = {"cuda": "what torch reserved on the GPU, a graph's pool included", "cpu": "the whole process, Python included"}


def record(wanted: Wanted, device: torch.device) -> dict[str, Any]:
    """Command, commit, versions and hardware; the figures of each net go under `nets`."""
    return {
        "command": wanted.command(device.type),
        "commit": commit(),
        "versions": versions(),
        "hardware": hardware(),
        "device": device.type,
        "wanted": asdict(wanted),
        "nets": {},
    }


def page(found: dict[str, Any]) -> list[str | Table]:
    """A record to be read, net by net: lines, and tables narrow enough for a terminal of 80 columns."""
    made: list[str | Table] = []
    for name, net in found["nets"].items():
        made += [_title(name, net, found), _rows(net), CAPTION]
        made += [f"GiB: {GIB.get(found['device'], 'not known here')}", ""]
        if net["parts"]:
            made += [f"{name}: the paper's parts of a step", _parts(net)]
            made += [f"{name}: the paper's formula beside the measured step, ms", _formula(net)]
        if any(net["inference"].values()):
            made += [f"{name}: prediction with the averaged net, the same work for both methods", _inference(net)]
        if net["augmentation"]:
            share = net["augmentation"]
            made.append(f"{name}: augmentation is {share['percent']:.1f} % of the {share['of']} step")
        failed = {row["name"]: row["failed"] for row in net["rows"] if row["failed"]}
        made += [f"{name}: {note}" for note in (*net["notes"], *(f"{row}: {why}" for row, why in failed.items()))]
    return made


def _title(name: str, net: dict[str, Any], found: dict[str, Any]) -> str:
    setting, paper = net["setting"], SETTINGS[name]
    smaller = f" (small, for a CPU; a GPU has {paper.batch} + {paper.unlabelled})" if setting["small"] else ""
    return (
        f"{setting['net']} at {setting['side']} px, {setting['batch']} + {setting['batch'] * setting['ratio']} images"
        f" a step{smaller}, {net['precision']}, {net['mode']}, {_machine(found)}"
    )


def _machine(found: dict[str, Any]) -> str:
    return str(found["hardware"]["gpu" if found["device"] == "cuda" else "cpu"])


def _rows(net: dict[str, Any]) -> Table:
    made = _table("", *COLUMNS.values())
    for row in net["rows"]:
        if row["step"] is not None:
            figures = [_figure(row[name], 2 if name.startswith("ratio") else None) for name in COLUMNS]
            made.add_row(row["name"], *figures)
        else:
            made.add_row(row["name"], row["failed"] if row["failed"] == "out of memory" else "failed")
    return made


def _parts(net: dict[str, Any]) -> Table:
    made = _table("", "ms", "")
    what = {
        "t_data": "make one strong view of the unlabelled batch",
        "t_ff": "score one view of the unlabelled batch",
        "t_bp": "backward pass over labelled and unlabelled images",
        "t_opt": "update the net and its average",
    }
    for name, words in what.items():
        made.add_row(name, _figure(net["parts"][name]), words)
    made.columns[2].justify = "left"
    return made


def _formula(net: dict[str, Any]) -> Table:
    made = _table("", "K (t_data + t_ff) + t_bp + t_opt", "joint", "select")
    for k, values in net["formula"].items():
        made.add_row(f"K={k}", *(_figure(values[name]) for name in ("formula", "joint", "select")))
    return made


def _inference(net: dict[str, Any]) -> Table:
    made = _table("trained by", "images a batch", "ms", "images/s")
    for method, values in net["inference"].items():
        if values:
            made.add_row(method, *(_figure(values[name]) for name in ("batch", "ms", "images_per_second")))
    return made


def _table(*heads: str) -> Table:
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for number, head in enumerate(heads):
        made.add_column(head, justify="right" if number else "left", no_wrap=True)
    return made


def _figure(value: float | None, digits: int | None = None) -> str:
    """With so many decimals, or as many as make three digits: 0.012, 1.23, 12.3, 1,234."""
    if value is None:
        return "-"
    if digits is None:
        whole = len(str(int(value))) if value >= 1 else 0
        digits = max(0, 3 - whole) if isinstance(value, float) else 0
    return f"{value:,.{digits}f}"

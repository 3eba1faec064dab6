"""From the words of `maxmatch bench` to its tables or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from maxmatch.bench.measure import measure
from maxmatch.bench.report import page, record
from maxmatch.bench.wanted import Wanted
from maxmatch.errors import UserError
from maxmatch.files import write_safely
from maxmatch.nets.device import find_device


def run_bench(wanted: Wanted, device_name: str = "auto", out: Path | None = None, as_json: bool = False) -> None:
    """Measure, say each row as it is done, keep the record in `out` after each, and print all at the end."""
    found = bench(wanted, device_name, say=_say, keep=lambda found: _write(out, found))
    if as_json:
        print(json.dumps(found))
    else:
        console = Console(emoji=False, width=None if sys.stdout.isatty() else 120)
        for part in page(found):
            console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str))
    rows = [row for net in found["nets"].values() for row in net["rows"]]
    if all(row["step"] is None for row in rows):
        raise UserError(f"nothing could be measured ({rows[0]['failed']}): type --batch 8, or another --net")


def bench(
    wanted: Wanted,
    device_name: str = "auto",
    say: Callable[[str], None] = lambda line: None,
    keep: Callable[[dict[str, Any]], None] = lambda found: None,
) -> dict[str, Any]:
    """The record of all nets that are wanted; `keep` is given it before the first row and after each."""
    device = find_device(device_name)
    found = record(wanted, device)
    keep(found)  # a file that can't be written is refused before anything is measured

    for net in wanted.nets:

        def take(figures: dict[str, Any], net: str = net) -> None:
            found["nets"][net] = figures
            keep(found)

        measure(net, wanted, device, say, take)
    return found


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _write(out: Path | None, found: dict[str, Any]) -> None:
    if out is not None:
        write_safely(out, (json.dumps(found, indent=1) + "\n").encode())

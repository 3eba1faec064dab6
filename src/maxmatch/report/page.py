"""The page: read the run folders, measure what can be measured, fill the template, write one file.

It has no script and asks the network for nothing; a policy inside the page forbids it both.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from signal import SIGINT
from typing import Any

import torch
from rich.console import Console

from maxmatch import __version__
from maxmatch.data.datasets import Images
from maxmatch.errors import Interrupted, UsageError, said, tell
from maxmatch.files import refuse_to_replace, write_safely
from maxmatch.report import compare
from maxmatch.report.folder import RunFolder, read_run
from maxmatch.report.measure import Measured, measure
from maxmatch.report.sections import curves, run_part
from maxmatch.report.words import damage, duration, figures, percent, title

SECONDS = 10.0  # for measuring, all runs together
DETAILED = 4  # up to so many runs the page tells everything of each
DRAWN = 5  # lines in a chart
ASKED = re.compile(r'<meta name="maxmatch-asked" content="(\d+)">')
OURS = b'<meta name="generator" content="maxmatch'


def write_report(
    folders: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    data: Images | None = None,
    seconds: float = SECONDS,
    force: bool = False,
) -> Path:
    """Write the page of one run or of several and return where it is: `out`, else report.html in the run's folder.

    `data` stands in for a data set by name. `seconds` is about how long the models are asked; what does not fit in is
    measured on a part of the images, and the page says on how many. Without `force` a file that is no report is left
    alone, and so is a page that tells more, since models or data can't be opened any more.
    """
    paths = [Path(folder) for folder in ([folders] if isinstance(folders, str | Path) else folders)]
    if not paths:
        raise UsageError("which run? Type maxmatch report RUN")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("a run is named twice: name each once")
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"{path}: there is no such run folder; type maxmatch report RUN")
    place = Path(out) if out is not None else (paths[0] if len(paths) == 1 else Path()) / "report.html"
    if place.is_dir():
        raise UsageError(f"--out {place} is a folder: give the page a name, for example {place / 'report.html'}")
    if not place.parent.is_dir():
        raise UsageError(f"--out {place}: there is no folder {place.parent}; make it, or give another name")
    refuse_to_replace(place, force, ours=OURS)
    runs = [read_run(path) for path in paths]
    with Console(stderr=True).status("making the report"):  # shown on a terminal alone
        found = ask(runs, data, seconds)
        both = zip(runs, found, strict=True)
        closed = [f"{run.path}: {one.missing[0]}" for run, one in both if one.finished is None]
        if closed and not force and len(runs) - len(closed) < _asked(place):
            what = f"{place} is left as it is, since a new page would tell less: {closed[0]}"
            raise UsageError(f"{what} --out NAME writes it elsewhere, --force in its place")
        write_safely(place, render(runs, found).encode(errors="replace"))  # names of files may be no text
    for line in closed:
        tell(f"maxmatch: warning: {line}")
    return place


def report_or_warn(folders: Sequence[Path], out: Path | None = None) -> Path | None:
    """The same after a training, which a page that can't be made must not spoil: one line of warning then."""
    try:
        return write_report(folders, out)
    except KeyboardInterrupt:
        again = shlex.join(["maxmatch", "report", *map(str, folders), *(["--out", str(out)] if out else [])])
        raise Interrupted(
            f"stopped while the report was made; what was trained is whole: type {again}", SIGINT
        ) from None
    except Exception as error:  # whatever it is, the run is done and safe
        tell(f"maxmatch: warning: no report was made ({said(error)}); the run itself is whole")
        return None


def ask(runs: Sequence[RunFolder], data: Images | None, seconds: float) -> list[Measured]:
    """What the saved models say."""
    with torch.random.fork_rng([]):  # making a net draws weights; the caller's draws go on as if none had been made
        return [measure(run, seconds / len(runs), data, mapped=len(runs) == 1) for run in runs]


def render(runs: Sequence[RunFolder], found: Sequence[Measured]) -> str:
    """The page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    called = compare.names(runs)
    with torch.random.fork_rng([]):
        several = _several(runs, found, called) if len(runs) > 1 else None
        parts = [run_part(*one) for one in zip(runs, found, called, strict=True)] if len(runs) <= DETAILED else []
    template = Environment(
        loader=PackageLoader("maxmatch.report", "."), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    ).get_template("page.html")  # fmt: skip
    return template.render(
        title=title(runs[0]) if len(runs) == 1 else _title(runs),
        several=several,
        runs=parts,
        figures=[figures(run, one) for run, one in zip(runs, found, strict=True)],
        version=__version__,
        asked=sum(one.finished is not None for one in found),
        date=time.strftime("%Y-%m-%d"),
    )


def _asked(place: Path) -> int:
    """Of how many runs a page that is there has asked the model."""
    found = ASKED.search(place.read_text(errors="replace")) if place.exists() else None
    return int(found[1]) if found else 0


def _title(runs: Sequence[RunFolder]) -> str:
    data = {run.data for run in runs}
    return f"{len(runs)} runs on {data.pop()}, side by side" if len(data) == 1 else f"{len(runs)} runs side by side"


def _several(runs: Sequence[RunFolder], found: Sequence[Measured], called: Sequence[str]) -> dict[str, Any]:
    kinds = compare.labels(runs)
    pairs, refused = compare.paired([(name, one.test) for name, one in zip(called, found, strict=True)])
    folds = compare.over_folds(runs, kinds)
    sets = compare.data_sets(runs)
    least: dict[str, float] = {}  # the lowest error on each data set
    for run, data in zip(runs, sets, strict=True):
        if run.error is not None:
            least[data] = min(run.error, least.get(data, run.error))
    rows = [
        {
            "name": name,
            "kind": kind,
            "data": run.data,
            "seed": run.recipe.train.seed,
            "error": percent(run.error),
            "best": run.error is not None and run.error == least[data],
            "robust": percent(run.figure("robust_error")),
            "ece": f"{one.test.reliability.ece:.1f}" if one.test else "not measured",
            "cost": duration(run.figure("seconds")),
            "steps": f"{run.steps:,}" if run.finished else f"{run.steps:,} of {run.recipe.train.steps:,}, unfinished",
        }
        for run, one, name, kind, data in zip(runs, found, called, kinds, sets, strict=True)
    ]
    return {
        "rows": rows,
        "conclusion": compare.conclusion(runs, called, pairs, folds),
        "pairs": pairs,
        "refused": refused,
        "damaged": [line for run in runs for line in damage(run)],
        "folds": folds,
        "curves": curves(list(zip(called, runs, strict=True))[:DRAWN]),
        "drawn": min(DRAWN, len(runs)),
        "count": len(runs),
        "one_each": len(set(kinds)) == len(kinds),
    }

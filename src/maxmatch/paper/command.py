"""`maxmatch paper`: run what is missing of a target, then write its CSV, figure and page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maxmatch.bench.origin import commit
from maxmatch.benchmark.command import train_left
from maxmatch.benchmark.figures import Row
from maxmatch.benchmark.runs import Outcome, check, find_result, is_begun, refuse_other_pictures
from maxmatch.benchmark.wanted import Planned
from maxmatch.errors import UsageError, UserError, tell
from maxmatch.files import alone_in, write_safely
from maxmatch.paper.found import Found, collect, loss_curves, runtime_rows, summary
from maxmatch.paper.imagenet import curve_rows
from maxmatch.paper.page import page_of_drawing, page_of_runs
from maxmatch.paper.wanted import Wanted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from maxmatch.paper.embedding import Embedding


def run_target(wanted: Wanted, jobs: int = 1, only_page: bool = False) -> list[Path]:
    """Make all files of a target and name them; what is finished is not run again."""
    if wanted.target.kind == "drawing":
        return _write_drawing(wanted)
    if wanted.target.kind == "runtime":
        _refuse_shared(wanted, 1 if only_page else jobs)
    failed = {} if only_page else _train(wanted, jobs)
    found = collect(wanted, failed, _read_notes(wanted.out, "commits"))
    if not found.finished:
        reason = next(iter(failed.values()), "type it without --only-page")
        raise UserError(f"no run of {wanted.target.name} is finished in {wanted.out}: {reason}")
    files = _write(found)
    if failed:
        raise UserError(
            f"{len(failed)} of {len(wanted.runs)} runs failed, see above; to try again, type {wanted.command}"
        )
    return files


def _refuse_shared(wanted: Wanted, jobs: int) -> None:
    """Runs that shared a machine, now or when they were trained, have no times to compare."""
    if jobs > 1:
        raise UsageError(f"--jobs {jobs}: runs that share a machine have no times to compare; leave it out")
    noted = _read_notes(wanted.out, "jobs")
    shared = [run for run in wanted.runs if is_begun(run) and noted.get(_place(wanted.out, run.folder), 1) > 1]
    if shared:
        told = f"{shared[0].folder} was trained with --jobs {noted[_place(wanted.out, shared[0].folder)]}"
        raise UsageError(f"{told}, so its time says nothing: give another --out, or delete it")


def _train(wanted: Wanted, jobs: int) -> dict[Path, str]:
    """Run what is left; returns why those failed that did."""
    runs = wanted.runs
    refuse_other_pictures([*wanted.before, *runs])
    before = [run for run in wanted.before if find_result(run) is None]
    left = [run for run in runs if find_result(run) is None]
    if not left:
        tell(f"{wanted.target.name}: all {len(runs)} runs are finished already")
        return {}
    for panel in wanted.panels:  # refuse data, labels, net and device before the first run takes its time
        missing = [run for run in panel.runs if run in left]
        if missing:
            check(missing)
    wanted.out.mkdir(parents=True, exist_ok=True)
    by, failed = commit(), dict[Path, str]()

    def note(run: Planned, outcome: Outcome) -> None:
        if outcome.result is None:
            failed[run.folder] = str(outcome.failed)
        else:
            _note(wanted.out, "commits", run.folder, by)

    with alone_in(wanted.out):
        _note_jobs(wanted, [*before, *left], jobs)
        if before:
            train_left(before, wanted.before, note, wanted.command, jobs)
        train_left(left, runs, note, wanted.command, jobs)
    return failed


def _write(found: Found) -> list[Path]:
    from maxmatch.paper.draw import draw

    embedding = _embed(found) if found.wanted.target.kind == "tsne" else None
    stem = found.wanted.stem
    files = [
        _write_csv(stem, "", _csv_rows(found, embedding)),
        _write_csv(stem, "-runs", found.rows),
        *_draw(lambda: draw(found, embedding), stem, smoke=found.wanted.budget == "smoke"),
    ]
    return [*files, _write_page(stem, page_of_runs(found))]


def _csv_rows(found: Found, embedding: Embedding | None) -> Sequence[Row]:
    """What the figure shows, as rows."""
    if found.wanted.target.kind == "losses":
        steps, curves = loss_curves(found)
        return [{"step": step, **{name: curve[at] for name, curve in curves.items()}} for at, step in enumerate(steps)]
    if found.wanted.target.kind == "runtime":
        return runtime_rows(found)
    if found.wanted.target.kind == "curves":
        return curve_rows(found)
    if embedding is not None:
        pairs = zip(embedding.places.tolist(), embedding.labels.tolist(), strict=True)
        return [{"x": x, "y": y, "class": embedding.classes[label]} for (x, y), label in pairs]
    return summary(found)


def _embed(found: Found) -> Embedding:
    from maxmatch.paper.embedding import embed

    tell("t-SNE of the features")
    row, device = found.finished[0], found.wanted.runs[0].recipe.train.device
    return embed(found.wanted.out / row["folder"], found.wanted.budget, row["seed"], device)


def _write_drawing(wanted: Wanted) -> list[Path]:
    from maxmatch.paper.drawings import drawing

    wanted.out.mkdir(parents=True, exist_ok=True)
    made = _draw(lambda: drawing(wanted.target), wanted.stem, smoke=False)
    return [*made, _write_page(wanted.stem, page_of_drawing(wanted))]


def _draw(make: Callable[[], Figure], stem: Path, smoke: bool) -> list[Path]:
    from maxmatch.paper.style import save, stamp_smoke, styled

    with styled():
        figure = make()
        if smoke:
            stamp_smoke(figure)
        return save(figure, stem)


def _write_csv(stem: Path, behind: str, rows: Sequence[Mapping[str, object]]) -> Path:
    path = stem.with_name(f"{stem.name}{behind}.csv")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_safely(path, text.getvalue().encode())
    return path


def _write_page(stem: Path, text: str) -> Path:
    path = stem.with_name(f"{stem.name}.md")
    write_safely(path, text.encode())
    return path


def _read_notes(out: Path, what: str) -> dict[str, Any]:
    """What was noted of each run folder: `commits`, that it was trained by, or `jobs`, how many ran at a time."""
    try:
        found: dict[str, Any] = json.loads((out / "runs" / f"{what}.json").read_text())
    except (OSError, ValueError):
        return {}
    return found


def _note(out: Path, what: str, folder: Path, value: object) -> None:
    noted = _read_notes(out, what) | {_place(out, folder): value}
    (out / "runs").mkdir(exist_ok=True)
    write_safely(out / "runs" / f"{what}.json", (json.dumps(noted, indent=1) + "\n").encode())


def _note_jobs(wanted: Wanted, runs: Sequence[Planned], jobs: int) -> None:
    """How many run at a time, at the most, while any of a run's steps are done."""
    noted = _read_notes(wanted.out, "jobs")
    for run in runs:
        earlier = noted.get(_place(wanted.out, run.folder), 1) if is_begun(run) else 1
        _note(wanted.out, "jobs", run.folder, max(earlier, jobs))


def _place(out: Path, folder: Path) -> str:
    return folder.relative_to(out).as_posix()

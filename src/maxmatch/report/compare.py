"""Several runs side by side: who is lower, by how much on the same test images, and over the same folds."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from maxmatch.benchmark.figures import Row, table
from maxmatch.errors import UserError
from maxmatch.report.folder import RunFolder
from maxmatch.report.measure import Answers, shared_images
from maxmatch.report.repeat import open_values
from maxmatch.settings import overlay

PAIRS = 4  # up to so many runs each is compared with each; more are compared with the first
# What makes two runs of one kind a repetition, not another setting, and what can't change the weights.
REPEATED = {("train", "seed"), ("train", "fold"), ("train", "device"), ("train", "threads"),
            ("train", "checkpoint_every"), ("train", "evaluate_every"), ("train", "log_every"),
            ("evaluate", "batch"), ("evaluate", "unlabelled"),
            ("data", "path"), ("data", "resident"), ("data", "workers"), ("data", "decoders"),
            ("data", "strict")}  # fmt: skip


class Paired(NamedTuple):
    """Two runs on the same n test images: how many only one of them has right, and the difference of their errors."""

    first: str
    other: str
    n: int
    only_first: int
    only_other: int

    @property
    def difference(self) -> float:
        """Error of the other minus that of the first, in points."""
        return 100 * (self.only_first - self.only_other) / self.n

    @property
    def standard_error(self) -> float:
        """Of that difference, over test images; another training would add its own."""
        apart = self.only_first + self.only_other
        return 100 * math.sqrt(max(0.0, apart - (self.only_first - self.only_other) ** 2 / self.n)) / self.n


def data_sets(runs: Sequence[RunFolder]) -> list[str]:
    """The data set of each run by its name, without the number of labels; folders of one name by their path."""
    places = {run.data_name: set[str]() for run in runs}
    for run in runs:
        places[run.data_name].add(run.data_path)
    return [run.data_path if len(places[run.data_name]) > 1 else run.data_name for run in runs]


def labels(runs: Sequence[RunFolder]) -> list[str]:
    """A name for each run's kind: its method, with the settings in which runs of that method differ, and its data.

    The data are named where there are several; of settings the first three, where those tell the kinds apart.
    """
    sets = data_sets(runs)
    values = [_flat(run) | {("train", "init"): start} for run, start in zip(runs, _starts(runs), strict=True)]
    short, whole = [], []
    for run, mine, data in zip(runs, values, sets, strict=True):
        same = [other for other, its in zip(values, sets, strict=True)
                if (other["method", "name"], its) == (mine["method", "name"], data)]  # fmt: skip
        varied = [key for key in mine if key not in REPEATED and any(other.get(key) != mine[key] for other in same)]
        told = [f"{field}={_spelled(mine[section, field])}" for section, field in varied]
        words = [run.method if len(set(sets)) == 1 else f"{run.method} on {data}", *told]
        short.append(", ".join(words[:4]))
        whole.append(", ".join(words))
    kinds = dict.fromkeys(zip(short, whole, strict=True))
    alike = Counter(brief for brief, _ in kinds)
    return [brief if alike[brief] == 1 else full for brief, full in zip(short, whole, strict=True)]


def names(runs: Sequence[RunFolder]) -> list[str]:
    """The runs by their folder's name, or by as much of its path as tells them apart."""
    parts = [run.path.resolve().parts for run in runs]
    for depth in range(1, max(map(len, parts)) + 1):
        found = ["/".join(part[-depth:]) for part in parts]
        if len(set(found)) == len(found):
            return found
    return [str(run.path) for run in runs]


def paired(named: Sequence[tuple[str, Answers | None]]) -> tuple[list[Paired], list[str]]:
    """Pairs of runs on the same test images, and in words which pairs there are not."""
    pairs = list(itertools.combinations(named, 2)) if len(named) <= PAIRS else [(named[0], one) for one in named[1:]]
    found, refused = [], []
    for (first, one), (other, two) in pairs:
        if one is None or two is None:
            refused.append(f"{first} and {other}: not both could be measured")
            continue
        try:
            a, b = shared_images(one, two)
        except UserError as error:
            refused.append(f"{first} and {other}: {error}")
            continue
        found.append(Paired(first, other, len(a), int((a & ~b).sum()), int((b & ~a).sum())))
    return found, refused


def over_folds(runs: Sequence[RunFolder], kinds: Sequence[str]) -> dict[str, list[Row]] | None:
    """Mean and deviation of each kind, and differences on the same fold; None where no kind was run twice.

    Differences are between kinds on the same data, of which the first is that which the others are held against.
    """
    if len(set(kinds)) == len(kinds):
        return None
    seen: Counter[object] = Counter()
    counted = all(run.figure("test_images") is not None for run in runs if run.error is not None)

    def fold_of(run: RunFolder, kind: str) -> tuple[object, ...]:
        """Repetitions of one fold and seed, from several starts for example, are counted through.

        Runs that were judged by different test images are no pair.
        """
        train = run.recipe.train
        fold = run.data_name, run.labels, train.fold, train.seed, run.figure("test_images") if counted else None
        seen[kind, fold, run.finished] += 1
        return (*fold, seen[kind, fold, run.finished])

    rows = [
        {
            "method": kind,
            "fold": fold_of(run, kind),
            "state": "finished" if run.finished else "unfinished",
            "robust_error": run.figure("robust_error"),
            "steps_per_second": run.figure("steps_per_second"),
            **{name: (run.result.get("error") or {}).get(name) for name in ("last", "median20", "best")},
        }
        for run, kind in zip(runs, kinds, strict=True)
    ]
    sets = data_sets(runs)
    tables = [table([row for row, its in zip(rows, sets, strict=True) if its == data]) for data in dict.fromkeys(sets)]
    return {name: [row for one in tables for row in one[name]] for name in ("methods", "paired")}


def conclusion(
    runs: Sequence[RunFolder], called: Sequence[str], pairs: Sequence[Paired], folds: dict[str, list[Row]] | None = None
) -> str:
    """The first sentences of a page of several runs, of each data set by itself: errors on others say nothing."""
    kinds, sets = labels(runs), data_sets(runs)
    if len(set(sets)) == 1:
        return _conclude(runs, called, kinds, pairs, folds)
    told = ["The runs are on different data, whose errors are not compared."]
    for data in dict.fromkeys(sets):
        these = [place for place, its in enumerate(sets) if its == data]
        mine, its_names = [runs[place] for place in these], [called[place] for place in these]
        if len(mine) == 1:
            told.append(f"{data} has one run, {its_names[0]}: {_percent(mine[0].error)}.")
        else:
            told.append(f"On {data}: {_conclude(mine, its_names, [kinds[place] for place in these], pairs, folds)}")
    return " ".join(told)


def _conclude(
    runs: Sequence[RunFolder], called: Sequence[str], kinds: Sequence[str], pairs: Sequence[Paired],
    folds: dict[str, list[Row]] | None,
) -> str:  # fmt: skip
    """Of runs on the same data: of their kinds where those were repeated, else of the runs."""
    known = [(run.error, name) for run, name in zip(runs, called, strict=True) if run.error is not None]
    if not known:
        return "No run has a measured error."
    judged = [run.figure("test_images") for run in runs if run.error is not None]
    if len(set(judged) - {None}) > 1:
        each = ", ".join(
            f"{name} {_percent(error)}" + ("" if many is None else f" of {many:,.0f}")
            for many, (error, name) in zip(judged, known, strict=True)
        )
        return f"The runs were judged by different test images, so their errors are not compared: {each}."
    of_kinds = {name: [row for row in rows if row["method"] in kinds] for name, rows in (folds or {}).items()}
    if sum(row["last"]["n"] > 0 for row in of_kinds.get("methods", [])) > 1:
        folds_of: dict[str, Counter[object]] = {kind: Counter() for kind in kinds}
        for run, kind in zip(runs, kinds, strict=True):
            if run.finished and run.error is not None:
                folds_of[kind][run.recipe.train.fold, run.recipe.train.seed] += 1
        measured = [found for found in folds_of.values() if found]
        alike = all(found == measured[0] for found in measured)
        return _conclude_kinds(of_kinds["methods"], of_kinds["paired"], alike)
    error, best = min(known)
    if len(known) > 1 and max(known)[0] == error:
        return f"All have the same error, {_percent(error)}."
    told = f"{best} has the lowest error, {_percent(error)}."
    against = [pair for pair in pairs if best in (pair.first, pair.other)]
    alike = len({pair.n for pair in against}) == 1
    told_of = []
    for pair in against:
        lower = pair.difference if pair.first == best else -pair.difference
        other = pair.other if pair.first == best else pair.first
        beside = [] if alike else [f"{pair.n:,} images"]
        beside += ["within the noise"] if 0 < abs(lower) < 2 * pair.standard_error else []
        on = f" ({', '.join(beside)})" if beside else ""
        apart = f"{abs(lower):.2f} ± {pair.standard_error:.2f} points {'lower' if lower > 0 else 'higher'} than"
        told_of.append(f"{apart if lower else 'equal to'} {other}{on}")
    if told_of:
        many = f"{against[0].n:,} " if alike else ""
        told += f" On the same {many}test images it is {', and '.join(told_of)}."
    return told


def _conclude_kinds(methods: Sequence[Row], pairs: Sequence[Row], alike: bool) -> str:
    """Of kinds that were repeated: by their means where all have the same folds, else by those that two share."""
    means = [(row["last"]["mean"], row["method"], row["last"]["n"]) for row in methods if row["last"]["n"] > 0]
    if alike:
        count = means[0][2]
        lowest = min(mean for mean, *_ in means)
        best = [kind for mean, kind, _ in means if mean == lowest]
        others = sorted((mean, kind) for mean, kind, _ in means if mean != lowest)
        if not others:
            return f"All have the same mean error, {_percent(lowest)} over {count} runs each."
        behind = " and ".join(f"{mean:.2f} for {kind}" for mean, kind in others)
        have = "has" if len(best) == 1 else "have"
        told = f"{' and '.join(best)} {have} the lowest mean error, {_percent(lowest)} over {count} runs"
        return f"{told}, against {behind}."
    each = ", ".join(f"{kind} {_percent(mean)} ({n})" for mean, kind, n in means)
    told = f"Not all have the same folds and repetitions, so their means are not compared: {each}."
    shared = [(pair["method"], pair["against"], pair["last"]) for pair in pairs if pair["last"]["n"]]
    return " ".join([told, *(f"{_apart(kind, against, found)}." for kind, against, found in shared)])


def _apart(kind: str, against: str, found: Row) -> str:
    """A paired difference in words."""
    n, mean, error = found["n"], found["mean"], found["standard_error"]
    on = "the fold that both have" if n == 1 else f"the {n} folds that both have"
    if round(mean, 9) == 0:
        return f"On {on} {kind} is equal to {against}"
    points = f"{abs(mean):.2f}" + ("" if error is None else f" ± {error:.2f}")
    return f"On {on} {kind} is {points} points {'lower' if mean < 0 else 'higher'} than {against}"


def _percent(error: float | None) -> str:
    return "not measured" if error is None else f"{error:.2f}\N{NO-BREAK SPACE}%"


def _flat(run: RunFolder) -> dict[tuple[str, str], Any]:
    sections = overlay(open_values(run.recipe), {"data": {"labels": run.labels}})
    return {(section, field): value for section, fields in sections.items() for field, value in fields.items()}


def _starts(runs: Sequence[RunFolder]) -> list[str]:
    """From which weights each began, as far as it makes a kind: not from --init, `no`; from another's, `yes`.

    Runs from several starts, of several pretrainings for example, are repetitions. One that goes on from a training
    beside it is none, since it has learned for longer: that one is named.
    """
    trained = {
        run.path.resolve(): name for run, name in zip(runs, names(runs), strict=True) if run.recipe.verb == "train"
    }
    return [
        "no" if run.recipe.train.init is None
        else next((name for path, name in trained.items() if _is_at(path, Path(run.recipe.train.init))), "yes")
        for run in runs
    ]  # fmt: skip


def _is_at(path: Path, start: Path) -> bool:
    """Whether a run is what another started from, by its folder or weight file, typed in whichever folder that was."""
    start = start.parent if start.suffix == ".safetensors" else start
    return path == start if start.is_absolute() else path.parts[-len(start.parts) :] == start.parts


def _spelled(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

"""The parts of a page about one run: its charts, its tables and its gallery, as the template shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from maxmatch.report.charts import confusion_chart, glyph, map_chart, reliability_chart
from maxmatch.report.draw import Series, bars, line_chart
from maxmatch.report.folder import RunFolder
from maxmatch.report.measure import Answers, Measured
from maxmatch.report.pool import Pool, Shown, fooled_by, show
from maxmatch.report.repeat import command
from maxmatch.report.thumbnails import thumbnail
from maxmatch.report.words import advice, answer, damage, facts, percent, title

CLASSES = 24  # bars of the chart of classes
INCONSISTENT, CONSISTENT, NEXT = 6, 3, 12
VIEWS = 7  # of the gallery
LOSSES = {"L, labelled": "supervised_loss", "U, unlabelled": "unlabeled_loss", "U-min": "unlabeled_loss_min"}

Made = dict[str, Any]


def run_part(run: RunFolder, found: Measured, name: str) -> Made:
    """All that the page says of one run."""
    return {
        "name": name,
        "title": title(run),
        "answer": answer(run),
        "finished": run.finished,
        "progress": f"{run.steps:,} of {run.recipe.train.steps:,} steps",
        "facts": facts(run, found),
        "advice": advice(run, found),
        "curves": curves([(title(run), run)]),
        "missing": [*damage(run), *found.missing],
        "test": test_part(found) if found.test is not None else None,
        "pool": pool_part(run, found) if found.pool is not None else None,
        "map": map_part(found),
        "command": command(run),
        "recipe": run.recipe.to_toml(),
        "versions": ", ".join(f"{key} {value}" for key, value in run.result.get("versions", {}).items()),
        "digest": run.result.get("recipe_sha256", run.recipe.sha256()),
    }


def curves(named: Sequence[tuple[str, RunFolder]]) -> list[Made]:
    """Learning curves: of one run its losses in one chart; of several a chart for each figure, a line for each run."""
    made = []
    if len(named) == 1:
        run = named[0][1]
        lines = [Series(word, run.curve(key)) for word, key in LOSSES.items()]
        made.append(_curve("Losses", "mean loss a log interval", lines))
    else:
        for word, key in LOSSES.items():
            made.append(_curve(f"Loss {word}", "mean loss", [Series(name, run.curve(key)) for name, run in named]))
    wanted = (
        ("Test error", "error, %", "error", "evaluate", 1.0, None),
        ("Mask rate", "% of images used", "mask_rate", "train", 100.0, 100.0),
        ("Pseudo-label accuracy", "% right of those used", "pseudo_label_accuracy", "train", 100.0, 100.0),
    )
    for word, y, key, kind, scale, top in wanted:
        lines = [Series(name if len(named) > 1 else word, run.curve(key, kind, scale)) for name, run in named]
        made.insert(0 if key == "error" else len(made), _curve(word, y, lines, top))
    return [one for one in made if one["svg"]]


def test_part(found: Measured) -> Made:
    """Confusion, errors class by class, calibration."""
    test, classes = found.test, found.classes
    assert test is not None
    matrix, bins = test.confusion, test.reliability
    wrong = int(matrix.sum() - matrix.diagonal().sum())
    rows = _class_rows(test, classes)
    return {
        "on": _part_of(len(test.label), test.total, "test images"),
        "measured": 100 * wrong / len(test.label),
        "matrix": confusion_chart(matrix.tolist(), classes, f"{wrong} of {len(test.label)} images are wrong"),
        "confused": _most_confused(test, classes),
        "classes": bars(
            "Error by class", "; ".join(f"{n}: {v:.1f} %" for n, v, _ in rows), "error, %", rows,
            mark=(100 * wrong / len(test.label), "all classes"),
        ),
        "classes_left": len(classes) - len(rows),
        "reliability": reliability_chart(
            bins.counts.tolist(), bins.confidence.tolist(), bins.accuracy.tolist(),
            f"Expected calibration error {bins.ece:.2f} points over {len(bins.counts)} bins",
        ),
        "ece": bins.ece,
        "over": bins.overconfidence,
    }  # fmt: skip


def pool_part(run: RunFolder, found: Measured) -> Made:
    """The gallery, the operations that fool the model, and what to label next."""
    pool, finished = found.pool, found.finished
    assert pool is not None
    assert finished is not None
    order = pool.worst.argsort(descending=True, stable=True).tolist()
    calm = order[INCONSISTENT:][::-1][:CONSISTENT]
    to_label = pool.next_first[:NEXT].tolist()
    # What was not drawn is no operation.
    wins = sorted(((n, v) for n, v in run.wins.items() if n != "identity"), key=lambda item: -item[1])
    fooled = fooled_by(pool)
    rows = [(one.name, 100 * one.changed / one.views, f"{one.changed} of {one.views}") for one in fooled]
    changed = float((pool.view_label != pool.label).double().mean())
    return {
        "on": _part_of(len(pool.label), pool.total, "images without a label"),
        "k": len(pool.view_loss),
        "policy": run.recipe.augment.policy,
        "own_views": not run.trains_on_strong,
        "unsure": [_tile_row(found, pool, one) for one in show(finished, pool, order[:INCONSISTENT])],
        "sure": [_tile_row(found, pool, one) for one in show(finished, pool, calm)],
        "ops": bars(
            "Operations that change the class", "; ".join(f"{n}: {v:.1f} %" for n, v, _ in rows),
            "views whose class changed, %", rows, mark=(100 * changed, "all views"),
        ),
        "wins": bars(
            "Operations that won in training", "; ".join(f"{n}: {100 * v:.0f} %" for n, v in wins),
            "views that decided, %", [(n, 100 * v, f"{100 * v:.0f} %") for n, v in wins],
            mark=(100 / run.k, f"chance, 1 of {run.k}") if run.fixed_views else None,
        ) if run.k > 1 else "",
        "next": [_next(found, pool, place) for place in to_label],
        "worst_op": fooled[0].name if fooled else None,
        "changed": 100 * changed,
    }  # fmt: skip


def map_part(found: Measured) -> Made | None:
    """The map, with the glyph of each class."""
    if found.map is None:
        return None
    known = "true class" if found.map.truth else "predicted class"
    told = f"t-SNE of {len(found.map.label)} images by their {known}, {sum(found.map.wrong)} ringed as wrong"
    svg = map_chart([(float(x), float(y)) for x, y in found.map.place], found.map.label, found.map.wrong, told)
    there = sorted(set(found.map.label))
    names = [(glyph(label), label % 10, found.classes[label]) for label in there]
    return {"svg": svg, "names": names[:40], "known": known, "count": len(found.map.label), "truth": found.map.truth}


def _curve(name: str, y: str, lines: Sequence[Series], top: float | None = None) -> Made:
    ends = [f"{line.name} {_end(line.points[-1][1])}" for line in lines if line.points]
    return {"name": name, "svg": line_chart(name, "; ".join(ends), "step", y, lines, top=top)}


def _end(value: float) -> str:
    return f"ends at {value:.4g}" if math.isfinite(value) else "ends without a number: it diverged"


def _class_rows(test: Answers, classes: Sequence[str]) -> list[tuple[str, float, str]]:
    """A bar for each class that has test images, or for the worst where there are too many."""
    matrix = test.confusion
    total, right = matrix.sum(1).tolist(), matrix.diagonal().tolist()
    rows = [
        (name, 100 * (total[i] - right[i]) / total[i], f"{total[i] - right[i]} of {total[i]}")
        for i, name in enumerate(classes)
        if total[i]
    ]
    return rows if len(rows) <= CLASSES else sorted(rows, key=lambda row: -row[1])[:CLASSES]


def _most_confused(test: Answers, classes: Sequence[str], most: int = 5) -> list[Made]:
    matrix = test.confusion.clone()
    matrix.fill_diagonal_(0)
    flat = matrix.flatten().argsort(descending=True, stable=True)[:most].tolist()
    pairs = [divmod(place, len(classes)) for place in flat]
    return [
        {"truth": classes[row], "taken": classes[column], "count": int(matrix[row, column])}
        for row, column in pairs
        if matrix[row, column] > 0
    ]


def _tile_row(found: Measured, pool: Pool, shown: Shown) -> Made:
    """An image of the gallery beside its views; the worst view, which decides, is marked."""
    place, losses = shown.place, pool.view_loss[:, shown.place].tolist()
    worst = max(range(len(losses)), key=losses.__getitem__)
    keep = [i for i in range(len(losses)) if i < VIEWS or i == worst][:VIEWS]
    if worst not in keep:
        keep[-1] = worst
    views = [
        {
            "src": thumbnail(shown.views[view]),
            "loss": _loss(losses[view]),
            "label": found.classes[int(pool.view_label[view, place])],
            "changed": bool(pool.view_label[view, place] != pool.label[place]),
            "ops": shown.names[view] or ["flip and shift alone"],
            "won": view == worst,
        }
        for view in keep
    ]
    return {"image": _image(found, pool, place, shown), "views": views, "won": shown.names[worst]}


def _image(found: Measured, pool: Pool, place: int, shown: Shown) -> Made:
    truth = int(pool.truth[place])
    return {
        "src": thumbnail(shown.image),
        "name": _called(found, int(pool.position[place])),
        "label": found.classes[int(pool.label[place])],
        "confidence": 100 * float(pool.confidence[place]),
        "truth": found.classes[truth] if truth >= 0 else None,
        "right": truth < 0 or truth == int(pool.label[place]),
    }


def _next(found: Measured, pool: Pool, place: int) -> Made:
    assert found.finished is not None
    (shown,) = show(found.finished, pool, [place])
    return _image(found, pool, place, shown) | {"disagreement": percent(100 * float(pool.disagreement[place]), 0)}


def _called(found: Measured, position: int) -> str:
    """A picture by its file's name, an image by its number."""
    files = found.finished.images.files if found.finished else None
    return f"image {position}" if files is None else files.names[position]


def _loss(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 1 else f"{value:.2f}"


def _part_of(some: int, total: int, what: str) -> str:
    if total == 1:
        return f"the {what.replace('images', 'image')}"
    return f"all {total:,} {what}" if some == total else f"{some:,} of the {total:,} {what}, drawn at random"

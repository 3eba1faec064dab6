"""The answer in words: what was found, how sure that is, and what to try next. Every sentence rests on a figure."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from maxmatch.data.folder_names import has_unlabelled, place_of_labels
from maxmatch.data.shards import is_sharded
from maxmatch.errors import UserError, listed
from maxmatch.methods import PRETRAINING
from maxmatch.methods.base import Consistency
from maxmatch.methods.fixmatch import FixMatch
from maxmatch.methods.supervised import Supervised
from maxmatch.nets.foreign import is_own
from maxmatch.report.folder import RunFolder
from maxmatch.report.measure import Measured
from maxmatch.report.repeat import command, from_published
from maxmatch.train.suited import METHOD, began_published

NOT_MEASURED = "not measured"
FEW = 100  # fewer test images say little of calibration, and not much of the error
SHORTEST = 1000  # steps: what the shortest recipes have, about; fewer are a trial
MANY_WRONG = 20.0  # percent of the test images
SEVERAL = 5  # test images: a difference by fewer is no reason to train anew


class Fact(NamedTuple):
    """A figure in large letters: its name, what it is, a line about it; `value` is the number, for programs."""

    name: str
    text: str
    note: str
    key: str
    value: float | None = None


class Advice(NamedTuple):
    """A thing to try: why, and what to type if there is something to type."""

    why: str
    type: str | None = None


def title(run: RunFolder) -> str:
    """A run in one line, as a person would call it."""
    method = run.method.rpartition(":")[2] if ":" in run.method else type(run.recipe.method).__name__
    word = "=" if run.fixed_views else "up to"
    views = f" (K {word} {run.k})" if run.k > 1 else ""
    name, _, labels = run.data.rpartition("@")
    if _pretrains(run):
        return f"{method} on {name}, a pretraining without labels"
    return f"{method}{views} on {name}, {run.labelled or labels} labels"


def answer(run: RunFolder) -> str:
    """The first sentence of the page."""
    so_far = "" if run.finished else f" after {run.steps:,} of {run.recipe.train.steps:,} steps"
    lost = f" It diverged: at step {at:,} a loss was not finite." if (at := run.diverged_at) is not None else ""
    if _pretrains(run):
        seen = f"{run.unlabelled:,} images" if run.unlabelled else "images"
        return f"An encoder learned from {seen} without labels{so_far}: it knows no classes, so it has no error.{lost}"
    shown = f"{run.labelled:,} labelled images" if run.labelled else f"{run.recipe.data.labels} labels"
    start = f"With {shown}"
    if run.unlabelled and not isinstance(run.recipe.method, Supervised):
        start += f" and {run.unlabelled:,} unlabelled ones"
    if run.error is None:
        return f"{start}, the error is {NOT_MEASURED}{so_far}: {_why_not(run)}{lost}"
    images = run.result.get("test_images")
    of = f"{images:,} test images" if isinstance(images, int) else "test images"
    return f"{start}, {percent(run.error)} of the {of} are misclassified{so_far}.{lost}"


def facts(run: RunFolder, found: Measured) -> list[Fact]:
    """Error, robust error, cost, calibration: what is known of each. A pretraining has its cost alone."""
    if _pretrains(run):
        return [_cost_fact(run)]
    made = [_error_fact(run, found)]
    robust = run.figure("robust_error")
    views = run.result.get("robust", {}).get("k", run.recipe.evaluate.robust_views)
    made.append(
        Fact("Robust error", percent(robust), f"the image or any of {views} strongly changed views of it is wrong",
             "robust_error", robust)
    )  # fmt: skip
    made.append(_cost_fact(run))
    if found.test is not None:
        bins = found.test.reliability
        kept = "more" if bins.overconfidence > 0 else "less"
        note = f"expected calibration error; it promises {abs(bins.overconfidence):.1f} points {kept} than it keeps"
        made.append(Fact("Calibration", f"{bins.ece:.1f} points", note, "ece", bins.ece))
    else:
        made.append(Fact("Calibration", NOT_MEASURED, "it takes the model and its test images", "ece"))
    return made


def advice(run: RunFolder, found: Measured, most: int = 4) -> list[Advice]:
    """What to try next, the most pressing first."""
    diverged = _diverged(run)
    if not run.finished:
        verb = "pretrain" if _pretrains(run) else "train"
        again = f"maxmatch {verb} --resume --out {shlex.quote(str(run.path))}"
        left = f"{run.steps:,} of {run.recipe.train.steps:,} steps are done"
        return [*diverged, Advice(f"The run is not finished: {left}. Go on with it.", again)]
    if _pretrains(run):
        start = f"maxmatch train DATA --init {shlex.quote(str(run.path))}"
        return [*diverged, Advice("Train a classifier that starts from it.", start)]
    guesses = _guessing(run, found)
    labels = guesses or _pseudo_labels(run)
    made = [*diverged, *_measurable(run, found), *_unused_pool(run), *_published(run), *labels]
    made += [*_robust(run, found), *_longer(run)]
    made += [*_worst_class(found), *_honesty(found)]
    made = made[: most - 1]
    if found.pool is not None and not run.own_data:
        k = f" --k {run.views}" if run.views != run.recipe.evaluate.robust_views else ""
        out = f"maxmatch predict --unlabeled {shlex.quote(str(run.path))}{k} --out next.csv"
        why = (
            "More labels nearly always help. The images below that the model is least sure of come first in this list."
        )
        after = after_labelling(run)
        made.append(Advice(f"{why} {after}." if after else why, out))
    return made


def after_labelling(run: RunFolder) -> str | None:
    """What to do with a list of what to label next, where the pictures lie in a folder of one's own."""
    data = run.recipe.data
    if data.name != "folder" or data.path is None:
        return None
    if data.labels != "all" and data.label_file is None and not has_unlabelled(Path(data.path)):
        return "Their labels are in the folder already: it was asked to show some of them alone"
    how = f"move the first of them, not copy, into {place_of_labels(Path(data.path))}"
    if data.label_file is not None:
        how = "add rows to the table"
    elif is_sharded(Path(data.path)):
        how = "where the pictures lie that these tar files were made of, pack those anew by maxmatch data shard"
    from_here: dict[str, dict[str, Any]] = {"train": {"init": str(run.path)}, "net": {"pretrained": False}}
    return f"Label some: {how}, then type {command(run, from_here, 'more-labels')}"


def percent(value: float | None, digits: int = 2) -> str:
    return NOT_MEASURED if value is None or not math.isfinite(value) else f"{value:.{digits}f}\N{NO-BREAK SPACE}%"


def duration(seconds: float | None) -> str:
    """Seconds as a person says them.

    >>> duration(28.4), duration(200), duration(9000)
    ('28 s', '3.3 min', '2.5 h')
    """
    if seconds is None:
        return "not known"
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def damage(run: RunFolder) -> list[str]:
    """What of the folder could not be read."""
    if not run.damaged:
        return []
    told = "is damaged and was not read: what is shown comes from metrics.jsonl."
    return [f"{run.path / 'result.json'} {told} Remove it and go on with the run, which writes it anew."]


def _pretrains(run: RunFolder) -> bool:
    return run.method in PRETRAINING


def _cost_fact(run: RunFolder) -> Fact:
    seconds = run.figure("seconds")
    speed = run.figure("steps_per_second")
    whole = run.figure("seconds_total")
    note = f"{duration(whole)} from start to result: " if whole and seconds and whole > seconds + 5 else ""
    note += f"{run.steps:,} steps on {run.result.get('device', run.recipe.train.device)}"
    return Fact("Cost", duration(seconds), f"{note}, {speed:.3g} a second" if speed else note, "seconds", seconds)


def _error_fact(run: RunFolder, found: Measured) -> Fact:
    if run.error is None:
        return Fact("Error", NOT_MEASURED, _why_not(run), "error")
    note = "of the test images" if run.finished else "of the test images, so far"
    if run.finished and (total := _tested(run, found)):
        wrong = round(run.error / 100 * total)
        note = f"{wrong:,} of {total:,} test images, standard error ± {_spread(wrong, total):.2f}"
    return Fact("Error", percent(run.error), note, "error", run.error)


def _spread(wrong: int, total: int) -> float:
    """The standard error of an error rate in points, two right and two wrong added (Agresti and Coull): never 0.

    >>> round(_spread(0, 4), 1), round(_spread(500, 10_000), 2)
    (15.3, 0.22)
    """
    share = (wrong + 2) / (total + 4)
    spread: float = 100 * (share * (1 - share) / (total + 4)) ** 0.5
    return spread


def _why_not(run: RunFolder) -> str:
    if not run.result and not run.curve("error", "evaluate"):
        return "no evaluation has been made yet."
    return "there is no test set."


def _diverged(run: RunFolder) -> list[Advice]:
    if (step := run.diverged_at) is None:
        return []
    lower = float(f"{run.recipe.train.lr / 3:.1g}")
    why = f"At step {step:,} a loss was no longer a finite number: the run diverged. Try a lower learning rate."
    return [Advice(why, command(run, {"train": {"lr": lower}}, f"lr-{lower:g}"))]


def _tested(run: RunFolder, found: Measured) -> int:
    """How many test images there are, or were when it was trained."""
    if found.test is not None:
        return found.test.total
    then = run.result.get("test_images")
    return then if isinstance(then, int) else 0


def _measurable(run: RunFolder, found: Measured) -> list[Advice]:
    made = []
    if run.error is not None and 0 < (total := _tested(run, found)) < FEW:
        sure = _spread(round(run.error / 100 * total), total)
        few = f"There are only {total} test images: the error is known to ± {sure:.0f} points. Test on more."
        made.append(Advice(few))
    if run.error is not None and found.untested:
        made.append(
            Advice(f"Nothing is known of {listed(found.untested)}: no test image shows it. Test on some of each class.")
        )
    if run.error is not None:
        return made
    if run.recipe.data.name == "folder":
        why = (
            "Nobody knows how good this is. Put pictures of known class into test/CLASS/ of the folder, or label five "
            "of each class."
        )
    else:
        why = "Nobody knows how good this is: give it a test set."
    return [Advice(why)]


def _guessing(run: RunFolder, found: Measured) -> list[Advice]:
    if run.error is None or not run.finished or len(found.classes) < 2:
        return []
    chance = 100 * (1 - 1 / len(found.classes))
    if run.error < 0.85 * chance:
        return []
    steps = max(4 * run.recipe.train.steps, SHORTEST)
    why = f"It is hardly better than guessing, which errs by {chance:.0f} %. Train longer, or label more."
    return [Advice(why, command(run, {"train": {"steps": steps}}, f"{steps}-steps"))]


def _unused_pool(run: RunFolder) -> list[Advice]:
    if not isinstance(run.recipe.method, Supervised) or not run.unlabelled:
        return []
    why = f"{run.unlabelled:,} images without a label were not used. Let them teach too."
    published = run.recipe.net.pretrained or began_published(run.recipe.train.init)
    method = METHOD if run.recipe.data.name == "folder" and not published else {"name": "maxmatch"}
    return [Advice(why, command(run, {"method": method}, method["name"]))]


def _published(run: RunFolder) -> list[Advice]:
    recipe = run.recipe
    learned = recipe.net.pretrained or is_own(recipe.net.name) or recipe.train.init is not None
    coloured = recipe.data.name == "folder" and recipe.data.channels == 3
    if learned or not coloured or run.error is None or run.error < MANY_WRONG:
        return []
    why = "It has seen no pictures but these. Photographs: begin with weights that others have trained on millions."
    try:
        return [Advice(why, from_published(run))]
    except UserError:  # its folder is gone
        return []


def _pseudo_labels(run: RunFolder) -> list[Advice]:
    used, right = run.figure("mask_rate"), run.figure("pseudo_label_accuracy")
    if used is None:
        return []
    threshold = getattr(run.recipe.method, "threshold", None)
    if used < 0.5 and isinstance(threshold, float) and threshold > 0.5:
        lower = round(threshold - 0.1, 2)
        why = (
            f"Only {100 * used:.0f} % of the unlabelled images were confident enough to teach. Lower the threshold, or "
            "train longer."
        )
        alone = "So few taught that the labels alone may do as well: see, in a fraction of the time."
        return [
            Advice(why, command(run, {"method": {"threshold": lower}}, f"threshold-{lower}")),
            Advice(alone, command(run, {"method": {"name": "supervised"}}, "supervised")),
        ]
    if used == 0:
        return [Advice("No unlabelled image taught anything: look at how many the method keeps.")]
    if right is not None and right < 0.85:
        why = f"Of the pseudo-labels that taught, {100 * (1 - right):.0f} % were wrong: it learns its own mistakes. "
        policy = run.recipe.augment.policy
        if policy != "gentle":
            return [Advice(why + "Try gentler views.", command(run, {"augment": {"policy": "gentle"}}, "gentle"))]
        return [Advice(why + "A few more labels help most.")]
    return []


def _robust(run: RunFolder, found: Measured) -> list[Advice]:
    robust, error, method = run.figure("robust_error"), run.error, run.recipe.method
    if robust is None or error is None or robust < 1.5 * error or robust - error < 3:
        return []
    if (total := _tested(run, found)) and (robust - error) / 100 * total < SEVERAL:
        return []
    if not isinstance(method, Consistency) or not run.trains_on_strong:
        return []
    why = f"Strongly changed views raise the error from {error:.1f} to {robust:.1f} %: train against a worse case."
    if type(method) is FixMatch:
        return [Advice(why, command(run, {"method": {"name": "maxmatch"}}, "maxmatch"))]
    if method.over.name != "worst":
        return [Advice(why, command(run, {"method": {"over": "worst", "k": max(3, run.k)}}, "worst"))]
    more = run.k + 2
    return [Advice(why, command(run, {"method": {"k": more}}, f"k{more}"))] if more <= 9 else []


def _longer(run: RunFolder) -> list[Advice]:
    errors = run.curve("error", "evaluate")
    if len(errors) < 5:
        return []
    before = next(error for step, error in reversed(errors) if step <= 0.8 * errors[-1][0] or step == errors[0][0])
    now = errors[-1][1]
    if before - now < 0.5 or now > 0.9 * before:
        return []
    why = (
        f"In the last fifth of the run the error fell from {before:.1f} to {now:.1f} %. Twice the steps may lower it "
        "further."
    )
    steps = 2 * run.recipe.train.steps
    return [Advice(why, command(run, {"train": {"steps": steps}}, f"{steps}-steps"))]


def _worst_class(found: Measured) -> list[Advice]:
    if found.test is None:
        return []
    matrix = found.test.confusion
    total, wrong = matrix.sum(1), matrix.sum(1) - matrix.diagonal()
    share = wrong / total.clamp(min=1)
    worst = int(share.argmax())
    average = float(wrong.sum() / total.sum())
    if int(wrong[worst]) < 3 or float(share[worst]) < 2 * average:
        return []
    others = matrix[worst].clone()
    others[worst] = 0
    name, other = found.classes[worst], found.classes[int(others.argmax())]
    why = (
        f"“{name}” is the hardest class: {int(wrong[worst])} of {int(total[worst])} are wrong, most often taken for "
        f"“{other}” ({int(others.max())}). Label more of both."
    )
    return [Advice(why)]


def _honesty(found: Measured) -> list[Advice]:
    if found.test is None or found.test.total < FEW or (bins := found.test.reliability).ece < 5:
        return []
    word = "too sure" if bins.overconfidence > 0 else "too modest"
    why = f"It is {word} of itself (ECE {bins.ece:.1f} points): do not read its confidence as a probability."
    return [Advice(why)]


def figures(run: RunFolder, found: Measured) -> dict[str, Any]:
    """The figures of a run for programs, as the page shows them; what is not finite is None, as JSON has no NaN."""
    names = ("robust_error", "seconds", "mask_rate", "pseudo_label_accuracy", "unlabeled_loss", "unlabeled_loss_min")
    made: dict[str, Any] = {"run": run.path.name, "finished": run.finished, "steps": run.steps, "error": run.error}
    made |= {name: run.figure(name) for name in names}
    made["ece"] = found.test.reliability.ece if found.test else None
    made = {name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in made.items()}  # fmt: skip
    made["confusion"] = found.test.confusion.tolist() if found.test else None
    return made

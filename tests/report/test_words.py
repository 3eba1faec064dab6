"""The answer, the facts and the advice: each sentence rests on a figure, and is left out without it."""

from __future__ import annotations

import json
import math
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from maxmatch.report.folder import RunFolder
from maxmatch.report.measure import Answers, Measured
from maxmatch.report.words import advice, after_labelling, answer, facts, figures, title
from maxmatch.train.recipes import compose

GOOD = {"error": {"last": 5.0, "median20": 5.0, "best": 5.0}, "steps": 800, "seconds": 30.0, "steps_per_second": 26.7,
        "robust_error": 6.0, "mask_rate": 0.9, "pseudo_label_accuracy": 0.97, "device": "cpu", "robust": {"k": 3}}  # fmt: skip


def run_of(name: str = "maxmatch", metrics=(), given=None, **changes) -> RunFolder:
    recipe = compose("digits", name, given=given)
    return RunFolder(Path("runs/a"), recipe, {**GOOD, **changes}, list(metrics), 20, 1175)


def whys(run: RunFolder, found: Measured | None = None) -> str:
    return " | ".join(f"{one.why} [{one.type or ''}]" for one in advice(run, found or Measured()))


def spaced(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_a_run_where_all_is_well_gets_no_advice():
    assert advice(run_of(), Measured()) == []
    assert spaced(answer(run_of())) == (
        "With 20 labelled images and 1,175 unlabelled ones, 5.00 % of the test images are misclassified."
    )
    assert title(run_of()) == "MaxMatch (K = 3) on digits, 20 labels"
    assert title(run_of(given={"method": {"k": "1,2"}})) == "MaxMatch (K up to 2) on digits, 20 labels"


def test_facts_are_those_of_the_result():
    shown = {fact.key: fact for fact in facts(run_of(), Measured())}
    assert (shown["error"].value, spaced(shown["error"].text)) == (5.0, "5.00 %")
    assert (shown["robust_error"].value, shown["seconds"].text) == (6.0, "30 s")
    assert shown["ece"].text == "not measured"


def test_an_error_that_was_not_measured_is_never_a_number():
    none = {"last": None, "median20": None, "best": None}
    run = run_of(error=none, robust_error=None)
    assert "the error is not measured: there is no test set." in answer(run)
    assert [fact.text for fact in facts(run, Measured())[:2]] == ["not measured", "not measured"]
    assert "Nobody knows how good this is" in whys(run)


@pytest.mark.parametrize(
    ("changes", "sentence", "command"),
    [
        ({"robust_error": 20.0}, "raise the error from 5.0 to 20.0 %", "--k 5 --out runs/a-k5"),
        ({"pseudo_label_accuracy": 0.7}, "30 % were wrong", ""),
        ({"name": "supervised", "mask_rate": None}, "1,175 images without a label were not used", "--method maxmatch"),
        ({"name": "uda", "robust_error": 20.0}, "train against a worse case", "--over worst"),
        (
            {"name": "fixmatch", "robust_error": 20.0},
            "train against a worse case",
            "--method maxmatch --out runs/a-maxmatch",
        ),
    ],
)
def test_what_stands_out_is_said_with_what_to_type(changes, sentence, command):
    told = whys(run_of(**changes))
    assert sentence in told
    assert command in told
    assert told.count("|") == 0  # and nothing else


def test_where_few_taught_a_lower_threshold_or_the_labels_alone_are_to_be_tried():
    told = whys(run_of(mask_rate=0.3))
    assert "Only 30 % of the unlabelled images" in told
    assert "--set method.threshold=0.85 --out" in told
    assert told.count("|") == 1  # and nothing but these two
    assert "the labels alone may do as well: see, in a fraction of the time. [maxmatch train" in told
    assert "--method supervised" in told
    assert "labels alone" not in whys(run_of())


def test_a_robust_error_that_is_three_times_a_small_one_asks_for_nothing():
    small = {"last": 1.0, "median20": 1.0, "best": 1.0}
    assert advice(run_of(error=small, robust_error=3.5), Measured()) == []
    assert "from 1.0 to 4.5 %" in whys(run_of(error=small, robust_error=4.5))


def test_few_test_images_are_told_by_the_result_alone_and_ask_for_no_other_training():
    wrong = {"last": 25.0, "median20": 25.0, "best": 25.0}
    few = run_of(error=wrong, robust_error=50.0, test_images=4)
    assert whys(few) == "There are only 4 test images: the error is known to ± 17 points. Test on more. []"
    assert "1 of 4 test images, standard error ± 17.12" in [fact.note for fact in facts(few, Measured())]
    assert "from 25.0 to 50.0 %" in whys(run_of(error=wrong, robust_error=50.0, test_images=20))
    told = whys(run_of(), Measured(untested=["cat", "dog"]))
    assert told == "Nothing is known of cat, dog: no test image shows it. Test on some of each class. []"


def test_an_error_that_falls_asks_for_more_steps():
    falling = [{"kind": "evaluate", "step": 80 * i, "error": 55.0 - 5 * i} for i in range(1, 11)]
    assert "fell from 15.0 to 5.0 %" in whys(run_of(metrics=falling))
    assert "--steps 1600" in whys(run_of(metrics=falling))
    level = [{"kind": "evaluate", "step": 80 * i, "error": 5.0} for i in range(1, 11)]
    assert whys(run_of(metrics=level)) == ""


def test_the_hardest_class_and_false_confidence_are_named():
    label = torch.tensor(([0] * 10 + [1] * 10 + [2] * 10) * 4)
    guess = torch.tensor(([0] * 10 + [1] * 10 + [2] * 4 + [1] * 6) * 4)
    found = Measured(test=Answers(np.arange(120), label, torch.nn.functional.one_hot(guess, 3).double(), 120, "digest"))

    class Named:
        class classifier:
            classes = ("ant", "bee", "cow")

    found.finished = Named()
    told = whys(run_of(), found)
    assert "“cow” is the hardest class: 24 of 40 are wrong, most often taken for “bee” (24)" in told
    assert "It is too sure of itself (ECE 20.0 points)" in told
    found.test = found.test._replace(total=16)
    told = whys(run_of(), found)
    assert "only 16 test images: the error is known to ± 8 points" in told  # 1 wrong: 100 sqrt(.15 * .85 / 20)
    assert "too sure" not in told


def test_methods_without_strong_views_are_not_told_to_have_worse_ones():
    assert whys(run_of("mixmatch", robust_error=20.0)) == ""
    assert whys(run_of("vat", robust_error=20.0)) == ""
    assert title(run_of("vat")) == "VAT on digits, 20 labels"
    assert (run_of("vat").views, run_of("fixmatch").views, run_of(given={"method": {"k": 7}}).views) == (3, 3, 7)


def test_the_answer_says_of_how_many_images():
    assert "5.00 % of the 1,234 test images are" in spaced(answer(run_of(test_images=1234)))


def test_an_unfinished_run_is_to_be_gone_on_with():
    metrics = [{"kind": "train", "step": 300, "mask_rate": 0.4}, {"kind": "evaluate", "step": 300, "error": 12.0}]
    run = RunFolder(Path("runs/my run"), compose("digits"), {}, metrics, 20, 1175)
    assert spaced(answer(run)).endswith("12.00 % of the test images are misclassified after 300 of 800 steps.")
    (only,) = advice(run, Measured())
    assert only.type == "maxmatch train --resume --out 'runs/my run'"
    longer = run_of(given={"train": {"steps": 1600}})  # finished at 800, then asked for more
    assert "after 800 of 1,600 steps" in answer(longer)
    assert "Go on with it" in whys(longer)
    begun = RunFolder(Path("a"), compose("digits"), {}, [], None, None)
    assert "not measured after 0 of 800 steps: no evaluation has been made yet." in answer(begun)


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_run_that_diverged_says_so_and_has_figures_that_json_can_hold(finished, value):
    metrics = [
        {"kind": "train", "step": 100, "supervised_loss": 2.0, "unlabeled_loss": 0.5},
        {"kind": "train", "step": 1200, "supervised_loss": 2.0, "unlabeled_loss": value},
    ]
    result = {**GOOD, "unlabeled_loss": value} if finished else {}
    run = RunFolder(Path("runs/a"), compose("digits", "maxmatch"), result, metrics, 20, 1175)
    told = figures(run, Measured())
    assert told["unlabeled_loss"] is None
    assert told["error"] == (5.0 if finished else None)
    json.dumps(told, allow_nan=False)
    assert "It diverged: at step 1,200 a loss was not finite." in answer(run)
    first = advice(run, Measured())[0]
    assert "the run diverged. Try a lower learning rate" in first.why
    assert "--set train.lr=0.1 " in first.type  # a third of 0.4, in one figure
    assert "diverged" not in answer(run_of(metrics=metrics[:1])) + whys(run_of(metrics=metrics[:1]))


def test_a_run_that_guesses_is_told_so_and_not_to_believe_more_of_it():
    class Named:
        class classifier:
            classes = ("ant", "bee", "cow", "dog")

    found = Measured(finished=Named())
    wrong = {"last": 70.0, "median20": 70.0, "best": 70.0}
    told = whys(run_of(error=wrong, mask_rate=0.3), found)
    assert "hardly better than guessing, which errs by 75 %" in told
    assert "--steps 3200" in told
    assert "threshold" not in told
    better = {"last": 60.0, "median20": 60.0, "best": 60.0}
    assert "guessing" not in whys(run_of(error=better), found)


def test_a_method_of_ones_own_that_keeps_nothing_is_told_so_first():
    run = run_of("freematch", mask_rate=0.0, robust_error=40.0)
    assert advice(run, Measured())[0].why == "No unlabelled image taught anything: look at how many the method keeps."


def run_in(folder: Path, given, metrics=()) -> RunFolder:
    return RunFolder(Path("runs/a"), compose(folder, given=given), GOOD, list(metrics), 4, 4)


def test_who_labels_more_is_told_where_and_what_to_type_then(tmp_path):
    folder = tmp_path / "my photos"
    for number in range(8):
        place = folder / ("labeled/a", "labeled/b", "unlabeled")[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (48, 40), (30 * number, 0, 0)).save(place / f"{number}.png")
    typed = {"method": {"name": "fixmatch", "k": 2}, "augment": {"flip": False}, "train": {"steps": 30, "seed": 5}}
    run = run_in(folder, typed)
    told = after_labelling(run)
    assert told.startswith(
        f"Label some: move the first of them, not copy, into {folder}/labeled/CLASS/, then type maxmatch train "
    )
    again = shlex.split(told.partition("then type ")[2])
    assert again[2] == str(folder)
    assert {*zip(again[3::2], again[4::2], strict=True)} == {  # as it was trained, and from there
        ("--method", "fixmatch"), ("--k", "2"), ("--set", "augment.flip=false"), ("--steps", "30"), ("--seed", "5"),
        ("--init", "runs/a"), ("--out", "runs/a-more-labels"),
    }  # fmt: skip
    (tmp_path / "l.csv").write_text("labeled/a/0.png,a\nlabeled/b/1.png,b\n")
    by_table = after_labelling(run_in(folder, {**typed, "data": {"label_file": str(tmp_path / "l.csv")}}))
    assert "add rows to the table, then type maxmatch train " in by_table
    assert f"--labels {tmp_path / 'l.csv'}" in by_table
    assert after_labelling(run_of()) is None
    (folder / "00000.tar").write_bytes(b"")
    assert "that these tar files were made of, pack those anew by maxmatch data shard" in after_labelling(run)


@pytest.mark.parametrize(
    ("labelled", "wanted"),
    [("labelled/a labelled/b", "labelled/CLASS/"), ("train/a train/b", "train/CLASS/"), ("a b", "CLASS/")],
)
def test_more_labels_go_where_the_others_are(tmp_path, labelled, wanted):
    """In labeled/, made for them beside class folders, they would hide those."""
    folder = tmp_path / "photos"
    for number, place in enumerate([*labelled.split(), *labelled.split(), "unlabeled"]):
        (folder / place).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (48, 40), (30 * number, 0, 0)).save(folder / place / f"{number}.png")
    assert f"not copy, into {folder}/{wanted}, then type" in after_labelling(run_in(folder, {"train": {"steps": 30}}))
    typed = {"train": {"steps": 30}, "data": {"labels": 2}}
    assert f"not copy, into {folder}/{wanted}, then type" in after_labelling(run_in(folder, typed))
    shutil.rmtree(folder / "unlabeled")
    hidden = "Their labels are in the folder already: it was asked to show some of them alone"
    assert after_labelling(run_in(folder, typed)) == hidden


def test_labels_alone_are_advised_what_a_folder_is_trained_with(tmp_path):
    for number in range(4):
        place = tmp_path / ("labeled/a", "labeled/b", "unlabeled")[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (48, 40), (30 * number, 0, 0)).save(place / f"{number}.png")
    told = whys(run_in(tmp_path, {"method": {"name": "supervised"}, "train": {"steps": 800}}))
    assert "were not used. Let them teach too." in told
    assert "--method freematch --k 3 --over worst" in told
    assert (
        compose(tmp_path).method == compose(tmp_path, "freematch", given={"method": {"k": 3, "over": "worst"}}).method
    )
    assert "--method maxmatch" in whys(run_of("supervised"))


def test_photographs_that_are_often_taken_wrongly_are_advised_published_weights(tmp_path):
    for number in range(9):
        place = tmp_path / ("labeled/a", "labeled/b", "unlabeled")[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (48, 40), (30 * number, 0, 0)).save(place / f"{number}.png")
    (tmp_path / "l.csv").write_text("labeled/a/0.png,a\nlabeled/b/1.png,b\n")

    def told(given, error=40.0):
        recipe = compose(tmp_path, given=given)
        result = {**GOOD, "steps": recipe.train.steps, "error": {"last": error, "median20": error, "best": error}}
        run = RunFolder(Path("runs/a"), recipe, result, [], 4, 4)
        return " | ".join(one.type or "" for one in advice(run, Measured()))

    words = f"maxmatch train {tmp_path} --set net.pretrained=true --out runs/a-published"
    assert words in told({})
    assert compose(tmp_path, given={"net": {"pretrained": True}}).net.pretrained  # as it would be typed
    shown = told({"data": {"label_file": str(tmp_path / "l.csv"), "labels": "50%"}})
    assert f"maxmatch train {tmp_path}@50% --labels {tmp_path / 'l.csv'} --set net.pretrained=true" in shown
    own = {"train": {"seed": 7, "fold": 3, "lr": 0.05}, "augment": {"flip": False}, "data": {"strict": True}}
    shown = told(own)  # what says which pictures and views stays, what suited drawn weights goes
    assert (
        f"train {tmp_path} --set data.strict=true --set augment.flip=false --seed 7 --fold 3 --set net.pretrained=true"
        in shown
    ), shown
    gone = RunFolder(
        Path("runs/a"), compose(tmp_path), {**GOOD, "error": {"last": 40.0, "median20": 40.0, "best": 40.0}}, [], 4, 4
    )
    lost = replace(gone.recipe, data=replace(gone.recipe.data, path=str(tmp_path / "gone")))
    assert not any("published" in (one.type or "") for one in advice(replace(gone, recipe=lost), Measured()))
    net = "timm:tf_efficientnet_lite0"
    assert f"train {tmp_path} --set net.name={net} --set net.pretrained=true" in told({"net": {"name": net}})
    for given, error in (({}, 5.0), ({"net": {"pretrained": True}}, 40.0), ({"train": {"init": "runs/p"}}, 40.0),
                         ({"net": {"name": "pretrain.own_net:Mine"}}, 40.0),
                         ({"data": {"channels": 1}}, 40.0)):  # fmt: skip
        assert "published" not in told(given, error)


def test_a_run_from_published_weights_is_said_again_by_what_was_typed(tmp_path):
    for number in range(9):
        place = tmp_path / ("labeled/a", "labeled/b", "unlabeled")[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (48, 40), (30 * number, 0, 0)).save(place / f"{number}.png")
    metrics = [{"kind": "evaluate", "step": n, "error": 50.0 - n} for n in range(1, 41)]
    typed = {"net": {"pretrained": True}, "train": {"steps": 40}}
    told = whys(run_in(tmp_path, typed, metrics))
    assert f"maxmatch train {tmp_path} --method maxmatch --set net.pretrained=true --steps 80 --out" in told
    alone = whys(run_in(tmp_path, {**typed, "method": {"name": "supervised"}}))
    assert "Let them teach too. [maxmatch train" in alone
    assert "--method maxmatch" in alone


def test_a_run_from_published_weights_goes_on_without_asking_for_them_again(tmp_path):
    """Its net and what suits it are those of the run that the next one starts from."""
    for number in range(9):
        place = tmp_path / ("labeled/a", "labeled/b", "unlabeled")[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (48, 40), (30 * number, 0, 0)).save(place / f"{number}.png")
    recipe = compose(tmp_path, given={"net": {"name": "timm:test_resnet", "pretrained": True}})
    (out := tmp_path / "runs" / "a").mkdir(parents=True)
    (out / "recipe.json").write_text(recipe.to_json())
    told = after_labelling(RunFolder(out, recipe, GOOD, [], 4, 4))
    assert told.partition("then type ")[2].endswith(f" --init {out} --out {out}-more-labels")
    assert "--set" not in told
    assert compose(tmp_path, given={"train": {"init": str(out)}}).net.name == "timm:test_resnet"


def test_twice_the_steps_have_the_intervals_of_so_many(tmp_path):
    for number in range(6):
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        Image.new("RGB", (48, 40), (30 * number, 0, 0)).save(tmp_path / "ab"[number % 2] / f"{number}.png")
    metrics = [{"kind": "evaluate", "step": n, "error": 50.0 - n} for n in range(1, 41)]
    run = run_in(tmp_path, {"train": {"steps": 40}}, metrics)
    assert run.recipe.train.evaluate_every == 2  # by its steps
    assert "--steps 80 " in whys(run)
    assert "_every" not in whys(run)
    run = run_in(tmp_path, {"train": {"steps": 40, "log_every": 3}}, metrics)
    assert "--set train.log_every=3" in whys(run)  # as it was typed
    assert "evaluate_every" not in whys(run)


def test_the_cost_is_told_from_start_to_result():
    (cost,) = [fact for fact in facts(run_of(seconds=75.0, seconds_total=254.0), Measured()) if fact.name == "Cost"]
    assert cost.text == "75 s"
    assert cost.note.startswith("4.2 min from start to result: ")

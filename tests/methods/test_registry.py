"""Methods by name, and a method of one's own in one file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from contract.world import make_batch, make_world

from maxmatch.cli.options import given
from maxmatch.errors import UsageError
from maxmatch.methods import make_method, method_name, method_values
from maxmatch.methods.base import Consistency, Losses, Method, Needs, Seen, Target, part
from maxmatch.methods.fixmatch import FixMatch
from maxmatch.methods.functional import cross_entropy
from maxmatch.methods.mistakes import misspelled
from maxmatch.methods.ranges import Share, Weight
from maxmatch.train.fit import fit
from maxmatch.train.recipes import compose
from maxmatch.train.resume import saved_recipe


@dataclass(frozen=True)
class Flat(FixMatch):
    """Everything counts alike."""

    level: float = 0.5

    def targets(self, p):
        return Target(p.argmax(-1), p.new_full((len(p),), self.level))


def test_a_method_of_ones_own_needs_no_registration():
    place = f"{__name__}:Flat"
    method = make_method({"name": place, "level": 0.25})
    assert type(method).__name__ == "Flat"
    assert method_name(method) == place
    assert make_method(method_values(method)) == method


def test_names_may_be_typed_with_underscores_and_capitals():
    assert method_name(make_method({"name": "FixMatch"})) == "fixmatch"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("fixmach", "did you mean 'fixmatch'"),
        ("no.such:Thing", "package.module:Class"),
        (":x", "package.module:Class"),
        (".a:b", "package.module:Class"),
        ("os:getcwd", "no subclass"),
        ("json:JSONDecoder", "no subclass"),
    ],
)
def test_unknown_methods_are_one_line(name, hint):
    with pytest.raises(UsageError, match=hint):
        make_method({"name": name})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def f(:\n", "line 1, can't be imported: SyntaxError: invalid syntax"),
        ("import torch\nimport no_such_thing\n", "line 2, can't be imported: ModuleNotFoundError: No module named"),
        (
            "from dataclasses import dataclass\nfrom maxmatch.methods.fixmatch import FixMatch\n"
            "@dataclass\nclass Thawed(FixMatch):\n    k: int = 3\n",
            "line 3, can't be imported: TypeError: cannot inherit non-frozen dataclass from a frozen one",
        ),
    ],
)
def test_a_file_that_can_not_be_imported_is_named_with_its_line(tmp_path, monkeypatch, text, line):
    (tmp_path / "mine_to_mend.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=f"mine_to_mend.py, {line}"):
        make_method({"name": "mine_to_mend:Any"})


@dataclass(frozen=True)
class Columns(FixMatch):
    """Has a shape wrong."""

    wrong: str = "keep"

    def targets(self, p):
        value, keep = p.argmax(-1, keepdim=self.wrong == "value"), p.amax(-1, keepdim=self.wrong == "keep") > 0.5
        value = value.int() if self.wrong == "kind" else value
        return Target(value, keep)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ("keep", r"Columns keeps by a tensor of shape \(16, 1\): one value an image is wanted, \(16,\)"),
        ("value", r"Columns teaches a tensor of shape \(16, 1\) for 16 images: labels \(16,\), probabilities"),
        ("kind", r"Columns teaches labels of int32: whole numbers of 64 bits are wanted, .long\(\)"),
    ],
)
def test_shapes_that_are_wrong_are_one_line(tiny, tmp_path, wrong, line, k):
    recipe = tiny(f"{__name__}:Columns", method={"wrong": wrong, "k": k})
    with pytest.raises(UsageError, match=line):
        fit(recipe, tmp_path / "a", quiet=True)


@dataclass(frozen=True)
class Seeing(Method):
    """A `losses` of its own, which has one thing that it saw in another shape."""

    k: int = 2
    wrong: str = ""

    @property
    def needs(self):
        return Needs(weak=1, strong=self.k)

    def losses(self, run, batch):
        x, *strong = run.net(batch.x, *batch.strong)
        per_view = torch.stack([cross_entropy(view, view.detach().argmax(-1)) for view in strong])
        target, keep, winner = strong[0].detach().argmax(-1), torch.ones(len(batch.index)), per_view.argmax(0)
        unlabeled = per_view.amax(0).mean()
        seen = Seen(target, keep, per_view.detach(), winner, unlabeled.detach())
        shapes = {"per_view": seen.per_view[0], "keep": keep[:, None], "winner": winner[:1], "unlabeled_loss": keep}
        shapes |= {"target": target[:3], "guess": keep}
        if self.wrong:
            seen = seen._replace(**{self.wrong: shapes[self.wrong]})
        return Losses({"supervised": cross_entropy(x, batch.y).mean(), "unlabeled": unlabeled}, seen)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ("per_view", r"per_view has shape \(16,\): \(K, 16\) is wanted"),
        ("keep", r"keep has shape \(16, 1\): \(16,\) is wanted"),
        ("winner", r"winner has shape \(1,\): \(16,\) is wanted"),
        ("unlabeled_loss", r"unlabeled_loss has shape \(16,\): \(\) is wanted"),
        ("target", r"target has shape \(3,\): \(16,\) or \(16, C\) is wanted"),
        ("guess", r"guess has shape \(16,\): \(16, C\) is wanted"),
    ],
)
def test_what_an_own_losses_has_seen_is_refused_in_another_shape(tiny, tmp_path, wrong, line):
    with pytest.raises(UsageError, match=f"what Seeing.losses has seen: {line}"):
        fit(tiny(f"{__name__}:Seeing", method={"wrong": wrong}), tmp_path / "a", quiet=True)


def test_a_method_of_any_base_has_its_k_in_the_result(tiny, tmp_path):
    recipe = tiny(f"{__name__}:Seeing", method=given(None, None, k="3")["method"])  # a number, as --k is typed
    assert fit(recipe, tmp_path / "a", quiet=True)["k"] == 3
    assert fit(tiny("supervised"), tmp_path / "b", quiet=True)["k"] is None


def test_a_method_without_views_says_so():
    with pytest.raises(UsageError, match="supervised has no views to choose from: leave k out"):
        make_method({"name": "supervised", "k": 3})


class Undecorated(Flat):
    """Forgets that it is a dataclass: Python would read none of its options."""

    k: int = 3
    margin: float = 0.1


class Renamed(Flat):
    """Needs no decorator: it has no options of its own."""

    formula: ClassVar[str] = "as Flat"


def test_options_that_would_not_be_read_are_refused():
    with pytest.raises(
        UsageError, match=r"Undecorated': its options are not read; put @dataclass\(frozen=True\) above"
    ):
        make_method({"name": f"{__name__}:Undecorated"})
    assert type(make_method({"name": f"{__name__}:Renamed"})).__name__ == "Renamed"


@dataclass(frozen=True)
class Silent(Consistency):
    """Forgets to say what it teaches."""


@dataclass(frozen=True)
class Bare(FixMatch):
    """Returns labels where a Target is wanted."""

    def targets(self, p):
        return p.argmax(-1)


@pytest.mark.parametrize("strategy", ["joint", "select"])
def test_a_method_that_returns_no_target_is_told_what_to_return(tiny, tmp_path, strategy):
    recipe = replace(tiny("fixmatch"), method=Bare(k=2, over="worst", strategy=strategy))
    with pytest.raises(UsageError, match=r"Bare teaches a Tensor: return Target\(value, keep\)"):
        fit(recipe, tmp_path / "a", quiet=True)


@dataclass(frozen=True)
class Talkative(FixMatch):
    """Has one term more than it names."""

    def more_terms(self, run, batch, target, anchored, variants):
        return {"mine": 0.0 * variants[0].sum()}


@dataclass(frozen=True)
class Quiet(FixMatch):
    """Names a term that it does not give."""

    terms: ClassVar[tuple[str, ...]] = ("supervised", "unlabeled", "mine")


def test_a_term_that_is_named_and_not_there_is_refused(tiny, tmp_path):
    with pytest.raises(UsageError, match=r"give 'mine' too, torch.zeros\(\(\)\)"):
        fit(replace(tiny("fixmatch"), method=Quiet()), tmp_path / "a", quiet=True)


def test_a_term_that_is_not_named_is_refused(tiny, tmp_path):
    recipe = replace(tiny("fixmatch"), method=Talkative())
    with pytest.raises(UsageError, match="write terms: ClassVar = \\('supervised', 'unlabeled', 'mine'\\)"):
        fit(recipe, tmp_path / "a", quiet=True)


@dataclass(frozen=True)
class Unseen(FixMatch):
    """Gives its terms alone, as a dict or as losses that tell nothing else."""

    wrapped: bool = False

    def losses(self, run, batch):
        terms = super().losses(run, batch).terms
        return Losses(terms) if self.wrapped else terms


def test_losses_that_are_none_are_refused_and_unseen_ones_have_no_invented_figures(tiny, tmp_path):
    with pytest.raises(UsageError, match=r"Unseen\.losses returns a dict: return Losses\(terms\)"):
        fit(replace(tiny("fixmatch"), method=Unseen()), tmp_path / "a", quiet=True)
    result = fit(replace(tiny("fixmatch"), method=Unseen(wrapped=True, threshold=0.1)), tmp_path / "b", quiet=True)
    assert result["unlabeled_loss"] > 0
    assert [result[name] for name in ("mask_rate", "unlabeled_loss_min", "pseudo_label_accuracy")] == [None] * 3


@dataclass(frozen=True)
class Asking(FixMatch):
    """Asks the average without saying so before."""

    def opinion(self, run, batch, anchored, variants):
        return run.teacher(batch.weak[0])[0].softmax(-1)


def test_who_asks_an_average_that_is_none_is_told(tiny, tmp_path):
    recipe = replace(tiny("fixmatch", train={"ema_decay": 0.0}), method=Asking())
    with pytest.raises(UsageError, match=r"train\.ema_decay = 0, which is none; give 0\.999, or auto"):
        fit(recipe, tmp_path / "a", quiet=True)
    fit(replace(tiny("fixmatch"), method=Asking()), tmp_path / "b", quiet=True)


def test_a_part_that_was_not_given_is_named():
    for state, told in ((None, "there is none of that name"), (torch.nn.ModuleDict({"a": torch.nn.ReLU()}), "a ReLU")):
        with pytest.raises(UsageError, match=f"part 'a' is asked for, a Linear, and .*{told}: give it in `parts`"):
            part(SimpleNamespace(state=state), torch.nn.Linear, "a")


def test_an_instance_is_no_name_and_a_module_no_file():
    with pytest.raises(UsageError, match=r"method = Asking\(\.\.\.\): a name is wanted.*replace\(recipe, method="):
        compose("digits", Asking())
    with pytest.raises(UsageError, match="a module has no .py in its name; type mine:Own"):
        make_method({"name": "mine.py:Own"})
    with pytest.raises(UsageError, match=r"no place of a file; type PYTHONPATH=\.\. maxmatch \.\.\. mine:Own"):
        make_method({"name": "../mine.py:Own"})
    with pytest.raises(UsageError, match="it was written in a script or notebook; put it into a file of its own"):
        make_method({"name": "__main__:Own"})


def test_a_method_that_teaches_nothing_is_told_what_to_write():
    with pytest.raises(UsageError, match=r"Silent teaches nothing: write targets\(p\)"):
        Silent().targets(torch.ones(1, 2))


@dataclass(frozen=True)
class Odd(FixMatch):
    """Wrong in a way that is named: a term, a distance, or a target of the wrong kind."""

    how: str = ""

    def more_terms(self, run, batch, target, anchored, variants):
        return {"mine": 0} if self.how == "number" else {"mine": variants[0].mean(-1)} if self.how == "row" else {}

    def targets(self, p):
        return Target(p[:, :5], p.new_ones(len(p))) if self.how == "classes" else super().targets(p)

    def losses(self, run, batch):
        losses = super().losses(run, batch)
        return Losses({n: t.detach() for n, t in losses.terms.items()}) if self.how == "detached" else losses


@dataclass(frozen=True)
class Far(FixMatch):
    distance: ClassVar = staticmethod(lambda logits, target: logits.square().sum())


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("number", r"Odd gives 'mine' as a int: a tensor of one number is wanted, such as a mean"),
        ("row", r"Odd gives 'mine' as a tensor of shape \(16,\): a tensor of one number is wanted"),
        ("classes", r"Odd teaches probabilities of 5 classes: C is 10"),
        ("detached", r"no term of Odd has a gradient"),
    ],
)
def test_what_a_method_makes_wrong_is_told_in_a_line(tiny, tmp_path, monkeypatch, how, line):
    if how in ("number", "row"):
        monkeypatch.setattr(Odd, "terms", ("supervised", "unlabeled", "mine"))
    with pytest.raises(UsageError, match=line):
        fit(replace(tiny("fixmatch"), method=Odd(how=how)), tmp_path / "a", quiet=True)


def test_a_distance_that_is_not_one_value_an_image_is_refused(tiny, tmp_path):
    with pytest.raises(UsageError, match=r"the distance of Far has shape \(\): one value an image is wanted, \(16,\)"):
        fit(replace(tiny("fixmatch"), method=Far()), tmp_path / "a", quiet=True)


def test_a_hook_that_is_misspelled_is_told_and_a_helper_is_not(tiny, tmp_path, capsys):
    @dataclass(frozen=True)
    class Typo(FixMatch):
        def supervized(self, run, x, y):
            raise AssertionError

    @dataclass(frozen=True)
    class Helped(FixMatch):
        def anchor(self, p):
            return super().targets(p)

        def weights(self):
            return 1

        def targets(self, p):
            return self.anchor(p)

    assert misspelled(Typo()) == ["Typo.supervized is no hook, and nothing asks for it: is supervised meant?"]
    assert misspelled(Helped()) == misspelled(FixMatch()) == []
    fit(replace(tiny("fixmatch"), method=Typo()), tmp_path / "a")
    assert "warning: Typo.supervized is no hook, and nothing asks for it" in capsys.readouterr().err


OWN = """
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from maxmatch.methods.base import Method
from maxmatch.methods.fixmatch import FixMatch

@dataclass(frozen=True)
class Named(FixMatch):
    name: str = "hello"

@dataclass(frozen=True)
class Titled(FixMatch):
    name: ClassVar[str] = "a title"

@dataclass(frozen=True)
class Abstract(Method):
    pass

@dataclass(frozen=True)
class Optioned(FixMatch):
    many: list[float] = ()
    where: Path = Path("here")
    odd: dict[str, int] | None = None

@dataclass(frozen=True, kw_only=True)
class Needy(FixMatch):
    amount: float
"""


def test_options_of_a_method_of_ones_own(tmp_path, monkeypatch, tiny):
    (tmp_path / "optioned.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    for name, line in (
        ("Named", "in a recipe name is the method's own; give its option another name"),
        ("Abstract", "lacks losses and needs: write them, or take Consistency as its base"),
        ("Needy", "method.amount has no value: give it one, --set method.amount=..."),
    ):
        with pytest.raises(UsageError, match=line):
            make_method({"name": f"optioned:{name}"})
    assert make_method({"name": "optioned:Titled"}).threshold == 0.95
    given = {"method": {"many": "1,2", "where": "there"}, "train": {"steps": 2, "threads": 1}}
    recipe = compose("digits", "optioned:Optioned", given=given)
    assert (recipe.method.many, str(recipe.method.where)) == ([1.0, 2.0], "there")
    fit(recipe, tmp_path / "run", quiet=True)
    assert saved_recipe(tmp_path / "run").method == recipe.method
    with pytest.raises(UsageError, match="method.odd: no option can be of type dict"):
        make_method({"name": "optioned:Optioned", "odd": 3})


@dataclass(frozen=True)
class Sure(Consistency):
    """Learns by its weights alone."""

    def targets(self, p):
        confidence, label = p.max(-1)
        return Target(label, confidence)


@dataclass(frozen=True)
class Teaching(Consistency):
    def teach(self, p, run, batch, x):
        return Target(p, p.new_ones(len(p)))


def test_by_select_the_weights_learn_too_with_target_gradient():
    batch = make_batch()
    batch = replace(batch, weak=batch.weak.clone().requires_grad_())
    for learns in (False, True):
        method = Sure(k=len(batch.strong), over="worst", strategy="select", target_gradient=learns)
        _, run = make_world("plain")
        term = method.losses(run, batch).terms[
            "unlabeled"
        ]  # of hard labels: the weak views count by their weights alone
        (gradient,) = torch.autograd.grad(term, [batch.weak], allow_unused=True)
        assert (gradient is not None and gradient.abs().sum() > 0) == learns
    with pytest.raises(
        UsageError, match="Teaching has a teach of its own, which select asks once a step; type --strat"
    ):
        Teaching(k=2, over="worst", target_gradient=True)
    Teaching(k=2, over="worst", strategy="joint", target_gradient=True)


def test_bounds_are_inherited_by_plain_numbers_and_by_classes_within_functions():
    @dataclass(frozen=True)
    class Plain(FixMatch):
        weight: float = 5.0
        threshold: float = 0.5

    class Local:
        pass

    @dataclass(frozen=True)
    class Within(FixMatch):
        kind: Local | None = None

    @dataclass(frozen=True)
    class Nested(FixMatch):
        amount: Weight | None = None
        shares: tuple[Share, ...] = ()

    for made, options in (
        (Plain, {"weight": -1.0}),
        (Plain, {"threshold": 2.0}),
        (Within, {"threshold": float("nan")}),
        (Nested, {"amount": -1.0}),
        (Nested, {"shares": (0.5, 9.0)}),
    ):
        with pytest.raises(UsageError, match=f"{next(iter(options))} = .*: a number .* is wanted"):
            made(**options)
    assert (Plain().weight, Within(kind=Local()).threshold, Nested(amount=2.0).shares) == (5.0, 0.95, ())


@dataclass(frozen=True)
class Untyped(FixMatch):
    """Its power is a constant."""

    power = 2.0


def test_an_option_without_a_type_is_told_where_it_is_set():
    assert make_method({"name": f"{__name__}:Untyped"}).power == 2.0
    line = "method.power: Untyped.power has no type, so it is a constant and no option: write power: float = 2.0"
    with pytest.raises(UsageError, match=line):
        make_method({"name": f"{__name__}:Untyped", "power": 4})
    with pytest.raises(UsageError, match="unknown setting 'method.powers'"):
        make_method({"name": f"{__name__}:Untyped", "powers": 4})
    with pytest.raises(UsageError, match="unknown setting 'method.targets'"):  # a function is no constant
        make_method({"name": f"{__name__}:Untyped", "targets": 4})

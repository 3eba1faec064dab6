"""Every method with its year, its sentence, its formula and its options: `maxmatch methods` and docs/methods.md."""

from __future__ import annotations

import dataclasses
import inspect
from typing import NamedTuple

from maxmatch.methods import METHODS, method_class
from maxmatch.settings import plain


class Entry(NamedTuple):
    name: str
    year: int | None
    line: str
    more: str  # the rest of its docstring
    formula: str
    options: dict[str, str]  # with their defaults, spelled as `--set` takes them


def entries() -> list[Entry]:
    """All methods of the registry, in its order."""
    made = []
    for name in METHODS:
        cls = method_class(name)
        line, _, more = inspect.cleandoc(cls.__doc__ or "").partition("\n")
        options = {field.name: _spelled(plain(field.default)) for field in dataclasses.fields(cls)}
        made.append(Entry(name, cls.year, line, more.strip(), cls.formula, options))
    return made


def page() -> str:
    """docs/methods.md: `maxmatch methods --markdown` prints it."""
    return HEAD + "\n".join(_section(entry) for entry in entries())


HEAD = """# Methods

Written by `maxmatch methods --markdown`. Every consistency method takes `--k` and `--over`, spelled `worst`, `mean`,
`best`, `soft:TAU` or `fraction:Q`: "the worst case of three views" is `--k 3 --over worst` for any of them.
In the formulas `over_j` stands for that choice, f for the net's probabilities, C for the number of classes.

Each method lists its options with their defaults, as `--set` takes them: `--set method.align=true`. These are the same
for all but `supervised`:

| option | what it is |
|---|---|
| `strategy` | `joint`: one pass over all views. `select`: all are scored, the picked ones trained on. `auto` chooses |
| `weight`, `ramp` | the weight of the unlabelled loss; it rises from 0 over the share `ramp` of the training |
| `align` | true scales the predictions that make the targets, so that classes are as frequent as in the labels |
| `target_gradient` | true lets the targets learn too; the papers stop that gradient |
| `teacher` | who makes the targets: `own`, as in the method's paper, or `eman` |

`--set method.teacher=eman` is EMAN (Cai et al., 2021), for any method whose targets come from weak views. The average
of weights and BatchNorm statistics makes them, in eval mode; the net trains on labelled images and strong views.

## Choose a method

| you have | take |
|---|---|
| some labels a class | `freematch` with `k = 3`, `over = worst`, as `train ./photos` has it, or `maxmatch` |
| four labels a class or fewer | the same and, beside it, `k = 1`: with so few labels one view sometimes ends lower |
| classes that are harder or rarer than others | `maxmatch` with `align = true`, `freematch`, `flexmatch` |
| time for one view only | `freematch`; or `fixmatch`, which most papers compare with |
| no idea which augmentations keep the class | `vat`: it needs none |
| no unlabelled pictures | `supervised` |
| a table of methods to make | all of them; `fixmatch-anchoring` is MaxMatch with the mean in place of the worst |

"""


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _section(entry: Entry) -> str:
    options = ", ".join(f"`{name} = {value}`" for name, value in entry.options.items())
    more = f"\n{entry.more}\n" if entry.more else ""
    year = f" ({entry.year})" if entry.year else ""
    return f"## {entry.name}{year}\n\n{entry.line}\n{more}\n```\n{entry.formula}\n```\n\n{options}\n"

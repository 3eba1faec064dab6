"""docs/settings.md: every setting with its default and its sentence, and the recipes by name.

The sentences stand below the fields of the sections in train/recipe.py, those of the recipes are the first lines of
their docstrings; what may be typed is read off the types.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from maxmatch.settings import UNSET, WORDS, field_sentences, field_types, knows_unset, plain
from maxmatch.train.flags import FLAGS
from maxmatch.train.recipe import AugmentSettings, DataSettings, EvaluateSettings, NetSettings, TrainSettings
from maxmatch.train.recipes import RECIPES
from maxmatch.train.resume import CHANGEABLE

SECTIONS: dict[str, type] = {
    "data": DataSettings, "augment": AugmentSettings, "net": NetSettings, "train": TrainSettings,
    "evaluate": EvaluateSettings,
}  # fmt: skip


class Setting(NamedTuple):
    name: str  # section.field
    default: str
    sentence: str
    takes: str  # what may be typed, where the default does not show it
    flag: str  # the option of the command line that says the same


def settings_of(section: str) -> list[Setting]:
    """The settings of a section, in its order."""
    cls = SECTIONS[section]
    hints, sentences = field_types(cls), field_sentences(cls)
    flags = {place: f"--{flag}" for flag, place in FLAGS.items()}
    return [
        Setting(
            f"{section}.{field.name}",
            _spelled(field.default, hints[field.name]),
            sentences.get(field.name, ""),
            takes(hints[field.name]),
            flags.get((section, field.name), ""),
        )
        for field in dataclasses.fields(cls)
    ]


def takes(hint: Any) -> str:
    """What a field of this type takes, in words, with those to be typed as they are in code; empty of plain types.

    >>> takes(float | Literal["auto"]), takes(tuple[int, int] | None), takes(float)
    ('a number, or `auto`', 'two whole numbers, or `unset`', '')
    """
    if get_origin(hint) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        words = [takes(kind) or WORDS[kind] for kind in kinds] + ([f"`{UNSET}`"] if knows_unset(hint) else [])
        return ", or ".join(words) if len(words) > 1 else ""
    if get_origin(hint) is tuple:
        kind, last = get_args(hint)
        return f"{'' if last is Ellipsis else 'two '}{WORDS[kind].removeprefix('a ')}s"
    return ""


def page() -> str:
    """docs/settings.md: `maxmatch settings --markdown` prints it."""
    recipes = [("name", "what it is"), *((f"`{name}`", _first_line(make)) for name, make in RECIPES.items())]
    return "\n".join([HEAD + _changeable(), NAMED + _table(recipes), *map(_section, SECTIONS)])


HEAD = """# Settings

Written by `maxmatch settings --markdown`. A run has the five sections of settings below and, as a sixth, `method`, the
options of its method: [methods.md](methods.md) has those.

## How to set one

* On the command line: `maxmatch train cifar10@250 --set train.lr=0.05 --set augment.flip=false`. Some have a flag of
  their own: `--steps 1000`.
* In a file, TOML or JSON: `maxmatch train cifar10@250 --config mine.toml`. `maxmatch settings cifar10@250 > mine.toml`
  writes one with every value.
* In Python: as below; for the estimator `MaxMatchClassifier(settings={"train.weight_decay": 0.001})`.

```toml
recipe = "fast-10min"  # the base; without this line it is the data set's

[method]
name = "fixmatch"

[train]
lr = 0.05
```

```python
import maxmatch

recipe = maxmatch.compose("cifar10@250", "fixmatch", config="fast-10min", given={"train": {"lr": 0.05}})
result = maxmatch.fit(recipe, out="runs/a")
```

Values are spelled as TOML has them: `0.05`, `true`, `[0.2, 1.0]`. Behind `--set` a word needs no quotes and a list no
brackets: `0.2,1.0`. `unset` means no value, and `auto` one that is decided when the run begins; the tables
below say which settings take them, and what comes of it. A wrong name or value is refused in one line.

A setting may be given in several places. The last of these that gives it decides:

1. the default below;
2. what the data set brings along: its number of labels, its net;
3. the named recipe;
4. the file of `--config`;
5. the command line. `--set` and flags count the same; one setting given twice with two values is refused.

A folder of pictures is looked at. Without `--config` that chooses the method, the size and kind of views, the net, the
steps and how it is trained (otherwise with `net.pretrained` than without). With a recipe that you name it chooses the
section `data` alone, and with one for ImageNet nothing.

`maxmatch settings DATA --config NAME` prints what comes of all this, and `recipe.json` in the run folder keeps it
([run_folder.md](run_folder.md)).

"""

NAMED = """## Recipes

`--config NAME` takes one. Where none is named, `digits` has `digits`, `imagenet` has `imagenet-paper`, a pretraining
has `moco`, and all else has `paper`.

"""


def _changeable() -> str:
    """What may differ where a run goes on."""
    told = "A run that goes on (`--resume`) has its own settings. These may be given anew, steps and epochs as more:"
    rows = (
        f"* `{section}`: {', '.join(f'`{name}`' for name in sorted(names))}" for section, names in CHANGEABLE.items()
    )
    return "\n".join([told, "", *rows, ""])


def _section(section: str) -> str:
    rows = [("name", "default", "what it is"), *((f"`{s.name}`", s.default, _told(s)) for s in settings_of(section))]
    return f"## {section}\n\n{inspect.getdoc(SECTIONS[section])}\n\n{_table(rows)}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Rows, the first of them the head, as a Markdown table."""
    head, *rest = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)
    return "".join([head, "|" + "---|" * len(rows[0]) + "\n", *rest])


def _told(setting: Setting) -> str:
    """The sentence, what may be typed, and the flag."""
    values = f" Takes {setting.takes}." if setting.takes else ""
    return f"{setting.sentence}{values}" + (f" Flag: `{setting.flag}`." if setting.flag else "")


def _spelled(default: Any, hint: Any) -> str:
    """A default as it is typed; where nothing can be typed for it, that it is not set."""
    if default is None:
        return f"`{UNSET}`" if knows_unset(hint) else "not set"
    return f"`{default}`" if isinstance(default, str) else f"`{json.dumps(plain(default))}`"


def _first_line(make: object) -> str:
    return (inspect.getdoc(make) or "").partition("\n")[0]

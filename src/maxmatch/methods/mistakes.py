"""What is said of a method of one's own that is written wrongly, so that none trains by another rule than it reads.

The first half looks at a class before anything is made of it, the second at what a method gave in a step. Each answer
is a line to show, or empty where nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from inspect import get_annotations
from types import FunctionType
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from maxmatch.methods.base import Losses, Method, Seen

TEACHING = frozenset({"guess", "teacher", "super"})  # what a hook asks that heeds `teacher`


def is_ours(made: type | FunctionType) -> bool:
    """Whether a class or a function is of this library."""
    return made.__module__.partition(".")[0] == "maxmatch"


def undecorated(cls: type) -> str:
    """The first of the classes that a method is made of whose options are no fields, by its name."""
    for each in cls.__mro__:
        options = [a for a in get_annotations(each).values() if "ClassVar" not in str(a)]
        if options and "__dataclass_fields__" not in vars(each) and not is_ours(each):
            return each.__name__
    return ""


def untyped(cls: type) -> str:
    """Of an option of a base that is given a value without its type: Python would not read it."""
    typed = get_annotations(cls)
    inherited = {f.name: f.type for base in cls.__mro__[:0:-1] if is_dataclass(base) for f in fields(base)}
    for name, value in vars(cls).items():
        if name in inherited and name not in typed and not hasattr(value, "__get__"):  # no function, no property
            kind = inherited[name] if isinstance(inherited[name], str) else type(value).__name__
            right = f"write {name}: {kind} = {value!r}"
            return f"{cls.__name__}.{name} is an option and has no type, so Python ignores it: {right}"
    return ""


def constant(cls: type, name: str) -> str:
    """Of an option that is set, and that its class has without a type: a constant to Python."""
    for each in cls.__mro__:
        if name in vars(each) and name not in get_annotations(each) and not is_ours(each):
            value = vars(each)[name]
            if not hasattr(value, "__get__"):
                right = f"write {name}: {type(value).__name__} = {value!r}"
                return f"{each.__name__}.{name} has no type, so it is a constant and no option: {right}"
    return ""


def unlike_base(cls: type) -> str:
    """Of a property of the contract that is written as a function, and of a distance that wants a method."""
    for name, value in vars(cls).items():
        if not isinstance(value, FunctionType):
            continue
        if any(isinstance(vars(base).get(name), property) for base in cls.__mro__[1:]):
            return f"{cls.__name__}.{name} is read like a value: write @property above it"
        if name == "distance" and value.__code__.co_varnames[:1] == ("self",):
            what = f"{cls.__name__}.distance is asked with logits and targets alone"
            return f"{what}: write @staticmethod above it, and leave self out"
    return ""


def deaf(method: Method) -> str:
    """Of a hook that has the net itself make the targets, where `teacher` says that the average should."""
    hooks = {name: getattr(type(method), name) for name in ("opinion", "anchors")}
    asks = {name: bool(TEACHING & _names(type(method), hook)) for name, hook in hooks.items() if not is_ours(hook)}
    first = next((name for name, heeds in asks.items() if not heeds), "")
    if not first or asks.get("opinion", False):
        return ""
    what = f"{type(method).__name__}.{first} never asks self.guess, which would ask the average"
    return f"{what}; ask it, or leave teacher out"


def _names(cls: type, function: FunctionType) -> set[str]:
    """What a function of a class names, and what the class's own functions that it names do."""
    found: set[str] = set()
    left = [function]
    while left:
        new = {*left.pop().__code__.co_names} - found
        found |= new
        left += [own for name in new if isinstance(own := getattr(cls, name, None), FunctionType) and not is_ours(own)]
    return found


def misspelled(method: Method) -> list[str]:
    """Of what is nearly a hook's name, and that the method does not ask for itself: a line each."""
    from maxmatch.methods.base import Consistency

    classes = [cls for cls in type(method).__mro__ if not is_ours(cls)]
    own = {name: value for cls in classes for name, value in vars(cls).items() if isinstance(value, FunctionType)}
    used = {name for function in own.values() for name in function.__code__.co_names}
    hooks = {name for name in dir(Consistency) if not name.startswith("_")} - {f.name for f in fields(method)} - {*own}
    strange = [name for name in own if not name.startswith("_") and not hasattr(Consistency, name) and name not in used]
    near = {name: get_close_matches(name, hooks, n=1, cutoff=0.85) for name in strange}
    of = type(method).__name__
    return [f"{of}.{name} is no hook, and nothing asks for it: is {f[0]} meant?" for name, f in near.items() if f]


def of_parts(of: str, parts: object) -> str:
    """Of buffers and heads that could not be saved and moved with the run."""
    if not isinstance(parts, dict):
        return f"{of}.parts returns a {type(parts).__name__}: a dict is wanted, modules by name"
    wrong = next(((name, part) for name, part in parts.items() if not isinstance(part, nn.Module)), None)
    if wrong is None:
        return ""
    what = f"{of}.parts has '{wrong[0]}', a {type(wrong[1]).__name__}"
    return f"{what}: a torch.nn.Module is wanted, which may hold parameters and buffers"


def of_target(of: str, target: object, images: int, classes: int) -> str:
    """Of a target that can't be taught to so many images, or of something else in its place."""
    from maxmatch.methods.base import Target

    if not isinstance(target, Target):
        what = f"{of} teaches a {type(target).__name__}"
        return f"{what}: return Target(value, keep), what is taught and how much each image counts"
    for name, given in zip(target._fields, target, strict=True):
        if not isinstance(given, Tensor):
            what = f"{of} teaches a Target whose {name} is a {type(given).__name__}"
            return f"{what}: a tensor is wanted, one value an image; to keep all, torch.ones_like(...)"
    value, shape = target.value, tuple(target.value.shape)
    if (shape[-2:-1] if value.is_floating_point() else shape) != (images,):
        what = f"{of} teaches a tensor of shape {shape} for {images} images"
        return f"{what}: labels ({images},), probabilities ({images}, C) or (K, {images}, C) are wanted"
    if not value.is_floating_point() and value.dtype != torch.int64:
        kind = str(value.dtype).removeprefix("torch.")
        return f"{of} teaches labels of {kind}: whole numbers of 64 bits are wanted, .long()"
    if value.is_floating_point() and shape[-1] != classes:
        return f"{of} teaches probabilities of {shape[-1]} classes: C is {classes}"
    if tuple(target.keep.shape) != (images,):
        what = f"{of} keeps by a tensor of shape {tuple(target.keep.shape)}"
        return f"{what}: one value an image is wanted, ({images},)"
    return ""


def of_distances(of: str, found: Sequence[Tensor], images: int) -> str:
    """Of the distances of several views, where one is no number an image."""
    wrong = [tuple(each.shape) for each in found if each.shape != (images,)]
    return f"the distance of {of} has shape {wrong[0]}: one value an image is wanted, ({images},)" if wrong else ""


def of_losses(method: Method, losses: object, images: int) -> str:
    """Of what `losses` gave, where the loop could not use it."""
    from maxmatch.methods.base import Losses

    of = type(method).__name__
    if not isinstance(losses, Losses):
        what = f"{of}.losses returns a {type(losses).__name__}"
        return f"{what}: return Losses(terms), named terms already weighted, of maxmatch.methods.base"
    if losses.seen is not None and (wrong := _other_shape(losses.seen, images)):
        return f"what {of}.losses has seen: {wrong}"
    if set(losses.terms) != set(method.terms):
        return _other_terms(method, losses)
    for name, term in losses.terms.items():
        if not isinstance(term, Tensor) or term.ndim:
            found = f"a tensor of shape {tuple(term.shape)}" if isinstance(term, Tensor) else f"a {type(term).__name__}"
            return f"{of} gives '{name}' as {found}: a tensor of one number is wanted, such as a mean"
    if not any(term.requires_grad for term in losses.terms.values()):
        return f"no term of {of} has a gradient: make one from run.net(...), without detach or no_grad"
    return ""


def _other_shape(seen: Seen, images: int) -> str:
    one = (images,)
    wanted: dict[str, tuple[tuple[int | str, ...], ...]] = {
        "target": (one, (images, "C")), "keep": (one,), "per_view": (("K", images),), "winner": (one,),
        "unlabeled_loss": ((),), "guess": ((images, "C"),),
    }  # fmt: skip
    for name, shapes in wanted.items():
        value = getattr(seen, name)
        if value is not None and not any(_is_of(value, shape) for shape in shapes):
            told = " or ".join(str(shape).replace("'", "") for shape in shapes)
            return f"{name} has shape {tuple(value.shape)}: {told} is wanted"
    return ""


def _is_of(value: Tensor, shape: tuple[int | str, ...]) -> bool:
    """Whether a tensor has a shape, in which a letter is any number."""
    pairs = zip(value.shape, shape, strict=False)
    return value.ndim == len(shape) and all(isinstance(want, str) or many == want for many, want in pairs)


def _other_terms(method: Method, losses: Losses) -> str:
    """Of a term that would be trained on and not logged, or logged and not there."""
    lacking = [term for term in method.terms if term not in losses.terms]
    told = f"{type(method).__name__} gives the terms {tuple(losses.terms)}, but names {method.terms}"
    if lacking:
        return f"{told}: give '{lacking[0]}' too, torch.zeros(()) on the batch's device where it is off"
    return f"{told}: write terms: ClassVar = {tuple(losses.terms)}"

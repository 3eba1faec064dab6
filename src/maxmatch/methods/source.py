"""By which code of one's own a run was trained: a run of another method, or net, must not be taken for one of this."""

from __future__ import annotations

import ast
import hashlib
import sys
from inspect import getsource


def own_code(*made_of: type) -> str | None:
    """A digest of the classes that a run is made of, of what they inherit from, and of what their files have for them.

    Comments, docstrings and whatever else stands in the files make no difference. None of what is ours or torch's, and
    where there is no file, as in a notebook.
    """
    known = {"maxmatch", "torch", "torchvision", "timm", *sys.stdlib_module_names}
    all_of_them = dict.fromkeys(cls for made in made_of for cls in made.__mro__)
    classes = [cls for cls in all_of_them if cls.__module__.partition(".")[0] not in known]
    texts = []
    for name in dict.fromkeys(cls.__module__ for cls in classes):
        wanted = {cls.__qualname__.partition(".")[0] for cls in classes if cls.__module__ == name}
        try:
            texts += _used(ast.parse(getsource(sys.modules[name])), wanted)
        except (OSError, TypeError, KeyError, SyntaxError):
            return None
    return hashlib.sha256("\n".join(texts).encode()).hexdigest() if texts else None


def _used(tree: ast.Module, wanted: set[str]) -> list[str]:
    """The statements of a file that make the wanted names, and those that these need, as text of one form."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)] or [ast.Pass()]  # type: ignore[attr-defined]
    found: set[ast.stmt] = set()
    while True:
        more = {line for line in tree.body if line not in found and (_made(line) is None or _made(line) & wanted)}  # type: ignore[operator]
        if not more:
            return [ast.unparse(line) for line in tree.body if line in found]
        found |= more
        wanted = wanted | {node.id for line in more for node in ast.walk(line) if isinstance(node, ast.Name)}


def _made(line: ast.stmt) -> set[str] | None:
    """The names that a statement of a file makes; None where it does something else."""
    if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {line.name}
    if isinstance(line, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in line.names}
    if isinstance(line, ast.Assign | ast.AnnAssign):
        targets = line.targets if isinstance(line, ast.Assign) else [line.target]
        return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return None


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)

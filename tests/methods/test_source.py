"""Which changes of a file make another method of it, and which don't."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch

from maxmatch.methods import make_method
from maxmatch.methods.source import own_code

TEXT = '''"""A file."""
import math
from dataclasses import dataclass

from maxmatch.methods.base import Target
from maxmatch.methods.fixmatch import FixMatch

SHARE = 0.5
UNUSED = 1


def half(p):
    return SHARE * p


@dataclass(frozen=True)
class Base(FixMatch):
    def targets(self, p):
        return super().targets(half(p))


@dataclass(frozen=True)
class Mine(Base):
    """Mine."""

    threshold: float = 0.5


@dataclass(frozen=True)
class Other(FixMatch):
    """Another."""
'''


@pytest.fixture
def digest(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def find(text, name="Mine"):
        (tmp_path / "of_mine.py").write_text(text)
        sys.modules.pop("of_mine", None)
        importlib.invalidate_caches()
        return own_code(type(make_method({"name": f"of_mine:{name}"})))

    yield find
    sys.modules.pop("of_mine", None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.5\n\n\n@", "0.6\n\n\n@"),
        ("half(p))", "p)"),  # of what it inherits from
        ("SHARE * p", "SHARE * p * p"),  # of what that calls
        ("SHARE = 0.5", "SHARE = 0.4"),  # and of what this uses
        ("class Mine(Base)", "class Mine(FixMatch)"),
    ],
)
def test_what_the_class_does_or_uses_makes_another_method(digest, old, new):
    assert TEXT.count(old) == 1
    assert digest(TEXT) != digest(TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Mine."""', '"""Mine, in other words."""'),
        ('    """Mine."""\n', ""),
        ("SHARE = 0.5", "SHARE = 0.5  # of it"),
        ("UNUSED = 1", "UNUSED = 2"),
        ("import math\n", ""),
        ('class Other(FixMatch):\n    """Another."""', "class Other(FixMatch):\n    threshold: float = 0.1"),
        ("0.5\n\n\n@", "0.5\n\n\ndef more():\n    return 1\n\n\n@"),
    ],
)
def test_words_and_what_else_is_in_the_file_make_none(digest, old, new):
    assert TEXT.count(old) == 1
    assert digest(TEXT) == digest(TEXT.replace(old, new)) is not None
    assert digest(TEXT) != digest(TEXT, "Other")


def test_of_ours_and_of_what_has_no_file_there_is_none(digest, tmp_path):
    assert own_code(type(make_method({"name": "fixmatch"})), torch.nn.Linear) is None
    digest(TEXT)
    method = make_method({"name": "of_mine:Mine"})
    (tmp_path / "of_mine.py").unlink()
    import linecache

    linecache.clearcache()
    assert own_code(type(method)) is None

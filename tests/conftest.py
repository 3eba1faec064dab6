"""Shared by all tests: one thread, so that parallel workers do not fight over two cores; signals as at a terminal."""

from __future__ import annotations

import os
import signal
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

torch.set_num_threads(1)
# nohup and a shell's & ignore these for all that they start, and some tests send them
for number, usual in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


@pytest.fixture
def no_warning():
    """Within: a warning is an error, and torch warns each time of what it else says once a process."""
    torch.set_warn_always(True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    torch.set_warn_always(False)


@pytest.fixture
def tiny():
    """A recipe on digits that trains in about a second: `tiny("fixmatch", train={"steps": 5}, method={"k": 2})`."""
    from maxmatch.train.recipes import compose

    def make(name: str = "maxmatch", labels: int | str = 20, **sections):
        train = {
            "steps": 12,
            "batch": 8,
            "ratio": 2,
            "checkpoint_every": 4,
            "evaluate_every": 6,
            "log_every": 3,
            "threads": 1,
        }
        given = {"data": {"labels": labels}, "net": {"name": "wrn-10-1"}, "train": train}
        for section, values in sections.items():
            given[section] = {**given.get(section, {}), **values}
        if "epochs" in given["train"]:
            del given["train"]["steps"]
        return compose("digits", name, given=given)

    return make

"""What a step reads is the plan's, however late the device copies and whatever was on its way."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
import torch

from maxmatch.data.files import Files
from maxmatch.data.plan import BLOCK
from maxmatch.train import feed as module
from maxmatch.train.decoders import Read, Tray
from maxmatch.train.feed import Feed

CPU = torch.device("cpu")
PLACES = np.arange(100, 110)  # the positions of the ten pictures of the pool
LAST = 3 * BLOCK


class Plan:
    """Three pictures a step, others in each."""

    def __init__(self):
        self.batch = {"unlabelled": 3}

    def indices(self, name, block):
        first = block * BLOCK
        return np.array([[(7 * step + at) % len(PLACES) for at in range(3)] for step in range(first, first + BLOCK)])


def wanted(step):
    return [int(PLACES[(7 * step + at) % len(PLACES)]) for at in range(3)]


class AtOnce:
    """Decoders that have filled the tray before they are asked for it: the worst for whoever still needs it."""

    def __init__(self, files, trays, kind):
        self.trays = trays

    def send_for(self, tray, name, numbers):
        for at, number in enumerate(numbers):
            self.trays[tray][name].places[at] = number
        done: Future[Read] = Future()
        done.set_result(Read(len(numbers), 0.0, {}))
        return [done]

    def receive(self, reads):
        return [read.result() for read in reads]

    def close(self):
        pass


@pytest.fixture
def feed(monkeypatch):
    def made(decoders):
        monkeypatch.setattr(module, "Decoders", decoders)
        return Feed(Files(Path(), (), 1, 2), {"unlabelled": PLACES}, Plan(), CPU)

    return made


def test_a_tray_is_filled_anew_only_when_its_copy_has_arrived(feed, monkeypatch):
    """A device that does nothing until it is waited for, and then all that was sent to it before."""
    device: deque = deque()

    def run_until(tray):
        while any(of is tray for of, _ in device):
            device.popleft()[1]()

    def send(tray, slots, sizes):
        device.append((tray, lambda: slots.copy_(tray.slots)))

    monkeypatch.setattr(Tray, "send", send)
    monkeypatch.setattr(Tray, "clear", run_until)
    found, seen = feed(AtOnce), []
    for step in range(BLOCK + 9):
        found.load(step, LAST)
        device.append((None, lambda: seen.append(found.slots["unlabelled"][:, 0, 0, 0].tolist())))
    while device:
        device.popleft()[1]()
    assert seen == [wanted(step) for step in range(BLOCK + 9)]


class Pending(AtOnce):
    """Decoders of which one that has begun can't be called back."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self.running: list[Future] = []

    def send_for(self, tray, name, numbers):
        assert all(read.done() for read in self.running), "somebody still writes into the trays"
        super().send_for(tray, name, numbers)
        return [Future(), Future()]


def test_after_a_leap_nobody_writes_into_the_trays_any_more(feed):
    found = feed(Pending)
    found._coming = deque((step, found._send_for(step)) for step in range(1, 4))
    begun = [reads[0] for _, reads in found._coming]
    waiting = [reads[1] for _, reads in found._coming]
    for read in begun:
        read.set_running_or_notify_cancel()
    found.decoders.running = begun
    ends = threading.Timer(0.2, lambda: [read.set_result(Read(1, 0.0, {})) for read in begun])
    ends.start()
    found.decoders.receive = lambda reads: []
    found.load(50, LAST)
    ends.join()
    assert all(read.cancelled() for read in waiting)
    assert found.slots["unlabelled"][:, 0, 0, 0].tolist() == wanted(50)

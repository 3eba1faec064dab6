"""Threads and processes fill trays alike; processes end with the one that forked them, and their death is said."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from maxmatch.data.files import Files
from maxmatch.errors import UsageError, UserError
from maxmatch.train import decoders
from maxmatch.train.decoders import Decoders, Died, Tray, choose
from maxmatch.train.distributed import Ranks
from maxmatch.train.endings import one_line_errors
from maxmatch.train.recipes import compose

CPU = torch.device("cpu")
linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


@pytest.fixture
def files(tmp_path):
    """Nine pictures, each of one grey and a size of its own, and one that is none."""
    names = []
    for number in range(10):
        names.append(f"{number}.jpg")
        Image.new("L", (8 + number, 12), 20 * number).convert("RGB").save(tmp_path / names[-1], quality=100)
    (tmp_path / names[7]).write_text("no picture")
    return Files(tmp_path, tuple(names), 3, 20, workers=2)


def trays(kind, count=2, batch=6):
    slots, sizes = torch.zeros(batch, 3, 20, 20, dtype=torch.uint8), torch.ones(batch, 2, dtype=torch.int32)
    return [{"a": Tray(slots, sizes, kind == "processes")} for _ in range(count)]


@pytest.mark.parametrize("kind", ["threads", pytest.param("processes", marks=linux)])
def test_they_fill_the_tray_and_name_what_is_broken(files, kind):
    ring = trays(kind)
    pool = Decoders(files, ring, kind)
    numbers = [3, 9, 0, 7, 9, 1]
    read = pool.receive(pool.send_for(1, "a", numbers))
    pool.close()
    assert sum(part.pictures for part in read) == 6
    assert len(read) == 6  # two workers: portions of one
    assert all(part.seconds > 0 for part in read)
    tray = ring[1]["a"]
    for at, number in enumerate(numbers):
        if number == 7:
            assert (tray.slots[at] == 127).all()
            continue
        assert tray.sizes[at].tolist() == [12, 8 + number]
        assert (tray.slots[at][:, :12, : 8 + number].int() - 20 * number).abs().max() <= 1
        assert not tray.slots[at][:, 12:].any()
    assert list(files.broken) == ["7.jpg"]
    assert not ring[0]["a"].slots.any()


@pytest.mark.parametrize("kind", ["threads", pytest.param("processes", marks=linux)])
def test_a_deleted_picture_is_grey_and_a_disk_that_is_gone_ends_the_run(files, kind):
    ring = trays(kind)
    pool = Decoders(files, ring, kind)
    try:
        (files.root / "3.jpg").unlink()
        pool.receive(pool.send_for(0, "a", [2, 3, 4]))
        assert (ring[0]["a"].slots[1] == 127).all()
        assert list(files.broken) == ["3.jpg"]
        for path in files.root.iterdir():
            path.unlink()
        with pytest.raises(FileNotFoundError) as gone:
            pool.receive(pool.send_for(0, "a", [4, 5]))
        assert gone.value.filename in (str(files.root / "4.jpg"), str(files.root / "5.jpg"))
    finally:
        pool.close()


def test_a_folder_that_lies_on_a_disk_that_is_gone_ends_the_run_though_others_are_there(files, tmp_path):
    """Labels here, all else on another disk."""
    (tmp_path / "more").mkdir()
    for number in range(3):
        Image.new("RGB", (9, 9)).save(tmp_path / "more" / f"{number}.png")
    more = replace(files, names=(*files.names, *(f"more/{number}.png" for number in range(3))))
    slot = np.zeros((3, 20, 20), np.uint8)
    (tmp_path / "more/0.png").unlink()
    assert more.read_again_into(10, slot) == (20, 20)  # deleted, it alone
    (tmp_path / "more").rename(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match="1.png"):
        more.read_again_into(11, slot)
    (tmp_path / "more").mkdir()  # an empty place to mount a disk at
    with pytest.raises(FileNotFoundError, match="2.png"):
        more.read_again_into(12, slot)
    assert list(more.broken) == ["more/0.png"]


def test_a_file_that_may_not_be_read_is_grey_and_a_folder_of_them_ends_the_run(files, monkeypatch):
    slot = np.zeros((3, 20, 20), np.uint8)

    def refuses(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Image, "open", refuses)
    assert files.read_again_into(2, slot) == (20, 20)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match="3.jpg"):
        files.read_again_into(3, slot)


def test_a_disk_that_fails_ends_the_run_though_others_can_be_read(files, monkeypatch):
    slot = np.zeros((3, 20, 20), np.uint8)

    def fails(path, *_):
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Image, "open", fails)
    with pytest.raises(OSError, match="Input/output error") as told:
        files.read_again_into(2, slot)
    assert told.value.filename == str(files.root / "2.jpg")
    assert files.read_into(2, slot) == (20, 20)  # where files are looked at for the first time it is left out
    assert list(files.broken) == ["2.jpg"]


@pytest.mark.parametrize("count", [1, 7, 100, 448])
def test_portions_cover_a_batch_once(files, count, monkeypatch):
    ring = trays("threads", batch=count)
    pool = Decoders(files, ring, "threads")
    seen = []
    monkeypatch.setattr(decoders, "_read", lambda files, tray, first, numbers: seen.append((first, list(numbers))))
    for read in pool.send_for(0, "a", list(range(count))):
        read.result()
    pool.close()
    assert [n for _, part in sorted(seen) for n in part] == list(range(count))
    assert all(first == part[0] and len(part) <= 16 for first, part in seen)


@linux
@pytest.mark.parametrize("killed", [1, 2])
def test_a_killed_process_is_one_line_and_the_others_end_too(files, tmp_path, killed):
    pool = Decoders(files, trays("processes"), "processes")
    numbers = list(pool.begin()._processes)
    for number in numbers[:killed]:
        os.kill(number, signal.SIGKILL)

    def until_it_is_seen():
        for _ in range(100):
            pool.receive(pool.send_for(0, "a", [0, 1]))
            time.sleep(0.05)

    recipe = compose("digits")
    with pytest.raises(UserError) as said, one_line_errors(recipe, tmp_path, Ranks()):
        until_it_is_seen()
    pool.close()
    assert not any(alive(number) for number in numbers)
    assert str(said.value).endswith(
        f"the last checkpoint is lost: type maxmatch train --resume --out {tmp_path} --set data.workers=1"
    )
    assert Died(1).instead == "data.decoders=threads"


@linux
def test_signals_of_a_group_are_the_parents(files):
    """torchrun, clusters and terminals signal all processes; the parent needs its pictures for the last step."""
    pool = Decoders(files, trays("processes"), "processes")
    numbers = list(pool.begin()._processes)
    for number in numbers:
        for sent in (signal.SIGTERM, signal.SIGINT):
            os.kill(number, sent)
    for _ in range(20):
        pool.receive(pool.send_for(0, "a", [0, 1]))
    assert list(pool.begin()._processes) == numbers
    pool.close()
    assert not any(alive(number) for number in numbers)


@linux
def test_signals_that_come_before_a_process_has_begun_are_the_parent_s_too(files, monkeypatch):
    fork, forked = os.fork, []

    def signalled():
        child = fork()
        if child:
            forked.append(child)
            for sent in (signal.SIGTERM, signal.SIGINT):
                os.kill(child, sent)
        return child

    monkeypatch.setattr(os, "fork", signalled)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    pool = Decoders(files, trays("processes"), "processes")
    assert list(pool.begin()._processes) == forked
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    for _ in range(5):
        pool.receive(pool.send_for(0, "a", [0, 1]))
    assert all(alive(number) for number in forked)
    pool.close()


@linux
def test_where_not_all_can_be_forked_the_others_end(files, monkeypatch):
    fork, forked = os.fork, []

    def once():
        if forked:
            raise BlockingIOError(11, "too many processes")
        forked.append(fork())
        return forked[0]

    monkeypatch.setattr(os, "fork", once)
    with pytest.raises(BlockingIOError):
        Decoders(files, trays("processes"), "processes").begin()
    for _ in range(100):
        if not alive(forked[0]):
            break
        time.sleep(0.1)
    assert not alive(forked[0])


def test_nobody_is_there_before_the_first_is_needed(files):
    """A run that is refused when it is built leaves no process, no thread and no locked page."""
    before = threading.active_count(), multiprocessing.active_children()
    pool = Decoders(files, trays("processes"), "processes")
    assert (threading.active_count(), multiprocessing.active_children()) == before
    pool.close()


class Runtime:
    """The two calls of CUDA's runtime that lock pages; the second lock is refused."""

    class cudaError:
        success = 0

    def __init__(self):
        self.said = []

    def cudaHostRegister(self, place, size, flags):
        self.said.append(("lock", place, size))
        return 0 if len(self.said) == 1 else 712

    def cudaHostUnregister(self, place):
        self.said.append(("free", place))


def test_pages_that_could_not_be_locked_are_not_freed_and_no_kernel_is_blamed(monkeypatch):
    tray, runtime, forgotten = trays("processes", 1)[0]["a"], Runtime(), []
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(decoders, "_forget_refusal", lambda: forgotten.append(1))
    tray.pin(True)
    assert not runtime.said  # a tray beside a CPU has nothing to lock
    tray.cuda = True
    tray.pin(True)
    tray.pin(False)
    tray.pin(False)
    slots, sizes = tray.slots, tray.sizes
    assert runtime.said == [
        ("lock", slots.data_ptr(), slots.nbytes), ("lock", sizes.data_ptr(), sizes.nbytes), ("free", slots.data_ptr()),
    ]  # fmt: skip
    assert forgotten == [1]


def test_who_decodes(monkeypatch):
    monkeypatch.setattr(decoders.sys, "platform", "linux")
    assert choose("auto", CPU) == "threads"
    assert choose("auto", torch.device("cuda")) == "processes"
    assert choose("threads", torch.device("cuda")) == "threads"
    assert choose("processes", CPU) == "processes"
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    assert choose("auto", torch.device("cuda")) == "threads"
    monkeypatch.setattr(decoders.sys, "platform", "darwin")
    assert choose("auto", torch.device("cuda")) == "threads"
    with pytest.raises(UsageError, match="type --set data.decoders=threads"):
        choose("processes", CPU)


ORPHANS = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_decoders import trays
from maxmatch.data.files import Files
from maxmatch.train.decoders import Decoders
pool = Decoders(Files(Path(sys.argv[1]), ("0.jpg",), 3, 20, workers=2), trays("processes"), "processes")
print(*pool.begin()._processes, flush=True)
time.sleep(60)
"""


@linux
def test_processes_end_with_the_one_that_forked_them(files):
    words = [sys.executable, "-c", ORPHANS, str(files.root), os.path.dirname(__file__)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        numbers = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert len(numbers) == 2
    for _ in range(100):
        if not any(alive(number) for number in numbers):
            break
        time.sleep(0.1)
    assert not any(alive(number) for number in numbers)


def alive(number: int) -> bool:
    try:
        return "\nState:\tZ" not in open(f"/proc/{number}/status").read()
    except FileNotFoundError:
        return False


def test_shared_trays_are_like_others():
    ours, theirs = (trays(kind, 1)[0]["a"] for kind in ("processes", "threads"))
    assert ours.slots.shape == theirs.slots.shape
    assert ours.sizes.dtype == theirs.sizes.dtype
    ours.places[2] = np.uint8(7)
    assert (ours.slots[2] == 7).all()

"""Children forked while other threads are inside the kernel: they wait for no thread and see no unfinished change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spvfilter.kernel import EntryKind, Family, Hit
from support.kernels.kernelentries import BLOCK, PLACE, SCRIPTS, core, native
from support.vectors import effort

pytestmark = pytest.mark.native
FORKS = effort(12, 40, 2_000)
PATIENCE = 20  # seconds; a child needs milliseconds
ROWS = np.random.default_rng(0).integers(0, 256, (1 << 16, 32), np.uint8)


def children(
    child: Callable[[], None], *threads: Callable[[], object], before: Callable[[], None] = lambda: None
) -> None:
    """Fork many times while threads call each of `threads` again and again. Every child must end in time without an
    error.

    `before` is called between forks.
    """
    stop, going = threading.Event(), threading.Event()

    def again(work: Callable[[], object]) -> None:
        while not stop.is_set():
            going.wait()  # an existing child is not affected by the threads
            work()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    working = [threading.Thread(target=again, args=(work,)) for work in threads]
    for thread in working:
        thread.start()
    try:
        for number in range(FORKS):
            going.set()
            before()
            time.sleep((1 + number % 7) * 1e-4)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # this test forks with threads on purpose
                pid = os.fork()
            if not pid:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(PATIENCE)
                code = 1
                try:
                    child()
                    code = 0
                finally:
                    os._exit(code)
            going.clear()
            _, status = os.waitpid(pid, 0)
            assert os.waitstatus_to_exitcode(status) == 0, number
    finally:
        stop.set()
        going.set()
        for thread in working:
            thread.join()
        sys.setswitchinterval(interval)


def whole(table: Any, of: list[bytes]) -> None:
    """The table has some of the scripts, each with its own number."""
    entries = list(table.entries())
    assert len(entries) == len(table)
    assert all(table.find(*entry) == number for number, entry in enumerate(entries))
    assert {script for _, script in entries} <= set(of)
    assert all(table.coin(outpoint) == coin for outpoint, coin in table.coins())


def filled() -> Any:
    table = native().WatchTable()
    for script in SCRIPTS:
        table.add(EntryKind.SCRIPT, script)
    return table


def test_a_child_forked_during_a_scan_can_change_the_table() -> None:
    table = filled()

    def child() -> None:
        assert table.add(EntryKind.SCRIPT, b"new") == len(SCRIPTS)
        assert table.find(EntryKind.SCRIPT, b"new") == len(SCRIPTS)
        table.learn(table.scan_block(BLOCK))
        whole(table, [*SCRIPTS, b"new"])
        assert len(table.copy()) == len(SCRIPTS) + 1

    children(child, lambda: table.scan_block(BLOCK), lambda: table.scan_block(BLOCK))


BOAT = "1BoatSLRHtKNngkdXEeobR76b53LETtpyT"
LINES = b"".join(b"%s,label %d\n" % (BOAT.encode(), number) for number in range(2_000))


@pytest.mark.slow
def test_a_table_is_consistent_in_a_child_forked_during_changes() -> None:
    others = [b"%d" % number for number in range(3_000)]
    boat = native().decode_address(BOAT, 0, 5, "bc")
    tables = [(filled(), native().WatchTable())]
    hits = tables[0][0].scan_block(BLOCK)
    learned = [Hit(False, 0, bytes(32), 0, b"%36d" % number, 1, None, 0) for number in range(3_000)]

    def renew() -> None:  # a small table, which soon grows several times
        tables[0] = filled(), native().WatchTable()

    def add() -> None:
        table, _ = tables[0]
        for script in others:
            table.add(EntryKind.SCRIPT, script)

    def learn() -> None:
        table, _ = tables[0]
        for at in range(0, len(learned), 100):
            table.learn(learned[at : at + 100])
        table.add_address_lines(LINES, 0, 0, 5, "bc", 1)

    def scan() -> None:
        table, found = tables[0]
        table.scan_block(BLOCK, found)

    def child() -> None:
        table, found = tables[0]
        whole(table, [*SCRIPTS, *others, boat])
        whole(found, [])
        assert table.add(EntryKind.SCRIPT, b"new") == len(table) - 1
        assert [hit for hit in table.scan_block(BLOCK, found) if hit.entry < len(SCRIPTS)][: len(hits)] == hits

    children(child, add, learn, scan, before=renew)


@pytest.mark.slow
def test_a_contended_table_can_be_dropped_in_a_child() -> None:
    tables = [filled()]

    def child() -> None:
        tables.clear()  # the last reference, except for those of missing threads

    def change() -> None:
        for table in tables:
            table.add(EntryKind.DATA, os.urandom(8))

    children(child, *[change] * 3, lambda: tables[0].scan_block(BLOCK))


def test_a_child_can_use_and_drop_a_busy_buffer() -> None:
    table, used = filled(), [native().ReadBuffer()]
    hits = table.scan_block(BLOCK)

    def renew() -> None:
        used[0] = native().ReadBuffer()  # its memory is soon replaced by a larger block

    def scan() -> None:
        try:
            table.scan_files([PLACE._replace(size=90), PLACE] * 3, used[0])
        except BufferError:  # the other thread uses it
            return

    def child() -> None:
        assert table.scan_files([PLACE] * 2, used[0]) == [hits] * 2
        used.clear()

    children(child, scan, scan, before=renew)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["BitCore", "CounterCore"])
@pytest.mark.parametrize("private", [True, False])
def test_a_filter_under_writes_can_be_used_in_a_child(kind: str, private: bool) -> None:
    cells = 1 << 20
    size = cells // 8 if kind == "BitCore" else cells // 2
    made = core(native(), kind, cells=cells, buffer=bytearray(size), private=private, family=Family.FAST)

    def child() -> None:
        made.add(b"key")
        assert b"key" in made
        made.update(ROWS[:200])
        made.buffer = bytearray(size)
        assert not any(made.body)
        made.update(ROWS[:200])
        assert all(made.contains_many(ROWS[:200]))
        assert made.buffer is not None
        made.clear()

    children(child, lambda: made.update(ROWS), lambda: made.update(ROWS[: 1 << 12]))


@pytest.mark.slow
def test_a_grandchild_has_no_stuck_lock_either() -> None:
    table = filled()

    def grandchild() -> None:
        pid = os.fork()
        if not pid:
            table.add(EntryKind.SCRIPT, b"new")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        table.add(EntryKind.SCRIPT, b"other")

    children(grandchild, lambda: table.scan_block(BLOCK), lambda: table.add(EntryKind.DATA, os.urandom(8)))


IMPORTING = """
import os, signal, sys, threading, time
import numpy
from spvfilter.kernel import Encoding, Family, native

importing = threading.Event()


class Slowly:
    @staticmethod
    def find_spec(name, path, target=None):
        if name.startswith("spvfilter."):
            importing.set()
            time.sleep(0.2)


def update():
    made.update(numpy.zeros((3, 4), numpy.uint8))


made = native.BitCore(8, 1, Family.FAST, bytes(16), bytearray(1), encoding=Encoding.BYTES)
sys.meta_path.insert(0, Slowly)
thread = threading.Thread(target=update)
thread.start()
importing.wait(5)
pid = os.fork()
if not pid:
    signal.alarm(20)
    update()
    os._exit(0)
print(importing.is_set(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
thread.join()
"""


def test_a_child_does_not_wait_for_an_import_in_progress() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORTING], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "True 0\n"

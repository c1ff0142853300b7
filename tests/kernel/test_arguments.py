"""Bytes that change while the kernel reads them: every entry uses their state at one moment and keeps no reference.

The rule is in csrc/binding/binding.h. These tests cover all entries: a new one fails here until it has a case.
"""

from __future__ import annotations

import array
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from spvfilter.kernel import Family
from support.kernels.cores import same_shape
from support.kernels.kernelentries import (
    ATTRIBUTES,
    ENTRIES,
    Entry,
    Kernel,
    Path,
    at,
    core,
    native,
    outcome,
    reference,
    replaced,
    taken_places,
)
from support.vectors import effort

pytestmark = pytest.mark.native
IS_LOCKED = getattr(sys, "_is_gil_enabled", lambda: True)()  # True if no other thread sees a half-written bytearray
SECONDS = effort(50, 100, 2_000) / 1000  # of changes for each place
PLACES = taken_places()
places = pytest.mark.parametrize(
    ("entry", "path"), [pytest.param(entry, path, id=f"{name} {path}") for name, entry, path in PLACES]
)
OBJECTS = {
    "__doc__",
    "__module__",
    "__hash__",
    "__reduce__",
    "__lt__",
    "__eq__",
    "__ne__",
    "__gt__",
    "__ge__",
}  # of every type


def entries_of(kernel: Kernel) -> Iterator[str]:
    """Names of all callables of the module, and of its writable attributes."""
    for name in dir(kernel):
        value = getattr(kernel, name)
        if name.startswith("_"):
            continue
        if not isinstance(value, type):
            yield name
            continue
        names = {member for member in vars(value) if not member.startswith("_") or member.endswith("__")}
        names -= OBJECTS | ATTRIBUTES
        if "__init__" in names:
            names.discard("__new__")
        yield from (f"{name}.{member}" for member in names - {"bits"})


def test_every_entry_has_a_case() -> None:
    assert set(entries_of(native())) == ENTRIES.keys()


def test_every_entry_that_takes_bytes_has_a_place() -> None:
    """An entry without a place takes no bytes, except for the cells' buffers."""
    silent = {name for name, entry in ENTRIES.items() if entry.arguments and not entry.taken}
    cells = ("buffer", "__ior__", "__iand__", "__le__", "union_set_bits")
    assert {name for name in silent if not name.endswith(cells)} == {
        "BitCore.room",
        "CounterCore.room",
        "SeriesCore.__init__",
        "SeriesCore.append",
        "WatchTable.count_of",
        "WatchTable.entry",
        "WatchTable.packed_entries",
        "decode_address",
        "row_mark",
    }


@pytest.mark.few(13)
@pytest.mark.parametrize("kernel", [native, reference])
@places
def test_every_buffer_counts_as_its_bytes(entry: Entry, path: Path, kernel: Callable[[], Kernel]) -> None:
    raw = at(entry.arguments, path)

    class Derived(bytes):
        pass

    expected = outcome(entry.make(kernel()), *entry.arguments)
    assert not isinstance(expected, tuple) or not isinstance(expected[0], type)
    spaced = memoryview(bytes(byte for pair in zip(raw, raw, strict=True) for byte in pair))[::2]
    for value in (
        bytearray(raw),
        memoryview(raw),
        spaced,
        array.array("B", raw),
        np.frombuffer(raw, np.int8),
        Derived(raw),
    ):
        assert outcome(entry.make(kernel()), *replaced(entry.arguments, path, value)) == expected


@contextmanager
def at_every_collection(change: Callable[[], None]) -> Iterator[None]:
    """Call `change` at every collection, that is wherever the kernel makes a list or a tuple."""

    def changing(phase: str, info: dict[str, Any]) -> None:
        change()

    threshold = gc.get_threshold()
    gc.callbacks.append(changing)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(changing)


@pytest.mark.few(55)
@places
def test_changes_by_the_collector_do_not_affect_a_call(entry: Entry, path: Path) -> None:
    """The parts of a transaction are Python objects. Making them runs the collector, and that runs arbitrary code."""
    raw = at(entry.arguments, path)
    given, refusals = bytearray(raw), list[BufferError]()
    arguments = replaced(entry.arguments, path, given)
    call = entry.make(native())
    expected = {
        repr(outcome(call, *entry.arguments)),
        repr(outcome(call, *replaced(entry.arguments, path, bytes(len(raw))))),
    }

    def change() -> None:
        try:
            given[:] = bytes(len(raw))
            given.append(0)
            given.pop()
        except BufferError as refusal:  # another object holds it
            refusals.append(refusal)

    for _ in range(10):
        given[:] = raw
        with at_every_collection(change):
            result = outcome(call, *arguments)
        assert repr(result) in expected
    assert not refusals


@pytest.mark.few(9)
@places
def test_changes_by_another_thread_do_not_affect_a_call(entry: Entry, path: Path) -> None:
    raw = at(entry.arguments, path)
    other = bytes(byte ^ (1 + number % 7) for number, byte in enumerate(raw))
    given, stop, refusals = bytearray(raw), threading.Event(), list[BufferError]()
    arguments = replaced(entry.arguments, path, given)
    call = entry.make(native())
    expected = {repr(outcome(call, *replaced(entry.arguments, path, of))) for of in (raw, other)}

    def change() -> None:
        while not stop.is_set():
            try:
                given[:] = other  # of the same length, so written at once
                given[:] = raw
                given.append(0)
                given.pop()
            except BufferError as refusal:
                refusals.append(refusal)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    changing = threading.Thread(target=change)
    changing.start()
    try:
        end = time.monotonic() + SECONDS
        results = set[str]()
        while time.monotonic() < end:
            results.add(repr(outcome(call, *arguments)))
    finally:
        stop.set()
        changing.join()
        sys.setswitchinterval(interval)
    # between append and pop
    longer = {repr(outcome(call, *replaced(entry.arguments, path, of + b"\0"))) for of in (raw, other)}
    if IS_LOCKED:  # otherwise a bytearray may be copied while it is half written
        assert results <= expected | longer
        assert not refusals


@pytest.mark.parametrize("family", [Family.BIP37, Family.FAST, Family.SIPHASH])
@pytest.mark.parametrize("kind", ["BitCore", "CounterCore"])
def test_a_changing_buffer_of_keys_is_used_in_place(kind: str, family: Family) -> None:
    """This is the exception to the rule. The buffer is held, so nobody can resize or free it, and all cells are in
    range.
    """
    width, count = 24, 4096
    given, stop, held = bytearray(width * count), threading.Event(), list[BufferError]()
    keys = memoryview(given).cast("B", [count, width])
    made = core(native(), kind, family=family, cells=1000, hash_funcs=7)
    noise = np.random.default_rng(1).integers(0, 256, width * count, np.uint8).tobytes()

    def change() -> None:
        while not stop.is_set():
            given[:] = noise
            given[:] = bytes(len(noise))
            try:
                given.append(0)
            except BufferError as refusal:
                held.append(refusal)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            assert 0 <= made.update(keys) <= count
            assert set(made.contains_many(keys)) <= {0, 1}
    finally:
        stop.set()
        changing.join()
    assert held
    assert len(made.body) == (125 if kind == "BitCore" else 500)
    fresh = core(native(), kind, family=family, cells=1000, hash_funcs=7)
    fresh.update(memoryview(noise).cast("B", [count, width]))
    same_shape(made, fresh)


class Evil(int):
    """An int whose arithmetic lies."""

    def __mod__(self, other: int) -> int:
        return 1 << 40

    def __index__(self) -> int:
        return self

    def __lt__(self, other: object) -> bool:
        return True

    def __ge__(self, other: object) -> bool:
        return True


@pytest.mark.parametrize("kernel", [native, reference])
@pytest.mark.parametrize("kind", ["BitCore", "CounterCore"])
def test_a_cell_of_a_users_function_is_always_in_range(kind: str, kernel: Callable[[], Kernel]) -> None:
    made = core(
        kernel(),
        kind,
        cells=100,
        hash_funcs=2,
        family=Family.CUSTOM,
        custom=[lambda data: Evil(5), lambda data: Evil(-1)],
    )
    assert made.positions(b"key") == [5, 99]
    assert made.add(b"key")
    assert b"key" in made

"""The compiled BitCore and CounterCore do not leak: memory stays constant over many calls, including failing ones."""

from __future__ import annotations

import gc
import itertools
import resource
import sys
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from spvfilter.kernel import Encoding, Family
from support.kernels.cores import same_shape
from support.vectors import effort

pytestmark = pytest.mark.native
ROUNDS, PARTS = effort(10, 10, 500), 4  # some 600 calls for each kind of core: in full 2,000,000
ROWS = np.arange(600, dtype=np.uint64).reshape(200, 3).view(np.uint8)
TEXTS = [f"schlüssel {number}" for number in range(150)]
NUMBERS = [*range(150), 2**70]


def core(kind: str, **changes: Any) -> Any:
    from spvfilter.kernel import native

    size = 1 << 15  # bytes, so that whole operations give up the interpreter's lock
    arguments = {
        "cells": size * 8 if kind == "BitCore" else size * 2,
        "hash_funcs": 5,
        "family": Family.FAST,
        "key": bytes(16),
        "buffer": bytearray(size),
    }
    return getattr(native, kind)(**(arguments | changes))


def fails(key: object) -> bytes:
    raise RuntimeError(key)


def broken() -> Iterator[bytes]:
    yield b"one"
    raise RuntimeError("broken")


def calls(kind: str) -> list[Callable[[], object]]:
    """Every operation, with arguments that it accepts and arguments that it refuses."""
    made, other = core(kind), core(kind)
    frozen = core(kind, buffer=bytes(1 << 15))
    texts, numbers = core(kind, encoding=Encoding.UTF8), core(kind, encoding=Encoding.UINT64)
    encoded, failing = (
        core(kind, encoding=Encoding.CALLABLE, encode=repr),
        core(kind, encoding=Encoding.CALLABLE, encode=fails),
    )
    own = core(kind, family=Family.CUSTOM, custom=[zlib.crc32] * 4 + [lambda data: 1 << 100])
    own_failing = core(kind, family=Family.CUSTOM, custom=[zlib.crc32] * 4 + [fails])
    many = core(kind, hash_funcs=600)
    shapes = [
        core(kind, **change)
        for change in ({"hash_funcs": 4}, {"family": Family.SIPHASH}, {"key": b"k" * 16}, {"partitioned": True})
    ]
    unmade = type(made).__new__(type(made))  # type: ignore[call-overload]  # values that callers may give
    keys = [b"%d" % number for number in range(150)]
    names = ["add", "__contains__", "positions"] + (["remove", "count"] if kind == "CounterCore" else [])
    works: list[Callable[[], object]] = [
        lambda: core(kind),
        lambda: core(kind, buffer=np.zeros(1 << 15, np.uint8)).body,
    ]
    for of, key in itertools.product(
        [made, frozen, texts, numbers, encoded, failing, own, own_failing, many, unmade], [b"key", "key", 7, None]
    ):
        works += [lambda of=of, key=key, name=name: getattr(of, name)(key) for name in names]  # type: ignore[misc]
    held: list[Any] = [np.float64(1), 1 << 70, -1, "\ud800", True]
    for of, key in itertools.product([made, texts, numbers, encoded], held):
        works.append(lambda of=of, key=key: of.add(key))  # type: ignore[misc]
    batches: list[Any] = [
        keys,
        tuple(keys),
        set(keys),
        [*keys, 5],
        [*keys, bytearray(b"k")],
        TEXTS,
        NUMBERS,
        ROWS,
        ROWS[:, ::2],
        b"key",
        5,
        [b"k"],
    ]
    for of, batch in itertools.product(
        [made, frozen, texts, numbers, encoded, failing, own, own_failing, unmade], batches
    ):
        works += [lambda of=of, batch=batch: of.update(batch), lambda of=of, batch=batch: of.contains_many(batch)]  # type: ignore[misc]
    fresh: list[Callable[[], Any]] = [
        lambda: bytearray(b"key"),
        lambda: memoryview(bytearray(b"kkeeyy"))[::2],
        lambda: np.zeros(3),
    ]
    works += [lambda of=of, key=key: of.add(key()) for of in (made, encoded, own) for key in fresh]  # type: ignore[misc]
    works += [
        lambda: made.update([b"%d" % number for number in range(140)]),
        lambda: texts.contains_many([f"{n}ü" for n in range(140)]),
    ]
    works += [
        lambda: numbers.update([n << 60 for n in range(15)]),
        lambda: made.update([*(b"%d" % n for n in range(9)), bytearray(b"k"), 5]),
    ]
    columns = [
        np.array(TEXTS),
        np.array(TEXTS, object),
        np.array([*TEXTS, "\ud800"]),
        np.array([*TEXTS, None]),
        np.arange(9),
    ]
    # three of them are refused
    works += [lambda column=column: texts.update(column) for column in columns]  # type: ignore[misc]
    works += [
        lambda: texts.contains_many(columns[3], nulls="skip"),
        lambda: texts.update(columns[0], "one"),
        lambda: encoded.update(columns[4]),
    ]
    works += [lambda: many.update(keys[:3]), lambda: many.contains_many(ROWS[:3]), lambda: many.update([b"k", 5])]
    works += [lambda: made.update(iter(keys)), lambda: made.update(broken()), lambda: made.contains_many(broken())]
    for one, two in itertools.product([made, frozen, unmade], [other, made, *shapes, unmade, None]):
        works += [lambda one=one, two=two: one.__ior__(two), lambda one=one, two=two: same_shape(one, two)]  # type: ignore[misc]
        if kind == "BitCore":
            works += [lambda one=one, two=two: one.__iand__(two), lambda one=one, two=two: one.union_set_bits(two)]  # type: ignore[misc]
            works += [lambda one=one, two=two: one <= two, lambda one=one, two=two: one == two]  # type: ignore[misc]
    for of in (made, frozen, unmade, shapes[3]):
        for name in ("clear", *(("set_bits", "plane_set_bits") if kind == "BitCore" else ("set_cells", "to_bits"))):
            works.append(lambda of=of, name=name: getattr(of, name)())  # type: ignore[misc]
        for name in ("buffer", "body", "cells", "hash_funcs", "family", "key", "encoding", "partitioned"):
            works.append(lambda of=of, name=name: getattr(of, name))  # type: ignore[misc]
    bad: list[dict[str, Any]] = [
        {"buffer": 5},
        {"buffer": bytearray(3)},
        {"buffer": memoryview(bytes(1 << 16))[::2]},
        {"cells": -1},
    ]
    bad += [
        {"cells": "x"},
        {"hash_funcs": 1 << 40},
        {"family": 9},
        {"encoding": 9},
        {"encoding": Encoding.CALLABLE},
        {"key": "k"},
    ]
    bad += [
        {"family": Family.CUSTOM, "custom": [len]},
        {"family": Family.CUSTOM},
        {"hash_funcs": 0, "partitioned": True},
        {"unknown": 1},
    ]
    works += [lambda change=change: core(kind, **change) for change in bad]  # type: ignore[misc]
    works += [
        lambda: made.__init__(8, 1, 2, bytes(16), bytearray(1)),
        lambda: setattr(made, "buffer", bytearray(1 << 15)),
    ]
    works += [lambda: setattr(made, "buffer", 5), lambda: delattr(made, "buffer"), lambda: setattr(made, "cells", 5)]
    return works


def run(works: list[Callable[[], object]]) -> None:
    for work in works:
        try:
            work()
        except (ArithmeticError, AttributeError, BufferError, LookupError, RuntimeError, TypeError, ValueError):
            continue


@pytest.mark.long
@pytest.mark.parametrize("kind", ["BitCore", "CounterCore"])
def test_a_million_calls_leave_no_memory(kind: str) -> None:
    works = calls(kind)
    run(works)
    run(works)
    grown, peak = list[int](), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(PARTS):
        gc.collect()
        blocks = sys.getallocatedblocks()
        for _ in range(ROUNDS):
            run(works)
        gc.collect()
        grown.append(sys.getallocatedblocks() - blocks)
    # A leak in one call would appear in each round. The caches of Python and NumPy grow only sometimes.
    assert min(grown) < ROUNDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 8_000  # KiB


@pytest.mark.parametrize("kind", ["BitCore", "CounterCore"])
def test_a_filter_in_a_reference_cycle_is_collected(kind: str) -> None:
    class Core(type(core(kind))):  # type: ignore[misc]
        pass

    class Memory(bytearray):
        pass

    memory, ring = Memory(1 << 15), list[object]()
    made = Core(
        1 << 16 if kind == "CounterCore" else 1 << 18,
        5,
        Family.CUSTOM,
        bytes(16),
        memory,
        custom=[lambda data, ring=ring: len(ring)] * 5,
    )
    memory.filter = ring  # type: ignore[attr-defined]
    ring += [made, made.add]
    gone = weakref.ref(made)
    del made, memory, ring
    gc.collect()
    assert gone() is None

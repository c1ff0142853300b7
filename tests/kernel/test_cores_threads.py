"""Threads and processes that write to one filter in parallel: the result is that of the same writes in sequence."""

from __future__ import annotations

import mmap
import multiprocessing
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spvfilter.bloom.hashing import Bip37Hash, FastHash, HashFamily, SipHash
from spvfilter.errors import ReadOnlyError
from support.kernels.cores import compiled_filters
from support.vectors import effort

pytestmark = pytest.mark.native
WORKERS = 8
COUNT = effort(80_000, 200_000, 1_000_000)  # keys of all workers
KEYS = np.random.default_rng(4).integers(0, 256, (COUNT, 20), np.uint8)
SHARES = np.array_split(KEYS, WORKERS)


each_core = pytest.mark.parametrize("core", ["BitCore", "CounterCore", "CounterCore8", "CounterCore16"])


def at_once(works: list[Callable[[], object]]) -> None:
    """Run the functions in threads that start together. Raises the error of any of them."""
    ready, failures = threading.Barrier(len(works)), list[BaseException]()

    def run(work: Callable[[], object]) -> None:
        ready.wait()
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def rows(share: Any) -> list[bytes]:
    return [row.tobytes() for row in share]


def ways_of_adding(made: Any) -> list[Callable[[], object]]:
    """Functions that each add a share of the keys, by every kind of call."""
    listed = [rows(share) for share in SHARES[:5]]
    return [
        lambda: made.update(listed[0]),
        lambda: made.update(tuple(listed[1])),
        lambda: made.update(key for key in listed[2]),
        lambda: [made.add(key) for key in listed[3]],
        lambda: [made.update(listed[4][at : at + 7]) for at in range(0, len(listed[4]), 7)],
        *(lambda share=share: made.update(share) for share in SHARES[5:]),
    ]


@each_core
@pytest.mark.parametrize("shared", [False, True])
def test_threads_that_add_to_one_filter_lose_no_key(core: str, shared: bool) -> None:
    kind = compiled_filters(core)
    shape = {"bits": COUNT, "hash_funcs": 2}  # many keys for each byte, and few saturated counters
    serial, made = kind(**shape), kind(**shape)
    if shared:
        made = kind(**shape, buffer=made.buffer)
    serial.update(KEYS)
    at_once(ways_of_adding(made))
    assert made == serial
    assert all(made.contains_many(KEYS))


@pytest.mark.parametrize("hashing", [FastHash(), SipHash(bytes(16)), Bip37Hash()])
@each_core
def test_two_filters_over_one_memory_lose_no_key(core: str, hashing: HashFamily) -> None:
    for keys in np.array_split(KEYS, 20):
        shape = {"bits": len(keys), "hash_funcs": 2, "hashing": hashing}
        made, serial = compiled_filters(core)(**shape), compiled_filters(core)(**shape)
        twin = compiled_filters(core)(**shape, buffer=made.buffer)
        halves = np.array_split(keys, 2)
        # both run before the next round
        at_once([lambda: made.update(halves[0]), lambda: twin.update(halves[1])])  # noqa: B023
        serial.update(keys)
        assert made == twin == serial


def test_parallel_unions_and_additions_lose_no_key() -> None:
    parts = [compiled_filters()(bits=COUNT + 8, hash_funcs=2) for _ in range(32)]
    for part, share in zip(parts, np.array_split(KEYS[: COUNT // 2], 32), strict=True):
        part.update(share)
    made, serial = (compiled_filters()(bits=COUNT + 8, hash_funcs=2) for _ in range(2))

    def unite(those: list[Any]) -> None:
        for part in those:
            made.__ior__(part)

    added = np.array_split(KEYS[COUNT // 2 :], 2)
    at_once(
        [
            lambda: unite(parts[::2]),
            lambda: unite(parts[1::2]),
            *(lambda share=share: made.update(share) for share in added),
        ]
    )
    serial.update(KEYS)
    assert made == serial
    counted, twice = (compiled_filters("CounterCore")(bits=COUNT, hash_funcs=2) for _ in range(2))
    other = compiled_filters("CounterCore")(bits=COUNT, hash_funcs=2)
    other.update(SHARES[0])
    at_once([lambda: counted.__ior__(other)] * 2 + [lambda share=share: counted.update(share) for share in SHARES[1:]])  # type: ignore[misc]
    twice.update(KEYS)
    twice |= other
    assert counted == twice


def test_threads_remove_each_key_once() -> None:
    made = compiled_filters("CounterCore")(bits=COUNT, hash_funcs=3)
    shares = [rows(share[: COUNT // 100]) for share in SHARES]
    for share in shares:
        made.update(share)

    def take_away_and_put_back(share: list[bytes]) -> None:
        for key in share:
            made.remove(key)
        made.update(share)
        for key in share:
            made.remove(key)

    at_once([lambda share=share: take_away_and_put_back(share) for share in shares])  # type: ignore[misc]
    assert not any(made.body)
    made.update([b"key"] * 9)
    removed = list[bool]()

    def take_away() -> None:
        for _ in range(5):
            try:
                made.remove(b"key")
            except KeyError:
                continue
            removed.append(True)

    at_once([take_away] * WORKERS)
    assert len(removed) == 9
    assert not any(made.body)


def test_readers_see_earlier_keys_during_writes() -> None:
    made = compiled_filters()(COUNT, 0.01)
    made.update(SHARES[0])
    first = rows(SHARES[0][:2000])
    at_once(
        [
            lambda: made.update(SHARES[1]),
            lambda: made.update(SHARES[2]),
            lambda: [pytest.fail("lost") for _ in range(20) if not all(made.contains_many(SHARES[0]))],
            lambda: [pytest.fail("lost") for key in first if key not in made],
        ]
    )


@contextmanager
def mapped(path: Path, size: int) -> Iterator[mmap.mmap]:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as memory:
        yield memory


def over(core: str, memory: Any) -> Any:
    return compiled_filters(core)(bits=COUNT, hash_funcs=2, buffer=memory)


def add_in_a_process(core: str, path: Path, size: int, half: int, started: Any) -> None:
    with mapped(path, size) as memory:
        made = over(core, memory)
        started.wait()
        share = np.array_split(KEYS, 2)[half]
        cut = len(share) // 3
        made.update(share[:cut])
        made.update(rows(share[cut : 2 * cut]))
        for key in rows(share[2 * cut :]):
            made.add(key)
        if core == "CounterCore":
            made.update([b"both"] * 3)
            for _ in range(3):
                made.remove(b"both")
        del made


@each_core
def test_two_processes_that_add_to_one_map_lose_no_key(core: str, tmp_path: Path) -> None:
    serial = over(core, None)
    serial.update(KEYS)
    path = tmp_path / "cells"
    path.write_bytes(bytes(len(serial.body)))
    context = multiprocessing.get_context("fork")
    started = context.Barrier(2)
    workers = [
        context.Process(target=add_in_a_process, args=(core, path, len(serial.body), half, started))
        for half in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    with mapped(path, len(serial.body)) as memory:
        made = over(core, memory)
        assert made == serial
        assert all(made.contains_many(KEYS))
        del made


def test_a_file_closed_during_additions_is_complete(tmp_path: Path) -> None:
    compiled_filters()(COUNT, 0.01).save(tmp_path / "f")
    with compiled_filters().open(tmp_path / "f", mmap=True, writable=True) as made:
        begun = threading.Event()

        def add() -> None:
            try:
                with pytest.raises(ReadOnlyError):
                    while True:
                        made.update(KEYS[:4096])
                        begun.set()
                        made.update(KEYS)
            finally:
                begun.set()

        def close() -> None:
            begun.wait()
            made.close()

        at_once([add, add, close])
    found = compiled_filters().open(tmp_path / "f")  # its CRC is right
    assert all(found.contains_many(KEYS[:4096]))


def test_a_child_forked_during_a_write_can_write() -> None:
    made = compiled_filters()(bits=1 << 24, hash_funcs=20)
    stop, begun = threading.Event(), threading.Event()

    def write() -> None:
        while not stop.is_set():
            begun.set()
            made.update(KEYS)

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait()
    try:
        for _ in range(effort(3, 10, 50)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # this test forks with threads on purpose
                child = multiprocessing.get_context("fork").Process(target=made.add, args=(b"key",))
                child.start()
            child.join(60)
            assert child.exitcode == 0
    finally:
        stop.set()
        writer.join()


def test_a_buffer_can_be_replaced_despite_permanent_writers() -> None:
    from spvfilter.kernel import Family, native

    core = native.BitCore(1 << 18, 7, Family.FAST, bytes(16), bytearray(1 << 15))
    replaced, is_over = threading.Event(), threading.Event()

    def write() -> None:
        while not is_over.is_set():
            core.update(KEYS)

    def replace() -> None:
        for _ in range(5):
            core.buffer = bytearray(1 << 15)
        replaced.set()

    threads = [threading.Thread(target=work, daemon=True) for work in (write, write, replace)]
    for thread in threads:
        thread.start()
    assert replaced.wait(60)
    is_over.set()
    for thread in threads:
        thread.join()

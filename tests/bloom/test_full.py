"""`on_full`: a filter that has its capacity of keys refuses new keys, or warns."""

from __future__ import annotations

import copy
import mmap
import pickle
import random
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from spvfilter.bloom import BloomFilter, CountingBloomFilter, CustomHash, FastHash, HashFamily, SipHash, sizing
from spvfilter.bloom.hashing import Bip37Hash
from spvfilter.errors import CapacityError, CapacityWarning, ParameterError
from spvfilter.kernel import BACKEND
from support.filters.filterfiles import whole
from support.vectors import effort

Kind = type[BloomFilter] | type[CountingBloomFilter]
KINDS = pytest.mark.parametrize("kind", [BloomFilter, CountingBloomFilter])
FAMILIES: list[HashFamily] = [
    FastHash(3),
    Bip37Hash(3),
    SipHash(bytes(16)),
    CustomHash("own", lambda data, i: hash((data, i))),
]


Filter = TypeVar("Filter", bound=BloomFilter | CountingBloomFilter)


def filled(kind: type[Filter], capacity: int = 100, **options: object) -> Filter:
    """A filter with its capacity of new keys, 0, 1, …"""
    made = kind(capacity, 0.01, encode="int64", **options)  # type: ignore[arg-type]  # of several types
    number = new = 0
    while new < capacity:
        new += made.add(number)
        number += 1
    return made


@KINDS
@pytest.mark.parametrize("hashing", FAMILIES, ids=lambda family: type(family).__name__)
def test_a_key_above_the_capacity_is_refused(kind: Kind, hashing: HashFamily) -> None:
    made = filled(kind, hashing=hashing)
    before = bytes(made)
    strangers = [number for number in range(1_000, 2_000) if number not in made]
    calls: list[Callable[[], object]] = [lambda: made.add(strangers[0])]
    calls += [lambda: made.update(strangers), lambda: made.update(np.array(strangers))]
    for call in calls:
        with pytest.raises(CapacityError, match=r"made for 100 keys at 0.01 contains 100, so its rate is") as caught:
            call()
        assert (caught.value.count, caught.value.capacity) == (100, 100)
        assert caught.value.fp_rate == pytest.approx(made.current_fp_rate)
        assert bytes(made) == before
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.count, again.capacity, again.fp_rate, str(again)) == (
        100,
        100,
        caught.value.fp_rate,
        str(caught.value),
    )


@KINDS
@pytest.mark.parametrize("form", [list, iter, lambda keys: np.fromiter(keys, np.int64)])
def test_a_batch_adds_its_keys_before_the_refused_one(kind: Kind, form: object) -> None:
    made, one_by_one = kind(300, 0.001, encode="int64"), kind(300, 0.001, encode="int64")
    with pytest.raises(CapacityError):
        made.update(form(range(5_000)))  # type: ignore[operator]  # of several types
    with pytest.raises(CapacityError):
        for number in range(5_000):
            one_by_one.add(number)
    assert bytes(made) == bytes(one_by_one)
    assert made.room == one_by_one.room == 0


@KINDS
def test_contained_keys_need_no_room(kind: Kind) -> None:
    made = kind(100, 0.001, encode="int64")
    for _ in range(5):
        made.update(range(50))
    assert made.room == 50
    full = filled(kind)
    assert full.update([number for number in range(90) if number in full]) == 0
    assert full.add(1) is False


def test_a_removed_key_leaves_room_for_another() -> None:
    made = filled(CountingBloomFilter)
    made.remove(7)
    if 7 not in made:
        assert made.add(5_000) is True
    with pytest.raises(CapacityError):
        made.update(range(6_000, 7_000))
    twice = CountingBloomFilter(10, 0.001, encode="int64")
    twice.update([1, 1, 1])
    for left in (9, 9, 10):
        twice.remove(1)
        assert twice.room == left


@KINDS
def test_on_full_warn_warns_once_and_accepts_every_key(kind: Kind) -> None:
    made = kind(100, 0.01, encode="int64", on_full="warn")
    with pytest.warns(CapacityWarning, match=r"made for 100 keys at 0.01 contains 100, so its rate is") as caught:
        made.update(range(5_000))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.update(range(5_000, 6_000))
    assert made.contains_many(range(6_000)) == b"\1" * 6_000


@KINDS
def test_a_filter_made_by_bits_has_no_capacity(kind: Kind) -> None:
    made = kind(bits=64, hash_funcs=3, encode="int64")
    made.update(range(1_000))
    assert made.room is None
    copied = kind.from_bytes(bytes(made))
    assert copied.add(5_000) is False


@pytest.mark.parametrize("capacity", [1, 10, 1_000, 20_000])
@pytest.mark.parametrize("shape", [{}, {"partitioned": True}, {"hash_funcs": 2}])
def test_a_loaded_filter_accepts_its_remaining_capacity(
    capacity: int, shape: dict[str, object], tmp_path: Path
) -> None:
    made = BloomFilter(capacity, 0.01, encode="int64", **shape)  # type: ignore[arg-type]  # of several types
    made.update(range(capacity // 2))
    made.save(tmp_path / "f")
    for again in (
        BloomFilter.open(tmp_path / "f"),
        pickle.loads(pickle.dumps(made)),
        BloomFilter.from_bytes(bytes(made)),
    ):
        again.update(range(capacity))
        spare = 4 * sizing.estimate_deviation(made.bits, made.hash_funcs, capacity)
        with pytest.raises(CapacityError) as caught:
            again.update(range(capacity, 3 * capacity + 50))
        assert caught.value.count is not None
        assert capacity <= caught.value.count <= capacity + 2 * spare + 12


def test_a_loaded_overfull_filter_refuses_new_keys() -> None:
    with pytest.warns(CapacityWarning):
        made = BloomFilter(100, 0.01, encode="int64", on_full="warn")
        made.update(range(50_000))
    again = BloomFilter.from_bytes(bytes(made))
    assert again.add(5) is False
    if made.fill == 1:
        assert again.update(range(10**6, 10**6 + 100)) == 0
    again = BloomFilter.from_bytes(
        bytes(filled(BloomFilter) | BloomFilter.build(range(500, 590), 100, 0.01, encode="int64"))
    )
    with pytest.raises(CapacityError, match=r"contains 1[5-9][0-9],"):
        again.update(range(1_000, 2_000))


def test_pickles_keep_on_full_but_files_do_not() -> None:
    made = filled(BloomFilter, on_full="warn")
    with pytest.warns(CapacityWarning):
        made.update(range(1_000, 2_000))
    for same in (copy.copy(made), made.copy(), pickle.loads(pickle.dumps(made)), made | made):
        assert same.on_full == "warn"
    assert BloomFilter.from_bytes(bytes(made)).on_full == "raise"
    assert BloomFilter.from_bytes(bytes(made), on_full="warn").on_full == "warn"
    assert CountingBloomFilter(5, 0.1, on_full="warn").to_bloom().on_full == "warn"
    half = BloomFilter(100, 0.001)
    half.update([b"1", b"2"])
    assert half.copy().room == 98


@pytest.mark.parametrize("wrong", ["error", "", None, 5, []])
def test_an_invalid_on_full_is_refused(wrong: object) -> None:
    with pytest.raises(ParameterError, match="on_full must be 'raise' or 'warn', not "):
        BloomFilter(100, 0.01, on_full=wrong)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="on_full must be"):
        BloomFilter.from_bytes(bytes(BloomFilter(9, 0.1)), on_full=wrong)  # type: ignore[arg-type]


def test_operations_on_all_cells_restart_the_count() -> None:
    made, other = filled(BloomFilter), BloomFilter(100, 0.01, encode="int64")
    made &= other
    assert made.update(range(90)) > 80
    made.clear()
    assert made.update(range(90)) > 80
    other.update(range(1_000, 1_090))
    made |= other
    with pytest.raises(CapacityError):
        made.update(range(5_000, 5_100))


def test_build_refuses_too_many() -> None:
    with pytest.raises(CapacityError):
        BloomFilter.build(range(3_000), 1_000, 0.01, encode="int64")
    made = BloomFilter.build(range(3_000), 3_000, 0.01, encode="int64")
    assert made.contains_many(range(3_000)) == b"\1" * 3_000
    with pytest.warns(CapacityWarning):
        BloomFilter.build(range(3_000), 1_000, 0.01, encode="int64", on_full="warn")


def test_writers_to_shared_memory_stay_near_the_capacity() -> None:
    capacity, writers = 20_000, 4
    memory = mmap.mmap(-1, BloomFilter(capacity, 0.01).header().body_size)
    filters = [BloomFilter(capacity, 0.01, encode="int64", buffer=memory) for _ in range(writers)]
    added, rng = 0, random.Random(7)
    full: set[int] = set()
    while len(full) < writers:
        one = rng.randrange(writers)
        try:
            filters[one].update(range(added, added + 50))
            added += 50
        except CapacityError:
            full.add(one)
    assert capacity * 0.97 < filters[0].approx_len < capacity * (1.03 + writers / 64)


def test_threads_add_keys_up_to_the_capacity() -> None:
    capacity = effort(20_000, 50_000, 500_000)
    made = BloomFilter(capacity, 0.001, encode="int64")
    refused = []

    def add(start: int) -> None:
        try:
            made.update(np.arange(start, start + capacity))
        except CapacityError as error:
            refused.append(error)

    threads = [threading.Thread(target=add, args=(number * capacity,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) >= 3  # one thread may have added all keys that fit
    assert capacity <= made.approx_len * 1.02
    assert made.approx_len < capacity * 1.02 + 4 * 64


@pytest.mark.few(1)
@pytest.mark.skipif(BACKEND != "native", reason="the reference counts the room without locks")
@KINDS
def test_threads_fill_a_small_filter_to_its_last_key(kind: Kind) -> None:
    """No key is contained before, so threads use all room that they reserve."""
    capacity, threads_of = 1_000, 4
    for attempt in range(effort(10, 30, 300)):
        made = kind(capacity, 1e-9, encode="int64")
        keys = np.random.default_rng(attempt).integers(0, 1 << 62, (threads_of, 5_000))

        def add(mine: np.ndarray[tuple[int], np.dtype[np.int64]], to: BloomFilter | CountingBloomFilter = made) -> None:
            with suppress(CapacityError):
                to.update(mine)

        threads = [threading.Thread(target=add, args=(keys[number],)) for number in range(threads_of)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(made.contains_many(keys.ravel())) == capacity, f"attempt {attempt}"


def test_a_huge_capacity_in_a_small_file_leaves_room() -> None:
    for kind, body in ((1, bytes(3)), (2, bytes(10))):
        raw = whole(body, kind=kind, capacity=1 << 48, fp_rate=0.5)
        made = (BloomFilter if kind == 1 else CountingBloomFilter).from_bytes(raw)
        assert made.add(b"key")
        assert made.room is not None and made.room > 1 << 47

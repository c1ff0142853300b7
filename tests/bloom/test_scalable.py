"""Scalable filters: growth, the promised rate, batches, files, memory maps, pickles, threads."""

from __future__ import annotations

import copy
import operator
import pickle
import random
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spvfilter.bloom import (
    BloomFilter,
    CountingBloomFilter,
    CustomHash,
    FastHash,
    Growth,
    HashFamily,
    ScalableBloomFilter,
    SipHash,
)
from spvfilter.bloom.hashing import Bip37Hash
from spvfilter.errors import CapacityError, FormatError, MismatchError, ParameterError, ReadOnlyError
from spvfilter.kernel import BACKEND, BitCore, SeriesCore
from support.vectors import effort

FAMILIES: list[HashFamily] = [FastHash(3), Bip37Hash(3), SipHash(bytes(16)), CustomHash("crc", zlib.crc32)]
FIRST = 300


SLOWER = 1 if BACKEND == "native" else 20  # factor for the reference kernel


def numbers(start: int, count: int) -> np.ndarray[Any, Any]:
    return np.arange(start, start + count)


def grown(count: int, **options: Any) -> ScalableBloomFilter:
    made = ScalableBloomFilter(FIRST, 0.01, encode="int64", **options)
    made.update(numbers(0, count))
    return made


@pytest.mark.few(1)
@pytest.mark.parametrize(("first", "rate"), [(100, 0.01), (1_000, 0.01), (1_000, 0.001), (250, 0.1)])
@pytest.mark.parametrize("hashing", [FastHash(1), SipHash(bytes(16))], ids=repr)
def test_the_rate_keeps_its_promise_at_any_size(first: int, rate: float, hashing: HashFamily) -> None:
    made = ScalableBloomFilter(first, rate, hashing=hashing, encode="int64")
    asked = effort(100_000, 400_000, 4_000_000) // SLOWER
    sizes = (1, 10, 100) if SLOWER == 1 else (1, 10)
    for times in sizes:
        made.update(numbers(0, first * times))
        found = sum(made.contains_many(numbers(1 << 40, asked))) / asked
        assert made.current_fp_rate <= 1.1 * rate
        assert found <= 1.1 * rate + 4 * (rate / asked) ** 0.5
        # a slice ends early if it has more set bits than the mean
        assert len(made.slices) - Growth(first, rate).slices_for(first * times) in (0, 1)
        assert len(made) == pytest.approx(first * times, rel=0.05 + rate, abs=10)  # false positives are not added
    assert made.contains_many(numbers(0, first * sizes[-1])) == b"\1" * first * sizes[-1]


def test_the_slices_follow_the_article() -> None:
    made = ScalableBloomFilter(100, 0.01, growth=3, tightening=0.25, encode="int64")
    made.update(range(3_000))
    assert [slice.capacity for slice in made.slices] == [100, 300, 900, 2_700]
    assert [slice.nominal_fp_rate for slice in made.slices] == pytest.approx(
        [0.0075, 0.0075 / 4, 0.0075 / 16, 0.0075 / 64]
    )
    assert sum(Growth(100, 0.01, 3, 0.25).shape(number)[1] for number in range(30)) <= 0.01
    assert (made.capacity, made.initial_capacity, made.nominal_fp_rate, made.growth, made.tightening) == (
        4_000,
        100,
        0.01,
        3,
        0.25,
    )


@pytest.mark.parametrize("hashing", FAMILIES, ids=lambda family: type(family).__name__)
def test_keys_lists_and_buffers_give_the_same_filter(hashing: HashFamily) -> None:
    count = 3_000
    ways = [ScalableBloomFilter(FIRST, 0.01, hashing=hashing, encode="int64") for _ in range(4)]
    new = [[ways[0].add(number) for number in [*range(count), *range(50)]].count(True)]
    forms: list[Any] = [[*range(count)], iter(range(count)), numbers(0, count)]
    new += [way.update(keys) for way, keys in zip(ways[1:], forms, strict=True)]
    assert len(set(new)) == 1
    assert ways[0] == ways[1] == ways[2] == ways[3]
    probes = range(-2_000, count)
    expected = bytes(number in ways[0] for number in probes)
    assert expected[2_000:] == b"\1" * count
    for form in ([*probes], iter(probes), np.array(probes)):
        assert ways[1].contains_many(form) == expected


def test_a_key_of_an_earlier_slice_is_not_new() -> None:
    made = grown(2_000)
    slices, room = made.slices, made.slices[-1].room
    assert made.add(0) is False
    assert made.update(numbers(0, 2_000)) == 0
    assert (made.slices, made.slices[-1].room) == (slices, room)
    assert made.add(0) is False


def test_bytes_files_maps_copies_and_pickles_keep_the_filter(tmp_path: Path) -> None:
    made = grown(2_000, growth=3, tightening=0.7, hashing=SipHash(bytes(range(16))))
    made.save(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == bytes(made)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600
    for same in (
        ScalableBloomFilter.open(tmp_path / "f"),
        ScalableBloomFilter.open(tmp_path / "f", verify=False),
        ScalableBloomFilter.from_bytes(bytearray(bytes(made))),
        pickle.loads(pickle.dumps(made)),
        made.copy(),
        copy.copy(made),
    ):
        assert same == made
        assert same.plan == made.plan
        same.update(numbers(2_000, 2_000))
        assert same.contains_many(numbers(0, 4_000)) == b"\1" * 4_000
        assert same.current_fp_rate < 0.011
        assert same != made
    mapped = ScalableBloomFilter.open(tmp_path / "f", mmap=True)
    assert mapped == made
    with pytest.raises(ReadOnlyError):
        mapped.add(10**9)
    assert made.add(0) is False


def test_custom_functions_must_be_passed_again() -> None:
    hashing = CustomHash("own", zlib.crc32)
    made = ScalableBloomFilter(50, 0.01, hashing=hashing, encode=repr_bytes)
    made.update(range(500))
    again = ScalableBloomFilter.from_bytes(bytes(made), hashing=hashing, encode=repr_bytes)
    assert again == made
    assert 499 in again
    with pytest.raises(ParameterError, match=r"pass it as `encode`$"):
        ScalableBloomFilter.from_bytes(bytes(made), hashing=hashing)
    with pytest.raises(ParameterError, match=r"pass the family as `hashing`$"):
        ScalableBloomFilter.from_bytes(bytes(made), encode=repr_bytes)
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(ParameterError, match="expected 6 hash functions, but 'two' has 2"):
        ScalableBloomFilter(50, 0.01, hashing=CustomHash("two", [zlib.crc32, zlib.adler32]))


def repr_bytes(key: object) -> bytes:
    return repr(key).encode()


def test_a_cleared_filter_can_be_filled_again() -> None:
    made = grown(1_000)
    assert made
    made.clear()
    assert (bool(made), len(made), made.current_fp_rate, made.fill) == (False, 0, 0.0, 0.0)
    made.update(numbers(0, 3_000))
    assert made.contains_many(numbers(0, 3_000)) == b"\1" * 3_000
    assert made.current_fp_rate < 0.011


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, 0.1), "capacity must be at least 1, not 0"),
        ((1.5, 0.1), "capacity must be an int, not 1.5"),
        ((10, 0.0), "fp_rate must be above 0 and below 1"),
        ((10, 1.0), "fp_rate must be above 0 and below 1"),
        ((10, float("nan")), "fp_rate must be a number, not NaN"),
        ((10, 0.1, 1), "growth must be a whole number from 2 to 1024, not 1"),
        ((10, 0.1, 1_025), "growth must be a whole number from 2"),
        ((10, 0.1, 2.0), "growth must be a whole number from 2"),
        ((10, 0.1, 2, 0.0), "tightening must be a number above 0 and below 1"),
        ((10, 0.1, 2, 1.0), "tightening must be a number above 0 and below 1"),
        ((10, 0.1, 2, float("nan")), "tightening must be a number above 0 and below 1"),
        ((10, 0.1, 2, 1), "tightening must be a number above 0 and below 1"),
    ],
)
def test_bad_parameters_have_their_own_errors(arguments: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        ScalableBloomFilter(*arguments)


def test_wrong_keys_are_refused_as_in_other_filters() -> None:
    made = grown(1_000)
    for key, error in (("1", TypeError), (b"1", TypeError), (True, TypeError), (2**63, OverflowError)):
        with pytest.raises(error):
            made.add(key)
        with pytest.raises(error):
            key in made  # noqa: B015
    with pytest.raises(TypeError, match="expected a batch of keys"):
        made.update(b"one")
    with pytest.raises(OverflowError):
        made.update([10**6, 10**6 + 1, 2**63])
    assert 10**6 + 1 in made


def damaged() -> list[tuple[str, bytes, str]]:
    """Invalid files with their faults. Headers and CRCs fit the changed bytes."""
    whole = bytes(grown(1_000))
    slice_at = 80

    def resealed(raw: bytes) -> bytes:
        head = raw[:60] + zlib.crc32(raw[:60]).to_bytes(4, "little")
        return head + raw[64:-4] + zlib.crc32(head + raw[64:-4]).to_bytes(4, "little")

    def patched(at: int, new: bytes) -> bytes:
        return resealed(whole[:at] + new + whole[at + len(new) :])

    other = bytearray(whole)
    part = bytes(whole[slice_at : slice_at + 64])
    kind = part[:10] + b"\2" + part[11:60]
    other[slice_at : slice_at + 64] = kind + zlib.crc32(kind).to_bytes(4, "little")
    family = part[:44] + b"\7" + part[45:60]
    another = bytearray(whole)
    another[slice_at : slice_at + 64] = family + zlib.crc32(family).to_bytes(4, "little")
    return [
        ("bit", whole[:500] + bytes([whole[500] ^ 1]) + whole[501:], "its CRC does not match"),
        ("long", whole + b"\0", "1 trailing byte"),
        ("short", whole[:-1], "truncated"),
        ("growth", patched(64, b"\1" + bytes(7)), "growth must be a whole number from 2 to 1024, not 1"),
        ("tightening", patched(72, b"\xff" * 8), "tightening must be a number above 0 and below 1"),
        ("slices", patched(16, b"\1\0\0\0"), "trailing bytes after the slices"),
        ("more slices", patched(16, b"\x09\0\0\0"), "header of slice 2|header of slice 3"),
        ("too many slices", patched(16, b"\x41\0\0\0"), "at most 64 slices, not 65"),
        ("partitioned", patched(13, b"\1"), "flags|bits"),
        (
            "kind of slice",
            resealed(bytes(other)),
            "kind of slice 0 at byte 90: expected a slice, got kind 2 with flags 0x00",
        ),
        (
            "key of slice",
            resealed(bytes(another)),
            "family of slice 0 at byte 91: the slice and the series differ in hash family, key or encoding",
        ),
        ("no capacity", patched(28, bytes(16)), "a series needs an initial capacity"),
        (
            "plain",
            bytes(BloomFilter(10, 0.1)),
            r"contains a BloomFilter \(kind 1\), not a ScalableBloomFilter: open it with BloomFilter$",
        ),
        ("foreign", b"x" * 200, "not a filter file"),
        ("empty", b"", "truncated"),
    ]


@pytest.mark.parametrize(("raw", "said"), [case[1:] for case in damaged()], ids=[case[0] for case in damaged()])
def test_a_damaged_file_is_refused(raw: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(raw)
    with pytest.raises(FormatError, match=said):
        ScalableBloomFilter.from_bytes(raw)
    for options in ({}, {"mmap": True}):
        with pytest.raises(FormatError, match=said):
            ScalableBloomFilter.open(tmp_path / "f", **options)  # type: ignore[arg-type]


def test_truncations_and_flipped_bits_are_refused() -> None:
    made = ScalableBloomFilter(5, 0.1)
    made.update([b"%d" % number for number in range(12)])
    whole = bytes(made)
    for size in range(len(whole)):
        with pytest.raises(FormatError):
            ScalableBloomFilter.from_bytes(whole[:size])
    rng = random.Random(11)
    for _ in range(effort(300, 1_000, 10_000)):
        at = rng.randrange(len(whole) * 8)
        raw = bytearray(whole)
        raw[at >> 3] ^= 1 << (at & 7)
        if at >> 3 == 13 and at & 7 == 1:
            continue  # the flag that a writer sets
        with pytest.raises(FormatError):
            ScalableBloomFilter.from_bytes(raw)


def test_a_plain_filter_refuses_the_file() -> None:
    with pytest.raises(
        FormatError, match=r"a ScalableBloomFilter \(kind 3\), not a BloomFilter: open it with ScalableBloomFilter$"
    ):
        BloomFilter.from_bytes(bytes(grown(10)))


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that take turns as often as they can, so that a slice fills between two steps of another thread."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_threads_that_add_lose_no_key(hasty_threads: None) -> None:
    count = effort(20_000, 40_000, 400_000) // SLOWER
    for attempt in range(1 if SLOWER == 1 else 10):
        made = ScalableBloomFilter(100, 0.001, encode="int64")

        def add(start: int, made: ScalableBloomFilter = made) -> None:
            for at in range(start, start + count, 500):
                made.update(numbers(at, 400))
                for number in range(at + 400, at + 500):
                    made.add(number)

        threads = [threading.Thread(target=add, args=(number * count,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made.contains_many(numbers(0, 4 * count)) == b"\1" * (4 * count), attempt
        assert made.current_fp_rate < 0.0011


@pytest.mark.skipif(BACKEND != "native", reason="the reference counts the room without locks")
def test_slices_that_fill_under_threads_keep_their_rates() -> None:
    """Each thread adds many keys at once, far more than a small slice can hold."""
    for attempt in range(effort(20, 60, 600)):
        made = ScalableBloomFilter(100, 0.001, encode="int64")
        keys = np.random.default_rng(attempt).integers(0, 1 << 62, (4, 2_000))
        threads = [threading.Thread(target=made.update, args=(keys[number],)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made.contains_many(keys.ravel()) == b"\1" * 8_000
        assert made.current_fp_rate < 0.0011, f"attempt {attempt}"


@pytest.mark.parametrize("way", ["key", "list", "buffer"])
def test_room_used_by_another_thread_is_made_again(way: str) -> None:
    class Contended(ScalableBloomFilter):
        """Other threads use all new room, except every fifth time."""

        calls = 0

        def _make_room(self) -> None:
            super()._make_room()
            self.calls += 1
            if self.calls % 5:
                self.slices[-1].room = 0

    made = Contended(100, 0.01, encode="int64")
    keys = np.arange(1_000)
    if way == "key":
        for key in keys:
            made.add(int(key))
    else:
        made.update(keys if way == "buffer" else keys.tolist())
    assert made.contains_many(keys) == b"\1" * 1_000
    assert made.calls > 5


@pytest.mark.parametrize("way", ["key", "list", "buffer"])
def test_a_key_is_refused_if_no_room_is_made(way: str) -> None:
    class Idle(ScalableBloomFilter):
        def _make_room(self) -> None:
            pass

    made = Idle(100, 0.01, encode="int64")
    with pytest.raises(CapacityError, match="there is no room for another key"):
        if way == "key":
            for key in range(1_000):
                made.add(key)
        else:
            made.update(np.arange(1_000) if way == "buffer" else range(1_000))


@pytest.mark.parametrize(
    "operation", [operator.or_, operator.and_, operator.ior, operator.iand, operator.le, operator.ge]
)
def test_operations_with_other_filters_are_refused(operation: Callable[[object, object], object]) -> None:
    made = grown(1_000)
    before = bytes(made)
    for other in (grown(1_000), BloomFilter(100, 0.01, encode="int64"), CountingBloomFilter(100, 0.01, encode="int64")):
        for operands in ((made, other), (other, made)):
            with pytest.raises(MismatchError, match="a scalable filter has no operations with other filters"):
                operation(*operands)
    for foreign in (5, None, "filter"):
        with pytest.raises(TypeError):
            operation(made, foreign)
    assert bytes(made) == before


def core(cells: int = 64, **changes: Any) -> BitCore:
    arguments: dict[str, Any] = {"cells": cells, "hash_funcs": 2, "family": 2, "key": bytes(16), "buffer": None}
    return BitCore(**{**arguments, **changes})


def test_slices_of_a_series_share_family_key_and_encoding() -> None:
    made = SeriesCore([core(), core(128)])
    for other in (core(family=3), core(key=b"\1" * 16), core(encoding=1)):
        with pytest.raises(MismatchError, match="the same hash family, key and encoding"):
            SeriesCore([core(), other])
        with pytest.raises(MismatchError, match="the same hash family, key and encoding"):
            made.append(other, 9)
    for wrong in ([], [core()] * 65):
        with pytest.raises(ParameterError, match="a series must have 1 to 64 slices, not"):
            SeriesCore(wrong)
    for bad in ([5], [core(), None], 7):
        with pytest.raises(TypeError):
            SeriesCore(bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="initialized only once"):
        made.__init__([core()])  # type: ignore[misc]
    assert made.append(core(), 1) is False
    assert made.append(core(), 2) is True
    assert len(made.slices) == 3
    with pytest.raises(CapacityError, match="at most 64 slices"):
        SeriesCore([core()] * 64).append(core(), 64)


def test_a_series_without_room_requests_it_or_refuses() -> None:
    slices = [core(), core(4_096)]
    slices[1].room = 2
    made = SeriesCore(slices)
    assert made.update([b"a", b"b"]) == 2
    calls: list[Callable[[], object]] = [lambda: made.add(b"c"), lambda: made.update([b"a", b"c"])]
    for call in calls:
        with pytest.raises(CapacityError, match="no room for another key"):
            call()
    assert made.add(b"a") is False
    assert made.contains_many([b"a", b"b", b"c"]) == b"\1\1\0"

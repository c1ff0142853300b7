"""Batches of keys: iterables and buffers, filters over external memory."""

from __future__ import annotations

import array
import ctypes
import itertools
import mmap
import multiprocessing
import os
import random
import zlib
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import Bip37Hash, CustomHash, FastHash, HashFamily, SipHash
from spvfilter.errors import ParameterError, ReadOnlyError

KEYS = [bytes([i]) * 5 + b"key" for i in range(40)]
GRID = np.frombuffer(b"".join(KEYS), np.uint8).reshape(40, 8)
kinds = pytest.mark.parametrize("kind", [BloomFilter, CountingBloomFilter])


def random_keys(seed: int, count: int, width: int = 20) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(width) for _ in range(count)]


# Batches


class Once:
    """An object that can only be iterated."""

    def __iter__(self) -> Iterator[bytes]:
        return iter(KEYS)


BATCHES: dict[str, Callable[[], Any]] = {
    "list": lambda: KEYS,
    "tuple": lambda: tuple(KEYS),
    "generator": lambda: (key for key in KEYS),
    "iterable": Once,
    "dict": lambda: dict.fromkeys(KEYS),
    "bytearrays": lambda: [bytearray(key) for key in KEYS],
    "rows": lambda: list(GRID),
    "uint8": lambda: GRID,
    "int8": lambda: GRID.view(np.int8),
    "read-only": lambda: np.frombuffer(b"".join(KEYS), np.uint8).reshape(40, 8),
    "uint64": lambda: GRID.view(np.uint64).ravel(),
    "int64": lambda: GRID.view(np.int64).ravel(),
    "array": lambda: array.array("q", b"".join(KEYS)),
    "memoryview": lambda: memoryview(b"".join(KEYS)).cast("B", [40, 8]),
    "chars": lambda: memoryview(b"".join(KEYS)).cast("c", [40, 8]),
    "cast": lambda: memoryview(bytearray(b"".join(KEYS))).cast("Q"),
    "ctypes": lambda: (ctypes.c_uint64 * 40).from_buffer_copy(b"".join(KEYS)),
    "slice": lambda: np.vstack([GRID, GRID])[:40],
}


@kinds
@pytest.mark.parametrize("form", BATCHES)
def test_a_batch_in_any_form_equals_its_keys(kind: Any, form: str) -> None:
    made, single = kind(60, 0.01), kind(60, 0.01)
    new = sum(single.add(key) for key in KEYS)
    assert made.update(BATCHES[form]()) == new
    assert made == single
    half = kind(60, 0.01)
    half.update(KEYS[::2])
    batch = BATCHES[form]()
    mask = half.contains_many(batch)
    assert isinstance(mask, np.ndarray if isinstance(batch, np.ndarray) else bytes)
    assert list(mask) == [key in half for key in KEYS]
    assert 20 <= sum(mask) < 25


@pytest.mark.parametrize(
    ("typecode", "width"), [("h", 2), ("H", 2), ("i", 4), ("I", 4), ("l", 8), ("L", 8), ("q", 8), ("Q", 8)]
)
def test_a_row_of_integers_is_a_row_of_keys(typecode: str, width: int) -> None:
    raw = bytes(range(64))
    made, single = BloomFilter(60, 0.01), BloomFilter(60, 0.01)
    assert array.array(typecode).itemsize == width
    made.update(array.array(typecode, raw))
    single.update(raw[at : at + width] for at in range(0, 64, width))
    assert made == single


@kinds
def test_integers_are_numbers_if_the_filter_encodes_them(kind: Any) -> None:
    for encode, numbers in (("int64", [0, -1, -(2**63), 2**63 - 1]), ("uint64", [0, 1, 2**63, 2**64 - 1])):
        dtype = np.dtype(encode)
        made, single = kind(60, 0.01, encode=encode), kind(60, 0.01, encode=encode)
        for number in numbers:
            single.add(number)
        assert made.update(np.array(numbers, dtype)) == 4
        assert made == single
        assert made.contains_many(np.array([*numbers, 12345], dtype)) == b"\1\1\1\1\0"
        assert made.contains_many(list(np.array(numbers, dtype))) == b"\1\1\1\1"
        assert made.contains_many(array.array("q" if encode == "int64" else "Q", numbers)) == b"\1\1\1\1"


@given(hnp.arrays(np.uint8, st.tuples(st.integers(0, 9), st.integers(0, 5))))
def test_a_grid_of_bytes_has_one_key_a_row(grid: Any) -> None:
    made, single = BloomFilter(bits=64, hash_funcs=3), BloomFilter(bits=64, hash_funcs=3)
    rows = [row.tobytes() for row in grid]
    assert made.update(grid) == sum(map(single.add, rows))
    assert made == single
    assert made.contains_many(grid) == b"\1" * len(rows)


@kinds
@pytest.mark.parametrize(
    "empty", [[], (), iter(()), np.zeros((0, 20), np.uint8), np.zeros(0, np.int64), array.array("q")]
)
def test_an_empty_batch_adds_no_key(kind: Any, empty: Any) -> None:
    made = kind(10, 0.1)
    assert made.update(empty) == 0
    assert made.contains_many(empty) == b""
    assert not made


@kinds
@pytest.mark.parametrize("key", [b"key", bytearray(b"key"), "key", b"", ""])
def test_a_single_key_is_no_batch(kind: Any, key: Any) -> None:
    made = kind(10, 0.1)
    for call in (made.update, made.contains_many):
        with pytest.raises(TypeError, match=f"expected a batch of keys, not one {type(key).__name__}"):
            call(key)
    assert not made


@pytest.mark.parametrize(
    ("encode", "batch", "message"),
    [
        (None, memoryview(b"key"), "not a buffer of 'B' with 1"),
        (None, array.array("B", b"key"), "not a buffer of 'B' with 1"),
        (None, np.zeros(4, np.uint8), "not a buffer of 'B' with 1"),
        (None, np.zeros((2, 2, 2), np.uint8), "not a buffer of 'B' with 3"),
        (None, np.zeros((2, 2), np.int64), "not a buffer of 'l' with 2"),
        (None, np.zeros(2, np.float64), "not a buffer of 'd' with 1"),
        (None, np.zeros((2, 2), np.bool_), "not a buffer of '\\?' with 2"),
        (None, np.zeros(2, ">i8"), "not a buffer of '>q' with 1"),
        (None, np.zeros((2, 2), "S3"), "not a buffer of '3s' with 2"),
        (None, np.array([["a"]], object), "an array of keys must have one dimension, not 2"),
        (None, np.zeros(2, "M8[s]"), "text, byte strings or integers, not datetime64"),
        (None, np.zeros((2, 2), "V3"), "not a buffer of '3x' with 2"),
        (None, np.zeros(2, "S3"), r"\.view\('V3'\) or uint8\[n, 3\]"),
        (None, np.zeros(2, [("a", "i4")]), "not a buffer of 'T{i:a:}' with 1"),
        (None, np.array(["a"]), "expected a column of binary, not of text: other keys need `encode`"),
        (None, np.int64(1), "not a buffer of 'l' with 0"),
        (None, np.array(1), "not a buffer of 'l' with 0"),
        ("int64", np.zeros((2, 2), np.int64), "integers in one dimension, not a buffer of 'l' with 2"),
        ("int64", GRID, "integers in one dimension, not a buffer of 'B' with 2"),
        ("int64", np.zeros(2), "integers in one dimension, not a buffer of 'd' with 1"),
        ("int64", np.zeros(2, np.bool_), "integers in one dimension, not a buffer of '\\?' with 1"),
        (
            "int64",
            np.array(["a"]),
            "expected a column of integers, not of text: the filter encodes its keys as integers",
        ),
        ("utf-8", np.array([b"a"]), "expected a column of text, not of binary: the filter encodes its keys as utf-8"),
        ("utf-8", np.array([1]), "expected a column of text, not of integers: the filter encodes its keys as utf-8"),
        ("utf-8", GRID, "an iterable of keys for `encode`, or text in one dimension"),
        (bytes, GRID, "an iterable of keys for `encode`"),
        (None, 5, "keys: expected an iterable, a buffer or a column"),
        (None, ["key"], "the key must be bytes-like, not str"),
        ("utf-8", [b"key"], "the key must be a str"),
    ],
)
@kinds
def test_an_invalid_batch_is_refused(kind: Any, encode: Any, batch: Any, message: str) -> None:
    made = kind(10, 0.1, encode=encode)
    for call in (made.update, made.contains_many):
        with pytest.raises(TypeError, match=message):
            call(batch)
    assert not made


def test_a_batch_stops_at_its_first_bad_key() -> None:
    made = BloomFilter(10, 0.01)
    with pytest.raises(TypeError):
        made.update([b"a", "b", b"c"])
    assert list(made.contains_many([b"a", b"b", b"c"])) == [1, 0, 0]


# Bits in other memory


def test_a_filter_and_its_bytearray_share_bits() -> None:
    memory = bytearray(32)
    made = BloomFilter(bits=256, hash_funcs=4, buffer=memory)
    made.add(b"a")
    assert made.buffer is memory
    assert sum(byte.bit_count() for byte in memory) == made.set_bits() == len(set(made.positions(b"a")))
    assert all(memory[at >> 3] >> (at & 7) & 1 for at in made.positions(b"a"))
    assert b"a" in BloomFilter(bits=256, hash_funcs=4, buffer=memory)
    memory[:] = bytes(32)
    assert b"a" not in made


@pytest.mark.parametrize("memory", [array.array("Q", bytes(32)), np.zeros(4, np.uint64), np.zeros((4, 8), np.uint8)])
def test_any_contiguous_buffer_of_the_size_is_accepted(memory: Any) -> None:
    made, plain = (BloomFilter(bits=256, hash_funcs=4, buffer=buffer) for buffer in (memory, None))
    made.update(KEYS)
    plain.update(KEYS)
    assert bytes(memory) == bytes(plain.buffer)


def test_bits_in_an_anonymous_map() -> None:
    memory = mmap.mmap(-1, 4096)
    made = BloomFilter(bits=4096 * 8, hash_funcs=4, buffer=memory)
    made.update(KEYS)
    assert all(made.contains_many(KEYS))
    assert sum(byte.bit_count() for byte in memory[:]) == made.set_bits()


def test_bits_in_a_mapped_file_outlive_the_filter(tmp_path: Path) -> None:
    path = tmp_path / "bits"
    path.write_bytes(bytes(4096))
    with path.open("r+b") as file:
        made = BloomFilter(bits=4096 * 8, hash_funcs=4, buffer=mmap.mmap(file.fileno(), 4096))
    made.update(KEYS)
    del made
    with path.open("rb") as file:
        again = BloomFilter(bits=4096 * 8, hash_funcs=4, buffer=mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ))
    assert all(again.contains_many(KEYS))
    with pytest.raises(ReadOnlyError):
        again.add(b"other")


def add_from_another_process(name: str) -> None:
    memory = SharedMemory(name)
    # memory.buf exists until it is closed
    shared = BloomFilter(bits=8192, hash_funcs=4, buffer=memory.buf[:1024])  # type: ignore[index]
    assert KEYS[0] in shared
    shared.update(KEYS[20:])
    del shared
    memory.close()


@pytest.mark.posix
def test_two_processes_share_a_filter_in_shared_memory() -> None:
    memory = SharedMemory(create=True, size=1024)
    try:
        # memory.buf exists until it is closed
        made = BloomFilter(bits=8192, hash_funcs=4, buffer=memory.buf[:1024])  # type: ignore[index]
        made.update(KEYS[:20])
        other = multiprocessing.get_context("fork").Process(target=add_from_another_process, args=(memory.name,))
        other.start()
        other.join(60)
        assert other.exitcode == 0
        assert all(made.contains_many(KEYS))
        del made
    finally:
        memory.close()
        memory.unlink()


@pytest.mark.posix
@pytest.mark.parametrize("bits", [256, 1 << 24])
def test_a_forked_child_changes_its_own_copy(bits: int) -> None:
    made = BloomFilter(bits=bits, hash_funcs=4)
    child = multiprocessing.get_context("fork").Process(target=made.add, args=(b"key",))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert b"key" not in made


@pytest.mark.posix
@pytest.mark.parametrize(("hashing", "partitioned"), [(FastHash(), False), (SipHash(bytes(16)), True)])
def test_positions_reach_beyond_2_to_the_32_bits(tmp_path: Path, hashing: HashFamily, partitioned: bool) -> None:
    bits, keys = (1 << 33) + 8 * 7, random_keys(33, 100)
    bits -= bits % 7
    size = (bits + 7) // 8
    path = tmp_path / "sparse"
    with path.open("w+b") as file:
        file.truncate(size)
        made = BloomFilter(
            bits=bits, hash_funcs=7, hashing=hashing, partitioned=partitioned, buffer=mmap.mmap(file.fileno(), size)
        )
        assert not any(made.contains_many(keys))
        assert made.update(keys) == 100
        assert all(made.contains_many(keys))
        assert not any(made.contains_many(random_keys(34, 20)))
        positions = [at for key in keys for at in made.positions(key)]
        assert max(positions) < bits
        assert 300 < sum(at >= 1 << 32 for at in positions) < 400
        for at in positions[:50]:
            assert os.pread(file.fileno(), 1, at >> 3)[0] >> (at & 7) & 1
        assert os.fstat(file.fileno()).st_blocks * 512 < 50_000_000


class Changing:
    """A number that changes its own list when it is read."""

    def __init__(self, number: int, change: Callable[[], object]) -> None:
        self.number, self.change = number, change

    def __index__(self) -> int:
        self.change()
        return self.number


@pytest.mark.parametrize("ask", [False, True])
@pytest.mark.parametrize("at", [0, 3, 15, 16, 17, 40])
@pytest.mark.parametrize("how", ["cut", "replace", "grow"])
def test_a_list_that_changes_is_read_as_by_a_loop(ask: bool, at: int, how: str) -> None:
    """The list has the only references to these large numbers. A removed key must not be read."""

    def batch() -> list[Any]:
        keys: list[Any] = [(1 << 40) + number for number in range(60)]

        def change() -> None:
            rest = keys[at + 1 :]
            del keys[at + 1 :]
            if how != "cut":
                keys.extend((1 << 50) + number for number in range(len(rest) if how == "replace" else 100))
            del rest

        keys[at] = Changing(5, change)
        return keys

    expected = [key.__index__() for key in batch()]
    made = BloomFilter(1_000, 1e-6, encode="int64")
    if ask:
        made.update(expected[::2])
        assert made.contains_many(batch()) == bytes(number in made for number in expected)
    else:
        assert made.update(batch()) == len(set(expected))
        assert made.contains_many(expected) == b"\1" * len(expected)


# Built in one call


def test_build_equals_an_updated_filter() -> None:
    options: list[tuple[Any, dict[str, Any]]] = [
        (KEYS, {"hashing": SipHash(bytes(16)), "partitioned": True}),
        (iter(KEYS), {"hashing": FastHash(9)}),
        (KEYS, {"hashing": Bip37Hash(5), "hash_funcs": 3}),
        (KEYS, {"hashing": CustomHash("crc", zlib.crc32)}),
        (["ä", "b"], {"encode": "utf-8"}),
        ([-1, 5], {"encode": "int64"}),
        (np.array([-1, 5]), {"encode": "int64"}),
        (["ä", "b"], {"encode": str.encode}),
        (np.zeros((3, 0), np.uint8), {}),
        ([], {}),
    ]
    for keys, option in options:
        updated = BloomFilter(100, 0.01, **option)
        updated.update(KEYS if isinstance(keys, Iterator) else keys)
        built = BloomFilter.build(keys, 100, 0.01, **option)
        assert built == updated
        assert (built.capacity, built.nominal_fp_rate) == (100, 0.01)


def test_a_bad_key_ends_a_build_in_any_form() -> None:
    for keys in (["str"], itertools.chain(KEYS, [1]), b"one key", memoryview(b"one key"), np.zeros((2, 2)), 5):
        with pytest.raises(TypeError):
            BloomFilter.build(keys, 100, 0.01)  # type: ignore[arg-type]  # a bad batch, and refused
    with pytest.raises(TypeError, match="expected a batch of keys, not one str"):
        BloomFilter.build("word", 100, 0.01, encode="utf-8")


def test_a_build_refuses_the_same_arguments_as_a_filter() -> None:
    with pytest.raises(ParameterError, match="fp_rate"):
        BloomFilter.build(KEYS, 100, 1.0)

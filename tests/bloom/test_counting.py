"""CountingBloomFilter against a model of keys that share counters; saturation, removal, union, files."""

from __future__ import annotations

import math
import pickle
import random
import struct
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spvfilter.bloom import sizing
from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import Bip37Hash, CustomHash, FastHash, HashFamily, SipHash
from spvfilter.errors import MismatchError, ParameterError, ReadOnlyError
from support.vectors import effort

FAMILIES: list[HashFamily] = [FastHash(3), SipHash(bytes(16)), Bip37Hash(3), CustomHash("crc", zlib.crc32)]
KEYS = [bytes([i]) for i in range(10)]
SHAPE: dict[str, Any] = {"bits": 17, "hash_funcs": 3}  # an odd number of counters, which most keys share


def counters(made: CountingBloomFilter) -> list[int]:
    """Return all counters, with the unused nibble of an odd number of 4-bit counters."""
    raw = made.dump()
    match made.counter_bits:
        case 4:
            return [int(digit, 16) for byte in raw for digit in reversed(f"{byte:02x}")]
        case 8:
            return list(raw)
        case _:
            return list(struct.unpack(f"<{len(raw) // 2}H", raw))


class Model(RuleBasedStateMachine):
    """Random additions and removals of added keys, compared with the true counts and counters."""

    def __init__(self) -> None:
        super().__init__()
        self.made = CountingBloomFilter(**SHAPE)
        self.keys = Counter[bytes]()
        self.cells = [0] * 17

    @initialize(counter_bits=st.sampled_from([4, 8, 16]), hash_funcs=st.sampled_from([1, 3]))
    def choose(self, counter_bits: int, hash_funcs: int) -> None:
        self.made = CountingBloomFilter(**SHAPE | {"hash_funcs": hash_funcs}, counter_bits=counter_bits)
        self.limit = (15, 255, 65_535)[(4, 8, 16).index(counter_bits)]

    def move(self, key: bytes, step: int) -> None:
        for cell in set(self.made.positions(key)):
            if self.cells[cell] < self.limit:
                self.cells[cell] = min(self.cells[cell] + step, self.limit)

    @rule(key=st.sampled_from(KEYS), short=st.integers(0, 14))
    def add_often(self, key: bytes, short: int) -> None:
        times = self.limit - short
        new = any(not self.cells[cell] for cell in self.made.positions(key))
        assert self.made.update([key] * times) == new
        self.keys[key] += times
        self.move(key, times)

    @rule(key=st.sampled_from(KEYS))
    def add(self, key: bytes) -> None:
        new = any(not self.cells[cell] for cell in self.made.positions(key))
        assert self.made.add(key) is new
        self.keys[key] += 1
        self.move(key, 1)

    @precondition(lambda self: self.keys.total())
    @rule(data=st.data())
    def remove_what_was_added(self, data: Any) -> None:
        key = data.draw(st.sampled_from(sorted(key for key, count in self.keys.items() if count)))
        self.made.remove(key)
        self.keys[key] -= 1
        self.move(key, -1)

    @rule(key=st.binary(min_size=2, max_size=3))
    def remove_what_is_absent(self, key: bytes) -> None:
        if not all(self.cells[cell] for cell in self.made.positions(key)):
            with pytest.raises(KeyError) as caught:
                self.made.remove(key)
            assert caught.value.args == (key,)

    @invariant()
    def nothing_is_lost(self) -> None:
        assert counters(self.made)[:17] == self.cells
        for key in KEYS:
            assert self.made.count(key) == min(self.cells[cell] for cell in self.made.positions(key))
            assert self.made.count(key) >= min(self.keys[key], self.made.counter_limit)
            assert (key in self.made) is (self.made.count(key) > 0)
        assert self.made.set_cells() == sum(map(bool, self.cells))
        assert bool(self.made) is any(self.cells)
        assert self.made.stuck_counters == self.cells.count(self.made.counter_limit)
        bits = sum(bool(value) << cell for cell, value in enumerate(self.cells))
        assert int.from_bytes(self.made.to_bits(), "little") == bits
        assert CountingBloomFilter.from_bytes(bytes(self.made)) == self.made

    @rule(times=st.integers(1, 3))
    def merge(self, times: int) -> None:
        """Add the counters of a copy to the filter, so that sums reach the limit."""
        for _ in range(times):
            self.made |= self.made.copy()
            self.cells = [min(2 * value, self.limit) for value in self.cells]
            self.keys = Counter({key: 2 * count for key, count in self.keys.items()})


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=effort(10, 40, 1_000), stateful_step_count=60)


@pytest.mark.parametrize("hashing", FAMILIES, ids=lambda hashing: hashing.family.name)
@pytest.mark.parametrize("partitioned", [False, True])
def test_removing_all_keys_empties_the_filter(hashing: HashFamily, partitioned: bool) -> None:
    rng = random.Random(1)
    keys = [rng.randbytes(20) for _ in range(500)]
    made = CountingBloomFilter(500, 0.01, hashing=hashing, partitioned=partitioned)
    made.update(keys)
    assert all(made.contains_many(keys))
    assert made.current_fp_rate == pytest.approx(0.01, rel=0.25)
    for key in keys[:250]:
        made.remove(key)
    assert all(made.contains_many(keys[250:]))
    assert sum(made.contains_many(keys[:250])) < 10
    for key in keys[250:]:
        made.remove(key)
    assert bytes(made.buffer) == bytes(len(made.buffer))  # type: ignore[arg-type]  # of a wrong type, and refused
    assert not made


def test_a_key_counts_once_in_each_of_its_counters() -> None:
    made = CountingBloomFilter(bits=1, hash_funcs=7)
    made.add(b"a")
    assert counters(made) == [1, 0]
    assert made.count(b"a") == 1
    made.remove(b"a")
    assert counters(made) == [0, 0]


def test_a_saturated_counter_sticks() -> None:
    made = CountingBloomFilter(100, 0.01)
    for times in range(1, 21):
        made.add(b"often")
        assert made.count(b"often") == min(times, 15)
    assert made.counter_limit == 15
    for _ in range(40):
        made.remove(b"often")
    assert made.count(b"often") == 15
    neighbour = next(
        key for key in (bytes([i]) for i in range(256)) if set(made.positions(key)) & set(made.positions(b"often"))
    )
    made.add(neighbour)
    made.remove(neighbour)
    assert b"often" in made
    assert neighbour not in made


def test_a_key_added_14_times_can_be_removed() -> None:
    made = CountingBloomFilter(100, 0.01)
    for _ in range(14):
        made.add(b"often")
    for _ in range(14):
        made.remove(b"often")
    assert b"often" not in made
    with pytest.raises(KeyError):
        made.remove(b"often")


def test_a_partly_present_key_is_not_removed() -> None:
    made = CountingBloomFilter(bits=64, hash_funcs=4)
    made.add(b"a")
    before = bytes(made.buffer)
    partly = next(
        key
        for key in (bytes([i, 0]) for i in range(256))
        if 0 < len(set(made.positions(key)) & set(made.positions(b"a"))) < 4
    )
    with pytest.raises(KeyError):
        made.remove(partly)
    assert bytes(made.buffer) == before


@given(st.lists(st.sampled_from(KEYS), max_size=60), st.lists(st.sampled_from(KEYS), max_size=60))
def test_a_union_is_the_saturated_sum(first: list[bytes], second: list[bytes]) -> None:
    left, right = CountingBloomFilter(**SHAPE), CountingBloomFilter(**SHAPE)
    left.update(first)
    right.update(second)
    sums = [min(mine + theirs, 15) for mine, theirs in zip(counters(left), counters(right), strict=True)]
    both = left | right
    assert counters(both) == sums
    assert type(both) is CountingBloomFilter
    left |= right
    assert left == both
    assert CountingBloomFilter.from_bytes(bytes(both)) == both


@given(st.lists(st.sampled_from(KEYS), max_size=20), st.integers(1, 70), st.integers(1, 5))
def test_to_bloom_equals_a_filter_of_the_same_keys(keys: list[bytes], cells: int, hash_funcs: int) -> None:
    for planes in (False, True):
        shape: dict[str, Any] = {
            "bits": cells * hash_funcs,
            "hash_funcs": hash_funcs,
            "partitioned": planes,
            "hashing": FastHash(4),
        }
        made, plain = CountingBloomFilter(**shape), BloomFilter(**shape)
        made.update(keys)
        plain.update(keys)
        assert made.to_bloom() == plain
        assert (made.fill, made.current_fp_rate, made.approx_len) == (
            plain.fill,
            plain.current_fp_rate,
            plain.approx_len,
        )


def test_to_bloom_works_across_chunk_borders() -> None:
    shape: dict[str, Any] = {"bits": 3 * (1 << 20) + 5, "hash_funcs": 3}  # 1.5 MiB of counters
    made, plain = CountingBloomFilter(**shape), BloomFilter(**shape)
    keys = [bytes([i, j]) for i in range(50) for j in range(50)]
    made.update(keys)
    plain.update(keys)
    assert made.to_bloom() == plain
    assert made.set_cells() == plain.set_bits()


def test_to_bloom_keeps_capacity_and_encoding_and_is_independent() -> None:
    made = CountingBloomFilter(100, 0.01, encode="utf-8")
    made.add("a")
    plain = made.to_bloom()
    assert (plain.capacity, plain.nominal_fp_rate) == (100, 0.01)
    made.remove("a")
    assert "a" in plain
    with pytest.raises(TypeError):
        plain.add(b"a")


def test_lengths_are_estimates_and_a_full_filter_has_none() -> None:
    made = CountingBloomFilter(1000, 0.01)
    made.update(i.to_bytes(4, "big") for i in range(1000))
    assert len(made) == round(made.approx_len) == pytest.approx(1000, rel=0.05)
    full = CountingBloomFilter(bits=2, hash_funcs=1, buffer=bytearray(b"\x21"))
    assert (full.approx_len, full.fill, full.current_fp_rate) == (math.inf, 1.0, 1.0)
    with pytest.raises(OverflowError):
        len(full)


def test_the_chance_of_a_stuck_counter_is_right() -> None:
    made = CountingBloomFilter(10**6, 0.01)
    assert made.counter_overflow == sizing.counter_overflow(made.cells, made.hash_funcs, 10**6)
    assert made.counter_overflow == pytest.approx(1.6e-15, rel=0.1)
    assert CountingBloomFilter(bits=64, hash_funcs=2).counter_overflow is None


def test_counters_stick_as_often_as_computed() -> None:
    shape: dict[str, Any] = {"bits": 2000, "hash_funcs": 4}
    made = CountingBloomFilter(**shape)
    made.update(i.to_bytes(8, "little") for i in range(5000))  # 10 for each counter
    expected = 2000 * sizing.counter_overflow(2000, 4, 5000)
    assert 100 < expected < 250
    assert abs(counters(made).count(15) - expected) < 4 * expected**0.5


def test_files_and_pickles_keep_the_counters(tmp_path: Path) -> None:
    made = CountingBloomFilter(100, 0.01, hashing=SipHash(bytes(16)))
    made.update(KEYS * 3)
    for again in (CountingBloomFilter.from_bytes(bytes(made)), pickle.loads(pickle.dumps(made)), made.copy()):
        assert again == made
        assert again.count(KEYS[0]) == 3
        again.remove(KEYS[0])
        assert made.count(KEYS[0]) == 3
    made.save(tmp_path / "f")
    with CountingBloomFilter.open(tmp_path / "f", mmap=True, writable=True) as mapped:
        mapped.remove(KEYS[0])
        assert mapped.count(KEYS[0]) == 2
    assert CountingBloomFilter.open(tmp_path / "f").count(KEYS[0]) == 2
    frozen = CountingBloomFilter.open(tmp_path / "f", mmap=True)
    for change in (
        lambda: frozen.add(b"x"),
        lambda: frozen.remove(KEYS[0]),
        lambda: frozen.clear(),
        lambda: frozen.update(KEYS),
        lambda: frozen.__ior__(made),
    ):
        with pytest.raises(ReadOnlyError):
            change()
    assert frozen.count(KEYS[0]) == 2


def test_copy_and_clear_are_independent() -> None:
    made = CountingBloomFilter(100, 0.01)
    made.add(b"a")
    twin = made.copy()
    made.clear()
    assert not made
    assert b"a" in twin
    assert twin != made


def test_counting_and_plain_filters_never_mix() -> None:
    made, plain = CountingBloomFilter(**SHAPE), BloomFilter(**SHAPE)
    assert made != plain
    for operation in (
        lambda: made | plain,  # type: ignore[operator]
        lambda: plain | made,  # type: ignore[operator]
        lambda: made.__ior__(plain) | 1,  # type: ignore[arg-type, operator]
        lambda: plain <= made,  # type: ignore[operator]
    ):  # of a wrong type, and refused
        with pytest.raises(TypeError):
            operation()
    with pytest.raises(MismatchError, match="the filters differ in cells: 17 and 18"):
        _ = made | CountingBloomFilter(bits=18, hash_funcs=3)
    with pytest.raises(TypeError):
        _ = made & made  # type: ignore[operator]


def test_a_byte_of_the_buffer_has_two_counters() -> None:
    # of a wrong type, and refused
    assert len(CountingBloomFilter(bits=17, hash_funcs=2).buffer) == 9  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="expected a buffer of 9 bytes, not 17"):
        CountingBloomFilter(bits=17, hash_funcs=2, buffer=bytearray(17))


@given(st.lists(st.integers(0, 15), min_size=1, max_size=400))
def test_stuck_counters_are_counted(counters: list[int]) -> None:
    body = bytearray((len(counters) + 1) // 2)
    for at, value in enumerate(counters):
        body[at >> 1] |= value << 4 * (at & 1)
    made = CountingBloomFilter(bits=len(counters), hash_funcs=2, buffer=body)
    assert made.stuck_counters == counters.count(15)


def test_a_key_added_15_times_sticks_and_is_counted() -> None:
    made = CountingBloomFilter(1_000, 0.01)
    for _ in range(14):
        made.add(b"hot")
    assert made.stuck_counters == 0
    made.add(b"hot")
    assert made.stuck_counters == made.hash_funcs
    for _ in range(20):
        made.remove(b"hot")
    assert (b"hot" in made, made.stuck_counters) == (True, made.hash_funcs)

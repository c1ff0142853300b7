"""Types of keys and of sizes: which are taken, and the error for all others."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from spvfilter.bloom import BloomFilter, CountingBloomFilter, ScalableBloomFilter, Size, sizing
from spvfilter.bloom.exchange import SplitBlockFilter, redisbloom_filter, spark_filter
from spvfilter.errors import KeyRangeError, ParameterError, SpvFilterError

FILTERS: dict[str, Callable[[str], Any]] = {
    "plain": lambda encode: BloomFilter(100, 0.01, encode=encode),
    "counting": lambda encode: CountingBloomFilter(100, 0.01, encode=encode),
    "scalable": lambda encode: ScalableBloomFilter(100, 0.01, encode=encode),
}
CALLS: dict[str, Callable[[Any, Any], object]] = {
    "in": lambda made, key: key in made,
    "add": lambda made, key: made.add(key),
    "update": lambda made, key: made.update([key]),
    "update of an iterator": lambda made, key: made.update(iter([key])),
    "contains_many": lambda made, key: made.contains_many([key]),
    "remove": lambda made, key: made.remove(key),
    "remove_many": lambda made, key: made.remove_many([key]),
    "count": lambda made, key: made.count(key),
}
ONLY_COUNTING = ("remove", "remove_many", "count")
OUTSIDE: dict[str, list[Any]] = {
    "int64": [1 << 63, -(1 << 63) - 1, 10**5000],
    "uint64": [-1, 1 << 64],
    "int32": [1 << 31, -(1 << 31) - 1, np.int64(1 << 31)],
    "uint32": [-1, 1 << 32],
}


@pytest.mark.parametrize("encode", OUTSIDE)
@pytest.mark.parametrize(
    ("kind", "call"),
    [(kind, call) for kind in FILTERS for call in CALLS if kind == "counting" or call not in ONLY_COUNTING],
)
def test_int_out_of_range_is_a_type_error_everywhere(kind: str, call: str, encode: str) -> None:
    made = FILTERS[kind](encode)
    for key in (*OUTSIDE[encode], "1", True, 1.0, None):
        with pytest.raises(TypeError) as caught:
            CALLS[call](made, key)
        is_int = isinstance(key, (int, np.integer)) and not isinstance(key, bool)
        assert isinstance(caught.value, KeyRangeError) == is_int
        if is_int:
            assert str(caught.value) == f"the int is outside the range of {encode}, the type of the filter's keys"
            assert isinstance(caught.value, OverflowError)  # as in earlier versions
            assert isinstance(caught.value, SpvFilterError)
    assert not made


@pytest.mark.parametrize(("encode", "wrong"), [(None, "text"), ("utf-8", b"bytes"), ("int64", 0.5), ("uint32", "1")])
@pytest.mark.parametrize("kind", FILTERS)
def test_a_key_of_a_wrong_type_is_named(kind: str, encode: Any, wrong: object) -> None:
    made = FILTERS[kind](encode)
    for name, call in CALLS.items():
        if kind == "counting" or name not in ONLY_COUNTING:
            with pytest.raises(TypeError, match=rf"^the key must be .*, not {type(wrong).__name__}: .*\bkeys\b"):
                call(made, wrong)
    for keys in (5, None, object()):
        wanted = f"^keys: expected an iterable, a buffer or a column, not {type(keys).__name__}$"
        for batch in (made.update, made.contains_many):
            with pytest.raises(TypeError, match=wanted):
                batch(keys)


@pytest.mark.parametrize("encode", OUTSIDE)
def test_number_out_of_range_in_a_column_is_refused(encode: str) -> None:
    made = BloomFilter(100, 0.01, encode=encode)
    column = np.array([1, -1] if encode.startswith("u") else [1, 1 << 63], "i8" if encode.startswith("u") else "u8")
    for call in (made.update, made.contains_many):
        with pytest.raises(TypeError, match=f"key 1: {column[1]} does not fit into {encode}"):
            call(column)


SIZED: dict[str, Callable[[Any, Any], Any]] = {
    "BloomFilter": BloomFilter,
    "CountingBloomFilter": CountingBloomFilter,
    "ScalableBloomFilter": ScalableBloomFilter,
    "SplitBlockFilter": SplitBlockFilter,
    "spark_filter": spark_filter,
    "redisbloom_filter": redisbloom_filter,
    "Size.of": Size.of,
    "sizing.optimal": sizing.optimal,
    "sizing.bits_for": lambda capacity, rate: sizing.bits_for(capacity, rate, np.uint8(3)),  # type: ignore[arg-type]
    "BloomFilter.load": lambda capacity, rate: BloomFilter.load(BloomFilter(1_000, 0.25).dump(), capacity, rate),
}


@pytest.mark.parametrize("make", SIZED.values(), ids=SIZED)
def test_numbers_of_numpy_are_capacities_and_rates(make: Callable[[Any, Any], Any]) -> None:
    expected = make(1_000, 0.25)
    for capacity in (np.int64(1_000), np.uint16(1_000), np.int32(1_000)):
        for rate in (np.float32(0.25), np.float64(0.25), np.float16(0.25), Fraction(1, 4)):
            made = make(capacity, rate)
            assert made == expected
            assert repr(made) == repr(expected)
            if hasattr(made, "nominal_fp_rate"):
                assert type(made.nominal_fp_rate) in (float, type(None))
                assert made.copy() == made == pickle.loads(pickle.dumps(made))


@pytest.mark.parametrize("make", SIZED.values(), ids=SIZED)
def test_bools_texts_and_fractions_are_no_capacities(make: Callable[[Any, Any], Any]) -> None:
    for capacity in (True, np.True_, "10", 10.0, Fraction(10), [10]):
        with pytest.raises(ParameterError, match="capacity must be an int, not"):
            make(capacity, 0.25)
    for rate in ("0.25", b"0.25", [0.25], 1j, None if make is not Size.of else "x", True, False, 0, 1, np.nan):
        with pytest.raises(ParameterError, match="rate"):
            make(1_000, rate)


def test_numbers_of_numpy_are_bits_and_functions() -> None:
    made = BloomFilter(bits=np.int64(640), hash_funcs=np.uint8(5))  # type: ignore[arg-type]
    assert made == BloomFilter(bits=640, hash_funcs=5)
    assert Size.of(np.int64(10), bits=np.int64(96)) == Size.of(10, bits=96)  # type: ignore[arg-type]
    grown = ScalableBloomFilter(10, 0.1, np.int8(3), np.float32(0.5), encode="int64")  # type: ignore[arg-type]
    grown.update(range(1_000))
    assert (grown.growth, grown.tightening, type(grown.growth)) == (3, 0.5, int)
    for bits, functions in ((True, 5), (640, True), (640, np.float64(5))):
        with pytest.raises(ParameterError, match="must be from 1 to"):
            BloomFilter(bits=bits, hash_funcs=functions)  # type: ignore[arg-type]

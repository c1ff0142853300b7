"""A key that a filter does not take is a TypeError, in every method that takes a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spvfilter.bloom import BloomFilter, CountingBloomFilter, ScalableBloomFilter
from spvfilter.errors import KeyRangeError, SpvFilterError

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
OUTSIDE = {
    "int64": [1 << 63, -(1 << 63) - 1, 10**5000],
    "uint64": [-1, 1 << 64],
    "int32": [1 << 31, -(1 << 31) - 1, np.int64(1 << 31)],
    "uint32": [-1, 1 << 32],
}


@pytest.mark.parametrize("encode", OUTSIDE)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", FILTERS)
def test_int_out_of_range_is_a_type_error_everywhere(kind: str, call: str, encode: str) -> None:
    made = FILTERS[kind](encode)
    if kind != "counting" and call in ("remove", "remove_many", "count"):
        pytest.skip("only a counting filter has this method")
    for key in (*OUTSIDE[encode], "1", True, 1.0, None):
        with pytest.raises(TypeError) as caught:
            CALLS[call](made, key)
        is_int = isinstance(key, (int, np.integer)) and not isinstance(key, bool)
        assert isinstance(caught.value, KeyRangeError) == is_int
        if is_int:
            assert str(caught.value) == f"the int is outside the range of {encode}, which the filter takes"
            assert isinstance(caught.value, OverflowError)  # as in earlier versions
            assert isinstance(caught.value, SpvFilterError)
    assert not made


@pytest.mark.parametrize("encode", OUTSIDE)
def test_number_out_of_range_in_a_column_is_a_type_error(encode: str) -> None:
    made = BloomFilter(100, 0.01, encode=encode)
    column = np.array([1, -1] if encode.startswith("u") else [1, 1 << 63], "i8" if encode.startswith("u") else "u8")
    for call in (made.update, made.contains_many):
        with pytest.raises(TypeError, match=f"key 1: {column[1]} does not fit into {encode}"):
            call(column)

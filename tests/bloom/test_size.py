"""Size: computed from two of capacity, rate and bits. Filters have the same values, and expectations hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from spvfilter.bloom import BloomFilter, CountingBloomFilter, Growth, ScalableBloomFilter, Size, sizing
from spvfilter.errors import ParameterError

RATES = st.floats(1e-8, 0.9)


@given(st.integers(1, 10**6), RATES, st.none() | st.integers(1, 20))
def test_a_size_equals_that_of_the_same_filter(capacity: int, rate: float, hash_funcs: int | None) -> None:
    size = Size.of(capacity, rate, hash_funcs)
    header = BloomFilter(capacity, rate, hash_funcs).header() if size.bits < 1 << 24 else None
    if header is not None:
        assert tuple(size) == (header.capacity, header.fp_rate, header.cells, header.hash_funcs)
        assert size.byte_size == header.body_size
        assert size.counting_byte_size == CountingBloomFilter(capacity, rate, hash_funcs).header().body_size
    assert size.expected(capacity).fp_rate <= rate


@given(st.integers(64, 10**9), RATES)
def test_a_size_computed_from_bits_keeps_the_rate(bits: int, rate: float) -> None:
    size = Size.of(fp_rate=rate, bits=bits)
    assert (size.bits, size.fp_rate) == (bits, rate)
    assert size.expected(size.capacity).fp_rate <= rate
    again = Size.of(size.capacity, bits=bits)
    assert (again.capacity, again.fp_rate, again.bits) == (size.capacity, None, bits)
    assert again.expected(size.capacity).fp_rate <= size.expected(size.capacity).fp_rate
    assert Size.of(size.capacity, bits=bits, hash_funcs=size.hash_funcs) == size._replace(fp_rate=None)
    assert Size.of(fp_rate=rate, bits=bits, hash_funcs=size.hash_funcs) == size


def test_three_functions_cost_the_published_space() -> None:
    best, three = Size.of(10_000_000, 0.001), Size.of(10_000_000, 0.001, 3)
    assert (best.hash_funcs, round(best.bits_per_key, 3)) == (10, 14.378)
    assert round(three.bits_per_key, 3) == 28.474
    assert three.expected(10_000_000).fp_rate_exact == pytest.approx(0.001, rel=1e-4)


@pytest.mark.parametrize("load", [0.5, 1, 2])
def test_a_filter_meets_its_expected_values(load: float) -> None:
    size = Size.of(20_000, 0.01)
    expected = size.expected(round(load * 20_000))
    made = BloomFilter(bits=size.bits, hash_funcs=size.hash_funcs)
    made.update(np.arange(expected.items))
    assert made.fill == pytest.approx(expected.fill, rel=0.02)
    assert made.current_fp_rate == pytest.approx(expected.fp_rate_exact, rel=0.1)
    assert expected.fp_rate == sizing.fp_rate(size.bits, size.hash_funcs, expected.items)
    assert expected.fp_rate_exact == sizing.fp_rate_exact(size.bits, size.hash_funcs, expected.items)
    assert expected.stuck_counters == expected.counter_overflow * size.bits


def test_the_number_of_stuck_counters_is_predicted() -> None:
    size = Size(1_000, None, 4_000, 3)
    made = CountingBloomFilter(bits=4_000, hash_funcs=3)
    made.update(np.arange(12_000))
    stuck = sum(value >> 4 == 15 for value in made.dump()) + sum(value & 15 == 15 for value in made.dump())
    assert stuck == pytest.approx(size.expected(12_000).stuck_counters, rel=0.15)


def test_very_many_functions_have_no_exact_rate() -> None:
    size = Size(10, None, 100_000, 257)
    assert size.expected(10).fp_rate_exact is None
    assert size._replace(hash_funcs=256).expected(10).fp_rate_exact is not None


@pytest.mark.parametrize("load", [0, 0.5, 0.9, 1.5, 2.8, 10])
def test_a_scalable_filter_meets_its_expected_values(load: float) -> None:
    plan = Growth(5_000, 0.01)
    expected = plan.expected(round(5_000 * load))
    made = ScalableBloomFilter(*plan)
    made.update(np.arange(expected.items))
    assert (len(made.slices), made.bits, made.slices[-1].hash_funcs) == (
        expected.slices,
        expected.bits,
        expected.most_hash_funcs,
    )
    assert made.current_fp_rate == pytest.approx(expected.fp_rate, rel=0.1)
    assert expected.fp_rate <= 0.01


def test_a_series_has_a_largest_size() -> None:
    with pytest.raises(ParameterError, match="65 slices, but at most 64"):
        Growth(1, 1e-3, tightening=0.99).expected(2**64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "two of capacity, fp_rate and bits determine the third: give exactly two, not none"),
        ({"hash_funcs": 3}, "not none"),
        ({"capacity": 5}, "not capacity$"),
        ({"bits": 5, "hash_funcs": 3}, "not bits$"),
        ({"fp_rate": 0.1}, "not fp_rate$"),
        ({"capacity": 5, "fp_rate": 0.1, "bits": 5}, "not capacity and fp_rate and bits"),
        ({"capacity": 5.0, "fp_rate": 0.1}, "capacity must be an int"),
        ({"capacity": 5, "bits": 5.5}, "bits must be an int"),
        ({"capacity": 5, "bits": 5, "hash_funcs": 0}, "hash_funcs must be at least 1"),
        ({"capacity": 5, "fp_rate": 1.0}, "fp_rate must be above 0 and below 1"),
        ({"fp_rate": 0.5, "bits": 0}, "bits must be at least 1"),
        ({"fp_rate": 1e-9, "bits": 3}, "3 bits with 29 hash functions exceed a rate of 1e-09 with a single key"),
        (
            {"fp_rate": 1e-9, "bits": 3, "hash_funcs": 2},
            "3 bits with 2 hash functions exceed a rate of 1e-09 with a single key",
        ),
        (
            {"fp_rate": 1e-300, "capacity": 10, "hash_funcs": 1},
            "10 items at fp_rate 1e-300 with 1 hash function would need more than",
        ),
    ],
)
def test_contradictory_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Size.of(**arguments)


def test_a_number_of_keys_out_of_range_is_refused() -> None:
    size = Size.of(100, 0.01)
    for items in (-1, 2**63, 1.5):
        with pytest.raises(ParameterError, match="items must be"):
            size.expected(items)  # type: ignore[arg-type]  # of a wrong type, and refused
    assert math.isclose(size.bits_per_key, size.bits / 100)


def test_a_rate_too_small_for_a_float_is_zero() -> None:
    assert str(Growth(1_000, 1e-300).expected(500).fp_rate) == "0.0"

"""Sizes and rates: published figures, well-known errors, properties, and a simulation with a fixed seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from spvfilter.bloom import sizing
from spvfilter.errors import ParameterError
from support.vectors import effort

N = 10_000_000
TERA = 10**13
RATES = st.floats(1e-8, 0.999)
CAPACITIES = st.integers(1, 10**10)
SMALL = (st.integers(2, 5_000), st.integers(1, 12), st.integers(0, 2_000))  # bits, hash_funcs, items


def printed(value: float, digits: str) -> bool:
    """Return True if `value` rounds to the printed digits, also in scientific notation."""
    mantissa, _, exponent = digits.partition("e")
    places = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return abs(value - float(digits)) <= 0.5000001 * 10.0**-places


def near(value: float, rel: float) -> object:
    """Equal to `value` within a relative error.

    By default pytest.approx also allows an absolute error, which accepts any rate below 1e-12.
    """
    return pytest.approx(value, rel=rel, abs=0.0)


def occupancy_rate(bits: int, hash_funcs: int, items: int) -> float:
    """The exact rate from the distribution of set bits after each throw; all terms are positive."""
    share = [1.0] + [0.0] * bits
    for _ in range(hash_funcs * items):
        share = [share[x] * x / bits + (share[x - 1] * (bits - x + 1) / bits if x else 0.0) for x in range(bits + 1)]
    return math.fsum(p * (x / bits) ** hash_funcs for x, p in enumerate(share))


# Published figures


def test_rates_of_1024_bits_are_as_published() -> None:
    assert printed(sizing.fp_rate(1024, 7, 107), "0.0101140")
    assert printed(sizing.fp_rate_exact(1024, 7, 107), "0.0101996")
    assert printed(sizing.fp_rate_bound(1024, 7, 107), "0.0103882")


@pytest.mark.parametrize(
    ("rate", "per_item"),
    [
        (0.1, ["9.523810", "5.461082", "5.245850", "5.552045"]),
        (0.01, ["99.502488", "19.047619", "12.570636", "10.922165"]),
        (0.001, ["999.500250", "62.261118", "28.571429", "20.656961"]),
        (0.0001, ["9999.500025", "199.004975", "63.167063", "38.095238", "29.231432"]),
    ],
)
def test_taylor_sizes_are_as_published(rate: float, per_item: list[str]) -> None:
    for hash_funcs, digits in enumerate(per_item, start=1):
        bits = sizing.bits_for_taylor(N, rate, hash_funcs)
        assert printed((bits - 1) / N, digits) or printed(bits / N, digits)  # the last bit is rounded up


@pytest.mark.parametrize(("rate", "percent"), [(0.1, "9.1"), (0.01, "1.7"), (0.001, "0.3"), (0.0001, "0.07")])
def test_taylor_oversizes_by_the_published_percentages(rate: float, percent: str) -> None:
    assert printed(100 * (sizing.bits_for_taylor(N, rate, 3) / sizing.bits_for(N, rate, 3) - 1), percent)


@pytest.mark.parametrize(
    ("rate", "per_item", "hash_funcs"),
    [(0.1, "4.793", 3), (0.01, "9.585", 7), (0.001, "14.378", 10), (0.0001, "19.170", 13)],
)
def test_the_optimum_is_as_published(rate: float, per_item: str, hash_funcs: int) -> None:
    assert printed(sizing.optimal_bits_per_item(rate), per_item)
    bits, chosen = sizing.optimal(N, rate)
    assert chosen == hash_funcs
    assert bits == sizing.bits_for(N, rate, hash_funcs)
    assert 1 <= bits / N / sizing.optimal_bits_per_item(rate) < 1.005  # the cost of an integer k


def test_the_chance_of_a_stuck_counter_is_as_published() -> None:
    at_optimum = round(TERA * math.log(2))
    assert printed(sizing.counter_overflow(TERA, 1, at_optimum), "1.6e-15")
    assert printed(sizing.counter_overflow(TERA, 1, at_optimum, limit=16), "7.07e-17")


def test_sizes_are_aligned_to_4_bytes() -> None:
    assert [sizing.align_bits(bits) for bits in (1, 31, 32, 33, 64, TERA + 1)] == [32, 32, 32, 64, 64, TERA + 32]
    assert sizing.align_bits(9, unit=8) == 16


# Well-known errors


def test_one_percent_needs_fewer_than_13_bits_a_key() -> None:
    bits, hash_funcs = sizing.optimal(N, 0.01)
    assert (hash_funcs, math.floor(bits / N)) == (7, 9)
    assert sizing.fp_rate(13 * N, 8, N) < 0.002  # five times better than requested, for a third more bits


def test_one_forgotten_ln_2_gives_4_percent() -> None:
    bits = math.ceil(-N * math.log(0.01) / math.log(2))
    assert printed(100 * min(sizing.fp_rate(bits, hash_funcs, N) for hash_funcs in range(1, 20)), "4.1")


def test_share_seen_while_filling_is_not_the_rate_at_capacity() -> None:
    bits = sizing.bits_for_taylor(N, 2**-6, 3)
    at_capacity, filling = sizing.fp_rate(bits, 3, N), sizing.fp_rate_while_filling(bits, 3, N)
    assert printed(at_capacity, "0.014735")
    # measured elsewhere with weaker hashes: 0.0179 at capacity, 0.004965 while filling
    assert printed(filling, "0.004004")
    assert filling * 0.0179 / at_capacity == near(0.004965, 0.03)


def test_a_mask_reaches_only_its_own_bits() -> None:
    assert len({position & (120 - 1) for position in range(1 << 12)}) == 2 ** (120 - 1).bit_count() == 64
    bits, items = 125_829_120, 125_829_120 // 13
    assert printed(100 * sizing.fp_rate(bits, 6, items), "0.26")
    assert printed(100 * sizing.fp_rate(2 ** (bits - 1).bit_count(), 6, items), "3.77")


def test_plain_double_hashing_doubles_the_rate_of_small_filters() -> None:
    bits, hash_funcs, items, full = 128, 7, 13, (1 << 128) - 1
    rng = random.Random(20)
    hits = 0
    rounds = effort(100, 400, 4_000)
    for _ in range(rounds):
        filled = 0
        for _ in range(items):
            first, stride = rng.randrange(bits), rng.randrange(bits)
            for i in range(hash_funcs):
                filled |= 1 << (first + i * stride) % bits
        # All 128 × 128 probes at once: rotations put the i-th bit of every probe in one place.
        for stride in range(bits):
            seen = full
            for i in range(hash_funcs):
                shift = i * stride % bits
                seen &= (filled >> shift | filled << bits - shift) & full
            hits += seen.bit_count()
    assert hits / rounds / bits**2 == near(0.020, 0.1)
    assert sizing.fp_rate_exact(bits, hash_funcs, items) == near(0.0095, 0.01)


def test_powers_of_two_need_2_to_the_minus_7() -> None:
    assert sizing.fp_rate(*sizing.optimal(N, 2**-6), N) > 0.01
    assert sizing.fp_rate(*sizing.optimal(N, 2**-7), N) < 0.01


# Properties


@given(CAPACITIES, RATES)
def test_the_optimum_meets_the_rate_with_the_fewest_bits(capacity: int, rate: float) -> None:
    bits, hash_funcs = sizing.optimal(capacity, rate)
    assert sizing.fp_rate(bits, hash_funcs, capacity) <= rate
    assert bits <= min(sizing.bits_for(capacity, rate, other) for other in range(1, 61))


@given(CAPACITIES, RATES, st.integers(1, 60))
def test_one_bit_less_misses_the_rate(capacity: int, rate: float, hash_funcs: int) -> None:
    bits = sizing.bits_for(capacity, rate, hash_funcs)
    assert sizing.fp_rate(bits, hash_funcs, capacity) <= rate
    if 1 < bits <= 10**12:
        assert sizing.fp_rate(bits - 1, hash_funcs, capacity) > rate * (1 - 1e-13)
    taylor = sizing.bits_for_taylor(capacity, rate, hash_funcs)
    assert taylor >= bits * (1 - 1e-14)
    assert sizing.fp_rate(taylor, hash_funcs, capacity) <= rate


def test_a_rate_rounded_up_by_floats_gets_another_bit() -> None:
    assert sizing.fp_rate(9_999_999_995, 1, 10) > 1e-9  # -n / ln(1 - p) = 9999999994.9999999992
    assert sizing.bits_for(10, 1e-9, 1) == 9_999_999_996


@given(*SMALL)
def test_the_exact_rate_is_between_approximation_and_bound(bits: int, hash_funcs: int, items: int) -> None:
    approximate, exact = sizing.fp_rate(bits, hash_funcs, items), sizing.fp_rate_exact(bits, hash_funcs, items)
    assert approximate * (1 - 1e-12) <= exact <= sizing.fp_rate_bound(bits, hash_funcs, items) * (1 + 1e-12)


@given(st.integers(1, 24), st.integers(1, 8), st.integers(0, 8))
def test_the_exact_rate_is_the_sum_over_the_occupancy(bits: int, hash_funcs: int, items: int) -> None:
    assert sizing.fp_rate_exact(bits, hash_funcs, items) == near(occupancy_rate(bits, hash_funcs, items), 1e-12)


@pytest.mark.parametrize(("bits", "hash_funcs", "items"), [(300, 20, 3), (500, 30, 2), (200, 50, 8), (1024, 7, 40)])
def test_the_exact_rate_keeps_its_digits_despite_cancellation(bits: int, hash_funcs: int, items: int) -> None:
    assert sizing.fp_rate_exact(bits, hash_funcs, items) == near(occupancy_rate(bits, hash_funcs, items), 1e-10)


@pytest.mark.parametrize("bits", [10**5, 10**9, TERA])
def test_exact_rates_of_large_filters_approach_the_approximation(bits: int) -> None:
    approximate, exact = sizing.fp_rate(bits, 7, bits // 10), sizing.fp_rate_exact(bits, 7, bits // 10)
    assert exact / approximate - 1 == pytest.approx(8.83 / bits, rel=0.05, abs=1e-14)


def test_exact_rate_with_more_functions_than_bits() -> None:
    assert sizing.fp_rate_exact(2, 50, 2**62) == 1.0  # 3 of 2 bits are no event, and (1 - 3/2)^(kn) no probability
    assert sizing.fp_rate_exact(1, 1075, 2**62) == 1.0


def test_exact_rate_below_all_floats_is_0() -> None:
    assert sizing.fp_rate_exact(TERA, 1000, 1) == 0.0
    assert 0 < sizing.fp_rate_exact(TERA, 20, 1) == near(float(Fraction(20, TERA) ** 20), 1e-9)


@given(*SMALL)
def test_rates_grow_with_items_and_shrink_with_bits(bits: int, hash_funcs: int, items: int) -> None:
    for rate in (sizing.fp_rate, sizing.fp_rate_exact, sizing.fp_rate_bound):
        here = rate(bits, hash_funcs, items)
        assert 0 <= here <= 1
        assert rate(bits, hash_funcs, items + 1) >= here * (1 - 1e-12)
        assert rate(bits + 1, hash_funcs, items) <= here * (1 + 1e-12)


def test_empty_filters_have_rate_0_and_full_filters_1() -> None:
    for rate in (sizing.fp_rate, sizing.fp_rate_exact, sizing.fp_rate_of_fill):
        assert rate(1024, 7, 0) == 0.0
    assert sizing.fp_rate_of_fill(1024, 7, 1024) == sizing.fp_rate_exact(1, 7, 1) == 1.0
    assert sizing.fp_rate_of_fill(1024, 3, 512) == 0.125


def test_rate_of_a_nearly_empty_tera_filter_keeps_its_digits() -> None:
    with localcontext(prec=60):
        expected = float((1 - (-Decimal(6) / TERA).exp()) ** 2)
    assert sizing.fp_rate(TERA, 2, 3) == near(expected, 1e-12)


@given(st.integers(1, TERA), st.integers(1, 50), st.data())
def test_the_estimated_items_invert_the_expected_fill(bits: int, hash_funcs: int, data: st.DataObject) -> None:
    set_bits = data.draw(st.integers(0, bits - 1))
    items = sizing.estimate_items(bits, hash_funcs, set_bits)
    assert -math.expm1(-hash_funcs * items / bits) * bits == near(set_bits, 1e-9)


def test_estimates_of_a_huge_filter_keep_their_digits() -> None:
    assert sizing.estimate_items(TERA, 7, 0) == 0.0
    assert sizing.estimate_items(TERA, 1, 1) == near(1 + 0.5 / TERA, 1e-15)
    assert sizing.estimate_items(TERA, 1, TERA - 1) == near(TERA * math.log(TERA), 1e-14)
    assert sizing.estimate_items(TERA, 7, TERA) == math.inf


def test_unions_and_intersections_are_estimated_from_three_counts() -> None:
    rng = random.Random(7)
    bits, hash_funcs = 1 << 16, 5
    keys = [{rng.randrange(bits) for _ in range(hash_funcs)} for _ in range(9_000)]
    a, b = set().union(*keys[:6_000]), set().union(*keys[4_000:])
    counts = (len(a), len(b), len(a | b))
    assert sizing.estimate_union(bits, hash_funcs, *counts) == near(9_000, 0.02)
    assert sizing.estimate_intersection(bits, hash_funcs, *counts) == near(2_000, 0.05)


def test_intersections_of_equal_and_of_disjoint_filters() -> None:
    assert sizing.estimate_intersection(1000, 3, 400, 400, 400) == sizing.estimate_items(1000, 3, 400)
    assert sizing.estimate_intersection(1000, 3, 300, 300, 600) == 0.0
    assert sizing.estimate_union(1000, 3, 600, 600, 1000) == math.inf


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 40), st.integers(1, 20))
def test_counter_overflow_is_the_exact_binomial_tail(counters: int, hash_funcs: int, items: int, limit: int) -> None:
    throws, q = hash_funcs * items, Fraction(1, counters)
    tail = sum(math.comb(throws, c) * q**c * (1 - q) ** (throws - c) for c in range(limit, throws + 1))
    assert sizing.counter_overflow(counters, hash_funcs, items, limit) == near(float(tail), 1e-12)


def test_counter_overflow_of_tera_counters_is_the_poisson_tail() -> None:
    for load in (1e-3, math.log(2), 3.0, 40.0):
        items = round(load * TERA)
        terms = (math.exp(c * math.log(items / TERA) - items / TERA - math.lgamma(c + 1)) for c in range(15, 300))
        assert sizing.counter_overflow(TERA, 1, items) == near(math.fsum(terms), 1e-10 + 120 / items)  # n(n-1)… < n^15


def test_counter_overflow_far_above_the_limit_is_1() -> None:
    assert sizing.counter_overflow(1000, 1, 2_000_000) == 1.0


@pytest.mark.parametrize("capacity", [1025, 1500, 20_000])
@pytest.mark.parametrize(("per_item", "hash_funcs"), [(10.67, 3), (9.6, 7), (4, 1), (0.5, 3), (0.02, 2), (70, 50)])
def test_filling_by_integral_is_the_mean_of_the_rates(capacity: int, per_item: float, hash_funcs: int) -> None:
    bits = math.ceil(per_item * capacity)
    mean = math.fsum(sizing.fp_rate(bits, hash_funcs, items) for items in range(capacity)) / capacity
    tolerance = 2 * (hash_funcs * max(1, 1 / per_item) / capacity) ** 2 + 1e-12
    assert sizing.fp_rate_while_filling(bits, hash_funcs, capacity) == near(mean, tolerance)


@given(st.integers(1, TERA), st.integers(1, 50), CAPACITIES)
def test_the_share_seen_while_filling_is_below_the_rate(bits: int, hash_funcs: int, capacity: int) -> None:
    filling = sizing.fp_rate_while_filling(bits, hash_funcs, capacity)
    assert 0 <= filling <= sizing.fp_rate(bits, hash_funcs, capacity) * (1 + 1e-12)
    assert sizing.fp_rate_while_filling(bits, hash_funcs, 1) == 0.0


@given(st.floats(min_value=5e-324, max_value=1, exclude_max=True), st.integers(1, TERA))
def test_every_float_rate_has_an_optimum(rate: float, capacity: int) -> None:
    bits, hash_funcs = sizing.optimal(capacity, rate)
    assert 1 <= hash_funcs <= sizing.MAX_HASH_FUNCS
    assert sizing.fp_rate(bits, hash_funcs, capacity) <= rate


# Simulation


@pytest.mark.slow
def test_a_simulation_confirms_the_exact_rate() -> None:
    rng, rounds = random.Random(1024), effort(4_000, 8_000, 40_000)
    places = range(1024)
    rates = [sizing.fp_rate_of_fill(1024, 7, len(set(rng.choices(places, k=7 * 107)))) for _ in range(rounds)]
    mean = math.fsum(rates) / rounds
    deviation = math.sqrt(math.fsum((rate - mean) ** 2 for rate in rates) / rounds / rounds)
    assert abs(mean - sizing.fp_rate_exact(1024, 7, 107)) < 2.5 * deviation
    assert mean - sizing.fp_rate(1024, 7, 107) > 2.5 * deviation


@given(st.integers(1, TERA), RATES, st.integers(1, 60))
def test_a_capacity_is_the_largest_within_the_rate(bits: int, rate: float, hash_funcs: int) -> None:
    capacity = sizing.capacity_for(bits, rate, hash_funcs)
    assert sizing.fp_rate(bits, hash_funcs, capacity) <= rate
    assert sizing.fp_rate(bits, hash_funcs, capacity + 1) > rate * (1 - 1e-12)
    if capacity:
        assert sizing.bits_for(capacity, rate, hash_funcs) <= bits * (1 + 1e-14) + 1


@given(st.integers(1, TERA), RATES)
def test_the_best_capacity_has_the_best_number_of_functions(bits: int, rate: float) -> None:
    capacity, hash_funcs = sizing.optimal_capacity(bits, rate)
    assert capacity == sizing.capacity_for(bits, rate, hash_funcs)
    assert capacity >= max(sizing.capacity_for(bits, rate, other) for other in range(1, 61))


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_the_best_number_of_functions_has_the_lowest_rate(bits: int, capacity: int) -> None:
    hash_funcs = sizing.optimal_hash_funcs(bits, capacity)
    here = sizing.fp_rate(bits, hash_funcs, capacity)
    others = {*range(1, 30), max(1, hash_funcs - 1), min(hash_funcs + 1, sizing.MAX_HASH_FUNCS)}
    assert all(here <= sizing.fp_rate(bits, other, capacity) * (1 + 1e-12) for other in others)


def test_the_best_number_of_functions_has_a_limit() -> None:
    assert sizing.optimal_hash_funcs(TERA, 1) == sizing.MAX_HASH_FUNCS
    assert sizing.optimal_hash_funcs(1, TERA) == 1


# Bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sizing.optimal(0, 0.01), "capacity must be at least 1, not 0"),
        (lambda: sizing.optimal(-5, 0.01), "capacity must be at least 1, not -5"),
        # of a wrong type, and refused
        (lambda: sizing.optimal(1e6, 0.01), "capacity must be an int, not 1000000.0"),  # type: ignore[arg-type]
        (lambda: sizing.optimal(2**63, 0.01), "capacity must be at most 9223372036854775807, not 9223372036854775808"),
        (lambda: sizing.optimal(10, 0.0), "fp_rate must be above 0 and below 1, not 0.0"),
        (lambda: sizing.optimal(10, 1.0), "fp_rate must be above 0 and below 1, not 1.0"),
        (lambda: sizing.optimal(10, -0.1), "fp_rate must be above 0 and below 1, not -0.1"),
        (lambda: sizing.optimal(10, math.inf), "fp_rate must be above 0 and below 1, not inf"),
        (lambda: sizing.optimal(10, math.nan), "fp_rate must be a number, not NaN"),
        (lambda: sizing.optimal_bits_per_item(math.nan), "fp_rate must be a number, not NaN"),
        (lambda: sizing.bits_for(10, 0.01, 0), "hash_funcs must be at least 1, not 0"),
        (lambda: sizing.bits_for(10, 0.01, 1076), "hash_funcs must be at most 1075, not 1076"),
        (lambda: sizing.bits_for(10, math.nan, 3), "fp_rate must be a number, not NaN"),
        (
            lambda: sizing.bits_for(10, 1e-300, 1),
            "10 items at fp_rate 1e-300 with 1 hash function would need more than 9223372036854775807 bits",
        ),
        (lambda: sizing.bits_for_taylor(0, 0.01, 3), "capacity must be at least 1, not 0"),
        (lambda: sizing.bits_for_taylor(10, 2, 3), "fp_rate must be above 0 and below 1, not 2"),
        (lambda: sizing.capacity_for(0, 0.01, 3), "bits must be at least 1, not 0"),
        (lambda: sizing.capacity_for(10, 0.01, 0), "hash_funcs must be at least 1, not 0"),
        (lambda: sizing.capacity_for(10, math.nan, 3), "fp_rate must be a number, not NaN"),
        (lambda: sizing.optimal_capacity(0, 0.01), "bits must be at least 1, not 0"),
        (lambda: sizing.optimal_capacity(10, 1.0), "fp_rate must be above 0 and below 1, not 1.0"),
        (lambda: sizing.optimal_hash_funcs(10, 0), "capacity must be at least 1, not 0"),
        (
            lambda: sizing.optimal_hash_funcs(2**63, 1),
            "bits must be at most 9223372036854775807, not 9223372036854775808",
        ),
        (lambda: sizing.align_bits(0), "bits must be at least 1, not 0"),
        (lambda: sizing.align_bits(8, unit=0), "unit must be at least 1, not 0"),
        (lambda: sizing.fp_rate(0, 7, 10), "bits must be at least 1, not 0"),
        (lambda: sizing.fp_rate(64, 0, 10), "hash_funcs must be at least 1, not 0"),
        (lambda: sizing.fp_rate(64, 7, -1), "items must be at least 0, not -1"),
        # of a wrong type, and refused
        (lambda: sizing.fp_rate(64, 7, math.nan), "items must be an int, not nan"),  # type: ignore[arg-type]
        (lambda: sizing.fp_rate_exact(0, 7, 10), "bits must be at least 1, not 0"),
        (lambda: sizing.fp_rate_bound(1, 7, 10), "bits must be at least 2, not 1"),
        (lambda: sizing.fp_rate_of_fill(64, 7, 65), "set_bits must be at most the 64 bits, not 65"),
        (lambda: sizing.fp_rate_while_filling(64, 7, 0), "capacity must be at least 1, not 0"),
        (lambda: sizing.estimate_items(64, 7, 65), "set_bits must be at most the 64 bits, not 65"),
        (lambda: sizing.estimate_items(64, 7, -1), "set_bits must be at least 0, not -1"),
        (
            lambda: sizing.estimate_union(64, 7, 10, 20, 19),
            "set_union must be at least the 20 bits of one operand, not 19",
        ),
        (
            lambda: sizing.estimate_union(64, 7, 10, 20, 31),
            "set_union must be at most the 30 bits of both operands, not 31",
        ),
        (lambda: sizing.estimate_union(64, 7, 10, 70, 31), "set_b must be at most the 64 bits, not 70"),
        (
            lambda: sizing.estimate_intersection(64, 7, 40, 40, 64),
            "the intersection cannot be estimated: all 64 bits of the union are set",
        ),
        (lambda: sizing.counter_overflow(64, 7, 10, limit=0), "limit must be at least 1, not 0"),
        (lambda: sizing.counter_overflow(64, 7, 10, limit=65536), "limit must be at most 65535, not 65536"),
    ],
)
def test_invalid_arguments_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        call()
    assert str(caught.value) == message

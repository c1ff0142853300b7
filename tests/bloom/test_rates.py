"""False-positive rates, with fixed seeds: one filter against its own fill, many small ones against the exact theory."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable
from statistics import fmean, stdev

import pytest

from spvfilter.bloom import sizing
from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import Bip37Hash, FastHash, HashFamily, SipHash
from spvfilter.errors import CapacityWarning
from support.vectors import EFFORT, effort

FAMILIES: dict[str, Callable[[int], HashFamily]] = {
    "fast": FastHash,
    "siphash": lambda seed: SipHash(seed.to_bytes(16, "big")),
    "bip37": Bip37Hash,
}
KINDS: dict[str, Callable[[int], bytes]] = {
    "random": lambda i: random.Random(i).randbytes(20),
    "sequential": lambda i: i.to_bytes(8, "little"),
    "shifted": lambda i: (i << 40 & 2**64 - 1 | i >> 24).to_bytes(8, "little"),  # i << 40 as a u64, rotated
    "decimal": lambda i: str(i).encode(),
}


def measured(made: BloomFilter | CountingBloomFilter, key: Callable[[int], bytes], start: int, queries: int) -> float:
    return sum(made.contains_many(map(key, range(start, start + queries)))) / queries


def sigma(rate: float, queries: int) -> float:
    return math.sqrt(rate * (1 - rate) / queries)


SIZES = [(bits, kind) for bits in (128, 1_000, 10_007, 100_000) for kind in KINDS]
SIZES += [
    (bits, kind)
    for bits in {"quick": (), "ci": (10**6,), "full": (10**6, 10**8)}[EFFORT]
    for kind in ("sequential", "shifted")
]


@pytest.mark.few(6)
@pytest.mark.parametrize(("bits", "kind"), SIZES)
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_filters_rate_follows_from_its_fill(bits: int, kind: str, partitioned: bool) -> None:
    bits -= bits % 7 if partitioned else 0
    made = BloomFilter(bits=bits, hash_funcs=7, hashing=FastHash(bits), partitioned=partitioned)
    items, queries = bits // 10, effort(10_000, 20_000, 1_000_000)
    made.update(map(KINDS[kind], range(items)))
    rate = made.current_fp_rate
    assert abs(measured(made, KINDS[kind], items, queries) - rate) < 3 * sigma(rate, queries)
    assert rate == pytest.approx(sizing.fp_rate(bits, 7, items), rel=8 / math.sqrt(items))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_family_keeps_its_rate(family: str, kind: str) -> None:
    made = BloomFilter(1_000, 0.01, hashing=FAMILIES[family](11))
    queries = effort(5_000, 8_000, 200_000)
    made.update(map(KINDS[kind], range(1_000)))
    rate = made.current_fp_rate
    assert abs(measured(made, KINDS[kind], 1_000, queries) - rate) < 3 * sigma(rate, queries)


def many_small_filters(family: str, bits: int, partitioned: bool, key: Callable[[int], bytes]) -> tuple[float, float]:
    """The mean rate of filters with 13 keys and k = 7, and its standard error from the variance between them."""
    filters, queries = (effort(1_000, 3_000, 30_000), 24) if family == "siphash" else (effort(1_000, 4_000, 40_000), 48)
    rates = []
    for number in range(filters):
        made = BloomFilter(bits=bits, hash_funcs=7, hashing=FAMILIES[family](number), partitioned=partitioned)
        start = number * 61
        made.update(map(key, range(start, start + 13)))
        rates.append(measured(made, key, start + 13, queries))
    return fmean(rates), stdev(rates) / math.sqrt(filters)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("fast", "sequential"),
        ("fast", "shifted"),
        ("siphash", "sequential"),
        ("bip37", "sequential"),
        ("bip37", "shifted"),
    ],
)
def test_small_filters_have_the_exact_occupancy_rate(family: str, kind: str) -> None:
    theory = sizing.fp_rate_exact(128, 7, 13)
    assert round(theory, 6) == 0.009446
    mean, error = many_small_filters(family, 128, False, KINDS[kind])
    assert error < 0.0008  # plain double hashing gives 0.020
    assert abs(mean - theory) < 3 * error


@pytest.mark.parametrize("family", FAMILIES)
def test_small_partitioned_filters_have_the_rate_of_independent_planes(family: str) -> None:
    theory = (1 - (1 - 1 / 18) ** 13) ** 7  # each function throws 13 balls into its own 18 bits
    mean, error = many_small_filters(family, 126, True, KINDS["sequential"])
    assert error < 0.0009
    assert abs(mean - theory) < 3 * error


@pytest.mark.parametrize(
    ("capacity", "fp_rate", "hash_funcs"),
    [(1_000, 0.1, None), (5_000, 0.01, None), (20_000, 0.01, 3), (5_000, 0.001, 3)],
)
@pytest.mark.parametrize("partitioned", [False, True])
def test_the_requested_rate_holds_at_capacity(
    capacity: int, fp_rate: float, hash_funcs: int | None, partitioned: bool
) -> None:
    made = BloomFilter(capacity, fp_rate, hash_funcs, partitioned=partitioned)
    made.update(map(KINDS["decimal"], range(capacity)))
    queries = effort(20_000, 50_000, 1_000_000)
    found = measured(made, KINDS["decimal"], capacity, queries)
    assert abs(found - fp_rate) < 3 * sigma(fp_rate, queries) + 0.1 * fp_rate  # tolerance for a random fill
    assert made.approx_len == pytest.approx(capacity, rel=0.05)


def test_the_share_seen_while_filling_follows_its_own_theory() -> None:
    capacity = effort(5_000, 20_000, 1_000_000)
    made = BloomFilter(capacity, 0.1, 3)
    new = made.update(map(KINDS["sequential"], range(capacity)))
    seen = sizing.fp_rate_while_filling(made.bits, 3, capacity)
    assert abs(1 - new / capacity - seen) < 3 * sigma(seen, capacity)
    assert seen < 0.5 * made.current_fp_rate


def test_a_counting_filter_has_the_rate_of_a_bloom_filter() -> None:
    made = CountingBloomFilter(2_000, 0.02, on_full="warn")
    with pytest.warns(CapacityWarning):
        made.update(map(KINDS["sequential"], range(4_000)))
    for i in range(2_000):
        made.remove(KINDS["sequential"](i))
    queries = effort(5_000, 10_000, 100_000)
    rate = made.current_fp_rate
    assert rate == pytest.approx(0.02, rel=0.2)
    assert abs(measured(made, KINDS["sequential"], 4_000, queries) - rate) < 3 * sigma(rate, queries)


def test_a_weak_user_hash_fails_these_tests() -> None:
    """A crc32 that starts from the index is linear: the functions are correlated, and small filters miss their rate."""
    from spvfilter.bloom.hashing import CustomHash

    rates = []
    for number in range(300):
        made = BloomFilter(bits=128, hash_funcs=7, hashing=CustomHash("crc32", zlib.crc32))
        made.update(map(KINDS["sequential"], range(number * 61, number * 61 + 13)))
        rates.append(measured(made, KINDS["sequential"], number * 61 + 13, 48))
    assert fmean(rates) > 2 * sizing.fp_rate_exact(128, 7, 13)

"""The rate that a filter claims is the rate that a sample of keys shows, for every hash family and size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from spvfilter.bloom import Bip37Hash, BloomFilter, CountingBloomFilter, FastHash, HashFamily, SipHash, rates
from spvfilter.bloom.exchange import RedisBloomHash, SparkHash, redisbloom_filter, spark_filter
from spvfilter.errors import FpRateWarning, ParameterError
from spvfilter.kernel import BACKEND, Family
from support.vectors import effort

INDEPENDENT: dict[str, HashFamily] = {"fast": FastHash(), "siphash": SipHash(bytes(16)), "bip37": Bip37Hash()}
DOUBLE: dict[str, HashFamily] = {"spark 1": SparkHash(1), "spark 2": SparkHash(2), "redisbloom": RedisBloomHash()}
SIZES = [(64, 3), (64, 7), (192, 5), (1_472, 10), (4_096, 10), (65_536, 7)]
ASKED = effort(6_000, 30_000, 600_000) if BACKEND == "native" else 500


def claimed_and_found(make: Any, items: int, fillings: int) -> tuple[float, float]:
    """Return the mean of the claimed rates of some filters, and the share of other keys that they contain."""
    claimed = found = 0.0
    for number in range(fillings):
        made = make()
        made.update(np.arange(number * 10**9, number * 10**9 + items))
        claimed += made.current_fp_rate / fillings
        others = np.arange(number * 10**9 + 10**8, number * 10**9 + 10**8 + ASKED)
        found += sum(made.contains_many(others)) / ASKED / fillings
    return claimed, found


@pytest.mark.few(12)
@pytest.mark.parametrize("load", [0.5, 1, 2])
@pytest.mark.parametrize("hashing", [*INDEPENDENT.values(), *DOUBLE.values()], ids=[*INDEPENDENT, *DOUBLE])
@pytest.mark.parametrize(
    ("kind", "bits", "hash_funcs"),
    [(BloomFilter, *size) for size in SIZES] + [(CountingBloomFilter, *size) for size in SIZES if size[0] <= 4_096],
)
def test_the_claimed_rate_equals_that_of_a_sample(
    kind: Any, hashing: HashFamily, bits: int, hash_funcs: int, load: float
) -> None:
    encode = None if hashing.family == Family.REDISBLOOM else "int64"
    items = max(1, round(load * bits * math.log(2) / hash_funcs))
    fillings = 8 if bits < 10_000 and BACKEND == "native" else 1

    def make() -> Any:
        return kind(bits=bits, hash_funcs=hash_funcs, hashing=hashing, encode=encode)

    claimed, found = claimed_and_found(make, items, fillings)
    noise = 6 * (claimed / ASKED / fillings) ** 0.5 + 6 / ASKED
    if hashing in INDEPENDENT.values():
        assert abs(found - claimed) < 0.03 * claimed + noise
    else:  # the claim is an approximation, and never far too low
        assert found < 1.35 * claimed + noise
        assert found > 0.3 * claimed - noise


@pytest.mark.parametrize(("family", "bits"), [(Family.BIP37, 3_000), (Family.SPARK_V1, 3_000), (Family.BIP37, 5_000)])
def test_bits_count_by_their_probability_if_hashes_are_few(
    monkeypatch: pytest.MonkeyPatch, family: Family, bits: int
) -> None:
    """As with hashes of 12 bits: a model of 2^32 that fits into a test."""
    monkeypatch.setattr(rates, "HASH_BITS", {family: 12})
    monkeypatch.setattr(rates, "DOUBLE_HASHING", ())
    hashing: HashFamily = Bip37Hash() if family == Family.BIP37 else SparkHash(1)
    rng = np.random.default_rng(7)
    items, functions = 300, 4
    field = np.zeros(bits, np.uint8)
    field[rng.integers(0, 1 << 12, items * functions) % bits] = 1
    made = BloomFilter(
        bits=bits, hash_funcs=functions, hashing=hashing, buffer=bytearray(np.packbits(field, bitorder="little"))
    )
    hashes = field[np.arange(1 << 12) % bits]
    assert made.current_fp_rate == pytest.approx(hashes.mean() ** functions)
    assert made.approx_len == pytest.approx(items, rel=0.15)
    assert rates.expected(family, bits, functions, items) == pytest.approx(made.current_fp_rate, rel=0.15)


@pytest.mark.long
@pytest.mark.skipif(BACKEND != "native", reason="too many keys for the reference")
def test_spark_1_claims_the_rate_of_reachable_bits() -> None:
    made = BloomFilter(bits=1 << 33, hash_funcs=1, hashing=SparkHash(1), encode="int64")
    made.update(np.arange(300_000))
    asked = 2_000_000
    found = sum(made.contains_many(np.arange(10**9, 10**9 + asked)))
    assert abs(found - asked * made.current_fp_rate) < 5 * found**0.5
    assert made.approx_len == pytest.approx(300_000, rel=0.01)


@pytest.mark.parametrize(
    ("hashing", "bits"),
    [(Bip37Hash(), 3 << 30), (SparkHash(1), 3 << 29), (SparkHash(1), 1 << 32)],
)
def test_family_without_enough_hashes_is_refused_for_a_rate(hashing: HashFamily, bits: int) -> None:
    capacity = int(bits / 14.378)
    with pytest.raises(ParameterError, match="is not uniform over"):
        BloomFilter(capacity, 0.001, hashing=hashing, encode="int64")
    if hashing == SparkHash(1):
        with pytest.raises(ParameterError, match="is not uniform over"):
            spark_filter(capacity, 0.001, version=1)
    assert rates.expected(hashing.family, 1 << 28, 10, int((1 << 28) / 14.378)) == pytest.approx(0.001, rel=0.001)


@pytest.mark.parametrize("hashing", DOUBLE.values(), ids=DOUBLE)
def test_double_hashing_with_few_bits_warns(hashing: HashFamily) -> None:
    with pytest.warns(FpRateWarning, match="has a rate of about"):
        BloomFilter(20, 1e-4, hashing=hashing)
    BloomFilter(100_000, 1e-4, hashing=hashing)


def test_filters_of_other_programs_warn_too() -> None:
    for make in (redisbloom_filter, spark_filter):
        with pytest.warns(FpRateWarning, match="choose more bits"):
            make(20, 1e-4)
        make(100_000, 1e-4)


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("hashing", [*INDEPENDENT.values(), *DOUBLE.values()], ids=[*INDEPENDENT, *DOUBLE])
def test_text_of_a_filter_tells_the_same_rate(hashing: HashFamily, partitioned: bool) -> None:
    encode = None if hashing.family == Family.REDISBLOOM else "int64"
    made = BloomFilter(bits=1_400, hash_funcs=7, hashing=hashing, encode=encode, partitioned=partitioned)
    made.update(np.arange(100))
    told = float(repr(made).rpartition("rate ")[2].rstrip(">"))
    assert told == pytest.approx(made.current_fp_rate, rel=0.2 if partitioned else 0.01)

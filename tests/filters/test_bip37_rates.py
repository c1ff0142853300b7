"""Measured false-positive rates, with fixed seeds: of one filter, of many, and of a wallet's filter with decoys."""

from __future__ import annotations

import math
import random
import statistics
import struct
from collections.abc import Iterable

import mmh3
import numpy as np
import numpy.typing as npt
import pytest

from spvfilter.bloom import sizing
from spvfilter.errors import FpRateWarning
from spvfilter.filters.bip37 import Bip37Filter
from support.vectors import effort

Words = npt.NDArray[np.unsignedinteger]
pack = struct.Struct("<Q").pack


class Elements(list[bytes]):
    """A minimal source of elements for a filter."""

    def bloom_elements(self) -> Iterable[bytes]:
        return self


def wallet(count: int, seed: int = 0) -> Elements:
    rng = random.Random(seed)
    return Elements(rng.randbytes(20) for _ in range(count))


def bits(found: Bip37Filter) -> bytes:
    """One byte for each bit, read from the payload in BIP-37's layout."""
    field = bytes(found)[-9 - found.size : -9]
    return bytes(field[at >> 3] >> (at & 7) & 1 for at in range(8 * found.size))


def murmur3(probes: Words, seed: int) -> Words:
    """MurmurHash3 x86_32 of each probe as 8 bytes LE."""

    def rotated(words: Words, by: int) -> Words:
        return words << np.uint32(by) | words >> np.uint32(32 - by)

    mixed: Words = np.full(len(probes), seed, np.uint32)
    for word in (probes.astype(np.uint32), (probes >> np.uint64(32)).astype(np.uint32)):
        mixed = mixed ^ rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        mixed = rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    mixed = mixed ^ np.uint32(8)  # bytes
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ mixed >> np.uint32(shift)) * np.uint32(factor)
    return mixed


def hits(found: Bip37Filter, probes: range) -> list[int]:
    """The probes, as 8-byte elements, that the filter contains. Function by function, because the first ones exclude
    most probes.
    """
    table, size = np.frombuffer(bits(found), np.uint8), 8 * found.size
    left = np.arange(probes.start, probes.stop, dtype=np.uint64)
    for i in range(found.hash_funcs):
        seed = (i * 0xFBA4C795 + found.tweak) & 0xFFFFFFFF
        left = left[table[murmur3(left, seed) % size] != 0]
    return [int(probe) for probe in left]


def test_the_hash_of_the_probes_is_murmur3() -> None:
    probes = [*range(3_000), *(1 << at for at in range(64)), (1 << 64) - 1]
    for seed in (0, 1, 0xFBA4C795, 0xFFFFFFFF):
        assert murmur3(np.array(probes, np.uint64), seed).tolist() == [
            mmh3.hash(pack(probe), seed, False) for probe in probes
        ]


def expected_rate(found: Bip37Filter) -> float:
    return (sum(bits(found)) / (8 * found.size)) ** found.hash_funcs


def binomial_sigma(rate: float, probes: int) -> float:
    return math.sqrt(rate * (1 - rate) / probes)


@pytest.mark.parametrize(
    ("elements", "rate", "tweak"), [(50, 0.02, 1), (1_000, 0.01, 2), (1_000, 0.001, 3), (20_000, 0.005, 4)]
)
def test_one_filters_rate_is_that_of_its_bits(elements: int, rate: float, tweak: int) -> None:
    made = Bip37Filter(elements, rate, tweak)
    for element in wallet(elements, tweak):
        made.insert(element)
    probes = int(effort(200, 2_000, 50_000) / rate)
    expected = expected_rate(made)
    found = hits(made, range(probes))
    assert abs(len(found) / probes - expected) < 3 * binomial_sigma(expected, probes)
    assert made.current_fp_rate == pytest.approx(expected, rel=1e-12)
    assert [probe for probe in range(3_000) if pack(probe) in made] == [probe for probe in found if probe < 3_000]
    exact = sizing.fp_rate_exact(8 * made.size, made.hash_funcs, elements)
    assert expected == pytest.approx(exact, rel=0.25)  # one filter scatters about the mean of all


@pytest.mark.parametrize(("elements", "rate", "probes"), [(4, 0.05, 200), (12, 0.01, 1_000), (40, 0.02, 500)])
def test_the_mean_over_many_filters_is_the_occupancy_formulas(elements: int, rate: float, probes: int) -> None:
    rng = random.Random(1_000 * elements)
    count = effort(1_000, 1_500, 30_000)
    filled, measured = [], []
    for number in range(count):
        made = Bip37Filter(elements, rate, rng.getrandbits(32))
        for _ in range(elements):
            made.insert(rng.randbytes(20))
        filled.append(made.current_fp_rate)
        measured.append(len(hits(made, range(number * probes, (number + 1) * probes))) / probes)
    exact = sizing.fp_rate_exact(8 * made.size, made.hash_funcs, elements)
    for rates in (filled, measured):
        # the deviation between filters: all probes of one filter share its bits
        sigma = statistics.stdev(rates) / math.sqrt(count)
        assert abs(statistics.fmean(rates) - exact) < 3 * sigma
        assert sigma < 0.05 * exact  # or the test would say nothing
    approximate = sizing.fp_rate(8 * made.size, made.hash_funcs, elements)
    if elements == 4:  # so small that the usual approximation is visibly off, and the exact formula is not
        sigma = statistics.stdev(filled) / math.sqrt(count)
        assert statistics.fmean(filled) - approximate > 5 * sigma


@pytest.mark.parametrize("rate", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("elements", [1, 10, 1_000])
def test_with_decoys_the_real_rate_is_the_one_asked_for(elements: int, rate: float) -> None:
    made = Bip37Filter.for_watchlist(wallet(elements, 7), rate, 99, decoy_key=b"a secret of the wallet")
    assert all(element in made for element in wallet(elements, 7))
    assert expected_rate(made) == pytest.approx(rate, rel=0.03)
    enough = effort(100, 400 if rate < 1e-3 else 900, 20_000)  # hits: one sigma is 5 % and 3.3 %
    probes = int(enough / rate)
    measured = len(hits(made, range(probes))) / probes
    assert abs(measured - expected_rate(made)) < 3 * binomial_sigma(rate, probes)
    if enough >= 400:
        assert measured == pytest.approx(rate, rel=0.1)


@pytest.mark.parametrize("elements", [1, 10, 100])
def test_a_small_wallet_without_decoys_has_no_cover(elements: int) -> None:
    with pytest.warns(FpRateWarning, match="hides nothing"):
        made = Bip37Filter.for_watchlist(wallet(elements), 1e-3, 99)
    assert made.nominal_fp_rate == 1e-3
    assert made.current_fp_rate < 1e-4
    assert made.estimated_elements == pytest.approx(elements, rel=0.1)


@pytest.mark.parametrize("elements", range(2, 40, 5))
def test_a_wallet_with_decoys_looks_like_any_other(elements: int) -> None:
    key = b"a secret of the wallet"
    made = [Bip37Filter.for_watchlist(wallet(count), 1e-3, 99, decoy_key=key) for count in (1, elements)]
    assert made[0].size == made[1].size
    assert made[0].set_bits() == pytest.approx(made[1].set_bits(), abs=made[0].hash_funcs)

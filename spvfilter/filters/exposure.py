"""Calculate how much a peer learns from BIP-37 filters: decoys, posterior probabilities and measured rates.

A filter has m bits, X of which are set, and k hash functions. A foreign address, which does not belong to the wallet,
matches with probability p = (X/m)^k.

The chain has U addresses, and N of them belong to the wallet. D = (U - N) p foreign addresses match by chance; they are
called decoys. A matching address belongs to the wallet with probability N / (N + D).

A peer that has several filters of one wallet learns more:

- If the filters have the same size, functions and tweak, they test the same bits. An address matches all of them if it
  matches the bitwise AND of the filters, and p is the rate of that filter.
- Otherwise the hashes are independent, and p is the product of the filters' rates. Each restart with a new tweak
  therefore multiplies the number of decoys by the rate of the new filter.
- There is one exception: if two filters have the same tweak, and the size of one is a multiple of the other's, p is
  larger than the product. `sample_rate` measures p.

Source: Gervais, Karame, Gruber and Capkun, "On the Privacy Provisions of Bloom Filters in Lightweight Bitcoin Clients"
(2014).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.filters.bip37 import Bip37Filter, UpdateFlags
from spvfilter.protocol import MAX_FILTER_SIZE, MAX_HASH_FUNCS
from spvfilter.wire.messages.filters import FilterLoad

CHAIN_ADDRESSES = 1_000_000_000
"""Number of addresses that have ever been paid on mainnet, rounded."""
MAX_PROBES = 1_000_000_000
"""Largest number of random addresses that `sample_rate` tests (our choice)."""
BITCOINJ_FP_RATE = 0.00001
"""Default false-positive rate of bitcoinj's filters. Source: PeerGroup.DEFAULT_BLOOM_FILTER_FP_RATE.

Before 2014 it was 0.0005.
"""
_BITCOINJ_STEP = 100
"""Number of elements that bitcoinj's FilterMerger adds to those of the wallet when it sizes a filter."""
_PROBE_SIZE = 20
"""Size of a random test address in bytes: the size of a hash of a public key or of a script."""
_AT_ONCE = 1 << 15
"""Number of random test addresses that are drawn and tested in one batch."""
_Z95 = 1.959963984540054
"""Half the width of the central 95 % of a normal distribution, in standard deviations."""


@public
@dataclass(frozen=True, slots=True)
class Exposure:
    """How well a wallet's addresses are hidden among all addresses on the chain.

    Raises:
        ParameterError: `own` is not between 1 and `universe`, or `fp_rate` is not between 0 and 1.
    """

    own: int
    """Number of addresses of the wallet, at least 1."""
    universe: int
    """Number of addresses on the chain, including the addresses of the wallet."""
    fp_rate: float
    """Probability that an address that does not belong to the wallet matches, from 0 to 1."""

    def __post_init__(self) -> None:
        if not 1 <= self.own <= self.universe:
            raise ParameterError(f"own must be from 1 to {self.universe}, the number of all addresses, not {self.own}")
        if not 0 <= self.fp_rate <= 1:
            raise ParameterError(f"fp_rate must be a probability from 0 to 1, not {self.fp_rate!r}")

    @property
    def decoys(self) -> float:
        """The expected number of decoys: matching addresses that do not belong to the wallet."""
        return (self.universe - self.own) * self.fp_rate

    @property
    def posterior(self) -> float:
        """The probability that a matching address belongs to the wallet. It is 1 if there are no decoys."""
        return self.own / (self.own + self.decoys)


@public
@dataclass(frozen=True, slots=True)
class SampledRate:
    """A false-positive rate that was measured with random addresses."""

    hits: int
    """Number of addresses that matched."""
    probes: int
    """Number of addresses that were tested, at least 1."""

    @property
    def rate(self) -> float:
        """The share of the tested addresses that matched, from 0 to 1."""
        return self.hits / self.probes

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the rate, as (low, high). Source: Wilson, "Probable Inference" (1927)."""
        spread = _Z95**2 / self.probes
        middle = self.rate + spread / 2
        half = _Z95 * math.sqrt(self.rate * (1 - self.rate) / self.probes + spread / (4 * self.probes))
        low, high = (middle - half) / (1 + spread), (middle + half) / (1 + spread)
        return (low if self.hits else 0.0), (high if self.hits < self.probes else 1.0)


@public
def joint_rate(filters: Sequence[Bip37Filter]) -> float:
    """Return the probability that an address that does not belong to the wallet matches every filter.

    Args:
        filters: Filters of one wallet, at least one.

    Raises:
        ParameterError: `filters` is empty.
    """
    if not filters:
        raise ParameterError("filters is empty: pass at least one filter")
    rate = 1.0
    for _, alike in groupby(sorted(filters, key=_parameters), key=_parameters):
        first, *others = alike
        common = first
        for other in others:
            common = common & other
        rate *= common.current_fp_rate
    return rate


def _parameters(made: Bip37Filter) -> tuple[int, int, int]:
    """Return the parameters of a filter that determine which bits an element sets."""
    return made.size, made.hash_funcs, made.tweak


@public
def sample_rate(
    filters: Sequence[Bip37Filter], probes: int, seed: int, *, without: Sequence[Bip37Filter] = ()
) -> SampledRate:
    """Measure the rate at which random addresses match every filter of `filters` and no filter of `without`.

    Args:
        filters: Filters that must match, at least one.
        probes: Number of random 20-byte elements to test, from 1 to 1,000,000,000.
        seed: Seed of the random elements. They are not the elements that `random.Random(seed)` draws, because a caller
            may have drawn the wallet's own from it.
        without: Filters that must not match.

    Raises:
        ParameterError: `filters` is empty, or `probes` is out of range.
    """
    if not filters:
        raise ParameterError("filters is empty: pass at least one filter")
    if not isinstance(probes, int) or not 1 <= probes <= MAX_PROBES:
        raise ParameterError(f"probes must be a whole number from 1 to {MAX_PROBES:,}, not {probes!r}")
    drawn, hits = random.Random(f"strangers {seed}"), 0  # noqa: S311  not used for secrets
    for start in range(0, probes, _AT_ONCE):
        count = min(_AT_ONCE, probes - start)
        raw = drawn.randbytes(_PROBE_SIZE * count)
        inside = filters[0].contains_many(memoryview(raw).cast("B", shape=[count, _PROBE_SIZE]))
        left = [raw[at * _PROBE_SIZE : (at + 1) * _PROBE_SIZE] for at in _ones(bytes(inside))]
        for other in filters[1:]:
            left = [probe for probe in left if probe in other]
        hits += sum(1 for probe in left if not any(probe in other for other in without))
    return SampledRate(hits, probes)


def _ones(mask: bytes) -> list[int]:
    """Return the positions of the bytes of a mask that are 1."""
    found, at = [], mask.find(1)
    while at >= 0:
        found.append(at)
        at = mask.find(1, at + 1)
    return found


@public
def bitcoinj_filter(addresses: int, tweak: int, fp_rate: float = BITCOINJ_FP_RATE) -> Bip37Filter:
    """Return a filter like those of bitcoinj 0.17, filled with random elements, to measure its false-positive rate.

    bitcoinj inserts the public key and the key hash of each address. It sizes the filter for 100 more elements, does
    not round the number of functions as Core does, and draws a new tweak at each start. The random elements are the
    same for every tweak. Source: bitcoinj's BloomFilter, FilterMerger and PeerGroup.

    Args:
        addresses: Number of the wallet's addresses, from 1 to 2^30.
        tweak: Number from which the seeds of the hash functions are derived, a u32.
        fp_rate: False-positive rate, between 0 and 1, exclusive.

    Raises:
        ParameterError: An argument is out of range.
    """
    if not isinstance(addresses, int) or not 1 <= addresses <= 1 << 30:
        raise ParameterError(f"addresses must be a whole number from 1 to 2^30, not {addresses!r}")
    if not 0 < fp_rate < 1:
        raise ParameterError(f"the false-positive rate must be between 0 and 1, not {fp_rate!r}")
    if not isinstance(tweak, int) or not 0 <= tweak <= 0xFFFFFFFF:
        raise ParameterError(f"tweak must be a whole number from 0 to 2^32 - 1, not {tweak!r}")
    elements = 2 * addresses + _BITCOINJ_STEP
    size = max(1, min(int(-1 / math.log(2) ** 2 * elements * math.log(fp_rate)), MAX_FILTER_SIZE * 8) // 8)
    hash_funcs = max(1, min(int(size * 8 / elements * math.log(2)), MAX_HASH_FUNCS))
    made = Bip37Filter.parse(bytes(FilterLoad(bytes(size), hash_funcs, tweak, UpdateFlags.ALL)))
    drawn = random.Random(0)  # noqa: S311  not used for secrets
    made.update(drawn.randbytes(width) for _ in range(addresses) for width in (33, _PROBE_SIZE))
    return made

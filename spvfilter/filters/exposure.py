"""What BIP-37 filters tell the peer that has them: decoys, the probability that a matching address is the wallet's,
measured rates.

X bits of a filter's m are set and it has k functions, so a stranger's address matches with probability p = (X/m)^k. Of
U addresses on the chain, N of them ours, D = (U - N) p match by chance: decoys. A matching address is ours with
probability N / (N + D).

What several filters of one wallet tell together depends on how they differ. With the same size, functions and tweak
they test the same bits, and an address matches all if it matches the bits that are set in all: p of A & B. Otherwise
their hashes are independent, and p is the product of theirs: each restart of a client that draws a new tweak multiplies
the decoys by p once more. Only where one filter is exactly a multiple of the other's size, with the same tweak, is p
larger than the product; a sample shows it.

Source: Gervais, Karame, Gruber and Capkun, "On the Privacy Provisions of Bloom Filters in Lightweight Bitcoin Clients"
(2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from spvfilter._dataclass import dataclass
from spvfilter._public import deferred, public
from spvfilter.errors import ParameterError
from spvfilter.filters.bip37 import Bip37Filter, UpdateFlags
from spvfilter.protocol import MAX_FILTER_SIZE, MAX_HASH_FUNCS
from spvfilter.wire.messages.filters import FilterLoad

if TYPE_CHECKING:
    import random
else:
    random = deferred("random")

CHAIN_ADDRESSES = 1_000_000_000  # that have been paid on mainnet, in round numbers
MAX_PROBES = 1_000_000_000
BITCOINJ_FP_RATE = 0.00001  # bitcoinj PeerGroup DEFAULT_BLOOM_FILTER_FP_RATE; 0.0005 before 2014
_BITCOINJ_STEP = 100  # elements; bitcoinj FilterMerger
_PROBE_SIZE = 20  # bytes: the hash of a public key or a script
_AT_ONCE = 1 << 15  # probes drawn and tested together
_Z95 = 1.959963984540054  # standard deviations that hold 95 % of a normal distribution


@public
@dataclass(frozen=True, slots=True)
class Exposure:
    """What is known of `own` addresses among `universe` if a stranger's address matches with probability `fp_rate`.

    Raises ParameterError unless 1 <= own <= universe and 0 <= fp_rate <= 1.
    """

    own: int
    universe: int
    fp_rate: float

    def __post_init__(self) -> None:
        if not 1 <= self.own <= self.universe:
            raise ParameterError(f"from 1 to {self.universe} of {self.universe} addresses can be ours, not {self.own}")
        if not 0 <= self.fp_rate <= 1:
            raise ParameterError(f"a probability lies between 0 and 1: {self.fp_rate!r}")

    @property
    def decoys(self) -> float:
        """The expected number of addresses that match and are not ours."""
        return (self.universe - self.own) * self.fp_rate

    @property
    def posterior(self) -> float:
        """The probability that an address that matches is ours: 1 if nothing hides it."""
        return self.own / (self.own + self.decoys)


@public
@dataclass(frozen=True, slots=True)
class SampledRate:
    """How many of `probes` random addresses matched."""

    hits: int
    probes: int

    @property
    def rate(self) -> float:
        """The share that matched."""
        return self.hits / self.probes

    @property
    def interval(self) -> tuple[float, float]:
        """The rates that 95 of 100 such samples are compatible with. Source: Wilson, "Probable Inference" (1927)."""
        spread = _Z95**2 / self.probes
        middle = self.rate + spread / 2
        half = _Z95 * math.sqrt(self.rate * (1 - self.rate) / self.probes + spread / (4 * self.probes))
        low, high = (middle - half) / (1 + spread), (middle + half) / (1 + spread)
        return (low if self.hits else 0.0), (high if self.hits < self.probes else 1.0)


@public
def joint_rate(filters: Sequence[Bip37Filter]) -> float:
    """The probability that a stranger's address matches every one of these filters. Raises ParameterError for none."""
    if not filters:
        raise ParameterError("no filter is given")
    rate = 1.0
    for _, alike in groupby(sorted(filters, key=_parameters), key=_parameters):
        first, *others = alike
        common = first
        for other in others:
            common = common & other
        rate *= common.current_fp_rate
    return rate


def _parameters(made: Bip37Filter) -> tuple[int, int, int]:
    """What decides which bits an element has."""
    return made.size, made.hash_funcs, made.tweak


@public
def sample_rate(
    filters: Sequence[Bip37Filter], probes: int, seed: int, *, without: Sequence[Bip37Filter] = ()
) -> SampledRate:
    """Test random 20-byte elements, as the hashes in addresses are: how many every filter of `filters` contains and
    none of `without`.

    The same seed draws the same ones, and never those of `random.Random(seed)`, with which a caller may have drawn the
    filters' own elements. Raises ParameterError for no filter, or unless 1 <= probes <= 1,000,000,000.
    """
    if not filters:
        raise ParameterError("no filter is given")
    if not isinstance(probes, int) or not 1 <= probes <= MAX_PROBES:
        raise ParameterError(f"from 1 to {MAX_PROBES:,} addresses can be sampled, not {probes!r}")
    drawn, hits = random.Random(f"strangers {seed}"), 0  # a sample, no secret
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
    """Where a mask has a 1."""
    found, at = [], mask.find(1)
    while at >= 0:
        found.append(at)
        at = mask.find(1, at + 1)
    return found


@public
def bitcoinj_filter(addresses: int, tweak: int, fp_rate: float = BITCOINJ_FP_RATE) -> Bip37Filter:
    """The filter that bitcoinj makes for as many addresses, each by its public key and its hash: with stand-ins, for
    its rate.

    It is sized for 100 elements more than these, with a floating-point number of functions (its BloomFilter,
    FilterMerger and PeerGroup, as of 0.17), and its tweak is drawn anew at every start. The stand-ins are the same for
    every tweak. Raises ParameterError for addresses < 1, a rate outside (0, 1) or a tweak that is no u32.
    """
    if not isinstance(addresses, int) or not 1 <= addresses <= 1 << 30:
        raise ParameterError(f"from 1 to 2^30 addresses, not {addresses!r}")
    if not 0 < fp_rate < 1:
        raise ParameterError(f"the false-positive rate must lie between 0 and 1: {fp_rate!r}")
    if not isinstance(tweak, int) or not 0 <= tweak <= 0xFFFFFFFF:
        raise ParameterError(f"tweak is not a u32: {tweak!r}")
    elements = 2 * addresses + _BITCOINJ_STEP
    size = max(1, min(int(-1 / math.log(2) ** 2 * elements * math.log(fp_rate)), MAX_FILTER_SIZE * 8) // 8)
    hash_funcs = max(1, min(int(size * 8 / elements * math.log(2)), MAX_HASH_FUNCS))
    made = Bip37Filter.parse(bytes(FilterLoad(bytes(size), hash_funcs, tweak, UpdateFlags.ALL)))
    drawn = random.Random(0)  # stand-ins for elements
    made.update(drawn.randbytes(width) for _ in range(addresses) for width in (33, _PROBE_SIZE))
    return made

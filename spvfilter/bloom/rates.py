"""False-positive rates of hash families whose positions are neither uniform nor independent.

Three families belong to other programs and cannot be changed:

- BIP-37 has 32-bit hashes, and Spark's version 1 has 31-bit hashes. The hash modulo m is not uniform if m is near 2^32
  or 2^31: the first positions are twice as likely as the last ones. Positions beyond that range are never reached.
- Spark and RedisBloom use double hashing: position i is a + i b modulo m. Two keys then share many positions with a
  probability of about 1/m, so the rate cannot fall far below 1/m. Source: Dillinger and Manolios, "Bloom Filters in
  Probabilistic Verification" (2004).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Protocol

from spvfilter.kernel import Family
from spvfilter.primitives import chunks

# Bits of the hash that is reduced modulo m.
HASH_BITS = {Family.BIP37: 32, Family.SPARK_V1: 31}
DOUBLE_HASHING = (Family.SPARK_V1, Family.SPARK_V2, Family.REDISBLOOM)
# Positions count as uniform if the range of a hash spans at least this many multiples of m: the rate is then off by
# 10^-5.
_UNIFORM = 256


class BitFilter(Protocol):
    """A filter of bits."""

    @property
    def bits(self) -> int: ...
    @property
    def hash_funcs(self) -> int: ...
    @property
    def family(self) -> Family: ...
    @property
    def partitioned(self) -> bool: ...
    @property
    def body(self) -> memoryview: ...
    @property
    def approx_len(self) -> float: ...
    def set_bits(self) -> int: ...
    def plane_set_bits(self) -> list[int]: ...


def uneven(family: Family, bits: int) -> tuple[int, int, int] | None:
    """Return (r, w, h) if positions are not uniform, else None.

    The number of possible hash values is h: w + 1 of them map to each of the first r positions, w to each of the
    others.

    Almost uniform positions count as uniform.
    """
    if family not in HASH_BITS or not bits:
        return None
    hashes = 1 << HASH_BITS[family]
    share, first = divmod(hashes, bits)
    return (first, share, hashes) if first and share < _UNIFORM else None


def excess(family: Family, bits: int, hash_funcs: int, fill: float, items: float, partitioned: bool) -> float:
    """Return approximately how far the rate of double hashing exceeds that of independent hash functions.

    It is a sum of two parts:

    - The probes of a key repeat. With probability phi(t)/m, b has order t modulo m, and a key has only t positions.
    - A key has the same b as one of the n keys in the filter. All its probes but s then hit positions of that key. The
      probability is 4n/m^2, and 2n/m^2 for s = 0.
    """
    if family not in DOUBLE_HASHING or not items or fill >= 1:
        return 0.0
    if partitioned:  # probes are in planes of their own: only keys with the same a and b overlap
        return items * (hash_funcs / bits) ** 2
    repeated = sum(_totient(order) * fill**order for order in range(1, hash_funcs) if bits % order == 0) / bits
    overlaps = 1 + 2 * sum(fill**free for free in range(1, hash_funcs))
    return repeated + 2 * items / bits**2 * overlaps


@cache
def _totient(order: int) -> int:
    return sum(math.gcd(order, number) == 1 for number in range(1, order + 1))


def expected(family: Family, bits: int, hash_funcs: int, items: int, partitioned: bool = False) -> float:
    """Return the expected rate of a filter with `items` keys, from 0 to 1."""
    throws = hash_funcs * items
    found = None if partitioned else uneven(family, bits)
    if found is None:
        fill = -math.expm1(-throws / bits)
    else:
        first, share, hashes = found
        likely, others = (share + 1) / hashes, share / hashes
        fill = -first * likely * math.expm1(-throws * likely) - (bits - first) * others * math.expm1(-throws * others)
    return min(1.0, fill**hash_funcs + excess(family, bits, hash_funcs, fill, items, partitioned))


def current(made: BitFilter) -> float:
    """Return the current rate of a filter, from 0 to 1."""
    counts = made.plane_set_bits() if made.partitioned else [made.set_bits()]
    found = None if made.partitioned else uneven(made.family, made.bits)
    if made.partitioned:
        rate = math.prod(count * made.hash_funcs / made.bits for count in counts)
    elif found is None:
        rate = (counts[0] / made.bits if made.bits else 1.0) ** made.hash_funcs
    else:
        first, share, hashes = found
        rate = ((share * counts[0] + first_bits(made, first)) / hashes) ** made.hash_funcs
    if made.family not in DOUBLE_HASHING:
        return rate
    fill = sum(counts) / made.bits
    return min(1.0, rate + excess(made.family, made.bits, made.hash_funcs, fill, made.approx_len, made.partitioned))


def of_fill(family: Family, bits: int, hash_funcs: int, fill: float, partitioned: bool) -> float:
    """Return the rate for a given share of set bits among the bits that the family can reach."""
    items = -bits / hash_funcs * math.log1p(-fill) if fill < 1 else 0.0
    return min(1.0, fill**hash_funcs + excess(family, bits, hash_funcs, fill, items, partitioned))


def reachable(family: Family, bits: int) -> int:
    """Return the number of bits that the hashes of a family can reach. These are the first bits."""
    return min(bits, 1 << HASH_BITS.get(family, 64))


def estimated(made: BitFilter, found: tuple[int, int, int]) -> float:
    """Return the estimated number of keys of a filter whose positions are not uniform.

    It is the mean of the estimates from both groups of positions, weighted by the hashes of each group.
    """
    first, share, hashes = found
    low = first_bits(made, first)
    high, others = made.set_bits() - low, made.bits - first
    if low == first:
        return math.inf
    likely = -first * math.log1p(-low / first)
    if not share or high == others:
        return likely * hashes / (first * (share + 1)) / made.hash_funcs
    return (likely - others * math.log1p(-high / others)) / made.hash_funcs


def first_bits(made: BitFilter, first: int) -> int:
    """Return the number of set bits among the first positions."""
    whole, rest = divmod(first, 8)
    count = sum(int.from_bytes(chunk, "little").bit_count() for chunk in chunks(made.body[:whole]))
    return count + (made.body[whole] & (1 << rest) - 1).bit_count() if rest else count

"""Sizes, false-positive rates and estimates of Bloom filters, as pure functions of counts.

In all functions `bits` is m, `hash_funcs` is k, `items` or `capacity` is n, and `set_bits` is X. `fp_rate` is p, a
probability (not a percentage).

Formulas without another source are from Broder and Mitzenmacher, "Network Applications of Bloom Filters" (2004).
"""

from __future__ import annotations

import decimal
import math
from itertools import pairwise
from operator import index
from typing import SupportsFloat, SupportsIndex

from spvfilter.errors import ParameterError, counted

__all__ = [
    "MAX_COUNT",
    "MAX_COUNTER",
    "MAX_HASH_FUNCS",
    "align_bits",
    "bits_for",
    "bits_for_taylor",
    "capacity_for",
    "counter_overflow",
    "estimate_deviation",
    "estimate_intersection",
    "estimate_items",
    "estimate_union",
    "fp_rate",
    "fp_rate_bound",
    "fp_rate_exact",
    "fp_rate_of_fill",
    "fp_rate_while_filling",
    "fuse_bits_per_item",
    "fuse_segments",
    "optimal",
    "optimal_bits_per_item",
    "optimal_capacity",
    "optimal_hash_funcs",
    "split_block_fp_rate",
]

# Largest number of bits or items: more than any machine holds. Floats are too coarse for larger numbers.
MAX_COUNT = 2**63 - 1
# Largest number of hash functions: the optimum for the smallest positive float, 1074, plus 1, which is tried too.
MAX_HASH_FUNCS = 1075
MAX_COUNTER = 2**16 - 1  # Largest value of a counter: counters have at most 16 bits.
_LONGEST_SEGMENT = 18  # Binary logarithm of the cells of the longest segment of a static filter.
_MOST_CELLS = 2**32 - 1  # Most cells of a static filter: the kernel numbers them with 32 bits.
_LN2 = math.log(2)
_FULL_LOAD = 50.0  # At this load kn/m, fewer than one bit in 10^21 is still 0.
_FULL_BLOCK = 1536  # With this many keys in a 256-bit block, fewer than one word in 10^20 has a bit that is 0.
_SUMMED_KEYS = 1024  # Up to this number of keys, fp_rate_while_filling adds the rates one by one.


def optimal_bits_per_item(fp_rate: float) -> float:
    """Return the optimal number of bits per item, -ln p / (ln 2)^2, for real k. An integer k never needs fewer bits.

    Raises ParameterError unless 0 < fp_rate < 1.
    """
    return -math.log(probability(fp_rate)) / _LN2**2


def optimal(capacity: int, fp_rate: float) -> tuple[int, int]:
    """Return the smallest number of bits that keeps `fp_rate` for `capacity` items, and the number of hash functions.

    The real optimum k = -log2 p lies between two integers. Both are tried, and the smaller filter is returned. The
    approximate rate meets `fp_rate`; `fp_rate_exact` exceeds it by a relative error of about k / m.

    Raises ParameterError if the capacity or the rate is outside its domain.
    """
    below = max(1, math.floor(-math.log2(probability(fp_rate))))
    return min((bits_for(capacity, fp_rate, hash_funcs), hash_funcs) for hash_funcs in (below, below + 1))


def bits_for(capacity: int, fp_rate: float, hash_funcs: int) -> int:
    """Return the smallest number of bits for n items at p with k functions: m = -k n / ln(1 - p^(1/k)), rounded up.

    The result keeps the approximate rate: `fp_rate(m, k, n)` <= p.

    Args:
        capacity: Number of items n, at least 1.
        fp_rate: Highest false-positive rate p, between 0 and 1.
        hash_funcs: Number of hash functions k.

    Raises:
        ParameterError: An argument is outside its domain, or the result exceeds MAX_COUNT.
    """
    capacity = _items("capacity", capacity, least=1)
    hash_funcs = _hash_funcs(hash_funcs)
    fp_rate = probability(fp_rate)
    # ln(1 - p^(1/k)): the logarithm of the share of bits that are still 0
    log_empty = _log1mexp(math.log(fp_rate) / hash_funcs)
    return _whole_bits(hash_funcs * capacity, -log_empty, capacity, fp_rate, hash_funcs)


def bits_for_taylor(capacity: int, fp_rate: float, hash_funcs: int) -> int:
    """Return the number of bits for a given p and k by a Taylor series: m = 2 k n / (2c + c^2), c = p^(1/k).

    Use it only to compare with published sizes. It meets p, but it is larger than the result of `bits_for`. For k = 3
    the difference is 9.1 %, 1.7 %, 0.3 % and 0.07 % at p = 0.1, 0.01, 0.001 and 0.0001.

    Args:
        capacity: Number of items n, at least 1.
        fp_rate: Highest false-positive rate p, between 0 and 1.
        hash_funcs: Number of hash functions k.

    Raises:
        ParameterError: An argument is outside its domain, or the result exceeds MAX_COUNT.
    """
    capacity = _items("capacity", capacity, least=1)
    hash_funcs = _hash_funcs(hash_funcs)
    fp_rate = probability(fp_rate)
    fill = math.exp(math.log(fp_rate) / hash_funcs)  # c
    return _whole_bits(hash_funcs * capacity, fill + fill * fill / 2, capacity, fp_rate, hash_funcs)


def capacity_for(bits: int, fp_rate: float, hash_funcs: int) -> int:
    """Return the largest n for which m bits and k functions keep p: n = -(m/k) ln(1 - p^(1/k)), rounded down.

    Args:
        bits: Number of bits m.
        fp_rate: Highest false-positive rate p, between 0 and 1.
        hash_funcs: Number of hash functions k.

    Returns:
        The number of items; 0 if a single item exceeds the rate.

    Raises:
        ParameterError: An argument is outside its domain.
    """
    bits, hash_funcs = _filter(bits, hash_funcs)
    fp_rate = probability(fp_rate)
    items = math.floor(bits / hash_funcs * -_log1mexp(math.log(fp_rate) / hash_funcs))
    step = 1
    while items and _approximate(bits, hash_funcs, items) > fp_rate:  # because of rounding errors
        items, step = max(0, items - step), 2 * step
    return min(items, MAX_COUNT)


def optimal_capacity(bits: int, fp_rate: float) -> tuple[int, int]:
    """Return the largest number of items that m bits hold at rate p, and the number of hash functions for it.

    As in `optimal`, the integers on both sides of k = -log2 p are tried. Raises ParameterError if an argument is
    outside its domain.
    """
    bits = _bits(bits)
    below = max(1, math.floor(-math.log2(probability(fp_rate))))
    capacity, fewer = max((capacity_for(bits, fp_rate, hash_funcs), -hash_funcs) for hash_funcs in (below, below + 1))
    return capacity, -fewer


def optimal_hash_funcs(bits: int, capacity: int) -> int:
    """Return the number of hash functions, up to MAX_HASH_FUNCS, that gives m bits with n items the lowest rate.

    It is an integer next to (m/n) ln 2. Raises ParameterError if a count is outside its domain.
    """
    bits = _bits(bits)
    capacity = _items("capacity", capacity, least=1)
    below = min(max(1, math.floor(bits / capacity * _LN2)), MAX_HASH_FUNCS - 1)
    return min((below, below + 1), key=lambda hash_funcs: hash_funcs * _log1mexp(-hash_funcs * capacity / bits))


def fuse_segments(items: int) -> tuple[int, int]:
    """Return the shape of a static filter for n items.

    It consists of the number of cells in a segment, and the number of segments in which a key's first cell can be. The
    table has two more segments than that.

    Source: Graf and Lemire, "Binary Fuse Filters" (2022). A segment has 2^floor(ln n / ln 3.33 + 2.25) cells, at most
    2^18. The table has max(1.125, 0.875 + 0.25 ln 10^6 / ln n) cells for each item, rounded up to whole segments.

    Raises ParameterError if the number of items is outside its domain, or if the table would have 2^32 cells or more.
    """
    items = _items("items", items)
    if not items:
        return 1, 0
    log = math.log(max(items, 2))
    length = 1 << min(_LONGEST_SEGMENT, math.floor(log / math.log(3.33) + 2.25))
    cells = items * max(1.125, 0.875 + 0.25 * math.log(1e6) / log)
    segments = max(1, math.ceil(cells / length) - 2)
    if (segments + 2) * length > _MOST_CELLS:
        raise ParameterError(f"a static filter can hold at most 3.8 billion keys, not {items:,}")
    return length, segments


def fuse_bits_per_item(items: int, fingerprint_bits: int = 8) -> float:
    """Return the number of bits per item of a static filter for n items.

    Args:
        items: Number of items n, at least 1.
        fingerprint_bits: Bits of a fingerprint, 8, 16 or 32.

    Raises:
        ParameterError: An argument is outside its domain, or the table would have 2^32 cells or more.
    """
    items = _items("items", items, least=1)
    if fingerprint_bits not in (8, 16, 32):
        raise ParameterError(f"fingerprint_bits must be 8, 16 or 32, not {fingerprint_bits!r}")
    length, segments = fuse_segments(items)
    return (segments + 2) * length * fingerprint_bits / items


def align_bits(bits: int, unit: int = 32) -> int:
    """Return `bits` rounded up to a multiple of `unit` bits (32 bits are 4 bytes).

    Raises ParameterError if either argument is below 1.
    """
    bits = _bits(bits)
    unit = whole("unit", unit, 1, MAX_COUNT)
    return -(-bits // unit) * unit


def fp_rate(bits: int, hash_funcs: int, items: int) -> float:
    """Return the approximate false-positive rate, (1 - e^(-kn/m))^k. It is slightly too small, especially for small m.

    Args:
        bits: Number of bits m.
        hash_funcs: Number of hash functions k.
        items: Number of items n, at least 0.

    Raises:
        ParameterError: A count is outside its domain.
    """
    bits, hash_funcs = _filter(bits, hash_funcs)
    items = _items("items", items)
    return _approximate(bits, hash_funcs, items)


def fp_rate_bound(bits: int, hash_funcs: int, items: int) -> float:
    """Return a strict upper bound of the exact rate, (1 - e^(-k(n + 0.5)/(m - 1)))^k.

    Source: Goel and Gupta, "Small Subset Queries and Bloom Filters Using Ternary Associative Memories" (2010).

    Args:
        bits: Number of bits m, at least 2.
        hash_funcs: Number of hash functions k.
        items: Number of items n, at least 0.

    Raises:
        ParameterError: A count is outside its domain.
    """
    bits = whole("bits", bits, 2, MAX_COUNT)
    hash_funcs = _hash_funcs(hash_funcs)
    items = _items("items", items)
    return math.exp(hash_funcs * _log1mexp(-hash_funcs * (items + 0.5) / (bits - 1)))


def fp_rate_exact(bits: int, hash_funcs: int, items: int) -> float:
    """Return the exact rate for independent uniform hash functions: the mean of (X/m)^k over the distribution of X.

    A result below the smallest float is 0.0. The cost is about k^2 operations on long decimal numbers: less than a
    millisecond for k = 7, a few seconds for k = 1000. It does not depend on m and n.

    Sources: Bose et al., "On the false-positive rate of Bloom filters" (2008); Christensen, Roginsky and Jimeno, "A new
    analysis of the false positive rate of a Bloom filter" (2010).

    Args:
        bits: Number of bits m.
        hash_funcs: Number of hash functions k.
        items: Number of items n, at least 0.

    Raises:
        ParameterError: A count is outside its domain.
    """
    approximate = fp_rate(bits, hash_funcs, items)
    if items == 0 or (approximate == 0.0 and fp_rate_bound(bits, hash_funcs, items) == 0.0):
        return 0.0
    # A k-step recursion gives the probability that the k probes hit j distinct bits. The probability that j given bits
    # are all set is sum_i (-1)^i C(j, i) (1 - i/m)^(kn). That sum suffers from cancellation, so it is computed with
    # 50 + 0.3 k - log10(p) decimal digits, enough for a correctly rounded float.
    throws = hash_funcs * items
    # Digits lost to cancellation: the terms reach 2^k, and the result is at least the approximate rate (Jensen's
    # inequality).
    lost = hash_funcs * (math.log10(2) - _log1mexp(-throws / bits) / math.log(10))
    digits = (
        math.ceil(lost + math.log10(throws)) + 30
    )  # the power multiplies the relative error of its base by `throws`
    exact = decimal.Context(
        digits, decimal.ROUND_HALF_EVEN, decimal.MIN_EMIN, decimal.MAX_EMAX, traps=[decimal.InvalidOperation]
    )
    with decimal.localcontext(exact):
        most = min(hash_funcs, bits)
        differences = [(decimal.Decimal(bits - i) / bits) ** throws for i in range(most + 1)]  # i given bits are all 0
        # by j: the probability that j distinct bits have been hit
        distinct = [decimal.Decimal(1)] + [decimal.Decimal(0)] * most
        for _ in range(hash_funcs):
            for j in range(most, 0, -1):
                distinct[j] = (distinct[j] * j + distinct[j - 1] * (bits - j + 1)) / bits
            distinct[0] = decimal.Decimal(0)
        rate = decimal.Decimal(0)
        for j in range(1, most + 1):
            differences = [left - right for left, right in pairwise(differences)]
            rate += distinct[j] * differences[0]  # j given bits are all 1
        return float(rate)


def split_block_fp_rate(blocks: int, items: int) -> float:
    """Return the expected false-positive rate of a split-block filter, the kind that Parquet files contain.

    A key belongs to one 256-bit block and sets one bit in each of its 8 words. The number of keys in a block has a
    Poisson distribution, so the rate is the sum of Poisson(i; n/blocks) (1 - (31/32)^i)^8. Full blocks contribute most
    of it: the rate is higher than for evenly loaded blocks.

    Args:
        blocks: Number of blocks.
        items: Number of items n, at least 0.

    Raises:
        ParameterError: A count is outside its domain.
    """
    blocks = whole("blocks", blocks, 1, MAX_COUNT)
    items = _items("items", items)
    load = items / blocks
    if load > _FULL_BLOCK:
        return 1.0
    rate, keys = 0.0, 1
    while True:
        weight = math.exp(keys * math.log(load) - load - math.lgamma(keys + 1)) if load else 0.0
        term = weight * (-math.expm1(keys * math.log1p(-1 / 32))) ** 8
        rate += term
        if keys > load and term <= rate * 2**-60:
            return min(rate, 1.0)
        keys += 1


def fp_rate_of_fill(bits: int, hash_funcs: int, set_bits: int) -> float:
    """Return the false-positive rate of a filter with X set bits, (X/m)^k. It does not depend on the keys.

    Args:
        bits: Number of bits m.
        hash_funcs: Number of hash functions k.
        set_bits: Number of set bits X.

    Raises:
        ParameterError: A count is outside its domain, or X exceeds m.
    """
    bits, hash_funcs = _filter(bits, hash_funcs)
    set_bits = _set_bits("set_bits", set_bits, bits)
    return float((set_bits / bits) ** hash_funcs)


def fp_rate_while_filling(bits: int, hash_funcs: int, capacity: int) -> float:
    """Return the expected share of false positives while an empty filter is filled with `capacity` new keys.

    Each key is queried before it is added. The result is the mean of `fp_rate` at 0 to n-1 items. It is several times
    lower than the rate at capacity, with which it is often confused.

    Args:
        bits: Number of bits m.
        hash_funcs: Number of hash functions k.
        capacity: Number of keys n, at least 1.

    Raises:
        ParameterError: A count is outside its domain.
    """
    bits, hash_funcs = _filter(bits, hash_funcs)
    capacity = _items("capacity", capacity, least=1)
    if capacity <= _SUMMED_KEYS:
        return math.fsum(_approximate(bits, hash_funcs, items) for items in range(capacity)) / capacity
    # The midpoint rule has a relative error of about k^2 / (24 n^2). With y = 1 - e^(-k(n - 0.5)/m) the integral is
    # m/(kn) (-ln(1 - y) - sum of y^j/j for j <= k).
    load = hash_funcs * (capacity - 0.5) / bits
    fill = -math.expm1(-load)
    rest = load - math.fsum(fill**j / j for j in range(1, hash_funcs + 1))
    if rest < load / 1024:  # cancellation has lost most digits: sum y^j/j for j > k instead
        rest, j, term = 0.0, hash_funcs + 1, fill ** (hash_funcs + 1)
        while term > rest * 2**-60:
            rest += term / j
            j += 1
            term *= fill
    return rest * bits / (hash_funcs * capacity)


def estimate_items(bits: int, hash_funcs: int, set_bits: int) -> float:
    """Return the estimated number of distinct items in a filter, -(m/k) ln(1 - X/m).

    Source: Swamidass and Baldi, "Mathematical Correction for Fingerprint Similarity Measures" (2007).

    Args:
        bits: Number of bits m.
        hash_funcs: Number of hash functions k.
        set_bits: Number of set bits X.

    Returns:
        The estimate; math.inf for a full filter.

    Raises:
        ParameterError: A count is outside its domain, or X exceeds m.
    """
    bits, hash_funcs = _filter(bits, hash_funcs)
    set_bits = _set_bits("set_bits", set_bits, bits)
    if set_bits == bits:
        return math.inf
    log_empty = math.log1p(-set_bits / bits) if 2 * set_bits < bits else math.log((bits - set_bits) / bits)
    return abs(bits / hash_funcs * log_empty)


def estimate_deviation(bits: int, hash_funcs: int, items: int) -> float:
    """Return the standard deviation of `estimate_items`: sqrt(m (e^a - 1 - a)) / k, where a = kn/m.

    It follows from the variance of the number of set bits, m e^-a (1 - (1 + a) e^-a). The variance is divided by the
    square of the growth of that number, which is k e^-a for each item. Source: Kolchin, Sevast'yanov and Chistyakov,
    "Random Allocations" (1978).

    Args:
        bits: Number of bits m.
        hash_funcs: Number of hash functions k.
        items: Number of distinct items n, at least 0.

    Returns:
        The standard deviation in items; math.inf if the filter is too full for an estimate.

    Raises:
        ParameterError: A count is outside its domain.
    """
    bits, hash_funcs = _filter(bits, hash_funcs)
    items = _items("items", items)
    load = hash_funcs * items / bits
    return math.sqrt(bits * (math.expm1(load) - load)) / hash_funcs if load < _FULL_LOAD else math.inf


def estimate_union(bits: int, hash_funcs: int, set_a: int, set_b: int, set_union: int) -> float:
    """Return the estimated number of distinct items that are in filter A or in filter B.

    Source: Swamidass and Baldi (2007).

    Args:
        bits: Number of bits m of each filter.
        hash_funcs: Number of hash functions k.
        set_a: Number of set bits of A.
        set_b: Number of set bits of B.
        set_union: Number of set bits of A | B.

    Returns:
        The estimate; math.inf if every bit of the union is set.

    Raises:
        ParameterError: A count is outside its domain, or the counts contradict each other.
    """
    bits, set_a, set_b, set_union = _three_counts(bits, set_a, set_b, set_union)
    return estimate_items(bits, hash_funcs, set_union)


def estimate_intersection(bits: int, hash_funcs: int, set_a: int, set_b: int, set_union: int) -> float:
    """Return the estimated number of items that are in filter A and in filter B: n(A) + n(B) - n(A | B).

    A negative estimate, which occurs for disjoint sets, becomes 0. If you know the set bits of A & B instead, the union
    has set_a + set_b minus that number. Source: Swamidass and Baldi (2007).

    Args:
        bits: Number of bits m of each filter.
        hash_funcs: Number of hash functions k.
        set_a: Number of set bits of A.
        set_b: Number of set bits of B.
        set_union: Number of set bits of A | B.

    Raises:
        ParameterError: A count is outside its domain, the counts contradict each other, or every bit of the union is
            set, so that there is no estimate.
    """
    bits, set_a, set_b, set_union = _three_counts(bits, set_a, set_b, set_union)
    if set_union == bits:
        raise ParameterError(f"the intersection cannot be estimated: all {bits} bits of the union are set")
    either = estimate_items(bits, hash_funcs, set_union)
    return max(0.0, estimate_items(bits, hash_funcs, set_a) + estimate_items(bits, hash_funcs, set_b) - either)


def counter_overflow(bits: int, hash_funcs: int, items: int, limit: int = 15) -> float:
    """Return the probability that a given counter of a counting filter reaches `limit`.

    It is the tail P(Binomial(kn, 1/m) >= limit). Multiplied by m, it is the expected number of such counters. At the
    optimum (kn/m = ln 2) it is 1.6e-15 for 15, and 7.07e-17 for 16. The cost is about `limit` steps. Source: Fan et
    al., "Summary Cache" (2000), which gives a bound for 16.

    Args:
        bits: Number of counters m.
        hash_funcs: Number of hash functions k.
        items: Number of items n, at least 0.
        limit: The counter's value; a 4-bit counter stays at 15.

    Raises:
        ParameterError: A count is outside its domain.
    """
    bits, hash_funcs = _filter(bits, hash_funcs)
    items = _items("items", items)
    limit = whole("limit", limit, 1, MAX_COUNTER)
    throws = hash_funcs * items
    if throws < limit:
        return 0.0
    if bits == 1:
        return 1.0
    below_mean = limit * bits <= throws  # the lower tail is shorter then
    count = limit - 1 if below_mean else limit
    logs = [math.log((throws - i) / (i + 1) / bits) for i in range(count)]
    # P(exactly count), as a product, because lgamma would lose digits to cancellation
    term = math.exp(math.fsum([*logs, (throws - count) * math.log1p(-1 / bits)]))
    tail = 0.0
    while term > tail * 2**-60:
        tail += term
        if below_mean:
            term *= count * (bits - 1) / (throws - count + 1)
            count -= 1
        else:
            term *= (throws - count) / ((count + 1) * (bits - 1))
            count += 1
    return 1.0 - tail if below_mean else tail


def _approximate(bits: int, hash_funcs: int, items: int) -> float:
    return math.exp(hash_funcs * _log1mexp(-hash_funcs * items / bits)) if items else 0.0


def _log1mexp(x: float) -> float:
    """Return ln(1 - e^x) for x < 0 without cancellation at either end.

    Source: Mächler, "Accurately Computing log(1 - exp(-|a|))" (2012).
    """
    return math.log(-math.expm1(x)) if x > -_LN2 else math.log1p(-math.exp(x))


def _whole_bits(throws: int, load: float, capacity: int, fp_rate: float, hash_funcs: int) -> int:
    """Return throws / load rounded up, or more if rounding errors lift the rate above `fp_rate`."""
    if load * MAX_COUNT <= throws:
        raise ParameterError(
            f"{counted(capacity, 'item')} at fp_rate {fp_rate} with {counted(hash_funcs, 'hash function')} would need"
            f" more than {MAX_COUNT} bits"
        )
    bits, step = math.ceil(throws / load), 1
    while _approximate(bits, hash_funcs, capacity) > fp_rate:
        bits += step
        step *= 2
    return bits


def probability(fp_rate: SupportsFloat) -> float:
    """Return a rate as a float. It may be any real number, including NumPy's.

    Raises ParameterError unless it is between 0 and 1, exclusive.
    """
    rate = fp_rate
    if type(rate) is not float:
        if not hasattr(type(fp_rate), "__float__"):  # str has none, but float() would take it
            raise ParameterError(f"fp_rate must be a number between 0 and 1, not {fp_rate!r}")
        try:
            rate = float(fp_rate)
        except (TypeError, ValueError, OverflowError):
            raise ParameterError(f"fp_rate must be a number between 0 and 1, not {fp_rate!r}") from None
    if math.isnan(rate):
        raise ParameterError("fp_rate must be a number, not NaN")
    if not 0 < rate < 1:
        raise ParameterError(f"fp_rate must be above 0 and below 1, not {fp_rate}")
    return rate


def whole(name: str, value: SupportsIndex, least: int, most: int) -> int:
    """Return a count as an int. It may be any integer, including NumPy's, but not a bool.

    Raises ParameterError if `value` is not an integer, or is below `least` or above `most`.
    """
    if type(value) is not int:
        try:
            number = None if isinstance(value, bool) else index(value)
        except TypeError:
            number = None
        if number is None:
            raise ParameterError(f"{name} must be an int, not {value!r}")
        value = number
    if value < least:
        raise ParameterError(f"{name} must be at least {least}, not {value}")
    if value > most:
        raise ParameterError(f"{name} must be at most {most}, not {value}")
    return value


def _bits(bits: int) -> int:
    return whole("bits", bits, 1, MAX_COUNT)


def _filter(bits: int, hash_funcs: int) -> tuple[int, int]:
    return _bits(bits), _hash_funcs(hash_funcs)


def _hash_funcs(hash_funcs: int) -> int:
    return whole("hash_funcs", hash_funcs, 1, MAX_HASH_FUNCS)


def _items(name: str, items: int, least: int = 0) -> int:
    return whole(name, items, least, MAX_COUNT)


def _set_bits(name: str, set_bits: int, bits: int) -> int:
    set_bits = whole(name, set_bits, 0, MAX_COUNT)
    if set_bits > bits:
        raise ParameterError(f"{name} must be at most the {bits} bits, not {set_bits}")
    return set_bits


def _three_counts(bits: int, set_a: int, set_b: int, set_union: int) -> tuple[int, int, int, int]:
    bits = _bits(bits)
    set_a, set_b = _set_bits("set_a", set_a, bits), _set_bits("set_b", set_b, bits)
    set_union = _set_bits("set_union", set_union, bits)
    if set_union < max(set_a, set_b):
        raise ParameterError(f"set_union must be at least the {max(set_a, set_b)} bits of one operand, not {set_union}")
    if set_union > set_a + set_b:
        raise ParameterError(f"set_union must be at most the {set_a + set_b} bits of both operands, not {set_union}")
    return bits, set_a, set_b, set_union

"""Sizes, false-positive rates and estimates of Bloom filters as pure functions of counts.

In all functions `bits` is m, `hash_funcs` k, `items` or `capacity` n, `set_bits` X, and `fp_rate` p, a probability (not
percent). Formulas without another source are those of Broder and Mitzenmacher, "Network Applications of Bloom Filters"
(2004).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.errors import ParameterError

if TYPE_CHECKING:
    import decimal
else:
    decimal = deferred("decimal")

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
    "optimal",
    "optimal_bits_per_item",
    "optimal_capacity",
    "optimal_hash_funcs",
]

MAX_COUNT = 2**63 - 1  # bits or items; more than any machine holds, and floats are too coarse for larger numbers
MAX_HASH_FUNCS = 1075  # the optimum for the smallest positive float is 1074, and the next integer is tried too
MAX_COUNTER = 2**16 - 1  # the largest counter value, of 16-bit counters
_LN2 = math.log(2)
_FULL_LOAD = 50.0  # functions of a filter's items for each bit: not one in 10^21 is still 0
_SUMMED_KEYS = 1024  # up to here fp_rate_while_filling adds the rates one by one


def optimal_bits_per_item(fp_rate: float) -> float:
    """The optimal number of bits per item, -ln p / (ln 2)^2, for real k; an integer k never needs fewer.

    Raises ParameterError unless 0 < fp_rate < 1.
    """
    return -math.log(_probability(fp_rate)) / _LN2**2


def optimal(capacity: int, fp_rate: float) -> tuple[int, int]:
    """The smallest number of bits, and its number of hash functions, with which `capacity` items stay at or below
    `fp_rate`.

    The real optimum k = -log2 p lies between two integers; `bits_for` is computed for both, and the smaller filter
    wins. The approximate rate meets `fp_rate`; `fp_rate_exact` exceeds it by a relative error of about k / m. Raises
    ParameterError for a capacity or rate outside its domain.
    """
    below = max(1, math.floor(-math.log2(_probability(fp_rate))))
    return min((bits_for(capacity, fp_rate, hash_funcs), hash_funcs) for hash_funcs in (below, below + 1))


def bits_for(capacity: int, fp_rate: float, hash_funcs: int) -> int:
    """The smallest number of bits for a given p and k: m = -k n / ln(1 - p^(1/k)), rounded up so that `fp_rate(m, k,
    n)` <= p.

    Raises ParameterError for arguments outside their domain, or when the answer exceeds MAX_COUNT.
    """
    _items("capacity", capacity, least=1)
    _hash_funcs(hash_funcs)
    # ln(1 - p^(1/k)), the log of the share of bits still 0
    log_empty = _log1mexp(math.log(_probability(fp_rate)) / hash_funcs)
    return _whole_bits(hash_funcs * capacity, -log_empty, capacity, fp_rate, hash_funcs)


def bits_for_taylor(capacity: int, fp_rate: float, hash_funcs: int) -> int:
    """The number of bits for a given p and k by a Taylor series: m = 2 k n / (2c + c^2), c = p^(1/k).

    It meets p, but oversizes.

    It serves comparison with published sizes: for k = 3 it takes 9.1 %, 1.7 %, 0.3 %, 0.07 % more than `bits_for`
    at p = 0.1, 0.01, 0.001, 0.0001. Raises ParameterError as `bits_for` does.
    """
    _items("capacity", capacity, least=1)
    _hash_funcs(hash_funcs)
    fill = math.exp(math.log(_probability(fp_rate)) / hash_funcs)  # c
    return _whole_bits(hash_funcs * capacity, fill + fill * fill / 2, capacity, fp_rate, hash_funcs)


def capacity_for(bits: int, fp_rate: float, hash_funcs: int) -> int:
    """The largest number of items with which m bits and k functions stay at or below p: n = -(m/k) ln(1 - p^(1/k)),
    rounded down.

    0 if a single item exceeds it. Raises ParameterError for arguments outside their domain.
    """
    _filter(bits, hash_funcs)
    items = math.floor(bits / hash_funcs * -_log1mexp(math.log(_probability(fp_rate)) / hash_funcs))
    step = 1
    while items and _approximate(bits, hash_funcs, items) > fp_rate:  # by rounding errors
        items, step = max(0, items - step), 2 * step
    return min(items, MAX_COUNT)


def optimal_capacity(bits: int, fp_rate: float) -> tuple[int, int]:
    """The largest number of items that m bits hold at or below p, and the number of hash functions with which they do.

    As for `optimal`, the integers on both sides of k = -log2 p are tried. Raises ParameterError for arguments outside
    their domain.
    """
    _bits(bits)
    below = max(1, math.floor(-math.log2(_probability(fp_rate))))
    capacity, fewer = max((capacity_for(bits, fp_rate, hash_funcs), -hash_funcs) for hash_funcs in (below, below + 1))
    return capacity, -fewer


def optimal_hash_funcs(bits: int, capacity: int) -> int:
    """The number of hash functions, up to MAX_HASH_FUNCS, that gives m bits with n items the lowest rate: an integer
    next to (m/n) ln 2.

    Raises ParameterError for counts outside their domain.
    """
    _bits(bits)
    _items("capacity", capacity, least=1)
    below = min(max(1, math.floor(bits / capacity * _LN2)), MAX_HASH_FUNCS - 1)
    return min((below, below + 1), key=lambda hash_funcs: hash_funcs * _log1mexp(-hash_funcs * capacity / bits))


def align_bits(bits: int, unit: int = 32) -> int:
    """`bits` rounded up to a multiple of `unit` bits; 32 is 4 bytes. Raises ParameterError if either is below 1."""
    _bits(bits)
    _whole("unit", unit, 1, MAX_COUNT)
    return -(-bits // unit) * unit


def fp_rate(bits: int, hash_funcs: int, items: int) -> float:
    """The approximate false-positive rate, (1 - e^(-kn/m))^k: slightly too small, most noticeably for small m.

    Raises ParameterError for counts outside their domain; items may be 0.
    """
    _filter(bits, hash_funcs)
    _items("items", items)
    return _approximate(bits, hash_funcs, items)


def fp_rate_bound(bits: int, hash_funcs: int, items: int) -> float:
    """A strict upper bound of the exact rate, (1 - e^(-k(n + 0.5)/(m - 1)))^k, for m >= 2.

    Source: Goel and Gupta, "Small Subset Queries and Bloom Filters Using Ternary Associative Memories" (2010).
    Raises ParameterError for counts outside their domain; items may be 0.
    """
    _whole("bits", bits, 2, MAX_COUNT)
    _hash_funcs(hash_funcs)
    _items("items", items)
    return math.exp(hash_funcs * _log1mexp(-hash_funcs * (items + 0.5) / (bits - 1)))


def fp_rate_exact(bits: int, hash_funcs: int, items: int) -> float:
    """The exact rate for independent uniform hash functions: the mean of (X/m)^k over the distribution of X.

    It is not summed over X: a k-step recursion gives the probability that the k probes fall on j distinct bits, and j
    given bits are all set with probability sum_i (-1)^i C(j, i) (1 - i/m)^(kn). That sum suffers from cancellation, so
    it is computed in decimals with enough digits for a correctly rounded float. Cost: about k^2 operations on numbers
    of 50 + 0.3 k - log10(p) digits, independent of m and n: under a millisecond for k = 7, some seconds for k = 1000.
    Rates below the smallest float are 0.0. Source: Bose et al., "On the false-positive rate of Bloom filters" (2008);
    Christensen, Roginsky and Jimeno, "A new analysis of the false positive rate of a Bloom filter" (2010). Raises
    ParameterError for counts outside their domain; items may be 0.
    """
    approximate = fp_rate(bits, hash_funcs, items)
    if items == 0 or (approximate == 0.0 and fp_rate_bound(bits, hash_funcs, items) == 0.0):
        return 0.0
    throws = hash_funcs * items
    # digits lost to cancellation: the terms reach 2^k, and the result is at least the approximate rate (Jensen's
    # inequality)
    lost = hash_funcs * (math.log10(2) - _log1mexp(-throws / bits) / math.log(10))
    digits = math.ceil(lost + math.log10(throws)) + 30  # the power multiplies the error of its base by `throws`
    exact = decimal.Context(
        digits, decimal.ROUND_HALF_EVEN, decimal.MIN_EMIN, decimal.MAX_EMAX, traps=[decimal.InvalidOperation]
    )
    with decimal.localcontext(exact):
        most = min(hash_funcs, bits)
        differences = [(decimal.Decimal(bits - i) / bits) ** throws for i in range(most + 1)]  # i given bits are all 0
        distinct = [decimal.Decimal(1)] + [
            decimal.Decimal(0)
        ] * most  # by j: the probability that j distinct bits are hit so far
        for _ in range(hash_funcs):
            for j in range(most, 0, -1):
                distinct[j] = (distinct[j] * j + distinct[j - 1] * (bits - j + 1)) / bits
            distinct[0] = decimal.Decimal(0)
        rate = decimal.Decimal(0)
        for j in range(1, most + 1):
            differences = [left - right for left, right in pairwise(differences)]
            rate += distinct[j] * differences[0]  # j given bits are all 1
        return float(rate)


def fp_rate_of_fill(bits: int, hash_funcs: int, set_bits: int) -> float:
    """The rate of a filter with X set bits, (X/m)^k, whatever was added to it. Raises ParameterError unless X <= m."""
    _filter(bits, hash_funcs)
    _set_bits("set_bits", set_bits, bits)
    return float((set_bits / bits) ** hash_funcs)


def fp_rate_while_filling(bits: int, hash_funcs: int, capacity: int) -> float:
    """The expected share of false positives among `capacity` new keys, each queried and then added to an initially
    empty filter.

    It is the mean of `fp_rate` at 0 … n-1 items, several times below the rate at capacity, with which it is often
    confused. It is summed for few keys, otherwise integrated by the midpoint rule with a relative error of about k^2 /
    (24 n^2): with y = 1 - e^(-k(n - 0.5)/m), m/(kn) (-ln(1 - y) - sum of y^j/j for j <= k). Raises ParameterError for
    counts outside their domain.
    """
    _filter(bits, hash_funcs)
    _items("capacity", capacity, least=1)
    if capacity <= _SUMMED_KEYS:
        return math.fsum(_approximate(bits, hash_funcs, items) for items in range(capacity)) / capacity
    load = hash_funcs * (capacity - 0.5) / bits
    fill = -math.expm1(-load)
    rest = load - math.fsum(fill**j / j for j in range(1, hash_funcs + 1))
    if rest < load / 1024:  # most digits are lost to cancellation: sum the rest of the series itself, y^j/j for j > k
        rest, j, term = 0.0, hash_funcs + 1, fill ** (hash_funcs + 1)
        while term > rest * 2**-60:
            rest += term / j
            j += 1
            term *= fill
    return rest * bits / (hash_funcs * capacity)


def estimate_items(bits: int, hash_funcs: int, set_bits: int) -> float:
    """The estimated number of distinct items in a filter, -(m/k) ln(1 - X/m); math.inf for a full filter.

    Source: Swamidass and Baldi, "Mathematical Correction for Fingerprint Similarity Measures" (2007).
    Raises ParameterError for counts outside their domain, or unless X <= m.
    """
    _filter(bits, hash_funcs)
    _set_bits("set_bits", set_bits, bits)
    if set_bits == bits:
        return math.inf
    log_empty = math.log1p(-set_bits / bits) if 2 * set_bits < bits else math.log((bits - set_bits) / bits)
    return -bits / hash_funcs * log_empty


def estimate_deviation(bits: int, hash_funcs: int, items: int) -> float:
    """The standard deviation of `estimate_items` for a filter of that many distinct items, sqrt(m (e^a - 1 - a)) / k
    with a = kn/m.

    It follows from the variance of the number of set bits, m e^-a (1 - (1 + a) e^-a), divided by the square of their
    growth, k e^-a an item; math.inf where the filter is too full for an estimate. Source: Kolchin, Sevast'yanov and
    Chistyakov, "Random Allocations" (1978). Raises ParameterError for counts outside their domain; items may be 0.
    """
    _filter(bits, hash_funcs)
    _items("items", items)
    load = hash_funcs * items / bits
    return math.sqrt(bits * (math.expm1(load) - load)) / hash_funcs if load < _FULL_LOAD else math.inf


def estimate_union(bits: int, hash_funcs: int, set_a: int, set_b: int, set_union: int) -> float:
    """The estimated number of distinct items in either of two filters, from the set bits of A, of B and of A | B.

    math.inf for a full union. Source: Swamidass and Baldi (2007).
    Raises ParameterError for counts outside their domain, or that are impossible together.
    """
    _three_counts(bits, set_a, set_b, set_union)
    return estimate_items(bits, hash_funcs, set_union)


def estimate_intersection(bits: int, hash_funcs: int, set_a: int, set_b: int, set_union: int) -> float:
    """The estimated number of items in both of two filters, n(A) + n(B) - n(A | B), from the set bits of A, of B and of
    A | B.

    Negative estimates, which occur for disjoint sets, become 0. The set bits of A & B serve as well: A | B has A + B -
    (A & B). Source: Swamidass and Baldi (2007). Raises ParameterError as `estimate_union` does, and for a full union,
    which gives no information about the intersection.
    """
    _three_counts(bits, set_a, set_b, set_union)
    if set_union == bits:
        raise ParameterError(f"no estimate of an intersection: all {bits} bits of the union are set")
    either = estimate_items(bits, hash_funcs, set_union)
    return max(0.0, estimate_items(bits, hash_funcs, set_a) + estimate_items(bits, hash_funcs, set_b) - either)


def counter_overflow(bits: int, hash_funcs: int, items: int, limit: int = 15) -> float:
    """The probability that one given counter of a counting filter reaches `limit`: the tail P(Binomial(kn, 1/m) >=
    limit).

    `bits` is the number of counters; a 4-bit counter sticks at 15. Multiplied by m, it is the expected number of such
    counters. At the optimum (kn/m = ln 2) it is 1.6e-15, and 7.07e-17 for a limit of 16. Cost: about `limit` steps.
    Source: Fan et al., "Summary Cache" (2000), which gives a bound for 16. Raises ParameterError for counts outside
    their domain; items may be 0.
    """
    _filter(bits, hash_funcs)
    _items("items", items)
    _whole("limit", limit, 1, MAX_COUNTER)
    throws = hash_funcs * items
    if throws < limit:
        return 0.0
    if bits == 1:
        return 1.0
    below_mean = limit * bits <= throws  # then the other tail is shorter
    count = limit - 1 if below_mean else limit
    logs = [math.log((throws - i) / (i + 1) / bits) for i in range(count)]
    # P(= count); a product, as lgamma cancels
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
    """ln(1 - e^x) for x < 0 without cancellation at either end (Mächler, "Accurately Computing log(1 - exp(-|a|))",
    2012).
    """
    return math.log(-math.expm1(x)) if x > -_LN2 else math.log1p(-math.exp(x))


def _whole_bits(throws: int, load: float, capacity: int, fp_rate: float, hash_funcs: int) -> int:
    """throws / load rounded up, and further if rounding errors lift the rate above `fp_rate`."""
    if load * MAX_COUNT <= throws:
        raise ParameterError(
            f"{capacity} items at fp_rate {fp_rate} with {hash_funcs} hash functions need more than {MAX_COUNT} bits"
        )
    bits, step = math.ceil(throws / load), 1
    while _approximate(bits, hash_funcs, capacity) > fp_rate:
        bits += step
        step *= 2
    return bits


def _probability(fp_rate: float) -> float:
    if math.isnan(fp_rate):
        raise ParameterError("fp_rate is not a number")
    if not 0 < fp_rate < 1:
        raise ParameterError(f"fp_rate must be between 0 and 1, both excluded: {fp_rate}")
    return fp_rate


def _whole(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int):  # NumPy's integers are refused too: their products wrap around
        raise ParameterError(f"{name} must be an int, not {value!r}")
    if value < least:
        raise ParameterError(f"{name} must be at least {least}: {value}")
    if value > most:
        raise ParameterError(f"{name} must be at most {most}: {value}")


def _bits(bits: int) -> None:
    _whole("bits", bits, 1, MAX_COUNT)


def _filter(bits: int, hash_funcs: int) -> None:
    _bits(bits)
    _hash_funcs(hash_funcs)


def _hash_funcs(hash_funcs: int) -> None:
    _whole("hash_funcs", hash_funcs, 1, MAX_HASH_FUNCS)


def _items(name: str, items: int, least: int = 0) -> None:
    _whole(name, items, least, MAX_COUNT)


def _set_bits(name: str, set_bits: int, bits: int) -> None:
    _whole(name, set_bits, 0, MAX_COUNT)
    if set_bits > bits:
        raise ParameterError(f"{name} exceeds the {bits} bits: {set_bits}")


def _three_counts(bits: int, set_a: int, set_b: int, set_union: int) -> None:
    _bits(bits)
    for name, count in (("set_a", set_a), ("set_b", set_b), ("set_union", set_union)):
        _set_bits(name, count, bits)
    if set_union < max(set_a, set_b):
        raise ParameterError(f"set_union is below the {max(set_a, set_b)} bits of one operand: {set_union}")
    if set_union > set_a + set_b:
        raise ParameterError(f"set_union exceeds the {set_a + set_b} bits of both operands: {set_union}")

"""Size: plan a filter before making it, with its expected rates under any load."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

from spvfilter._public import public
from spvfilter.bloom import fileformat, sizing
from spvfilter.errors import ParameterError

_EXACT_FUNCTIONS = 256  # Up to this number of functions the exact rate takes less than 0.3 s.


@public
class Expected(NamedTuple):
    """The expected state of a filter that contains `items` distinct keys."""

    items: int
    """Number of distinct keys that the filter contains."""
    fill: float
    """Share of set bits, or of counters that are not 0, from 0 to 1."""
    fp_rate: float
    """False-positive rate by the approximate formula, from 0 to 1."""
    fp_rate_exact: float | None
    """Exact false-positive rate, from 0 to 1. None for more than 256 hash functions, because it would take too long."""
    counter_overflow: float
    """Probability that any one 4-bit counter of a counting filter has reached 15, its largest value."""
    stuck_counters: float
    """Expected number of 4-bit counters of a counting filter that have reached 15, their largest value."""


@public
class Size(NamedTuple):
    """The size of a filter for n keys: m bits (or counters) and k hash functions."""

    capacity: int
    """Number of keys n that the filter is made for."""
    fp_rate: float | None
    """Highest false-positive rate at capacity, between 0 and 1; None if no rate was requested."""
    bits: int
    """Number of bits m, or of counters."""
    hash_funcs: int
    """Number of hash functions k."""

    @classmethod
    def of(
        cls,
        capacity: int | None = None,
        fp_rate: float | None = None,
        hash_funcs: int | None = None,
        *,
        bits: int | None = None,
    ) -> Self:
        """Return the size that follows from two of the arguments `capacity`, `fp_rate` and `bits`.

        A computed number of bits is rounded up to a multiple of 4 bytes, as in a BloomFilter. A computed capacity is
        the largest number of keys that keeps the false-positive rate.

        Args:
            capacity: Number of keys.
            fp_rate: Highest false-positive rate at capacity, between 0 and 1.
            hash_funcs: Number of hash functions; by default the best number.
            bits: Number of bits.

        Raises:
            ParameterError: Not exactly two of `capacity`, `fp_rate` and `bits` are given. A value is outside its
                domain. A filter of `bits` bits exceeds `fp_rate` even with a single key.
        """
        capacity = None if capacity is None else sizing.whole("capacity", capacity, 1, sizing.MAX_COUNT)
        fp_rate = None if fp_rate is None else sizing.probability(fp_rate)
        bits = None if bits is None else sizing.whole("bits", bits, 1, sizing.MAX_COUNT)
        if hash_funcs is not None:
            hash_funcs = sizing.whole("hash_funcs", hash_funcs, 1, sizing.MAX_HASH_FUNCS)
        if bits is None and capacity is not None and fp_rate is not None:
            if hash_funcs is None:
                bits, hash_funcs = sizing.optimal(capacity, fp_rate)
            else:
                bits = sizing.bits_for(capacity, fp_rate, hash_funcs)
            return cls(capacity, fp_rate, sizing.align_bits(bits), hash_funcs)
        if fp_rate is None and capacity is not None and bits is not None:
            functions = sizing.optimal_hash_funcs(bits, capacity) if hash_funcs is None else hash_funcs
            sizing.fp_rate(bits, functions, capacity)  # checks the arguments
            return cls(capacity, None, bits, functions)
        if capacity is None and fp_rate is not None and bits is not None:
            if hash_funcs is None:
                capacity, hash_funcs = sizing.optimal_capacity(bits, fp_rate)
            else:
                capacity = sizing.capacity_for(bits, fp_rate, hash_funcs)
            if not capacity:
                raise ParameterError(
                    f"{bits} bits with {hash_funcs} hash functions exceed a rate of {fp_rate:g} with a single key"
                )
            return cls(capacity, fp_rate, bits, hash_funcs)
        given = [
            name for name, value in (("capacity", capacity), ("fp_rate", fp_rate), ("bits", bits)) if value is not None
        ]
        found = " and ".join(given) or "none"
        raise ParameterError(f"two of capacity, fp_rate and bits determine the third: give exactly two, not {found}")

    @property
    def bits_per_key(self) -> float:
        """Number of bits for each key when the filter contains `capacity` keys."""
        return self.bits / self.capacity

    @property
    def byte_size(self) -> int:
        """Size of the bits of a BloomFilter, in bytes."""
        return fileformat.body_size(fileformat.KIND_BITS, self.bits)

    @property
    def counting_byte_size(self) -> int:
        """Size of a CountingBloomFilter's 4-bit counters, in bytes."""
        return fileformat.body_size(fileformat.COUNTER_KINDS[4], self.bits)

    def expected(self, items: int) -> Expected:
        """Return the expected state of a filter of this size with `items` distinct keys.

        Raises ParameterError if `items` is outside its domain.
        """
        items = sizing.whole("items", items, 0, sizing.MAX_COUNT)
        rate = sizing.fp_rate(self.bits, self.hash_funcs, items)
        exact = sizing.fp_rate_exact(self.bits, self.hash_funcs, items) if self.hash_funcs <= _EXACT_FUNCTIONS else None
        overflow = sizing.counter_overflow(self.bits, self.hash_funcs, items)
        fill = -math.expm1(-self.hash_funcs * items / self.bits)
        return Expected(items, fill, rate, exact, overflow, overflow * self.bits)

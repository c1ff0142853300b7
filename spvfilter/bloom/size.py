"""Size: how large a filter is, and what is to be expected of it under any load, before it is made."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

from spvfilter._public import public
from spvfilter.bloom import fileformat, sizing
from spvfilter.errors import ParameterError

_EXACT_FUNCTIONS = 256  # up to here the exact rate takes less than 0.3 s


@public
class Expected(NamedTuple):
    """What is to be expected of a filter that holds `items` distinct keys."""

    items: int
    fill: float
    """The share of set bits, or of counters that are not 0."""
    fp_rate: float
    """By the approximate formula."""
    fp_rate_exact: float | None
    """None for more than 256 hash functions."""
    counter_overflow: float
    """The probability that one counter of a counting filter sticks at 15."""
    stuck_counters: float
    """The number of those counters."""


@public
class Size(NamedTuple):
    """The size of a filter for n keys: m bits, or 4-bit counters, and k hash functions."""

    capacity: int
    fp_rate: float | None
    """At most, at capacity; None if it was not asked for."""
    bits: int
    hash_funcs: int

    @classmethod
    def of(
        cls,
        capacity: int | None = None,
        fp_rate: float | None = None,
        hash_funcs: int | None = None,
        *,
        bits: int | None = None,
    ) -> Self:
        """The size that follows from two of capacity, rate and bits; without `hash_funcs` with the best number of
        functions.

        Bits that follow are rounded up to 4 bytes, as those of a BloomFilter; a capacity that follows is the largest.
        Raises ParameterError for one or all three of them, for values outside their domain, and for a rate that the
        bits exceed with a single key.
        """
        if bits is None and capacity is not None and fp_rate is not None:
            if hash_funcs is None:
                bits, hash_funcs = sizing.optimal(capacity, fp_rate)
            else:
                bits = sizing.bits_for(capacity, fp_rate, hash_funcs)
            return cls(capacity, float(fp_rate), sizing.align_bits(bits), hash_funcs)
        if fp_rate is None and capacity is not None and bits is not None:
            functions = sizing.optimal_hash_funcs(bits, capacity) if hash_funcs is None else hash_funcs
            sizing.fp_rate(bits, functions, capacity)  # which checks them
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
            return cls(capacity, float(fp_rate), bits, hash_funcs)
        given = [
            name for name, value in (("capacity", capacity), ("fp_rate", fp_rate), ("bits", bits)) if value is not None
        ]
        raise ParameterError(
            f"give two of capacity, fp_rate and bits, of which the third follows, not {' and '.join(given) or 'none'}"
        )

    @property
    def bits_per_key(self) -> float:
        """Bits for each key at capacity."""
        return self.bits / self.capacity

    @property
    def byte_size(self) -> int:
        """The bytes of a BloomFilter's bits."""
        return fileformat.body_size(fileformat.KIND_BITS, self.bits)

    @property
    def counting_byte_size(self) -> int:
        """The bytes of a CountingBloomFilter's counters."""
        return fileformat.body_size(fileformat.KIND_COUNTERS, self.bits)

    def expected(self, items: int) -> Expected:
        """What is to be expected with so many keys. Raises ParameterError for a number outside its domain."""
        rate = sizing.fp_rate(self.bits, self.hash_funcs, items)
        exact = sizing.fp_rate_exact(self.bits, self.hash_funcs, items) if self.hash_funcs <= _EXACT_FUNCTIONS else None
        overflow = sizing.counter_overflow(self.bits, self.hash_funcs, items)
        fill = -math.expm1(-self.hash_funcs * items / self.bits)
        return Expected(items, fill, rate, exact, overflow, overflow * self.bits)

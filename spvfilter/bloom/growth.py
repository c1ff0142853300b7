"""Growth: the sizes and rates of the slices of a scalable Bloom filter."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

from spvfilter._public import public
from spvfilter.bloom import sizing
from spvfilter.bloom.base import Encode
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import HashFamily
from spvfilter.bloom.shape import shape_of
from spvfilter.errors import ParameterError
from spvfilter.kernel import MAX_SLICES

MAX_GROWTH = 1024  # Largest ratio of the capacities of two successive slices (our choice).
# The bits of a slice are first counted when a 16th of its capacity is left. This reserve is larger
# than the error of the estimate.
_COUNTED_AGAIN = 16
_FEWER = 0.75  # Share of the optimal number of hash functions: a quarter less time for 3 % more bits.


@public
class Grown(NamedTuple):
    """The expected state of a scalable filter that contains `items` distinct keys."""

    items: int
    """Number of distinct keys that the filter contains."""
    slices: int
    """Number of slices in the filter."""
    bits: int
    """Total number of bits in all slices."""
    most_hash_funcs: int
    """Number of hash functions of the last slice, which has more than any other slice."""
    fp_rate: float
    """Combined false-positive rate of all slices, by the approximate formula, from 0 to 1."""


@public
class Growth(NamedTuple):
    """The rule by which a scalable filter grows.

    Slice i, from 0, has room for capacity * growth^i keys. Its false-positive rate is fp_rate (1 - tightening)
    tightening^i. The rates of any number of slices add up to less than `fp_rate`. Source: Almeida et al., "Scalable
    Bloom Filters" (2007).
    """

    capacity: int
    """Number of keys that the first slice is made for."""
    fp_rate: float
    """Upper bound of the combined false-positive rate of all slices, between 0 and 1."""
    growth: int = 2
    """Ratio of the capacities of two successive slices, from 2 to 1024."""
    tightening: float = 0.5
    """Ratio of the rates of two successive slices, between 0 and 1."""

    def checked(self) -> Self:
        """Return the rule in Python's own types. Raises ParameterError if a field is outside its domain."""
        try:
            growth = sizing.whole("growth", self.growth, 2, MAX_GROWTH)
        except ParameterError:
            message = f"growth must be a whole number from 2 to {MAX_GROWTH}, not {self.growth!r}"
            raise ParameterError(message) from None
        try:
            tightening = sizing.probability(self.tightening)
        except ParameterError:
            message = f"tightening must be a number above 0 and below 1, not {self.tightening!r}"
            raise ParameterError(message) from None
        _, _, capacity, fp_rate = shape_of(self.capacity, self.fp_rate, None, None, False)
        return type(self)(capacity, fp_rate, growth, tightening)

    def shape(self, number: int) -> tuple[int, float, int]:
        """Return the capacity, rate and number of hash functions of a slice: the arguments of its BloomFilter.

        Raises ParameterError if the size of the slice is too large to compute.
        """
        rate = self.fp_rate * (1 - self.tightening) * self.tightening**number
        capacity = self.capacity * self.growth**number
        sizing.optimal(capacity, rate)  # checks capacity and rate
        return capacity, rate, math.ceil(-math.log2(rate) * _FEWER)

    def slices_for(self, items: int) -> int:
        """Return the number of slices that a filter with `items` keys needs."""
        count, room = 1, self.capacity
        while room < items:
            room += self.capacity * self.growth**count
            count += 1
        return count

    def expected(self, items: int) -> Grown:
        """Return the expected state of a filter with `items` distinct keys.

        Raises ParameterError if the keys need more than 64 slices, or a slice whose size is too large to compute.
        """
        count = self.slices_for(items)
        if count > MAX_SLICES:
            raise ParameterError(f"{items} keys need {count} slices, but at most {MAX_SLICES} are possible")
        left, bits, most, log_right = items, 0, 0, 0.0
        for number in range(count):
            shape = self.shape(number)
            cells, most, *_ = shape_of(*shape, None, False)
            held = min(left, shape[0])
            left -= held
            bits += cells
            log_right += math.log1p(-sizing.fp_rate(cells, most, held))
        return Grown(items, count, bits, most, 0.0 - math.expm1(log_right))  # not -0.0

    def slice(self, number: int, hashing: HashFamily | None, encode: Encode) -> BloomFilter:
        """Return a new empty slice with the given number.

        Args:
            number: Number of the slice, from 0.
            hashing: The hash family; None for FastHash.
            encode: Type of the keys, as for BloomFilter.

        Raises:
            ParameterError: The size of the slice is too large to compute.
            TooLargeError: The slice does not fit into memory.
        """
        made = BloomFilter(*self.shape(number), hashing=hashing, encode=encode)
        assert made.room
        made.room -= made.room // _COUNTED_AGAIN  # when this room is used up, the bits are counted
        return made

"""Growth: the sizes and rates of the slices of a scalable Bloom filter."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

from spvfilter._public import public
from spvfilter.bloom import sizing
from spvfilter.bloom.base import Encode
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import HashFamily
from spvfilter.bloom.shape import cells_and_functions
from spvfilter.errors import ParameterError
from spvfilter.kernel import MAX_SLICES

MAX_GROWTH = 1024
_COUNTED_AGAIN = 16  # the share of a slice that is left when its bits are first counted: more than chance adds to them
_FEWER = 0.75  # of the optimal number of functions: 3 % more bits for a quarter less time


@public
class Grown(NamedTuple):
    """What is to be expected of a scalable filter that holds `items` distinct keys."""

    items: int
    slices: int
    bits: int
    most_hash_funcs: int
    """Those of the last slice."""
    fp_rate: float
    """By the approximate formula."""


@public
class Growth(NamedTuple):
    """How a scalable filter grows: slice i, from 0 on, is for capacity * growth^i keys at the rate fp_rate (1 -
    tightening) tightening^i.

    The rates of all slices, however many, add up to less than `fp_rate`. Source: Almeida et al., "Scalable Bloom
    Filters" (2007).
    """

    capacity: int
    fp_rate: float
    growth: int = 2
    tightening: float = 0.5

    def checked(self) -> Self:
        """Itself. Raises ParameterError for values outside their domain."""
        if not isinstance(self.growth, int) or not 2 <= self.growth <= MAX_GROWTH:
            raise ParameterError(f"growth must be a whole number from 2 to {MAX_GROWTH}: {self.growth!r}")
        if not isinstance(self.tightening, float) or not 0 < self.tightening < 1:
            raise ParameterError(f"tightening must be a number between 0 and 1, both excluded: {self.tightening!r}")
        sizing.optimal(self.capacity, self.fp_rate)  # which checks both
        return self

    def shape(self, number: int) -> tuple[int, float, int]:
        """Capacity, rate and hash functions of a slice, the arguments of its BloomFilter.

        Raises ParameterError beyond what can be sized.
        """
        rate = self.fp_rate * (1 - self.tightening) * self.tightening**number
        capacity = self.capacity * self.growth**number
        sizing.optimal(capacity, rate)  # which checks both
        return capacity, rate, math.ceil(-math.log2(rate) * _FEWER)

    def slices_for(self, items: int) -> int:
        """The number of slices that hold so many keys."""
        count, room = 1, self.capacity
        while room < items:
            room += self.capacity * self.growth**count
            count += 1
        return count

    def expected(self, items: int) -> Grown:
        """What is to be expected with so many keys. Raises ParameterError beyond 64 slices, and what can be sized."""
        count = self.slices_for(items)
        if count > MAX_SLICES:
            raise ParameterError(f"{items} keys take {count} slices, at most {MAX_SLICES} are possible")
        left, bits, most, log_right = items, 0, 0, 0.0
        for number in range(count):
            shape = self.shape(number)
            cells, most = cells_and_functions(*shape, None, False)
            held = min(left, shape[0])
            left -= held
            bits += cells
            log_right += math.log1p(-sizing.fp_rate(cells, most, held))
        return Grown(items, count, bits, most, 0.0 - math.expm1(log_right))  # not -0.0

    def slice(self, number: int, hashing: HashFamily | None, encode: Encode) -> BloomFilter:
        """An empty slice. Raises ParameterError, TooLargeError."""
        made = BloomFilter(*self.shape(number), hashing=hashing, encode=encode)
        assert made.room
        made.room -= made.room // _COUNTED_AGAIN  # from there on its bits are counted
        return made

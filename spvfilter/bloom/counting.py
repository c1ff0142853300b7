"""CountingBloomFilter: a Bloom filter with 4-bit counters, from which keys can be removed."""

from __future__ import annotations

from typing import Self

from spvfilter._public import public
from spvfilter.bloom import sizing
from spvfilter.bloom.base import SLOTS, GenericFilter
from spvfilter.bloom.fileformat import KIND_BITS, KIND_COUNTERS
from spvfilter.bloom.filter import BloomFilter
from spvfilter.kernel import CounterCore


@public
class CountingBloomFilter(GenericFilter, CounterCore):
    """A Bloom filter with a 4-bit counter in place of each bit, so that keys can be removed. It is four times as large as a BloomFilter.

    The arguments are BloomFilter's. spvfilter.kernel.CounterCore documents `add`, `remove`, `count`, `in`, `update`, `contains_many`,
    `|=` (sums of the counters) and `clear`. A counter that reaches 15 stays there for good, even after `remove`: added keys are never lost,
    but some removed keys remain. At capacity with the optimal k, a counter reaches 15 with probability 1.6e-15 (`counter_overflow`); adding
    the same key 15 times also does it.

    Remove only keys that were added: removing a false positive decrements the counters of other keys. Removing a key that is not contained
    raises KeyError. Other errors are BloomFilter's: ParameterError, CapacityError, TooLargeError, MismatchError.
    """

    __slots__ = SLOTS

    KIND = KIND_COUNTERS

    def __or__(self, other: CountingBloomFilter) -> Self:
        """The multiset sum: the keys of both, with the sums of their counts."""
        if not isinstance(other, CountingBloomFilter):
            return NotImplemented
        self.same_shape(other)
        both = self.copy()
        both |= other
        return both

    def __bool__(self) -> bool:
        """Whether the filter contains anything."""
        return self.set_cells() > 0

    def __len__(self) -> int:
        """`approx_len`, rounded. Raises OverflowError if no counter is 0."""
        return round(self.approx_len)

    @property
    def approx_len(self) -> float:
        """The estimated number of distinct keys, -(m/k) ln(1 - X/m); infinite if no counter is 0."""
        return sizing.estimate_items(self.cells, self.hash_funcs, self.set_cells())

    @property
    def fill(self) -> float:
        """The share of counters that are not 0."""
        return self.set_cells() / self.cells

    @property
    def current_fp_rate(self) -> float:
        """The present false-positive rate: the probability that a key that was never added is contained."""
        return self.to_bloom().current_fp_rate

    @property
    def counter_overflow(self) -> float | None:
        """The probability that a given counter reaches 15 at `capacity` keys; None for a filter without a capacity."""
        return sizing.counter_overflow(self.cells, self.hash_funcs, self.capacity) if self.capacity else None

    def to_bloom(self) -> BloomFilter:
        """A BloomFilter with the same keys: a bit is set if its counter is not 0."""
        header = self.header()._replace(kind=KIND_BITS)
        return BloomFilter._made(header, self.hashing, self._encode_with, self.to_bits(), private=True, on_full=self.on_full)

"""CountingBloomFilter: a Bloom filter that can forget. Four bits a counter; BIP-37 has none of this."""

from __future__ import annotations

from typing import Self

from spvfilter._public import public
from spvfilter.bloom import sizing
from spvfilter.bloom.base import GenericFilter
from spvfilter.bloom.fileformat import KIND_BITS, KIND_COUNTERS
from spvfilter.bloom.filter import BloomFilter
from spvfilter.kernel import CounterCore


@public
class CountingBloomFilter(GenericFilter, CounterCore):
    """A Bloom filter with a 4-bit counter for each bit, so that keys can be removed; made as a BloomFilter is, four times its size.

    `add`, `remove`, `count`, `in`, `update`, `contains_many`, `|=` (the counters' sums) and `clear` are the kernel's (see
    spvfilter.kernel.CounterCore). A counter that reaches 15 sticks there for good: `remove` then leaves it, so that nothing
    added is ever lost, at the price of keys that stay. At capacity with the best k that befalls a counter with probability 1.6e-15
    (`counter_overflow`, sizing.counter_overflow); adding the same key 15 times does it too.

    Removing a key that is contained only by chance takes away from others: remove what was added, nothing else. What is surely absent
    raises KeyError. Other errors are BloomFilter's: ParameterError, TooLargeError, MismatchError.
    """

    KIND = KIND_COUNTERS

    def __or__(self, other: CountingBloomFilter) -> Self:
        """The sum of both: what either contains, counted as often as both together."""
        if not isinstance(other, CountingBloomFilter):
            return NotImplemented
        self.same_shape(other)
        both = self.copy()
        both |= other
        return both

    def __bool__(self) -> bool:
        """Whether anything is in it."""
        return self.set_cells() > 0

    def __len__(self) -> int:
        """`approx_len` as a whole number. Raises OverflowError when no counter is 0."""
        return round(self.approx_len)

    @property
    def approx_len(self) -> float:
        """How many different keys it probably holds: -(m/k) ln(1 - X/m); infinite when no counter is 0."""
        return sizing.estimate_items(self.cells, self.hash_funcs, self.set_cells())

    @property
    def fill(self) -> float:
        """Share of the counters that are not 0."""
        return self.set_cells() / self.cells

    @property
    def current_fp_rate(self) -> float:
        """Probability that a key never added is contained, as the filter stands."""
        return self.to_bloom().current_fp_rate

    @property
    def counter_overflow(self) -> float | None:
        """Probability that a given counter has reached 15 when `capacity` keys are in it; None for a filter made without one."""
        return sizing.counter_overflow(self.cells, self.hash_funcs, self.capacity) if self.capacity else None

    def to_bloom(self) -> BloomFilter:
        """A BloomFilter of the same keys: a bit where a counter is not 0."""
        header = self.header()._replace(kind=KIND_BITS)
        return BloomFilter._made(header, self.hashing, self._encode_with, self.to_bits(), private=True)

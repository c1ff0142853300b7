"""CountingBloomFilter: a Bloom filter with 4-bit counters, from which keys can be removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self, overload

from spvfilter._public import public
from spvfilter.bloom import sizing
from spvfilter.bloom.base import SLOTS, GenericFilter
from spvfilter.bloom.batch import Batch
from spvfilter.bloom.fileformat import KIND_BITS, KIND_COUNTERS
from spvfilter.bloom.filter import BloomFilter
from spvfilter.errors import ReadOnlyError
from spvfilter.kernel import CounterCore

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from spvfilter.kernel.columns import Column, Keys, Mask, Nulls, NumpyArray
    from spvfilter.kernel.masks import BoolMask


@public
class CountingBloomFilter(GenericFilter, CounterCore):
    """A Bloom filter with a 4-bit counter in place of each bit, so that keys can be removed.

    It is four times as large as a BloomFilter.

    The arguments are BloomFilter's. spvfilter.kernel.CounterCore documents `add`, `remove`, `count`, `in`, `update`,
    `contains_many`, `|=` (sums of the counters) and `clear`. A counter that reaches 15 stays there for good, even after
    `remove`: added keys are never lost, but some removed keys remain. At capacity with the optimal k, a counter reaches
    15 with probability 1.6e-15 (`counter_overflow`); adding the same key 15 times also does it.

    Remove only keys that were added: removing a false positive decrements the counters of other keys. Removing a key
    that is not contained raises KeyError. Other errors are BloomFilter's: ParameterError, CapacityError, TooLargeError,
    MismatchError.
    """

    __slots__ = SLOTS

    KIND = KIND_COUNTERS
    _init_core = CounterCore.__init__

    def __or__(self, other: CountingBloomFilter) -> Self:
        """The multiset sum: the keys of both, with the sums of their counts."""
        if not isinstance(other, CountingBloomFilter):
            return NotImplemented
        self.same_shape(other)
        both = self.copy()
        both |= other
        return both

    def union(self, *others: CountingBloomFilter) -> Self:
        """A new filter with the keys of this and the others, with the sums of their counts, as `|`.

        Raises MismatchError, TypeError for other objects, TooLargeError.
        """
        self._match(others)
        both = self.copy()
        both.union_update(*others)
        return both

    def union_update(self, *others: CountingBloomFilter) -> None:
        """Add the keys of the others with their counts, as `|=`; `update` adds keys.

        Raises MismatchError, TypeError for other objects, both before anything is changed; ReadOnlyError.
        """
        self._match(others)
        for other in others:
            self |= other

    def _match(self, others: Iterable[CountingBloomFilter]) -> None:
        for other in others:
            if not isinstance(other, CountingBloomFilter):
                raise TypeError(f"a counting Bloom filter expected, not {type(other).__name__}")
            self.same_shape(other)

    @overload
    def remove_many(  # type: ignore[overload-overlap]  # an array is an iterable, too
        self, keys: NumpyArray, *, nulls: Nulls = "raise"
    ) -> BoolMask: ...
    @overload
    def remove_many(self, keys: Column, *, nulls: Nulls = "raise") -> Mask: ...
    @overload
    def remove_many(self, keys: Iterable[object] | Buffer, *, nulls: Nulls = "raise") -> bytes: ...
    def remove_many(self, keys: Keys, *, nulls: Nulls = "raise") -> bytes | Mask:
        """Count each key of a batch, as `update` takes it, once less: one byte for each, 1 if it was removed, 0 if it
        was not contained.

        What comes back for a column is a mask, as that of `contains_many`; a null that is skipped is not removed.
        Nothing is changed for a key that is not contained: to take something from its counters would lose other keys. A
        key that comes several times is removed as often as it is contained. All are looked up first, so that a key of a
        wrong type changes nothing at all. As with `remove`, a key that was never added but is contained, a false
        positive, takes from other keys' counters.

        Raises TypeError, OverflowError and ColumnError as `update` does, ReadOnlyError.
        """
        if memoryview(self.buffer).readonly:
            raise ReadOnlyError("the filter is read-only")
        batch = Batch(keys, nulls, self.encoding)
        single = [*batch]
        there = bytearray(self.contains_many(single))
        for at, key in enumerate(single):
            if there[at]:
                try:
                    self.remove(key)
                except KeyError:  # removed before, by the same batch or another thread
                    there[at] = 0
        return batch.answer(bytes(there))  # type: ignore[return-value]  # that of the keys' library

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
        return BloomFilter._made(
            header, self.hashing, self._encode_with, self.to_bits(), private=True, on_full=self.on_full
        )

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
from spvfilter.kernel.values import COUNTER_LIMIT
from spvfilter.primitives import chunks

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from spvfilter.kernel.columns import Column, Keys, Mask, Nulls, NumpyArray
    from spvfilter.kernel.masks import BoolMask


_STUCK = bytes((byte & 15 == COUNTER_LIMIT) + (byte >> 4 == COUNTER_LIMIT) for byte in range(256))  # For each byte.


@public
class CountingBloomFilter(GenericFilter, CounterCore):
    """A Bloom filter with a 4-bit counter in place of each bit, so that keys can be removed.

    It is four times as large as a BloomFilter and has the same arguments. The methods `add`, `remove`, `count`, `in`,
    `update`, `contains_many`, `|=` (sums of the counters) and `clear` are documented at spvfilter.kernel.CounterCore.

    Remove only keys that were added. Removing a false positive decrements the counters of other keys, and the filter
    may then miss these keys. Removing a key that the filter does not contain raises KeyError.

    A counter that reaches 15 stays at 15, even after `remove`. The filter therefore never misses an added key, but some
    removed keys remain. At capacity with the best number of hash functions, a counter reaches 15 with probability
    1.6e-15 (`counter_overflow`). A counter also reaches 15 if the same key is added 15 times.

    `stuck_counters` is the number of counters that have reached 15.

    Raises:
        ParameterError: A size or a rate is outside its domain.
        CapacityError: A new key is added to a full filter.
        TooLargeError: The filter does not fit into memory.
        MismatchError: The filters of an operation differ in shape.
    """

    __slots__ = SLOTS

    _KIND: int = KIND_COUNTERS
    _init_core = CounterCore.__init__

    def __or__(self, other: CountingBloomFilter) -> Self:
        """Return a filter with the keys of both filters and the sums of their counts."""
        if not isinstance(other, CountingBloomFilter):
            return NotImplemented
        self._same_shape(other)
        both = self.copy()
        both |= other
        return both

    def union(self, *others: CountingBloomFilter) -> Self:
        """Return a new filter with the keys of this filter and the others and the sums of their counts, as `|` does.

        Raises MismatchError for a filter of another shape, TypeError for other objects, TooLargeError if it does not
        fit into memory.
        """
        self._match(others)
        both = self.copy()
        both.union_update(*others)
        return both

    def union_update(self, *others: CountingBloomFilter) -> None:
        """Add the keys of other filters with their counts, as `|=` does. To add single keys, use `update`.

        Raises MismatchError for a filter of another shape, TypeError for other objects, ReadOnlyError for read-only
        memory. In the first two cases nothing has changed.
        """
        self._match(others)
        for other in others:
            self |= other

    def _match(self, others: Iterable[CountingBloomFilter]) -> None:
        for other in others:
            if not isinstance(other, CountingBloomFilter):
                raise TypeError(f"expected a counting Bloom filter, not {type(other).__name__}")
            self._same_shape(other)

    @overload
    def remove_many(  # type: ignore[overload-overlap]  # an array is an iterable too
        self, keys: NumpyArray, *, nulls: Nulls = "raise"
    ) -> BoolMask: ...
    @overload
    def remove_many(self, keys: Column, *, nulls: Nulls = "raise") -> Mask: ...
    @overload
    def remove_many(self, keys: Iterable[object] | Buffer, *, nulls: Nulls = "raise") -> bytes: ...
    def remove_many(self, keys: Keys, *, nulls: Nulls = "raise") -> bytes | Mask:
        """Remove each key of a batch once, and return which keys were removed.

        The result has one byte for each key: 1 if the key was removed, 0 if it was not contained. For a column it is a
        mask as `contains_many` returns it; a null that is skipped is not removed.

        A key that is not contained changes nothing. A key that occurs several times is removed as often as the filter
        contains it. All keys are looked up first: a key of a wrong type raises an error before anything has changed. As
        with `remove`, remove only keys that were added: a false positive decrements the counters of other keys.

        Args:
            keys: The keys, as `update` takes them.
            nulls: Handling of nulls among the keys: "raise" raises an error, "skip" leaves them out.

        Raises:
            ReadOnlyError: The filter's memory is read-only.
            ColumnError: A column contradicts itself.
            TypeError: A key has the wrong type.
            KeyRangeError: An integer key does not fit the filter's encoding.
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
                except KeyError:  # the same batch or another thread has removed it already
                    there[at] = 0
        return batch.answer(bytes(there))  # type: ignore[return-value]  # the mask type of the keys' library

    def __bool__(self) -> bool:
        """Return True if the filter contains any key."""
        return self.set_cells() > 0

    def __len__(self) -> int:
        """Return the estimated number of distinct keys, rounded. Raises OverflowError if no counter is 0."""
        return round(self.approx_len)

    @property
    def approx_len(self) -> float:
        """Estimated number of distinct keys, -(m/k) ln(1 - X/m). It is infinite if no counter is 0.

        The filter has m counters, of which X are not 0, and k hash functions.
        """
        return sizing.estimate_items(self.cells, self.hash_funcs, self.set_cells())

    @property
    def fill(self) -> float:
        """Share of the counters that are not 0, from 0 to 1."""
        return self.set_cells() / self.cells

    @property
    def current_fp_rate(self) -> float:
        """Current false-positive rate: the probability that the filter contains a key that was never added."""
        return self.to_bloom().current_fp_rate

    @property
    def stuck_counters(self) -> int:
        """Number of counters that have reached 15 and stay there, so that `remove` no longer decrements them."""
        stuck = 0
        for chunk in chunks(self.body):
            found = bytes(chunk).translate(_STUCK)
            stuck += found.count(1) + 2 * found.count(2)
        return stuck

    @property
    def counter_overflow(self) -> float | None:
        """Probability that any one counter has reached 15 at `capacity` keys. None if the filter has no capacity."""
        return sizing.counter_overflow(self.cells, self.hash_funcs, self.capacity) if self.capacity else None

    def to_bloom(self) -> BloomFilter:
        """Return a BloomFilter with the same keys: a bit is set if its counter is not 0."""
        header = self.header()._replace(kind=KIND_BITS)
        return BloomFilter._made(
            header, self.hashing, self._encode_with, self.to_bits(), private=True, on_full=self.on_full
        )

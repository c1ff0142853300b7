"""CountingBloomFilter: a Bloom filter with counters, from which keys can be removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self, overload

from spvfilter._public import public
from spvfilter.bloom import sizing
from spvfilter.bloom.base import SLOTS, Encode, GenericFilter, OnFull
from spvfilter.bloom.batch import KeyBatch
from spvfilter.bloom.fileformat import COUNTER_KINDS, KIND_BITS
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import HashFamily
from spvfilter.errors import ParameterError, ReadOnlyError
from spvfilter.kernel import CounterCore
from spvfilter.primitives import chunks

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from spvfilter.kernel.columns import Column, Keys, Mask, Nulls, NumpyArray, Padding
    from spvfilter.kernel.masks import BoolMask


_STUCK = bytes((byte & 15 == 15) + (byte >> 4 == 15) for byte in range(256))  # Stuck 4-bit counters in each byte.


@public
class CountingBloomFilter(GenericFilter, CounterCore):
    """A Bloom filter with a counter in place of each bit, so that keys can be removed.

    It takes the arguments of a BloomFilter. With `counter_bits` of 4 (the default), 8 or 16, it is that many times as
    large. The methods `add`, `remove`, `count`, `in`, `update`, `contains_many`, `|=` (which adds the counters)
    and `clear` are documented at spvfilter.kernel.CounterCore.

    Remove only keys that were added. Removing a false positive decrements the counters of other keys, and the filter
    may then miss these keys. Removing a key that the filter does not contain raises KeyError.

    A counter that reaches its limit of 15, 255 or 65,535 stays there, even after `remove`. The filter therefore never
    misses an added key, but some removed keys remain (`stuck_counters`).

    With distinct keys a counter hardly ever reaches 15 (`counter_overflow`). Adding the same key 15 times also brings
    its counters to 15, so use a larger `counter_bits` if that can happen.

    Raises:
        ParameterError: A size or a rate is outside its domain.
        CapacityError: A new key is added to a full filter.
        TooLargeError: The filter does not fit into memory.
        MismatchError: The filters of an operation differ in shape.
    """

    __slots__ = SLOTS

    _KINDS = tuple(COUNTER_KINDS.values())
    _init_core = CounterCore.__init__

    def __init__(
        self,
        capacity: int | None = None,
        fp_rate: float | None = None,
        hash_funcs: int | None = None,
        *,
        bits: int | None = None,
        hashing: HashFamily | None = None,
        encode: Encode = None,
        partitioned: bool = False,
        buffer: Buffer | None = None,
        on_full: OnFull = "raise",
        counter_bits: int = 4,
    ) -> None:
        kind = _kind_of(counter_bits)
        self._start(kind, capacity, fp_rate, hash_funcs, bits, hashing, encode, partitioned, buffer, on_full)

    @property
    def _kind(self) -> int:  # type: ignore[override]  # it follows from the size of the counters
        return COUNTER_KINDS[self.counter_bits]

    @classmethod
    def load(
        cls,
        raw: Buffer,
        capacity: int | None = None,
        fp_rate: float | None = None,
        hash_funcs: int | None = None,
        *,
        bits: int | None = None,
        hashing: HashFamily | None = None,
        encode: Encode = None,
        partitioned: bool = False,
        on_full: OnFull = "raise",
        counter_bits: int = 4,
    ) -> Self:
        """Make a filter from the cells that `dump` returned.

        Pass the arguments that the filter was made with, because the cells do not contain them. Raises the same errors
        as BloomFilter.load, and ParameterError unless `counter_bits` is 4, 8 or 16.
        """
        kind = _kind_of(counter_bits)
        return cls._loaded(kind, raw, capacity, fp_rate, hash_funcs, bits, hashing, encode, partitioned, on_full)

    def __or__(self, other: CountingBloomFilter) -> Self:
        """Return a filter with the keys of both filters and the sums of their counts."""
        if not isinstance(other, CountingBloomFilter):
            return NotImplemented
        self._same_shape(other)
        both = self.copy()
        both |= other
        return both

    def union(self, *others: CountingBloomFilter) -> Self:
        """Return a new filter with the keys of this filter and the others, adding up their counts, as `|` does.

        Raises MismatchError if a filter has a different shape, TypeError if an object is not such a filter, and
        TooLargeError if the result does not fit into memory.
        """
        self._match(others)
        both = self.copy()
        both.union_update(*others)
        return both

    def union_update(self, *others: CountingBloomFilter) -> None:
        """Add the keys of other filters with their counts, as `|=` does. To add single keys, use `update`.

        Raises MismatchError if a filter has a different shape, TypeError if an object is not such a filter, and
        ReadOnlyError if the memory is read-only. In the first two cases nothing has changed.
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
        self, keys: NumpyArray, *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> BoolMask: ...
    @overload
    def remove_many(self, keys: Column, *, nulls: Nulls = "raise", padding: Padding | None = None) -> Mask: ...
    @overload
    def remove_many(
        self, keys: Iterable[object] | Buffer, *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> bytes: ...
    def remove_many(self, keys: Keys, *, nulls: Nulls = "raise", padding: Padding | None = None) -> bytes | Mask:
        """Remove each key of a batch once, and return which keys were removed.

        The result has one byte for each key: 1 if the key was removed, 0 if it was not contained. For a column, it is a
        mask like that of `contains_many`; a skipped null is not removed.

        A key that is not contained changes nothing. A key that occurs several times is removed as often as the filter
        contains it. All keys are looked up first: a key of the wrong type raises an error before anything has changed.
        As with `remove`, remove only keys that were added: a false positive decrements the counters of other keys.

        Args:
            keys: The keys, as `update` accepts them.
            nulls: How to handle nulls among the keys: "raise" raises an error, "skip" leaves them out.
            padding: How to handle zeros at the end of NumPy's byte strings, as for BloomFilter.update.

        Raises:
            ReadOnlyError: The filter's memory is read-only.
            ColumnError: A column contradicts itself.
            TypeError: A key has the wrong type.
            KeyRangeError: An integer key does not fit the filter's encoding.
        """
        if memoryview(self.buffer).readonly:
            raise ReadOnlyError("the filter is read-only: change a copy of it, or open its file with writable=True")
        batch = KeyBatch(keys, nulls, self.encoding, padding)
        single = [*batch]
        there = bytearray(self.contains_many(single))
        for at, key in enumerate(single):
            if there[at]:
                try:
                    self.remove(key)
                except KeyError:  # the same batch or another thread has already removed it
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
        """Number of counters that have reached their limit and stay there: `remove` no longer decrements them."""
        return sum(map(self._stuck, map(bytes, chunks(self.body))))

    def _stuck(self, chunk: bytes) -> int:
        match self.counter_bits:
            case 4:
                found = chunk.translate(_STUCK)
                return found.count(1) + 2 * found.count(2)
            case 8:
                return chunk.count(255)
            case _:
                low, high = (int.from_bytes(chunk[at::2], "little") for at in (0, 1))
                return (low & high).to_bytes(len(chunk) // 2, "little").count(255)

    @property
    def counter_overflow(self) -> float | None:
        """Probability that a given counter has reached its limit at `capacity` distinct keys. None without capacity."""
        if not self.capacity:
            return None
        return sizing.counter_overflow(self.cells, self.hash_funcs, self.capacity, self.counter_limit)

    def to_bloom(self) -> BloomFilter:
        """Return a BloomFilter with the same keys: a bit is set if its counter is not 0."""
        header = self.header()._replace(kind=KIND_BITS)
        return BloomFilter._made(
            header, self.hashing, self._encode_with, self.to_bits(), private=True, on_full=self.on_full
        )


def _kind_of(counter_bits: int) -> int:
    """Return the kind of file for counters of this size. Raises ParameterError or TypeError."""
    kind = COUNTER_KINDS.get(sizing.whole("counter_bits", counter_bits, 4, 16))
    if kind is None:
        raise ParameterError(f"counter_bits must be 4, 8 or 16, not {counter_bits}")
    return kind

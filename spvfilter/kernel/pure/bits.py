"""The cells of generic filters: bits, 4-bit counters, and the operations on them. The readable reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Self, overload

from spvfilter.kernel.pure.cells import Hashed
from spvfilter.kernel.values import COUNTER_LIMIT
from spvfilter.primitives import chunks

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from spvfilter.kernel.columns import Column, Keys, Mask, Nulls, NumpyArray
    from spvfilter.kernel.masks import BoolMask


_MASKS = (1, 2, 4, 8, 16, 32, 64, 128)  # 1 << n: a lookup takes less time than a shift.


class BitCore(Hashed):
    """A bit array with k hash functions. Bit b is `1 << (b & 7)` of byte `b >> 3`, as in BIP-37.

    `buffer` has ⌈m/8⌉ bytes. An array without bits or functions contains every key, and adding a key does nothing. Core
    does the same since 0.21, so that it never divides by a size of 0 (CVE-2013-5700).

    Raises ParameterError for a number out of range, a key that does not have 16 bytes, or a buffer of another size.
    """

    __slots__ = ()

    _CELLS = "bits"

    def _size(self) -> int:
        return (self.cells + 7) // 8

    @property
    def bits(self) -> int:
        """Number of bits m."""
        return self.cells

    def add(self, key: object, /) -> bool:
        """Set the bits of a key. Return True if the key was new, that is, if a bit of it was not set before.

        Raises TypeError or KeyRangeError for a key that does not fit the filter's encoding, ReadOnlyError if the memory
        is read-only, CapacityError if there is no room.
        """
        return self._set(self._positions(self._encode(key)))

    def _set(self, cells: Iterable[int]) -> bool:
        view, new = self._writable(), False
        if self._room is not None:
            cells = list(cells)
            if self._room <= 0 and not self._all_set(cells):
                self._ask_for_room()
        for at in cells:
            byte, mask = at >> 3, _MASKS[at & 7]
            before = view[byte]
            if not before & mask:
                view[byte] = before | mask
                new = True
        if new:
            self._take_room(1)
        return new

    def __contains__(self, key: object) -> bool:
        return self._all_set(self._positions(self._encode(key)))

    def _all_set(self, cells: Iterable[int]) -> bool:
        view = self._view
        for at in cells:  # noqa: SIM110  # all(…) needs a generator and takes twice as long
            if not view[at >> 3] & _MASKS[at & 7]:
                return False
        return True

    def update(self, *keys: Keys, nulls: Nulls = "raise") -> int:
        """Add one or more batches of keys, and return how many keys were new.

        A batch is an iterable of keys, a buffer, or a column. Columns of NumPy, pandas, polars and pyarrow are
        accepted, and objects with `__arrow_c_array__` or `__arrow_c_stream__` (Arrow's C data interface), such as
        relations of DuckDB. A table must have one column. Keys of a column are

        - str: Arrow's string, large_string and string_view; NumPy's U and StringDType
        - bytes-like: Arrow's binary, large_binary, binary_view and fixed_size_binary; NumPy's S
        - int: integers of any width, whose values must fit
        - any of them as objects, or from dictionaries (categoricals)

        For bytes-like keys, a two-dimensional buffer of n×w bytes holds n keys of w bytes. A one-dimensional buffer or
        NumPy array of integers wider than a byte holds one key per integer, in the machine's byte order.

        Args:
            keys: The batches.
            nulls: Handling of nulls in a column, of masked values, and of None or NaN in an iterable: "raise" raises an
                error, "skip" leaves them out. With a custom `encode` function, "raise" passes None to that function.

        Raises:
            TypeError: A key has the wrong type, or a batch is bytes, bytearray or str, which are single keys. The keys
                before it have been added.
            KeyRangeError: An integer key does not fit the encoding. The keys before it have been added.
            ColumnError: A column contradicts itself. The keys before it have been added. The lengths of an Arrow
                array's buffers cannot be checked; the library that made it is trusted.
            ParameterError: `nulls` is neither "raise" nor "skip".
            ReadOnlyError: The memory is read-only.
            OSError: An Arrow stream fails.
        """
        return sum(
            self._set(self._positions(key)) for batch in keys for key in self._batch(batch, nulls)[0] if key is not None
        )

    @overload
    def contains_many(  # type: ignore[overload-overlap]  # an array is an iterable too
        self, keys: NumpyArray, /, *, nulls: Nulls = "raise"
    ) -> BoolMask: ...
    @overload
    def contains_many(self, keys: Column, /, *, nulls: Nulls = "raise") -> Mask: ...
    @overload
    def contains_many(self, keys: Iterable[object] | Buffer, /, *, nulls: Nulls = "raise") -> bytes: ...
    def contains_many(self, keys: Keys, /, *, nulls: Nulls = "raise") -> bytes | Mask:
        """Test a batch of keys, as `update` takes it. Return one byte for each key: 1 if it is contained, else 0.

        For a column the result is a mask of its library: an array of NumPy's bool for NumPy and pandas, a Boolean
        Series for polars, a BooleanArray for pyarrow. A null that is skipped is not contained. Raises the errors of
        `update` except ReadOnlyError.
        """
        batch, answer = self._batch(keys, nulls)
        # the result is bytes or a mask
        return answer(bytes(key is not None and self._all_set(self._positions(key)) for key in batch))  # type: ignore[no-any-return]

    def set_bits(self) -> int:
        """Return the number of bits that are 1."""
        return _ones(self._view)

    def union_set_bits(self, other: BitCore, /) -> int:
        """Return the number of bits that are 1 in this array or in the other one.

        Raises MismatchError for an array of another shape, TypeError for other objects.
        """
        self._same_shape(other)
        pairs = zip(chunks(self._view), chunks(other._view), strict=True)
        return sum(
            (int.from_bytes(mine, "little") | int.from_bytes(theirs, "little")).bit_count() for mine, theirs in pairs
        )

    def plane_set_bits(self) -> list[int]:
        """Return the number of bits that are 1 in the plane of each function.

        If the array is not partitioned, the plane of each function is the whole array.
        """
        return [self._set_between(first, first + span) for first, span in self._spans]

    def _set_between(self, first: int, end: int) -> int:
        """Return the number of set bits from `first` to before `end`.

        It counts the bytes that contain these bits, and subtracts the other bits in the first and last byte.
        """
        if first == end:
            return 0
        view = self._view[first >> 3 : (end + 7) >> 3]
        before = view[0] & (1 << (first & 7)) - 1
        behind = view[-1] >> (end & 7) if end & 7 else 0
        return _ones(view) - before.bit_count() - behind.bit_count()

    def __ior__(self, other: BitCore) -> Self:
        return self._combine(other, int.__or__)

    def __iand__(self, other: BitCore) -> Self:
        return self._combine(other, int.__and__)

    def _combine(self, other: BitCore, operation: Callable[[int, int], int]) -> Self:
        if not isinstance(other, BitCore):
            return NotImplemented
        self._same_shape(other)
        for mine, theirs in zip(chunks(self._writable()), chunks(other._view), strict=True):
            mixed = operation(int.from_bytes(mine, "little"), int.from_bytes(theirs, "little"))
            mine[:] = mixed.to_bytes(len(mine), "little")
        self._forget_room()
        return self

    def __le__(self, other: BitCore) -> bool:
        """True if every bit that is set here is set in `other`: it contains every key that this filter contains."""
        if not isinstance(other, BitCore):
            return NotImplemented
        self._same_shape(other)
        pairs = zip(chunks(self._view), chunks(other._view), strict=True)
        return not any(int.from_bytes(mine, "little") & ~int.from_bytes(theirs, "little") for mine, theirs in pairs)

    def clear(self) -> None:
        """Set every bit to 0. Raises ReadOnlyError if the memory is read-only."""
        _zero(self._writable())
        self._forget_room()


_NONZERO = bytes(
    (byte & 15 > 0) | (byte >> 4 > 0) << 1 for byte in range(256)
)  # For each byte of two counters: one bit for each counter.


class CounterCore(Hashed):
    """An array of 4-bit counters with k hash functions.

    Counter c is in byte `c >> 1`: in the low nibble if c is even, else in the high nibble. `buffer` has ⌈m/2⌉ bytes. A
    key counts once in each of its distinct counters. A counter that has reached 15 keeps this value: the number of keys
    that it counts is no longer known, so it is never decremented.

    Raises ParameterError for a number out of range, a key that does not have 16 bytes, or a buffer of another size.
    """

    __slots__ = ()

    _CELLS = "counters"

    def _size(self) -> int:
        return (self.cells + 1) // 2

    def _get(self, cell: int) -> int:
        return self._view[cell >> 1] >> 4 * (cell & 1) & 15

    def _move(self, cells: Iterable[int], step: int) -> None:
        view = self._writable()
        for cell in cells:
            if self._get(cell) < COUNTER_LIMIT:
                view[cell >> 1] += step << 4 * (cell & 1)

    def add(self, key: object, /) -> bool:
        """Increment the counters of a key. Return True if the key was new, that is, if one of its counters was 0.

        Raises TypeError or KeyRangeError for a key that does not fit the filter's encoding, ReadOnlyError if the memory
        is read-only, CapacityError if there is no room.
        """
        return self._count_up(self._positions(self._encode(key)))

    def _count_up(self, cells: Iterable[int]) -> bool:
        self._writable()
        distinct = set(cells)
        new = not self._all_counted(distinct)
        if new and self._room is not None and self._room <= 0:
            self._ask_for_room()
        self._move(distinct, 1)
        if new:
            self._take_room(1)
        return new

    def remove(self, key: object, /) -> None:
        """Decrement the counters of a key.

        Raises KeyError for a key that is not contained, because removing it could lose other keys. Raises TypeError,
        KeyRangeError and ReadOnlyError as `add` does.
        """
        cells = set(self._positions(self._encode(key)))
        if not self._all_counted(cells):
            raise KeyError(key)
        self._move(cells, -1)
        if not self._all_counted(cells):
            self._take_room(-1)

    def __contains__(self, key: object) -> bool:
        return self._all_counted(self._positions(self._encode(key)))

    def _all_counted(self, cells: Iterable[int]) -> bool:
        return all(map(self._get, cells))

    def count(self, key: object, /) -> int:
        """Return how often the key was added at most: the smallest of its counters. 15 means 15 or more.

        Raises TypeError or KeyRangeError for a key that does not fit the filter's encoding.
        """
        return min(map(self._get, self._positions(self._encode(key))), default=COUNTER_LIMIT)

    def update(self, *keys: Keys, nulls: Nulls = "raise") -> int:
        """Add one or more batches of keys, as BloomFilter.update takes them, and return how many keys were new.

        Raises the errors of BloomFilter.update.
        """
        return sum(
            self._count_up(self._positions(key))
            for batch in keys
            for key in self._batch(batch, nulls)[0]
            if key is not None
        )

    @overload
    def contains_many(  # type: ignore[overload-overlap]  # an array is an iterable too
        self, keys: NumpyArray, /, *, nulls: Nulls = "raise"
    ) -> BoolMask: ...
    @overload
    def contains_many(self, keys: Column, /, *, nulls: Nulls = "raise") -> Mask: ...
    @overload
    def contains_many(self, keys: Iterable[object] | Buffer, /, *, nulls: Nulls = "raise") -> bytes: ...
    def contains_many(self, keys: Keys, /, *, nulls: Nulls = "raise") -> bytes | Mask:
        """Test a batch of keys and return a mask, as BloomFilter.contains_many does. Raises the same errors."""
        batch, answer = self._batch(keys, nulls)
        # the result is bytes or a mask
        return answer(bytes(key is not None and self._all_counted(self._positions(key)) for key in batch))  # type: ignore[no-any-return]

    def set_cells(self) -> int:
        """Return the number of counters that are not 0."""
        return sum(_ones(bytes(chunk).translate(_NONZERO)) for chunk in chunks(self._view))

    def __ior__(self, other: CounterCore) -> Self:
        """Add the counters of the other array to these. A sum is at most 15.

        Raises MismatchError for an array of another shape, ReadOnlyError if the memory is read-only.
        """
        if not isinstance(other, CounterCore):
            return NotImplemented
        self._same_shape(other)
        view = self._writable()
        for at, (mine, theirs) in enumerate(zip(view, other._view, strict=True)):
            view[at] = (
                min((mine & 15) + (theirs & 15), COUNTER_LIMIT) | min((mine >> 4) + (theirs >> 4), COUNTER_LIMIT) << 4
            )
        self._forget_room()
        return self

    def to_bits(self) -> bytearray:
        """Return a bit for each counter, set if the counter is not 0, in the layout of BitCore: ⌈m/8⌉ bytes."""
        bits = bytearray()
        for chunk in chunks(self._view):
            pairs = bytes(chunk).translate(_NONZERO)  # two bits in each byte; four bytes are merged into one
            quarters = [int.from_bytes(pairs[at::4], "little") << 2 * at for at in range(4)]
            bits += (quarters[0] | quarters[1] | quarters[2] | quarters[3]).to_bytes((len(pairs) + 3) // 4, "little")
        return bits

    def clear(self) -> None:
        """Set every counter to 0. Raises ReadOnlyError if the memory is read-only."""
        _zero(self._writable())
        self._forget_room()


def _ones(view: memoryview | bytes) -> int:
    """Return the number of bits that are 1."""
    return sum(int.from_bytes(chunk, "little").bit_count() for chunk in chunks(memoryview(view)))


def _zero(view: memoryview) -> None:
    for chunk in chunks(view):
        chunk[:] = bytes(len(chunk))

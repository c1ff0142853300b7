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


_MASKS = (1, 2, 4, 8, 16, 32, 64, 128)  # a lookup takes less time than a shift


class BitCore(Hashed):
    """A bit array with k hash functions; bit b is `1 << (b & 7)` of byte `b >> 3`, as BIP-37 lays it out.

    `buffer` holds ⌈m/8⌉ bytes. With no bits or no functions everything is contained and adding does nothing, as in Core
    since 0.21 (CVE-2013-5700: never divide by the size). Raises ParameterError for numbers out of range, a key that
    does not have 16 bytes, or a buffer of another size.
    """

    __slots__ = ()

    def _size(self) -> int:
        return (self.cells + 7) // 8

    @property
    def bits(self) -> int:
        """The number of bits, m."""
        return self.cells

    def add(self, key: object, /) -> bool:
        """Set the key's bits. True if the key was new, that is, if any of its bits was not set before.

        Raises TypeError or OverflowError for a key that the filter's encoding does not take, ReadOnlyError.
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
        """Add a batch of keys, or several, and return how many were new.

        A batch is an iterable of keys, a buffer, or a column: an array of NumPy, a Series or an Index of pandas, a
        Series of polars, an array of pyarrow, anything else with `__arrow_c_array__` or `__arrow_c_stream__` (Arrow's C
        data interface), such as a relation of DuckDB, also a table of one column. Each key must be what a single key
        has to be. Str keys come as Arrow's string, large_string and string_view, NumPy's U and StringDType; bytes-like
        keys as binary, large_binary, binary_view and fixed_size_binary, and as NumPy's S; int keys as integers of any
        width, whose values must fit; all of them as objects, and from dictionaries (categoricals). Beyond that, for
        bytes-like keys a two-dimensional buffer of n×w bytes holds n keys of w bytes, and a one-dimensional buffer or
        NumPy array of integers, other than single bytes, holds one key for each, in the machine's byte order.

        `nulls` says what a null in a column is, a masked value, and None or NaN in an iterable: "raise" refuses it,
        "skip" leaves it out. A list's None goes to the user's own `encode`, unless it is skipped.

        Raises TypeError for anything else, including bytes, bytearray and str, which are one key; TypeError or
        OverflowError for a key that the filter's encoding does not take, and ColumnError for a column that contradicts
        itself, after adding the keys before it; OSError if a stream fails; ReadOnlyError; ParameterError. How long the
        buffers of an Arrow array are is its producer's word, as everywhere.
        """
        return sum(
            self._set(self._positions(key)) for batch in keys for key in self._batch(batch, nulls)[0] if key is not None
        )

    @overload
    def contains_many(  # type: ignore[overload-overlap]  # an array is an iterable, too
        self, keys: NumpyArray, /, *, nulls: Nulls = "raise"
    ) -> BoolMask: ...
    @overload
    def contains_many(self, keys: Column, /, *, nulls: Nulls = "raise") -> Mask: ...
    @overload
    def contains_many(self, keys: Iterable[object] | Buffer, /, *, nulls: Nulls = "raise") -> bytes: ...
    def contains_many(self, keys: Keys, /, *, nulls: Nulls = "raise") -> bytes | Mask:
        """Test a batch of keys, as `update` takes it: one byte for each key, 1 if it is contained, else 0.

        A null that is skipped is not.

        What comes back for a column is a mask that indexes it: for NumPy and pandas an array of NumPy's bool, for
        polars a Boolean Series, for pyarrow a BooleanArray; for everything else bytes. Raises what `update` does, but
        ReadOnlyError.
        """
        batch, answer = self._batch(keys, nulls)
        # it is one of the two
        return answer(bytes(key is not None and self._all_set(self._positions(key)) for key in batch))  # type: ignore[no-any-return]

    def set_bits(self) -> int:
        """The number of bits that are 1."""
        return _ones(self._view)

    def union_set_bits(self, other: BitCore, /) -> int:
        """The number of bits that are 1 in either array.

        Raises MismatchError for one of another shape, TypeError for other objects.
        """
        if not isinstance(other, BitCore):
            raise TypeError("bits can be united with bits only")
        self.same_shape(other)
        pairs = zip(chunks(self._view), chunks(other._view), strict=True)
        return sum(
            (int.from_bytes(mine, "little") | int.from_bytes(theirs, "little")).bit_count() for mine, theirs in pairs
        )

    def plane_set_bits(self) -> list[int]:
        """The number of bits that are 1 in the plane of each function, which is the whole array unless it is
        partitioned.
        """
        return [self._set_between(first, first + span) for first, span in self._spans]

    def _set_between(self, first: int, end: int) -> int:
        """The number of set bits from `first` to before `end`: those of the bytes that hold them, less the bits outside
        at both ends.
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
        self.same_shape(other)
        for mine, theirs in zip(chunks(self._writable()), chunks(other._view), strict=True):
            mixed = operation(int.from_bytes(mine, "little"), int.from_bytes(theirs, "little"))
            mine[:] = mixed.to_bytes(len(mine), "little")
        self._forget_room()
        return self

    def __le__(self, other: BitCore) -> bool:
        """Whether every bit set here is set in `other`, so that `other` contains every key that this filter does."""
        if not isinstance(other, BitCore):
            return NotImplemented
        self.same_shape(other)
        pairs = zip(chunks(self._view), chunks(other._view), strict=True)
        return not any(int.from_bytes(mine, "little") & ~int.from_bytes(theirs, "little") for mine, theirs in pairs)

    def clear(self) -> None:
        """Set every bit to 0. Raises ReadOnlyError."""
        _zero(self._writable())
        self._forget_room()


_NONZERO = bytes((byte & 15 > 0) | (byte >> 4 > 0) << 1 for byte in range(256))  # one bit for each of two counters


class CounterCore(Hashed):
    """An array of 4-bit counters with k hash functions; counter c is the low nibble of byte `c >> 1` if c is even, else
    the high one.

    `buffer` holds ⌈m/2⌉ bytes. A key counts once in each of its distinct counters. A counter that has reached 15
    sticks: the number of keys it counts is no longer known, so it is never decremented. Raises ParameterError as
    BitCore does.
    """

    __slots__ = ()

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
        """Count the key once more. True if the key was new, that is, if any of its counters was 0.

        Raises TypeError or OverflowError for a key that the filter's encoding does not take, ReadOnlyError.
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
        """Count the key once less.

        Raises KeyError for a key that is not contained, since removing it would lose others; TypeError, OverflowError
        and ReadOnlyError as `add` does.
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
        """The most times that the key can have been added: the least of its counters, of which 15 means 15 or more.

        Raises TypeError or OverflowError for a key that the filter's encoding does not take.
        """
        return min(map(self._get, self._positions(self._encode(key))), default=COUNTER_LIMIT)

    def update(self, *keys: Keys, nulls: Nulls = "raise") -> int:
        """Add a batch of keys, as BloomFilter.update takes it, and return how many were new. Raises the same errors."""
        return sum(
            self._count_up(self._positions(key))
            for batch in keys
            for key in self._batch(batch, nulls)[0]
            if key is not None
        )

    @overload
    def contains_many(  # type: ignore[overload-overlap]  # an array is an iterable, too
        self, keys: NumpyArray, /, *, nulls: Nulls = "raise"
    ) -> BoolMask: ...
    @overload
    def contains_many(self, keys: Column, /, *, nulls: Nulls = "raise") -> Mask: ...
    @overload
    def contains_many(self, keys: Iterable[object] | Buffer, /, *, nulls: Nulls = "raise") -> bytes: ...
    def contains_many(self, keys: Keys, /, *, nulls: Nulls = "raise") -> bytes | Mask:
        """Test a batch of keys, and return a mask, as BloomFilter.contains_many does. Raises the same errors."""
        batch, answer = self._batch(keys, nulls)
        # it is one of the two
        return answer(bytes(key is not None and self._all_counted(self._positions(key)) for key in batch))  # type: ignore[no-any-return]

    def set_cells(self) -> int:
        """The number of counters that are not 0."""
        return sum(_ones(bytes(chunk).translate(_NONZERO)) for chunk in chunks(self._view))

    def __ior__(self, other: CounterCore) -> Self:
        """Add the other's counters to these, each saturating at 15: the multiset sum.

        Raises MismatchError, ReadOnlyError.
        """
        if not isinstance(other, CounterCore):
            return NotImplemented
        self.same_shape(other)
        view = self._writable()
        for at, (mine, theirs) in enumerate(zip(view, other._view, strict=True)):
            view[at] = (
                min((mine & 15) + (theirs & 15), COUNTER_LIMIT) | min((mine >> 4) + (theirs >> 4), COUNTER_LIMIT) << 4
            )
        self._forget_room()
        return self

    def to_bits(self) -> bytearray:
        """A bit for each counter, set if the counter is not 0, in the layout of BitCore: ⌈m/8⌉ bytes."""
        bits = bytearray()
        for chunk in chunks(self._view):
            pairs = bytes(chunk).translate(_NONZERO)  # of which four bytes make one
            quarters = [int.from_bytes(pairs[at::4], "little") << 2 * at for at in range(4)]
            bits += (quarters[0] | quarters[1] | quarters[2] | quarters[3]).to_bytes((len(pairs) + 3) // 4, "little")
        return bits

    def clear(self) -> None:
        """Set every counter to 0. Raises ReadOnlyError."""
        _zero(self._writable())
        self._forget_room()


def _ones(view: memoryview | bytes) -> int:
    """The number of bits that are 1."""
    return sum(int.from_bytes(chunk, "little").bit_count() for chunk in chunks(memoryview(view)))


def _zero(view: memoryview) -> None:
    for chunk in chunks(view):
        chunk[:] = bytes(len(chunk))

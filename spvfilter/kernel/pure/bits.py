"""The cells of generic filters: bits, counters, and the operations on them. This is the readable reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Self, overload

from spvfilter.errors import MismatchError, ParameterError
from spvfilter.kernel.pure.arguments import whole
from spvfilter.kernel.pure.cells import Hashed
from spvfilter.kernel.values import COUNTER_BITS, Encoding
from spvfilter.primitives import chunks

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from spvfilter.kernel.columns import Column, Keys, Mask, Nulls, NumpyArray, Padding
    from spvfilter.kernel.masks import BoolMask


_MASKS = (1, 2, 4, 8, 16, 32, 64, 128)  # 1 << n: a lookup takes less time than a shift.


class BitCore(Hashed):
    """A bit array with k hash functions. Bit b is `1 << (b & 7)` of byte `b >> 3`, as in BIP-37.

    `buffer` is ⌈m/8⌉ bytes long. An array without bits or functions contains every key, and adding a key does nothing.
    Core has done the same since 0.21, so that it never divides by a size of 0 (CVE-2013-5700).

    Raises ParameterError for a number out of range, a key that is not 16 bytes long, or a buffer of a different size.
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
        """Set the bits of a key, and return True if the key was new, that is, if any of its bits was not set before.

        Raises TypeError or KeyRangeError for a key that does not fit the filter's encoding, ReadOnlyError if the memory
        is read-only, CapacityError if there is no room.
        """
        return self._set(self._positions(self._encode(key)))

    def _set(self, cells: Iterable[int]) -> bool:
        if self._room is not None:
            cells = list(cells)
            if self._room <= 0 and not self._all_set(cells):
                self._writable()
                self._ask_for_room()
        return self._set_bits(cells)

    def _set_bits(self, cells: Iterable[int]) -> bool:
        """Set bits for which there is room, and return True if any was not set before."""
        view, new = self._writable(), False
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

    def update(self, *keys: Keys, nulls: Nulls = "raise", padding: Padding | None = None) -> int:
        """Add one or more batches of keys, and return how many keys were new.

        A batch is an iterable of keys, a buffer, or a column. Columns of NumPy, pandas, polars and pyarrow are
        accepted, and objects with `__arrow_c_array__` or `__arrow_c_stream__` (Arrow's C data interface), such as
        relations of DuckDB. A table must have one column. Keys of a column are

        - str: Arrow's string, large_string and string_view; NumPy's U and StringDType
        - bytes-like: Arrow's binary, large_binary, binary_view and fixed_size_binary; NumPy's V, and S with `padding`
        - int: integers of any width, whose values must fit
        - any of them as objects, or from dictionaries (categoricals)

        For bytes-like keys, a two-dimensional buffer of n×w bytes holds n keys of w bytes. A one-dimensional buffer or
        NumPy array of integers wider than a byte holds one key per integer, in the machine's byte order.

        Args:
            keys: The batches.
            nulls: How to handle nulls in a column, masked values, and None or NaN in an iterable: "raise" raises an
                error, and "skip" leaves them out. With a custom `encode` function, "raise" passes None to that
                function.
            padding: How to handle the zeros at the end of NumPy's byte strings (S): "keep" for keys of the full width,
                such as digests, or "strip" for text. S is an error without it.

        Raises:
            TypeError: A key has the wrong type, or a batch is bytes, bytearray or str, which are single keys. The keys
                before it have been added.
            KeyRangeError: An integer key does not fit the encoding. The keys before it have been added.
            ColumnError: A column contradicts itself. The keys before it have been added. The lengths of an Arrow
                array's buffers cannot be checked; the library that made it is trusted.
            ParameterError: `nulls` is neither "raise" nor "skip", or `padding` neither "keep" nor "strip".
            ReadOnlyError: The memory is read-only.
            OSError: An Arrow stream fails.
        """
        return sum(
            self._set(self._positions(key))
            for batch in keys
            for key in self._batch(batch, nulls, padding)[0]
            if key is not None
        )

    @overload
    def contains_many(  # type: ignore[overload-overlap]  # an array is an iterable too
        self, keys: NumpyArray, /, *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> BoolMask: ...
    @overload
    def contains_many(self, keys: Column, /, *, nulls: Nulls = "raise", padding: Padding | None = None) -> Mask: ...
    @overload
    def contains_many(
        self, keys: Iterable[object] | Buffer, /, *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> bytes: ...
    def contains_many(self, keys: Keys, /, *, nulls: Nulls = "raise", padding: Padding | None = None) -> bytes | Mask:
        """Test a batch of keys, as `update` accepts it, and return one byte for each key: 1 if it is contained, else 0.

        For a column, the result is a mask of the column's library: an array of NumPy's bool for NumPy and pandas, a
        Boolean Series for polars, a BooleanArray for pyarrow. A skipped null counts as not contained. Raises the same
        errors as `update`, except ReadOnlyError.
        """
        batch, answer = self._batch(keys, nulls, padding)
        # the result is bytes or a mask
        return answer(bytes(key is not None and self._all_set(self._positions(key)) for key in batch))  # type: ignore[no-any-return]

    def set_bits(self) -> int:
        """Return the number of bits that are 1."""
        return _ones(self._view)

    def union_set_bits(self, other: BitCore, /) -> int:
        """Return the number of bits that are 1 in this array or in the other one.

        Raises MismatchError for an array of a different shape, and TypeError for other objects.
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
        """Return the number of set bits from `first` up to, but not including, `end`.

        It counts the bits of all bytes that contain them, and subtracts the other bits in the first and the last byte.
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
        """True if every bit that is set here is set in `other`, which then contains every key of this filter."""
        if not isinstance(other, BitCore):
            return NotImplemented
        self._same_shape(other)
        pairs = zip(chunks(self._view), chunks(other._view), strict=True)
        return not any(int.from_bytes(mine, "little") & ~int.from_bytes(theirs, "little") for mine, theirs in pairs)

    def clear(self) -> None:
        """Set every bit to 0. Raises ReadOnlyError if the memory is read-only."""
        _zero(self._writable())
        self._forget_room()


# For each byte: 1 if it is not 0, if its low nibble is not 0, and if its high nibble is not 0.
_USED = bytes(byte > 0 for byte in range(256))
_USED_LOW, _USED_HIGH = bytes(byte & 15 > 0 for byte in range(256)), bytes(byte >> 4 > 0 for byte in range(256))


class CounterCore(Hashed):
    """An array of 4-, 8- or 16-bit counters (`counter_bits`) with k hash functions. See Hashed for the other arguments.

    8-bit counters are bytes, and 16-bit counters are little endian, at an even address. A 4-bit counter c is in
    byte `c >> 1`: in the low nibble if c is even, else in the high nibble. `buffer` is ⌈m/2⌉, m or 2m bytes long.

    A key counts once in each of its distinct counters. A counter that has reached its largest value (15, 255 or 65,535)
    stays there: it is no longer known how many keys it counts, so it is never decremented.

    Raises ParameterError for a number out of range, a key that is not 16 bytes long, or a buffer of a different size.
    """

    __slots__ = {"counter_bits": "Size of a counter in bits: 4, 8 or 16."}

    _CELLS = "counters"

    def __init__(
        self,
        cells: int,
        hash_funcs: int,
        family: int,
        key: bytes,
        buffer: Buffer | None,
        encoding: int = Encoding.BYTES,
        partitioned: bool = False,
        custom: Sequence[Callable[[bytes], int]] | None = None,
        encode: Callable[[object], bytes] | None = None,
        private: bool = False,
        counter_bits: int = 4,
    ) -> None:
        if not hasattr(self, "_positions"):  # else the base class raises
            expected = "counter_bits must be 4, 8 or 16"
            self.counter_bits: int = whole(counter_bits, 4, 16, expected)
            if self.counter_bits not in COUNTER_BITS:
                raise ParameterError(f"{expected}, not {self.counter_bits}")
        super().__init__(cells, hash_funcs, family, key, buffer, encoding, partitioned, custom, encode, private)

    def _size(self) -> int:
        return (self.cells * self.counter_bits + 7) // 8

    @property
    def counter_limit(self) -> int:
        """Largest value of a counter: 15, 255 or 65,535. A counter that has reached it never changes."""
        return (1 << self.counter_bits) - 1

    def _get(self, cell: int) -> int:
        view = self._view
        match self.counter_bits:
            case 4:
                return view[cell >> 1] >> 4 * (cell & 1) & 15
            case 8:
                return view[cell]
            case _:
                return view[2 * cell] | view[2 * cell + 1] << 8

    def _set(self, view: memoryview, cell: int, value: int) -> None:
        match self.counter_bits:
            case 4:
                shift = 4 * (cell & 1)
                view[cell >> 1] = view[cell >> 1] & 0xF0 >> shift | value << shift
            case 8:
                view[cell] = value
            case _:
                view[2 * cell : 2 * cell + 2] = value.to_bytes(2, "little")

    def _move(self, cells: Iterable[int], step: int) -> None:
        view, limit = self._writable(), self.counter_limit
        for cell in cells:
            value = self._get(cell)
            if value < limit:
                self._set(view, cell, value + step)

    def add(self, key: object, /) -> bool:
        """Increment the counters of a key, and return True if the key was new, that is, if any of its counters was 0.

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

        Raises KeyError if the key is not contained, because removing it could lose other keys. Raises TypeError,
        KeyRangeError and ReadOnlyError in the same cases as `add`.
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
        """Return an upper bound on how often the key was added: the smallest of its counters.

        If the result is `counter_limit`, the key was added at least that often. Raises TypeError or KeyRangeError for a
        key that does not fit the filter's encoding.
        """
        return min(map(self._get, self._positions(self._encode(key))), default=self.counter_limit)

    def update(self, *keys: Keys, nulls: Nulls = "raise", padding: Padding | None = None) -> int:
        """Add one or more batches of keys, as BloomFilter.update accepts them, and return how many keys were new.

        Raises the same errors as BloomFilter.update.
        """
        return sum(
            self._count_up(self._positions(key))
            for batch in keys
            for key in self._batch(batch, nulls, padding)[0]
            if key is not None
        )

    @overload
    def contains_many(  # type: ignore[overload-overlap]  # an array is an iterable too
        self, keys: NumpyArray, /, *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> BoolMask: ...
    @overload
    def contains_many(self, keys: Column, /, *, nulls: Nulls = "raise", padding: Padding | None = None) -> Mask: ...
    @overload
    def contains_many(
        self, keys: Iterable[object] | Buffer, /, *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> bytes: ...
    def contains_many(self, keys: Keys, /, *, nulls: Nulls = "raise", padding: Padding | None = None) -> bytes | Mask:
        """Test a batch of keys and return a mask, as BloomFilter.contains_many does. Raises the same errors."""
        batch, answer = self._batch(keys, nulls, padding)
        # the result is bytes or a mask
        return answer(bytes(key is not None and self._all_counted(self._positions(key)) for key in batch))  # type: ignore[no-any-return]

    def set_cells(self) -> int:
        """Return the number of counters that are not 0."""
        return sum(used.count(1) for used in self._used())

    def _used(self) -> Iterator[bytes]:
        """Yield, for each chunk of the cells, one byte for each counter: 1 if the counter is not 0."""
        for chunk in map(bytes, chunks(self._view)):
            match self.counter_bits:
                case 4:
                    used = bytearray(2 * len(chunk))
                    used[0::2], used[1::2] = chunk.translate(_USED_LOW), chunk.translate(_USED_HIGH)
                    yield bytes(used)
                case 8:
                    yield chunk.translate(_USED)
                case _:
                    low, high = (int.from_bytes(chunk[at::2], "little") for at in (0, 1))
                    yield (low | high).to_bytes(len(chunk) // 2, "little").translate(_USED)

    def __ior__(self, other: CounterCore) -> Self:
        """Add the counters of the other array to these. A sum is at most `counter_limit`.

        Raises MismatchError for an array of a different shape, and ReadOnlyError if the memory is read-only.
        """
        if not isinstance(other, CounterCore):
            return NotImplemented
        self._same_shape(other)
        view, limit = self._writable(), self.counter_limit
        for cell in range(len(view) * 8 // self.counter_bits):  # even in a nibble beyond the last counter
            if theirs := other._get(cell):
                self._set(view, cell, min(self._get(cell) + theirs, limit))
        self._forget_room()
        return self

    def _same_shape(self, other: Hashed, /) -> None:
        super()._same_shape(other)
        assert isinstance(other, CounterCore)
        if self.counter_bits != other.counter_bits:
            raise MismatchError(f"the filters differ in counter_bits: {self.counter_bits} and {other.counter_bits}")

    def to_bits(self) -> bytearray:
        """Return a bit for each counter, set if the counter is not 0, in the layout of BitCore: ⌈m/8⌉ bytes."""
        bits = bytearray()
        for used in self._used():
            eighths = (int.from_bytes(used[at::8], "little") << at for at in range(8))
            bits += reduce(or_, eighths).to_bytes((len(used) + 7) // 8, "little")
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

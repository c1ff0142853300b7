"""GenericFilter, the base class of Bloom filters and counting filters: construction, shape, file and pickling."""

from __future__ import annotations

import io
import math
import mmap
import os
import sys
import threading
import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar, Literal, Self

from spvfilter.bloom import fileformat, rates, sizing
from spvfilter.bloom.attributes import pickled, with_attributes_of
from spvfilter.bloom.fileformat import (
    FLAG_OPEN,
    FLAG_PARTITIONED,
    HEADER_SIZE,
    KIND_BITS,
    MAX_BIP37_BITS,
    TRAILER_SIZE,
    FileHeader,
    body_size,
    cell_bits,
)
from spvfilter.bloom.fuseformat import StaticHeader
from spvfilter.bloom.hashing import FastHash, HashFamily, refuse_other_objects, stored_family
from spvfilter.bloom.sample import glance
from spvfilter.bloom.shape import shape_of
from spvfilter.errors import (
    CapacityError,
    CapacityWarning,
    FormatError,
    FpRateWarning,
    ParameterError,
    TooLargeError,
    counted,
)
from spvfilter.kernel import Encoding, Family

if TYPE_CHECKING:
    from typing_extensions import Buffer


Encode = str | Callable[[object], bytes] | None
"""How keys become bytes: None for bytes-like keys; "utf-8", "int64", "uint64", "int32", "uint32"; or a function."""
# Result of adding a new key to a full filter: CapacityError, or CapacityWarning (see BloomFilter).
OnFull = Literal["raise", "warn"]
# A name of its own, because the lookup of an enum member would dominate the construction of a small filter.
_BYTES = Encoding.BYTES
_ENCODINGS: dict[str | None, Encoding] = {
    None: Encoding.BYTES,
    "utf-8": Encoding.UTF8,
    "int64": Encoding.INT64,
    "uint64": Encoding.UINT64,
    "int32": Encoding.INT32,
    "uint32": Encoding.UINT32,
}
ENCODES = {encoding: name for name, encoding in _ENCODINGS.items()}  # The argument `encode` for each encoding.
# Bytes. Memory of this size or more is mapped, not allocated: a mapped page takes no memory before its first use.
_MAPPED = 1 << 20
# Bytes. Huge pages are requested for memory of this size or more: the bits of a key are scattered, so small pages miss
# in the TLB.
_HUGE = 1 << 22


_FALSE = 1.05  # A filter is refused if its rate exceeds this multiple of the requested rate (our choice).
# Standard deviations by which an estimate must exceed the capacity. One filter in 30,000 refuses a key too early.
_DEVIATIONS = 4
# A writer to shared memory may add a 16th of the keys that still fit, and at least a 64th of the capacity, before it
# counts again.
_SHARE, _LEAST_SHARE = (16, 64)
# The value of `_full_at` if `room` counts down from `capacity`. All filters share one tuple, to save memory.
_COUNTED = (0, None)
_MOST_ROOM = 1 << 62  # Number of new keys. The kernel's counter holds a little more.

SLOTS = ("__weakref__", "_encode_with", "_full_at", "_owner", "capacity", "hashing", "nominal_fp_rate", "on_full")
_DEFAULT_HASHING = FastHash()
_DEFAULT_KEY = _DEFAULT_HASHING.key


class GenericFilter:
    """Base class of BloomFilter and CountingBloomFilter, which also derive from a kernel type.

    It has no slots of its own: a class with slots cannot be combined with a kernel type. The derived classes use SLOTS
    as their `__slots__`. Without a `__dict__`, a small filter takes a quarter of the memory.
    """

    if not TYPE_CHECKING:  # type checkers would miss the slots of the derived classes
        __slots__ = ()

    _KINDS: ClassVar[Collection[int]]
    """Kinds that the headers of this class's files may contain."""

    if TYPE_CHECKING:  # attributes of the derived classes and of the kernel type
        _kind: int
        cells: int
        hash_funcs: int
        family: Family
        key: bytes
        encoding: Encoding
        partitioned: bool
        buffer: Buffer | memoryview
        body: memoryview
        room: int | None

        # the kernel type's __init__: a name of its own is found faster than through `super`
        _init_core: ClassVar[Callable[..., None]]

        @property
        def approx_len(self) -> float: ...
        @property
        def current_fp_rate(self) -> float: ...

    capacity: int | None
    """Number of keys that the filter was made for. None if the caller gave a number of bits instead."""
    nominal_fp_rate: float | None
    """False-positive rate that the filter was made for, between 0 and 1. None if the caller gave a number of bits."""
    hashing: HashFamily
    """The hash family of the filter."""
    _encode_with: Callable[[object], bytes] | None
    """Custom function that encodes a key as bytes; None for the built-in encodings."""
    on_full: OnFull
    """Reaction of a full filter to a new key: "raise" raises CapacityError, "warn" issues CapacityWarning."""
    _full_at: tuple[int, float | None] | None
    """Number of keys at which `room` runs out, and the rate with that many if known. None if both must be estimated."""
    _owner: Literal["self", "others"] | mmap.mmap
    """Owner of the memory: "self" (this filter alone), "others" (shared), or a mapped file, which `close` completes."""

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
    ) -> None:
        self._start(KIND_BITS, capacity, fp_rate, hash_funcs, bits, hashing, encode, partitioned, buffer, on_full)

    def _start(
        self,
        kind: int,
        capacity: int | None,
        fp_rate: float | None,
        hash_funcs: int | None,
        bits: int | None,
        hashing: HashFamily | None,
        encode: Encode,
        partitioned: bool,
        buffer: Buffer | None,
        on_full: OnFull,
    ) -> None:
        """Initialize a new filter with cells of this kind."""
        cells, functions, most, rate = shape_of(capacity, fp_rate, hash_funcs, bits, partitioned)
        encoding, function = (_BYTES, None) if encode is None else encoding_of(encode)
        if hashing is None:
            hashing, key = _DEFAULT_HASHING, _DEFAULT_KEY
        else:
            refuse_other_objects(hashing)
            key = hashing.key
            _refuse_bip37(hashing, cells)
            if most:
                refuse_false_rate(hashing, cells, functions, most, rate, bool(partitioned))
        own = buffer is None
        if own and cells > 2 * _MAPPED:  # for small filters the kernel allocates the memory itself
            buffer = allocate(body_size(kind, cells))
        flag = bool(partitioned)
        self._set_up(
            kind,
            cells,
            functions,
            hashing,
            key,
            encoding,
            function,
            flag,
            most,
            rate,
            buffer=buffer,
            private=own,
            on_full=on_full,
            empty=own,
        )

    def _set_up(
        self,
        kind: int,
        cells: int,
        hash_funcs: int,
        hashing: HashFamily,
        key: bytes,
        encoding: int,
        encode: Callable[[object], bytes] | None,
        partitioned: bool,
        capacity: int,
        fp_rate: float,
        *,
        buffer: Buffer | None,
        private: bool,
        on_full: OnFull = "raise",
        empty: bool = False,
    ) -> None:
        """Initialize the kernel type and the attributes.

        Args:
            kind: The kind of the cells in the header of a file.
            buffer: Memory of the cells; None lets the kernel allocate it.
            private: True if no other object refers to `buffer`.
            empty: True if no cell is set. New keys are then counted exactly; otherwise their number is estimated from
                the cells.
        """
        if on_full not in ("raise", "warn"):
            raise ParameterError(f"on_full must be 'raise' or 'warn', not {on_full!r}")
        own_functions = hashing.functions(hash_funcs)
        size = () if kind == KIND_BITS else (cell_bits(kind),)
        self._init_core(
            cells, hash_funcs, hashing.family, key, buffer, encoding, partitioned, own_functions, encode, private, *size
        )
        self.capacity = capacity or None
        self.nominal_fp_rate = fp_rate or None
        self.hashing = hashing
        self._encode_with = encode
        self.on_full = on_full
        self._full_at = _COUNTED if empty and capacity else None
        self._owner = "self" if private else "others"
        if capacity:
            self.room = -1 if not empty else capacity if capacity < _MOST_ROOM else _MOST_ROOM

    def _make_room(self) -> None:
        """Decide whether the filter is full. The kernel calls this before it adds a new key if `room` is 0 or unknown.

        A new filter is full after `capacity` new keys. Keys that it already contains are not counted again.

        In other filters the number of keys is estimated from the set cells. This applies to filters from a file, a
        pickle or a set operation, and filters in shared memory. They are full if the estimate exceeds `capacity` by
        four standard deviations.

        Raises CapacityError if the filter is full and `on_full` is "raise". Warns once with CapacityWarning if it is
        "warn".
        """
        capacity = self.capacity
        if not capacity:
            self.room = None
            return
        with counting_lock():
            if self.room is not None and self.room <= 0:  # else another thread has counted already
                self._count(capacity)

    def _count(self, capacity: int) -> None:
        """Set `room` to the number of keys that still fit, or refuse the key."""
        if self._full_at is None or self.room != 0:
            count = self.approx_len
            left = capacity - count + spare_keys(self.cells, self.hash_funcs, capacity)
            if left > 0:
                share = left if self._owner == "self" else share_of(left, capacity)
                self.room, self._full_at = min(math.ceil(share), _MOST_ROOM), None
                return
            if math.isinf(count):  # all cells are set: report the number of keys that leaves one cell empty
                count = sizing.estimate_items(self.cells, self.hash_funcs, self.cells - 1)
            self._full_at = round(count), None
        self._refuse()

    def _refuse(self) -> None:
        """Raise CapacityError or warn with CapacityWarning, as `on_full` says."""
        assert self._full_at is not None
        assert self.capacity is not None
        count, rate = (self.capacity, None) if self._full_at is _COUNTED else self._full_at
        if rate is None:
            rate = self.current_fp_rate
        held = (
            f"{counted(self.capacity, 'key')} at {self.nominal_fp_rate:g} contains {count}, so its rate is {rate:.3g}"
        )
        if self.on_full == "warn":
            self.room = None
            message = f"a filter made for {held}: every additional key raises it"
            warnings.warn(message, CapacityWarning, stacklevel=4)
            return
        # valid until the cells change other than by adding keys
        self.room, self._full_at = (0, (count, rate))
        advice = "make a larger filter or a ScalableBloomFilter, or pass on_full='warn'"
        raise CapacityError(f"a filter made for {held}: {advice}", count=count, capacity=self.capacity, fp_rate=rate)

    def header(self) -> FileHeader:
        """Return the header of the filter's file. It describes the shape of the filter."""
        flags = FLAG_PARTITIONED if self.partitioned else 0
        rate = self.nominal_fp_rate or 0.0
        shape = (self.family, self.encoding, flags, self.hash_funcs, self.cells, self.capacity or 0, rate, self.key)
        return FileHeader(self._kind, *shape)

    def __bytes__(self) -> bytes:
        """Return the contents of the filter's file: header, cells and CRC (spvfilter.bloom.fileformat)."""
        file = io.BytesIO()
        fileformat.write_to(file, self.header(), self.body)
        return file.getvalue()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the filter to a file. A new file atomically replaces the file at `path`, and is flushed to disk.

        The new file has the mode of the old one, or mode 0600 if there was none. If `path` is a symbolic link, its
        target is replaced. Raises OSError if the file cannot be written.
        """
        fileformat.save(Path(path), self.header(), self.body)

    @classmethod
    def from_bytes(
        cls, raw: Buffer, *, hashing: HashFamily | None = None, encode: Encode = None, on_full: OnFull = "raise"
    ) -> Self:
        """Make a filter from the contents of its file.

        Args:
            raw: The contents of the file.
            hashing: The hash family. Needed only for a custom family, which a file cannot contain.
            encode: The encoding of keys. Needed only for a custom function, which a file cannot contain.
            on_full: "raise" or "warn", as for BloomFilter. A file does not contain it.

        Raises:
            FormatError: The data is truncated, too long, damaged or not a filter, or has an unknown version, kind or
                family.
            ParameterError: `hashing` or `encode` differs from the file's.
            TooLargeError: The filter does not fit into memory.
        """
        view = memoryview(raw).cast("B")
        header = cls._header_of(view[:HEADER_SIZE], len(view))
        whole = memoryview(allocate(len(view))).cast("B")
        whole[:] = view
        return cls._over(whole, header, hashing, encode, True, private=True, on_full=on_full)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        mmap: bool = False,
        writable: bool = False,
        verify: bool = True,
        hashing: HashFamily | None = None,
        encode: Encode = None,
        on_full: OnFull = "raise",
    ) -> Self:
        """Open the filter in a file.

        Close a writable filter with `close` or `with`: only then is the CRC written. While a file is mapped, replace it
        as a whole (as `save` does); the open filter does not see the new file. Never truncate it: the operating system
        ends a process that reads beyond the end of a mapped file.

        Args:
            path: Path of the file.
            mmap: True leaves the cells in the file. All filters that map it share them.
            writable: True writes changes to the file. It needs `mmap`.
            verify: True reads the whole file once to check the CRC, and rejects a file that is open for writing or was
                not closed. False checks only the header.
            hashing: The hash family. Needed only for a custom family.
            encode: The encoding of keys. Needed only for a custom function.
            on_full: "raise" or "warn", as for BloomFilter.

        Raises:
            FormatError: The file is truncated, too long, damaged, not closed or not a filter, or has an unknown
                version, kind or family.
            ParameterError: `hashing` or `encode` differs from the file's, or `writable` is given without `mmap`.
            TooLargeError: The filter does not fit into memory.
            OSError: The file cannot be read.
        """
        if writable and not mmap:
            raise ParameterError("writable needs mmap=True; without it, change the filter in memory and save it")
        with Path(path).open("r+b" if writable else "rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = cls._header_of(file.read(HEADER_SIZE), size)
            if mmap:
                return cls._map(file, size, header, writable, verify, hashing, encode, on_full)
            whole = memoryview(allocate(size)).cast("B")
            file.seek(0)
            fileformat.read_into(file, whole)
        return cls._over(whole, header, hashing, encode, verify, private=True, on_full=on_full)

    @classmethod
    def _map(
        cls,
        file: IO[bytes],
        size: int,
        header: FileHeader,
        writable: bool,
        verify: bool,
        hashing: HashFamily | None,
        encode: Encode,
        on_full: OnFull,
    ) -> Self:
        mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        made = cls._over(memoryview(mapped), header, hashing, encode, verify, on_full=on_full)
        if writable:
            made._owner = mapped
            mapped[:HEADER_SIZE] = header.pack(writing=True)
            mapped.flush()
        return made

    @classmethod
    def _over(
        cls,
        whole: memoryview,
        header: FileHeader,
        hashing: HashFamily | None,
        encode: Encode,
        verify: bool,
        *,
        private: bool = False,
        on_full: OnFull = "raise",
    ) -> Self:
        """Check the contents of a file and make a filter over the bits in them."""
        family, function = given_or_stored(header, hashing, encode)
        body = whole[HEADER_SIZE:-TRAILER_SIZE]
        if verify:
            cls._refuse_open(header)
            fileformat.check_crc(header, body, whole[-TRAILER_SIZE:])
        fileformat.check_padding(header, body[-1])
        return cls._made(header, family, function, body, private=private, on_full=on_full)

    @classmethod
    def _header_of(cls, raw: bytes | memoryview, size: int) -> FileHeader:
        header = FileHeader.parse(bytes(raw))
        if header.kind not in cls._KINDS:
            raise fileformat.wrong_kind(header, cls.__name__)
        fileformat.check_size(header, size)
        return header

    @staticmethod
    def _refuse_open(header: FileHeader) -> None:
        if header.flags & FLAG_OPEN:
            raise FormatError(
                "the file is open for writing, or was not closed: verify=False opens it anyway",
                offset=13,
                field="flags",
            )

    @classmethod
    def _made(
        cls,
        header: FileHeader,
        family: HashFamily,
        function: Callable[[object], bytes] | None,
        buffer: Buffer,
        *,
        private: bool = False,
        on_full: OnFull = "raise",
    ) -> Self:
        made = cls.__new__(cls)
        shape = header.cells, header.hash_funcs, family, header.key, header.encoding, function, header.partitioned
        made._set_up(
            header.kind, *shape, header.capacity, header.fp_rate, buffer=buffer, private=private, on_full=on_full
        )
        return made

    def dump(self) -> bytes:
        """Return the cells alone, without the header and the CRC of a file.

        Bits take ⌈m/8⌉ bytes: bit b is 1 << (b & 7) of byte b >> 3. The 4-bit counters take ⌈m/2⌉ bytes: those with an
        even number are in the low nibble. 16-bit counters are little endian. `body` gives the same bytes without a
        copy, and `load` reads them.
        """
        return bytes(self.body)

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
    ) -> Self:
        """Make a filter from the cells that `dump` returned.

        Pass the arguments that the filter was made with, because the cells do not contain them. A filter with another
        hash family, encoding or number of functions misses its keys.

        Args:
            raw: The cells, which are copied. All other arguments are as for BloomFilter.

        Raises:
            FormatError: The number of bytes does not match the shape, or bits beyond m are set.
            ParameterError: An argument is outside its domain.
            TooLargeError: The filter does not fit into memory.
        """
        return cls._loaded(KIND_BITS, raw, capacity, fp_rate, hash_funcs, bits, hashing, encode, partitioned, on_full)

    @classmethod
    def _loaded(
        cls,
        kind: int,
        raw: Buffer,
        capacity: int | None,
        fp_rate: float | None,
        hash_funcs: int | None,
        bits: int | None,
        hashing: HashFamily | None,
        encode: Encode,
        partitioned: bool,
        on_full: OnFull,
    ) -> Self:
        cells, functions, most, rate = shape_of(capacity, fp_rate, hash_funcs, bits, partitioned)
        encoding, function = encoding_of(encode)
        family = _DEFAULT_HASHING if hashing is None else hashing
        refuse_other_objects(family)
        shape = (
            family.family,
            encoding,
            FLAG_PARTITIONED if partitioned else 0,
            functions,
            cells,
            most,
            rate,
            family.key,
        )
        header, view = FileHeader(kind, *shape), memoryview(raw).cast("B")
        _refuse_bip37(family, cells)
        fileformat.check_cells(header, view)
        buffer = allocate(len(view))
        memoryview(buffer).cast("B")[:] = view
        return cls._made(header, family, function, buffer, private=True, on_full=on_full)

    def close(self) -> None:
        """Complete a writable mapped file: write the CRC, mark the file as closed, and flush it.

        The filter is read-only afterwards. For other filters this does nothing.
        """
        mapped = self._owner
        if isinstance(mapped, str):
            return
        self._owner = "others"
        self.buffer = body = self.body
        header = self.header()
        mapped[-TRAILER_SIZE:] = fileformat.checksum(header, body)
        mapped.flush()
        mapped[:HEADER_SIZE] = header.pack()
        mapped.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def copy(self) -> Self:
        """Return an independent filter in memory with the same contents.

        Raises TooLargeError if the copy does not fit into memory.
        """
        header = self.header()
        buffer = allocate(header.body_size)
        memoryview(buffer).cast("B")[:] = self.body
        made = type(self)._made(header, self.hashing, self._encode_with, buffer, private=True, on_full=self.on_full)
        if self._owner == "self":
            made.room, made._full_at = self.room, self._full_at
        return with_attributes_of(made, self)

    def __eq__(self, other: object) -> bool:
        """Return True if both filters have the same shape and the same contents."""
        if not isinstance(other, GenericFilter):
            return NotImplemented
        mine, theirs = (of.header()._replace(capacity=0, fp_rate=0.0) for of in (self, other))
        return mine == theirs and self.body == other.body

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # a filter can change, so it has no hash

    def __reduce__(self) -> tuple[object, ...]:
        own = self.hashing if self.family == Family.CUSTOM else None
        make = partial(type(self).from_bytes, hashing=own, encode=self._encode_with, on_full=self.on_full)
        return pickled(make, (bytes(self),), self)

    def __repr__(self) -> str:
        """Return a string that shows the shape, fill and false-positive rate of the filter.

        If the cells take more than 64 KiB, fill and rate are estimated from a sample and marked with ≈, so that the
        call is fast.
        """
        made_for = (
            f"{self.capacity} keys at {self.nominal_fp_rate:g}, " if self.capacity and self.nominal_fp_rate else ""
        )
        layout = ", partitioned" if self.partitioned else ""
        cells = rates.reachable(self.family, self.cells)
        seen = glance(self.body[: body_size(self._kind, cells)], cells, cell_bits(self._kind))
        state = seen.told(rates.of_fill(self.family, self.cells, self.hash_funcs, seen.fill, self.partitioned))
        return (
            f"<{type(self).__name__} {made_for}m={self.cells}, k={self.hash_funcs}, {self.hashing!r}{layout}, {state}>"
        )


def _refuse_bip37(family: HashFamily, cells: int) -> None:
    if family.family == Family.BIP37 and cells > MAX_BIP37_BITS:
        raise ParameterError(
            f"murmur3 can address at most {MAX_BIP37_BITS} bits, not {cells}: choose another hash family"
        )


def refuse_false_rate(
    hashing: HashFamily, cells: int, hash_funcs: int, capacity: int, fp_rate: float, partitioned: bool = False
) -> None:
    """Raise ParameterError if a filter is too large for its hash family. Warn if double hashing doubles its rate."""
    expected = rates.expected(hashing.family, cells, hash_funcs, capacity, partitioned)
    if rates.uneven(hashing.family, cells) is not None and expected > _FALSE * fp_rate:
        raise ParameterError(
            f"{hashing!r} is not uniform over {cells} bits: the rate would be {expected:.3g}, not {fp_rate:g}; choose"
            " another hash family"
        )
    if expected > 2 * fp_rate:
        warnings.warn(
            f"with {hashing!r} a filter of {cells} bits has a rate of about {expected:.3g} at"
            f" {counted(capacity, 'key')}, not {fp_rate:g}: choose more bits, a higher rate or another hash family",
            FpRateWarning,
            stacklevel=3,
        )


def encoding_of(encode: Encode) -> tuple[Encoding, Callable[[object], bytes] | None]:
    """Return the encoding that the `encode` argument names, and the custom function. Raises ParameterError."""
    if callable(encode):
        return Encoding.CALLABLE, encode
    try:
        return _ENCODINGS[encode], None
    except (KeyError, TypeError):
        raise ParameterError(
            f"encode must be None, 'utf-8', 'int64', 'uint64', 'int32', 'uint32' or a function, not {encode!r}"
        ) from None


def given_or_stored(
    header: FileHeader | StaticHeader, hashing: HashFamily | None, encode: Encode
) -> tuple[HashFamily, Callable[[object], bytes] | None]:
    """Return the hash family and the custom encoding of a file.

    Raises ParameterError if an argument contradicts the file, or if a custom family or encoding is missing.
    """
    encoding, function = encoding_of(encode)
    if header.encoding == Encoding.CALLABLE and function is None:
        raise ParameterError("the file's keys were encoded by a custom function: pass it as `encode`")
    if encode is not None and encoding != header.encoding:
        raise ParameterError(
            f"the file's keys are encoded as {Encoding(header.encoding).name.lower()}, not {encoding.name.lower()}"
        )
    return stored_family(header.family, header.key, hashing), function


def spare_keys(cells: int, hash_funcs: int, capacity: int) -> float:
    """Return how far, in keys, an estimate must exceed the capacity before a filter counts as full.

    It is four standard deviations of the estimate. It is limited for a file whose capacity is far beyond its cells,
    because the deviation is then infinite.
    """
    return min(_DEVIATIONS * sizing.estimate_deviation(cells, hash_funcs, capacity), _MOST_ROOM)


# Held from counting a filter's keys until its room is set. Two threads could otherwise both take the same room.
_counting = threading.RLock()


def counting_lock() -> threading.RLock:
    """Return the lock that is held while the keys of a filter are counted. It is shared by all filters.

    One lock is enough, and saves memory when there are many small filters. A signal handler may acquire it again.
    """
    return _counting


def _renew_lock() -> None:
    """Make a new lock in a forked process: the thread that held the old one may not exist there."""
    global _counting
    _counting = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def share_of(left: float, capacity: int) -> float:
    """Return how many keys one of several writers may add before it counts again.

    `left` is the number of keys that still fit. The result is 0 or negative if none do.
    """
    return max(left / _SHARE, min(left, capacity / _LEAST_SHARE))


def allocate(size: int) -> Buffer:
    """Return a buffer of `size` zero bytes. Raises TooLargeError if the machine does not have that much memory."""
    if sys.platform != "win32":  # Windows itself refuses memory that it does not have
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if size > memory:
            raise TooLargeError(f"a filter of {size} bytes does not fit into this machine's {memory} bytes of memory")
    try:
        if size < _MAPPED:
            return bytearray(size)
        if sys.platform == "win32":
            return mmap.mmap(-1, size)
        mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)  # private: not shared with forked processes
    except (OSError, MemoryError) as error:
        raise TooLargeError(f"no memory for a filter of {size} bytes: {error}") from None
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the operating system may not support huge pages
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped

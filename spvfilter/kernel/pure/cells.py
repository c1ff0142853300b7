"""The cells of a key in a generic filter: its encoding, the k hash functions, and the shape that all filters share."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar

from spvfilter.errors import CapacityError, KeyRangeError, MismatchError, ParameterError, ReadOnlyError
from spvfilter.hashes import murmur3, murmur3_x64_128, siphash24
from spvfilter.kernel.columns import Keys, Nulls, Padding
from spvfilter.kernel.pure import foreign
from spvfilter.kernel.pure.arguments import has_index, snapshot, whole
from spvfilter.kernel.pure.columns import opened
from spvfilter.kernel.values import Encoding, Family

if TYPE_CHECKING:
    from typing_extensions import Buffer


# Calls of `_make_room` for one key before it is refused, if other threads use up the room each time (our choice).
MOST_TRIES = 10_000
_M64 = (1 << 64) - 1
# BIP-37 § Bloom filter format: the seed of function i is i * _SEED_STEP + tweak, modulo 2^32.
_SEED_STEP = 0xFBA4C795
# An odd constant from Pelle Evensen's rrmxmx. Its value is part of the format, although
# other constants would mix as well.
_REMIX = 0xD6E8FEB86659FD93


def encode_bytes(key: object) -> bytes:
    """Return the bytes of a bytes-like key. Raises TypeError for str, int and anything else that is not bytes-like."""
    if isinstance(key, bytes):
        return key
    try:
        view = memoryview(key)  # type: ignore[arg-type]  # memoryview decides whether it has a buffer
    except TypeError:
        view = None
    if view is None or not view.ndim:  # NumPy's numbers and strings have buffers with zero dimensions
        others = "keys of other types need `encode`, such as 'utf-8' for str or 'int64' for int"
        raise TypeError(f"the key must be bytes-like, not {type(key).__name__}: {others}")
    return bytes(view)


def encode_utf8(key: object) -> bytes:
    """Encode a str as UTF-8. Raises TypeError for anything else."""
    if not isinstance(key, str):
        raise TypeError(f"the key must be a str, not {type(key).__name__}: the filter encodes its keys as utf-8")
    return str.encode(key)


def _number(size: int, signed: bool) -> Callable[[object], bytes]:
    """Return a function that encodes an int, little endian. The function raises TypeError or KeyRangeError."""
    name = f"{'' if signed else 'u'}int{8 * size}"

    def encode(key: object) -> bytes:
        try:
            return int.to_bytes(_integer(key), size, "little", signed=signed)
        except OverflowError:
            raise KeyRangeError(f"the int is outside the range of {name}, the type of the filter's keys") from None

    return encode


def _integer(key: object) -> int:
    if isinstance(key, bool) or not (isinstance(key, int) or has_index(type(key))):
        raise TypeError(f"the key must be an int, not {type(key).__name__}: the filter encodes its keys as integers")
    return index(key)  # type: ignore[arg-type]  # its type has an __index__


_ENCODERS: dict[Encoding, Callable[[object], bytes]] = {
    Encoding.BYTES: encode_bytes,
    Encoding.UTF8: encode_utf8,
    Encoding.INT64: _number(8, True),
    Encoding.UINT64: _number(8, False),
    Encoding.INT32: _number(4, True),
    Encoding.UINT32: _number(4, False),
}


def encoder_of(encoding: Encoding, own: Callable[[object], bytes] | None) -> Callable[[object], bytes]:
    """Return the function that encodes keys. Raises ParameterError if `own` is missing for CALLABLE, or not wanted."""
    if (encoding is Encoding.CALLABLE) != (own is not None):
        raise ParameterError("the encoding must be CALLABLE if `encode` is given, and only then")
    if own is None:
        return _ENCODERS[encoding]
    return lambda key: encode_bytes(own(key))


def _position_function(
    family: Family, key: bytes, spans: Sequence[tuple[int, int]], custom: Sequence[Callable[[bytes], int]] | None
) -> Callable[[bytes], Iterable[int]]:
    """Return the function that maps an encoded key to its cells, one for each hash function.

    `spans` contains the first cell and the number of cells of each hash function.
    """
    seed = int.from_bytes(key[:4], "little")
    if not spans or not spans[0][1]:
        return lambda data: ()
    match family:
        case Family.BIP37:
            seeded = [((i * _SEED_STEP + seed) & 0xFFFFFFFF, first, span) for i, (first, span) in enumerate(spans)]
            # a generator, because most tests end at the second bit
            return lambda data: (first + murmur3(data, seed) % span for seed, first, span in seeded)
        case Family.FAST:
            return _spread(spans, lambda data: murmur3_x64_128(data, seed))
        case Family.SIPHASH:
            return _spread(spans, lambda data: (first := siphash24(data, key), first * _REMIX & _M64))
        case Family.CUSTOM:
            functions = [*custom]  # type: ignore[misc]  # raises TypeError for None
            if len(functions) != len(spans):
                raise ParameterError(f"expected {len(spans)} hash functions, not {len(functions)}")
            own = [(function, first, span) for function, (first, span) in zip(functions, spans, strict=True)]
            return lambda data: [first + int.__mod__(index(function(data)), span) for function, first, span in own]
        case _:
            return foreign.position_function(family, seed, spans)


def _spread(
    spans: Sequence[tuple[int, int]], two_hashes: Callable[[bytes], tuple[int, int]]
) -> Callable[[bytes], Sequence[int]]:
    """Return a function that maps an encoded key to its cells, which it computes from two 64-bit hashes h1 and h2.

    For function i, x = h1 + i * (h2 | 1). Cell i is first + (((x ^ x >> 32) * REMIX mod 2^64) * span >> 64). The
    multiplication by REMIX mixes x again, so that a filter with a small m is just as good.

    All cells are computed together, in 128-bit lanes of one integer, which takes half the time of a loop.
    """

    def lanes(values: Iterable[int]) -> int:
        return int.from_bytes(b"".join(value.to_bytes(16, "little") for value in values), "little")

    count, span = len(spans), spans[0][1]  # all spans have the same size
    ones, steps, firsts = lanes([1] * count), lanes(range(count)), lanes(first << 64 for first, _ in spans)
    low64, low32 = ones * _M64, ones * 0xFFFFFFFF
    upper_halves = struct.Struct("<" + "8xQ" * count).unpack

    def spread(data: bytes) -> Sequence[int]:
        h1, h2 = two_hashes(data)
        x = h1 * ones + (h2 | 1) * steps & low64
        x = (x ^ x >> 32 & low32) * _REMIX & low64
        return upper_halves((x * span + firsts).to_bytes(16 * count, "little"))

    return spread


class Hashed:
    """Base of BitCore and CounterCore: m cells, k functions of a hash family that map a key to cells, and an encoding.

    - `key` is the key of the family, 16 bytes. It is a SipHash key, or begins with the tweak or seed as u32 little
      endian.
    - `partitioned` gives function i the i-th plane of m/k cells; m must be a multiple of k.
    - `buffer` contains the cells and is used in place, not copied. If it is None, the filter allocates zeroed memory.
    - `private` promises that only this object writes to the buffer until `buffer` is read. Memory that the filter
      allocated is always private.

    The compiled twin's batches run without the GIL. On private memory they need no atomic operations while one thread
    writes. On other memory they set bits by atomic OR, and count by compare-and-exchange of the byte. Threads, and
    processes that map the same memory, then never lose each other's writes.

    Only one thread at a time may use the reference.
    """

    _CELLS: ClassVar[str]  # The name of the cells in errors.

    __slots__ = {
        "cells": "Number of cells m.",
        "hash_funcs": "Number of hash functions k.",
        "family": "The hash family, a `Family`.",
        "key": "Key of the hash family, 16 bytes.",
        "encoding": "Encoding of the keys, an `Encoding`.",
        "partitioned": "True if each hash function has its own plane of cells.",
        **dict.fromkeys(("_buffer", "_encode", "_positions", "_room", "_spans", "_view"), ""),
    }

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
    ) -> None:
        if hasattr(self, "_positions"):
            raise TypeError("a filter's core can be initialized only once")
        self.cells: int = whole(cells, 0, (1 << 63) - 1, "cells must be from 0 to 2^63 - 1")
        self.hash_funcs: int = whole(hash_funcs, 0, 0xFFFFFFFF, "hash_funcs must be from 0 to 2^32 - 1")
        self.family: Family = Family(family)
        self.partitioned: bool = bool(partitioned)
        cells, hash_funcs, partitioned = self.cells, self.hash_funcs, self.partitioned
        if partitioned and not hash_funcs:
            raise ParameterError("a partitioned layout needs at least one hash function")
        if self.family is Family.SPLIT_BLOCK:
            foreign.check_blocks(cells, hash_funcs, partitioned)
        self.key: bytes = snapshot(key, "key")
        key = self.key
        if len(key) != 16:
            raise ParameterError(f"a hash family's key must be 16 bytes long, not {len(key)}")
        self.encoding: Encoding = Encoding(encoding)
        self._encode = encoder_of(self.encoding, encode)
        self._room: int | None = None
        self.buffer = memoryview(bytearray(self._size())) if buffer is None else buffer
        plane = cells // hash_funcs if partitioned else cells
        # first cell and number of cells of each function
        self._spans = [(i * plane if partitioned else 0, plane) for i in range(hash_funcs)]
        self._positions = _position_function(self.family, key, self._spans, custom)

    def _size(self) -> int:
        """Return the size of the buffer in bytes."""
        raise NotImplementedError

    @property
    def buffer(self) -> Buffer:
        """The buffer that contains the cells: the caller's buffer, or a memoryview of the filter's own memory.

        Setting it replaces the cells with those of another buffer of the same size, and returns once no thread writes
        to the old buffer any more. Raises ParameterError for a buffer that has the wrong size or is not contiguous.
        """
        return self._buffer

    @buffer.setter
    def buffer(self, buffer: Buffer) -> None:
        self._view = flat_view(buffer, self._size())
        self._buffer = buffer
        self._forget_room()

    @property
    def room(self) -> int | None:
        """Number of new keys that may be added before room is made, or None (the default) for no limit.

        A new key decrements it, and removing the last copy of a key increments it. -1 means unknown, which is the value
        after `|=`, `&=`, `clear` and setting the buffer. Raises ParameterError for a number below -1.
        """
        return self._room

    @room.setter
    def room(self, room: int | None) -> None:
        self._room = (
            None if room is None else whole(room, -1, (1 << 63) - 2, "room must be from -1 to 2^63 - 2, or None")
        )

    def _make_room(self) -> None:
        """Make space for a new key, before it is added, if `room` is 0 or unknown.

        A derived class sets `room` or raises an error; the base class raises CapacityError.
        """
        raise CapacityError("there is no room for another key")

    def _ask_for_room(self) -> None:
        for _ in range(MOST_TRIES):
            self._make_room()
            if self._room is None or self._room > 0:
                return
        Hashed._make_room(self)

    def _take_room(self, keys: int) -> None:
        if self._room is not None and self._room >= 0:
            self._room -= keys

    def _forget_room(self) -> None:
        if self._room is not None:
            self._room = -1

    @property
    def body(self) -> memoryview:
        """The bytes of the buffer, as a read-only memoryview."""
        return self._view.toreadonly()

    def positions(self, key: object, /) -> list[int]:
        """Return the cells of a key, one for each hash function, in order. Some may be equal.

        Raises TypeError or KeyRangeError for a key that does not fit the filter's encoding.
        """
        return list(self._positions(self._encode(key)))

    def _batch(
        self, keys: Keys, nulls: Nulls, padding: Padding | None
    ) -> tuple[Iterator[bytes | None], Callable[[bytes], Any]]:
        """Return the encoded keys of a batch, and a function that makes the batch's mask from one byte for each key.

        A null that is skipped is None.
        """
        return opened(keys, nulls, self._encode, self.encoding, padding)

    def _writable(self) -> memoryview:
        """Return the cells for writing. Raises ReadOnlyError if the memory is read-only."""
        if self._view.readonly:
            raise ReadOnlyError("the filter is read-only: change a copy of it, or open its file with writable=True")
        return self._view

    def _same_shape(self, other: Hashed, /) -> None:
        """Check that both filters have the same kind of cells and map every key to the same cells.

        Raises MismatchError, which names the first difference. Raises TypeError for a filter with cells of a different
        kind and for other objects.
        """
        if not isinstance(other, Hashed) or self._CELLS != other._CELLS:
            raise TypeError(f"other must be a filter of {self._CELLS}, not {type(other).__name__}")
        for name in ("cells", "hash_funcs", "family", "key", "encoding", "partitioned"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                # a key may be secret
                shown = (
                    "" if name == "key" else f": {getattr(mine, 'name', mine)} and {getattr(theirs, 'name', theirs)}"
                )
                raise MismatchError(f"the filters differ in {name}{shown}")


def flat_view(buffer: Buffer, size: int) -> memoryview:
    """Return the buffer as bytes.

    Raises TypeError for an object without a buffer, and ParameterError unless it is contiguous and exactly `size` bytes
    long.
    """
    try:
        view = memoryview(buffer)
    except TypeError:
        raise TypeError(f"buffer: expected a bytes-like object, not {type(buffer).__name__}") from None
    if not view.c_contiguous:
        raise ParameterError("a filter's buffer must be contiguous")
    if view.nbytes != size:
        raise ParameterError(f"expected a buffer of {size} bytes, not {view.nbytes}")
    return view.cast("B")

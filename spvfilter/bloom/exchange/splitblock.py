"""SplitBlockFilter: the Bloom filter of a column chunk in a Parquet file.

Bits are in blocks of 32 bytes, each eight words of 32 bits LE. Of xxHash64 of a key's bytes, the upper half h chooses the block, h * blocks
>> 32; the lower half l sets a bit in each of its words: bit l * SALT[i] >> 27, modulo 2^32, of word i. In a file a header in Thrift's
compact protocol precedes the blocks. Source: parquet-format, BloomFilter.md, and parquet.thrift, "BloomFilterHeader".

    15 … number of bytes, a zigzag varint
    1c 1c 00 00   algorithm: split block
    1c 1c 00 00   hash: xxHash64
    1c 1c 00 00   compression: none
    00
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import index
from typing import TYPE_CHECKING, Literal, Self

from spvfilter._public import public
from spvfilter.bloom.exchange.thrift import Thrift, Wire
from spvfilter.bloom.exchange.xxhash import xxhash64
from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel.pure.cells import encode_bytes, encode_utf8

if TYPE_CHECKING:
    from typing_extensions import Buffer

ParquetType = Literal["bytes", "utf-8", "int32", "uint32", "int64", "uint64"]  # of keys: how they are encoded

BLOCK_SIZE = 32  # bytes
MAX_SIZE = 128 << 20  # bytes; what Arrow reads at most (kMaximumBloomFilterBytes)
_FUNCTIONS = 8  # a bit in each word
_SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_INTEGERS = {"int32": (4, True), "uint32": (4, False), "int64": (8, True), "uint64": (8, False)}
_CHOSEN = bytes.fromhex("1c1c0000")  # a union of an empty struct, its first member


@public
class SplitBlockFilter:
    """A Bloom filter as Parquet files have it for a column chunk, for `capacity` keys at `fp_rate`; Arrow, DuckDB and Spark read it.

    `keys` says what keys are and how the file has them: "bytes" and "utf-8" for a BYTE_ARRAY, "int32" to "uint64" for INT32 and INT64. It
    has a power of two of blocks, as Arrow wants it, which makes it up to twice as large as needed, and at most 128 MiB. It is written in
    Python: a key takes some 10 µs. Raises ParameterError for arguments outside their domain and for more keys than 128 MiB hold.
    """

    __slots__ = ("_blocks", "_encode", "keys")

    keys: ParquetType

    def __init__(self, capacity: int, fp_rate: float, *, keys: ParquetType = "bytes") -> None:
        if not isinstance(capacity, int) or isinstance(capacity, bool) or not 1 <= capacity <= 1 << 48:
            raise ParameterError(f"capacity must be a whole number from 1 to 2^48: {capacity!r}")
        if not isinstance(fp_rate, float) or not 0 < fp_rate < 1:
            raise ParameterError(f"fp_rate must be a number between 0 and 1, both excluded: {fp_rate!r}")
        fill = fp_rate ** (1 / _FUNCTIONS)
        bits = -_FUNCTIONS * capacity / math.log1p(-fill) if fill < 1 else 0.0
        if bits > 8 * MAX_SIZE:
            raise ParameterError(f"{capacity} keys at {fp_rate:g} take more than the {MAX_SIZE} bytes that Parquet's readers take")
        size = max(BLOCK_SIZE, 1 << max(0, math.ceil(bits / 8) - 1).bit_length())
        self._set_up(bytearray(size), keys)

    def _set_up(self, blocks: bytearray, keys: ParquetType) -> None:
        self._encode = _encoder(keys)
        self._blocks = blocks
        self.keys = keys

    @classmethod
    def from_bytes(cls, raw: Buffer, *, keys: ParquetType = "bytes") -> Self:
        """The filter in the bytes that a Parquet file has for it, header and blocks.

        Raises FormatError if they are truncated, too long or no filter, or of another algorithm, hash or compression; ParameterError.
        """
        view = memoryview(raw).cast("B")
        size, start = header_of(view, 0)
        if len(view) != start + size:
            said = f"truncated: {start + size} bytes wanted, {len(view)} present" if len(view) < start + size else "trailing bytes"
            raise FormatError(said, offset=min(len(view), start + size), field="blocks")
        return cls._over(view[start:], keys)

    @classmethod
    def _over(cls, blocks: memoryview, keys: ParquetType) -> Self:
        made = cls.__new__(cls)
        made._set_up(bytearray(blocks), keys)
        return made

    def __bytes__(self) -> bytes:
        """Header and blocks, as a Parquet file has them."""
        number, size = 2 * len(self._blocks), bytearray(b"\x15")
        while number >= 0x80:
            size.append(number & 0x7F | 0x80)
            number >>= 7
        size.append(number)
        chosen = b"\x1c" + _CHOSEN[1:]
        return bytes(size) + 3 * chosen + b"\0" + bytes(self._blocks)

    @property
    def blocks(self) -> int:
        """The number of blocks of 256 bits."""
        return len(self._blocks) // BLOCK_SIZE

    def add(self, key: object) -> bool:
        """Add a key; True if any of its bits was not set before. Raises TypeError and OverflowError for a key of another type."""
        at, mask = self._place(key)
        before = int.from_bytes(self._blocks[at : at + BLOCK_SIZE], "little")
        self._blocks[at : at + BLOCK_SIZE] = (before | mask).to_bytes(BLOCK_SIZE, "little")
        return before & mask != mask

    def __contains__(self, key: object) -> bool:
        """Whether a key was added, or is a false positive. Raises TypeError and OverflowError for a key of another type."""
        at, mask = self._place(key)
        return not mask & ~int.from_bytes(self._blocks[at : at + BLOCK_SIZE], "little")

    def update(self, keys: Iterable[object]) -> int:
        """Add a batch and return how many were new. Raises TypeError and OverflowError as `add` does, after adding the keys before."""
        return sum(map(self.add, _batch(keys)))

    def contains_many(self, keys: Iterable[object]) -> bytes:
        """One byte for each key: 1 if it is contained, else 0. Raises TypeError and OverflowError as `add` does."""
        return bytes(key in self for key in _batch(keys))

    def _place(self, key: object) -> tuple[int, int]:
        """The first byte of a key's block, and its bits in the block as one number."""
        hashed = xxhash64(self._encode(key))
        low, mask = hashed & 0xFFFFFFFF, 0
        for word, salt in enumerate(_SALT):
            mask |= 1 << (word * 32 + (low * salt >> 27 & 31))
        return ((hashed >> 32) * self.blocks >> 32) * BLOCK_SIZE, mask

    @property
    def current_fp_rate(self) -> float:
        """The present false-positive rate: the mean over all blocks of the product of their words' fills."""
        words = memoryview(self._blocks).cast("I")
        fills = [word.bit_count() / 32 for word in words]
        return sum(math.prod(fills[at : at + _FUNCTIONS]) for at in range(0, len(fills), _FUNCTIONS)) / self.blocks

    def __eq__(self, other: object) -> bool:
        """Whether both have the same type of keys and the same bits."""
        if not isinstance(other, SplitBlockFilter):
            return NotImplemented
        return self.keys == other.keys and self._blocks == other._blocks

    __hash__ = None  # type: ignore[assignment]  # a filter changes

    def __repr__(self) -> str:
        """Its size and keys."""
        return f"<SplitBlockFilter {self.blocks} blocks, keys {self.keys}>"


def header_of(raw: memoryview, offset: int) -> tuple[int, int]:
    """The number of bytes that follow a header, and the header's own. `offset` is where it starts in its file. Raises FormatError."""
    cursor = Thrift(raw, offset, "filter header")
    size, chosen = None, set()
    for number, wire in cursor.fields():
        match number:
            case 1:
                size = cursor.integer(wire)
            case 2 | 3 | 4:
                _first_of_union(cursor, wire, ("algorithm", "hash", "compression")[number - 2])
                chosen.add(number)
            case _:
                cursor.skip(wire)
    if size is None or chosen != {2, 3, 4}:
        raise cursor.wrong("the header does not tell size, algorithm, hash and compression")
    if not BLOCK_SIZE <= size <= MAX_SIZE or size % BLOCK_SIZE:
        raise cursor.wrong(f"{size} bytes are not blocks of {BLOCK_SIZE} bytes, up to {MAX_SIZE}")
    return size, cursor.at


def _first_of_union(cursor: Thrift, wire: Wire, what: str) -> None:
    """Raises FormatError unless a union has its first member, the only one that is defined."""
    members = []
    for number, inner in cursor.fields(wire):
        members.append(number)
        cursor.skip(inner)
    if members != [1]:
        raise cursor.wrong(f"unknown {what} {members}")


def _batch(keys: Iterable[object]) -> Iterable[object]:
    if isinstance(keys, (bytes, bytearray, str)):
        raise TypeError(f"a batch of keys expected, not one {type(keys).__name__}")
    return keys


def _encoder(keys: ParquetType) -> Callable[[object], bytes]:
    match keys:
        case "bytes":
            return encode_bytes
        case "utf-8":
            return encode_utf8
        case "int32" | "uint32" | "int64" | "uint64":
            size, signed = _INTEGERS[keys]
            return lambda key: _integer(key).to_bytes(size, "little", signed=signed)
        case _:
            raise ParameterError(f"keys must be bytes, utf-8, int32, uint32, int64 or uint64, not {keys!r}")


def _integer(key: object) -> int:
    if isinstance(key, bool) or not hasattr(key, "__index__"):
        raise TypeError(f"an int expected by a filter of integers, not {type(key).__name__}")
    return index(key)

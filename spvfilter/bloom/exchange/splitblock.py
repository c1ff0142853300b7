"""SplitBlockFilter: the Bloom filter of a column chunk in a Parquet file.

Bits are in blocks of 32 bytes, each eight words of 32 bits LE. Of xxHash64 of a key's bytes, the upper half h chooses
the block, h * blocks >> 32; the lower half l sets a bit in each of its words: bit l * SALT[i] >> 27, modulo 2^32, of
word i. In a file a header in Thrift's compact protocol precedes the blocks. Source: parquet-format, BloomFilter.md, and
parquet.thrift, "BloomFilterHeader".

    15 … number of bytes, a zigzag varint
    1c 1c 00 00   algorithm: split block
    1c 1c 00 00   hash: xxHash64
    1c 1c 00 00   compression: none
    00
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Literal, Self

from spvfilter._public import public
from spvfilter.bloom.base import ENCODES
from spvfilter.bloom.exchange.thrift import Thrift, Wire
from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel import BitCore, Encoding, Family
from spvfilter.kernel.values import SPLIT_BLOCK_BITS, SPLIT_BLOCK_FUNCTIONS
from spvfilter.primitives import chunks

if TYPE_CHECKING:
    from typing_extensions import Buffer

ParquetType = Literal["bytes", "utf-8", "int32", "uint32", "int64", "uint64"]  # of keys: how they are encoded

BLOCK_SIZE = SPLIT_BLOCK_BITS // 8  # bytes
MAX_SIZE = 128 << 20  # bytes; what Arrow reads at most (kMaximumBloomFilterBytes)
_ENCODINGS: dict[str, Encoding] = {"bytes": Encoding.BYTES} | {
    name: encoding for encoding, name in ENCODES.items() if name
}
_CHOSEN = bytes.fromhex("1c1c0000")  # a union of an empty struct, its first member


@public
class SplitBlockFilter(BitCore):
    """A Bloom filter as Parquet files have it for a column chunk, for `capacity` keys at `fp_rate`; Arrow, DuckDB and
    Spark read it.

    `keys` says what keys are and how the file has them: "bytes" and "utf-8" for a BYTE_ARRAY, "int32" to "uint64" for
    INT32 and INT64. It has a power of two of blocks, as Arrow wants it, which makes it up to twice as large as needed,
    and at most 128 MiB. It is never full. spvfilter.kernel.BitCore documents `add`, `in`, `update`, `contains_many`,
    which take columns as BloomFilter's do, and `|=`. Raises ParameterError for arguments outside their domain and for
    more keys than 128 MiB hold.
    """

    __slots__ = ()

    def __init__(self, capacity: int, fp_rate: float, *, keys: ParquetType = "bytes") -> None:
        if not isinstance(capacity, int) or isinstance(capacity, bool) or not 1 <= capacity <= 1 << 48:
            raise ParameterError(f"capacity must be a whole number from 1 to 2^48: {capacity!r}")
        if not isinstance(fp_rate, float) or not 0 < fp_rate < 1:
            raise ParameterError(f"fp_rate must be a number between 0 and 1, both excluded: {fp_rate!r}")
        fill = fp_rate ** (1 / SPLIT_BLOCK_FUNCTIONS)
        bits = -SPLIT_BLOCK_FUNCTIONS * capacity / math.log1p(-fill) if fill < 1 else 0.0
        if bits > 8 * MAX_SIZE:
            raise ParameterError(
                f"{capacity} keys at {fp_rate:g} take more than the {MAX_SIZE} bytes that Parquet's readers take"
            )
        size = max(BLOCK_SIZE, 1 << max(0, math.ceil(bits / 8) - 1).bit_length())
        self._set_up(bytearray(size), keys)

    def _set_up(self, blocks: bytearray, keys: ParquetType) -> None:
        if not isinstance(keys, str) or keys not in _ENCODINGS:
            raise ParameterError(f"keys must be bytes, utf-8, int32, uint32, int64 or uint64, not {keys!r}")
        shape = 8 * len(blocks), SPLIT_BLOCK_FUNCTIONS, Family.SPLIT_BLOCK, bytes(16)
        super().__init__(*shape, blocks, _ENCODINGS[keys], private=True)

    @classmethod
    def from_bytes(cls, raw: Buffer, *, keys: ParquetType = "bytes") -> Self:
        """The filter in the bytes that a Parquet file has for it, header and blocks.

        Raises FormatError if they are truncated, too long or no filter, or of another algorithm, hash or compression;
        ParameterError.
        """
        view = memoryview(raw).cast("B")
        size, start = header_of(view, 0)
        if len(view) != start + size:
            said = (
                f"truncated: {start + size} bytes wanted, {len(view)} present"
                if len(view) < start + size
                else "trailing bytes"
            )
            raise FormatError(said, offset=min(len(view), start + size), field="blocks")
        return cls._over(bytearray(view[start:]), keys)

    @classmethod
    def _over(cls, blocks: bytearray, keys: ParquetType) -> Self:
        made = cls.__new__(cls)
        made._set_up(blocks, keys)
        return made

    def __bytes__(self) -> bytes:
        """Header and blocks, as a Parquet file has them."""
        number, size = 2 * (self.cells // 8), bytearray(b"\x15")
        while number >= 0x80:
            size.append(number & 0x7F | 0x80)
            number >>= 7
        size.append(number)
        chosen = b"\x1c" + _CHOSEN[1:]
        return b"".join((size, 3 * chosen, b"\0", self.body))

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self).from_bytes, keys=self.keys), (bytes(self),)

    @property
    def blocks(self) -> int:
        """The number of blocks of 256 bits."""
        return self.cells // SPLIT_BLOCK_BITS

    @property
    def keys(self) -> ParquetType:
        """What keys are."""
        return ENCODES[self.encoding] or "bytes"  # type: ignore[return-value]  # it has one of these encodings

    @property
    def current_fp_rate(self) -> float:
        """The present false-positive rate: the mean over all blocks of the product of their words' fills."""
        return sum(_sum_of_rates(chunk) for chunk in chunks(self.body)) / self.blocks

    def __eq__(self, other: object) -> bool:
        """Whether both have the same type of keys and the same bits."""
        if not isinstance(other, SplitBlockFilter):
            return NotImplemented
        return self.encoding == other.encoding and self.body == other.body

    __hash__ = None  # type: ignore[assignment]  # a filter changes

    def __repr__(self) -> str:
        """Its size and keys."""
        return f"<SplitBlockFilter {self.blocks} blocks, keys {self.keys}>"


def _sum_of_rates(blocks: memoryview) -> float:
    fills = [word.bit_count() / 32 for word in memoryview(bytes(blocks)).cast("I")]
    return sum(math.prod(fills[at : at + SPLIT_BLOCK_FUNCTIONS]) for at in range(0, len(fills), SPLIT_BLOCK_FUNCTIONS))


def header_of(raw: memoryview, offset: int) -> tuple[int, int]:
    """The number of bytes that follow a header, and the header's own. `offset` is where it starts in its file.

    Raises FormatError.
    """
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

"""SplitBlockFilter: the Bloom filter of a column chunk in a Parquet file.

The bits are in 32-byte blocks. A block is eight 32-bit words, little endian. The xxHash64 of a key's bytes has
an upper half h and a lower half l. The key belongs to block h * blocks >> 32, and sets bit l * SALT[i] >> 27 (modulo
2^32) in word i of the block.

Source: parquet-format, BloomFilter.md, and parquet.thrift, "BloomFilterHeader". In a file a header in Thrift's compact
protocol precedes the blocks:

    15 … number of bytes, a zigzag varint
    1c 1c 00 00   algorithm: split block
    1c 1c 00 00   hash: xxHash64
    1c 1c 00 00   compression: none
    00
"""

from __future__ import annotations

import math
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from spvfilter._public import public
from spvfilter.bloom import sizing
from spvfilter.bloom.attributes import pickled, with_attributes_of
from spvfilter.bloom.base import ENCODES, allocate
from spvfilter.bloom.exchange.thrift import Thrift, Wire
from spvfilter.bloom.fileformat import replaced
from spvfilter.bloom.filter import BloomBits
from spvfilter.errors import FormatError, ParameterError, counted
from spvfilter.kernel import Encoding, Family
from spvfilter.kernel.values import SPLIT_BLOCK_BITS, SPLIT_BLOCK_FUNCTIONS
from spvfilter.primitives import chunks

if TYPE_CHECKING:
    from typing_extensions import Buffer

ParquetType = Literal["bytes", "utf-8", "int32", "uint32", "int64", "uint64"]  # Type of the keys.

BLOCK_SIZE = SPLIT_BLOCK_BITS // 8  # Bytes of a block.
MAX_SIZE = 128 << 20  # Bytes of the largest filter that Arrow reads (kMaximumBloomFilterBytes).
_ENCODINGS: dict[str, Encoding] = {"bytes": Encoding.BYTES} | {
    name: encoding for encoding, name in ENCODES.items() if name
}
MAX_HEADER = 256  # Bytes of the largest header of a filter (our choice): longer than any header.
_CHOSEN = bytes.fromhex("1c1c0000")  # A union whose first member, an empty struct, is set.


@public
class SplitBlockFilter(BloomBits):
    """A Bloom filter in the format of Parquet files, which Arrow, DuckDB and Spark read.

    The number of blocks is the smallest power of two (which Arrow requires) that keeps `fp_rate`
    (spvfilter.bloom.sizing). The filter takes at most 128 MiB. It is never full. The methods `add`, `in`, `update`,
    `contains_many` and `|=` are documented at spvfilter.kernel.BitCore; batches may be columns. The length is estimated
    from the bits, as for BloomFilter.

    Args:
        capacity: Number of keys.
        fp_rate: Highest false-positive rate at `capacity` keys, between 0 and 1.
        keys: Type of the keys in the file: "bytes" or "utf-8" for a BYTE_ARRAY, "int32" or "uint32" for INT32, "int64"
            or "uint64" for INT64.

    Raises:
        ParameterError: An argument is outside its domain, or the keys need more than 128 MiB.
    """

    __slots__ = ()

    def __init__(self, capacity: int, fp_rate: float, *, keys: ParquetType = "bytes") -> None:
        capacity = sizing.whole("capacity", capacity, 1, 1 << 48)
        fp_rate = sizing.probability(fp_rate)
        size = BLOCK_SIZE
        while sizing.split_block_fp_rate(size // BLOCK_SIZE, capacity) > fp_rate:
            size *= 2
            if size > MAX_SIZE:
                raise ParameterError(
                    f"{counted(capacity, 'key')} at {fp_rate:g} would take more than the {MAX_SIZE} bytes that"
                    " readers of Parquet accept"
                )
        self._set_up(allocate(size), keys)

    def _set_up(self, blocks: Buffer, keys: ParquetType) -> None:
        if not isinstance(keys, str) or keys not in _ENCODINGS:
            raise ParameterError(f"keys must be bytes, utf-8, int32, uint32, int64 or uint64, not {keys!r}")
        shape = 8 * memoryview(blocks).nbytes, SPLIT_BLOCK_FUNCTIONS, Family.SPLIT_BLOCK, bytes(16)
        super().__init__(*shape, blocks, _ENCODINGS[keys], private=True)

    @classmethod
    def from_bytes(cls, raw: Buffer, *, keys: ParquetType = "bytes") -> Self:
        """Make a filter from its header and blocks, as they are in a Parquet file.

        Raises FormatError if the bytes are truncated, too long or not a filter, or if they have a different algorithm,
        hash or compression. Raises ParameterError if the type of keys is unknown.
        """
        view = memoryview(raw).cast("B")
        size, start = header_of(view, 0)
        if len(view) != start + size:
            said = (
                f"truncated: expected {start + size} bytes, got {len(view)}"
                if len(view) < start + size
                else "trailing bytes"
            )
            raise FormatError(said, offset=min(len(view), start + size), field="blocks")
        return cls._copied(view[start:], keys)

    @classmethod
    def _copied(cls, body: memoryview, keys: ParquetType) -> Self:
        blocks = allocate(len(body))
        memoryview(blocks).cast("B")[:] = body
        made = cls.__new__(cls)
        made._set_up(blocks, keys)
        return made

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, keys: ParquetType = "bytes") -> Self:
        """Read a filter that `save` wrote.

        Raises FormatError if the file is truncated, too long or not such a filter, ParameterError if the type of keys
        is unknown, and OSError if the file cannot be read.
        """
        with Path(path).open("rb") as file:
            return cls.from_bytes(file.read(MAX_SIZE + MAX_HEADER + 1), keys=keys)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the header and the blocks to a file, as BloomFilter.save does. Raises OSError if that fails."""
        with replaced(Path(path)) as file:
            file.write(bytes(self))

    def copy(self) -> Self:
        """Return an independent filter with the same contents. Raises TooLargeError if it does not fit into memory."""
        return with_attributes_of(self._copied(self.body, self.keys), self)

    def __bytes__(self) -> bytes:
        """Return the bytes of the filter in a Parquet file: header and blocks."""
        number, size = 2 * (self.cells // 8), bytearray(b"\x15")
        while number >= 0x80:
            size.append(number & 0x7F | 0x80)
            number >>= 7
        size.append(number)
        chosen = b"\x1c" + _CHOSEN[1:]
        return b"".join((size, 3 * chosen, b"\0", self.body))

    def __reduce__(self) -> tuple[object, ...]:
        return pickled(partial(type(self).from_bytes, keys=self.keys), (bytes(self),), self)

    @property
    def blocks(self) -> int:
        """Number of 256-bit blocks in the filter."""
        return self.cells // SPLIT_BLOCK_BITS

    @property
    def keys(self) -> ParquetType:
        """Type of the keys."""
        return ENCODES[self.encoding] or "bytes"  # type: ignore[return-value]  # the encoding is always one of these

    @property
    def current_fp_rate(self) -> float:
        """Current false-positive rate: the mean of the rates of all blocks.

        The rate of a block is the product of the shares of set bits in its words.
        """
        return sum(_sum_of_rates(chunk) for chunk in chunks(self.body)) / self.blocks

    def __eq__(self, other: object) -> bool:
        """Return True if both filters have the same type of keys and the same bits."""
        if not isinstance(other, SplitBlockFilter):
            return NotImplemented
        return self.encoding == other.encoding and self.body == other.body

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # a filter can change, so it has no hash

    def __repr__(self) -> str:
        """Return a string that shows the size of the filter and the type of its keys."""
        return f"<{type(self).__name__} {self.blocks} blocks, keys {self.keys}>"


def _sum_of_rates(blocks: memoryview) -> float:
    """Return the sum of the false-positive rates of the blocks."""
    fills = [word.bit_count() / 32 for word in memoryview(bytes(blocks)).cast("I")]
    return sum(math.prod(fills[at : at + SPLIT_BLOCK_FUNCTIONS]) for at in range(0, len(fills), SPLIT_BLOCK_FUNCTIONS))


def header_of(raw: memoryview, offset: int) -> tuple[int, int]:
    """Parse the header of a filter: return the number of bytes that follow it, and its own size in bytes.

    `offset` is the offset of the header in its file, for errors. Raises FormatError.
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
        raise cursor.wrong("the header lacks size, algorithm, hash or compression")
    if not BLOCK_SIZE <= size <= MAX_SIZE or size % BLOCK_SIZE:
        raise cursor.wrong(f"expected blocks of {BLOCK_SIZE} bytes, at most {MAX_SIZE} bytes in total, got {size}")
    return size, cursor.at


def _first_of_union(cursor: Thrift, wire: Wire, what: str) -> None:
    """Raise FormatError unless a union has its first member, the only defined one."""
    members = []
    for number, inner in cursor.fields(wire):
        members.append(number)
        cursor.skip(inner)
    if members != [1]:
        raise cursor.wrong(f"unknown {what} {members}")

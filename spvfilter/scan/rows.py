"""The blocks of a plan as rows of bytes: what a part needs to know of each, in 73 bytes, and where a hash is among
them.

| bytes | field, little endian |
|---|---|
| 4 | number of its file u32 |
| 8, 4 | offset u64 and size u32 of the block in it |
| 4, 4 | bits u32 and time u32 of its header |
| 4 | height i32, -1 if it is not known |
| 32 | hash, wire order |
| 8, 4 | offset u64 and size u32 of its undo record, in the undo file beside its file; zeros if it has none |
| 1 | flags: 1 the row before is the block before it, 2 it spends nothing, 4 its run begins with the genesis block |
"""

from __future__ import annotations

import secrets
import struct
from array import array

ROW = struct.Struct("<IQIIIi32sQIB")
ROW_SIZE = ROW.size  # 73 bytes
UNKNOWN = -1  # instead of a height
NOWHERE = -1  # instead of a row
FOLLOWS, LONE, ROOTED = 1, 2, 4

HASH_AT, UNDO_AT = 28, 60
FILE_NUMBER = struct.Struct("<I")  # at the start of a row
UNDO_SIZES = struct.Struct("<QI")  # offset and size, at UNDO_AT
_HEIGHT_AT, _FLAGS_AT = 24, 72
_PLACE = struct.Struct("<IQI")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_BITS = 12
_CHUNK = 1 << _BITS  # rows that are allocated and given back at once
_LEAST_SLOTS = 1 << 10


class Rows:
    """Rows by number: 73 bytes each, and no object."""

    def __init__(self) -> None:
        self._chunks: list[bytearray] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def _at(self, row: int) -> tuple[bytearray, int]:
        return self._chunks[row >> _BITS], (row & _CHUNK - 1) * ROW_SIZE

    def append(self, raw: bytes) -> int:
        """Add a row; its number."""
        if self._count == len(self._chunks) * _CHUNK:
            self._chunks.append(bytearray(_CHUNK * ROW_SIZE))
        chunk, at = self._at(self._count)
        chunk[at : at + ROW_SIZE] = raw
        self._count += 1
        return self._count - 1

    def __getitem__(self, row: int) -> bytes:
        chunk, at = self._at(row)
        return bytes(chunk[at : at + ROW_SIZE])

    def __setitem__(self, row: int, raw: bytes) -> None:
        chunk, at = self._at(row)
        chunk[at : at + ROW_SIZE] = raw

    def hash(self, row: int) -> bytes:
        """Of its block."""
        chunk, at = self._at(row)
        return bytes(chunk[at + HASH_AT : at + UNDO_AT])

    def place(self, row: int) -> tuple[int, int, int]:
        """The number of its file, and offset and size of its block there."""
        file, offset, size = _PLACE.unpack_from(*self._at(row))
        return file, offset, size

    def undo(self, row: int) -> tuple[int, int]:
        """Offset and size of its undo record."""
        chunk, at = self._at(row)
        offset, size = UNDO_SIZES.unpack_from(chunk, at + UNDO_AT)
        return offset, size

    def bits_and_time(self, row: int) -> tuple[int, int]:
        """Of its header."""
        chunk, at = self._at(row)
        return _U32.unpack_from(chunk, at + 16)[0], _U32.unpack_from(chunk, at + 20)[0]

    def height(self, row: int) -> int | None:
        """As far as it is known."""
        chunk, at = self._at(row)
        height: int = _I32.unpack_from(chunk, at + _HEIGHT_AT)[0]
        return None if height == UNKNOWN else height

    def set_height(self, row: int, height: int) -> None:
        """Give it another one."""
        chunk, at = self._at(row)
        _I32.pack_into(chunk, at + _HEIGHT_AT, height)

    def flags(self, row: int) -> int:
        """FOLLOWS, LONE, ROOTED."""
        chunk, at = self._at(row)
        return chunk[at + _FLAGS_AT]

    def add_flags(self, row: int, flags: int) -> None:
        """Set these, too."""
        chunk, at = self._at(row)
        chunk[at + _FLAGS_AT] |= flags

    def permute(self, order: array[int]) -> None:
        """Have the rows in the order of these numbers, each of which is there once; `order` is used up."""
        for start in range(len(order)):
            if order[start] == start:
                continue
            first, at = self[start], start
            while (source := order[at]) != start:
                self[at] = self[source]
                order[at] = at
                at = source
            self[at] = first
            order[at] = at

    def take(self, start: int, end: int) -> bytearray:
        """The rows from start up to end, all but the last of whose chunks are given up: rows are taken in order."""
        taken = bytearray()
        while start < end:
            number, within = divmod(start, _CHUNK)
            stop = min(end - number * _CHUNK, _CHUNK)
            taken += self._chunks[number][within * ROW_SIZE : stop * ROW_SIZE]
            if stop == _CHUNK:
                self._chunks[number] = bytearray()
            start = number * _CHUNK + stop
        return taken


class RowsByHash:
    """The number of a row by the hash of its block: a table of 4-byte numbers, at most two thirds of which are taken.

    The first bytes of a hash, mixed with a number drawn at random, say where to look: nobody can choose hashes that
    fall together.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._slots = array("I", bytes(4 * _LEAST_SLOTS))  # the row and 1, or 0
        self._count = 0
        self._factor = secrets.randbits(64) | 1

    def find(self, block: bytes) -> int:
        """The row of a block, or NOWHERE."""
        slots, mask = self._slots, len(self._slots) - 1
        at = self._start(block) & mask
        while held := slots[at]:
            if self._rows.hash(held - 1) == block:
                return held - 1
            at = (at + 1) & mask
        return NOWHERE

    def add(self, row: int, block: bytes) -> None:
        """Know a row, with the hash of its block, which is not there."""
        if 3 * (self._count + 1) > 2 * len(self._slots):
            self._grow()
        self._put(self._slots, row, block)
        self._count += 1

    def _start(self, block: bytes) -> int:
        return (int.from_bytes(block[:8], "little") * self._factor & 0xFFFFFFFFFFFFFFFF) >> 32

    def _put(self, slots: array[int], row: int, block: bytes) -> None:
        mask = len(slots) - 1
        at = self._start(block) & mask
        while slots[at]:
            at = (at + 1) & mask
        slots[at] = row + 1

    def _grow(self) -> None:
        wider = array("I", bytes(8 * len(self._slots)))
        for held in self._slots:
            if held:
                self._put(wider, held - 1, self._rows.hash(held - 1))
        self._slots = wider

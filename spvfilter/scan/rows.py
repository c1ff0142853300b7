"""The blocks of a plan as 73-byte rows, and an index of the rows by block hash.

| bytes | field, little endian |
|---|---|
| 4 | number of the block's file, u32 |
| 8 | offset of the block in the file, u64 |
| 4 | size of the block, u32 |
| 4 | compact bits of the header, u32 |
| 4 | time of the header, u32 |
| 4 | height i32, -1 if it is unknown |
| 32 | block hash, wire order |
| 8 | offset of its undo record in the undo file of its file, u64; 0 if it has none |
| 4 | size of its undo record, u32; 0 if it has none |
| 1 | flags |

The flags are:

- FOLLOWS (1): the previous block is in the previous row.
- LONE (2): its coinbase is its only transaction.
- ROOTED (4): its run of blocks begins with the genesis block or the block after it.
"""

from __future__ import annotations

import secrets
import struct
from array import array

ROW = struct.Struct("<IQIIIi32sQIB")
ROW_SIZE = ROW.size  # 73 bytes.
UNKNOWN = -1  # Stored instead of an unknown height.
NOWHERE = -1  # Returned instead of a row number.
FOLLOWS, LONE, ROOTED = 1, 2, 4  # Flags.

SIZE_AT, HASH_AT, UNDO_AT, UNDO_SIZE_AT = 12, 28, 60, 68  # Offsets of fields in a row.
FILE_NUMBER = struct.Struct("<I")  # The field at the start of a row.
HEIGHT_AT = 24  # Offset of the height in a row.
HEIGHT = struct.Struct("<i")
UNDO_SIZES = struct.Struct("<QI")  # Offset and size of the undo record, at UNDO_AT.
FLAGS_AT = 72  # Offset of the flags in a row.
_PLACE = struct.Struct("<IQI")
_U32 = struct.Struct("<I")
_BITS = 12
_CHUNK = 1 << _BITS  # Number of rows that are allocated and released together (our choice).
_LEAST_SLOTS = 1 << 10  # Number of slots in an empty index (our choice).


class Rows:
    """Rows, accessed by number: 73 bytes each, without an object for each."""

    def __init__(self) -> None:
        self._chunks: list[bytearray] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def _at(self, row: int) -> tuple[bytearray, int]:
        """Return the chunk that contains a row, and the offset of the row in it."""
        return self._chunks[row >> _BITS], (row & _CHUNK - 1) * ROW_SIZE

    def append(self, raw: bytes) -> int:
        """Add a row, and return its number."""
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
        """Return the hash of the block in a row, 32 bytes in wire order."""
        chunk, at = self._at(row)
        return bytes(chunk[at + HASH_AT : at + UNDO_AT])

    def place(self, row: int) -> tuple[int, int, int]:
        """Return the file number, offset and size of the block in a row."""
        file, offset, size = _PLACE.unpack_from(*self._at(row))
        return file, offset, size

    def undo(self, row: int) -> tuple[int, int]:
        """Return the offset and size of the undo record in a row, or zeros if the block has no undo record."""
        chunk, at = self._at(row)
        offset, size = UNDO_SIZES.unpack_from(chunk, at + UNDO_AT)
        return offset, size

    def bits_and_time(self, row: int) -> tuple[int, int]:
        """Return the compact bits and the time of the header in a row."""
        chunk, at = self._at(row)
        return _U32.unpack_from(chunk, at + 16)[0], _U32.unpack_from(chunk, at + 20)[0]

    def height(self, row: int) -> int | None:
        """Return the height of the block in a row, or None if it is unknown."""
        chunk, at = self._at(row)
        height: int = HEIGHT.unpack_from(chunk, at + HEIGHT_AT)[0]
        return None if height == UNKNOWN else height

    def set_height(self, row: int, height: int) -> None:
        """Set the height of the block."""
        chunk, at = self._at(row)
        HEIGHT.pack_into(chunk, at + HEIGHT_AT, height)

    def flags(self, row: int) -> int:
        """Return the flags of a row: FOLLOWS, LONE and ROOTED."""
        chunk, at = self._at(row)
        return chunk[at + FLAGS_AT]

    def add_flags(self, row: int, flags: int) -> None:
        """Set these flags. Other flags stay as they are."""
        chunk, at = self._at(row)
        chunk[at + FLAGS_AT] |= flags

    def permute(self, order: array[int]) -> None:
        """Reorder the rows. `order` contains each row number once, in the new order, and is overwritten."""
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
        """Return the rows from `start` up to `end`, and release their memory.

        Rows must be taken in order.
        """
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
    """Finds the row of a block by its hash. This is a hash table of 4-byte row numbers, at most two thirds full.

    The slot depends on the first bytes of the hash and on a random number, so an attacker cannot choose hashes that
    collide.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._slots = array("I", bytes(4 * _LEAST_SLOTS))  # row number + 1, or 0 for an empty slot
        self._count = 0
        self._factor = secrets.randbits(64) | 1

    def find(self, block: bytes) -> int:
        """Return the row of a block, or NOWHERE if no row has this hash."""
        slots, mask = self._slots, len(self._slots) - 1
        at = self._start(block) & mask
        while held := slots[at]:
            if self._rows.hash(held - 1) == block:
                return held - 1
            at = (at + 1) & mask
        return NOWHERE

    def add(self, row: int, block: bytes) -> None:
        """Add a row number, and the hash of its block. The hash must be new."""
        if 3 * (self._count + 1) > 2 * len(self._slots):
            self._grow()
        self._put(self._slots, row, block)
        self._count += 1

    def _start(self, block: bytes) -> int:
        """Return the first slot to try for a block, before masking."""
        return (int.from_bytes(block[:8], "little") * self._factor & 0xFFFFFFFFFFFFFFFF) >> 32

    def _put(self, slots: array[int], row: int, block: bytes) -> None:
        """Store a row number in the first free slot."""
        mask = len(slots) - 1
        at = self._start(block) & mask
        while slots[at]:
            at = (at + 1) & mask
        slots[at] = row + 1

    def _grow(self) -> None:
        """Double the size of the table."""
        wider = array("I", bytes(8 * len(self._slots)))
        for held in self._slots:
            if held:
                self._put(wider, held - 1, self._rows.hash(held - 1))
        self._slots = wider

"""The file of a part: the packed hits of its blocks, and a summary.

A file appears under its name only when it is complete, and its digest reveals later damage. Numbers are little endian.

| bytes | field |
|---|---|
| 8 | "SPVPART" and the version, 1 |
| 32 | key: a hash of the part, the watch list and the options of the scan |
| for each block with hits: 1 | "B" |
| 32 | block hash, wire order |
| 4 | height i32, -1 if it is unknown |
| 4 | time u32 |
| 4 | size of the packed hits, u32 |
| size | packed hits, as the kernel packs them |
| at the end: 1 | "E" |
| 4 | size of the summary, u32 |
| size | summary, JSON |
| 32 | SHA-256 of all preceding bytes |
| 8 | "SPVPART" and "." |

The same part scanned twice gives the same bytes.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple

from spvfilter._public import public
from spvfilter.errors import SourceError
from spvfilter.files import SHARED, replacing
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HASH_SIZE, MAX_BLOCK_SIZE, MAX_SCRIPT_SIZE

_MAGIC, _END = b"SPVPART\x01", b"SPVPART."
_BLOCK = struct.Struct("<32siII")
_U32 = struct.Struct("<I")
_UNKNOWN = -1  # Stored instead of an unknown height.
_TAIL = HASH_SIZE + len(_END)  # Bytes after the summary.

# Most bytes of packed hits in one block. An input takes at least 41 bytes, and its hit contains the spent script.
MAX_HITS = MAX_BLOCK_SIZE // 41 * (101 + MAX_SCRIPT_SIZE)

_MAX_SUMMARY = 1 << 28  # Largest summary in bytes (our choice).
_LEAST = len(_MAGIC) + HASH_SIZE + 1 + 4 + 2 + _TAIL  # Size of the shortest file in bytes.


@public
class BlockHits(NamedTuple):
    """The packed hits of one block, with the facts that identify the block."""

    hash: bytes
    """Hash of the block, 32 bytes in wire order."""
    height: int | None
    """Height of the block, or None if it is unknown."""
    time: int
    """Time of the block's header (Unix time)."""
    packed: bytes
    """The hits as the kernel packs them (spvfilter.kernel.unpack_hits)."""

    @property
    def hash_hex(self) -> str:
        """The `hash` field in hex, as block explorers show it."""
        return hash_to_hex(self.hash)


@public
@dataclass(slots=True)
class PartSummary:
    """The counts and problems from the scan of a part."""

    blocks: int = 0
    """Number of blocks scanned."""
    bytes_scanned: int = 0
    """Total size of the scanned blocks, in bytes."""
    matches: int = 0
    """Number of matches found."""
    by_undo: int = 0
    """Number of blocks that were matched with their undo records."""
    by_outpoint: int = 0
    """Number of blocks without a usable undo record that spend coins. Their spends are found by outpoint."""
    unseen: int = 0
    """Number of blocks that may spend coins from before all scanned blocks.

    The scan cannot find these spends. These blocks are also counted in `by_outpoint`.
    """
    problems: list[str] = field(default_factory=list)
    """Sentences about parts of block files that could not be read."""
    undo_problems: list[str] = field(default_factory=list)
    """Sentences about undo records that could not be used."""

    @property
    def lacks(self) -> bool:
        """True if some data could not be read. A later run then scans the part again."""
        return bool(self.problems or self.undo_problems)

    def add(self, other: PartSummary) -> None:
        """Add the counts and problems of another part to this summary."""
        self.blocks += other.blocks
        self.bytes_scanned += other.bytes_scanned
        self.matches += other.matches
        self.by_undo += other.by_undo
        self.by_outpoint += other.by_outpoint
        self.unseen += other.unseen
        self.problems += other.problems
        self.undo_problems += other.undo_problems


_FIELDS = PartSummary.__match_args__


class PartWriter:
    """Writes the file of a part and computes its digest."""

    def __init__(self, file: IO[bytes], key: bytes) -> None:
        self._file = file
        self._digest = sha256()
        self._put(_MAGIC + key)

    def _put(self, raw: bytes) -> None:
        self._digest.update(raw)
        self._file.write(raw)

    def add(self, block: BlockHits) -> None:
        """Append a block that has hits."""
        height = _UNKNOWN if block.height is None else block.height
        self._put(b"B" + _BLOCK.pack(block.hash, height, block.time, len(block.packed)))
        self._put(block.packed)

    def end(self, summary: PartSummary) -> None:
        """Append the summary and the digest."""
        text = json.dumps({name: getattr(summary, name) for name in _FIELDS}, separators=(",", ":")).encode()
        self._put(b"E" + _U32.pack(len(text)) + text)
        self._file.write(self._digest.digest() + _END)


def write_part(path: Path, key: bytes, blocks: Iterable[BlockHits], summary: PartSummary) -> None:
    """Write the file of a part. `summary` is complete once `blocks` is exhausted. Raises OSError."""
    with replacing(path, SHARED) as file:
        writer = PartWriter(file, key)
        for block in blocks:
            writer.add(block)
        writer.end(summary)


@public
class PartFile:
    """The complete file of a part.

    Raises SourceError if the start or the end of the file shows that it is incomplete, and OSError if it cannot be
    read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        """Path of the part's file."""
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(len(_MAGIC) + HASH_SIZE)
            if size < _LEAST or not head.startswith(_MAGIC):
                raise self._damaged()
            file.seek(size - _TAIL)
            tail = file.read()
            if not tail.endswith(_END):
                raise self._damaged()
        self.size = size
        """Size of the file, in bytes."""
        self.key: bytes = head[len(_MAGIC) :]
        """Hash of the part, the watch list and the scan's options, as given in the file, 32 bytes."""
        self.digest: bytes = tail[:HASH_SIZE]
        """SHA-256 of all bytes that precede the digest, as given in the file, 32 bytes."""

    def _damaged(self) -> SourceError:
        return SourceError(f"{self.path}: damaged, or not the file of a part: delete it and scan again")

    def blocks(self) -> Iterator[BlockHits]:
        """Yield the blocks that have hits, in order.

        Raises OSError if the file cannot be read. Raises SourceError if it is damaged, possibly only at the end of the
        iteration.
        """
        for found in self._read():
            if isinstance(found, BlockHits):
                yield found

    def summary(self) -> PartSummary:
        """Return the part's summary after reading and verifying the whole file.

        Raises OSError if the file cannot be read, and SourceError if it is damaged.
        """
        last = None
        for last in self._read():  # noqa: B007  only the last item is needed
            pass
        if not isinstance(last, PartSummary):
            raise self._damaged()
        return last

    def _read(self) -> Iterator[BlockHits | PartSummary]:
        """Yield the blocks, then the summary.

        Raises OSError if the file cannot be read, and SourceError if it is damaged.
        """
        digest = sha256()
        with self.path.open("rb") as file:
            left = os.fstat(file.fileno()).st_size - _TAIL

            def take(size: int) -> bytes:
                nonlocal left
                if size > left:
                    raise self._damaged()
                raw = file.read(size)
                if len(raw) != size:
                    raise self._damaged()
                left -= size
                digest.update(raw)
                return raw

            if take(len(_MAGIC) + HASH_SIZE) != _MAGIC + self.key:
                raise self._damaged()
            while (tag := take(1)) == b"B":
                block_hash, height, time, size = _BLOCK.unpack(take(_BLOCK.size))
                if size > MAX_HITS:
                    raise self._damaged()
                yield BlockHits(block_hash, None if height == _UNKNOWN else height, time, take(size))
            if tag != b"E":
                raise self._damaged()
            (size,) = _U32.unpack(take(4))
            if size > _MAX_SUMMARY or size != left:
                raise self._damaged()
            text = take(size)
            if file.read(_TAIL) != digest.digest() + _END:
                raise self._damaged()
        yield self._summary(text)

    def _summary(self, text: bytes) -> PartSummary:
        try:
            found = json.loads(text)
            return PartSummary(**{name: found[name] for name in _FIELDS})
        except (ValueError, KeyError, TypeError):
            raise self._damaged() from None


def key_of(path: Path) -> bytes | None:
    """Return the key of a part's file, or None if the file is missing or not complete. Raises OSError."""
    try:
        return PartFile(path).key
    except (FileNotFoundError, SourceError):
        return None

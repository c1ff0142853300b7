"""The file of a part: the packed hits of its blocks, and a summary.

It is written beside its place and renamed, and says if it is damaged.

| bytes | what |
|---|---|
| 8 | "SPVPART" and the version, 1 |
| 32 | the key of what was done: the part, the watch list and the way of the scan |
| for each block with hits: 1, 32, 4, 4, 4 | "B", block hash in wire order, height i32 or -1, time u32, size u32 |
| size | its packed hits (kernel) |
| 1 | "E" |
| 4, … | size u32 and bytes of the summary, JSON |
| 32 | SHA-256 of all before |
| 8 | "SPVPART" and "." |

Numbers are little endian. The same part scanned twice gives the same bytes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from spvfilter._dataclass import dataclass, field
from spvfilter._public import deferred, public
from spvfilter.errors import SourceError
from spvfilter.files import replacing
from spvfilter.protocol import HASH_SIZE, MAX_BLOCK_SIZE

if TYPE_CHECKING:
    import json
else:
    json = deferred("json")

_MAGIC, _END = b"SPVPART\x01", b"SPVPART."
_BLOCK = struct.Struct("<32siII")
_U32 = struct.Struct("<I")
_UNKNOWN = -1  # instead of a height
_TAIL = HASH_SIZE + len(_END)
# bytes of packed hits of one block: each of its inputs and outputs takes less than that much more
_MAX_HITS = 64 * MAX_BLOCK_SIZE
_MAX_SUMMARY = 1 << 28  # bytes
_LEAST = len(_MAGIC) + HASH_SIZE + 1 + 4 + 2 + _TAIL


@public
class BlockHits(NamedTuple):
    """The packed hits of one block."""

    hash: bytes
    height: int | None
    time: int
    packed: bytes


@public
@dataclass(slots=True)
class PartSummary:
    """What the scan of a part has found out, and how it was done."""

    blocks: int = 0
    bytes_scanned: int = 0
    matches: int = 0
    by_undo: int = 0
    """Of the blocks: those matched with their undo records."""
    by_outpoint: int = (
        0  # those that spend and have no undo record that can be used: their spends are found by outpoint
    )
    unseen: int = 0
    """Of these: blocks that may spend coins from before all blocks, which cannot be seen."""
    problems: list[str] = field(default_factory=list)
    """What could not be read."""
    undo_problems: list[str] = field(default_factory=list)
    """Records that could not be used."""

    @property
    def lacks(self) -> bool:
        """Whether something could not be read without which payments, or what spends them, may be missing."""
        return bool(self.problems or (self.undo_problems and self.unseen))

    def add(self, other: PartSummary) -> None:
        """Count what another part's scan has found out, too."""
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
    """Writes the file of a part, whose digest it keeps."""

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
    """Write the file of a part; `summary` is complete once `blocks` are exhausted. Raises OSError."""
    with replacing(path) as file:
        writer = PartWriter(file, key)
        for block in blocks:
            writer.add(block)
        writer.end(summary)


@public
class PartFile:
    """A file that was written whole. Raises OSError; SourceError for one that is not, as far as its ends tell."""

    def __init__(self, path: Path) -> None:
        self.path = path
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
        self.key = head[len(_MAGIC) :]
        self.digest = tail[:HASH_SIZE]  # of all before it, as it says

    def _damaged(self) -> SourceError:
        return SourceError(f"{self.path}: damaged, or not the file of a part: delete it and scan again")

    def blocks(self) -> Iterator[BlockHits]:
        """Its blocks with hits, in order. Raises OSError; SourceError for a damaged file, at its end if not before."""
        for found in self._read():
            if isinstance(found, BlockHits):
                yield found

    def summary(self) -> PartSummary:
        """Its summary, after a reading of the whole file. Raises OSError; SourceError for a damaged file."""
        last = None
        for last in self._read():  # noqa: B007  the last one is wanted
            pass
        if not isinstance(last, PartSummary):
            raise self._damaged()
        return last

    def _read(self) -> Iterator[BlockHits | PartSummary]:
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
                if size > _MAX_HITS:
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

"""A file of the outpoints that a first pass over the parts found. Any worker can load it for the second pass.

| bytes | field |
|---|---|
| 4 | size of packed hits, u32 LE |
| size | packed hits of up to 4,096 outputs; these two fields are repeated |
| 32 | SHA-256 of all preceding bytes |
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from spvfilter.errors import FormatError, SourceError
from spvfilter.files import SHARED, replacing
from spvfilter.kernel import NO_ENTRY, PATTERN_KINDS, EntryKind, Hit, WatchTable, pack_hits, unpack_hits
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.partfile import PartFile

MOST_COINS = 20_000_000  # outpoints kept in memory, about 150 bytes each (our choice)
_CHUNK = 4_096  # hits that are packed together (our choice)


def write_coins(path: Path, parts: Iterable[PartFile], table: WatchTable, most: int = MOST_COINS) -> bytes:
    """Write the outputs among the parts' hits to a file, in order.

    Outputs that matched a data prefix or a script type of the table are omitted. Returns the digest at the end of the
    file, or b"" if there is no output. Raises SourceError if there are more than `most` outputs, and OSError if a file
    cannot be read or written.
    """
    digest, count = sha256(), 0
    with replacing(path, SHARED) as file:
        for chunk in _chunks(_outputs(parts, table)):
            count += len(chunk)
            if count > most:
                raise SourceError(
                    f"more than {most:,} outputs pay entries of the watch list, and their outpoints do not fit in"
                    " memory: put the rev*.dat files with the spent coins next to the blocks"
                )
            packed = pack_hits(chunk)
            piece = len(packed).to_bytes(4, "little") + packed
            digest.update(piece)
            file.write(piece)
        file.write(digest.digest())
    return digest.digest() if count else b""


def _outputs(parts: Iterable[PartFile], table: WatchTable) -> Iterator[Hit]:
    """Yield the hits whose outpoints a later pass needs."""
    patterns = patterns_of(table)
    for part in parts:
        for block in part.blocks():
            yield from learnable(block.packed, patterns)


def patterns_of(table: WatchTable) -> frozenset[int]:
    """Return the numbers of the entries that are data prefixes or script types."""
    if not any(table.count_of(kind) for kind in PATTERN_KINDS):
        return frozenset()
    return frozenset(number for number, (kind, _) in enumerate(table.entries()) if kind >= EntryKind.DATA_PREFIX)


def learnable(packed: bytes, patterns: frozenset[int]) -> Iterator[Hit]:
    """Yield the outputs among packed hits, except those of the entries in `patterns`."""
    return (hit for hit in unpack_hits(packed) if not hit.spend and hit.entry not in patterns)


def _chunks(hits: Iterator[Hit]) -> Iterator[list[Hit]]:
    """Yield lists of up to 4,096 hits."""
    chunk: list[Hit] = []
    for hit in hits:
        chunk.append(hit)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def table_with_coins(table: WatchTable, path: Path) -> WatchTable:
    """Return a copy of a table that also watches a file's outpoints.

    Raises SourceError if the file is damaged, and OSError if it cannot be read.
    """
    twin, digest = table.copy(), sha256()
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size - HASH_SIZE
        while left > 0:
            head = file.read(4)
            packed = file.read(min(int.from_bytes(head, "little"), max(left - 4, 0)))
            left -= 4 + int.from_bytes(head, "little")
            digest.update(head + packed)
            if left < 0:
                break
            try:
                twin.learn(hit._replace(entry=entry_of(table, hit)) for hit in unpack_hits(packed))
            except FormatError:
                break
        if left or file.read() != digest.digest():
            raise SourceError(f"{path}: damaged: delete it and scan again")
    return twin


def entry_of(table: WatchTable, hit: Hit) -> int:
    """Return the entry that a hit's outpoint is watched for.

    It is the outpoint's own entry if the list contains one, and otherwise the entry of the hit.
    """
    by_hand = table.find(EntryKind.OUTPOINT, hit.outpoint)
    return hit.entry if by_hand == NO_ENTRY else by_hand

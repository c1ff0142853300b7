"""Compact filters in the wallet's database: the filter hash of every block, the headers they make, and filters kept if asked. No network.

Filter headers are chained (BIP-157), so the last one, kept apart, tells whether the hashes are as they were written. Filters lie under
their own hashes, and are given only by the hashes that headers commit to: one that is false, damaged, stale or not vouched for yet is as
good as not kept, and what was kept before its header was known is there once it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spvfilter._public import public
from spvfilter.errors import StoreCorruptError
from spvfilter.filters.bip158 import filter_hash, filter_header
from spvfilter.protocol import GENESIS_PREVIOUS_FILTER_HEADER
from spvfilter.store.sqlite import MarkedRows, translated

_SIZE = 32  # bytes of a hash


@public
@dataclass(slots=True)
class CompactFilterBatch:
    """What one commit changes of the filters, in this order."""

    fork: int | None = None  # the last height that stays; hashes above leave
    hashes: Sequence[bytes] = ()  # filter hashes appended above what is there
    kept: Sequence[tuple[bytes, bytes]] = ()  # hash and bytes of filters


@public
class CompactFilterRows:
    """Filter hashes and headers from the genesis block on, all of them in memory: 64 bytes a block."""

    def __init__(self, db: sqlite3.Connection, rows: MarkedRows, path: Path) -> None:
        self._db = db
        self._rows = rows
        self._path = path
        self._hashes = bytearray()
        self._headers = bytearray()

    @property
    def height(self) -> int:
        """Of the last block whose filter header is known, -1 for none."""
        return len(self._headers) // _SIZE - 1

    def header_at(self, height: int) -> bytes:
        """The filter header of a block; 32 zeros at -1."""
        return bytes(self._headers[_SIZE * height : _SIZE * height + _SIZE]) if height >= 0 else GENESIS_PREVIOUS_FILTER_HEADER

    def headers(self, first: int, last: int) -> list[bytes]:
        """Filter headers of some heights, both included."""
        return [self.header_at(height) for height in range(first, last + 1)]

    def hash_at(self, height: int) -> bytes:
        """The filter hash of a block."""
        return bytes(self._hashes[_SIZE * height : _SIZE * height + _SIZE])

    def kept(self, first: int, last: int) -> dict[int, bytes]:
        """The filters kept of some heights, both included, by height, each held against its hash."""
        query = "SELECT height, data FROM filter_hashes JOIN filters USING (hash) WHERE height BETWEEN ? AND ?"
        with translated(self._path):
            rows = self._db.execute(query, (first, last))
            return {height: data for height, data in rows if filter_hash(data) == self.hash_at(height)}

    def waiting(self) -> int:
        """How many of the filters kept no filter header commits to: it is not known yet, or they are of no block of the best chain."""
        with translated(self._path):
            query = "SELECT count(*) FROM filters WHERE hash NOT IN (SELECT hash FROM filter_hashes)"
            return int(self._db.execute(query).fetchone()[0])

    def is_kept(self, digest: bytes, data: bytes) -> bool:
        """Whether just this filter is kept under its hash."""
        with translated(self._path):
            row: tuple[object] | None = self._db.execute("SELECT data FROM filters WHERE hash = ?", (digest,)).fetchone()
        return row == (data,)

    def load(self) -> None:
        """Raises StoreCorruptError unless every hash is as it was written."""
        self._hashes.clear()
        self._headers.clear()
        for number, (height, digest) in enumerate(self._db.execute("SELECT height, hash FROM filter_hashes ORDER BY height")):
            if height != number or not isinstance(digest, bytes) or len(digest) != _SIZE:
                raise StoreCorruptError(f"{self._path}: no filter hash of height {number}")
            self._append(digest)
        if self._rows.meta("filter header") != (self.header_at(self.height) if self.height >= 0 else None):
            raise StoreCorruptError(f"{self._path}: the last filter header is not the one written last")

    def _append(self, digest: bytes) -> None:
        header = filter_header(digest, self.header_at(self.height))
        self._hashes += digest
        self._headers += header

    def cut(self, height: int) -> None:
        """Forget what is above a height; within a transaction."""
        if height < self.height:
            self.write(CompactFilterBatch(fork=height))

    def write(self, batch: CompactFilterBatch) -> None:
        """Within a transaction; where that fails, `load` again."""
        if batch.fork is not None and batch.fork < self.height:
            self._db.execute("DELETE FROM filter_hashes WHERE height > ?", (batch.fork,))
            del self._hashes[_SIZE * (batch.fork + 1) :], self._headers[_SIZE * (batch.fork + 1) :]
        if batch.hashes:
            self._db.executemany("INSERT INTO filter_hashes VALUES (?, ?)", enumerate(batch.hashes, self.height + 1))
            for digest in batch.hashes:
                self._append(digest)
        if batch.fork is not None or batch.hashes:
            self._rows.set_meta("filter header", self.header_at(self.height) if self.height >= 0 else None)
        self._db.executemany("INSERT OR REPLACE INTO filters VALUES (?, ?)", batch.kept)

"""Compact filters in the wallet's database: the filter hash of every block, the filter headers, and filters kept on request.

Filter headers are chained (BIP-157), so the last one, stored separately, shows whether all hashes are as they were written. Filters are
stored under their own hashes and returned only for hashes that filter headers commit to. A false, damaged or stale filter is therefore
never used, and a filter stored before its header becomes available once the header is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter._dataclass import dataclass
from spvfilter._public import deferred, public
from spvfilter.errors import StoreCorruptError
from spvfilter.filters.bip158 import filter_hash, filter_header
from spvfilter.protocol import GENESIS_PREVIOUS_FILTER_HEADER
from spvfilter.store.sqlite import MarkedRows, translated

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = deferred("sqlite3")

_SIZE = 32  # bytes of a hash


@public
@dataclass(slots=True)
class CompactFilterBatch:
    """Changes to the compact filters in one commit, applied in this order."""

    fork: int | None = None  # height up to which filter hashes stay; those above are deleted
    hashes: Sequence[bytes] = ()  # filter hashes of the next blocks
    kept: Sequence[tuple[bytes, bytes]] = ()  # filters to store: hash and bytes


@public
class CompactFilterRows:
    """Filter hashes and filter headers from the genesis block on, held in memory (64 bytes per block), and the stored filters."""

    def __init__(self, db: sqlite3.Connection, rows: MarkedRows, path: Path) -> None:
        self._db = db
        self._rows = rows
        self._path = path
        self._hashes = bytearray()
        self._headers = bytearray()

    @property
    def height(self) -> int:
        """Height of the last block with a known filter header; -1 for none."""
        return len(self._headers) // _SIZE - 1

    def header_at(self, height: int) -> bytes:
        """The filter header at a height; 32 zeros at height -1."""
        return bytes(self._headers[_SIZE * height : _SIZE * height + _SIZE]) if height >= 0 else GENESIS_PREVIOUS_FILTER_HEADER

    def headers(self, first: int, last: int) -> list[bytes]:
        """Filter headers from height `first` to `last`, both included."""
        return [self.header_at(height) for height in range(first, last + 1)]

    def packed(self) -> tuple[bytes, bytes]:
        """All filter hashes and all filter headers, 32 bytes each."""
        return bytes(self._hashes), bytes(self._headers)

    def hash_at(self, height: int) -> bytes:
        """The filter hash at a height."""
        return bytes(self._hashes[_SIZE * height : _SIZE * height + _SIZE])

    def kept(self, first: int, last: int) -> dict[int, bytes]:
        """The stored filters from height `first` to `last`, both included, by height; only those whose bytes have the right hash."""
        query = "SELECT height, data FROM filter_hashes JOIN filters USING (hash) WHERE height BETWEEN ? AND ?"
        with translated(self._path):
            rows = self._db.execute(query, (first, last))
            return {height: data for height, data in rows if filter_hash(data) == self.hash_at(height)}

    def waiting(self) -> int:
        """Number of stored filters that no known filter header commits to: of blocks above `height`, or not of the best chain."""
        with translated(self._path):
            query = "SELECT count(*) FROM filters WHERE hash NOT IN (SELECT hash FROM filter_hashes)"
            return int(self._db.execute(query).fetchone()[0])

    def is_kept(self, filter_hash: bytes, data: bytes) -> bool:
        """Whether these bytes are stored under this hash."""
        with translated(self._path):
            row: tuple[object] | None = self._db.execute("SELECT data FROM filters WHERE hash = ?", (filter_hash,)).fetchone()
        return row == (data,)

    def load(self) -> None:
        """Read all hashes. Raises StoreCorruptError unless every one is as it was written."""
        self._hashes.clear()
        self._headers.clear()
        for number, (height, stored) in enumerate(self._db.execute("SELECT height, hash FROM filter_hashes ORDER BY height")):
            if height != number or not isinstance(stored, bytes) or len(stored) != _SIZE:
                raise StoreCorruptError(f"{self._path}: the filter hash of height {number} is missing or damaged")
            self._append(stored)
        if self._rows.meta("filter header") != (self.header_at(self.height) if self.height >= 0 else None):
            raise StoreCorruptError(f"{self._path}: the last filter header differs from the one written last")

    def _append(self, filter_hash: bytes) -> None:
        header = filter_header(filter_hash, self.header_at(self.height))
        self._hashes += filter_hash
        self._headers += header

    def cut(self, height: int) -> None:
        """Delete the filter hashes above a height; within a transaction."""
        if height < self.height:
            self.write(CompactFilterBatch(fork=height))

    def write(self, batch: CompactFilterBatch) -> None:
        """Apply a batch, within a transaction; if that fails, call `load` afterwards."""
        if batch.fork is not None and batch.fork < self.height:
            self._db.execute("DELETE FROM filter_hashes WHERE height > ?", (batch.fork,))
            del self._hashes[_SIZE * (batch.fork + 1) :], self._headers[_SIZE * (batch.fork + 1) :]
        if batch.hashes:
            self._db.executemany("INSERT INTO filter_hashes VALUES (?, ?)", enumerate(batch.hashes, self.height + 1))
            for appended in batch.hashes:
                self._append(appended)
        if batch.fork is not None or batch.hashes:
            self._rows.set_meta("filter header", self.header_at(self.height) if self.height >= 0 else None)
        self._db.executemany("INSERT OR REPLACE INTO filters VALUES (?, ?)", batch.kept)

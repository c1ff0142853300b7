"""Compact filters in the wallet's database: the filter hashes of all blocks, filter headers, and any stored filters.

A row contains 2,000 filter hashes. Rows begin at heights that are multiples of 2,000, and only the last may be shorter.
Filter headers are chained (BIP-157), and the last one is stored separately, which reveals any changed hash.

A filter is stored under its own hash, and returned only if a filter header commits to that hash. A false, damaged or
stale filter is therefore never used. A filter that was stored before its header becomes usable once the header is
known.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.errors import ParameterError, StoreCorruptError
from spvfilter.filters.bip158 import filter_hash
from spvfilter.kernel import chain_filter_headers
from spvfilter.protocol import GENESIS_PREVIOUS_FILTER_HEADER
from spvfilter.store.headers import PER_ROW
from spvfilter.store.sqlite import MarkedRows, translated

_SIZE = 32  # size of a hash in bytes
_LAST = "filter header"  # key of the last filter header in the "meta" table


@public
@dataclass(slots=True)
class CompactFilterBatch:
    """Changes to the compact filters in one commit, applied in the order of the fields."""

    fork: int | None = None
    """Height of the last filter hash to keep. Hashes above it are deleted."""
    hashes: Sequence[bytes] = ()
    """Filter hashes of the next blocks, 32 bytes each."""
    kept: Sequence[tuple[bytes, bytes]] = ()
    """Filters to store, each given as its hash and its bytes."""

    def extended(self, change: CompactFilterBatch) -> CompactFilterBatch:
        """Return this batch followed by `change`, which must not have a `fork`."""
        return CompactFilterBatch(self.fork, [*self.hashes, *change.hashes], [*self.kept, *change.kept])


@dataclass(slots=True)
class _Row:
    """Filter hashes of the blocks starting at height `first`, and their filter headers once they are needed."""

    first: int
    hashes: bytes
    headers: bytes = b""


class FilterState(NamedTuple):
    """The last filter header, and the filter header just below each row."""

    height: int = -1
    """Height of the last filter header, or -1 if there is none."""
    last: bytes = GENESIS_PREVIOUS_FILTER_HEADER
    """Last filter header, 32 bytes."""
    below: tuple[bytes, ...] = ()
    """The filter header just below each row."""


@public
class CompactFilterRows:
    """Filter hashes and filter headers of all blocks, starting with the genesis block, and the stored filters.

    Only every 2,000th filter header and the most recently read row are kept in memory.
    """

    def __init__(self, db: sqlite3.Connection, rows: MarkedRows, path: Path) -> None:
        self._db = db
        self._rows = rows
        self._path = path
        self._state = FilterState()
        self._read: _Row | None = None  # the most recently read row

    @property
    def height(self) -> int:
        """Height of the last filter header, or -1 if there is none."""
        return self._state.height

    def header_at(self, height: int) -> bytes:
        """Return the filter header at a height, 32 bytes. For height -1, these are zeros."""
        if height < 0:
            return GENESIS_PREVIOUS_FILTER_HEADER
        if height == self.height:
            return self._state.last
        row = self._row(height)
        if not row.headers and row.hashes:
            row.headers = chain_filter_headers(row.hashes, self._state.below[row.first // PER_ROW])
        return row.headers[_SIZE * (height - row.first) : _SIZE * (height - row.first) + _SIZE]

    def headers(self, first: int, last: int) -> list[bytes]:
        """Return the filter headers from height `first` to height `last`, both inclusive."""
        return [self.header_at(height) for height in range(first, last + 1)]

    def pieces(self) -> Iterator[bytes]:
        """Yield all filter hashes, 32 bytes each, up to 2,000 of them in one item."""
        for first in range(0, self.height + 1, PER_ROW):
            yield self._hashes(first)

    def hash_at(self, height: int) -> bytes:
        """Return the filter hash at a height, 32 bytes."""
        row = self._row(height)
        return row.hashes[_SIZE * (height - row.first) : _SIZE * (height - row.first) + _SIZE]

    def hashes(self, first: int, last: int) -> list[bytes]:
        """Return the known filter hashes from height `first` to height `last`, both inclusive."""
        found: list[bytes] = []
        while first <= min(last, self.height):
            row = self._row(first)
            hashes = row.hashes[_SIZE * (first - row.first) : _SIZE * (last + 1 - row.first)]
            found += (hashes[at : at + _SIZE] for at in range(0, len(hashes), _SIZE))
            first = row.first + PER_ROW
        return found

    @property
    def has_any(self) -> bool:
        """True if any filter is stored."""
        with translated(self._path):
            return self._db.execute("SELECT 1 FROM filters LIMIT 1").fetchone() is not None

    def kept(self, first: int, last: int) -> dict[int, bytes]:
        """Return the stored filters from height `first` to height `last`, both inclusive, keyed by height.

        A stored filter whose hash is wrong is omitted.
        """
        found = {}
        for height, wanted in enumerate(self.hashes(first, last), first):
            data = self._filter(wanted)
            if isinstance(data, bytes) and filter_hash(data) == wanted:  # always true unless the file is damaged
                found[height] = data
        return found

    def waiting(self) -> int:
        """Return the number of stored filters that no known filter header commits to.

        They belong to blocks above `height`, or to blocks outside the best chain.
        """
        with translated(self._path):
            self._db.execute("CREATE TEMP TABLE known (hash BLOB PRIMARY KEY) WITHOUT ROWID")
            try:
                for piece in self.pieces():
                    hashes = ((piece[at : at + _SIZE],) for at in range(0, len(piece), _SIZE))
                    self._db.executemany("INSERT OR IGNORE INTO temp.known VALUES (?)", hashes)
                query = "SELECT count(*) FROM filters WHERE hash NOT IN (SELECT hash FROM temp.known)"
                return int(self._db.execute(query).fetchone()[0])
            finally:
                self._db.execute("DROP TABLE temp.known")

    def is_kept(self, filter_hash: bytes, data: bytes) -> bool:
        """Return True if these bytes are stored under this filter hash."""
        return self._filter(filter_hash) == data

    def _filter(self, filter_hash: bytes) -> bytes | None:
        with translated(self._path):
            row: tuple[bytes] | None = self._db.execute(
                "SELECT data FROM filters WHERE hash = ?", (filter_hash,)
            ).fetchone()
        return row[0] if row else None

    def _row(self, height: int) -> _Row:
        """Return the row that contains a height."""
        first = height - height % PER_ROW
        if self._read is None or self._read.first != first:
            self._read = _Row(first, self._hashes(first))
        return self._read

    def _hashes(self, first: int) -> bytes:
        with translated(self._path):
            row: tuple[bytes] | None = self._db.execute(
                "SELECT hashes FROM filter_hashes WHERE first = ?", (first,)
            ).fetchone()
        return row[0] if row else b""

    def load(self) -> None:
        """Read and check all filter hashes. Raises StoreCorruptError if a hash was changed or is missing."""
        height, last, below = -1, GENESIS_PREVIOUS_FILTER_HEADER, []
        for first, hashes in self._db.execute("SELECT first, hashes FROM filter_hashes ORDER BY first"):
            is_row = first == height + 1 and not first % PER_ROW and isinstance(hashes, bytes)
            if not is_row or len(hashes) % _SIZE or not 1 <= len(hashes) // _SIZE <= PER_ROW:
                raise StoreCorruptError(f"{self._path}: the filter hash at height {height + 1} is missing or damaged")
            below.append(last)
            last = chain_filter_headers(hashes, last)[-_SIZE:]
            height += len(hashes) // _SIZE
        if self._rows.meta(_LAST) != (last if height >= 0 else None):
            raise StoreCorruptError(f"{self._path}: the last filter header does not match the one stored separately")
        self.reset(FilterState(height, last, tuple(below)))

    def state(self) -> FilterState:
        """Return the current state, which `reset` can restore."""
        return self._state

    def reset(self, state: FilterState) -> None:
        """Restore an earlier state after a failed commit."""
        self._state, self._read = state, None

    def cut(self, height: int) -> None:
        """Delete the filter hashes above a height, within a transaction.

        Raises ParameterError if the height is below -1.
        """
        if height < self.height:
            self.write(CompactFilterBatch(fork=height))

    def write(self, batch: CompactFilterBatch) -> None:
        """Apply a batch, within a transaction. If this fails, call `reset`.

        Raises ParameterError if a filter hash is not 32 bytes long.
        """
        if batch.fork is not None and batch.fork < self.height:
            first = batch.fork + 1 - (batch.fork + 1) % PER_ROW
            kept = self._hashes(first)[: _SIZE * (batch.fork + 1 - first)]
            self._db.execute("DELETE FROM filter_hashes WHERE first >= ?", (first,))
            below = self._state.below[: first // PER_ROW + 1]
            self.reset(FilterState(first - 1, below[-1], below[:-1]))
            self._append(kept)
        if any(len(each) != _SIZE for each in batch.hashes):
            raise ParameterError("each filter hash must be 32 bytes long")
        self._append(b"".join(batch.hashes))
        if batch.fork is not None or batch.hashes:
            self._rows.set_meta(_LAST, self._state.last if self.height >= 0 else None)
        self._db.executemany("INSERT OR REPLACE INTO filters VALUES (?, ?)", batch.kept)

    def _append(self, hashes: bytes) -> None:
        """Add the filter hashes of the next blocks, 32 bytes each."""
        at = 0
        while at < len(hashes):
            height, last, below = self._state
            first = height + 1 - (height + 1) % PER_ROW
            stored = self._hashes(first) if height >= first else b""
            piece = hashes[at : at + _SIZE * PER_ROW - len(stored)]
            self._db.execute("INSERT OR REPLACE INTO filter_hashes VALUES (?, ?)", (first, stored + piece))
            above = below if stored else (*below, last)
            self.reset(FilterState(height + len(piece) // _SIZE, chain_filter_headers(piece, last)[-_SIZE:], above))
            at += len(piece)

"""Headers in the wallet's database, 2,000 to a row and linked by their hashes.

Rows begin at heights that are multiples of 2,000, and only the last may be shorter. Each header contains the hash of
the previous one, and the hash of the last is stored separately, which reveals any changed header.
"""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Iterator

from spvfilter.errors import FormatError, ParameterError, StoreCorruptError
from spvfilter.hashes import sha256d
from spvfilter.kernel import header_hashes, linked_headers
from spvfilter.protocol import HEADER_SIZE
from spvfilter.store.sqlite import MarkedRows, translated

PER_ROW = 2_000  # number of headers, as in a headers message; also of filter hashes
_TIP = "tip"  # key of the last header's hash in the "meta" table


class HeaderRows:
    """All headers, starting with the genesis block."""

    def __init__(self, db: sqlite3.Connection, rows: MarkedRows, path: pathlib.Path) -> None:
        self._db = db
        self._rows = rows
        self._path = path
        self.tip: int = -1  # height of the last header, or -1 if there is none

    def verify(self) -> None:
        """Read and check all headers. Raises StoreCorruptError if a header was changed or is missing."""
        previous: bytes | None = None
        height = -1
        for first, raw in self._db.execute("SELECT first, raw FROM headers ORDER BY first"):
            if (
                first != height + 1
                or first % PER_ROW
                or not isinstance(raw, bytes)
                or not 1 <= len(raw) <= PER_ROW * HEADER_SIZE
            ):
                raise StoreCorruptError(f"{self._path}: the header at height {height + 1} is missing or damaged")
            try:
                hashes = header_hashes(raw)
            except FormatError as error:
                raise StoreCorruptError(
                    f"{self._path}: the headers starting at height {first} are malformed: {error.message}"
                ) from None
            linked = linked_headers(raw, hashes) if previous in (None, raw[4:36]) else 0
            if linked * HEADER_SIZE < len(raw):
                raise StoreCorruptError(f"{self._path}: header {first + linked} does not follow the previous one")
            previous = hashes[-32:]
            height += linked
        if previous != self._rows.meta(_TIP):
            raise StoreCorruptError(f"{self._path}: the last header does not match the hash stored separately")
        self.tip = height

    def pieces(self, start: int) -> Iterator[bytes]:
        """Yield the headers starting at height `start`, 80 bytes each, up to 2,000 at a time."""
        for first in range(start - start % PER_ROW, self.tip + 1, PER_ROW):
            yield self._row(first)[HEADER_SIZE * max(0, start - first) :]

    def hashes_down(self, fork: int) -> Iterator[tuple[int, bytes]]:
        """Yield the height and block hash of each header above height `fork`, from the tip down."""
        for first in range(self.tip - self.tip % PER_ROW, fork - PER_ROW, -PER_ROW):
            hashes = header_hashes(self._row(first))
            for height in range(first + len(hashes) // 32 - 1, max(first - 1, fork), -1):
                yield height, hashes[32 * (height - first) : 32 * (height - first) + 32]

    def _row(self, first: int) -> bytes:
        with translated(self._path):
            row: tuple[bytes] | None = self._db.execute("SELECT raw FROM headers WHERE first = ?", (first,)).fetchone()
        return row[0] if row else b""

    def cut(self, height: int) -> None:
        """Delete the headers above a height, within a transaction. Call `append` next.

        Raises ParameterError if the height is below -1.
        """
        if height < -1:
            raise ParameterError(f"the height at which to cut a chain must be at least -1, not {height}")
        first = height + 1 - (height + 1) % PER_ROW
        kept = self._row(first)[: HEADER_SIZE * (height + 1 - first)]
        self._db.execute("DELETE FROM headers WHERE first >= ?", (first,))
        if kept:
            self._db.execute("INSERT INTO headers VALUES (?, ?)", (first, kept))
        self.tip = height

    def append(self, headers: bytes) -> None:
        """Add the next headers, 80 bytes each, and the hash of the last one, within a transaction.

        Raises ParameterError if the bytes are not whole headers, or if the headers do not follow the last stored one
        and one another.
        """
        if len(headers) % HEADER_SIZE:
            raise ParameterError(f"{len(headers)} bytes is not a whole number of {HEADER_SIZE}-byte headers")
        before = self._row(self.tip - self.tip % PER_ROW)[-HEADER_SIZE:] if self.tip >= 0 else b""
        if headers:
            every = before + headers
            if linked_headers(every, header_hashes(every)) * HEADER_SIZE < len(every):
                raise ParameterError(f"the headers do not follow the header at height {self.tip}, or one another")
        at = 0
        while at < len(headers):
            first = self.tip + 1 - (self.tip + 1) % PER_ROW
            below = self._row(first) if self.tip >= first else b""
            piece = headers[at : at + HEADER_SIZE * PER_ROW - len(below)]
            self._db.execute("INSERT OR REPLACE INTO headers VALUES (?, ?)", (first, below + piece))
            self.tip += len(piece) // HEADER_SIZE
            at += len(piece)
        last = headers[-HEADER_SIZE:] or self._row(self.tip - self.tip % PER_ROW)[-HEADER_SIZE:]
        self._rows.set_meta(_TIP, sha256d(last) if last else None)

"""Node addresses in the wallet's database, one row for each address in the address book."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.store.schema import is_row
from spvfilter.store.sqlite import MarkedRows, mark, translated

_MOST_SERVICES = (1 << 63) - 1  # SQLite's numbers are signed


@public
class KnownAddress(NamedTuple):
    """A node's address, and our experience with it. Times are Unix times; 0 means never."""

    address: str
    """HOST:PORT or [IPV6]:PORT."""
    services: int
    """Service bits, from its version message or claimed by other nodes. `wire.Service` names them."""
    seen: int
    """When the node was last online, according to other nodes."""
    source: str
    """Network group of the peer that first sent the address, or the DNS seed's host name."""
    tried: bool
    """True if the client has ever connected to it, so that it is in the table of tried addresses."""
    succeeded: int = 0
    """When it last completed a handshake."""
    attempted: int = 0
    """When the client last tried to connect."""
    failures: int = 0
    """Number of failed attempts since the last successful one."""
    faults: int = 0
    """Number of connections that the client closed because of the peer's behaviour, minus useful connections."""
    speed_ms: int = 0
    """Smoothed average duration of its handshakes in milliseconds, or 0 if unknown."""


class AddressRows:
    """The rows of the "addresses" table, in no particular order.

    Damaged rows are ignored, and missing ones are not detected. The client can learn addresses again, and a lost one
    must not lock a user out of the wallet.
    """

    def __init__(self, db: sqlite3.Connection, rows: MarkedRows, path: Path) -> None:
        self._db = db
        self._rows = rows
        self._path = path

    def load(self) -> list[KnownAddress]:
        """Return all rows whose checksum and values are correct. Raises StoreError."""
        query = (
            "SELECT address, services, seen, source, tried, succeeded, attempted, failures, faults, speed, mark FROM"
            " addresses"
        )
        with translated(self._path):
            rows = [
                row
                for *row, stated in self._db.execute(query)
                if stated == mark("addresses", row) and is_row("addresses", row)
            ]
        return [
            KnownAddress(address, services, seen, source, bool(tried), *rest)
            for address, services, seen, source, tried, *rest in rows
        ]

    def write(self, changes: Mapping[str, KnownAddress | None]) -> None:
        """Apply changes, keyed by address, within a transaction. None deletes a row."""
        for address, known in changes.items():
            self._rows.remove("addresses", "address = ?", (address,))
            if known is not None:
                self._rows.insert(
                    "addresses", (address, known.services & _MOST_SERVICES, *known[2:4], int(known.tried), *known[5:])
                )

"""Addresses of peers in the wallet's database: one row for each, as the address book of the light client last knew
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from spvfilter._public import deferred, public
from spvfilter.store.sqlite import MarkedRows, mark, translated

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = deferred("sqlite3")

_MOST_SERVICES = (1 << 63) - 1  # SQLite's numbers are signed


@public
class KnownAddress(NamedTuple):
    """What is known of an address of the network. Times are in seconds since 1970, 0 for never."""

    address: str
    """HOST:PORT or [IPV6]:PORT."""
    services: int
    """Bits of wire.Service: of its version message once it was connected, else as others state them."""
    seen: int
    """When it was last there, as others state it."""
    source: str
    """Network group of the peer that told of it first, or the DNS seed's name."""
    tried: bool
    """Whether it is in the table of addresses that were connected."""
    succeeded: int = 0
    """When it last completed the handshake."""
    attempted: int = 0
    """When it was last tried."""
    failures: int = 0
    """Attempts since it was last connected."""
    faults: int = 0
    """Times that a connection was ended for what the peer did, less those that it was of use."""
    speed_ms: int = 0
    """That its handshakes take, smoothed; 0 if unknown."""


class AddressRows:
    """The rows of the table "addresses"; their order means nothing.

    A damaged row is left out, and no sum shows a missing one: addresses can be had anew, and must keep nobody from his
    wallet.
    """

    def __init__(self, db: sqlite3.Connection, rows: MarkedRows, path: Path) -> None:
        self._db = db
        self._rows = rows
        self._path = path

    def load(self) -> list[KnownAddress]:
        """All rows that are as they were written. Raises StoreError."""
        query = (
            "SELECT address, services, seen, source, tried, succeeded, attempted, failures, faults, speed, mark FROM"
            " addresses"
        )
        with translated(self._path):
            rows = [row for *row, stated in self._db.execute(query) if stated == mark("addresses", row)]
        return [
            KnownAddress(address, services, seen, source, bool(tried), *rest)
            for address, services, seen, source, tried, *rest in rows
        ]

    def write(self, changes: Mapping[str, KnownAddress | None]) -> None:
        """Apply changes by address, within a transaction; None deletes."""
        for address, known in changes.items():
            self._rows.remove("addresses", "address = ?", (address,))
            if known is not None:
                self._rows.insert(
                    "addresses", (address, known.services & _MOST_SERVICES, *known[2:4], int(known.tried), *known[5:])
                )

"""The SQLite connection of an open store, for tests that read its tables, fill its disk or count its changes."""

from __future__ import annotations

from sqlite3 import Connection

from spvfilter.store.store import Store


def sqlite_of(store: Store) -> Connection:
    return store._db

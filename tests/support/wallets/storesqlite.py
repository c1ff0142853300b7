"""Inner parts of an open store: its SQLite connection, its rows with their checksums, and its checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from sqlite3 import Connection
from typing import Any

from spvfilter.store.sqlite import MarkedRows
from spvfilter.store.store import Store
from spvfilter.store.windowviews import Checked


def sqlite_of(store: Store) -> Connection:
    """The connection, for tests that read the tables, fill the disk or count changes."""
    return store._db


@contextmanager
def writing(store: Store) -> Iterator[MarkedRows]:
    """Write rows of any content in one transaction. Their checksums are right."""
    with store._rows.transaction():
        yield store._rows


@contextmanager
def connected_by(store: Store, connection: Any) -> Iterator[None]:
    """Let another connection, which may fail, execute the statements of commits."""
    true, store._rows._db = store._rows._db, connection
    try:
        yield
    finally:
        store._rows._db = true


def checked_rows(store: Store) -> Checked:
    """The function by which views read rows and check them."""
    return store.views._checked


def verify(store: Store) -> None:
    """Check all rows as `Store.open` does."""
    store._verify()


def share_entry_rows(store: Store, copy: Store) -> None:
    """Tell a copy of a database the rows of the watch list that the store has attached."""
    copy._ids = store.ids

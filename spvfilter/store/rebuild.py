"""What is kept of a damaged wallet database, and where it goes. Only one of ours: a database of another program is never touched.

What the new database is filled with is store.py's.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple  # rows are as SQLite gives them

from spvfilter.errors import StoreError, StoreForeignError, StoreLockedError, StoreReadOnlyError
from spvfilter.kernel import EntryKind
from spvfilter.network import Network
from spvfilter.store.schema import APPLICATION_ID, MARKED
from spvfilter.store.sqlite import COMPANIONS, mark, translated
from spvfilter.watch.watchlist import WatchList


class Salvage(NamedTuple):
    """What could be read of a damaged database."""

    meta: dict[str, bytes]
    watch: WatchList


def salvage(file: Path, network: Network) -> Salvage:
    """All that is whole of the watch list and of what the wallet is called by; nothing of a file that is no database.

    Raises StoreForeignError for a database of another program or network, StoreLockedError, StoreReadOnlyError.
    """
    if _is_of_another(file):
        raise StoreForeignError(f"{file}: an SQLite database of another program")
    meta: dict[str, bytes] = dict(_rows(file, "meta"))
    if meta.get("network", network.genesis_hash) != network.genesis_hash:
        raise StoreForeignError(f"{file}: a wallet of another network than {network}")
    watch = WatchList(network)
    for _, kind, value, label in sorted(_rows(file, "watch")):
        watch.add_entry(EntryKind(kind), value, label)
    return Salvage(meta, watch)


def _is_of_another(file: Path) -> bool:
    """Whether this can be read as SQLite's, and neither its application id nor its tables are ours; an empty one is nobody's."""
    try:
        with translated(file), closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as db:
            (application,) = db.execute("PRAGMA application_id").fetchone()
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except (StoreLockedError, StoreReadOnlyError):
        raise
    except StoreError:  # damaged, or no database
        return False
    return application != APPLICATION_ID and bool(tables or application) and not tables >= MARKED.keys()


def _rows(file: Path, table: str) -> list[tuple[Any, ...]]:
    """The rows of a table whose marks are right."""
    rows: list[tuple[Any, ...]] = []
    try:
        with closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as db:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.execute("PRAGMA writable_schema = ON")  # reads on where the schema's own check fails
            for *row, stated in db.execute(f"SELECT {MARKED[table]}, mark FROM {table}"):  # noqa: S608  # names of our own
                if stated == mark(table, row):
                    rows.append(tuple(row))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreLockedError(f"{file}: in use by another process") from error
    return rows


def beside(file: Path) -> Path:
    """Where the new database is made, with what a rebuild that was broken off left there removed. Raises StoreError."""
    made = file.with_name(f"{file.name}.rebuilt")
    with translated(made):
        for suffix in COMPANIONS:
            made.with_name(made.name + suffix).unlink(missing_ok=True)
    return made


def damaged(file: Path) -> Path:
    """Where a database goes in whose place a new one is made."""
    return file.with_name(f"{file.name}.damaged")


def replace(file: Path, made: Path) -> None:
    """Set the damaged database and its companions aside and put the new one in its place. Raises StoreError."""
    with translated(file):
        aside = damaged(file)
        for suffix in reversed(COMPANIONS):
            old = file.with_name(file.name + suffix)
            if old.exists():
                old.replace(aside.with_name(aside.name + suffix))
        made.replace(file)

"""Migrations: brings a wallet's database to the current schema version, one tested step for each `user_version`.

Each step is one SQLite transaction. A step that fails, or whose process is killed, leaves the database as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any  # rows are as SQLite gives them

from spvfilter._public import deferred
from spvfilter.errors import StoreCorruptError
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.schema import MARKED, SCHEMA_VERSION, STRICT_STATEMENTS, TABLES, check_row, row_name
from spvfilter.store.sqlite import MarkedRows

if TYPE_CHECKING:
    import pathlib
    import sqlite3
else:
    pathlib = deferred("pathlib")
    sqlite3 = deferred("sqlite3")

Row = dict[str, Any]  # values by column

TRANSACTION_6 = (
    *("txid", "raw", "status", "own", "seen", "since", "block", "height", "position", "rival", "place", "net", "fee"),
)
COLUMNS_6: Mapping[str, str] = {  # columns of version 6 that the marks of a table cover
    "meta": "key, value",
    "watch": "id, kind, value, label",
    "keychains": "id, name, label, descriptor, lookahead, size, window",
    "runs": "keychain, first, entry, indexes, scripts",
    "used": "keychain, place",
    "coins": "outpoint, entry, value, script",
    "matches": "spend, txid, n, position, outpoint, value, script, entry, block, height, completeness",
    "transactions": ", ".join(TRANSACTION_6),
    "tx_labels": "txid, label, place",
    "events": "sequence, time, kind, data",
    "unspent": "outpoint, entry, value, script, height, coinbase, spender, place",
}
_UNMARKED_6 = {"headers": "first, raw", "filter_hashes": "first, hashes"}


def migrate(db: sqlite3.Connection, path: pathlib.Path, version: int) -> None:
    """Bring a database from a schema version to the current one. The caller holds the writer's lock.

    Raises:
        StoreCorruptError: A row is damaged, or has a value that the new schema does not allow. The file is unchanged.
        sqlite3.Error: SQLite cannot write the file. The step that failed has changed nothing.
    """
    while version < SCHEMA_VERSION:
        step, version = STEPS[version]
        db.execute("BEGIN IMMEDIATE")
        try:
            step(db, path)
            db.execute(f"PRAGMA user_version = {version}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


# Version 6 to the current one: STRICT tables with CHECK constraints


def _from_6(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Copy every table of version 6 into a STRICT one of the current schema, apart from addresses and filters."""
    copied = {**COLUMNS_6, **_UNMARKED_6}
    MarkedRows(db, path, COLUMNS_6).verify()
    for (index,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchall():
        db.execute(f"DROP INDEX {index}")
    for table in copied:
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for statement in STRICT_STATEMENTS:
        db.execute(statement)
    rows = MarkedRows(db, path, MARKED)
    for table, columns in COLUMNS_6.items():
        old = (
            dict(zip(columns.split(", "), row, strict=True)) for row in db.execute(f"SELECT {columns} FROM old_{table}")
        )
        for row in CONVERSIONS.get(table, _unchanged)(old):
            values = tuple(row[column] for column in TABLES[table].columns)
            check_row(path, table, values)
            try:
                rows.insert(table, values)
            except sqlite3.IntegrityError as error:
                raise StoreCorruptError(f"{path}: {row_name(table, values)}: {error}") from error
    for table, columns in _UNMARKED_6.items():
        for values in db.execute(f"SELECT {columns} FROM old_{table}"):
            check_row(path, table, values)
            db.execute(f"INSERT INTO {table} VALUES (?, ?)", values)
    for table in copied:
        db.execute(f"DROP TABLE old_{table}")
    rows.write_sums()


def _unchanged(rows: Iterable[Row]) -> Iterator[Row]:
    yield from rows


def _facts_of(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the facts of transactions, whose status version 6 stored.

    Their order gives the numbers of observations and broadcasts. A conflict with a transaction that version 6 did not
    store becomes a drop: the books cannot compute it any more.
    """
    order = {"replaced": 1, "pending": 2, "confirmed": 3}
    known = {row["txid"]: row for row in rows}
    own = {txid for txid, row in known.items() if row["own"]}

    def by_broadcast(row: Row) -> tuple[object, ...]:
        """Version 6 once gave equal numbers. A transaction that a foreign one replaced then comes last."""
        return row["own"], row["status"] == "pending", row["rival"] not in own, row["seen"] or 0, row["txid"]

    def by_observation(row: Row) -> tuple[object, ...]:
        return (
            order.get(row["status"], 0),
            row["place"] if row["status"] == "confirmed" else row["seen"] or 0,
            row["txid"],
        )

    seen = {row["txid"]: number for number, row in enumerate(sorted(known.values(), key=by_observation), 1)}
    last, broadcasts = 0, dict[bytes, int]()
    for row in sorted((known[txid] for txid in own), key=by_broadcast):
        last = broadcasts[row["txid"]] = max(last + 1, row["own"])
    number = max(len(known), last) + 1
    for txid, row in known.items():
        is_confirmed, status = row["status"] == "confirmed", row["status"]
        dropped = {"abandoned": "abandoned", "expired": "expired", "refused": "rejected"}.get(status)
        if status == "conflicted" and row["rival"] not in known:
            dropped = "rejected" if row["own"] else "expired"
        place = {} if is_confirmed else {"block": None, "height": None, "position": None}
        yield {
            **row,
            "broadcast_seq": broadcasts.get(txid) if row["own"] >= 0 else row["own"],
            "first_seen": row["seen"],
            "first_height": max(0, row["height"] or 0),
            "expires_at": (row["since"] or row["seen"] or 0) + MEMPOOL_EXPIRY_S,
            "last_seen": seen[txid],
            "dropped": dropped,
            "dropped_seq": number if dropped else 0,
            "conflicts_with": row["rival"],
            **place,
        }


# Tables whose columns differ: each function gets all rows of version 6 and yields the rows of the current version. To
# rename a column, change `TABLES` in schema.py and yield `{**row, "new": row["old"]}` here; further keys are ignored.
CONVERSIONS: Mapping[str, Callable[[Iterable[Row]], Iterable[Row]]] = {"transactions": _facts_of}


# Version 7 to 8: new tables


NEW_IN_8 = ("labels", "frozen", "revealed")
"""Tables that version 7 lacks."""


def _from_7(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Create the empty tables of labels, frozen outputs and revealed indexes."""
    MarkedRows(db, path, {name: columns for name, columns in MARKED.items() if name not in NEW_IN_8}).verify()
    for table in NEW_IN_8:
        db.execute(TABLES[table].sql(table))
    rows = MarkedRows(db, path, MARKED)
    rows.count()
    rows.write_sums()


STEPS: Mapping[int, tuple[Callable[[sqlite3.Connection, pathlib.Path], None], int]] = {6: (_from_6, 8), 7: (_from_7, 8)}
"""The step that starts from each version, and the version that it ends with."""

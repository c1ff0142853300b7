"""Migrations: brings a wallet's database to the current schema version, one tested step for each `user_version`.

Each step is one SQLite transaction. A step that fails, or whose process is killed, leaves the database as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any  # rows are as SQLite gives them

from spvfilter._public import deferred
from spvfilter.errors import StoreCorruptError
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.schema import INDEXES, MARKED, SCHEMA_VERSION, TABLES, Table, check_row, row_name
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
NEW_IN_8: Mapping[str, tuple[str, ...]] = {  # columns of version 8 that version 7 lacks; new tables are in ADDED_IN_8
    "watch": ("account",),
    "keychains": ("account",),
    "unspent": ("trusted", "account"),
    "events": ("account",),
}
ADDED_IN_8 = ("accounts", "account_txs", "labels", "revealed", "frozen")
ADDED_IN_9 = ("branches", "revealed_scripts")
NEW_IN_10: Mapping[str, tuple[str, ...]] = {
    "transactions": ("signatures", "counts_since", "announced_by", "was_requested"),
}
ADDED_IN_10 = ("held",)
_REMADE_IN_10 = ("transactions", "tx_labels", "account_txs")  # their columns may have further values
_INDEXES_7 = tuple(each for each in INDEXES if "account" not in each and " ON held " not in each)


def _without(table: Table, names: tuple[str, ...]) -> Table:
    return table._replace(columns={each: column for each, column in table.columns.items() if each not in names})


TABLES_9: Mapping[str, Table] = {
    name: _without(table, NEW_IN_10.get(name, ())) for name, table in TABLES.items() if name not in ADDED_IN_10
}
TABLES_7: Mapping[str, Table] = {
    name: _without(table, NEW_IN_8.get(name, ()))
    for name, table in TABLES_9.items()
    if name not in (*ADDED_IN_8, *ADDED_IN_9)
}
_MARKED_7 = {name: ", ".join(table.columns) for name, table in TABLES_7.items() if table.is_marked}
_MARKED_9 = {name: ", ".join(table.columns) for name, table in TABLES_9.items() if table.is_marked}
_MARKED_8 = {name: columns for name, columns in _MARKED_9.items() if name not in ADDED_IN_9}


def migrate(db: sqlite3.Connection, path: pathlib.Path, version: int) -> None:
    """Bring a database from a schema version to the current one. The caller holds the writer's lock.

    Raises:
        StoreCorruptError: A row is damaged, or has a value that the new schema does not allow. The file is unchanged.
        sqlite3.Error: SQLite cannot write the file. The step that failed has changed nothing.
    """
    for step in range(version, SCHEMA_VERSION):
        db.execute("BEGIN IMMEDIATE")
        try:
            STEPS[step](db, path)
            db.execute(f"PRAGMA user_version = {step + 1}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


# Version 6 to 7: STRICT tables with CHECK constraints


def _to_7(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Copy every table of version 6 into a STRICT one, apart from addresses and compact filters."""
    MarkedRows(db, path, COLUMNS_6).verify()
    for (index,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchall():
        db.execute(f"DROP INDEX {index}")
    for table in TABLES_7:
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for name, made in TABLES_7.items():
        db.execute(made.sql(name))
    for statement in _INDEXES_7:
        db.execute(statement)
    rows = MarkedRows(db, path, _MARKED_7)
    for table, columns in COLUMNS_6.items():
        old = (
            dict(zip(columns.split(", "), row, strict=True)) for row in db.execute(f"SELECT {columns} FROM old_{table}")
        )
        for row in CONVERSIONS_7.get(table, _unchanged)(old):
            values = tuple(row[column] for column in TABLES_7[table].columns)
            added = _DEFAULTS_10 if table in NEW_IN_10 else _DEFAULTS_8.get(table, ())
            check_row(path, table, (*values, *added))
            try:
                rows.insert(table, values)
            except sqlite3.IntegrityError as error:
                raise StoreCorruptError(f"{path}: {row_name(table, values)}: {error}") from error
    for table, columns in _UNMARKED_6.items():
        for values in db.execute(f"SELECT {columns} FROM old_{table}"):
            check_row(path, table, values)
            db.execute(f"INSERT INTO {table} VALUES (?, ?)", values)
    for table in TABLES_7:
        db.execute(f"DROP TABLE old_{table}")
    rows.write_sums()


# Version 7 to 8: accounts


_DEFAULTS_8: Mapping[str, tuple[object, ...]] = {
    "watch": (None,),
    "keychains": (None,),
    "unspent": (0, None),
    "events": (None,),
}
_DEFAULTS_10 = ("unknown", None, "", 0)


def _to_8(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Add the tables and columns of accounts. No entry belongs to an account yet: `add_account` adopts keychains.

    Coins of own transactions whose fee is known become trusted, and the totals get their sum.
    """
    MarkedRows(db, path, _MARKED_7).verify()
    for table in NEW_IN_8:
        for (index,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = ?", (table,)
        ).fetchall():
            db.execute(f"DROP INDEX {index}")
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for table in (*NEW_IN_8, *ADDED_IN_8):
        db.execute(TABLES_9[table].sql(table))
    rows = MarkedRows(db, path, _MARKED_8)
    own = {
        txid
        for (txid,) in db.execute(
            "SELECT txid FROM transactions WHERE broadcast_seq IS NOT NULL AND fee IS NOT NULL AND status = 'pending'"
        )
    }
    trusted = 0
    for table in NEW_IN_8:
        for values in db.execute(f"SELECT {_MARKED_7[table]} FROM old_{table}").fetchall():
            added = _DEFAULTS_8[table]
            if table == "unspent":
                outpoint, _, value, _, height, _, spender, _ = values
                is_trusted = height is None and outpoint[:32] in own
                added = int(is_trusted), None
                trusted += value if is_trusted and spender is None else 0
            rows.insert(table, (*values, *added))
        db.execute(f"DROP TABLE old_{table}")
    _add_indexes(db)
    if (totals := rows.meta("totals")) is not None:
        rows.set_meta("totals", totals + b" %d" % trusted)
    for table in _MARKED_7.keys() - NEW_IN_8.keys() - {"meta"}:
        rows.take_sum(table)
    rows.write_sums()


# Version 8 to 9: merkle branches, and scripts that removed keychains have revealed


def _to_9(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Add the new tables. They are empty: the branch of an older transaction is fetched on demand."""
    MarkedRows(db, path, _MARKED_8).verify()
    for table in ADDED_IN_9:
        db.execute(TABLES_9[table].sql(table))
    rows = MarkedRows(db, path, _MARKED_9)
    for table in _MARKED_8.keys() - {"meta"}:
        rows.take_sum(table)
    rows.write_sums()


# Version 9 to 10: evidence for transactions; indexes, so that questions about one account read only its rows


def _to_10(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Add the evidence for transactions, and the new indexes. Transactions that were recorded before keep counting."""
    MarkedRows(db, path, _MARKED_9).verify()
    for table in _REMADE_IN_10:
        for (index,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = ?", (table,)
        ).fetchall():
            db.execute(f"DROP INDEX {index}")
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for table in (*_REMADE_IN_10, *ADDED_IN_10):
        db.execute(TABLES[table].sql(table))
    rows = MarkedRows(db, path, MARKED)
    for table in _REMADE_IN_10:
        for values in db.execute(f"SELECT {_MARKED_9[table]} FROM old_{table}").fetchall():
            added: tuple[object, ...] = ()
            if table == "transactions":
                row = dict(zip(TABLES_9[table].columns, values, strict=True))
                is_own = row["broadcast_seq"] is not None
                added = ("unknown", None if is_own else max(row["last_seen"], 1), "", 0)
            rows.insert(table, (*values, *added))
        db.execute(f"DROP TABLE old_{table}")
    _add_indexes(db)
    for table in _MARKED_9.keys() - {*_REMADE_IN_10, "meta"}:
        rows.take_sum(table)
    rows.write_sums()


def _add_indexes(db: sqlite3.Connection) -> None:
    """Create the indexes that are missing. An earlier step may have created some indexes of a later version."""
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    for statement in INDEXES:
        _, _, name, _, table, *_ = statement.split()
        if name not in there and table in there:
            db.execute(statement)


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


# Tables whose columns differ: each function gets all rows of version 6 and yields the rows of version 7. To rename a
# column, change `TABLES` in schema.py and yield `{**row, "new": row["old"]}` here; further keys are ignored.
CONVERSIONS_7: Mapping[str, Callable[[Iterable[Row]], Iterable[Row]]] = {"transactions": _facts_of}

STEPS: Mapping[int, Callable[[sqlite3.Connection, pathlib.Path], None]] = {6: _to_7, 7: _to_8, 8: _to_9, 9: _to_10}
"""The step that starts from each version. Before version 11 changes schema.py, copy the parts that the steps use."""

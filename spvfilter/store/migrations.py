"""Migrations: bring a wallet's database to the current schema version, with one tested step for each release.

Each step is one SQLite transaction. A step that fails, or whose process is killed, leaves the database as it was.
"""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any  # rows are as SQLite gives them

from spvfilter.errors import StoreCorruptError
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.schema import MARKED, SCHEMA_VERSION, STRICT_STATEMENTS, TABLES, check_row, row_name
from spvfilter.store.sqlite import MarkedRows

Row = dict[str, Any]  # values, keyed by column

TRANSACTION_6 = (
    *("txid", "raw", "status", "own", "seen", "since", "block", "height", "position", "rival", "place", "net", "fee"),
)
COLUMNS_6: Mapping[str, str] = {  # the columns of version 6 that a table's marks cover
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
FIRST_VALUES: Mapping[str, Row] = {
    "watch": {"account": None},
    "keychains": {"account": None},
    "unspent": {"trusted": 0, "account": None},
    "events": {"account": None},
    "transactions": {"signatures": "unknown", "counts_since": None, "announced_by": "", "was_requested": 0},
}
"""The values that older rows get in columns added after 0.2.0. `rebuild` also uses these."""


def migrate(db: sqlite3.Connection, path: pathlib.Path, version: int) -> None:
    """Migrate a database from this schema version to the current one. The caller must hold the writer's lock.

    Raises:
        StoreCorruptError: A row is damaged or contains a value that the new schema does not allow. The file is
            unchanged.
        sqlite3.Error: SQLite cannot write the file. The step that failed has changed nothing.
    """
    while version != SCHEMA_VERSION:
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


# From version 6 (0.2.0) to the current one: STRICT tables, accounts, labels, merkle branches, evidence for transactions


def _from_6(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Copy every table of version 6 into a STRICT one, except addresses and compact filters.

    Tables that version 6 lacks stay empty. No entry belongs to an account: `add_account` adopts keychains.
    """
    MarkedRows(db, path, COLUMNS_6).verify()
    for (index,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchall():
        db.execute(f"DROP INDEX {index}")
    old = (*COLUMNS_6, *_UNMARKED_6)
    for table in old:
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for statement in STRICT_STATEMENTS:
        db.execute(statement)
    rows, trusted = MarkedRows(db, path, MARKED), 0
    for table in _ORDER_6:
        coins = trusted_coins(db) if table == "unspent" else set[bytes]()
        found = db.execute(f"SELECT {COLUMNS_6[table]} FROM old_{table}")
        read = (dict(zip(COLUMNS_6[table].split(", "), row, strict=True)) for row in found)
        for row in _facts_of(read) if table == "transactions" else read:
            complete = FIRST_VALUES.get(table, {}) | row
            if table == "unspent" and row["outpoint"] in coins:
                complete["trusted"] = 1
                trusted += row["value"] if row["spender"] is None else 0
            values = tuple(complete[column] for column in TABLES[table].columns)
            check_row(path, table, values)
            try:
                rows.insert(table, values)
            except sqlite3.IntegrityError as error:
                raise StoreCorruptError(f"{path}: {row_name(table, values)}: {error}") from error
    for table, names in _UNMARKED_6.items():
        for values in db.execute(f"SELECT {names} FROM old_{table}"):
            check_row(path, table, values)
            db.execute(f"INSERT INTO {table} VALUES (?, ?)", values)
    for table in old:
        db.execute(f"DROP TABLE old_{table}")
    if (totals := rows.meta("totals")) is not None:
        rows.set_meta("totals", totals + b" %d" % trusted)
    rows.write_sums()


_ORDER_6 = sorted(COLUMNS_6, key="unspent".__eq__)
"""The tables of version 6. Coins come last, because the new rows of transactions say which coins are trusted."""


def trusted_coins(db: sqlite3.Connection) -> set[bytes]:
    """Return the pending outputs of the wallet's own transactions that spend only its coins, trusted or in blocks."""
    spenders: dict[bytes, bytes | None] = dict(
        db.execute("SELECT outpoint, spender FROM old_unspent WHERE height IS NULL")
    )
    where = "broadcast_seq IS NOT NULL AND fee IS NOT NULL AND status = 'pending'"
    own = {txid for (txid,) in db.execute(f"SELECT txid FROM transactions WHERE {where}")}
    made = dict[bytes | None, list[bytes]]()
    for outpoint in spenders:
        made.setdefault(outpoint[:32], []).append(outpoint)
    untrusted = dict.fromkeys(outpoint for outpoint in spenders if outpoint[:32] not in own)
    waiting = [*untrusted]
    for outpoint in waiting:  # the list grows during the loop
        fresh = [each for each in made.get(spenders[outpoint], ()) if each not in untrusted]
        untrusted |= dict.fromkeys(fresh)
        waiting += fresh
    return spenders.keys() - untrusted.keys()


def _facts_of(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the facts about transactions. Version 6 stored their status instead.

    Their order gives the numbers of observations and broadcasts. A conflict with a transaction that version 6 did not
    store becomes a drop, because the books can no longer compute it.
    """
    order = {"replaced": 1, "pending": 2, "confirmed": 3}
    known = {row["txid"]: row for row in rows}
    own = {txid for txid, row in known.items() if row["own"]}

    def by_broadcast(row: Row) -> tuple[object, ...]:
        """Return the sort key of a broadcast.

        Version 6 sometimes gave equal numbers; then a transaction that a foreign one replaced comes last.
        """
        return row["own"], row["status"] == "pending", row["rival"] not in own, row["seen"] or 0, row["txid"]

    def by_observation(row: Row) -> tuple[object, ...]:
        return order.get(row["status"], 0), row["seen"] or 0, row["txid"]

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
            "counts_since": None if row["own"] else seen[txid],
        }


STEPS: Mapping[int, tuple[Callable[[sqlite3.Connection, pathlib.Path], None], int]] = {6: (_from_6, SCHEMA_VERSION)}
"""Version of each release → its step, and the version that the step leads to. Versions between releases have no step.
Until the version that a step leads to is released, the step uses the tables of schema.py. The first change after that
release copies here what the step uses, gives the step this number, and adds the next step.
"""

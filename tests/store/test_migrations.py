"""Migrations of wallet databases that older versions wrote: contents, failures, and values that are not allowed."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import StoreCorruptError, StoreForeignError, StoreLockedError
from spvfilter.light.engine.options import Options
from spvfilter.light.running import opened
from spvfilter.network import MAINNET, REGTEST
from spvfilter.store import migrations
from spvfilter.store.ledger import TxStatus
from spvfilter.store.lock import WriterLock
from spvfilter.store.schema import RELEASED, SCHEMA_VERSION, TABLES
from spvfilter.store.sqlite import mark
from spvfilter.store.store import Store
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.watchlist import WatchList
from support.oracles.ledger import check_ledger
from support.vectors import effort
from support.wallets.forgery import remark

FIXTURES = Path(__file__).parent / "fixtures"
SCHEMAS = {"0.2.0": 6}
"""Schema version that each released version of the package wrote."""
VERSIONS = tuple(SCHEMAS)
READ = {**SCHEMAS, "0.3.0": SCHEMA_VERSION}
"""The same, with the latest release, whose schema is still the current one."""
UNRELEASED = [number for number in range(RELEASED[0], SCHEMA_VERSION) if number not in RELEASED]
"""Schema versions that only development versions wrote."""


def unpacked(version: str, folder: Path) -> Path:
    path = folder / "w.db"
    path.write_bytes(lzma.decompress((FIXTURES / f"{version}.db.xz").read_bytes()))
    return path


def facts(version: str) -> dict[str, Any]:
    """The contents of a fixture as the version that wrote it read them."""
    found: dict[str, Any] = json.loads((FIXTURES / f"{version}.json").read_text(encoding="utf-8"))
    return found


def dump(db: sqlite3.Connection) -> str:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return hashlib.sha256(f"{version}{list(db.iterdump())}".encode()).hexdigest()


def dump_of(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db:
        return dump(db)


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


@pytest.mark.parametrize("version", READ)
def test_stored_database_has_the_contents_that_were_written(version: str, tmp_path: Path) -> None:
    path, expected = unpacked(version, tmp_path), facts(version)
    assert version_of(path) == READ[version]
    Store.open(path, REGTEST).close()
    assert version_of(path) == SCHEMA_VERSION
    Store.open(path, REGTEST).close()  # with nothing left to migrate
    with WalletStore.open(path) as wallet:
        balance = wallet.balance()
        assert [balance.confirmed, balance.pending_in, balance.pending_out, balance.total] == expected["balance"]
        assert balance.sequence == expected["sequence"]
        assert [
            [str(each.outpoint), each.value, each.height, each.label, each.spent_by and each.spent_by.hex()]
            for each in wallet.coins()
        ] == expected["coins"]
        assert [
            [each.txid.hex(), str(each.status), each.height, each.net, each.fee, each.is_own, list(each.labels)]
            for each in wallet.history(limit=None)
        ] == expected["history"]
        assert [
            [each.name, each.label, each.lookahead, each.window, list(each.used), each.next_address]
            for each in wallet.keychains()
        ] == expected["keychains"]
        assert [[each.sequence, type(each).__name__] for each in wallet.events(since=0)] == expected["events"]


@pytest.mark.parametrize("version", READ)
def test_stored_database_keeps_bookmarks_and_matches(version: str, tmp_path: Path) -> None:
    path, expected = unpacked(version, tmp_path), facts(version)
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT spend, txid, n, value, height, completeness FROM matches ORDER BY txid, spend, n"
        before = db.execute(query).fetchall()
    with Store.open(path, REGTEST) as store:
        names = [key.removeprefix("note: ") for key in expected["bookmarks"]]
        assert sorted(names) == ["told: audit", "told: shop"]
        for name in names:
            assert store.note(name) == bytes.fromhex(expected["bookmarks"][f"note: {name}"])
        store.attach(WatchList(REGTEST))
        check_ledger(store)
        assert store.views.accounts() == ()
        assert sorted(
            (int(each.hit.spend), each.hit.txid, each.hit.n, each.hit.value, each.height, str(each.completeness))
            for each in store.matches()
        ) == sorted(before)


@pytest.mark.parametrize("version", READ)
def test_client_starts_with_a_stored_database(version: str, tmp_path: Path) -> None:
    path = unpacked(version, tmp_path)
    opened(path, WatchList(REGTEST), Options(), rebuild=False)[0].close()
    assert version_of(path) == SCHEMA_VERSION


# A failure leaves the database as it was


class Failing:
    """A connection that fails before one of its statements."""

    def __init__(self, db: sqlite3.Connection, left: int, failure: type[BaseException]) -> None:
        self._db = db
        self.left = left
        self._failure = failure

    def execute(self, statement: str, values: Iterable[object] = ()) -> sqlite3.Cursor:
        self.left -= 1
        if self.left < 0 and statement != "ROLLBACK":
            raise self._failure
        return self._db.execute(statement, tuple(values))

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction


@pytest.mark.few(1)
@pytest.mark.parametrize("failure", [sqlite3.OperationalError, KeyboardInterrupt])
@pytest.mark.parametrize("version", VERSIONS)
def test_failure_at_any_statement_changes_nothing(
    version: str, failure: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, schema = unpacked(version, tmp_path).read_bytes(), SCHEMAS[version]
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", migrations.STEPS[schema][1])  # one step
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.deserialize(data)
        counted = Failing(db, 1 << 30, failure)
        migrations.migrate(counted, tmp_path, schema)  # type: ignore[arg-type]  # as much of a connection as it uses
        statements, after = (1 << 30) - counted.left, dump(db)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.deserialize(data)
        before = dump(db)
        for number in range(0, statements, effort(13, 5, 1)):
            with pytest.raises(failure):
                migrations.migrate(Failing(db, number, failure), tmp_path, schema)  # type: ignore[arg-type]
            assert not db.in_transaction
            assert dump(db) == before
        migrations.migrate(db, tmp_path, schema)
        assert dump(db) == after


KILLED = """
import os, sqlite3, sys
from pathlib import Path
from spvfilter.network import REGTEST
from spvfilter.store import migrations
from spvfilter.store.store import Store
left = int(sys.argv[2])
class Killed:
    def __init__(self, db):
        self.db = db
    def execute(self, *statement):
        global left
        left -= 1
        if left < 0 or statement[0] == "COMMIT":
            os._exit(9)
        return self.db.execute(*statement)
    @property
    def in_transaction(self):
        return self.db.in_transaction
migrate = migrations.migrate
import spvfilter.store.store
spvfilter.store.store.migrate = lambda db, path, version: migrate(Killed(db), path, version)
Store.open(sys.argv[1], REGTEST)
"""


@pytest.mark.parametrize("statements", [0, 100, 300, 1 << 30])
def test_killed_migration_leaves_the_old_database(statements: int, tmp_path: Path) -> None:
    path = unpacked(VERSIONS[0], tmp_path)
    before = dump_of(path)
    code = [sys.executable, "-c", KILLED, str(path), str(statements)]
    assert subprocess.run(code, env=os.environ, check=False).returncode == 9
    assert dump_of(path) == before
    Store.open(path, REGTEST).close()
    assert version_of(path) == SCHEMA_VERSION


# Databases that are not migrated


def test_every_released_schema_has_a_step_and_a_fixture() -> None:
    assert set(migrations.STEPS) == set(RELEASED) == set(SCHEMAS.values())
    assert RELEASED[0] == 6
    assert max(RELEASED) < SCHEMA_VERSION


@pytest.mark.parametrize("version", VERSIONS)
def test_missing_row_is_noticed_and_nothing_changes(version: str, tmp_path: Path) -> None:
    path = unpacked(version, tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DELETE FROM used WHERE place = (SELECT max(place) FROM used)")
    before = dump_of(path)
    with pytest.raises(StoreCorruptError, match="rows are missing"):
        Store.open(path, REGTEST)
    assert dump_of(path) == before


def test_migrated_database_has_no_revealed_index_and_no_frozen_coin(tmp_path: Path) -> None:
    path = unpacked("0.2.0", tmp_path)
    Store.open(path, REGTEST).close()
    with WalletStore.open(path) as wallet:
        assert [each.revealed for each in wallet.keychains()] == [0, 0]
        assert wallet.frozen() == ()


def test_reader_of_an_unmigrated_database_says_what_to_do(tmp_path: Path) -> None:
    path = unpacked(VERSIONS[0], tmp_path)
    with pytest.raises(StoreForeignError, match=r"schema version 6 .*: start the client .* once to migrate"):
        WalletStore.open(path)
    assert version_of(path) == 6


def test_locked_database_is_not_migrated(tmp_path: Path) -> None:
    path = unpacked(VERSIONS[0], tmp_path)
    lock = WriterLock.take(path)
    try:
        with pytest.raises(StoreLockedError):
            Store.open(path, REGTEST)
    finally:
        lock.release()
    assert version_of(path) == 6


def test_database_of_another_network_is_not_migrated(tmp_path: Path) -> None:
    path = unpacked(VERSIONS[0], tmp_path)
    with pytest.raises(StoreForeignError, match="belongs to regtest"):
        Store.open(path, MAINNET)
    assert version_of(path) == 6


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (SCHEMA_VERSION + 1, "a newer version of spvfilter; update this program"),
        *((number, "a development version; copy the file, then run `spvfilter watch --reb") for number in UNRELEASED),
        (5, "a version before 0.2.0; copy the file, then run `spvfilter watch --rebuild`"),
        (-1, "a version before 0.2.0; copy"),
    ],
)
def test_unknown_schema_version_is_refused(number: int, advice: str, tmp_path: Path) -> None:
    path = unpacked(VERSIONS[0], tmp_path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {number}")
    for open_it in (lambda: Store.open(path, REGTEST), lambda: WalletStore.open(path)):
        with pytest.raises(StoreForeignError, match=f"schema version {number} .*: written by {advice}"):
            open_it()


def undo_changes(path: Path, added: dict[str, tuple[str, ...]], dropped: tuple[str, ...], number: int) -> None:
    """Remove the columns and tables of the current schema that a development version did not have."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for table in (*added, *dropped):
            for (index,) in db.execute(
                "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = ?", (table,)
            ).fetchall():
                db.execute(f"DROP INDEX {index}")
        for table in dropped:
            db.execute(f"DROP TABLE {table}")
        for table, columns in added.items():
            for column in columns:
                db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
            left = ", ".join(each for each in TABLES[table].columns if each not in columns)
            for rowid, *values in db.execute(f"SELECT rowid, {left} FROM {table}").fetchall():
                db.execute(f"UPDATE {table} SET mark = ? WHERE rowid = ?", (mark(table, values), rowid))
        db.execute(f"PRAGMA user_version = {number}")


EVIDENCE: dict[str, tuple[str, ...]] = {"transactions": ("signatures", "counts_since", "announced_by", "was_requested")}
ACCOUNTS: dict[str, tuple[str, ...]] = {"watch": ("account",), "keychains": ("account",)}
ADDED: dict[int, tuple[dict[str, tuple[str, ...]], tuple[str, ...]]] = {  # columns and tables
    9: (EVIDENCE, ("held",)),
    8: (EVIDENCE, ("held", "branches", "revealed_scripts")),
    7: (
        EVIDENCE | ACCOUNTS,
        ("held", "branches", "revealed_scripts", "accounts", "account_txs", "labels", "revealed", "frozen"),
    ),
}


@pytest.mark.parametrize("number", ADDED)
def test_database_of_a_development_version_can_be_rebuilt(number: int, tmp_path: Path) -> None:
    path = unpacked("0.2.0", tmp_path)
    with Store.open(path, REGTEST) as store:
        store.attach(before := WatchList(REGTEST))
        own = {
            each.txid
            for each in store.views.history(limit=None)
            if each.is_own and each.status is not TxStatus.CONFIRMED
        }
    undo_changes(path, *ADDED[number], number)
    with pytest.raises(StoreForeignError, match="written by a development version"):
        Store.open(path, REGTEST)
    with Store.open(path, REGTEST, rebuild=True) as store:
        store.attach(after := WatchList(REGTEST))
        assert (len(after), after.labels()) == (len(before), before.labels())
        assert [each.label for each in store.views.keychains()] == ["shop", "invoices"]
        assert {each.txid for each in store.views.history(limit=None)} >= own != set()
        assert all(store.note(f"told: {name}") is not None for name in ("audit", "shop"))
    assert version_of(path) == SCHEMA_VERSION
    assert version_of(tmp_path / "w.db.damaged") == number


def test_a_drop_is_later_than_every_broadcast(tmp_path: Path) -> None:
    """An earlier number would revive the transaction."""
    path = unpacked("0.2.0", tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE transactions SET own = 1000, height = -1 WHERE status = 'abandoned'")
        remark(db, "transactions", migrations.COLUMNS_6)
    with Store.open(path, REGTEST) as store:
        (tx,) = (each for each in store.transactions(-1).values() if each.dropped == "abandoned")
    assert (tx.broadcast_seq, tx.first_height) == (1_000, 0)
    assert tx.dropped_seq > 1_000 > tx.last_seen


def test_change_of_untrusted_coins_is_not_trusted() -> None:
    foreign, own, child, grandchild, other = (bytes([number]) * 32 for number in range(5))
    chain = [(foreign, own), (own, child), (child, grandchild), (grandchild, None), (other, None)]
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE old_unspent (outpoint, spender, height)")
        db.executemany(
            "INSERT INTO old_unspent VALUES (?, ?, NULL)", [(made + bytes(4), spender) for made, spender in chain]
        )
        db.execute("CREATE TABLE transactions (txid, broadcast_seq, fee, status)")
        mine = [(txid,) for txid in (own, child, grandchild, other)]
        db.executemany("INSERT INTO transactions VALUES (?, 1, 1, 'pending')", mine)
        assert migrations.trusted_coins(db) == {other + bytes(4)}


# Rows that the new schema does not allow

WRONG = {
    "txid of 31 bytes": ("transactions", "txid", "substr(txid, 2)"),
    "unknown status": ("transactions", "status", "'perhaps'"),
    "negative broadcast number": ("transactions", "own", "-1"),
    "text for bytes": ("transactions", "raw", "'text'"),
    "spend that is neither input nor output": ("matches", "spend", "2"),
    "outpoint of 35 bytes": ("matches", "outpoint", "substr(outpoint, 2)"),
    "number for bytes": ("watch", "value", "1 << 40"),
    "unknown kind of entry": ("watch", "kind", "9"),
    "negative value": ("unspent", "value", "-5"),
    "fraction": ("events", "time", "0.5"),
    "public key of 22 bytes": ("watch", "kind", "1"),
    "height without a block": ("matches", "block", "NULL"),
    "negative lookahead": ("keychains", "lookahead", "-1"),
    "headers that are a number": ("headers", "raw", "7"),
}


@pytest.mark.parametrize("name", WRONG)
def test_value_that_is_not_allowed_is_named_and_nothing_changes(name: str, tmp_path: Path) -> None:
    path = unpacked("0.2.0", tmp_path)
    table, column, expression = WRONG[name]
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        names = migrations.COLUMNS_6.get(table)
        where = (
            f"WHERE rowid = (SELECT max(rowid) FROM {table})"
            if table not in ("matches", "unspent")
            else (
                f"WHERE txid = (SELECT max(txid) FROM {table})"
                if table == "matches"
                else f"WHERE outpoint = (SELECT max(outpoint) FROM {table})"
            )
        )
        db.execute(f"UPDATE {table} SET {column} = {expression} {where}")
        if names is not None:  # as a forger who can compute marks and sums
            remark(db, table, migrations.COLUMNS_6)
    before = dump_of(path)
    named = {"own": "broadcast_seq"}.get(column, column)
    with pytest.raises(
        StoreCorruptError,
        match=f"table {table}, row .*: (column {named} contains an impossible value|CHECK constraint)",
    ):
        Store.open(path, REGTEST)
    assert dump_of(path) == before

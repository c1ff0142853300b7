"""The wallet's database: it returns stored data, commits a batch completely or not at all, and has an error for each
kind of damage.
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spvfilter.errors import (
    StoreCorruptError,
    StoreError,
    StoreForeignError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
)
from spvfilter.network import MAINNET, REGTEST
from spvfilter.primitives import OutPoint
from spvfilter.protocol import MAX_FILTER_SIZE
from spvfilter.store.batch import Batch, Bip37Parameters
from spvfilter.store.ledger import StoredTx, TxStatus
from spvfilter.store.place import MEMORY
from spvfilter.store.store import Store
from spvfilter.transaction import Transaction
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, tx
from support.vectors import effort
from support.wallets.filledstore import (
    GENESIS,
    OTHER,
    PAID,
    PAYMENT,
    SCRIPT,
    everything,
    filled,
    found,
    watch_list,
)
from support.wallets.forgery import forge
from support.wallets.storesqlite import sqlite_of


def test_stored_data_is_read_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with filled(path) as store:
        before = everything(store)
    with Store.open(path, REGTEST) as store:
        watch = WatchList(REGTEST)
        store.attach(watch)
        assert everything(store) == before
        assert watch.label(0) == "mine"
        assert sum(1 for _ in watch.table.coins()) == 20


def test_files_belong_to_their_owner_alone(tmp_path: Path) -> None:
    with filled(tmp_path / "w.db"):
        assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}


def test_a_fork_removes_headers_and_matches_above_it(tmp_path: Path) -> None:
    with filled(tmp_path / "w.db") as store:
        store.commit(Batch(fork=10, headers=b""))
        assert (store.tip, store.cursor, store.searched) == (10, 10, 10)
        assert [each.height for each in store.matches()] == [*range(11), None]


def test_new_entries_move_back_only_the_cursor(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    filled(path).close()
    with Store.open(path, REGTEST) as store:
        store.attach(watch_list(), since=3)
        assert store.cursor == 19
    with Store.open(path, REGTEST) as store:
        store.attach(watch_list(OTHER, SCRIPT), since=3)
        assert (store.cursor, store.searched) == (2, 19)
        assert [each.hit.entry for each in store.matches()] == [1] * 21  # with its new number
    with Store.open(path, REGTEST) as store:
        store.attach(watch_list(OTHER))
        assert store.cursor == 2


def test_a_new_label_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    filled(path).close()
    renamed = WatchList(REGTEST)
    renamed.add_script(SCRIPT, "yours")
    with Store.open(path, REGTEST) as store:
        store.attach(renamed)
    with Store.open(path, REGTEST) as store:
        watch = WatchList(REGTEST)
        store.attach(watch)
        assert watch.label(0) == "yours"


def test_a_value_given_later_for_an_outpoint_is_kept(tmp_path: Path) -> None:
    outpoint = OutPoint(bytes(31) + b"\x01", 0)
    for value, script in ((None, None), (500, SCRIPT), (None, None)):
        watch = WatchList(REGTEST)
        watch.add_outpoint(outpoint, value=value, script_pubkey=script)
        with Store.open(tmp_path / "w.db", REGTEST) as store:
            store.attach(watch)
    coin = watch.table.coin(bytes(outpoint))
    assert coin is not None
    assert (coin.value, coin.script) == (500, SCRIPT)


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    """A process that is killed early leaves an empty file."""
    (tmp_path / "w.db").touch()
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        assert store.tip == -1


@pytest.mark.parametrize("height", [0, 5])
def test_a_batch_with_a_height_is_not_empty(height: int) -> None:
    assert [Batch(fork=height).is_empty, Batch(cursor=height).is_empty, Batch().is_empty] == [False, False, True]


def test_a_second_store_on_the_same_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with filled(path):
        with pytest.raises(StoreLockedError):
            Store.open(path, REGTEST)
        code = (
            f"from spvfilter.store.store import Store\nfrom spvfilter.network import REGTEST\nStore.open({str(path)!r},"
            " REGTEST)"
        )
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
        assert "StoreLockedError" in told.stderr
        with pytest.raises(StoreLockedError):
            Store.open(path, REGTEST, rebuild=True)
    Store.open(path, REGTEST).close()


def test_a_lock_that_cannot_be_removed_blocks_no_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system makes a disk with errors read-only. A client that ends for this reason must report it and can start
    again.
    """
    path = tmp_path / "w.db"
    store = filled(path)

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        store.close()
    Store.open(path, REGTEST).close()


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_link_to_itself_is_no_database(rebuild: bool, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    path.symlink_to(path)
    with pytest.raises(StoreError, match=r"w\.db"):
        Store.open(path, REGTEST, rebuild=rebuild)
    assert [each.name for each in tmp_path.iterdir()] == ["w.db"]


def test_other_files_are_refused_and_unchanged(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text(
        "not a database, but a file of some length, longer than a header of SQLite's, which has a hundred bytes" * 20
    )
    with pytest.raises(StoreForeignError):
        Store.open(text, REGTEST)
    assert text.read_text().startswith("not a database")
    other = tmp_path / "other"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (a)")
    connection.commit()
    connection.close()
    with pytest.raises(StoreForeignError, match="another program"):
        Store.open(other, REGTEST)
    path = tmp_path / "w.db"
    filled(path).close()
    with pytest.raises(StoreForeignError, match="belongs to regtest, not to mainnet"):
        Store.open(path, MAINNET)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreForeignError, match="version 99"):
        Store.open(path, REGTEST)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        Store.open(tmp_path / "nowhere" / "w.db", REGTEST)


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path, rebuild: bool) -> None:
    for folder in (tmp_path, Path(tmp_path.anchor)):
        with pytest.raises(StoreError, match="is a directory, not a database"):
            Store.open(folder, REGTEST, rebuild=rebuild)


@pytest.mark.posix
@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("again", [False, True])
def test_a_commit_to_a_removed_file_is_refused(tmp_path: Path, suffix: str, again: bool) -> None:
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store:
        store.commit(Batch(headers=REGTEST.genesis, cursor=0))
        file = path.with_name(path.name + suffix)
        copy = file.read_bytes()
        file.rename(tmp_path / "moved")
        if again:
            file.write_bytes(copy)
        with pytest.raises(StoreError, match="replaced by another" if again else "removed while it was open"):
            store.commit(Batch(cursor=-1))
        assert store.cursor == 0
        (tmp_path / "moved").rename(file)
        store.commit(Batch(cursor=-1))
    with Store.open(path, REGTEST) as store:
        assert store.cursor == -1


def test_a_database_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.db"
    filled(path).close()
    monkeypatch.setattr(os, "access", lambda name, mode: (name, mode) != (path, os.W_OK))
    with pytest.raises(StoreReadOnlyError):
        Store.open(path, REGTEST)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(errno.EACCES, StoreReadOnlyError), (errno.EROFS, StoreReadOnlyError), (errno.ENOSPC, StoreFullError)],
)
def test_a_folder_without_write_access_is_refused_by_cause(
    code: int, kind: type[StoreError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: object, flags: int, mode: int = 0) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(kind):
        Store.open(tmp_path / "w.db", REGTEST)


@pytest.mark.parametrize("room", range(effort(6, 12, 60)))
def test_a_full_disk_undoes_only_the_failed_batch(room: int, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with filled(path) as store:
        (pages,) = sqlite_of(store).execute("PRAGMA page_count").fetchone()
        sqlite_of(store).execute(f"PRAGMA max_page_count = {pages + room}")
        whole = everything(store)
        with pytest.raises(StoreFullError, match="full"):
            for number in range(10_000):
                whole = everything(store)
                raw = tx([TxIn(bytes(32), number)], [TxOut(0, bytes(900))])
                store.commit(
                    Batch(
                        transactions={Transaction.parse(raw).txid: StoredTx(raw, TxStatus.PENDING, None, number)},
                        cursor=number % 19,
                    )
                )
        assert everything(store) == whole
        sqlite_of(store).execute("PRAGMA max_page_count = 1000000")
        store.commit(Batch(cursor=5))
        assert store.cursor == 5
    with Store.open(path, REGTEST) as store:
        store.attach(watch_list())
        assert everything(store)[5:] == whole[5:]


@pytest.mark.parametrize(
    ("change", "is_valid"),
    [
        ({}, True),
        ({"tweak": 0, "elements": 1}, True),
        ({"tweak": (1 << 32) - 1, "elements": 8 * MAX_FILTER_SIZE}, True),
        ({"tweak": 1 << 32}, False),
        ({"elements": 0}, False),
        ({"elements": 8 * MAX_FILTER_SIZE + 1}, False),
        ({"fp_rate": 0.0}, False),
        ({"fp_rate": 1.0}, False),
    ],
)
def test_impossible_parameters_of_the_filter_are_corrupt(change: dict[str, Any], is_valid: bool) -> None:
    stored = Bip37Parameters(3, 2_048, 0.002, b"k" * 32)._replace(**change)
    with nullcontext() if is_valid else pytest.raises(StoreCorruptError, match="parameters are out of range"):
        assert Bip37Parameters.parse(stored.encode()) == stored


def test_unknown_completeness_is_not_written(tmp_path: Path) -> None:
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.attach(watch_list())
        unknown = found(0, 0)._replace(completeness=SimpleNamespace(value="perhaps"))  # type: ignore[arg-type]
        with pytest.raises(StoreCorruptError, match="completeness"):
            store.commit(Batch(headers=GENESIS, matches=[unknown]))


# Each row is a change that the wallet did not make
TAMPERED = {
    "a match lost": "DELETE FROM matches WHERE n = 4",
    "a match moved": "UPDATE matches SET height = 3 WHERE n = 4",
    "a coin lost": "DELETE FROM coins WHERE value = 1004",
    "an entry changed": "UPDATE watch SET value = x'0014' || zeroblob(20)",
    "the cursor": "UPDATE meta SET value = zeroblob(16) WHERE key = 'cursor'",
    "the tip": "UPDATE headers SET raw = substr(raw, 1, 20 * 80)",
    "a header in the middle": (
        "UPDATE headers SET raw = CAST(substr(raw, 1, 560) || zeroblob(80) || substr(raw, 641) AS BLOB)"
    ),
    "a header missing": "UPDATE headers SET raw = CAST(substr(raw, 1, 560) || substr(raw, 641) AS BLOB)",
    "all headers": "DELETE FROM headers",
    "a part of a header": "UPDATE headers SET raw = substr(raw, 1, 1000)",
    "headers elsewhere": "UPDATE headers SET first = 2000",
    "headers that are text": "UPDATE headers SET raw = 'text'",
    "a total": "UPDATE meta SET value = x'312030203000' WHERE key = 'totals'",
    "a label": "DELETE FROM tx_labels",
    "a coin that is unspent": "DELETE FROM unspent WHERE height = 4",
    "a pending one": "UPDATE transactions SET first_seen = 8",
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_forged_row_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    filled(path).close()
    forge(path, TAMPERED[name])
    with pytest.raises(StoreCorruptError):
        Store.open(path, REGTEST)


def outcome(path: Path, whole: list[object]) -> None:
    """Either a refusal, or a state that was once committed: no wrong match and no wrong header."""
    try:
        with Store.open(path, REGTEST) as store:
            store.attach(watch_list())
            tip, cursor, _, _, _, raw, matches, _ = everything(store)
    except StoreError:
        return
    assert isinstance(raw, bytes)
    assert isinstance(whole[5], bytes)
    assert whole[5].startswith(raw)
    assert isinstance(matches, list)
    assert set(matches) <= set(whole[6])  # type: ignore[call-overload]  # a list
    confirmed = [each.height for each in matches if each.height is not None]
    assert confirmed == list(range(len(confirmed)))
    assert isinstance(cursor, int)
    assert isinstance(tip, int)
    assert cursor < len(confirmed) or cursor == -1


@pytest.mark.parametrize("wal", [False, True])
def test_a_damaged_file_is_refused_or_reads_as_once_committed(wal: bool, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    store = filled(path)
    whole = everything(store)
    if not wal:
        store.close()
    target = "w.db-wal" if wal else "w.db"
    files = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    if wal:
        store.close()
    assert len(files[target]) > 4_096
    rng = random.Random(7)
    where = tmp_path / "damaged"
    where.mkdir()
    for number in range(effort(25, 50, 1_000)):
        for old in where.iterdir():
            old.unlink()
        data = bytearray(files[target])
        at = rng.randrange(len(data))
        if number % 4 == 0:
            del data[at:]
        else:
            data[at] ^= 1 << rng.randrange(8)
        for name, content in (files | {target: bytes(data)}).items():
            if not name.endswith("-shm"):
                (where / name).write_bytes(content)
        outcome(where / "w.db", whole)


@pytest.mark.parametrize("name", ["w.db", MEMORY])
def test_older_sqlite_is_refused_with_both_versions(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    with pytest.raises(StoreError, match=r"needs SQLite 3\.37 or later, but this Python uses 3\.34\.1"):
        Store.open(name, REGTEST)
    assert not list(tmp_path.iterdir())


def test_reader_with_older_sqlite_names_both_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To an older SQLite, a STRICT table is a malformed schema."""
    path = tmp_path / "w.db"
    filled(path).close()
    data = path.read_bytes()
    path.write_bytes(data.replace(b") STRICT", b") STRICH", 1))
    with pytest.raises(StoreCorruptError, match="malformed database schema"):
        WalletStore.open(path)
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(StoreError, match=r"needs SQLite 3\.37 or later"):
        WalletStore.open(path)


def test_bytes_of_another_transaction_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    for raw in (tx([TxIn(bytes(32), 1)], [TxOut(1_030, SCRIPT)]), PAYMENT + b"more"):
        with filled(path) as store:
            store.commit(Batch(transactions={PAID: StoredTx(raw, TxStatus.PENDING, 1, 7, 7)}))
        with pytest.raises(StoreCorruptError):
            Store.open(path, REGTEST)
        path.unlink()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER spy AFTER INSERT ON matches BEGIN DELETE FROM coins; END",
        "CREATE VIEW more AS SELECT * FROM matches",
        "CREATE TABLE more (a)",
        "DROP INDEX matches_by_height",
    ],
)
def test_other_schema_is_refused(statement: str, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    filled(path).close()
    forge(path, statement)
    for open_it in (lambda: Store.open(path, REGTEST), lambda: WalletStore.open(path)):
        with pytest.raises(StoreCorruptError, match="the schema is damaged"):
            open_it()


def test_a_store_in_memory_makes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.open(MEMORY, REGTEST) as store:
        store.commit(Batch(headers=GENESIS, cursor=0))
        assert store.cursor == 0
    assert not list(tmp_path.iterdir())

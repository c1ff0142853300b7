"""Readers open a wallet's database while it is written. A second writer learns which process holds it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import ParameterError, StoreCorruptError, StoreError, StoreForeignError, StoreLockedError
from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch
from spvfilter.store.lock import WriterLock
from spvfilter.store.store import Store
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.watchlist import WatchList
from store.test_views import OURS, Ledger, pay
from support.blocks.build import TxIn, TxOut, tx, txid
from support.wallets.stores import opened
from support.wallets.storesqlite import sqlite_of, writing

READ = "import sys\nfrom spvfilter import WalletStore\n"
READ += "with WalletStore.open(sys.argv[1]) as w: print(w.network, w.tip(), w.balance().confirmed)"


def read_elsewhere(path: Path) -> str:
    """Read in another process."""
    told = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    return told.stdout.strip()


@pytest.mark.slow
def test_another_process_reads_each_commit(tmp_path: Path) -> None:
    path = tmp_path / "a wallet?.db"
    ledger = Ledger(path)
    ledger.mine(5)
    ledger.put(pay(1, (100, OURS)), 3)
    assert read_elsewhere(path) == "regtest 5 100"
    with WalletStore.open(path) as wallet:
        ledger.put(pay(2, (20, OURS)), 4)
        assert wallet.balance().confirmed == 120
        assert wallet.searched_height() == 5
    ledger.store.close()
    assert read_elsewhere(path) == "regtest 5 120"
    Store.open(path, REGTEST).close()


def test_a_reader_changes_nothing_and_blocks_no_writer(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    ledger = Ledger(path)
    ledger.mine(5)
    ledger.store.close()
    before = path.read_bytes()
    with WalletStore.open(path) as wallet:
        assert wallet.balance().total == 0
        assert path.read_bytes() == before
        with Store.open(path, REGTEST) as store:
            assert store.tip == 5
    assert path.read_bytes() == before


@pytest.mark.slow
def test_each_view_shows_one_moment(tmp_path: Path) -> None:
    """Each commit moves a coin from one label to another. No reader sees it under both labels or under none."""
    path = tmp_path / "w.db"
    ledger = Ledger(path)
    ledger.mine(5)
    txid = ledger.put(pay(1, (100, OURS)), 3)
    seen: list[tuple[int, int]] = []
    done = threading.Event()

    def read() -> None:
        with WalletStore.open(path) as wallet:
            while not done.is_set():
                seen.append((wallet.balance().total, sum(entry.net for entry in wallet.history())))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(60):
        raw = ledger.store.views.transaction(txid)
        assert raw is not None
        ledger.put(raw.raw, None if number % 2 else 3, seen=number)
    done.set()
    reader.join()
    assert set(seen) == {(100, 100)}
    ledger.store.close()


def test_a_second_writer_learns_which_process_holds_the_file(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Ledger(path).store:
        with pytest.raises(StoreLockedError, match="another client of this process"):
            Store.open(path, REGTEST)
        code = f"from spvfilter.store import Store\nfrom spvfilter import REGTEST\nStore.open({str(path)!r}, REGTEST)"
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (
            f"in use by process {os.getpid()}; in the meantime, read it with WalletStore or spvfilter wallet"
            in told.stderr
        )
        with pytest.raises(StoreLockedError, match="another client of this process"):
            Store.open(path, REGTEST, rebuild=True)
    Store.open(path, REGTEST).close()


def test_a_lock_that_is_a_link_leaves_its_target_unchanged(tmp_path: Path) -> None:
    """Otherwise a user with write access to the folder could empty another user's file."""
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / "w.db-lock").symlink_to(other)
    with pytest.raises(StoreError):
        Store.open(tmp_path / "w.db", REGTEST)
    assert other.read_text() == "kept"


def test_a_lock_holds_for_every_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Ledger(path).store:
        (tmp_path / "link.db").symlink_to(path)
        with pytest.raises(StoreLockedError):
            Store.open(tmp_path / "link.db", REGTEST)


@pytest.mark.posix
def test_without_a_lock_a_second_writer_stops_the_first(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    first = opened(path)
    (tmp_path / "w.db-lock").unlink()
    second = opened(path)
    watch = WatchList(REGTEST)
    watch.add_script(OURS)
    second.attach(watch)
    with pytest.raises(StoreLockedError, match="another process"):
        first.commit(Batch(notes={"a": b"2"}))
    second.close()
    first.close()
    Store.open(path, REGTEST).close()


def test_the_pages_of_one_moment_are_of_one_commit(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "w.db")
    ledger.mine(5)
    for number in range(4):
        ledger.put(pay(number + 1, (number + 1, OURS)), 3)
    with WalletStore.open(tmp_path / "w.db") as wallet, wallet.moment():
        page = wallet.history(limit=2)
        ledger.put(pay(9, (9, OURS)), 4)
        rest = wallet.history(before=page[-1].cursor)
        assert len({entry.txid for entry in (*page, *rest)}) == 4


@pytest.mark.posix  # Windows neither replaces nor removes an open file
@pytest.mark.parametrize("how", ["replaced", "removed", "log removed"])
def test_a_reader_of_a_file_that_is_gone_shows_nothing(how: str, tmp_path: Path) -> None:
    """Otherwise a program would show an old balance for as long as it runs."""
    path, copy = tmp_path / "w.db", tmp_path / "copy.db"
    ledger = Ledger(path)
    ledger.mine(5)
    with WalletStore.open(path) as wallet:
        for _ in range(2):  # a writer that goes and comes is no reason to open the file again
            assert wallet.tip() == 5
            ledger.store.close()
            assert wallet.tip() == 5
            ledger.store = opened(path)
        ledger.store.close()
        copy.write_bytes(path.read_bytes())
        if how != "log removed":
            path.unlink()
        path.with_name("w.db-wal").unlink()
        if how == "replaced":
            path.with_name("w.db-shm").unlink()
            copy.replace(path)
            opened(path).close()
        for read in (wallet.balance, wallet.tip, lambda: wallet.events(0)):
            with pytest.raises(StoreError, match="while it was open: open it again"):
                read()


@pytest.mark.posix
def test_a_file_replaced_before_the_first_read_is_noticed(tmp_path: Path) -> None:
    path, copy = tmp_path / "w.db", tmp_path / "copy.db"
    Ledger(path).store.close()
    copy.write_bytes(path.read_bytes())
    with WalletStore.open(path) as wallet:
        copy.replace(path)
        with pytest.raises(StoreError, match="while it was open: open it again"):
            wallet.balance()


def test_an_error_of_the_caller_passes_through_a_moment(tmp_path: Path) -> None:
    Ledger(tmp_path / "w.db").store.close()
    with WalletStore.open(tmp_path / "w.db") as wallet:
        with pytest.raises(BrokenPipeError), wallet.moment():
            raise BrokenPipeError
        assert len(wallet.history()) == 0


def test_malformed_arguments_of_views_are_refused(tmp_path: Path) -> None:
    Ledger(tmp_path / "w.db").store.close()
    with WalletStore.open(tmp_path / "w.db") as wallet:
        for wrong in (
            lambda: wallet.balance("\udcff"),
            lambda: wallet.history(label=b"x"),  # type: ignore[arg-type]
            lambda: wallet.transaction(b"12"),
            lambda: wallet.transaction("12" * 31),
            lambda: wallet.coins(before=b"1-00"),  # type: ignore[arg-type]
            lambda: wallet.coins(limit=1.5),  # type: ignore[arg-type]
            lambda: wallet.unspent(trusted_change=1),  # type: ignore[arg-type]
        ):
            with pytest.raises(ParameterError):
                wrong()
    with pytest.raises(StoreError, match="not a file"):
        WalletStore.open(tmp_path)


def test_the_lock_of_a_killed_process_locks_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    code = (
        "import os, signal\nfrom spvfilter.store import Store\nfrom spvfilter import REGTEST\n"
        f"store = Store.open({str(path)!r}, REGTEST)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert (tmp_path / "w.db-lock").exists()
    Store.open(path, REGTEST).close()
    assert not (tmp_path / "w.db-lock").exists()


def test_only_one_of_many_threads_gets_the_lock(tmp_path: Path) -> None:
    path, held, most = tmp_path / "w.db", [0], [0]
    taken: list[int] = []

    def contend(number: int) -> None:
        for _ in range(200):
            try:
                lock = WriterLock.take(path)
            except StoreLockedError:
                continue
            held[0] += 1
            most[0] = max(most[0], held[0])
            taken.append(number)
            held[0] -= 1
            lock.release()

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert most == [1]
    assert len(taken) > 10


def test_a_new_file_is_either_missing_or_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version reported that the file belonged to another program."""
    path, told = tmp_path / "w.db", list[str]()

    def read() -> None:
        try:
            with WalletStore.open(path) as wallet:
                told.append(wallet.network.name)
        except StoreError as error:
            told.append(type(error).__name__)

    connect = sqlite3.connect

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            found = super().execute(sql, *values)
            if "journal_mode" not in sql:  # this statement holds a lock until its result is dropped
                monkeypatch.setattr(sqlite3, "connect", connect)
                read()
                monkeypatch.setattr(sqlite3, "connect", watched)
            return found

    def watched(*args: Any, **options: Any) -> sqlite3.Connection:
        return connect(*args, **options, factory=Watched)

    monkeypatch.setattr(sqlite3, "connect", watched)
    Store.open(path, REGTEST).close()
    assert list(dict.fromkeys(told)) == ["StoreError", "regtest"]


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no database at .*nothing\.db: create one"):
        WalletStore.open(tmp_path / "nothing.db")
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(StoreError, match="does not contain a wallet yet") as error:
        WalletStore.open(empty)
    assert not isinstance(error.value, StoreForeignError)
    for number, statement in enumerate(("CREATE TABLE notes (text)", "PRAGMA application_id = 1")):
        with closing(sqlite3.connect(foreign := tmp_path / f"{number}.db")) as db:
            db.execute(statement)
        with pytest.raises(StoreForeignError):
            WalletStore.open(foreign)
    text = tmp_path / "text"
    text.write_bytes(b"not a database" * 100)
    with pytest.raises(StoreForeignError):
        WalletStore.open(text)
    path = tmp_path / "w.db"
    ledger = Ledger(path)
    with writing(ledger.store) as rows:
        rows.set_meta("network", bytes(32))
    with pytest.raises(StoreCorruptError, match="unknown network"):
        WalletStore.open(path)
    sqlite_of(ledger.store).execute("PRAGMA user_version = 3")
    with pytest.raises(StoreForeignError, match=r"version 3 \(.* --rebuild"):
        WalletStore.open(path)
    ledger.store.close()
    with pytest.raises(StoreForeignError, match=r"version 3 \(.* --rebuild"):
        Store.open(path, REGTEST)


def test_input_values_are_those_of_the_last_transaction(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    ledger = Ledger(path)
    ledger.mine(5)
    parent = tx([TxIn(bytes([1]) * 32, 0)], [TxOut(600, OURS), TxOut(300, OURS)])
    child = tx([TxIn(txid(parent), 0), TxIn(txid(parent), 1)], [TxOut(800, OURS)])
    with WalletStore.open(path) as wallet:
        for values in ([600, 300], [500, 300]):  # the outputs are worth 800
            wallet.check(child, parents=[parent], input_values=values)
        with pytest.raises(ParameterError, match="input"):
            wallet.check(child, parents=[parent], input_values=[1_000])

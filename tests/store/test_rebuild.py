"""The rebuild of a damaged database keeps the watch list and the damaged file, even if it is interrupted."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from spvfilter.errors import (
    StoreCorruptError,
    StoreForeignError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
)
from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch
from spvfilter.store.sqlite import MarkedRows
from spvfilter.store.store import Store
from spvfilter.watch.watchlist import WatchList
from support.wallets.filledstore import SCRIPT, filled


def test_a_rebuild_keeps_the_watch_list_and_the_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with filled(path) as store:
        secret, parameters = store.secret, store.bip37_parameters
    connection = sqlite3.connect(path)
    connection.execute("UPDATE matches SET value = value + 1 WHERE n = 4")
    connection.commit()
    connection.close()
    with pytest.raises(StoreCorruptError):
        Store.open(path, REGTEST)
    with Store.open(path, REGTEST, rebuild=True) as store:
        watch = WatchList(REGTEST)
        store.attach(watch)
        assert (store.secret, store.bip37_parameters) == (secret, parameters)
        assert (store.tip, store.cursor, list(store.matches())) == (-1, -1, [])
        assert SCRIPT in watch
    assert (tmp_path / "w.db.damaged").exists()


@pytest.mark.parametrize("pragma", ["user_version = 3", "application_id = 77", "journal_mode = WAL"])
def test_a_rebuild_ignores_the_database_of_another_program(pragma: str, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE meta (key, value)")
    connection.execute("INSERT INTO meta VALUES ('mine', 1)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreForeignError, match="belongs to another program"):
        Store.open(path, REGTEST, rebuild=True)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["other.db"]


def test_a_rebuild_accepts_a_wallet_without_its_application_id(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    filled(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 77")
    connection.close()
    with pytest.raises(StoreForeignError):
        Store.open(path, REGTEST)
    with Store.open(path, REGTEST, rebuild=True) as store:
        store.attach(watch := WatchList(REGTEST))
        assert SCRIPT in watch


def without_links(*_: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("has_links", [True, False])
def test_a_rebuild_moves_files_aside_that_are_no_database(
    has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.db"
    path.write_bytes(b"garbage" * 1_000)
    path.with_name("w.db-journal").write_bytes(bytes(9))
    if not has_links:
        monkeypatch.setattr(os, "link", without_links)
    with Store.open(path, REGTEST, rebuild=True) as store:
        assert store.events.log.last > 1 << 32  # no number of the lost events is used again
    assert {each.name for each in tmp_path.iterdir()} == {"w.db", "w.db.damaged", "w.db.damaged-journal"}
    assert (tmp_path / "w.db.damaged").read_bytes() == b"garbage" * 1_000


@pytest.mark.parametrize("is_late", [False, True])
def test_a_rebuild_leaves_a_database_that_another_program_writes(
    is_late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.db"
    filled(path).close()
    with closing(sqlite3.connect(path)) as connection:

        def begin(*_: object) -> None:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")

        if is_late:  # after the first rows have been read
            monkeypatch.setattr("spvfilter.store.rebuild.check_network", begin)
        else:
            begin()
        with pytest.raises(StoreLockedError, match="in use by another process"):
            Store.open(path, REGTEST, rebuild=True)
    with Store.open(path, REGTEST) as store:
        assert store.cursor == 19


def test_a_rebuild_leaves_a_database_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    filled(path).close()
    path.with_name("w.db-wal").mkdir()
    before = path.read_bytes()
    with pytest.raises(StoreReadOnlyError, match="cannot be opened"):
        Store.open(path, REGTEST, rebuild=True)
    assert path.read_bytes() == before


def test_an_interrupted_rebuild_loses_no_watched_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.db"
    with filled(path) as store:
        secret, parameters = store.secret, store.bip37_parameters
    insert = MarkedRows.insert
    broken = 0
    for room in range(20):
        left = [room]

        def full(self: MarkedRows, table: str, row: Sequence[object], left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            insert(self, table, row)

        with monkeypatch.context() as patched:
            patched.setattr(MarkedRows, "insert", full)
            try:
                Store.open(path, REGTEST, rebuild=True).close()
            except StoreFullError:
                broken += 1
        with Store.open(path, REGTEST) as store:
            store.attach(watch := WatchList(REGTEST))
            assert (store.secret, store.bip37_parameters) == (secret, parameters)
            assert SCRIPT in watch
            assert store.cursor == (19 if broken == room + 1 else -1)  # unchanged, or rebuilt
    assert 5 < broken < 20


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("rebuild", [False, True])
def test_a_rebuild_killed_before_the_rename_leaves_the_old_file(
    rebuild: bool, has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version moved the old file away first. The next run then created an empty wallet with another secret
    and no watched scripts.
    """

    class KilledError(BaseException): ...

    def killed(self: Path, target: Path) -> Path:
        if self.name.endswith(".rebuilt"):
            raise KilledError
        return move(self, target)

    path, move = tmp_path / "w.db", Path.replace
    with filled(path) as store:
        secret = store.secret
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        if not has_links:
            patched.setattr(os, "link", without_links)
        with pytest.raises(KilledError):
            Store.open(path, REGTEST, rebuild=True)
    with Store.open(path, REGTEST, rebuild=rebuild) as store:
        store.attach(watch := WatchList(REGTEST))
        assert store.secret == secret
        assert SCRIPT in watch


def test_a_schema_that_is_no_text_is_refused_and_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    filled(path).close()
    data = path.read_bytes()
    at = data.index(b"CREATE TABLE headers")
    path.write_bytes(data[: at + 8] + b"\xf4" + data[at + 9 :])  # SQLite's error message quotes this text
    with pytest.raises(StoreCorruptError):
        Store.open(path, REGTEST)
    with Store.open(path, REGTEST, rebuild=True) as store:
        assert store.tip == -1


def test_rebuild_keeps_bookmarks(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with filled(path) as store:
        store.commit(Batch(notes={"told: shop": b"7", "bans": b"{}"}))
    with Store.open(path, REGTEST, rebuild=True) as store:
        assert (store.note("told: shop"), store.note("bans")) == (b"7", None)

"""Copies of a database by SQLite's backup while it is written, and restored copies."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from spvfilter.errors import EventGapError, StoreCorruptError, StoreLockedError
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.store.batch import Batch
from spvfilter.store.events import StoredEvent
from spvfilter.store.store import Store
from spvfilter.wallet.reader import WalletStore


class Writer:
    """A store that gets a header, an event and a note with each commit."""

    def __init__(self, path: Path, chain: Regtest) -> None:
        self.store = Store.open(path, REGTEST)
        self.chain = chain
        self.number = self.store.tip

    def commit(self) -> None:
        self.number += 1
        header = self.chain.chain.active[self.number].raw[:80]
        event = StoredEvent(self.store.events.log.last + 1, 1_700_000_000, "found", b"%d" % self.number)
        self.store.commit(Batch(headers=header, notes={"filler": os.urandom(20_000)}, events=[event]))

    def close(self) -> None:
        self.store.close()


@pytest.fixture(scope="module")
def chain() -> Regtest:
    made = Regtest()
    made.mine(120)
    return made


def back_up(path: Path, copy: Path, *, pages: int = -1, during: object = None) -> None:
    """Copy as the page "Back up and upgrade" says; with `pages`, call a function after each part."""

    def progress(status: int, remaining: int, total: int) -> None:
        if callable(during):
            during()

    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target, pages=pages, progress=progress)


def state(path: Path) -> tuple[int, int, list[bytes]]:
    """Tip, number of the last event, and events of a database, which is checked as a whole."""
    with Store.open(path, REGTEST) as store:
        log = store.events.log
        return store.tip, log.last, [each.data for each in store.events.read(0, 1_000)]


@pytest.mark.parametrize("pages", [1, 3, 10])
def test_backup_during_commits_is_the_state_of_one_commit(pages: int, chain: Regtest, tmp_path: Path) -> None:
    path, copy = tmp_path / "w.db", tmp_path / "copy.db"
    writer = Writer(path, chain)
    for _ in range(40):
        writer.commit()
    left = iter(range(30))

    def during() -> None:
        if next(left, None) is not None:
            writer.commit()

    back_up(path, copy, pages=pages, during=during)
    assert next(left, None) is None  # the writer never waited
    assert state(copy) == (69, 70, [b"%d" % number for number in range(70)])
    writer.commit()  # the client goes on with its own file
    writer.close()
    assert state(path)[0] == 70
    assert state(copy)[0] == 69
    assert not (tmp_path / "copy.db-wal").exists()


def test_a_reader_of_another_process_delays_no_commit(chain: Regtest, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    writer = Writer(path, chain)
    writer.commit()
    with WalletStore.open(path) as reader, closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as other:
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM events").fetchone() == (1,)
        writer.commit()  # although a reader is in the middle of a transaction
        assert other.execute("SELECT count(*) FROM events").fetchone() == (1,)
        assert reader.balance().sequence == 2
        with pytest.raises(StoreLockedError, match="another client of this process"):
            Store.open(path, REGTEST)
    writer.close()


def test_a_restored_copy_lacks_later_events(chain: Regtest, tmp_path: Path) -> None:
    path, copy = tmp_path / "w.db", tmp_path / "copy.db"
    writer = Writer(path, chain)
    for _ in range(5):
        writer.commit()
    back_up(path, copy)
    for _ in range(3):
        writer.commit()
    writer.close()
    shutil.copy(copy, path)
    with WalletStore.open(path) as reader:
        assert reader.balance().sequence == 5
        with pytest.raises(EventGapError) as caught:
            reader.events(since=8)
    assert (caught.value.since, caught.value.sequence) == (8, 5)


def test_a_stale_log_never_gives_a_wrong_state(chain: Regtest, tmp_path: Path) -> None:
    """A client was killed, and the file was restored without deleting the write-ahead log beside it."""
    path, copy, restored = tmp_path / "w.db", tmp_path / "copy.db", tmp_path / "restored.db"
    writer = Writer(path, chain)
    for _ in range(10):
        writer.commit()
    back_up(path, copy)
    for _ in range(20):
        writer.commit()
        shutil.copy(copy, restored)
        shutil.copy(f"{path}-wal", f"{restored}-wal")
        try:
            found = state(restored)
        except StoreCorruptError:
            pass
        else:
            assert found in [(number, number + 1, [b"%d" % each for each in range(number + 1)]) for number in range(30)]
        for file in tmp_path.glob("restored.db*"):
            file.unlink()
    writer.close()

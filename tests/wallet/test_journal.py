"""Events of the books in the database: numbered, kept as they were told, dropped from the oldest on, and read by
others.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from spvfilter.errors import EventGapError, FormatError, ParameterError, StoreCorruptError, StoreError
from spvfilter.light.engine.effects import Commit, Emit
from spvfilter.light.engine.engine import Engine
from spvfilter.light.engine.inputs import Instant
from spvfilter.light.engine.options import Options
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.engine.saved import Saved
from spvfilter.light.events import Event, Mode, Synced
from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint
from spvfilter.store import events
from spvfilter.store.batch import Batch
from spvfilter.store.events import StoredEvent
from spvfilter.store.store import Store
from spvfilter.wallet.books import Books
from spvfilter.wallet.events import (
    BlockConnected,
    BlockDisconnected,
    MatchConfirmed,
    MatchFound,
    MatchWithdrawn,
    Reason,
    WalletEvent,
)
from spvfilter.wallet.journal import Journal, decode
from spvfilter.wallet.reader import WalletStore
from spvfilter.wallet.saved import SavedBooks
from spvfilter.watch.match import Completeness, Match, MatchKind
from spvfilter.watch.watchlist import WatchList
from support.headerchains import chain_of
from support.stores import opened

TXID = bytes(range(32))
BARE = Match(MatchKind.INPUT, TXID, 3, OutPoint(TXID, 0xFFFFFFFF), None, None, None, None, None, None)
FULL = Match(MatchKind.OUTPUT, TXID, 0, OutPoint(TXID, 0), 2**62, b"\x51", "address", 'a "label" \udcff ü', TXID, 7)
ALL: list[WalletEvent] = [
    MatchFound(FULL, Completeness.PROVEN),
    MatchFound(BARE),
    MatchConfirmed(FULL, Completeness.ONE_PEER),
    MatchWithdrawn(BARE, Reason.REPLACED, TXID),
    MatchWithdrawn(FULL, Reason.REORG),
    BlockConnected(7, TXID),
    BlockDisconnected(7, TXID),
]


def rows(first: int, count: int, time: int = 0) -> list[StoredEvent]:
    return [StoredEvent(number, time, "connected", b'[1,"00"]') for number in range(first, first + count)]


@pytest.mark.parametrize("event", ALL, ids=lambda event: type(event).__name__)
def test_an_event_is_read_back_as_it_was_told(event: WalletEvent) -> None:
    batch, journal = Batch(), Journal(41)
    told = list(journal.put(event, batch))
    assert told == [event]
    assert [each.sequence for each in told] == [42]
    (stored,) = batch.events
    assert decode(stored) == event
    assert decode(stored).sequence == 42


def test_of_blocks_below_the_tip_the_last_is_told_of_before_what_follows() -> None:
    books = Books(WatchList(REGTEST), SavedBooks())
    out = Outbox(books, chain_of(7), Journal())
    out.emit(
        *(BlockConnected(height, TXID) for height in range(5)),
        MatchFound(FULL),
        BlockConnected(5, TXID),
        BlockConnected(6, TXID),
    )
    assert out._events == [BlockConnected(4, TXID), MatchFound(FULL)]
    out.emit(
        BlockDisconnected(6, TXID),
        BlockConnected(6, TXID),
        Synced(7, TXID),
        BlockConnected(7, TXID),
        BlockConnected(8, TXID),
    )
    told: list[Event] = [BlockConnected(6, TXID), BlockDisconnected(6, TXID), BlockConnected(6, TXID), Synced(7, TXID)]
    assert out._events[2:] == [*told, BlockConnected(7, TXID), BlockConnected(8, TXID)]
    (batch,) = books.take_batches()
    assert [event.sequence for event in out._events if isinstance(event, WalletEvent)] == [
        each.sequence for each in batch.events
    ]
    assert [each.sequence for each in batch.events] == [1, 2, 3, 4, 5, 6, 7]
    assert batch.told == 8


def test_a_block_that_waits_is_told_of_where_blocks_are_searched_again() -> None:
    """It may be disconnected later, and nobody is told that a block is disconnected that was never connected."""
    books = Books(WatchList(REGTEST), SavedBooks())
    out = Outbox(books, chain_of(7), Journal())
    out.emit(BlockConnected(5, TXID), BlockConnected(2, TXID), BlockConnected(3, TXID), BlockDisconnected(5, TXID))
    assert out._events == [BlockConnected(5, TXID), BlockConnected(3, TXID), BlockDisconnected(5, TXID)]


def test_a_block_that_waits_is_committed_with_the_cursor_that_moves_back() -> None:
    books = Books(WatchList(REGTEST), SavedBooks())
    out = Outbox(books, chain_of(7), Journal())
    books.connect_empty(5)
    out.emit(BlockConnected(5, TXID))
    assert out.take()
    books.rewind(2)
    *_, commit, told = out.take()
    assert isinstance(commit, Commit)
    assert (commit.batch.cursor, commit.batch.told) == (2, 5)
    assert told == Emit(BlockConnected(5, TXID))


def engine_on(store: Store, *scripts: bytes) -> Engine:
    watch = WatchList(REGTEST)
    for script in scripts:
        watch.add_script(script)
    return Engine(Options(Mode.COMPACT), watch, Saved.read(store, watch), ["10.1.0.1:1"], random.Random(1))


def events_at_the_start(store: Store, engine: Engine) -> list[WalletEvent]:
    """What a new run tells at once; it is committed."""
    effects = engine.start(Instant(0.0, 1_700_000_000.0))
    for effect in effects:
        if isinstance(effect, Commit):
            store.commit(effect.batch)
    return [effect.event for effect in effects if isinstance(effect, Emit) and isinstance(effect.event, WalletEvent)]


@pytest.mark.parametrize("runs", [1, 2])
def test_a_block_that_waited_is_told_of_by_the_next_run_though_that_searches_it_again(
    tmp_path: Path, runs: int
) -> None:
    """The next run has an entry more: its search begins again below, and the block may be disconnected before it is
    searched again.

    That run, too, may end before it tells anything.
    """
    store = opened(tmp_path / "wallet.db")
    chain = chain_of(7)
    store.commit(Batch(headers=chain.headers(0, 8)))
    engine = engine_on(store, b"\x51")
    engine.books.connect_empty(5)
    engine._context.out.emit(BlockConnected(4, chain.hash_at(4)), BlockConnected(5, chain.hash_at(5)))
    for effect in engine._context.out.take():
        assert isinstance(effect, Commit)  # and tells nothing: the headers are those of 7 blocks
        store.commit(effect.batch)
    for _ in range(runs):
        engine = engine_on(store, b"\x51", b"\x52")
        assert (engine.books.cursor, engine.books.searched) == (-1, 5)
    assert events_at_the_start(store, engine) == [BlockConnected(5, chain.hash_at(5))]
    assert not events_at_the_start(store, engine_on(store, b"\x51", b"\x52"))  # once


def test_what_was_told_of_is_not_told_of_again_by_the_next_run_however_far_the_search_went_back(tmp_path: Path) -> None:
    store = opened(tmp_path / "wallet.db")
    chain = chain_of(7)
    store.commit(Batch(headers=chain.headers(0, 8)))
    engine = engine_on(store, b"\x51")
    engine.books.connect_empty(7)
    engine._context.out.emit(BlockConnected(7, chain.hash_at(7)))
    for effect in engine._context.out.take():
        if isinstance(effect, Commit):
            store.commit(effect.batch)
    engine.books.search_again(2)
    engine.books.connect_empty(3)
    engine._context.out.emit(BlockConnected(3, chain.hash_at(3)), MatchFound(FULL))
    for effect in engine._context.out.take():
        if isinstance(effect, Commit):
            store.commit(effect.batch)
    assert [decode(each) for each in store.events.read(0, 10)] == [
        BlockConnected(7, chain.hash_at(7)),
        BlockConnected(3, chain.hash_at(3)),
        MatchFound(FULL),
    ]
    assert not events_at_the_start(store, engine_on(store, b"\x51"))


@pytest.mark.parametrize(
    "wrong",
    [("other", b"[]"), ("connected", b"["), ("connected", b"[1]"), ("connected", b'["1","00"]'), ("found", b"{}")],
)
def test_bytes_that_are_no_event_are_refused(wrong: tuple[str, bytes]) -> None:
    with pytest.raises(FormatError, match="event 1 cannot be read"):
        decode(StoredEvent(1, 0, *wrong))


def test_events_are_read_page_by_page_by_others_and_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store:
        journal, batch = Journal(), Batch()
        told = [each for event in ALL for each in journal.put(event, batch)]
        store.commit(batch)
        with WalletStore.open(path) as wallet:
            assert (
                wallet.sequence(),
                wallet.balance().sequence,
                wallet.history().sequence,
                wallet.coins().sequence,
            ) == (7, 7, 7, 7)
            first = wallet.events(0, limit=4)
            second = wallet.events(first.sequence, limit=4)
            assert [*first, *second] == told == ALL
            assert (first.sequence, second.sequence, wallet.events(7), wallet.events(7).sequence) == (4, 7, [], 7)
            store.commit(Batch(events=rows(8, 1)))
            assert len(wallet.events(7)) == 1
            for since in (-1, 9, "1"):
                with pytest.raises(ParameterError):
                    wallet.events(since)  # type: ignore[arg-type]
            for limit in (0, 10_001, 1.5):
                with pytest.raises(ParameterError):
                    wallet.events(0, limit=limit)  # type: ignore[arg-type]
        with pytest.raises(ParameterError, match="event 10 cannot follow event 8"):
            store.commit(Batch(events=rows(10, 1)))
        store.commit(Batch(events=rows(9, 1)))


def test_the_oldest_are_dropped_and_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS", 20)
    monkeypatch.setattr(events, "LEAST", 5)
    path, day = tmp_path / "w.db", 86_400
    with Store.open(path, REGTEST) as store, WalletStore.open(path) as wallet:
        store.commit(Batch(events=rows(1, 25)))
        assert store.events.log[:2] == (6, 25)
        with pytest.raises(EventGapError) as caught:
            wallet.events(4)
        assert (caught.value.since, caught.value.first) == (4, 6)
        assert [event.sequence for event in wallet.events(5)] == list(range(6, 26))
        store.commit(Batch(events=rows(26, 10, 20 * day)))
        store.commit(Batch(events=rows(36, 1, 31 * day)))
        assert store.events.log[:2] == (26, 36)  # those of day 0 are too old
        store.commit(Batch(events=rows(37, 1, 400 * day)))
        assert store.events.log[:2] == (33, 37)  # some are kept whatever the clock says
    with Store.open(path, REGTEST) as store:
        assert store.events.log[:2] == (33, 37)


def test_a_failed_commit_leaves_the_numbers_as_they_were(tmp_path: Path) -> None:
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.commit(Batch(events=rows(1, 3)))
        with pytest.raises(StoreError):
            # on purpose
            store.commit(Batch(events=rows(4, 3)), Batch(notes={"no bytes": object()}))  # type: ignore[dict-item]
        assert store.events.log.last == 3
        store.commit(Batch(events=rows(4, 1)))
        assert [each.sequence for each in store.events.read(0, 10)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM events WHERE sequence = 2",
        "DELETE FROM events",
        "UPDATE events SET data = '[2]' WHERE sequence = 2",
    ],
)
def test_a_damaged_or_missing_event_is_noticed(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store:
        store.commit(Batch(events=rows(1, 3)))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(damage)
    with pytest.raises(StoreCorruptError):
        Store.open(path, REGTEST)


def test_after_a_rebuild_no_number_is_given_again(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store:
        store.commit(Batch(events=rows(1, 3)))
    with Store.open(path, REGTEST, rebuild=True) as store:
        assert store.events.log[:2] == (4, 3)
        with pytest.raises(EventGapError):
            store.events.read(2, 10)
        store.commit(Batch(events=rows(4, 1)))
    path.write_bytes(b"garbage" * 1_000)
    with Store.open(path, REGTEST, rebuild=True) as store:
        assert store.events.log.last == 1 << 32

"""Events of the books in the database: their numbers, their bytes, dropping the oldest, and reading them."""

from __future__ import annotations

import json
import random
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import EventGapError, FormatError, ParameterError, StoreCorruptError, StoreError
from spvfilter.light.engine.effects import Commit, Emit
from spvfilter.light.engine.engine import ClientEngine
from spvfilter.light.engine.inputs import Instant
from spvfilter.light.engine.options import Options
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.engine.saved import Saved
from spvfilter.light.events import Event, Mode, Synced
from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint
from spvfilter.store import events
from spvfilter.store.batch import Batch
from spvfilter.store.events import END_OF_NUMBERS, RUN_STARTED, StoredEvent
from spvfilter.store.place import MEMORY
from spvfilter.store.store import Store
from spvfilter.wallet.books import Books
from spvfilter.wallet.events import (
    BlockConnected,
    BlockDisconnected,
    MatchConfirmed,
    MatchFound,
    MatchWithdrawn,
    Reason,
    RunStarted,
    WalletEvent,
)
from spvfilter.wallet.journal import Journal, decode, encode
from spvfilter.wallet.reader import WalletStore
from spvfilter.wallet.saved import SavedBooks
from spvfilter.watch.match import Completeness, Match, MatchKind
from spvfilter.watch.watchlist import WatchList
from store.test_accounts import accounts_of
from support.blocks.headerchains import chain_of
from support.client.engineparts import context_of
from support.wallets.stores import opened
from support.wallets.storesqlite import writing

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
    RunStarted(bytes(range(16))),
]
CLOCK_S = 1_700_000_000


def rows(first: int, count: int, time: int = 0) -> list[StoredEvent]:
    return [StoredEvent(number, time, "connected", b'[1,"00"]') for number in range(first, first + count)]


@pytest.mark.parametrize("event", ALL, ids=lambda event: type(event).__name__)
def test_event_is_read_back_as_it_was_reported(event: WalletEvent) -> None:
    batch, journal = Batch(), Journal(41)
    told = list(journal.put(event, batch))
    assert told == [event]
    assert [each.sequence for each in told] == [42]
    (stored,) = batch.events
    assert decode(stored) == event
    assert decode(stored).sequence == 42


def taken(out: Outbox) -> tuple[list[Event], list[Batch]]:
    """The events and the commits that an outbox hands out."""
    effects = out.take()
    told = [effect.event for effect in effects if isinstance(effect, Emit)]
    return told, [effect.batch for effect in effects if isinstance(effect, Commit)]


def test_only_the_last_block_below_the_tip_is_reported() -> None:
    books = Books(WatchList(REGTEST), SavedBooks())
    out = Outbox(books, chain_of(7), Journal())
    books.connect_empty(8)
    out.emit(
        *(BlockConnected(height, TXID) for height in range(5)),
        MatchFound(FULL),
        BlockConnected(5, TXID),
        BlockConnected(6, TXID),
    )
    told, batches = taken(out)
    assert told == [BlockConnected(4, TXID), MatchFound(FULL)]
    out.emit(
        BlockDisconnected(6, TXID),
        BlockConnected(6, TXID),
        Synced(7, TXID),
        BlockConnected(7, TXID),
        BlockConnected(8, TXID),
    )
    later, others = taken(out)
    assert later == [
        *(BlockConnected(6, TXID), BlockDisconnected(6, TXID), BlockConnected(6, TXID), Synced(7, TXID)),
        *(BlockConnected(7, TXID), BlockConnected(8, TXID)),
    ]
    stored = [each.sequence for batch in batches + others for each in batch.events]
    assert [event.sequence for event in told + later if isinstance(event, WalletEvent)] == stored
    assert stored == [1, 2, 3, 4, 5, 6, 7]
    assert others[-1].told == 8


def test_waiting_block_is_reported_when_blocks_are_searched_again() -> None:
    """The block may be disconnected later, and no block may be disconnected without an event that connected it."""
    books = Books(WatchList(REGTEST), SavedBooks())
    out = Outbox(books, chain_of(7), Journal())
    out.emit(BlockConnected(5, TXID), BlockConnected(2, TXID), BlockConnected(3, TXID), BlockDisconnected(5, TXID))
    told, _ = taken(out)
    assert told == [BlockConnected(5, TXID), BlockConnected(3, TXID), BlockDisconnected(5, TXID)]


def test_waiting_block_is_committed_with_the_cursor_that_moves_back() -> None:
    books = Books(WatchList(REGTEST), SavedBooks())
    out = Outbox(books, chain_of(7), Journal())
    books.connect_empty(5)
    out.emit(BlockConnected(5, TXID))
    assert out.take()
    books.searches.rewind(2)
    *_, commit, told = out.take()
    assert isinstance(commit, Commit)
    assert (commit.batch.cursor, commit.batch.told) == (2, 5)
    assert told == Emit(BlockConnected(5, TXID))


def engine_on(store: Store, *scripts: bytes) -> ClientEngine:
    watch = WatchList(REGTEST)
    for script in scripts:
        watch.add_script(script)
    return ClientEngine(Options(Mode.COMPACT), watch, Saved.read(store, watch), ["10.1.0.1:1"], random.Random(1))


def events_at_the_start(store: Store, engine: ClientEngine) -> list[WalletEvent]:
    """Commit the effects of a start, and return its events after `RunStarted`."""
    effects = engine.start(Instant(0.0, CLOCK_S))
    for effect in effects:
        if isinstance(effect, Commit):
            store.commit(effect.batch)
    told = [effect.event for effect in effects if isinstance(effect, Emit) and isinstance(effect.event, WalletEvent)]
    assert isinstance(told[0], RunStarted)
    return told[1:]


@pytest.mark.parametrize("runs", [1, 2])
def test_next_run_reports_a_waiting_block_above_its_search(tmp_path: Path, runs: int) -> None:
    """The next run has one more entry, so its search begins below the block.

    The block may be disconnected before it is searched again. The next run may also end before it reports an event.
    """
    store = opened(tmp_path / "wallet.db")
    chain = chain_of(7)
    store.commit(Batch(headers=chain.headers(0, 8)))
    engine = engine_on(store, b"\x51")
    engine.books.connect_empty(5)
    context_of(engine).out.emit(BlockConnected(4, chain.hash_at(4)), BlockConnected(5, chain.hash_at(5)))
    for effect in context_of(engine).out.take():
        assert isinstance(effect, Commit)  # and tells nothing: the headers are those of 7 blocks
        store.commit(effect.batch)
    for _ in range(runs):
        engine = engine_on(store, b"\x51", b"\x52")
        assert (engine.books.cursor, engine.books.searched) == (-1, 5)
    assert events_at_the_start(store, engine) == [BlockConnected(5, chain.hash_at(5))]
    assert not events_at_the_start(store, engine_on(store, b"\x51", b"\x52"))  # once


def test_next_run_does_not_repeat_reported_blocks(tmp_path: Path) -> None:
    store = opened(tmp_path / "wallet.db")
    chain = chain_of(7)
    store.commit(Batch(headers=chain.headers(0, 8)))
    engine = engine_on(store, b"\x51")
    engine.books.connect_empty(7)
    context_of(engine).out.emit(BlockConnected(7, chain.hash_at(7)))
    for effect in context_of(engine).out.take():
        if isinstance(effect, Commit):
            store.commit(effect.batch)
    engine.books.searches.search_again(2)
    engine.books.connect_empty(3)
    context_of(engine).out.emit(BlockConnected(3, chain.hash_at(3)), MatchFound(FULL))
    for effect in context_of(engine).out.take():
        if isinstance(effect, Commit):
            store.commit(effect.batch)
    assert [decode(each) for each in store.events.read(0, 10)] == [
        BlockConnected(7, chain.hash_at(7)),
        BlockConnected(3, chain.hash_at(3)),
        MatchFound(FULL),
    ]
    assert not events_at_the_start(store, engine_on(store, b"\x51"))


def test_event_of_an_older_version_lacks_the_last_fields() -> None:
    """Matches have gained fields since 0.2.0, each with a default."""
    batch = Batch()
    list(Journal(41).put(MatchFound(FULL), batch))
    values = json.loads(batch.events[0].data)
    assert isinstance(values[0], list)
    older = json.dumps([values[0][:-1], *values[1:]]).encode()
    assert decode(StoredEvent(42, 0, "found", older)) == MatchFound(FULL)
    with pytest.raises(FormatError, match="event 42 cannot be read"):
        decode(StoredEvent(42, 0, "found", json.dumps([[*values[0], 1, 2], *values[1:]]).encode()))


@pytest.mark.parametrize(
    "wrong",
    [("other", b"[]"), ("connected", b"["), ("connected", b"[1]"), ("connected", b'["1","00"]'), ("found", b"{}")],
)
def test_bytes_that_are_no_event_raise_format_error(wrong: tuple[str, bytes]) -> None:
    with pytest.raises(FormatError, match="event 1 cannot be read"):
        decode(StoredEvent(1, 0, *wrong))


def test_other_process_reads_events_page_by_page(tmp_path: Path) -> None:
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
            ) == (8, 8, 8, 8)
            first = wallet.events(0, limit=4)
            second = wallet.events(first.sequence, limit=4)
            assert [*first, *second] == told == ALL
            assert (first.sequence, second.sequence, wallet.events(8), wallet.events(8).sequence) == (4, 8, [], 8)
            store.commit(Batch(events=rows(9, 1)))
            assert len(wallet.events(8)) == 1
            for since in (-1, "1"):
                with pytest.raises(ParameterError, match="at least 0"):
                    wallet.events(since)  # type: ignore[arg-type]
            for since in (10, 1 << 70):
                with pytest.raises(EventGapError, match="continue from its sequence"):
                    wallet.events(since)
            for limit in (0, 10_001, 1.5):
                with pytest.raises(ParameterError):
                    wallet.events(0, limit=limit)  # type: ignore[arg-type]
        with pytest.raises(ParameterError, match=r"event 11 \(connected\) cannot follow event 9"):
            store.commit(Batch(events=rows(11, 1)))
        store.commit(Batch(events=rows(10, 1)))


def test_reading_from_dropped_events_raises_event_gap_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS", 20)
    monkeypatch.setattr(events, "LEAST", 5)
    path, day = tmp_path / "w.db", 86_400
    with Store.open(path, REGTEST) as store, WalletStore.open(path) as wallet:
        store.commit(Batch(events=rows(1, 25)))
        assert kept(path, wallet) == (6, 25)
        for since in (0, 4, 5):
            with pytest.raises(EventGapError) as caught:
                wallet.events(since)
            assert (caught.value.since, caught.value.sequence) == (since, 25)
        assert [event.sequence for event in wallet.events(6)] == list(range(7, 26))
        store.commit(Batch(events=rows(26, 10, 20 * day)))
        store.commit(Batch(events=rows(36, 1, 31 * day)))
        assert kept(path, wallet) == (26, 36)  # events of day 0 are too old
        store.commit(Batch(events=rows(37, 1, 400 * day)))
        assert kept(path, wallet) == (33, 37)  # the latest five stay whatever the clock says
    with Store.open(path, REGTEST) as store, WalletStore.open(path) as wallet:
        store.commit(Batch(events=[StoredEvent(90, 400 * day, RUN_STARTED, b'["00"]'), *rows(91, 3, 400 * day)]))
        assert kept(path, wallet) == (37, 93)  # numbers that were left out do not count
        assert [event.sequence for event in wallet.events(37)] == [90, 91, 92, 93]


def test_a_clock_that_was_wrong_drops_no_young_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LEAST", 1)
    path, day = tmp_path / "w.db", 86_400
    with Store.open(path, REGTEST) as store, WalletStore.open(path) as wallet:
        store.commit(Batch(events=[*rows(1, 2, 400 * day), *rows(3, 2, 0), *rows(5, 1, 400 * day)]))
        assert kept(path, wallet) == (1, 5)


def kept(path: Path, wallet: WalletStore) -> tuple[int, int]:
    """Numbers of the first and the last event in the database."""
    with closing(sqlite3.connect(path)) as db:
        first, last = db.execute("SELECT min(sequence), max(sequence) FROM events").fetchone()
    assert last == wallet.sequence()
    return first, last


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
        "UPDATE events SET data = x'5B325D' WHERE sequence = 2",
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


def test_rebuilt_database_refuses_numbers_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store:
        store.commit(Batch(events=rows(1, 3)))
    with Store.open(path, REGTEST, rebuild=True) as store, WalletStore.open(path) as wallet:
        for since in range(4):
            with pytest.raises(EventGapError) as caught:
                store.events.read(since, 10)
        before = wallet.history().sequence
        assert before == caught.value.sequence == 4
        assert not wallet.events(before)
        store.commit(Batch(events=rows(5, 1)))
        assert [event.sequence for event in wallet.events(before)] == [5]
    path.write_bytes(b"garbage" * 1_000)
    with Store.open(path, REGTEST, rebuild=True) as store:
        assert store.events.log.last > 1 << 32
        store.events.read(store.events.log.last, 10)
        with pytest.raises(EventGapError):
            store.events.read(5, 10)


def start(store: Store, clock_us: int, run_id: bytes = bytes(16)) -> tuple[Journal, int]:
    """Begin a run on a database. Returns its journal and the number of its first event."""
    journal, batch = Journal(store.events.log.last), Batch()
    started = journal.start(run_id, clock_us, batch)
    store.commit(batch)
    return journal, started.sequence


@given(clocks=st.lists(st.integers(-(1 << 60), 1 << 60) | st.integers(0, 20), max_size=12))
def test_run_starts_at_the_clock_or_the_next_number(clocks: list[int]) -> None:
    with Store.open(MEMORY, REGTEST) as store:
        used: list[int] = []
        for clock in clocks:
            last = store.events.log.last
            journal, first = start(store, clock)
            assert first == max(last + 1, min(clock, END_OF_NUMBERS - (1 << 40)))
            batch = Batch()
            used += [first, *(each.sequence for event in ALL[:3] for each in journal.put(event, batch))]
            store.commit(batch)
        assert used == sorted(set(used))
        assert [each.sequence for each in store.events.read(0, 1_000)] == used
        assert not used or 0 < used[0] <= used[-1] < END_OF_NUMBERS
        for number in {0, *used, *(each + 1 for each in used), *(each - 1 for each in used)}:
            if number in used or number == 0:
                assert [each.sequence for each in store.events.read(number, 1_000)] == [
                    each for each in used if each > number
                ]
            else:
                with pytest.raises(EventGapError):
                    store.events.read(number, 1)


def test_numbers_of_an_old_database_continue(tmp_path: Path) -> None:
    """Databases of 0.2.0 number events 1, 2, 3, and have no `RunStarted`."""
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store, WalletStore.open(path) as wallet:
        store.commit(Batch(events=rows(1, 3)))
        assert wallet.run_id(2) is wallet.run_id(0) is None
        started = start(store, CLOCK_S * 1_000_000)[1]
        assert [event.sequence for event in wallet.events(0)] == [1, 2, 3, started]
        assert [event.sequence for event in wallet.events(3)] == [started]
        assert started == CLOCK_S * 1_000_000
    with Store.open(path, REGTEST) as store:
        assert start(store, 2)[1] == started + 1


def test_run_id_names_the_run_of_an_event(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store, WalletStore.open(path) as wallet:
        for clock, run_id in ((10, b"a" * 16), (20, b"b" * 16)):
            start(store, clock, run_id)
            store.commit(Batch(events=rows(clock + 1, 2)))
        assert [wallet.run_id(number) for number in (0, 10, 12, 20, 22)] == [None, *[b"a" * 16] * 2, *[b"b" * 16] * 2]
        for number in (9, 13, 23):
            with pytest.raises(EventGapError):
                wallet.run_id(number)
        with pytest.raises(ParameterError):
            wallet.run_id(-1)


@pytest.mark.parametrize(
    "raw", [b"", b"1" * 23, b"1" * 32, struct.pack("<3q", 1, 1 << 53, -1), struct.pack("<3q", 9, 3, 0)]
)
def test_malformed_range_of_events_is_corrupt(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store:
        store.commit(Batch(events=rows(1, 3)))
        with writing(store) as found:
            found.set_meta("events", raw)
    with pytest.raises(StoreCorruptError, match="the range of events"):
        Store.open(path, REGTEST)
    with WalletStore.open(path) as wallet, pytest.raises(StoreCorruptError, match="the range of events"):
        wallet.sequence()


def test_a_disconnected_block_no_longer_counts_as_reported() -> None:
    batch, journal = Batch(), Journal(told=7)
    list(journal.put(BlockDisconnected(7, TXID), batch))
    assert batch.told == 6


def test_account_of_an_event_without_a_match_is_ignored() -> None:
    stored = StoredEvent(1, 0, "connected", json.dumps([7, TXID.hex()]).encode(), "alice")
    assert decode(stored) == BlockConnected(7, TXID)


def test_pages_of_an_account_miss_no_event(tmp_path: Path) -> None:
    accounts_of(path := tmp_path / "w.db")
    owners = ("bob", "alice", "bob", "alice")
    with Store.open(path, REGTEST) as store:
        last, data = store.events.log.last, encode(MatchFound(FULL))
        store.commit(Batch(events=[StoredEvent(last + n, 0, "found", data, name) for n, name in enumerate(owners, 1)]))
    with WalletStore.open(path) as wallet:
        pages = [page := wallet.events(0, limit=1, account="bob")]
        while page:
            pages.append(page := wallet.events(page.sequence, limit=1, account="bob"))
    assert [each.sequence - last for page in pages for each in page] == [1, 3]
    assert [page.sequence - last for page in pages] == [1, 3, 4], "the end of all accounts' events"

"""Events of other people's unconfirmed transactions: joined for each step, bounded apart, and never a gap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings, strategies as st

from spvfilter.errors import EventGapError
from spvfilter.light.engine.effects import Commit, Emit
from spvfilter.light.engine.outbox import Outbox
from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint
from spvfilter.store import events
from spvfilter.store.batch import Batch
from spvfilter.store.events import FOREIGN, RUN_STARTED, StoredEvent
from spvfilter.store.place import MEMORY
from spvfilter.store.store import Store
from spvfilter.wallet.events import (
    BlockConnected,
    MatchConfirmed,
    MatchFound,
    MatchUnconfirmed,
    MatchWithdrawn,
    Reason,
    TxReplaced,
    WalletEvent,
)
from spvfilter.wallet.foreignevents import ForeignEvents
from spvfilter.wallet.journal import Journal, decode
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.match import Match, MatchKind
from support.blocks.build import TxOut, coinbase, txid
from support.blocks.headerchains import chain_of
from support.wallets.walletbooks import OURS, Wallet, pay

BLOCK = bytes(32)
OWN = b"\x0e" * 32


def match(number: int, height: int | None = None, label: str | None = None) -> Match:
    txid = OWN if number < 0 else bytes([number]) * 32
    return Match(
        MatchKind.OUTPUT, txid, 0, OutPoint(txid, 0), 1, b"\x51", None, label, None if height is None else BLOCK, height
    )


def is_own(txid: bytes) -> bool:
    return txid == OWN


@pytest.mark.parametrize(
    ("event", "is_foreign"),
    [
        (MatchFound(match(1)), True),
        (MatchFound(match(1, height=7)), False),
        (MatchFound(match(-1)), False),
        (MatchFound(match(9)), False),
        (MatchWithdrawn(match(1), Reason.SIZELIMIT), True),
        (MatchWithdrawn(match(1, height=7), Reason.REORG), False),
        (MatchWithdrawn(match(-1), Reason.ABANDONED), False),
        (MatchWithdrawn(match(9), Reason.REPLACED), False),
        (MatchConfirmed(match(1, height=7)), False),
        (MatchUnconfirmed(match(1, height=7)), False),
        (TxReplaced(bytes([1]) * 32, OWN), True),
        (TxReplaced(OWN, bytes([1]) * 32), False),
        (TxReplaced(bytes([9]) * 32, OWN), False),
        (BlockConnected(7, BLOCK), False),
    ],
)
def test_events_without_blocks_and_own_transactions_are_foreign(event: WalletEvent, is_foreign: bool) -> None:
    assert ForeignEvents(is_own, [bytes([9]) * 32]).is_foreign(event) is is_foreign


@pytest.mark.parametrize(
    "left", [MatchUnconfirmed(match(1, height=7)), MatchWithdrawn(match(1, height=7), Reason.REORG)]
)
def test_a_match_that_was_in_a_block_is_not_foreign(left: WalletEvent) -> None:
    foreign = ForeignEvents(is_own)
    foreign.note(left)
    assert not foreign.is_foreign(MatchFound(match(1)))
    assert not foreign.is_foreign(MatchWithdrawn(match(1), Reason.REPLACED))
    assert foreign.is_foreign(MatchFound(match(2)))


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=12), max_size=8),
    st.booleans(),
)
def test_joined_events_have_the_same_result_after_each_step(
    steps: list[list[tuple[int, int]]], has_labels: bool
) -> None:
    foreign, true, told = ForeignEvents(is_own), dict[bytes, Match](), dict[bytes, Match]()
    for step in steps:
        reported = list[WalletEvent]()
        for number, label in step:
            found = match(number, label=str(label) if has_labels else None)
            known = true.pop(found.txid, None)
            if known is not None:
                reported += foreign.join(TxReplaced(found.txid, OWN))
                reported += foreign.join(MatchWithdrawn(known, Reason.REPLACED, OWN))
            else:
                true[found.txid] = found
                reported += foreign.join(MatchFound(found))
        reported += foreign.take()
        assert foreign.take() == []
        for event in reported:
            match event:
                case MatchFound(found):
                    assert found.txid not in told
                    told[found.txid] = found
                case MatchWithdrawn(found):
                    assert told.pop(found.txid) == found
        assert told == true
        assert len(reported) <= 3 * len(step)
        if not has_labels:
            changed = [event.match.txid for event in reported if not isinstance(event, TxReplaced)]  # type: ignore[union-attr]
            assert len(set(changed)) == len(changed), "one change of each match"


def test_match_found_and_replaced_in_one_step_is_not_reported() -> None:
    foreign = ForeignEvents(is_own)
    for event in (MatchFound(match(1)), MatchWithdrawn(match(1), Reason.REPLACED), MatchFound(match(2))):
        assert foreign.join(event) == []
    assert foreign.take() == [MatchFound(match(2))]


def test_the_latest_replacement_is_reported_in_its_place() -> None:
    foreign, (first, second) = ForeignEvents(is_own), (match(number).txid for number in (1, 2))
    for event in (TxReplaced(first, OWN), TxReplaced(second, OWN), TxReplaced(first, second)):
        assert foreign.join(event) == []
    assert foreign.take() == [TxReplaced(second, OWN), TxReplaced(first, second)]


def test_match_that_comes_back_in_one_step_is_not_reported() -> None:
    foreign = ForeignEvents(is_own)
    txid = match(1).txid
    for event in (TxReplaced(txid, OWN), MatchWithdrawn(match(1), Reason.REPLACED, OWN), MatchFound(match(1))):
        assert foreign.join(event) == []
    assert foreign.take() == []


def test_removal_of_an_entry_is_reported_with_its_account() -> None:
    foreign = ForeignEvents(is_own)
    assert foreign.join(MatchFound(match(1))) == []
    removed = MatchWithdrawn(match(2), Reason.REMOVED)
    assert foreign.join(removed) == [MatchFound(match(1)), removed]
    assert foreign.take() == []


# In the database


def stored(first: int, kinds: str) -> list[StoredEvent]:
    """Events from a number on: "b" is of a block, "f" is foreign, "s" starts a run."""
    names = {"b": ("connected", b'[1,"00"]'), "f": (f"{FOREIGN}found", b"[]"), "s": (RUN_STARTED, b'["00"]')}
    return [StoredEvent(number, 0, *names[kind]) for number, kind in enumerate(kinds, first)]


@pytest.mark.slow
@settings(max_examples=60)
@given(
    runs=st.lists(st.lists(st.text("bff", max_size=6), max_size=4), min_size=1, max_size=4),
    most=st.integers(1, 5),
    restarts=st.booleans(),
)
def test_a_dropped_foreign_event_is_no_gap(runs: list[list[str]], most: int, restarts: bool) -> None:
    with patch.object(events, "MAX_FOREIGN", most), Store.open(MEMORY, REGTEST) as store:
        used = dict[int, str]()
        for run in runs:
            first = max(used, default=0) + 5
            for part in ("s", *run):
                if part:
                    store.commit(Batch(events=stored(first, part)))
                    used |= dict(enumerate(part, first))
                    first += len(part)
                if restarts:
                    store.events.verify()
        last = max(used)
        assert store.events.log.last == last
        kept = [each.sequence for each in store.events.read(0, 1_000)]
        assert {number for number, kind in used.items() if kind != "f"} <= set(kept)
        assert sum(used[number] == "f" for number in kept) <= most + len(runs)
        foreign = [number for number, kind in used.items() if kind == "f"]
        assert set(foreign[-most:]) <= set(kept), "the latest foreign events are kept"
        for number in range(last + 3):
            if number in used or number == 0:
                assert [each.sequence for each in store.events.read(number, 1_000)] == [k for k in kept if k > number]
                assert number == 0 or store.events.run_of(number) is not None
            else:
                with pytest.raises(EventGapError):
                    store.events.read(number, 1)


def test_foreign_events_go_with_older_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS", 6)
    monkeypatch.setattr(events, "LEAST", 2)
    with Store.open(MEMORY, REGTEST) as store:
        store.commit(Batch(events=stored(1, "sfbfbfbfbfb")))
        assert [each.sequence for each in store.events.read(0, 99)] == list(range(1, 12))
        store.commit(Batch(events=stored(12, "bf")))
        assert [each.sequence for each in store.events.read(2, 99)] == list(range(3, 14))
        store.commit(Batch(events=stored(14, "b")))
        assert [each.sequence for each in store.events.read(4, 99)] == list(range(5, 15))
        for number in (0, 1, 2, 3):
            with pytest.raises(EventGapError):
                store.events.read(number, 1)


def test_a_failed_commit_keeps_the_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(events, "MAX_FOREIGN", 3)
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.commit(Batch(events=stored(1, "sfffb")))
        with pytest.raises(Exception, match="bind"):
            # on purpose
            store.commit(Batch(events=stored(6, "ff")), Batch(notes={"no bytes": object()}))  # type: ignore[dict-item]
        store.commit(Batch(events=stored(6, "ff")))
        assert [each.sequence for each in store.events.read(0, 99)] == [1, 4, 5, 6, 7]


# Through the books


class Shop:
    """A reader that stops and starts again, and knows only the rule of the page about events."""

    def __init__(self) -> None:
        self.last = 0
        self.matches: dict[tuple[MatchKind, bytes, int], Match] = {}

    def read(self, path: Path) -> None:
        with WalletStore.open(path) as wallet:
            while page := wallet.events(self.last):
                for event in page:
                    self.take(event)
                self.last = page.sequence

    def take(self, event: WalletEvent) -> None:
        match event:
            case MatchFound(found) | MatchConfirmed(found):
                self.matches[found.kind, found.txid, found.index] = found
            case MatchUnconfirmed(found):
                self.matches[found.kind, found.txid, found.index] = replace(found, height=None, block_hash=None)
            case MatchWithdrawn(found):
                self.matches.pop((found.kind, found.txid, found.index), None)

    def heights(self) -> dict[bytes, int | None]:
        return {txid: found.height for (_, txid, _), found in self.matches.items()}


def coin(number: int) -> bytes:
    """An outpoint of an unknown transaction."""
    return number.to_bytes(32, "big") + bytes(4)


class Client(Wallet):
    """Books whose events go through the engine's outbox into a database file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__()

    def restart(self) -> None:
        super().restart()
        self.out = Outbox(self.books, chain_of(0), Journal(self.store.events.log.last))
        self.out.start_run(bytes(16), 0)

    def tell(self, events: object) -> list[WalletEvent]:
        self.out.emit(*events)  # type: ignore[misc]
        effects = self.out.take()
        for effect in effects:
            if isinstance(effect, Commit):
                self.store.commit(effect.batch)
        return [effect.event for effect in effects if isinstance(effect, Emit)]  # type: ignore[misc]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(events, "MAX_FOREIGN", 40)
    monkeypatch.setattr("support.wallets.walletbooks.MEMORY", tmp_path / "w.db")
    return Client(tmp_path / "w.db")


def flood(client: Client, number: int) -> None:
    """A ladder: each transaction conflicts with the one before it."""
    rng = Random(number)
    for at in range(number, number + 60):
        client.observe(pay(1_000 + at, coin(at), coin(at + 1)), rng.choice("abcd"), rng.choice("efgh"))


@pytest.mark.long
def test_a_flood_moves_no_event_of_another_kind(client: Client) -> None:
    shop, late = Shop(), Shop()
    first = pay(5_000, coin(200_000))
    client.observe(first, "a", "e")
    shop.read(client.path)  # and stops
    own = pay(4_000, first_coin := coin(300_000))
    client.broadcast(own)
    for part in range(4):
        flood(client, 1_000 * (part + 1))
        client.mine(first) if part == 1 else client.mine()
    client.restart()
    client.tell(())
    flood(client, 9_000)
    client.reorganize(3)  # `first` is unconfirmed again, and its MatchFound was dropped
    flood(client, 10_000)
    for reader in (shop, late):
        reader.read(client.path)
        assert reader.heights()[txid(first)] is None
        assert reader.heights()[txid(own)] is None
    client.mine(pay(1, first_coin), first, reward=coinbase(len(client.chain), [TxOut(7, OURS)], b"r"))
    flood(client, 11_000)
    for reader in (shop, late):
        reader.read(client.path)
        confirmed = {each for each, height in reader.heights().items() if height is not None}
        assert {txid(first)} < confirmed
        assert reader.heights().get(txid(own)) is None
        assert confirmed == {each.hit.txid for each in client.store.matches() if each.height is not None}
    kinds = [each.kind for each in client.store.events.read(0, 100_000)]
    assert sum(kind.startswith(FOREIGN) for kind in kinds) <= 42
    assert client.store.events.log.last > 500, "many more were reported"


def test_events_are_decoded_from_both_kinds_of_rows() -> None:
    batch, journal = Batch(), Journal()
    for is_foreign in (False, True):
        for event in (MatchFound(match(1)), MatchWithdrawn(match(1), Reason.REPLACED), TxReplaced(OWN, BLOCK)):
            assert list(journal.put(event, batch, is_foreign=is_foreign)) == [event]
    assert [each.kind.startswith(FOREIGN) for each in batch.events] == [False] * 3 + [True] * 3
    assert [decode(each) for each in batch.events[:3]] == [decode(each) for each in batch.events[3:]]

"""Consumers that keep the number of their last event, while databases are restored, deleted or rebuilt."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spvfilter.errors import EventGapError
from spvfilter.light.blocking import SyncLightClient
from spvfilter.network import REGTEST
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.primitives import OutPoint
from spvfilter.store.batch import Batch
from spvfilter.store.store import Store
from spvfilter.wallet.events import MatchFound, MatchWithdrawn, Reason, RunStarted, WalletEvent
from spvfilter.wallet.journal import Journal
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.match import Match, MatchKind
from spvfilter.watch.watchlist import WatchList
from support.client.lightworld import START, Books, World, running
from support.vectors import effort

_STATE = "state"  # name of the note that stands for the wallet's matches


def match(payment: int) -> Match:
    txid = payment.to_bytes(32, "big")
    return Match(MatchKind.OUTPUT, txid, 0, OutPoint(txid, 0), 1_000, b"\x51", None, None, None, None)


@dataclass
class Chain:
    """The payments of the best chain, which each run has to find."""

    payments: set[int] = field(default_factory=set)
    made: int = 0

    def change(self, rng: random.Random) -> None:
        """Add payments, and remove some as a reorganization does."""
        self.payments -= {each for each in self.payments if rng.random() < 0.1}
        for _ in range(rng.randrange(5)):
            self.made += 1
            self.payments.add(self.made)


@dataclass
class Consumer:
    """A program with a database of its own: its cursor, the id of the cursor's run, and the payments."""

    checks_id: bool
    cursor: int = 0
    run_id: bytes | None = None
    payments: set[int] = field(default_factory=set)
    gaps: int = 0

    def follow(self, wallet: WalletStore, state: set[int], rng: random.Random) -> None:
        """Read all events since the cursor. If some are missing, take a snapshot and continue from it."""
        try:
            if self.checks_id and wallet.run_id(self.cursor) != self.run_id:
                raise EventGapError(self.cursor, wallet.sequence())
            while events := wallet.events(self.cursor, limit=rng.randrange(1, 6)):
                for event in events:
                    self.take(event)
        except EventGapError:
            self.gaps += 1
            self.payments = set(state)
            self.cursor = wallet.sequence()
            self.run_id = wallet.run_id(self.cursor)
            assert not wallet.events(self.cursor)

    def take(self, event: WalletEvent) -> None:
        assert event.sequence > self.cursor
        self.cursor = event.sequence
        match event:
            case MatchFound(found):
                self.payments.add(int.from_bytes(found.txid, "big"))
            case MatchWithdrawn(found):
                self.payments.discard(int.from_bytes(found.txid, "big"))
            case RunStarted(run_id):
                self.run_id = run_id


class Wallet:
    """A database file and the runs on it. `numbers` has every number that was used in the present database."""

    def __init__(self, path: Path, rng: random.Random, kill_rate: float = 0.1) -> None:
        self.path, self.rng, self.kill_rate = path, rng, kill_rate
        self.numbers: list[int] = []
        self.copies: list[tuple[Path, list[int]]] = []

    def state(self) -> set[int]:
        with Store.open(self.path, REGTEST) as store:
            return set(json.loads(store.note(_STATE) or b"[]"))

    def run(self, chain: Chain, clock_us: int) -> int:
        """Search the chain: one commit for each payment. Returns the number of events. The process may be killed."""
        used = len(self.numbers)
        with Store.open(self.path, REGTEST) as store:
            journal, batch = Journal(store.events.log.last), Batch()
            journal.start(self.rng.randbytes(16), clock_us, batch)
            state = set(json.loads(store.note(_STATE) or b"[]"))
            changes: list[WalletEvent] = [MatchWithdrawn(match(each), Reason.REORG) for each in state - chain.payments]
            changes += [MatchFound(match(each)) for each in sorted(chain.payments - state)]
            for event in changes:
                self.commit(store, batch, state)
                if self.rng.random() < self.kill_rate:
                    list(journal.put(event, Batch()))  # killed before the commit: no reader gets the number
                    return len(self.numbers) - used
                batch = Batch()
                list(journal.put(event, batch))
                number = int.from_bytes(event.match.txid, "big")  # type: ignore[union-attr]
                state ^= {number}
            self.commit(store, batch, state)
        return len(self.numbers) - used

    def commit(self, store: Store, batch: Batch, state: set[int]) -> None:
        batch.notes[_STATE] = json.dumps(sorted(state)).encode()
        store.commit(batch)
        for each in batch.events:
            assert each.sequence > max(self.numbers, default=0)  # no number is used twice in a database
            self.numbers.append(each.sequence)

    def copy(self) -> None:
        target = self.path.with_name(f"copy{len(self.copies)}.db")
        with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(target)) as made:
            source.backup(made)
        self.copies.append((target, self.numbers.copy()))

    def restore(self) -> None:
        copy, self.numbers = self.rng.choice(self.copies)
        self.numbers = self.numbers.copy()
        self.delete()
        shutil.copy(copy, self.path)

    def delete(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)


@pytest.mark.few(1)
@pytest.mark.parametrize("checks_id", [True, False])
@pytest.mark.parametrize("seed", range(effort(10, 30, 2_000)))
def test_consumer_misses_no_payment(tmp_path: Path, seed: int, checks_id: bool) -> None:
    """Without the id of the run, a consumer is safe as long as the clock is not set back."""
    rng = random.Random(seed)
    chain, consumer, wallet = Chain(), Consumer(checks_id), Wallet(tmp_path / "w.db", rng)
    clock_us = 1_000
    for _ in range(rng.randrange(4, 14)):
        chain.change(rng)
        ran = wallet.run(chain, clock_us)
        clock_us += ran + rng.choice([0, 1, 1_000])
        if rng.random() < 0.6:
            with WalletStore.open(wallet.path) as reader:
                consumer.follow(reader, state := wallet.state(), rng)
            assert consumer.payments == state
        match rng.randrange(7):
            case 0 | 1:
                wallet.copy()
            case 2 | 3 if wallet.copies:
                wallet.restore()
            case 4:
                wallet.delete()
                wallet.numbers = []
            case _:
                pass
        if checks_id and rng.random() < 0.4:
            clock_us = max(0, clock_us - rng.randrange(40))  # back into numbers that were used
    wallet.run(chain, clock_us)
    with WalletStore.open(wallet.path) as reader:
        consumer.follow(reader, state := wallet.state(), rng)
    assert consumer.payments == state


def test_clock_set_back_is_seen_by_the_id_only(tmp_path: Path) -> None:
    """The restored database gives the consumer's number to another event. Only the id of the run differs."""
    rng = random.Random(1)
    chain, wallet = Chain({1}, 1), Wallet(tmp_path / "w.db", rng, kill_rate=0.0)
    wallet.run(chain, 1_000)
    wallet.copy()
    misled, careful = Consumer(checks_id=False), Consumer(checks_id=True)
    for payments in ({1, 2, 3}, {1, 4, 5, 6}):
        chain.payments = payments
        wallet.run(chain, 2_000)
        state = wallet.state()
        with WalletStore.open(wallet.path) as reader:
            for each in (misled, careful):
                each.follow(reader, state, rng)
        assert careful.payments == state == payments
        wallet.restore()
    assert (careful.gaps, misled.gaps) == (1, 0)
    assert misled.payments == {1, 2, 3, 6}


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["restored", "deleted", "rebuilt"])
async def test_client_refuses_a_cursor_of_another_database(how: str, tmp_path: Path) -> None:
    world, path, copy = World(5), tmp_path / "w.db", tmp_path / "copy.db"
    clocks = iter([Clock(wall=lambda: START), Clock(wall=lambda: START + 60), Clock(wall=lambda: START + 120)])
    world.grow(4, share=1.0)
    async with asyncio.timeout(60), Node(world.regtest) as node:
        async with running(world, node, store=path, clock=next(clocks)) as run:
            await run.client.wait_synced()
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as made:
            source.backup(made)
        world.grow(3, share=1.0)
        async with running(world, node, store=path, clock=next(clocks)) as run:
            await run.client.wait_synced()
            cursor = (await run.client.matches()).sequence
            started = await run.client.run_id(cursor)
            assert started is not None
        if how != "rebuilt":
            path.unlink()
        if how == "restored":
            shutil.copy(copy, path)
        world.regtest.reorg(2)
        world.grow(30, share=1.0)
        async with running(world, node, store=path, rebuild=how == "rebuilt", clock=next(clocks)) as run:
            await run.client.wait_synced()
            with pytest.raises(EventGapError, match="continue from its sequence") as caught:
                await anext(run.client.events(since=cursor))
            assert caught.value.since == cursor < caught.value.sequence
            with pytest.raises(EventGapError):
                await run.client.run_id(cursor)
            snapshot, follower = await run.client.matches(), Books()
            assert await run.client.run_id(snapshot.sequence) not in (None, started)
            for found in snapshot:
                follower.take(found)
            stream = run.client.events(since=snapshot.sequence)
            world.grow(1, share=1.0)
            while follower.synced is None or follower.synced.hash != world.regtest.chain.tip.hash:
                follower.take(await anext(stream))
            assert follower.confirmed() == world.scan()


def test_blocking_client_refuses_an_unknown_number(tmp_path: Path) -> None:
    with SyncLightClient(
        WatchList.from_addresses(["bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"], REGTEST),
        peers=["127.0.0.1:1"],
        store=tmp_path / "w.db",
    ) as client:
        started = next(client.events(since=0))
        assert isinstance(started, RunStarted)
        assert client.run_id(started.sequence) == started.id
        for since in (1, started.sequence - 1, started.sequence + 1_000):
            with pytest.raises(EventGapError) as caught:
                client.events(since=since)
            assert caught.value.sequence >= started.sequence
        assert client.events(since=started.sequence)

"""The thread of the store: commits in one transaction, urgent transactions, and waits for a place in the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest

from spvfilter.chain import HeaderChain
from spvfilter.light.database import MAX_GATHERED, Database
from spvfilter.light.engine.effects import Commit, Emit, Read
from spvfilter.light.engine.inputs import Committed, Input
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.events import Event, PeerChanged, Phase, Progress, Synced
from spvfilter.network import REGTEST
from spvfilter.node.server import Node
from spvfilter.store.batch import Batch
from spvfilter.store.store import Store
from spvfilter.wallet.books import Books
from spvfilter.wallet.journal import Journal
from spvfilter.wallet.saved import SavedBooks
from spvfilter.watch.watchlist import WatchList
from support.client.lightworld import World, running

PROGRESS = Emit(Progress(Phase.FILTERS, 1, 2))
SYNCED = Emit(Synced(1, bytes(32), ("10.1.0.1:1",), 1, (), ()))


class Thread:
    """A stand-in for a store and its thread. It runs each submitted function at once, unless it is stuck."""

    def __init__(self) -> None:
        self.transactions: list[int] = []  # number of batches in each transaction
        self.is_stuck = False

    def commit(self, *batches: Batch) -> None:
        self.transactions.append(len(batches))

    def submit(self, function: Callable[[], object]) -> Future[object]:
        future: Future[object] = Future()
        if not self.is_stuck:
            future.set_result(function())
        return future


class Run:
    """A database in a loop whose clock stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        self.thread = Thread()
        self.reported: list[Input] = []
        self.told: list[Event] = []
        self.timers: list[Callable[[], object]] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: self.now)
        monkeypatch.setattr(loop, "call_at", self._call_at)
        self.numbers = 0
        thread = cast(Any, self.thread)
        self.database = Database(cast(Store, thread), thread, self.report, self.told.extend, _fail)

    def report(self, event: Input) -> None:
        self.reported.append(event)

    def _call_at(self, when: float, call: Callable[[], object]) -> asyncio.Handle:
        self.timers.append(call)
        return asyncio.Handle(call, (), asyncio.get_running_loop())

    async def commit(self) -> None:
        self.numbers += 1
        self.database.put(Commit(self.numbers, Batch()))
        await self.settle()

    async def settle(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)

    async def ring(self) -> None:
        """Let the last timer fire."""
        self.now += 0.02
        self.timers.pop()()
        await self.settle()


def _fail(error: Exception) -> None:
    raise error


async def test_commits_soon_after_a_transaction_are_gathered_into_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    await run.commit()
    assert run.thread.transactions == [1]
    for _ in range(3):
        await run.commit()
        run.database.put(PROGRESS)
    assert run.thread.transactions == [1]
    assert len(run.timers) == 1
    await run.ring()
    assert run.thread.transactions == [1, 3]
    assert run.reported == [Committed(1), Committed(4)]
    assert run.told == [PROGRESS.event] * 3
    run.now += 1.0
    await run.commit()
    assert run.thread.transactions == [1, 3, 1]
    assert not run.timers


async def test_a_commit_that_a_caller_awaits_begins_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    await run.commit()
    await run.commit()
    run.database.put(SYNCED)
    await run.settle()
    assert run.thread.transactions == [1, 1]
    assert run.told == [SYNCED.event]
    await run.commit()
    assert run.thread.transactions == [1, 1]
    run.database.put(Read(7, lambda store: "read"))
    await run.settle()
    assert run.thread.transactions == [1, 1, 1]
    await run.commit()
    assert run.thread.transactions == [1, 1, 1]
    await run.database.drain()
    assert run.thread.transactions == [1, 1, 1, 1]
    await run.database.drain()
    await run.commit()
    run.database.hurry()
    assert run.thread.transactions == [1, 1, 1, 1, 1]


async def test_a_full_batch_of_commits_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    for _ in range(1 + 2 * MAX_GATHERED):
        await run.commit()
    assert run.thread.transactions == [1, MAX_GATHERED, MAX_GATHERED]


async def test_a_closed_database_begins_no_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    await run.commit()
    await run.commit()
    run.database.close()
    await run.ring()
    assert run.thread.transactions == [1]


async def test_a_timer_that_cannot_begin_a_transaction_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    failed: list[Exception] = []
    run.database._fail = failed.append
    await run.commit()
    await run.commit()

    def submit(_: Callable[[], object]) -> Future[object]:
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(run.thread, "submit", submit)
    await run.ring()
    assert [str(error) for error in failed] == ["cannot schedule new futures after shutdown"]


async def test_a_wait_ends_although_each_commit_causes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of foreign payments does this. A user's broadcast during the flood is answered."""

    class Flood(Run):
        def report(self, event: Input) -> None:
            assert isinstance(event, Committed)
            self.database.put(Commit(event.number + 1, Batch()))

    run = Flood(monkeypatch)
    run.database.put(Commit(1, Batch()))
    run.database.put(PROGRESS)
    waiting = asyncio.create_task(run.database.drain())
    for _ in range(5):
        await run.settle()
    assert waiting.done()
    assert run.told == [PROGRESS.event]
    run.database.close()


async def test_a_wait_ends_after_all_earlier_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    await run.database.drain()  # no job is open
    for number in range(1, 4):
        run.database.put(Commit(number, Batch()))
        run.database.put(Emit(PeerChanged(str(number))))
    await run.database.drain()
    assert run.reported[-1] == Committed(3)
    assert run.told == [PeerChanged(str(number)) for number in range(1, 4)]


async def test_a_wait_ends_when_the_database_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    run.thread.is_stuck = True
    run.database.put(Commit(1, Batch()))
    waits = [asyncio.create_task(run.database.drain()) for _ in range(2)]
    await asyncio.sleep(0)
    waits[0].cancel()
    run.database.close()
    await asyncio.wait(waits)
    assert waits[0].cancelled()
    assert waits[1].exception() is None
    await run.database.drain()


async def test_a_failed_transaction_ends_the_run_and_blames_no_peer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hurry(_: Database) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(Database, "hurry", hurry)
    world = World(5)
    # fails at the parameters of the filter, which must be durable before they are used
    with pytest.raises(RuntimeError, match="after shutdown"):
        async with Node(world.regtest) as node, running(world, node) as run:
            await run.until(lambda books: books.warnings)
    assert not run.books.warnings


def test_the_outbox_knows_whether_a_call_awaits_a_commit() -> None:
    books, went_on = Books(WatchList(REGTEST), SavedBooks()), list[int]()
    out = Outbox(books, HeaderChain(REGTEST), Journal())
    out.after_commit(lambda: went_on.append(0))
    assert (went_on, out.awaits_commit) == ([0], False)
    books.extend(bytes(80))
    out.after_commit(lambda: went_on.append(1))
    assert (went_on, out.awaits_commit) == ([0], True)
    out.committed(1)
    assert (went_on, out.awaits_commit) == ([0, 1], False)

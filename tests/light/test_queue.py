"""The queue of the database: commits, reads and events in order, and waits for a place in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import cast

from spvfilter.light.database import Database
from spvfilter.light.engine.effects import Commit, Emit
from spvfilter.light.engine.inputs import Committed, Input
from spvfilter.light.events import Event, PeerChanged
from spvfilter.light.workers import JobQueue
from spvfilter.store.batch import Batch
from spvfilter.store.store import Store


class Disk:
    """A store that is never read."""

    def commit(self, *batches: Batch) -> None:
        self.commits = getattr(self, "commits", 0) + len(batches)


class Thread:
    """Runs a submitted function at once unless it is stuck; the loop sees the result in its next round."""

    def __init__(self, *, is_stuck: bool = False) -> None:
        self._is_stuck = is_stuck

    def submit(self, function: Callable[[], object]) -> Future[object]:
        done: Future[object] = Future()
        if not self._is_stuck:
            done.set_result(function())
        return done


def database(report: Callable[[Input], None], told: list[Event], *, is_stuck: bool = False) -> Database:
    def fail(error: Exception) -> None:
        raise error

    return Database(cast(Store, Disk()), cast(JobQueue, Thread(is_stuck=is_stuck)), report, told.extend, fail)


async def rounds(number: int) -> None:
    """Let the loop run this number of rounds."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_wait_ends_although_each_commit_causes_another() -> None:
    """A flood of foreign payments does this. A user's broadcast during the flood is answered."""
    made: Database
    told: list[Event] = []

    def report(event: Input) -> None:
        assert isinstance(event, Committed)
        made.put(Commit(event.number + 1, Batch()))

    made = database(report, told)
    made.put(Commit(1, Batch()))
    made.put(Emit(PeerChanged(None)))
    waiting = asyncio.create_task(made.drain())
    await rounds(20)
    assert waiting.done()
    assert told == [PeerChanged(None)]
    made.close()


async def test_a_wait_ends_after_all_earlier_jobs() -> None:
    told: list[Event] = []
    durable: list[Input] = []
    made = database(durable.append, told)
    await made.drain()  # no job is open
    for number in range(1, 4):
        made.put(Commit(number, Batch()))
        made.put(Emit(PeerChanged(str(number))))
    waiting = asyncio.create_task(made.drain())
    await asyncio.wait([waiting])
    assert durable[-1] == Committed(3)
    assert told == [PeerChanged(str(number)) for number in range(1, 4)]


async def test_a_wait_ends_when_the_database_is_closed() -> None:
    made = database(lambda event: None, [], is_stuck=True)
    made.put(Commit(1, Batch()))
    waits = [asyncio.create_task(made.drain()) for _ in range(2)]
    await rounds(1)
    waits[0].cancel()
    made.close()
    await asyncio.wait(waits)
    assert waits[0].cancelled()
    assert waits[1].exception() is None
    await made.drain()

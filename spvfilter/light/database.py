"""Database: carries out commits and reads in other threads, and reports the events between them, all in order.

Each SQLite transaction costs an fsync, so commits that are waiting share a transaction. The next transaction is
delayed a little to gather more of them, unless a task is waiting for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import NamedTuple, TypeVar, assert_never

from spvfilter.light.engine.effects import Commit, Emit, End, Read
from spvfilter.light.engine.inputs import Committed, Input, Worked
from spvfilter.light.events import Event, Synced
from spvfilter.light.workers import JobQueue
from spvfilter.store.store import Store

T = TypeVar("T")

_MAX_TOGETHER = 200
"""Largest number of commits in one SQLite transaction."""
INTERVAL_S = 0.05
"""Seconds between the starts of two transactions if no task is waiting for the second."""
MAX_GATHERED = 8
"""Number of waiting commits that start a transaction before the interval is over.

With twice as many, the engine requests no more headers."""


class _Mark(NamedTuple):
    """A place in the queue that a task is waiting to reach."""

    reached: asyncio.Future[None]
    """Completes once everything before the mark has been carried out."""
    then: Callable[[], object] | None = None
    """Function to call at that moment, before anything after the mark begins."""

    def pass_by(self) -> None:
        """Call the function and wake the task, because everything before the mark has been carried out."""
        if self.then is not None:
            self.then()
        if not self.reached.done():  # otherwise the wait was cancelled
            self.reached.set_result(None)


class Database:
    """Carries out one run's Commit, Read, Emit and End effects. All calls and callbacks use the event loop's thread."""

    def __init__(
        self,
        store: Store,
        jobs: JobQueue,
        report: Callable[[Input], None],
        emit: Callable[[Sequence[Event]], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._report = report
        self._emit = emit
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Commit | Read | Emit | End | _Mark] = deque()
        self._busy: futures.Future[object] | None = None
        self._begun = -INTERVAL_S  # start of the last transaction, by the loop's clock
        self._gathered = 0  # commits in the queue
        self._is_awaited = False  # True if a task is waiting for the queue
        self._timer: asyncio.TimerHandle | None = None  # starts the next transaction
        self._is_closed = False

    def put(self, effect: Commit | Read | Emit | End) -> None:
        """Carry out an effect after all earlier ones."""
        self._waiting.append(effect)
        if isinstance(effect, Commit):
            self._gathered += 1
        elif not isinstance(effect, Emit) or isinstance(effect.event, Synced):
            self._is_awaited = True
        if self._busy is None:
            self._go_on()

    def submit(self, function: Callable[[Store], T]) -> futures.Future[T]:
        """Call a function with the store, after all earlier effects and before all later ones."""
        found: futures.Future[T] = futures.Future()
        found.set_running_or_notify_cancel()  # a cancelled task must not cancel it for other tasks

        def call() -> None:
            try:
                found.set_result(function(self._store))
            except Exception as error:
                found.set_exception(error)

        if self._waiting and not self._is_closed:
            self._waiting.append(_Mark(self._loop.create_future(), lambda: self._jobs.submit(call)))
            self.hurry()
        else:
            self._jobs.submit(call)
        return found

    def hurry(self) -> None:
        """Start the next transaction as soon as the thread is free, because a task is waiting for it."""
        self._is_awaited = True
        if self._busy is None and not self._is_closed:
            self._go_on()

    async def drain(self) -> None:
        """Wait until everything now in the queue has been done, but not for later effects, which may never end."""
        if (self._busy is not None or self._waiting) and not self._is_closed:
            mark = _Mark(self._loop.create_future())
            self._waiting.append(mark)
            self.hurry()
            await mark.reached

    def close(self) -> None:
        """Stop reporting. The thread finishes what it has started."""
        self._is_closed = True
        for each in self._waiting:
            if isinstance(each, _Mark):
                each.pass_by()
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _go_on(self) -> None:
        """Report the events that are due, and start the next commits or the next read."""
        events: list[Event] = []
        marks: list[_Mark] = []
        while self._waiting and isinstance(each := self._waiting[0], Emit | _Mark):
            self._waiting.popleft()
            if isinstance(each, Emit):
                events.append(each.event)
            else:
                marks.append(each)
        if events:
            self._emit(events)
        for mark in marks:
            mark.pass_by()
        if not self._waiting:
            self._is_awaited = False
            return
        match self._waiting[0]:
            case Read(token, function):
                self._waiting.popleft()
                self._run(lambda: function(self._store), lambda value: self._report(Worked(token, value)))
            case End(error):
                self._fail(error)
            case Commit():
                if self._is_due():
                    self._commit()
            case Emit() | _Mark() as first:
                raise AssertionError(first)  # they were taken above
            case first:
                assert_never(first)

    def _is_due(self) -> bool:
        """Return True if the next transaction may start. Otherwise a timer starts it."""
        now = self._loop.time()
        if self._is_awaited or self._gathered >= MAX_GATHERED or now >= self._begun + INTERVAL_S:
            return True
        if self._timer is None:
            self._timer = self._loop.call_at(self._begun + INTERVAL_S, self._rang)
        return False

    def _rang(self) -> None:
        """Start the next transaction when the timer fires."""
        self._timer = None
        if self._busy is None and self._waiting and not self._is_closed:
            try:
                self._commit()
            except Exception as error:  # nothing else would report it, and tasks would wait forever
                self._fail(error)

    def _commit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._begun = self._loop.time()
        commits: list[Commit] = []
        between: list[Event] = []  # events before the last of these commits
        held: deque[Commit | Emit] = deque()
        while self._waiting and len(commits) < _MAX_TOGETHER:
            each = self._waiting[0]
            if isinstance(each, Read | End | _Mark):
                break
            self._waiting.popleft()
            held.append(each)
            if isinstance(each, Commit):
                commits.append(each)
        while held and isinstance(held[-1], Emit):  # after the last commit: these are reported once it is durable
            self._waiting.appendleft(held.pop())
        between = [each.event for each in held if isinstance(each, Emit)]
        self._gathered -= len(commits)
        batches, last = [commit.batch for commit in commits], commits[-1].number

        def done(_: object) -> None:
            if between:
                self._emit(between)
            self._report(Committed(last))

        self._run(lambda: self._store.commit(*batches), done)

    def _run(self, function: Callable[[], object], done: Callable[[object], None]) -> None:
        future = self._busy = self._jobs.submit(function)
        future.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._finished, future, done))

    def _finished(self, future: futures.Future[object], done: Callable[[object], None]) -> None:
        self._busy = None
        if self._is_closed:
            return
        try:
            done(future.result())
            if self._busy is None:
                self._go_on()
        except Exception as error:
            self._fail(error)

"""Tasks: the engine's workflows as coroutines that read from top to bottom and run in virtual time.

A task stops only at `await`, and only for a Wait. A Wait is for an answer, a durable commit, a point in time, a change
that other code announces, or the end of another task. It completes once, with a value or with an error, which the
`await` raises.

The engine passes each input to the Waits that need it. Then it calls `run`, which continues each task whose Wait
has completed, in the order in which the Waits completed. Nothing else runs tasks, so the same inputs always lead to
the same effects.

A cancelled task ends at its current `await`. Its `finally` and `with` blocks run immediately, and must not await. A
scope cancels the tasks that were started in it, so a task never outlives the `with` block that needed it.

This is not asyncio: a task that awaits an asyncio coroutine fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")

Story = Callable[[], Coroutine[Any, Any, T]]
"""A function that returns the coroutine of a task. It is called when the task first runs."""

MAX_STEPS = 1_000
"""Largest number of task steps in one call of `run`; the next call continues (our choice)."""
_SPARE_MOMENTS = 64
"""Number of planned Moments above which the ones no longer awaited are removed (our choice)."""


class StoppedError(Exception):
    """An awaited task was cancelled."""


class Wait(Generic[T]):
    """Something that completes once, with a value or an error. `what` describes it for `Tasks.lines`."""

    __slots__ = ("_calls", "_error", "_value", "is_done", "is_taken", "what")

    def __init__(self, what: str) -> None:
        self.what: str = what
        self.is_done: bool = False
        """True if the Wait has its value or its error."""
        self.is_taken: bool = False
        """True if the value or the error has been taken."""
        self._value: T | None = None
        self._error: Exception | None = None
        self._calls: list[Callable[[], object]] = []

    def __await__(self) -> Generator[Wait[Any], None, T]:
        if not self.is_done:
            yield self
        return self.result()

    def result(self) -> T:
        """Return the value, or raise the error. The Wait must have completed."""
        assert self.is_done
        self.is_taken = True
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def set(self, value: T) -> None:
        """Complete the Wait with a value. Only the first value or error counts."""
        self._come(value, None)

    def fail(self, error: Exception) -> None:
        """Complete the Wait with an error, which is raised at the `await`."""
        self._come(None, error)

    def then(self, call: Callable[[], object]) -> None:
        """Call a function when the Wait completes, or now if it already has."""
        if self.is_done:
            call()
        else:
            self._calls.append(call)

    def forget(self, call: Callable[[], object]) -> None:
        """Undo `then`."""
        if call in self._calls:
            self._calls.remove(call)

    @property
    def is_awaited(self) -> bool:
        """True if anything is waiting for it. Otherwise, it need not complete."""
        return bool(self._calls)

    def _come(self, value: T | None, error: Exception | None) -> None:
        if not self.is_done:
            self.is_done, self._value, self._error = True, value, error
            calls, self._calls = self._calls, []
            for call in calls:
                call()


class First(Wait[None]):
    """Waits until one of several Waits completes. The `is_done` of each shows which one it was."""

    __slots__ = ("waits",)

    def __init__(self, *waits: Wait[Any]) -> None:
        super().__init__(" or ".join(wait.what for wait in waits))
        self.waits: tuple[Wait[Any], ...] = waits
        """The Waits. Only the first one to complete counts."""

    def then(self, call: Callable[[], object]) -> None:
        """Call a function when one of the Waits completes, or now if one already has."""
        for wait in () if self.is_awaited else self.waits:
            if not self.is_done:
                wait.then(self._one_came)
        super().then(call)

    def forget(self, call: Callable[[], object]) -> None:
        """Undo `then`."""
        super().forget(call)
        if not self.is_awaited:
            self._let_go()

    def _one_came(self) -> None:
        self._let_go()
        self.set(None)

    def _let_go(self) -> None:
        for wait in self.waits:
            wait.forget(self._one_came)


class Moment(Wait[None]):
    """A point in time. It is reached in the first step at or after that time, if anything is waiting for it."""

    __slots__ = ("_tasks", "at", "is_planned")

    def __init__(self, tasks: Tasks, at: float) -> None:
        super().__init__(f"the time {at:.1f} s")
        self._tasks = tasks
        self.at: float = at
        """Monotonic seconds."""
        self.is_planned: bool = False
        """True if it is among the planned Moments of `Tasks`."""

    def then(self, call: Callable[[], object]) -> None:
        """Call a function when the time comes."""
        super().then(call)
        if not self.is_done and not self.is_planned:
            self._tasks.plan(self)


class Change:
    """A change that tasks can wait for. It may be announced many times."""

    def __init__(self, what: str) -> None:
        self.what: str = what
        self.waiting: dict[Announced[Any], None] = {}
        """The Waits for an announcement, oldest first."""

    def next(self) -> Announced[bool]:
        """Wait for the next announcement."""
        return self.until(lambda: True)

    def until(self, find: Callable[[], T | None]) -> Announced[T]:
        """Wait for the next announcement at which `find` returns something other than None or False.

        The value is the result of `find`, which is called at each announcement and must not change anything.
        """
        return Announced(self, find)

    def announce(self) -> None:
        """Announce that the change has happened, and ask each waiter whether it may continue."""
        for wait in list(self.waiting):
            if wait.is_awaited and (found := wait.find()) is not None and found is not False:
                wait.forget_change()
                wait.set(found)


class Announced(Wait[T]):
    """A Wait for an announcement of a Change."""

    __slots__ = ("_change", "find")

    def __init__(self, change: Change, find: Callable[[], T | None]) -> None:
        super().__init__(change.what)
        self._change = change
        self.find: Callable[[], T | None] = find
        """Function that returns the value, or None or False if the wait continues."""

    def then(self, call: Callable[[], object]) -> None:
        """Call a function at the announcement."""
        super().then(call)
        if not self.is_done:
            self._change.waiting[self] = None

    def forget(self, call: Callable[[], object]) -> None:
        """Undo `then`."""
        super().forget(call)
        if not self.is_awaited:
            self.forget_change()

    @property
    def is_expected(self) -> bool:
        """True if the next announcement will call `find`."""
        return self in self._change.waiting

    def forget_change(self) -> None:
        """Stop waiting for announcements."""
        self._change.waiting.pop(self, None)


class Task(Wait[T]):
    """A running coroutine, which is also a Wait for its result."""

    __slots__ = (
        "_coroutine",
        "_failed",
        "_story",
        "_tasks",
        "is_running",
        "is_stopping",
        "parent",
        "shields",
        "since",
        "waits",
    )

    def __init__(self, tasks: Tasks, story: Story[T], what: str, failed: Callable[[Exception], object] | None) -> None:
        super().__init__(what)
        self._tasks, self._story, self._failed = tasks, story, failed
        self._coroutine: Coroutine[Any, Any, T] | None = None
        self.parent: Task[Any] | None = tasks.current
        """The task that started this one, or None."""
        self.waits: Wait[Any] | None = None
        """The Wait at which it stopped; None if it is ready, is running or has ended."""
        self.since: float = tasks.now
        """When it started waiting (monotonic seconds)."""
        self.is_running: bool = False
        """True during its step."""
        self.is_stopping: bool = False
        """True if it was cancelled while it ran or was shielded."""
        self.shields: int = 0
        """Number of `shield` blocks that it is in."""

    def cancel(self) -> None:
        """End the task where it waits. If it is running or shielded, it ends at its next unshielded `await`."""
        if self.is_done:
            return
        self.is_stopping = self.is_running or self.shields > 0
        if not self.is_stopping:
            if self.waits is not None:
                self.waits.forget(self._continue)
            if self._coroutine is not None:
                self._coroutine.close()  # raises RuntimeError if it awaits in `finally`
            self._end(None, StoppedError(self.what))

    def step(self) -> None:
        """Run until the next Wait that has not completed."""
        if self.is_done:
            return  # cancelled after it became ready
        self.waits, self.is_running = None, True
        before, self._tasks.current = self._tasks.current, self
        try:
            if self._coroutine is None:
                self._coroutine = self._story()
            wait = self._coroutine.send(None)
        except StopIteration as end:
            self._end(end.value, None)
        except Exception as error:
            self._end(None, error)
        else:
            self.is_running, self.waits, self.since = False, wait, self._tasks.now
            if self.is_stopping and not self.shields:
                self.cancel()
            else:
                wait.then(self._continue)
        finally:
            self.is_running, self._tasks.current = False, before

    def _continue(self) -> None:
        self._tasks.ready.append(self)

    def _end(self, value: T | None, error: Exception | None) -> None:
        self.waits = None
        self._tasks.all.pop(self, None)
        is_awaited = self.is_awaited
        self._come(value, error)
        if error is not None and not is_awaited and not isinstance(error, StoppedError):
            if self._failed is None:
                raise error  # a bug, since nothing expects an error
            self._failed(error)


class Scope:
    """The tasks that were started in a `with` block. At its end, the remaining ones are cancelled."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._children: list[Task[Any]] = []

    def __enter__(self) -> Scope:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        failed = [child for child in self._children if child.is_done and not child.is_taken]
        for child in reversed(self._children):
            child.cancel()
        for child in failed if kind is None else ():
            with suppress(StoppedError):
                child.result()

    def begin(self, story: Story[T], what: str) -> Task[T]:
        """Start a task. Its error is raised where the task is awaited, otherwise at the end of the `with` block."""
        child = self._tasks.begin(story, what, lambda error: None)
        self._children.append(child)
        return child


class Tasks:
    """All tasks of an engine."""

    def __init__(self) -> None:
        self.now: float = 0.0
        """Monotonic seconds of the current step."""
        self.all: dict[Task[Any], None] = {}
        """Tasks that have not ended, the oldest first."""
        self.current: Task[Any] | None = None
        """The task that is running, or None."""
        self.ready: deque[Task[Any]] = deque()
        """Tasks that the next `run` continues."""
        self._moments: list[tuple[float, int, Moment]] = []
        self._numbers = count()
        self._most_moments = _SPARE_MOMENTS

    def begin(self, story: Story[T], what: str, failed: Callable[[Exception], object] | None = None) -> Task[T]:
        """Start a task at the next `run`. `failed` is called with the task's error if no other task awaits it."""
        task = Task(self, story, what, failed)
        self.all[task] = None
        self.ready.append(task)
        return task

    def scope(self) -> Scope:
        """Return a scope for child tasks."""
        return Scope(self)

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Context manager that defers cancellation of the running task until the end of its `with` block."""
        assert self.current is not None
        task = self.current
        task.shields += 1
        try:
            yield
        finally:
            task.shields -= 1

    # Time

    def at(self, moment: float) -> Moment:
        """Wait until a given time (monotonic seconds). If it is in the past, the Wait completes in the next step."""
        return Moment(self, moment)

    async def within(self, seconds: float, story: Story[T], what: str) -> T:
        """Run a task with a time limit, and return its result. Raises TimeoutError if the time is up."""
        with self.scope() as scope:
            task = scope.begin(story, what)
            await First(task, self.at(self.now + seconds))
            if not task.is_done:
                raise TimeoutError(what)
            return task.result()

    def plan(self, moment: Moment) -> None:
        """Schedule a time that something waits for."""
        if len(self._moments) >= self._most_moments:  # a task may wait with a timeout repeatedly
            for *_, each in self._moments:
                each.is_planned = each.is_awaited
            self._moments = [each for each in self._moments if each[2].is_planned]
            heapify(self._moments)
            self._most_moments = 2 * len(self._moments) + _SPARE_MOMENTS
        moment.is_planned = True
        heappush(self._moments, (moment.at, next(self._numbers), moment))

    def tick(self, now: float) -> None:
        """Begin a step at the time `now` (monotonic seconds), and complete the Waits for all times up to then."""
        self.now = now
        come = list[Moment]()
        while self._moments and self._moments[0][0] <= now:
            come.append(heappop(self._moments)[2])
        for moment in come:
            moment.is_planned = False
            if moment.is_awaited:
                moment.set(None)

    @property
    def next_at(self) -> float:
        """When the next step is needed (monotonic seconds); infinity if no task is ready or waits for a time."""
        while self._moments and not self._moments[0][2].is_awaited:
            heappop(self._moments)[2].is_planned = False
        return self.now if self.ready else self._moments[0][0] if self._moments else inf

    # Steps

    def run(self) -> None:
        """Continue the tasks whose Wait has completed, until none are left or the call has done enough."""
        if self.current is not None:
            return  # called by a task: the tasks that it made ready run after its step
        for _ in range(MAX_STEPS):
            if not self.ready:
                return
            self.ready.popleft().step()

    def lines(self) -> Iterator[str]:
        """Describe what each task is waiting for, and since when. Children are indented."""
        for task in self.all:
            depth, parent = 0, task.parent
            while parent is not None:
                depth, parent = depth + 1, parent.parent
            waits = "is ready" if task.waits is None else f"waits for {task.waits.what}"
            yield f"{'  ' * depth}{task.what}: {waits}, {self.now - task.since:.1f} s"

"""Tasks of the engine: order, cancellation, scopes, errors, time."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.light.engine import tasks as module
from spvfilter.light.engine.tasks import Change, First, StoppedError, Story, Task, Tasks, Wait
from support.held import most_held


def begun(tasks: Tasks, story: Story[Any], what: str = "story") -> Task[Any]:
    task = tasks.begin(story, what)
    tasks.run()
    return task


def step(tasks: Tasks, now: float) -> None:
    tasks.tick(now)
    tasks.run()


async def give(wait: Wait[Any], told: list[object], name: object) -> None:
    told.append((name, await wait))


def test_tasks_continue_in_the_order_of_their_waits() -> None:
    tasks, told = Tasks(), list[object]()
    waits = [Wait[int](str(number)) for number in range(3)]
    for number in range(3):
        begun(tasks, partial(give, waits[number], told, number))
    for number in (2, 0, 1):
        waits[number].set(number)
    tasks.run()
    assert told == [(2, 2), (0, 0), (1, 1)]
    assert not tasks.all


def test_an_error_is_raised_at_the_await() -> None:
    tasks, failed, wait = Tasks(), list[Exception](), Wait[int]("a number")
    tasks.begin(partial(give, wait, [], 1), "handled", failed.append)
    tasks.run()
    wait.fail(ValueError("lie"))
    tasks.run()
    assert [*map(str, failed)] == ["lie"]
    later = Wait[int]("another")
    begun(tasks, partial(give, later, [], 1))
    later.fail(ValueError("bug"))
    with pytest.raises(ValueError, match="bug"):
        tasks.run()


def test_a_cancelled_task_runs_its_finally_immediately() -> None:
    tasks, told, wait = Tasks(), list[object](), Wait[int]("a number")

    async def story() -> None:
        try:
            await First(wait, tasks.at(5.0))
            told.append("came")
        finally:
            told.append("over")

    task = begun(tasks, story)
    assert tasks.next_at == 5.0
    task.cancel()
    assert told == ["over"]
    assert not wait.is_awaited
    assert tasks.next_at == inf
    wait.set(1)
    step(tasks, 6.0)
    assert told == ["over"]


def test_a_task_cancelled_before_its_first_step_never_runs() -> None:
    tasks, told = Tasks(), list[object]()
    task = tasks.begin(partial(give, Wait[int]("a number"), told, "name"), "story")
    task.cancel()
    tasks.run()
    assert task.is_done
    assert not tasks.all
    assert told == []


def test_a_task_that_cancels_itself_ends_at_its_next_await() -> None:
    tasks, told = Tasks(), list[str]()

    async def story() -> None:
        task.cancel()
        told.append("the step is finished")
        await Wait[int]("never")
        told.append("not reached")

    task = tasks.begin(story, "story")
    tasks.run()
    assert told == ["the step is finished"]
    assert task.is_done


def test_a_finally_that_awaits_is_a_bug() -> None:
    tasks = Tasks()

    async def story() -> None:
        try:
            await Wait[int]("never")
        finally:
            await Wait[int]("never either")

    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        begun(tasks, story).cancel()


def test_a_scope_ends_its_children() -> None:
    tasks, told, never = Tasks(), list[object](), Wait[int]("never")
    children: list[Task[Any]] = []

    async def parent() -> None:
        with tasks.scope() as scope:
            children.extend(scope.begin(partial(give, never, told, name), name) for name in "ab")
            try:
                await children[0]
            except StoppedError:
                told.append("stopped")

    begun(tasks, parent, "parent")
    assert [*tasks.lines()] == [
        "parent: waits for a, 0.0 s",
        "  a: waits for never, 0.0 s",
        "  b: waits for never, 0.0 s",
    ]
    children[0].cancel()
    tasks.run()
    assert told == ["stopped"]
    assert children[1].is_done
    assert not tasks.all


def test_a_scope_raises_errors_that_nobody_awaited() -> None:
    tasks, failed, waits = Tasks(), list[Exception](), [Wait[int](name) for name in "ab"]

    async def parent() -> None:
        with tasks.scope() as scope:
            scope.begin(partial(give, waits[0], [], "a"), "a")
            await scope.begin(partial(give, waits[1], [], "b"), "b")

    tasks.begin(parent, "parent", failed.append)
    tasks.run()
    waits[0].fail(ValueError("bug"))
    tasks.run()
    assert not failed
    waits[1].set(1)
    tasks.run()
    assert [*map(str, failed)] == ["bug"]


def test_moments_come_in_order_and_changes_ask_their_waiters() -> None:
    tasks, told, change, height = Tasks(), list[object](), Change("the tip to move"), [0]
    for moment in (3.0, 1.0, 2.0):
        begun(tasks, partial(give, tasks.at(moment), told, moment))
    begun(tasks, partial(give, change.until(lambda: height[0] if height[0] > 2 else None), told, "height"))
    assert tasks.next_at == 1.0
    for now in (2.5, 3.5):
        height[0] = int(now)
        change.announce()
        step(tasks, now)
    assert [each for each in told if each != ("height", 3)] == [(1.0, None), (2.0, None), (3.0, None)]
    assert ("height", 3) in told
    assert not change.waiting


def test_a_wait_that_is_held_for_later_is_not_lost() -> None:
    """Its moment passes, its change is announced, or one of several comes while the task waits for something else."""
    tasks, told, change, other = Tasks(), list[object](), Change("a change"), Wait[int]("other")

    async def story() -> None:
        deadline, either, announced = tasks.at(5.0), First(other, tasks.at(9.0)), change.next()
        await tasks.at(6.0)
        await deadline
        told.append(tasks.now)
        await either
        told.append("either")
        await announced
        told.append("announced")

    begun(tasks, story)
    other.set(1)
    change.announce()
    assert tasks.next_at == 6.0
    step(tasks, 6.0)
    assert told == []
    assert tasks.next_at == 5.0
    step(tasks, 6.0)
    assert told == [6.0, "either"]
    change.announce()
    tasks.run()
    assert told == [6.0, "either", "announced"]


def test_a_step_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that waits for the present moment continues in the next step, and too many steps wait for it, too."""
    monkeypatch.setattr(module, "MAX_STEPS", 10)
    tasks, steps = Tasks(), [0]

    async def busy() -> None:
        while True:
            steps[0] += 1
            await tasks.at(tasks.now)

    for _ in range(25):
        tasks.begin(busy, "busy")
    for number in range(1, 4):
        assert tasks.next_at <= tasks.now
        step(tasks, 1.0)
        assert steps[0] == 10 * number


def test_a_task_that_takes_too_long_is_ended() -> None:
    tasks, told, waits = Tasks(), list[object](), [Wait[int](name) for name in "abc"]

    async def story(wait: Wait[int]) -> None:
        try:
            told.append(await tasks.within(5.0, partial(give, wait, told, wait.what), f"get {wait.what}"))
        except (TimeoutError, ValueError) as error:
            told.append(str(error))

    for wait in waits:
        begun(tasks, partial(story, wait))
    waits[0].set(1)
    waits[1].fail(ValueError("lie"))
    step(tasks, 4.9)
    step(tasks, 5.0)
    assert told == [("a", 1), None, "lie", "get c"]
    assert not tasks.all
    assert not waits[2].is_awaited


def test_many_timeouts_leave_few_moments_behind() -> None:
    tasks, change = Tasks(), Change("a message")

    async def story() -> None:
        while True:
            await First(change.next(), tasks.at(tasks.now + 1_000.0))

    begun(tasks, story)
    for number in range(1_000):
        tasks.tick(number / 100)
        change.announce()
        tasks.run()
    assert most_held(tasks) <= 70
    assert tasks.next_at == pytest.approx(1_009.99)


def test_a_shielded_block_is_not_cut_short() -> None:
    tasks, told, commit = Tasks(), list[str](), Wait[None]("a commit")

    async def story() -> None:
        with tasks.shield():
            await commit
            told.append("applied")
        await Wait[None]("never")
        told.append("not reached")

    task = begun(tasks, story)
    task.cancel()
    assert not task.is_done
    commit.set(None)
    tasks.run()
    assert told == ["applied"]
    assert task.is_done


@given(st.lists(st.tuples(st.sampled_from("bcsat"), st.integers(0, 9)), max_size=60))
def test_nothing_is_left_behind_whatever_comes_first(actions: list[tuple[str, int]]) -> None:
    """Random tasks begin, are cancelled, and get values, announcements and moments: at the end, no Wait is awaited."""
    tasks, change, all_ = Tasks(), Change("a change"), list[Task[Any]]()
    waits = [Wait[int](str(number)) for number in range(10)]

    async def story(number: int) -> int:
        with tasks.scope() as scope:
            child = scope.begin(partial(give, waits[number], [], number), "child")
            await First(child, change.next(), tasks.at(tasks.now + number))
            return await waits[-number]

    for action, number in actions:
        match action:
            case "b":
                all_.append(tasks.begin(partial(story, number), "story"))
            case "c" if number < len(all_):
                all_[number].cancel()
            case "s":
                waits[number].set(number)
            case "a":
                change.announce()
            case _:
                tasks.tick(tasks.now + number)
        tasks.run()
        for task in tasks.all:
            assert task.waits is None or (task.waits.is_awaited and not task.waits.is_done)
    for task in list(tasks.all):
        task.cancel()
    tasks.run()
    assert not tasks.all
    assert not change.waiting
    assert tasks.next_at == inf
    assert not any(wait.is_awaited for wait in waits)

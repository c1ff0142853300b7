"""Stories: each task of the engine waits for something that can come, and may be cancelled at any await."""

from __future__ import annotations

import gc
import random
from types import CellType, MethodType
from typing import Any

from simulation.host import EngineLike, Make
from simulation.violation import Violation
from spvfilter.light.engine import filterquestions
from spvfilter.light.engine.effects import Effect
from spvfilter.light.engine.inputs import Input, Instant, Tick
from spvfilter.light.engine.outbox import COMMIT
from spvfilter.light.engine.tasks import Announced, First, Moment, Task, Tasks, Wait
from support.client.engineparts import context_of

_STOPS = 0.05
"""Share of the steps after which a task is cancelled."""
_STOPS_AT_COMMIT = 0.5
"""Share of the steps after which a task that waits for a commit is cancelled. Few steps have one."""
_HOLDERS = (MethodType, CellType, tuple)
"""Stored calls, which set a wait."""
_QUESTIONS = filterquestions.__name__
"""The module of open questions, which also set a wait, and are dropped with their peer."""


def check_stories(engine: EngineLike) -> None:
    """Alive: no task of the engine waits for something that cannot come. Raises Violation."""
    tasks = context_of(engine).tasks
    for task in tasks.all:
        if task.waits is not None and not _may_come(tasks, task.waits):
            raise Violation("alive", f"the story {task.what} waits for {task.waits.what}, which cannot come")


def _may_come(tasks: Tasks, wait: Wait[Any]) -> bool:
    """Return True if a wait may still come: its class knows, or something that sets it refers to it."""
    match wait:
        case Task():
            return wait in tasks.all
        case Moment():
            return wait.is_planned
        case Announced():
            return wait.is_expected
        case First(waits=waits):
            return any(_may_come(tasks, each) for each in waits)
        case _:
            holders = gc.get_referrers(wait)
            return any(isinstance(each, _HOLDERS) or type(each).__module__ == _QUESTIONS for each in holders)


def stopping(make: Make, rng: random.Random) -> Make:
    """Make engines whose tasks are cancelled after random steps. Their owners must begin them again."""

    def made(*arguments: Any) -> EngineLike:
        engine = make(*arguments)
        true = engine.step

        def step(event: Input, now: Instant) -> list[Effect]:
            effects = true(event, now)
            tasks = context_of(engine).tasks
            storing = [task for task in tasks.all if task.waits is not None and task.waits.what == COMMIT]
            if (storing and rng.random() < _STOPS_AT_COMMIT) or (tasks.all and rng.random() < _STOPS):
                rng.choice(storing or list(tasks.all)).cancel()
                context_of(engine).changed()
                effects += true(Tick(), now)
            return effects

        setattr(engine, "step", step)  # noqa: B010
        return engine

    return made

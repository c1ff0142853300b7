"""Work in a thread, which a task awaits even if the task is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Concatenate, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class WorkStoppedError(Exception):
    """An internal error: work in a thread was stopped because the task that waits for it was cancelled."""


def until(items: Iterable[_T], is_stopped: Callable[[], bool]) -> Iterator[_T]:
    """Yield the items. Raises WorkStoppedError before the first item for which `is_stopped` returns True."""
    for item in items:
        if is_stopped():
            raise WorkStoppedError
        yield item


async def to_its_end(call: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> _T:
    """Call a function in a thread and wait until it returns, even if this task is cancelled.

    A directory or a watch list that the thread changes must not be released earlier.
    """
    return await _result(asyncio.ensure_future(asyncio.to_thread(call, *args, **options)), lambda: None)


async def stoppable(
    call: Callable[Concatenate[Callable[[], bool], _P], _T], *args: _P.args, **options: _P.kwargs
) -> _T:
    """Call a function in a thread as `to_its_end` does, for work that takes a long time.

    Its first argument is a function that returns True once this task is cancelled.
    """
    stopped = threading.Event()
    working = asyncio.ensure_future(asyncio.to_thread(call, stopped.is_set, *args, **options))
    return await _result(working, stopped.set)


async def _result(working: asyncio.Future[_T], stop: Callable[[], None]) -> _T:
    """Return the result of work in a thread.

    If the task is cancelled, it calls `stop` and waits until the work ends.
    """
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        stop()
        while not working.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([working])
        if not working.cancelled():
            working.exception()  # otherwise asyncio would warn about the error; the cancellation is raised instead
        raise

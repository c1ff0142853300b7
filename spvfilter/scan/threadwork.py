"""Work in a thread that a cancelled task waits for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from spvfilter._public import deferred

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def to_its_end(call: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> _T:
    """Call a function in a thread and wait until it returns, even if this task is cancelled.

    A directory or a watch list that the thread changes must not be released before that.
    """
    working = asyncio.ensure_future(asyncio.to_thread(call, *args, **options))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        while not working.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([working])
        if not working.cancelled():
            working.exception()  # else asyncio would warn about it; the cancellation is raised instead
        raise

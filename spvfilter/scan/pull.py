"""Turn a plain iterable into an asynchronous one. Its `next` is called in a daemon thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, TypeVar

from spvfilter._public import deferred

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

T = TypeVar("T")
_END = object()
_PARTING_S = 0.1  # seconds that closing waits for next() (our choice)


async def pull(items: Iterable[T]) -> AsyncGenerator[T]:
    """Yield the items; each one is requested only when it is needed.

    `next` may block for ever, on a terminal or a pipe. Its thread is a daemon: the process can exit meanwhile, and
    closing the generator waits for the thread only a moment.
    """
    loop = asyncio.get_running_loop()
    iterator = iter(items)
    asked: queue.SimpleQueue[asyncio.Future[object] | None] = queue.SimpleQueue()

    def serve() -> None:
        while (answer := asked.get()) is not None:
            item, error = _next(iterator)
            try:
                loop.call_soon_threadsafe(_settle, answer, item, error)
            except RuntimeError:  # the loop is closed, so nothing waits for the item
                return

    thread = threading.Thread(target=serve, name="spvfilter-next", daemon=True)
    thread.start()
    try:
        while True:
            answer: asyncio.Future[object] = loop.create_future()
            asked.put(answer)
            if (item := await answer) is _END:
                return
            yield item  # type: ignore[misc]  # it is an item, not _END
    finally:
        asked.put(None)
        await asyncio.to_thread(thread.join, _PARTING_S)


def _next(iterator: object) -> tuple[object, BaseException | None]:
    """The next item or _END, and the error if `next` raised one."""
    try:
        return next(iterator, _END), None  # type: ignore[call-overload]  # the iterator has items of any type
    except BaseException as error:
        return _END, error


def _settle(answer: asyncio.Future[object], item: object, error: BaseException | None) -> None:
    """Pass an item or an error to the coroutine that waits for it."""
    if answer.done():  # cancelled meanwhile
        return
    if error is None:
        answer.set_result(item)
    else:
        answer.set_exception(error)

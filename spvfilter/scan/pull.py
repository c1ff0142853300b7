"""Plain iterables as asynchronous ones: `next` is called in a daemon thread."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")
_END = object()
_PARTING_S = 0.1  # seconds that closing waits for next() (our choice)


async def pull(items: Iterable[T]) -> AsyncGenerator[T]:
    """Yield the items. Each is requested only when it is needed.

    `next` may block forever, on a terminal or a pipe. Its thread is a daemon, so the process can exit while the thread
    works. Closing the generator waits only briefly for the thread.
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


async def pull_ahead(items: Iterable[T], weight: Callable[[T], int], most: int = 1_000_000) -> AsyncGenerator[T]:
    """Yield the items. A daemon thread requests them in advance, up to `most` bytes.

    This is faster than `pull` for small items, because requested items are yielded without switching threads.

    Args:
        items: The items. Their `next` may wait forever.
        weight: Function that returns the size of an item in bytes.
        most: Largest size, in bytes, of the items that are requested in advance.
    """
    buffer = _Buffer[T](asyncio.get_running_loop(), most)
    thread = threading.Thread(target=buffer.fill, args=(items, weight), name="spvfilter-next", daemon=True)
    thread.start()
    try:
        while some := await buffer.take():
            for item in some:
                yield item
    finally:
        buffer.close()
        await asyncio.to_thread(thread.join, _PARTING_S)


class _Buffer(Generic[T]):
    """Items that a thread has requested and a coroutine has not taken yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._loop = loop
        self._most = most
        self._items: list[T] = []
        self._bytes = 0
        self._error: BaseException | None = None
        self._is_ended = self._is_closed = False
        self._changed = threading.Condition()
        self._news = asyncio.Event()

    def fill(self, items: Iterable[T], weight: Callable[[T], int]) -> None:
        """Request items until they end or `close` is called. This runs in the thread."""
        error: BaseException | None = None
        try:
            for item in items:
                if not self._add(item, weight(item)):
                    return
        except BaseException as raised:
            error = raised
        with self._changed:
            self._is_ended, self._error = True, error
            self._tell()

    def _add(self, item: T, size: int) -> bool:
        """Add an item, then wait while the buffer holds `most` bytes or more. Return False if the buffer is closed."""
        with self._changed:
            self._items.append(item)
            self._bytes += size
            if len(self._items) == 1:
                self._tell()
            self._changed.wait_for(lambda: self._is_closed or self._bytes < self._most)
            return not self._is_closed

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing waits for the item
            self._loop.call_soon_threadsafe(self._news.set)

    async def take(self) -> list[T]:
        """Wait for items, remove all of them from the buffer and return them.

        An empty list means the end. If an error ended the items, raises that error.
        """
        while True:
            with self._changed:
                if self._items or self._is_ended:
                    some, self._items, self._bytes = self._items, [], 0
                    self._changed.notify()
                    if not some and self._error is not None:
                        raise self._error
                    return some
                self._news.clear()
            await self._news.wait()

    def close(self) -> None:
        """Make the thread end at its next item."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()


def _next(iterator: object) -> tuple[object, BaseException | None]:
    """Return the next item of an iterator, or _END, and the error if `next` raised one."""
    try:
        return next(iterator, _END), None  # type: ignore[call-overload]  # the iterator has items of any type
    except BaseException as error:
        return _END, error


def _settle(answer: asyncio.Future[object], item: object, error: BaseException | None) -> None:
    """Pass an item or an error to the coroutine that waits for it."""
    if answer.done():  # cancelled in the meantime
        return
    if error is None:
        answer.set_result(item)
    else:
        answer.set_exception(error)

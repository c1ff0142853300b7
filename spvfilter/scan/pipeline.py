"""Batches of work through threads: several are worked on at once, each is merged in its turn, and the event loop takes the results."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from spvfilter._public import deferred
from spvfilter.kernel import ReadBuffer

if TYPE_CHECKING:
    import asyncio
    from concurrent import futures
else:
    futures = deferred("concurrent.futures")
    asyncio = deferred("asyncio")

B = TypeVar("B")
R = TypeVar("R")
T = TypeVar("T")


class Pipeline(Generic[B, R]):
    """`jobs` threads that take batches from a queue. To be made, fed and iterated on one event loop, once.

    `work` is called with a batch in any thread, `merge` in the order of the batches and never twice at once, by whichever thread has
    finished the batch that is next: it merges those behind it too that were waiting, so no thread waits for another. Each call is given
    the thread's own buffer. What `merge` returns is a result, None nothing to tell; the threads are at most one batch further than
    `jobs` ahead of whoever takes the results. What either raises is raised where the batch is due, and ends the pipeline.
    """

    def __init__(self, jobs: int, work: Callable[[B, ReadBuffer], None], merge: Callable[[B, ReadBuffer], R | None]) -> None:
        self._jobs = jobs
        self._work = work
        self._merge = merge
        self._fed = 0  # batches
        self._todo: queue.SimpleQueue[tuple[int, B] | None] = queue.SimpleQueue()
        self._free = threading.Semaphore(jobs + 1)  # batches that may be begun before another result is taken
        self._turn = threading.Lock()  # of the one thread that merges and changes the next two
        self._ready: dict[int, B | BaseException] = {}  # worked on, by number
        self._next = 0  # the number of the batch that is merged next
        self._end: int | None = None  # the number of batches, once it is known
        self._results: deque[R | BaseException | None] = deque()  # None is the end
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()  # there may be results
        self.closing = False
        self._threads = futures.ThreadPoolExecutor(jobs, "spvfilter-scan")
        for _ in range(jobs):
            self._threads.submit(self._run)

    def put(self, batch: B) -> None:
        self._todo.put((self._fed, batch))
        self._fed += 1

    def finish(self) -> None:
        """No batch will come any more."""
        with self._turn:
            self._end = self._fed
            if self._next == self._end:
                self.tell(None)
        for _ in range(self._jobs):
            self._todo.put(None)

    async def results(self) -> AsyncGenerator[R]:
        """What the batches gave, in their order, until the last of them is merged."""
        while True:
            while not self._results:
                await self._more.wait()
                self._more.clear()
            match self._results.popleft():
                case None:
                    return
                case BaseException() as error:
                    raise error
                case result:
                    self._free.release()
                    yield result

    async def in_thread(self, call: Callable[..., T], *args: object) -> T:
        """A call in one of the threads, after the last result."""
        return await self._loop.run_in_executor(self._threads, call, *args)

    def close(self) -> None:
        """Wait for the calls in progress; there will be no others."""
        self.closing = True
        for _ in range(self._jobs):
            self._todo.put(None)
            self._free.release()
        self._threads.shutdown(cancel_futures=True)

    def _run(self) -> None:
        buffer = ReadBuffer()
        while True:
            self._free.acquire()
            task = self._todo.get()
            if task is None or self.closing:
                self._free.release()
                return
            number, batch = task
            done: B | BaseException = batch
            try:
                self._work(batch, buffer)
            except BaseException as error:
                done = error
            with self._turn:
                self._ready[number] = done
                self._merge_ready(buffer)

    def _merge_ready(self, buffer: ReadBuffer) -> None:
        while not self.closing and (done := self._ready.pop(self._next, None)) is not None:
            if isinstance(done, BaseException):
                self.tell(done)
                return
            try:
                result = self._merge(done, buffer)
            except BaseException as error:
                self.tell(error)
                return
            self._next += 1
            if result is None:
                self._free.release()
            else:
                self.tell(result)
        if self._next == self._end:
            self.tell(None)

    def tell(self, result: R | BaseException | None) -> None:
        """Give the loop a result, of a batch whose merge then raises; or an error, or the end."""
        self._results.append(result)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any longer
            self._loop.call_soon_threadsafe(self._more.set)

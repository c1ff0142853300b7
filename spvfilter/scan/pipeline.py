"""A pipeline of batches: threads process several batches at a time, and merge them in order for the event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent import futures
from contextlib import suppress
from typing import Generic, TypeVar

from spvfilter.kernel import ReadBuffer

B = TypeVar("B")
R = TypeVar("R")
T = TypeVar("T")


class Pipeline(Generic[B, R]):
    """Threads that take batches from a queue. One event loop creates, feeds and iterates the pipeline, once.

    - `work(batch, buffer)` is called for several batches at the same time.
    - `merge(batch, buffer)` is called for one batch at a time, in order. Its result is passed on unless it is
      None.

    The thread that completes the next batch in order merges it and the completed batches after it. No thread waits for
    another thread. Each thread has its own buffer. At most jobs + 1 batches have results that have not been taken yet.
    An error in either call is raised instead of the batch's result, and ends the pipeline.
    """

    def __init__(
        self, jobs: int, work: Callable[[B, ReadBuffer], None], merge: Callable[[B, ReadBuffer], R | None]
    ) -> None:
        self._jobs = jobs
        self._work = work
        self._merge = merge
        self._fed = 0  # number of batches added so far
        self._todo: queue.SimpleQueue[tuple[int, B] | None] = queue.SimpleQueue()
        self._free = threading.Semaphore(jobs + 1)  # batches that may be started before another result is taken
        self._turn = threading.Lock()  # Held by the thread that merges. It guards the next three attributes.
        # Batches that have been completed but not merged, keyed by number.
        self._ready: dict[int, B | BaseException] = {}
        self._next = 0  # Number of the batch to merge next.
        self._end: int | None = None  # Number of batches, once it is known.
        self._results: deque[R | BaseException | None] = deque()  # Results; None marks the end.
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()  # Set when there may be results.
        self.closing: bool = False
        self._threads = futures.ThreadPoolExecutor(jobs, "spvfilter-scan")
        for _ in range(jobs):
            self._threads.submit(self._run)

    def put(self, batch: B) -> None:
        """Add a batch to the queue."""
        self._todo.put((self._fed, batch))
        self._fed += 1

    def finish(self) -> None:
        """Announce that there are no more batches."""
        with self._turn:
            self._end = self._fed
            if self._next == self._end:
                self.tell(None)
        for _ in range(self._jobs):
            self._todo.put(None)

    async def results(self) -> AsyncGenerator[R]:
        """Yield the results in the order of the batches, until the last batch is merged."""
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
        """Call a function in one of the threads and return its result.

        Use this only after the last result, because the threads are busy until then.
        """
        return await self._loop.run_in_executor(self._threads, call, *args)

    def close(self) -> None:
        """Wait for the calls in progress. No further calls are made."""
        self.closing = True
        for _ in range(self._jobs):
            self._todo.put(None)
            self._free.release()
        self._threads.shutdown(cancel_futures=True)

    def _run(self) -> None:
        """Process batches until the pipeline ends. This is the body of a thread."""
        buffer = ReadBuffer()
        while True:
            self._free.acquire()
            task = self._todo.get()
            if task is None or self.closing:
                self._free.release()
                return
            self._process(*task, buffer)
            del task  # an idle thread holds no batch

    def _process(self, number: int, batch: B, buffer: ReadBuffer) -> None:
        """Process a batch, and merge what is ready."""
        done: B | BaseException = batch
        try:
            self._work(batch, buffer)
        except BaseException as error:
            done = error
        with self._turn:
            self._ready[number] = done
            self._merge_ready(buffer)

    def _merge_ready(self, buffer: ReadBuffer) -> None:
        """Merge the completed batches that are next in order."""
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
        """Pass on a result, an error, or None for the end.

        `merge` calls this to pass on its result before it raises an error.
        """
        self._results.append(result)
        with suppress(RuntimeError):  # the loop is closed, so nothing waits for results
            self._loop.call_soon_threadsafe(self._more.set)

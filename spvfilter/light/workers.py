"""Workers: the threads that all clients in a process share, and a queue of jobs for each database.

A client needs a thread only now and then, for a commit, a read, or a long calculation. With a thread for each client, a
service with hundreds of wallets would need hundreds of threads.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent import futures
from typing import TypeVar

T = TypeVar("T")

MAX_THREADS = 8
"""Largest number of threads in a process (our choice). While one thread is waiting for the disk, others commit."""
THREAD_NAME = "spvfilter-worker"
"""Prefix of the threads' names."""


class Workers:
    """The threads of a process, which exist while a job queue is open or a job is running."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._threads: futures.ThreadPoolExecutor | None = None

    def enter(self) -> futures.ThreadPoolExecutor:
        """Return the threads, and keep them until `leave`."""
        with self._lock:
            if self._threads is None:
                self._threads = futures.ThreadPoolExecutor(MAX_THREADS, THREAD_NAME)
            self._users += 1
            return self._threads

    def leave(self, threads: futures.ThreadPoolExecutor) -> None:
        """End the threads when their last user leaves."""
        with self._lock:
            if threads is not self._threads:  # the threads belong to the parent of this forked process
                return
            self._users -= 1
            if self._users:
                return
            self._threads = None
        threads.shutdown(wait=False)

    def join(self, threads: futures.ThreadPoolExecutor) -> None:
        """Wait until unused threads have ended, so that a later fork does not inherit one. This is almost instant."""
        if threads is not self._threads:
            threads.shutdown()

    def run(self, function: Callable[[], T]) -> futures.Future[T]:
        """Call a function in one of the threads, in any order."""
        threads = self.enter()
        try:
            future = threads.submit(function)
        except BaseException:
            self.leave(threads)
            raise
        future.add_done_callback(lambda _: self.leave(threads))
        return future

    def forget(self) -> None:
        """Start over without threads, in a forked child, because the threads exist only in its parent."""
        self._lock, self._users, self._threads = threading.Lock(), 0, None  # a parent's thread may hold the lock


# the module's only state: the limit applies to the process, no matter how many clients and event loops it has
WORKERS = Workers()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WORKERS.forget)


class JobQueue:
    """Jobs that use one database. They run in order, one at a time, each in any of the shared threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._is_running = False  # True if a thread is running a job, or is about to
        self._threads = WORKERS.enter()

    def submit(self, function: Callable[[], T]) -> futures.Future[T]:
        """Call a function after all functions submitted earlier. If its future is cancelled in time, it is not called.

        Raises RuntimeError once the interpreter is exiting.
        """
        future: futures.Future[T] = futures.Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            self._jobs.append(job)
            if not self._is_running:
                self._threads.submit(self._run)
                self._is_running = True
        return future

    def _run(self) -> None:
        """Run one job. The next job waits behind the jobs of other databases."""
        while True:
            self._jobs.popleft()()
            with self._lock:
                if not self._jobs:
                    self._is_running = False
                    return
                try:
                    self._threads.submit(self._run)
                    return
                except RuntimeError:  # the interpreter is exiting: this thread finishes what is waiting
                    pass

    async def end(self, last: Callable[[], object]) -> None:
        """Call `last` after all other functions, and wait for it. It is called even if the wait is cancelled."""
        doing = self.submit(last)
        doing.add_done_callback(lambda _: WORKERS.leave(self._threads))
        try:
            await asyncio.shield(asyncio.wrap_future(doing))
        finally:
            if doing.done():
                WORKERS.join(self._threads)

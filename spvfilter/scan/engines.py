"""Engines, which scan parts in threads or processes on this machine. They all give the same result."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

from spvfilter._public import public
from spvfilter.errors import ParameterError, SourceError
from spvfilter.kernel import BACKEND, WatchTable
from spvfilter.scan.coinfile import table_with_coins
from spvfilter.scan.partfile import BlockHits, PartFile, PartSummary, write_part
from spvfilter.scan.parts import PartTask
from spvfilter.scan.threadwork import to_its_end
from spvfilter.watch.compiled import ImagePlace, ReplacedListError, check_image, check_unchanged, image_of

MAX_WORKERS = 256  # largest number of threads or processes (our choice)
_ATTEMPTS = 3  # number of times that a part is scanned if its process dies (our choice)


@public
class Engine(ABC):
    """An engine that scans the parts of a PartScan."""

    width: int
    """Number of parts that the engine scans at the same time."""

    @abstractmethod
    async def begin(self, table: WatchTable) -> None:
        """Set the table of watched entries that later calls to `run` scan for."""

    @abstractmethod
    async def run(self, task: PartTask) -> PartSummary:
        """Scan a part and write its file, unless a complete file exists already.

        Raises OSError if a file cannot be read or written, and SourceError if the part cannot be scanned.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Stop running scans and release all resources."""


def run_task(task: PartTask, tables: Tables, is_stopped: Callable[[], bool] = lambda: False) -> PartSummary:
    """Write the file of a part, unless a complete file exists already, and return the part's summary.

    The same task always writes the same bytes.
    """
    done = finished(task.path, task.key)
    if done is not None:
        return done
    summary = PartSummary()
    write_part(task.path, task.key, tables.scanned(task, summary, is_stopped), summary)
    return summary


def finished(path: Path, key: bytes) -> PartSummary | None:
    """Return the summary of a part's file. If the part must be scanned again, remove the file and return None.

    A part is scanned again if something could not be read: a disk or a server may have been unavailable. Raises
    OSError.
    """
    summary = summary_of(path, key)
    if summary is not None and not summary.lacks:
        return summary
    path.unlink(missing_ok=True)
    return None


def summary_of(path: Path, key: bytes) -> PartSummary | None:
    """Return the summary of a part's file, or None if the file is missing, incomplete or has a different key.

    Raises OSError if the file cannot be read.
    """
    try:
        file = PartFile(path)
        return file.summary() if file.key == key else None
    except (FileNotFoundError, SourceError):
        return None


class Tables:
    """A table of watched entries, and a copy that also watches the outpoints in a file. Each is created only once."""

    def __init__(self, opened: Callable[[], WatchTable]) -> None:
        self._opened = opened
        self._table: WatchTable | None = None
        self._with_coins: tuple[Path, WatchTable] | None = None
        self._lock = threading.Lock()

    def get(self, coins: Path | None) -> WatchTable:
        """Return the table or, if `coins` is given, a copy that also watches the outpoints in that file."""
        with self._lock:
            if self._table is None:
                self._table = self._opened()
            if coins is None:
                return self._table
            if self._with_coins is None or self._with_coins[0] != coins:
                self._with_coins = coins, table_with_coins(self._table, coins)
            return self._with_coins[1]

    def scanned(self, task: PartTask, summary: PartSummary, is_stopped: Callable[[], bool]) -> Iterator[BlockHits]:
        """Yield the blocks of a part that have hits.

        Raises OSError if a file cannot be read. Raises SourceError if the part cannot be scanned, or if a compiled
        watch list was changed in place.
        """
        image = self.get(None).image()

        def is_over() -> bool:  # called before each batch
            check_image(image)
            return is_stopped()

        yield from task.scan(self.get(task.coins), summary, is_over)
        check_image(image)


@public
class Threads(Engine):
    """An engine that scans parts in threads, in parallel with the compiled kernel. The pure kernel uses one thread.

    Args:
        jobs: Number of threads, 1 to 256.

    Raises:
        ParameterError: The number of threads is outside that range.
    """

    def __init__(self, jobs: int = 1) -> None:
        self.width: int = 1 if BACKEND == "pure" else _checked(jobs)
        self._threads = futures.ThreadPoolExecutor(self.width, "spvfilter-part")
        self._tables = Tables(WatchTable)
        self._is_stopped = False

    async def begin(self, table: WatchTable) -> None:
        """Set the table of watched entries that later calls to `run` scan for."""
        self._tables = Tables(lambda: table)

    async def run(self, task: PartTask) -> PartSummary:
        """Scan a part in a thread and write its file.

        Raises OSError if a file cannot be read or written, and SourceError if the part cannot be scanned.
        """
        call = asyncio.get_running_loop().run_in_executor
        return await call(self._threads, run_task, task, self._tables, lambda: self._is_stopped)

    async def aclose(self) -> None:
        """Stop the running scans and wait until the threads have ended."""
        self._is_stopped = True
        closing = asyncio.create_task(asyncio.to_thread(self._threads.shutdown, cancel_futures=True))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing  # no thread may outlive the scan
            raise


@public
class Processes(Engine):
    """An engine that scans parts in processes, which share the memory of the watch list.

    If a process dies, its part is scanned again, up to three times in total. As always with multiprocessing, the
    program that uses this engine needs `if __name__ == "__main__":`.

    Args:
        count: Number of processes, 1 to 256.

    Raises:
        ParameterError: The number of processes is outside that range.
    """

    def __init__(self, count: int) -> None:
        self.width: int = _checked(count)
        self._table = WatchTable()
        self._place: ImagePlace | None = None  # where the table is: in a compiled watch list, or in a temporary file
        self._temporary: Path | None = None
        self._pool: futures.ProcessPoolExecutor | None = None
        self._ending = asyncio.Lock()

    async def begin(self, table: WatchTable) -> None:
        """Set the table of watched entries that later calls to `run` scan for."""
        await self.aclose()
        self._table, self._place = table, ImagePlace.of(table)
        if self._place is None:
            await self._write_table()

    async def _write_table(self) -> None:
        """Share the table through a temporary file with mode 0600. Raises OSError."""
        descriptor, name = tempfile.mkstemp(prefix="spvfilter-table-")
        self._temporary = Path(name)
        self._place = await asyncio.to_thread(_written, descriptor, name, self._table)

    async def run(self, task: PartTask) -> PartSummary:
        """Scan a part in a process and write its file.

        Raises OSError if a file cannot be read or written. Raises SourceError if the part cannot be scanned, or if its
        process dies three times.
        """
        for _ in range(_ATTEMPTS):
            pool = self._opened()
            try:
                with _without_interrupts():  # the parent ends the processes that are started here
                    running = asyncio.get_running_loop().run_in_executor(pool, _in_process, task)
                return await running
            except futures.BrokenExecutor:
                await self._end(pool)
            except ReplacedListError:  # share what this process has mapped
                await self._end(pool, is_replaced=True)
        raise SourceError(f"part {task.part.number}: the process that scanned it died {_ATTEMPTS} times")

    def _opened(self) -> futures.ProcessPoolExecutor:
        """Return the pool of processes. A pool is started if none is running."""
        if self._pool is None:
            context = multiprocessing.get_context("spawn")  # a forked copy of a process with threads may hang
            self._pool = futures.ProcessPoolExecutor(
                self.width, context, _begin_process, (self._place, self._temporary)
            )
        return self._pool

    async def _end(self, pool: futures.ProcessPoolExecutor, *, is_replaced: bool = False) -> None:
        """End a pool, unless another task has already ended it: all tasks of a pool fail at the same time.

        If the compiled list was replaced, first write the table to a file.

        Raises SourceError if the list was changed in place: reading a part of it that is gone would also kill this
        process.
        """
        async with self._ending:
            if self._pool is not pool:
                return
            check_unchanged(self._table)
            if is_replaced:
                await self._write_table()
            self._pool = None
            await to_its_end(pool.shutdown)

    async def aclose(self) -> None:
        """Terminate the processes."""
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        pool, self._pool = self._pool, None
        if pool is None:
            return
        for process in list((pool._processes or {}).values()):
            process.terminate()
        closing = asyncio.create_task(asyncio.to_thread(pool.shutdown, cancel_futures=True))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise


def _written(descriptor: int, name: str, table: WatchTable) -> ImagePlace:
    """Write the image of a table to an open file, and return the image's place. Raises OSError."""
    with os.fdopen(descriptor, "wb") as file:
        image = image_of(table)
        file.write(image)
    return ImagePlace.at(name, 0, image)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Return a context manager that blocks SIGINT.

    Processes that start inside the context never see the signal. This process receives it when the context ends.
    """
    if sys.platform == "win32":  # Windows has no signal masks: the processes ignore SIGINT once they run
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_process_tables = Tables(WatchTable)


def _begin_process(place: ImagePlace | None, temporary: Path | None) -> None:
    """Prepare a worker process. It opens the table at `place` for its first task, and ends when the parent ends."""
    global _process_tables
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent ends this process
    threading.Thread(target=_end_with_parent, args=(temporary,), daemon=True).start()
    _process_tables = Tables(WatchTable if place is None else place.open)


def _end_with_parent(temporary: Path | None) -> None:
    """Wait until the parent process has died, then delete the temporary file and end this process."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        os._exit(1)


def _in_process(task: PartTask) -> PartSummary:
    """Run a task in this worker process and return the summary of its part."""
    return run_task(task, _process_tables)


def _checked(workers: int) -> int:
    """Return the number of workers. Raises ParameterError if it is not from 1 to 256."""
    if not 1 <= workers <= MAX_WORKERS:
        raise ParameterError(f"the number of workers must be from 1 to {MAX_WORKERS}, not {workers}")
    return workers

"""Where the parts of a scan are scanned: in threads, or in processes of this machine. Either gives the same bytes."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter._public import deferred, public
from spvfilter.errors import ParameterError, SourceError
from spvfilter.kernel import BACKEND, Coin, EntryKind, WatchTable
from spvfilter.scan.coinfile import table_with_coins
from spvfilter.scan.partfile import PartFile, PartSummary, write_part
from spvfilter.scan.parts import PartTask, scan_part

if TYPE_CHECKING:
    import asyncio
    import multiprocessing
    import pickle
    import signal
    import tempfile
    from concurrent import futures
else:
    asyncio = deferred("asyncio")
    futures = deferred("concurrent.futures")
    multiprocessing = deferred("multiprocessing")
    pickle = deferred("pickle")
    signal = deferred("signal")
    tempfile = deferred("tempfile")

MAX_WORKERS = 256
_ATTEMPTS = 3  # at a part whose process dies

TableState = tuple[list[tuple[EntryKind, bytes]], list[tuple[bytes, Coin]]]


@public
class Engine(ABC):
    """Scans parts. `width` is the number of parts that it scans at once."""

    width: int

    @abstractmethod
    async def begin(self, table: WatchTable) -> None:
        """Parts are scanned for this table from now on."""

    @abstractmethod
    async def run(self, task: PartTask) -> PartSummary:
        """Scan a part and write its file, unless that is there already and whole. Raises OSError, SourceError."""

    @abstractmethod
    async def aclose(self) -> None:
        """End what is running."""


def run_task(
    task: PartTask, table_for: Callable[[Path | None], WatchTable], is_stopped: Callable[[], bool] = lambda: False
) -> PartSummary:
    """The summary of a part's file, which is made unless it is there: done once is done, and done twice gives the same
    bytes.
    """
    done = finished(task.path, task.key)
    if done is not None:
        return done
    summary = PartSummary()
    write_part(task.path, task.key, scan_part(task, table_for(task.coins), summary, is_stopped), summary)
    return summary


def finished(path: Path, key: bytes) -> PartSummary | None:
    """The summary of the file of a part that need not be scanned again; one that is of no use is removed.

    Raises OSError.

    A part in which something could not be read is scanned again: a disk or a server may have been away.
    """
    summary = summary_of(path, key)
    if summary is not None and not summary.lacks:
        return summary
    path.unlink(missing_ok=True)
    return None


def summary_of(path: Path, key: bytes) -> PartSummary | None:
    """The summary of the file of a part if it is there, whole, and of this key. Raises OSError."""
    try:
        file = PartFile(path)
        return file.summary() if file.key == key else None
    except (FileNotFoundError, SourceError):
        return None


class _Tables:
    """A table, and the copy of it that knows the outpoints of a file, which is made once."""

    def __init__(self, table: WatchTable) -> None:
        self._table = table
        self._with_coins: tuple[Path, WatchTable] | None = None
        self._lock = threading.Lock()

    def get(self, coins: Path | None) -> WatchTable:
        if coins is None:
            return self._table
        with self._lock:
            if self._with_coins is None or self._with_coins[0] != coins:
                self._with_coins = coins, table_with_coins(self._table, coins)
            return self._with_coins[1]


@public
class Threads(Engine):
    """Scans parts in threads, which is parallel with the compiled kernel; the pure one uses one thread.

    Raises ParameterError unless there are 1 to 256.
    """

    def __init__(self, jobs: int = 1) -> None:
        self.width = 1 if BACKEND == "pure" else _checked(jobs)
        self._threads = futures.ThreadPoolExecutor(self.width, "spvfilter-part")
        self._tables = _Tables(WatchTable())
        self._is_stopped = False

    async def begin(self, table: WatchTable) -> None:
        self._tables = _Tables(table)

    async def run(self, task: PartTask) -> PartSummary:
        call = asyncio.get_running_loop().run_in_executor
        return await call(self._threads, run_task, task, self._tables.get, lambda: self._is_stopped)

    async def aclose(self) -> None:
        self._is_stopped = True
        closing = asyncio.create_task(asyncio.to_thread(self._threads.shutdown, cancel_futures=True))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing  # no thread outlives the scan
            raise


@public
class Processes(Engine):
    """Scans parts in processes of their own, each with its copy of the watch list.

    A part whose process dies is given to another, twice.

    A program that uses it needs the `if __name__ == "__main__":` of multiprocessing. Raises ParameterError unless there
    are 1 to 256.
    """

    def __init__(self, count: int) -> None:
        self.width = _checked(count)
        self._state: Path | None = (
            None  # a file with the table, pickled: what a process is started with has to fit into a pipe
        )
        self._pool: futures.ProcessPoolExecutor | None = None

    async def begin(self, table: WatchTable) -> None:
        await self.aclose()
        self._state = await asyncio.to_thread(_written, table)

    async def run(self, task: PartTask) -> PartSummary:
        for _ in range(_ATTEMPTS):
            pool = self._opened()
            try:
                with _without_interrupts():  # of processes that are started here: the parent ends them
                    running = asyncio.get_running_loop().run_in_executor(pool, _in_process, task)
                return await running
            except futures.BrokenExecutor:
                if self._pool is pool:
                    self._pool = None
                await asyncio.to_thread(pool.shutdown)
        raise SourceError(f"part {task.part.number}: the process that scans it has died {_ATTEMPTS} times")

    def _opened(self) -> futures.ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
            self._pool = futures.ProcessPoolExecutor(self.width, context, _begin_process, (self._state,))
        return self._pool

    async def aclose(self) -> None:
        state, self._state = self._state, None
        if state is not None:
            state.unlink(missing_ok=True)
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


def _written(table: WatchTable) -> Path:
    """A file with what is in a table. Raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix="spvfilter-table-")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            state: TableState = (list(table.entries()), list(table.coins()))
            pickle.dump(state, file, pickle.HIGHEST_PROTOCOL)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes that are started meanwhile never see SIGINT; for this one it is put off."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_process_tables = _Tables(WatchTable())


def _begin_process(state: Path | None) -> None:
    global _process_tables
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its processes
    threading.Thread(target=_end_with_parent, args=(state,), daemon=True).start()
    table = WatchTable()
    entries, coins = pickle.loads(state.read_bytes()) if state is not None else ([], [])
    for kind, value in entries:
        table.add(kind, value)
    for outpoint, coin in coins:
        table.set_coin(outpoint, coin.entry, coin.value, coin.script)
    _process_tables = _Tables(table)


def _end_with_parent(state: Path | None) -> None:
    """A parent that was killed ends nobody: its processes would wait for ever, and its file would stay."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        if state is not None:
            state.unlink(missing_ok=True)
        os._exit(1)


def _in_process(task: PartTask) -> PartSummary:
    return run_task(task, _process_tables.get)


def _checked(workers: int) -> int:
    if not 1 <= workers <= MAX_WORKERS:
        raise ParameterError(f"from 1 to {MAX_WORKERS} workers, not {workers}")
    return workers

"""Parts scanned by the workers of a Dask cluster (the extra `dask`): the same bytes as in one thread, whoever dies meanwhile."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any  # of distributed, which has no types

from spvfilter._public import deferred, public
from spvfilter._version import __version__
from spvfilter.errors import ParameterError, SourceError
from spvfilter.files import replacing
from spvfilter.kernel import WatchTable
from spvfilter.scan.directory import PartScan
from spvfilter.scan.engines import Engine, finished
from spvfilter.scan.onworker import Shared, packed_table, part_bytes
from spvfilter.scan.outputs import OutputFormat, scan_parts
from spvfilter.scan.partfile import PartSummary
from spvfilter.scan.parts import PartTask
from spvfilter.scan.plan import Plan
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import asyncio
    import logging
    from importlib import metadata
else:
    asyncio = deferred("asyncio")
    logging = deferred("logging")
    metadata = deferred("importlib.metadata")

_WIDTH = 256  # parts given to the scheduler at once, some 0.1 MB each
_RETRIES = 2  # of a part that a worker cannot scan
_ATTEMPTS = 8  # at a part whose workers die, each of which the scheduler counts as four, or whose watch list died with them
_CONNECT_S = 30
_WORKERS_S = 30
_CLOSE_S = 5


@public
class DaskWorkers(Engine):
    """Scans parts on the workers of a Dask cluster, each of which has to see the blocks' files by the same paths.

    Workers give back the files of parts, which this process writes, so that nothing else has to be shared. One that comes late is used; a
    part whose worker dies is given to another. `client` is a `distributed.Client`, asynchronous or not, which stays open.
    """

    width = _WIDTH

    def __init__(self, client: Any) -> None:
        self._client = client
        self._owner = secrets.token_bytes(16)
        self._passes = 0
        self._table = WatchTable()
        self._shared: dict[Path | None, asyncio.Task[Any]] = {}
        self._running: set[Any] = set()

    async def begin(self, table: WatchTable) -> None:
        """Raises SourceError unless there is a worker, and all workers have this version of spvfilter."""
        self._table, self._shared = table, {}
        self._passes += 1
        with _scheduler_is_there():
            try:
                await self._call(self._client.wait_for_workers, 1, timeout=_WORKERS_S)
            except TimeoutError:
                raise SourceError(f"the cluster has no worker: start `dask worker {self._address()}` where the files are") from None
            found = await self._call(self._client.run, metadata.version, "spvfilter", on_error="return")
        for worker, version in sorted(found.items()):
            if isinstance(version, BaseException):
                raise SourceError(f"the worker {worker} has no spvfilter: install spvfilter {__version__} there ({version})")
            if version != __version__:
                raise SourceError(f"the worker {worker} has spvfilter {version}, and {__version__} is here: all need the same")

    def _address(self) -> str:
        scheduler = self._client.scheduler
        return "ADDRESS" if scheduler is None else str(scheduler.address)

    def _is_gone(self) -> bool:
        return self._client.status in ("closed", "closing", "connecting")

    async def run(self, task: PartTask) -> PartSummary:
        done = await asyncio.to_thread(finished, task.path, task.key)
        if done is not None:
            return done
        with _scheduler_is_there():
            raw = await self._scanned(task)
        return await asyncio.to_thread(_written, task, raw)

    async def _scanned(self, task: PartTask) -> bytes:
        """The file of a part, from some worker."""
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        why: Exception | None = None
        for _ in range(_ATTEMPTS):
            sharing = self._shared.get(task.coins)
            if sharing is None:
                sharing = self._shared[task.coins] = asyncio.create_task(self._share(task.coins))
            future = self._client.submit(part_bytes, task, await asyncio.shield(sharing), pure=False, retries=_RETRIES)
            self._running.add(future)
            try:
                raw = await self._result(future)
            except KilledWorker as error:
                why = error
            except FutureCancelledError as error:
                if self._is_gone() or "scheduler" in str(error.reason):
                    raise _scheduler_is_gone(error.reason) from error
                why = error  # what was shared has died with the last worker that had it
                if self._shared.get(task.coins) is sharing:
                    del self._shared[task.coins]
            else:
                if not isinstance(raw, bytes):
                    raise SourceError(f"part {task.part.number}: a worker has answered with no bytes")
                return raw
            finally:
                self._running.discard(future)
                with suppress(Exception):
                    future.release()
        raise SourceError(f"part {task.part.number}: the workers that scan it have died, {_ATTEMPTS} times in all: {why}")

    async def _share(self, coins: Path | None) -> Any:
        """Send what the parts of a pass have in common to every worker."""
        self._passes += 1
        number = self._passes

        def pack() -> Shared:
            return Shared(__version__, number, self._owner, packed_table(self._table), None if coins is None else coins.read_bytes())

        shared = await asyncio.to_thread(pack)
        future: Any = await self._call(self._client.scatter, shared, broadcast=True, hash=False)
        return future

    async def _call(self, method: Callable[..., Any], *args: object, **options: object) -> Any:  # of a client, as it is
        """Call a method of the client, which waits by itself unless the client is asynchronous."""
        if self._client.asynchronous:
            return await method(*args, **options)
        return await asyncio.to_thread(method, *args, **options)

    async def _result(self, future: Any) -> object:
        return await future if self._client.asynchronous else await asyncio.to_thread(future.result)

    async def aclose(self) -> None:
        """Cancel what was given to the cluster. A part that a worker has begun with is scanned to its end there, for nothing."""
        futures = list(self._running)
        for sharing in self._shared.values():
            sharing.cancel()
            with suppress(asyncio.CancelledError, Exception):
                futures.append(await sharing)
        self._shared = {}
        if futures and not self._is_gone():
            with suppress(Exception):  # the scheduler may go just now
                await self._call(self._client.cancel, futures, force=True)


def _scheduler_is_gone(why: object) -> SourceError:
    return SourceError(f"the scheduler is gone ({why}): what was scanned is kept, and the same scan goes on")


@contextmanager
def _scheduler_is_there() -> Iterator[None]:
    from distributed.comm.core import CommClosedError

    try:
        yield
    except CommClosedError as error:
        raise _scheduler_is_gone(error) from error


def _written(task: PartTask, raw: bytes) -> PartSummary:
    with replacing(task.path) as file:
        file.write(raw)
    summary = finished(task.path, task.key)
    if summary is None:
        raise SourceError(f"part {task.part.number}: what a worker has answered is not the file of that part")
    return summary


@public
async def scan_cluster(
    client: Any,
    plan: Plan,
    watch: WatchList,
    out: str | os.PathLike[str],
    *,
    form: OutputFormat | str = OutputFormat.CSV,
    check: bool = False,
) -> Path:
    """Scan a plan's parts on the workers of a Dask cluster into a directory, as `scan_parts` does: the path of the file of matches.

    `client` is a `distributed.Client`, asynchronous or not. Raises what `scan_parts` raises; SourceError without a worker, where a worker
    has another version of spvfilter or does not see the files, and where the scheduler is gone: then the same call goes on.
    """
    engine = DaskWorkers(client)
    try:
        return await scan_parts(PartScan(out, plan, watch, check=check), form, engine)
    finally:
        await engine.aclose()


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[DaskWorkers]:
    """The workers of the cluster whose scheduler is at tcp://HOST:PORT. Raises ParameterError without distributed, SourceError."""
    try:
        import distributed
    except ImportError:
        raise ParameterError("a scan on a cluster needs Dask: pip install 'spvfilter[dask]'") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what it says of lost connections is said by errors
    client: Any = distributed.Client(  # type: ignore[no-untyped-call]
        address, asynchronous=True, timeout=_CONNECT_S, set_as_default=False
    )
    try:
        await client
    except ValueError as error:
        raise ParameterError(f"not the address of a Dask scheduler, which is tcp://HOST:PORT: {address!r} ({error})") from None
    except (OSError, TimeoutError) as error:
        raise SourceError(f"no Dask scheduler answers at {address}: {error}") from error
    engine = DaskWorkers(client)
    try:
        yield engine
    finally:
        await engine.aclose()
        with suppress(Exception):
            await client.close(timeout=_CLOSE_S)

"""Calls of a `distributed.Client`, asynchronous or not, and what they raise when the scheduler or workers are gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any  # of distributed, which has no types

from spvfilter._public import deferred
from spvfilter._version import __version__
from spvfilter.errors import ParameterError, SourceError

if TYPE_CHECKING:
    import asyncio
    import logging
    from importlib import metadata
else:
    asyncio = deferred("asyncio")
    logging = deferred("logging")
    metadata = deferred("importlib.metadata")

_CONNECT_S = 30
_CLOSE_S = 5
_WORKERS_S = 30
_LOOK_S = 0.5  # between looks at whether workers are there
_RETRIES = 2  # of what a worker cannot do
ATTEMPTS = 8  # at what is lost with its workers, each of which the scheduler counts as four


class LostError(Exception):
    """A call has no result, since workers have gone: those that it was for, or with what it was given."""

    def __init__(self, cause: Exception | None, *, lacks_data: bool = False) -> None:
        super().__init__(cause)
        self.cause = cause
        self.lacks_data = lacks_data  # what was scattered has gone, too


class Calls:
    """A client of a cluster. Its methods raise SourceError when the scheduler is gone."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._running: set[Any] = set()
        self._awaited: set[asyncio.Future[object]] = set()

    async def call(self, method: Callable[..., Any], *args: object, **options: object) -> Any:  # of a client, as it is
        """Call a method of the client, which waits by itself unless the client is asynchronous."""
        with scheduler_is_there():
            if self.client.asynchronous:
                return await method(*args, **options)
            return await asyncio.to_thread(method, *args, **options)

    async def scatter(self, value: object) -> Any:
        """Send a value to every worker, for calls that follow. Raises SourceError.

        A worker that goes meanwhile makes all of it fail, with what may look as if the scheduler were gone; it is then
        sent again.
        """
        for _ in range(ATTEMPTS):
            try:
                if self.client.asynchronous:
                    return await self.client.scatter(value, broadcast=True, hash=False)
                return await asyncio.to_thread(self.client.scatter, value, broadcast=True, hash=False)
            except OSError as error:  # CommClosedError and TimeoutError, too
                why = error
            if self.is_gone:
                raise scheduler_is_gone(why) from why
            await asyncio.sleep(_LOOK_S)
        raise SourceError(f"the watch list could not be sent to the workers, {ATTEMPTS} times: {why}")

    async def once(
        self,
        function: Callable[..., object],
        args: Sequence[object],
        workers: Sequence[str] | None = None,
        are_there: Callable[[], Awaitable[bool]] | None = None,
    ) -> object:
        """What a function comes to on any worker, or on one of those named, as long as they are there.

        Raises LostError, and what the function raises.
        """
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        only = {} if workers is None else {"workers": list(workers), "allow_other_workers": False}
        future: Any = self.client.submit(function, *args, pure=False, retries=_RETRIES, **only)
        self._running.add(future)
        try:
            return await self._result(future, are_there)
        except KilledWorker as error:
            raise LostError(error) from error
        except FutureCancelledError as error:
            if self.is_gone or "scheduler" in str(error.reason):
                raise scheduler_is_gone(error.reason) from error
            raise LostError(error, lacks_data=True) from error
        finally:
            self._running.discard(future)
            with suppress(Exception):
                future.release()

    async def _result(self, future: Any, are_there: Callable[[], Awaitable[bool]] | None) -> object:
        if are_there is None:
            return await self._value(future)
        waiting = asyncio.ensure_future(self._value(future))
        try:
            while not (await asyncio.wait([waiting], timeout=_LOOK_S))[0]:
                if not await are_there():
                    await self.call(self.client.cancel, [future], force=True)
                    raise LostError(None)
            return await waiting
        finally:
            waiting.cancel()

    async def _value(self, future: Any) -> object:
        """Its result, which is waited for by a task that nobody cancels: it ends when the future is released.

        A client answers several gathers by one; were that cancelled, each later gather of this client would end as
        cancelled, too.
        """
        if not self.client.asynchronous:
            return await asyncio.to_thread(future.result)
        awaited = asyncio.ensure_future(future.result())
        self._awaited.add(awaited)
        awaited.add_done_callback(self._ended)
        return await asyncio.shield(awaited)

    def _ended(self, awaited: asyncio.Future[object]) -> None:
        self._awaited.discard(awaited)
        if not awaited.cancelled():
            awaited.exception()  # has been seen, even where nobody waits any more

    async def cancel(self, futures: Sequence[Any]) -> None:
        """Cancel these, and all calls that are running. What a worker has begun with, it ends, for nothing."""
        everything = [*futures, *self._running]
        if everything and not self.is_gone:
            with suppress(Exception):  # the scheduler may go just now
                await self.call(self.client.cancel, everything, force=True)

    async def check_workers(self) -> None:
        """Raises SourceError unless there is a worker, and all workers have this version of spvfilter."""
        try:
            await self.call(self.client.wait_for_workers, 1, timeout=_WORKERS_S)
        except TimeoutError:
            raise SourceError(
                f"the cluster has no worker: start `dask worker {self._address()}` where the files are"
            ) from None
        found = await self.call(self.client.run, metadata.version, "spvfilter", on_error="return")
        for worker, version in sorted(found.items()):
            if isinstance(version, OSError):
                continue  # it has just gone, or cannot be reached, and is used no more than others that are not there
            if isinstance(version, BaseException):
                raise SourceError(
                    f"the worker {worker} has no spvfilter: install spvfilter {__version__} there ({version})"
                )
            if version != __version__:
                raise SourceError(
                    f"the worker {worker} has spvfilter {version}, and {__version__} is here: all need the same"
                )

    def _address(self) -> str:
        scheduler = self.client.scheduler
        return "ADDRESS" if scheduler is None else str(scheduler.address)

    @property
    def is_gone(self) -> bool:
        """Whether the client has lost its scheduler."""
        return self.client.status in ("closed", "closing", "connecting")


def scheduler_is_gone(why: object) -> SourceError:
    """The error that says so."""
    return SourceError(f"the scheduler is gone ({why}): what was scanned is kept, and the same scan goes on")


@contextmanager
def scheduler_is_there() -> Iterator[None]:
    """Raises SourceError where distributed tells that the scheduler is gone."""
    from distributed.comm.core import CommClosedError

    try:
        yield
    except CommClosedError as error:
        raise scheduler_is_gone(error) from error


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Any]:
    """A client of the cluster whose scheduler is at tcp://HOST:PORT.

    Raises ParameterError without distributed, SourceError.
    """
    try:
        import distributed
    except ImportError:
        raise ParameterError("a cluster needs Dask: pip install 'spvfilter[dask]'") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what it says of lost connections is said by errors
    client: Any = distributed.Client(  # type: ignore[no-untyped-call]
        address, asynchronous=True, timeout=_CONNECT_S, set_as_default=False
    )
    try:
        await client
    except ValueError as error:
        raise ParameterError(
            f"not the address of a Dask scheduler, which is tcp://HOST:PORT: {address!r} ({error})"
        ) from None
    except (OSError, TimeoutError) as error:
        raise SourceError(f"no Dask scheduler answers at {address}: {error}") from error
    try:
        yield client
    finally:
        with suppress(Exception):
            await client.close(timeout=_CLOSE_S)

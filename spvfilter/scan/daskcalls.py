"""Calls through a `distributed.Client`, asynchronous or not, and their errors if the scheduler or workers are lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib import metadata
from typing import Any  # Any: distributed has no types

from spvfilter._version import __version__
from spvfilter.errors import ParameterError, SourceError, remedy
from spvfilter.scan.edition import EDITION, edition, mismatch

# All of these values are our choice.
CONNECT_S = 30  # Seconds within which the scheduler must answer.
_CLOSE_S = 5  # Seconds that closing the client may take.
_NO_SCHEDULER = "not the address of a Dask scheduler: expected tcp://HOST:PORT"  # The address may have a password.
WORKERS_S = 30  # Seconds to wait for the first worker.
LOOK_S = 0.5  # Seconds between two checks of which workers are connected.
_RETRIES = 2  # Number of times that the scheduler retries a failed call.
ATTEMPTS = 8  # Times that a call is submitted if its workers die. Dask gives up a submission after four deaths.


class LostError(Exception):
    """A call has no result because the workers that ran it, or held its arguments, were lost."""

    def __init__(self, cause: Exception | None, *, lacks_data: bool = False) -> None:
        super().__init__(cause)
        self.cause = cause
        self.lacks_data = lacks_data  # True if the scattered arguments of the call were also lost


class Calls:
    """A client of a cluster. Its methods raise SourceError when the scheduler is lost."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._running: set[Any] = set()
        self._awaited: set[asyncio.Future[object]] = set()

    async def call(self, method: Callable[..., Any], *args: object, **options: object) -> Any:
        """Call a method of the client and return its result.

        If the client is not asynchronous, the method runs in a thread.
        """
        with scheduler_is_there():
            if self.client.asynchronous:
                return await method(*args, **options)
            return await asyncio.to_thread(method, *args, **options)

    async def scatter(self, value: object) -> Any:
        """Send a value to every worker, and return a future of the value for later calls.

        If a worker leaves during the transfer, the whole transfer fails with an error that may look as if the scheduler
        were lost, so the value is sent again. Raises SourceError if the scheduler is lost, or if the transfer fails
        repeatedly.
        """
        for _ in range(ATTEMPTS):
            try:
                if self.client.asynchronous:
                    return await self.client.scatter(value, broadcast=True, hash=False)
                return await asyncio.to_thread(self.client.scatter, value, broadcast=True, hash=False)
            except OSError as error:  # includes CommClosedError and TimeoutError
                why = error
            if self.is_gone:
                raise scheduler_is_gone(why) from why
            await asyncio.sleep(LOOK_S)
        raise SourceError(f"the watch list could not be sent to the workers in {ATTEMPTS} attempts: {why}")

    async def once(
        self,
        function: Callable[..., object],
        args: Sequence[object],
        workers: Sequence[str] | None = None,
        are_there: Callable[[], Awaitable[bool]] | None = None,
    ) -> object:
        """Run a function on one worker and return its result.

        Args:
            function: The function.
            args: Its arguments.
            workers: Addresses of the workers that may run it; by default any worker.
            are_there: Function that returns True as long as these workers are connected.

        Raises:
            LostError: The workers were lost.
            SourceError: The scheduler was lost. Errors that the function raises are passed on.
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
        except OSError as error:
            if self.is_gone:  # it was lost after the worker had the result
                raise scheduler_is_gone(error) from error
            raise
        finally:
            self._running.discard(future)
            with suppress(Exception):
                future.release()

    async def _result(self, future: Any, are_there: Callable[[], Awaitable[bool]] | None) -> object:
        """Wait for the result of a future as long as the workers that may compute it are connected.

        Raises LostError.
        """
        if are_there is None:
            return await self._value(future)
        waiting = asyncio.ensure_future(self._value(future))
        try:
            while not (await asyncio.wait([waiting], timeout=LOOK_S))[0]:
                if not await are_there():
                    await self.call(self.client.cancel, [future], force=True)
                    raise LostError(None)
            return await waiting
        finally:
            waiting.cancel()

    async def _value(self, future: Any) -> object:
        """Return the result of a future.

        The task that waits for it is never cancelled: it ends when the future is released.

        A client combines several gathers into one. Cancelling that gather would also cancel later ones.
        """
        if not self.client.asynchronous:
            return await asyncio.to_thread(future.result)
        awaited = asyncio.ensure_future(future.result())
        self._awaited.add(awaited)
        awaited.add_done_callback(self._ended)
        return await asyncio.shield(awaited)

    def _ended(self, awaited: asyncio.Future[object]) -> None:
        """Forget a task that waited for a future."""
        self._awaited.discard(awaited)
        if not awaited.cancelled():
            awaited.exception()  # otherwise asyncio would warn that the exception was never retrieved

    async def cancel(self, futures: Sequence[Any]) -> None:
        """Cancel these futures and all running calls.

        A worker finishes a call that it has begun, but the result is discarded.
        """
        everything = [*futures, *self._running]
        if everything and not self.is_gone:
            with suppress(Exception):  # the scheduler may disappear at any moment
                await self.call(self.client.cancel, everything, force=True)

    async def check_workers(self) -> None:
        """Raise SourceError unless there is at least one worker, and all workers run this edition of spvfilter."""
        try:
            await self.call(self.client.wait_for_workers, 1, timeout=WORKERS_S)
        except TimeoutError:
            raise SourceError(
                f"the cluster has no workers: start `dask worker {self._address()}` on a machine that has the files"
            ) from None
        found = await self.call(self.client.run, metadata.version, "spvfilter", on_error="return")
        for worker, version in sorted(found.items()):
            if isinstance(version, OSError):
                continue  # the worker left or is unreachable: treat it as absent
            if isinstance(version, BaseException):
                raise SourceError(
                    f"spvfilter is not installed on worker {worker}: install spvfilter {__version__} there ({version})"
                )
        answers = await self.call(self.client.run, edition, on_error="return")
        for worker, answer in sorted(answers.items()):
            if isinstance(answer, OSError) or isinstance(found.get(worker), OSError):
                continue  # as above
            if answer != EDITION:
                is_error = isinstance(answer, BaseException)
                theirs = f"{found.get(worker)} (with a different task format)" if is_error else answer
                raise SourceError(f"the worker {worker} {mismatch(theirs, EDITION)}")

    def _address(self) -> str:
        scheduler = self.client.scheduler
        return "ADDRESS" if scheduler is None else str(scheduler.address)

    @property
    def is_gone(self) -> bool:
        """Return True if the client has lost its scheduler."""
        return self.client.status in ("closed", "closing", "connecting")


def scheduler_is_gone(why: object) -> SourceError:
    """Return the error that reports a lost scheduler."""
    return SourceError(f"the scheduler is gone ({why}): finished parts are kept; run the same scan again to continue")


@contextmanager
def scheduler_is_there() -> Iterator[None]:
    """Raise SourceError if distributed reports that the scheduler is lost."""
    from distributed.comm.core import CommClosedError

    try:
        yield
    except CommClosedError as error:
        raise scheduler_is_gone(error) from error


def _check_address(address: str) -> None:
    """Raise ParameterError if an address has no port, because the client would leave unfinished coroutines behind."""
    from distributed.comm.addressing import parse_address, parse_host_port

    try:
        scheme, place = parse_address(address, strict=True)
        if scheme != "inproc":
            parse_host_port(place)
    except ValueError:
        raise ParameterError(_NO_SCHEDULER) from None


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Any]:
    """Return a client of the cluster whose scheduler is at tcp://HOST:PORT.

    Raises ParameterError if the address is malformed or distributed is not installed. Raises SourceError if no
    scheduler answers.
    """
    try:
        import distributed
    except ImportError:
        raise ParameterError(f"a cluster needs distributed (Dask); {remedy('dask')}") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors already report lost connections
    _check_address(address)
    client: Any = distributed.Client(  # type: ignore[no-untyped-call]
        address, asynchronous=True, timeout=CONNECT_S, set_as_default=False
    )
    try:
        await client
    except ValueError:
        raise ParameterError(_NO_SCHEDULER) from None
    except (OSError, TimeoutError) as error:
        raise SourceError(f"no Dask scheduler answers at {address}: {error}") from error
    try:
        yield client
    finally:
        with suppress(Exception):
            await client.close(timeout=_CLOSE_S)

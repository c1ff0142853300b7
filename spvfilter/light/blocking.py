"""SyncLightClient: the light client for programs without asyncio, and an iterator over its events."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    overload,
)  # Any: the send type of a coroutine

from spvfilter._public import public
from spvfilter.chain import HeaderChain
from spvfilter.errors import NotRunningError, ParameterError
from spvfilter.light.client import LightClient
from spvfilter.light.events import Mode
from spvfilter.light.questions import named_as
from spvfilter.light.thread import ClientThread
from spvfilter.network import Network
from spvfilter.watch.watchlist import WatchList

P = ParamSpec("P")
T = TypeVar("T")


def _of(
    cls: Callable[P, LightClient],
) -> Callable[[Callable[[SyncLightClient, LightClient], None]], Callable[Concatenate[SyncLightClient, P], None]]:
    """Decorate a constructor that takes a LightClient, so that it takes LightClient's arguments instead."""

    def decorate(
        init: Callable[[SyncLightClient, LightClient], None],
    ) -> Callable[Concatenate[SyncLightClient, P], None]:
        def make(self: SyncLightClient, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, cls(*args, **kwargs))

        made: Callable[Concatenate[SyncLightClient, P], None] = named_as(make, LightClient.__init__, "SyncLightClient")
        return made

    return decorate


def _awaits(
    method: Callable[Concatenate[LightClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncLightClient, P], T]:
    """Return a method that calls a coroutine method of LightClient and waits for its result."""

    def wait(self: SyncLightClient, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(lambda client: method(client, *args, **kwargs))

    waits: Callable[Concatenate[SyncLightClient, P], T] = named_as(wait, method, "SyncLightClient")
    return waits


def _calls(method: Callable[Concatenate[LightClient, P], T]) -> Callable[Concatenate[SyncLightClient, P], T]:
    """Return a method that calls an ordinary method of LightClient, which does not wait."""

    def call(self: SyncLightClient, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(lambda client: _at_once(method, client, *args, **kwargs))

    called: Callable[Concatenate[SyncLightClient, P], T] = named_as(call, method, "SyncLightClient")
    return called


async def _at_once(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)


def _iterates(
    method: Callable[Concatenate[LightClient, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncLightClient, P], EventIterator[T]]:
    """Return a method that returns an iterator instead of LightClient's asynchronous one."""

    def iterate(self: SyncLightClient, *args: P.args, **kwargs: P.kwargs) -> EventIterator[T]:
        return EventIterator(self, self._call(lambda client: _at_once(method, client, *args, **kwargs)))

    iterates: Callable[Concatenate[SyncLightClient, P], EventIterator[T]] = named_as(
        iterate, method, "SyncLightClient", "EventIterator"
    )
    return iterates


class _Reads(Generic[T]):
    """A property of LightClient that is read in the client's thread.

    If `at_any_time` is True, it can also be read when the client is not running.
    """

    def __init__(self, of: Callable[[LightClient], T], *, at_any_time: bool = False) -> None:
        self._at_any_time = at_any_time
        described: Any = of  # a property, which type checkers see as a function
        self.fget: Callable[[LightClient], T] = described.fget
        self.__doc__ = described.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: SyncLightClient, owner: type) -> T: ...
    def __get__(self, client: SyncLightClient | None, owner: type) -> Self | T:
        if client is None:
            return self
        if self._at_any_time and client._thread is None:
            return self.fget(client._client)
        return client._call(lambda light: _at_once(self.fget, light))


@public
class SyncLightClient:
    """A `LightClient` for programs without asyncio: its methods block instead of being awaited.

        with SyncLightClient(watch, peers=["127.0.0.1:8333"], store="wallet.db") as client:
            for event in client.events():
                ...

    The client runs in an event loop in its own thread. Any number of threads may call it, but a forked child may not.
    `timeout` limits how long calls wait. The parameters are the same as for `LightClient`.

    Ctrl-C ends a wait immediately, and leaving the `with` block closes everything. If you press Ctrl-C again, the
    program does not wait for that, and the thread closes the rest. If the program never leaves the block, the client
    ends with the program.

    Raises:
        ParameterError: A parameter is out of range, or two contradict each other.
        StoreError: On entering, the database cannot be opened.
        InexpressibleError: On entering, the mode cannot find some entries of the watch list.
        NotRunningError: On entering, the client is already running.
    """

    @_of(LightClient)
    def __init__(self, client: LightClient) -> None:
        self._client = client
        self.network: Network = client.network
        """Network of the watch list."""
        self.mode: Mode = client.mode
        """Mode that the user chose."""
        self._entering = threading.Lock()
        self._thread: ClientThread | None = None
        self._is_left = False
        self._local = threading.local()  # contains the deadline of each thread

    def __enter__(self) -> Self:
        """Start the client's thread and wait until the database is open. Raises the same errors as `LightClient`."""
        if not self._entering.acquire(blocking=False):
            raise NotRunningError("the client is already running")
        thread = ClientThread(self._client)
        try:
            thread.enter()
            self._thread, self._is_left = thread, False
            return self
        except BaseException:
            self._entering.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return  # left before
        self._is_left = True
        try:
            thread.leave()
        finally:
            self._entering.release()

    @contextmanager
    def timeout(self, seconds: float) -> Iterator[None]:
        """Limit how long calls made by this thread wait within a `with` block.

            events = client.events()
            with client.timeout(10):
                event = next(events)  # an event that arrives after the limit is yielded by a later call

        A call that takes longer is cancelled and raises TimeoutError. In nested blocks, the earliest limit applies.

        Args:
            seconds: Total time for all calls in the block, in seconds.

        Raises:
            ParameterError: The time is negative or not a number.
        """
        if not seconds >= 0:
            raise ParameterError(f"the time limit must be 0 seconds or more, not {seconds}")

        before: float | None = getattr(self._local, "deadline", None)
        deadline = time.monotonic() + seconds
        self._local.deadline = deadline if before is None else min(before, deadline)
        try:
            yield
        finally:
            self._local.deadline = before

    def call(self, function: Callable[[LightClient], T]) -> T:
        """Run a function in the client's thread and return its result.

        The client does nothing else in the meantime, so the function sees a consistent state, for example of `chain`.

        Args:
            function: Function to call with the `LightClient`. It must return quickly, without waiting.

        Raises:
            NotRunningError: The client is not running.
            TimeoutError: The time limit set with `timeout` has expired.
        """
        return self._call(lambda client: _at_once(function, client))

    def _call(
        self, start: Callable[[LightClient], Coroutine[Any, Any, T]], keep: Callable[[T], None] | None = None
    ) -> T:
        thread = self._thread
        if thread is None:
            raise NotRunningError(
                "the client is closed: its `with` block has ended"
                if self._is_left
                else "the client is not running: enter it with `with` first"
            )
        return thread.call(lambda: start(self._client), getattr(self._local, "deadline", None), keep)

    # Members of LightClient, in the same order

    watch: _Reads[WatchList] = _Reads(LightClient.watch, at_any_time=True)
    chain: _Reads[HeaderChain] = _Reads(LightClient.chain)
    events: Final = _iterates(LightClient.events)
    run_id: Final = _awaits(LightClient.run_id)
    bookmark: Final = _awaits(LightClient.bookmark)
    set_bookmark: Final = _awaits(LightClient.set_bookmark)
    matches: Final = _awaits(LightClient.matches)
    wait_synced: Final = _awaits(LightClient.wait_synced)
    wait_confirmed: Final = _awaits(LightClient.wait_confirmed)
    tip: Final = _awaits(LightClient.tip)
    sequence: Final = _awaits(LightClient.sequence)
    balance: Final = _awaits(LightClient.balance)
    coins: Final = _awaits(LightClient.coins)
    coin: Final = _awaits(LightClient.coin)
    unspent: Final = _awaits(LightClient.unspent)
    frozen: Final = _awaits(LightClient.frozen)
    reserved: Final = _awaits(LightClient.reserved)
    freeze: Final = _awaits(LightClient.freeze)
    unfreeze: Final = _awaits(LightClient.unfreeze)
    history: Final = _awaits(LightClient.history)
    keychains: Final = _awaits(LightClient.keychains)
    next_address: Final = _awaits(LightClient.next_address)
    reveal_address: Final = _awaits(LightClient.reveal_address)
    is_used: Final = _awaits(LightClient.is_used)
    searched: Final = _awaits(LightClient.searched)
    transaction: Final = _awaits(LightClient.transaction)
    proof: Final = _awaits(LightClient.proof)
    effects: Final = _awaits(LightClient.effects)
    confirmed_in: Final = _awaits(LightClient.confirmed_in)
    tip_height: _Reads[int] = _Reads(LightClient.tip_height)
    searched_height: _Reads[int] = _Reads(LightClient.searched_height)
    observed_fp_rate: _Reads[float] = _Reads(LightClient.observed_fp_rate)
    fee_floor: Final = _calls(LightClient.fee_floor)
    fee_rates: Final = _calls(LightClient.fee_rates)
    metrics: Final = _calls(LightClient.metrics)
    broadcast: Final = _awaits(LightClient.broadcast)
    relay: Final = _awaits(LightClient.relay)
    check: Final = _awaits(LightClient.check)
    abandon: Final = _awaits(LightClient.abandon)
    abandon_unsent: Final = _awaits(LightClient.abandon_unsent)
    is_sending: Final = _calls(LightClient.is_sending)
    missing_parents: Final = _calls(LightClient.missing_parents)
    fetch_block: Final = _awaits(LightClient.fetch_block)
    store_proofs: Final = _awaits(LightClient.store_proofs)
    watch_to: Final = _awaits(LightClient.watch_to)
    accounts: Final = _awaits(LightClient.accounts)
    add_account: Final = _awaits(LightClient.add_account)
    remove_account: Final = _awaits(LightClient.remove_account)
    rename_account: Final = _awaits(LightClient.rename_account)
    add_address: Final = _awaits(LightClient.add_address)
    add_addresses: Final = _awaits(LightClient.add_addresses)
    add_script: Final = _awaits(LightClient.add_script)
    add_pubkey: Final = _awaits(LightClient.add_pubkey)
    add_outpoint: Final = _awaits(LightClient.add_outpoint)
    remove: Final = _awaits(LightClient.remove)
    psbt: Final = _awaits(LightClient.psbt)
    relabel: Final = _awaits(LightClient.relabel)
    labels: Final = _awaits(LightClient.labels)
    import_labels: Final = _awaits(LightClient.import_labels)
    export_labels: Final = _awaits(LightClient.export_labels)
    rescan: Final = _awaits(LightClient.rescan)
    status: Final = _awaits(LightClient.status)
    searched_for: Final = _awaits(LightClient.searched_for)
    block_time: Final = _awaits(LightClient.block_time)
    read: Final = _awaits(LightClient.read)


@public
class EventIterator(Generic[T]):
    """An iterator over events, which `SyncLightClient.events` returns.

    No event is lost if a wait is interrupted or times out. Several threads may share an iterator: each event goes to
    one of them.
    """

    def __init__(self, client: SyncLightClient, stream: AsyncIterator[T]) -> None:
        self._client = client
        self._stream = stream
        self._kept: deque[T] = deque()  # events whose wait was interrupted

    def __iter__(self) -> Self:
        """Return the iterator itself."""
        return self

    def __next__(self) -> T:
        """Wait for the next event. The iteration ends when the client's `with` block has ended."""
        with suppress(IndexError):  # it is empty: another thread may just have taken the last event
            return self._kept.popleft()
        try:
            found = self._client._call(lambda _: _next(self._stream), self._keep)
        except NotRunningError:
            if self._client._is_left:
                raise StopIteration from None  # as with LightClient's stream
            raise
        if not found:
            raise StopIteration
        return found[0]

    def _keep(self, found: tuple[T, ...]) -> None:
        self._kept.extend(found)

    def close(self) -> None:
        """Do nothing: an iterator holds no resources. The method exists for `contextlib.closing`."""


async def _next(stream: AsyncIterator[T]) -> tuple[T, ...]:
    """Return the next item in a tuple, or an empty tuple at the end."""
    try:
        return (await anext(stream),)
    except StopAsyncIteration:
        return ()

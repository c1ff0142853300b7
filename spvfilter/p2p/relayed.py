"""RelayedTransactions: the transactions that peers announce and send, as a source for Matcher.match_txs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from spvfilter._public import public
from spvfilter.errors import ParameterError, PeerError
from spvfilter.network import MAINNET, Network
from spvfilter.p2p.address import Address, cause_of
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.connection import Connection
from spvfilter.p2p.limits import Limits
from spvfilter.p2p.proxy import Proxy
from spvfilter.p2p.txrequests import Item, TxRequests
from spvfilter.transaction import Transaction
from spvfilter.wire.events import Received, Settings
from spvfilter.wire.messages.inventory import GetData, Inv, InvItem, InvType, NotFound, Tx

_log = logging.getLogger(__name__)
WAITING = 4_000_000
"""Bytes of waiting transactions above which no peer is read until the caller takes some (our choice)."""
LOOK_S = 5.0
"""Seconds between two checks for requests that a peer has not answered (our choice)."""
_REQUESTED = {InvType.TX: InvType.WITNESS_TX, InvType.WTX: InvType.WTX}
"""For each announced inventory type, the type that requests the transaction with its witness."""
_LARGE = 64_000
"""Smallest size, in bytes, of a transaction that is hashed in a thread (our choice)."""
_STEP = 1_000
"""Number of announced items that are processed without a pause (our choice: about 1 ms)."""
_STEADY_S = 60.0
"""Seconds after which a connection counts as stable, so that the next pause is short again (our choice)."""


@public
class RelayedTransactions:
    """An asynchronous iterator over the transactions that peers relay, as bytes, for use in `async with`.

    Each transaction is requested from one of the peers that announce it, and yielded once. If that peer does not answer
    within 60 seconds, another one is asked. A peer that cannot be reached or disconnects is retried, with pauses that
    grow up to `Limits.max_retry_s`.

    If the caller stops taking transactions, about 4 MB of them are queued before peers are no longer read. Signatures
    are not checked, so a peer can invent transactions.

    Args:
        peers: HOST:PORT of each peer, or an Address.
        network: The network of the peers.
        proxy: A SOCKS5 proxy, such as Tor's, through which to reach the peers.
        limits: Timeouts.

    Raises ParameterError if `peers` is empty, or if an address is malformed.
    """

    def __init__(
        self,
        peers: Iterable[str | Address],
        network: Network = MAINNET,
        *,
        proxy: Proxy | None = None,
        limits: Limits | None = None,
    ) -> None:
        if isinstance(peers, str):
            raise ParameterError("peers must be an iterable of addresses, not one string")
        self.addresses: tuple[Address, ...] = tuple(
            peer if isinstance(peer, Address) else Address.parse(peer, network.default_port) for peer in peers
        )
        if not self.addresses:
            raise ParameterError("name at least one peer: transactions are relayed by peers")
        self.network = network
        self.received: int = 0
        """Number of transactions received so far."""
        self.repeated: int = 0
        """Number of transactions that arrived again; the copies are skipped."""
        self._proxy = proxy
        self._limits = limits or Limits()
        self._clock = Clock()
        self._requests = TxRequests()
        self._connected: dict[int, Connection] = {}
        self._arrived: asyncio.Queue[bytes | BaseException] = asyncio.Queue()
        self._waiting = 0  # bytes of transactions in the queue
        self._room = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def connected(self) -> int:
        """Number of peers that are connected."""
        return len(self._connected)

    @property
    def unanswered(self) -> int:
        """Number of announced transactions that no peer sent when asked."""
        return self._requests.unanswered

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._keep(number)) for number in range(len(self.addresses))]
        self._tasks.append(asyncio.create_task(self._look()))
        for task in self._tasks:
            task.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        for failure in ended:
            if isinstance(failure, Exception) and error is None:
                raise failure

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Handle the end of a task: its error, if any, is raised to the caller of the iterator."""
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._arrived.put_nowait(failure)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Wait for the next transaction and return it.

        A cancelled call loses no transaction. Raises ParameterError outside of `async with`.
        """
        if not self._tasks:
            raise ParameterError("RelayedTransactions must be used with `async with`")
        raw = await self._arrived.get()
        if isinstance(raw, BaseException):
            self._arrived.put_nowait(raw)  # for the next call
            raise raw
        self._waiting -= len(raw)
        self._room.set()
        return raw

    async def _keep(self, number: int) -> None:
        """Request a peer's transactions indefinitely, and reconnect whenever the peer disconnects."""
        address, pause = self.addresses[number], self._limits.retry_s
        while True:
            try:
                connection = await Connection.open(
                    address, Settings(self.network, relay=True), proxy=self._proxy, limits=self._limits
                )
                _log.info("%s: connected", address)
                begun = self._clock.monotonic()
                self._connected[number] = connection
                try:
                    await self._follow(number, connection)
                finally:
                    connection.close()
                    del self._connected[number]
                    ended = self._clock.monotonic()
                    self._request(self._requests.left(number, ended))
                    if ended - begun > _STEADY_S:
                        pause = self._limits.retry_s
            except (OSError, PeerError) as error:
                _log.info("%s: %s; reconnecting in %g s", address, cause_of(error, str(address)), pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._limits.max_retry_s)

    async def _follow(self, number: int, connection: Connection) -> None:
        while True:
            event = await connection.receive()
            if not isinstance(event, Received):
                continue
            match event.message:
                case Inv(items):
                    for start in range(0, len(items), _STEP):
                        some = items[start : start + _STEP]
                        told = [(int(item.kind), item.hash) for item in some if item.kind in _REQUESTED]
                        self._request({number: self._requests.announced(number, told, self._clock.monotonic())})
                        await asyncio.sleep(0)
                case NotFound(items):
                    lacking = [(_announced_as(item.kind), item.hash) for item in items]
                    self._request(self._requests.missing(number, lacking, self._clock.monotonic()))
                case Tx() as message:
                    await self._take(message.raw)

    async def _take(self, raw: bytes) -> None:
        txid, wtxid = _ids(raw) if len(raw) <= _LARGE else await asyncio.to_thread(_ids, raw)
        if not self._requests.arrived(txid, wtxid, InvType.TX, InvType.WTX):
            self.repeated += 1
            return
        self.received += 1
        while self._is_full:
            self._room.clear()
            await self._room.wait()
        self._waiting += len(raw)
        self._arrived.put_nowait(raw)

    @property
    def _is_full(self) -> bool:
        """Return True if no peer is read until the caller takes transactions."""
        return self._waiting >= WAITING

    def _request(self, wanted: dict[int, list[Item]]) -> None:
        for number, items in wanted.items():
            connection = self._connected.get(number)
            if connection is None or not items:
                continue
            try:
                connection.post(GetData(tuple(InvItem(_REQUESTED[InvType(kind)], id_) for kind, id_ in items)))
            except ParameterError:  # the peer does not read what it is sent
                connection.close()

    async def _look(self) -> None:
        """Request transactions from the next peer if a peer has not sent them in time."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._is_full:  # the answers of the peers are not read yet
                continue
            before = self.unanswered
            self._request(self._requests.expired(self._clock.monotonic()))
            if self.unanswered > before:
                _log.info("announced transactions that were not sent: %d", self.unanswered - before)


def _ids(raw: bytes) -> tuple[bytes, bytes]:
    """Return the txid and the wtxid of a serialized transaction."""
    tx = Transaction.parse(raw)
    return tx.txid, tx.wtxid


def _announced_as(kind: int) -> int:
    """Return the announced type that corresponds to the type of an item in a notfound message."""
    return InvType.TX if kind == InvType.WITNESS_TX else kind

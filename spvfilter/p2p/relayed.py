"""Transactions that peers relay: announced ones are requested, each once. A source for Matcher.match_txs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from spvfilter._public import deferred, public
from spvfilter.errors import ParameterError, PeerError
from spvfilter.network import MAINNET, Network
from spvfilter.p2p.address import Address
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.connection import Connection
from spvfilter.p2p.limits import Limits
from spvfilter.p2p.proxy import Proxy
from spvfilter.p2p.txrequests import Item, TxRequests
from spvfilter.transaction import Transaction
from spvfilter.wire.events import Received, Settings
from spvfilter.wire.messages.inventory import GetData, Inv, InvItem, InvType, NotFound, Tx

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_log = logging.getLogger(__name__)
_WAITING = 100
"""Transactions that wait for the caller; then no peer is read (our choice: at most 40 MB)."""
_LOOK_S = 5.0
"""Seconds between two looks for requests that a peer has not answered (our choice)."""
_REQUESTED = {InvType.TX: InvType.WITNESS_TX, InvType.WTX: InvType.WTX}
"""Types of announced items, and the types by which these are requested with their witness."""


@public
class RelayedTransactions:
    """The transactions that peers relay, as an asynchronous iterator of bytes; used with `async with`.

    Each transaction is requested from one of the peers that announce it, and comes once. A peer that does not answer
    within 60 seconds is passed over. A peer that cannot be reached or leaves is connected to again, with pauses that
    grow to `Limits.max_retry_s`. While the caller takes no transactions, nothing is read from the peers.

    Args:
        peers: HOST:PORT of each peer, or an Address.
        network: The network of the peers.
        proxy: A SOCKS5 proxy, such as Tor's, through which the peers are reached.
        limits: Timeouts.

    Raises ParameterError for no peer, and for an address that is none.
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
            raise ParameterError("peers is an iterable of addresses, not one string")
        self.addresses = tuple(
            peer if isinstance(peer, Address) else Address.parse(peer, network.default_port) for peer in peers
        )
        if not self.addresses:
            raise ParameterError("no peer given: transactions are relayed by peers")
        self.network = network
        self.received = 0
        """Number of transactions."""
        self.repeated = 0
        """Number of transactions that came twice; the copy is skipped."""
        self._proxy = proxy
        self._limits = limits or Limits()
        self._clock = Clock()
        self._requests = TxRequests()
        self._connected: dict[int, Connection] = {}
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def connected(self) -> int:
        """Number of peers that are connected."""
        return len(self._connected)

    @property
    def unanswered(self) -> int:
        """Number of transactions that no peer sent after announcing them."""
        return self._requests.unanswered

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._keep(number)) for number in range(len(self.addresses))]
        self._tasks.append(asyncio.create_task(self._look()))
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

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """The next transaction. Raises ParameterError outside of `async with`."""
        if not self._tasks:
            raise ParameterError("RelayedTransactions is used with `async with`")
        return await self._arrived.get()

    async def _keep(self, number: int) -> None:
        """Follow a peer, and connect to it again when it leaves."""
        address, pause = self.addresses[number], self._limits.retry_s
        while True:
            try:
                connection = await Connection.open(
                    address, Settings(self.network, relay=True), proxy=self._proxy, limits=self._limits
                )
                _log.info("%s: connected", address)
                pause = self._limits.retry_s
                self._connected[number] = connection
                try:
                    await self._follow(number, connection)
                finally:
                    connection.close()
                    del self._connected[number]
                    self._request(self._requests.left(number, self._clock.monotonic()))
            except (OSError, PeerError) as error:
                _log.info("%s: %s; connecting again in %g s", address, error, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._limits.max_retry_s)

    async def _follow(self, number: int, connection: Connection) -> None:
        while True:
            event = await connection.receive()
            if not isinstance(event, Received):
                continue
            now = self._clock.monotonic()
            match event.message:
                case Inv(items):
                    told = [(int(item.kind), item.hash) for item in items if item.kind in _REQUESTED]
                    self._request({number: self._requests.announced(number, told, now)})
                case NotFound(items):
                    lacking = [(_announced_as(item.kind), item.hash) for item in items]
                    self._request(self._requests.missing(number, lacking, now))
                case Tx() as message:
                    await self._take(message.raw)

    async def _take(self, raw: bytes) -> None:
        tx = Transaction.parse(raw)
        if self._requests.arrived(tx.txid, tx.wtxid, InvType.TX, InvType.WTX):
            self.received += 1
            await self._arrived.put(raw)
        else:
            self.repeated += 1

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
            await asyncio.sleep(_LOOK_S)
            before = self.unanswered
            self._request(self._requests.expired(self._clock.monotonic()))
            if self.unanswered > before:
                _log.info("%d announced transactions were not sent", self.unanswered - before)


def _announced_as(kind: int) -> int:
    """Type of the announcement that an item of a notfound answers."""
    return InvType.TX if kind == InvType.WITNESS_TX else kind

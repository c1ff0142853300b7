"""A regtest full node that serves peers over TCP, for tests, demos and wallet development.

It does not check scripts. Never use it with real money.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self, cast

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.network import REGTEST
from spvfilter.node.blocktree import TipChange
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.protocol import MAX_PAYLOAD_SIZE
from spvfilter.transaction import Transaction
from spvfilter.wire.events import Role, Service, Settings
from spvfilter.wire.messages.table import LIMITS
from spvfilter.wire.session import SEND_BUFFER, Session
from spvfilter.wire.streams import UndecidedStream, V1Stream
from spvfilter.wire.transport import check_installed, is_installed

SERVICES = Service.NETWORK | Service.BLOOM | Service.WITNESS | Service.COMPACT_FILTERS
if is_installed():
    SERVICES |= Service.P2P_V2
SETTINGS = Settings(REGTEST, SERVICES, relay=True, pings_first=True)
MAX_CONNECTIONS = 1_000  # Most open connections of one node (our choice).
STALL_S = 60.0  # Seconds for which a peer may leave 1 MB unread (our choice).
_LIMITS = {**LIMITS, "inv": MAX_PAYLOAD_SIZE}  # An inv that is too long is ignored (Core has one limit for all).
_TURN_S = 0.001  # Seconds of work for one connection before the others get their turn.
_TURN_SIZE = 1 << 15  # Bytes sent to one connection before the others get their turn.

logger: logging.Logger = logging.getLogger(__name__)


@public
class Node:
    """A regtest full node with a P2P server.

        async with Node() as node:                      # on 127.0.0.1, a free port
            node.regtest.mine(101)
            ...                                         # connect to node.host, node.port
            node.regtest.pay(TxOut(50_000, script))     # announced to the peers
            node.regtest.reorg(2)

    The node behaves like Bitcoin Core with -peerbloomfilters=1 -peerblockfilters=1. A connection's memory is limited to
    1 MB that the peer has not read yet, one message of up to 4 MB, and one answer.

    It accepts encrypted connections (BIP-324) if its services contain `Service.P2P_V2`. By default, they do if the
    packages of the `bip324` extra are installed.

    Args:
        regtest: The chain and the mempool; by default, new ones. Several nodes may serve the same Regtest.
        host: IP address to listen on.
        port: TCP port to listen on. 0 chooses a free one.
        responder: Class with a connection's protocol logic. Pass a subclass of Responder to make a node that
            misbehaves.
        settings: Fields of the version message, and timeouts for the handshake and pings.
        max_connections: Largest number of connections, at least 1. Any more are refused.
        stall_s: Seconds for which a peer may leave 1 MB unread before the node disconnects it.

    Raises:
        ParameterError: `max_connections` is below 1, or the services need the `bip324` extra, which is not installed.
    """

    def __init__(
        self,
        regtest: Regtest | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        responder: Callable[[Regtest, Session], Responder] = Responder,
        settings: Settings = SETTINGS,
        max_connections: int = MAX_CONNECTIONS,
        stall_s: float = STALL_S,
    ) -> None:
        if max_connections < 1:
            raise ParameterError(f"max_connections must be at least 1, not {max_connections}")
        if settings.services & Service.P2P_V2:
            check_installed("a node that offers the service P2P_V2")
        self.regtest: Regtest = regtest or Regtest()
        self.host = host
        self.port: int = port  # once the node is listening, the port that it listens on
        self.settings = settings
        self.max_connections = max_connections
        self.stall_s = stall_s
        self._make_responder = responder
        self._connections: set[ServerConnection] = set()
        self._alone = asyncio.Event()
        self._server: asyncio.Server | None = None

    @property
    def responders(self) -> list[Responder]:
        """The responders of all open connections."""
        return [connection.responder for connection in self._connections]

    async def __aenter__(self) -> Self:
        """Start listening for connections, and return the node. Raises OSError if the port is in use."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ServerConnection(self), self.host, self.port, backlog=self.max_connections
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.regtest.listeners.append(self)
        logger.info("regtest node on %s port %d", self.host, self.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections, and wait until they are closed."""
        assert self._server is not None
        server, self._server = self._server, None
        self.regtest.listeners.remove(self)
        server.close()
        for connection in list(self._connections):
            connection.abort()
        while self._connections:
            self._alone.clear()
            await self._alone.wait()
        await server.wait_closed()

    def on_tip(self, change: TipChange) -> None:
        """Announce new blocks to all peers. The chain calls this."""
        for connection in self._connections:
            connection.responder.queue_tip(change)
            connection.wake()

    def on_tx(self, tx: Transaction) -> None:
        """Announce a transaction to all peers. The mempool calls this."""
        for connection in self._connections:
            connection.responder.queue_tx(tx)
            connection.wake()

    def open_responder(self, now: float) -> Responder:
        """Return a new responder for a connection that was opened at `now`."""
        settings = replace(self.settings, start_height=self.regtest.height)
        speaks_v2, magic = settings.services & Service.P2P_V2, settings.network.magic
        session = Session(
            settings,
            Role.INBOUND,
            draw_nonce=lambda: secrets.randbits(64),
            now=now,
            timestamp=self.regtest.time,
            stream=UndecidedStream(magic, secrets.token_bytes, _LIMITS) if speaks_v2 else V1Stream(magic, _LIMITS),
        )
        return self._make_responder(self.regtest, session)

    def enter(self, connection: ServerConnection) -> bool:
        """Register a new connection. Returns False if `max_connections` are already open."""
        if self._server is None or len(self._connections) >= self.max_connections:
            logger.debug("connection refused: %d are already open", len(self._connections))
            return False
        self._connections.add(connection)
        return True

    def leave(self, connection: ServerConnection) -> None:
        """Forget a closed connection."""
        self._connections.discard(connection)
        if not self._connections:
            self._alone.set()


class ServerConnection(asyncio.Protocol):
    """The connection of one peer: its socket and its responder.

    A connection has no task. In each iteration of the event loop, every connection that has work performs a few steps.
    A connection does not read while it has work, and does not work while the peer leaves 1 MB unread.
    """

    responder: Responder

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._scheduled = False
        self._gone = False
        self._stalled: asyncio.TimerHandle | None = None  # set while the peer is not reading
        self._timer: asyncio.TimerHandle | None = None  # set for the responder's deadline

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=SEND_BUFFER)
        self.responder = self._node.open_responder(self._loop.time())
        if self._node.enter(self):
            self._set_timer()
        else:
            self._gone = True
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._gone:
            self.responder.session.receive_data(data)
            self._transport.pause_reading()
            self.wake()

    def eof_received(self) -> bool:
        self.responder.session.receive_eof()
        self.wake()
        return True  # the socket stays open, and earlier requests are answered

    def pause_writing(self) -> None:
        self._stalled = self._loop.call_later(self._node.stall_s, self._cut)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
        self._stalled = None
        self.wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone = True
        for timer in (self._stalled, self._timer):
            if timer is not None:
                timer.cancel()
        self._node.leave(self)

    def abort(self) -> None:
        """Close the connection immediately; data that the peer has not read is lost."""
        self._transport.abort()

    def wake(self) -> None:
        """Schedule the steps of this connection for the next iteration of the event loop."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        self._scheduled = False
        if self._gone or self._stalled is not None:
            return
        try:
            more = self._steps()
        except BaseException:  # a bug, possibly in a subclass of Responder; the peer must not wait forever
            self.abort()
            raise
        if data := self.responder.session.data_to_send():
            self._transport.write(data)
        if self.responder.over is not None:
            self._gone = True
            self._transport.close()
            self._stalled = self._stalled or self._loop.call_later(self._node.stall_s, self._cut)
        elif more:
            self.wake()
        else:
            self._transport.resume_reading()
        self._set_timer()

    def _steps(self) -> bool:
        """Perform a few of the responder's steps, and return True if there is more to do.

        The caller sends the messages of these steps in one piece.
        """
        session, end = self.responder.session, self._loop.time() + _TURN_S
        while more := self.responder.step():
            if session.waiting >= _TURN_SIZE or self._loop.time() >= end:
                break
        return more

    def _cut(self) -> None:
        logger.debug(
            "disconnected: the peer left %d bytes unread for %g s",
            self._transport.get_write_buffer_size(),
            self._node.stall_s,
        )
        self.abort()

    def _set_timer(self) -> None:
        """Schedule a call at the session's deadline, which may have moved."""
        deadline = self.responder.session.deadline
        if self._timer is not None:
            if self._timer.when() == deadline:
                return
            self._timer.cancel()
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.responder.session.tick(self._loop.time())
        self.wake()

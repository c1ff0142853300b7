"""Sockets: opens connections for the engine, passes messages to it, and sends its messages."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace

from spvfilter.errors import ParameterError, PeerError
from spvfilter.light.engine.inputs import Input, Lost, PeerConnected, inputs_of
from spvfilter.network import Network
from spvfilter.p2p.address import Address
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.connection import Connection
from spvfilter.p2p.limits import Limits
from spvfilter.p2p.proxy import Proxy
from spvfilter.wire.events import Settings
from spvfilter.wire.messages.table import Message
from spvfilter.wire.transport import V2Policy


class Sockets:
    """Connections, by the numbers that the engine assigned to them."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        report: Callable[[Input], None],
        *,
        proxy: Proxy | None,
        limits: Limits,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._report = report
        self._proxy = proxy
        self._limits = limits
        self._clock = clock
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._connections: dict[int, Connection] = {}
        self._fences: dict[int, dict[int, int]] = {}  # by peer: the token of each fence, by the nonce of its ping
        self._open: dict[int, Connection] = {}  # connections whose task has not ended
        self._received = 0  # bytes of connections that have ended
        self._sent = 0

    def connect(
        self, peer: int, address: str, *, is_private: bool = False, v2: V2Policy = V2Policy.OFF, relay: bool = False
    ) -> None:
        """Open a connection. With `relay`, the peer is asked to announce transactions.

        A private connection reveals nothing about this client. Over Tor, it gets its own circuit.
        """
        settings, proxy, clock = replace(self._settings(), relay=relay), self._proxy, self._clock
        if is_private:
            settings, clock = stranger(settings.network), replace(clock, wall=lambda: 0.0)
            proxy = proxy.isolated(secrets.token_hex(16)) if proxy is not None else None
        task = self._tasks[peer] = asyncio.create_task(self._talk(peer, address, settings, proxy, clock, v2))
        task.add_done_callback(lambda _: self._tasks.pop(peer, None))

    def send(self, peer: int, message: Message) -> None:
        """Send a message."""
        self._use(peer, lambda connection: connection.post(message))

    def fence(self, peer: int, token: int) -> None:
        """Send a ping, and report its pong as FencePassed with this token."""

        def fence(connection: Connection) -> None:
            self._fences[peer][connection.fence()] = token

        self._use(peer, fence)

    def _use(self, peer: int, use: Callable[[Connection], None]) -> None:
        """Use a connection if there is one. A peer that does not read, or does not answer pings, is disconnected."""
        connection = self._connections.get(peer)
        if connection is None:
            return
        try:
            use(connection)
        except ParameterError as error:  # too many bytes are waiting to be sent, or too many pings have no pong yet
            self.drop(peer)
            asyncio.get_running_loop().call_soon(self._report, Lost(peer, PeerError(str(error))))

    def drop(self, peer: int) -> None:
        """Close a connection, or stop the attempt to open it."""
        connection = self._connections.pop(peer, None)
        if connection is not None:
            connection.close()
        task = self._tasks.get(peer)
        if task is not None:
            task.cancel()

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes received and bytes sent on all connections that completed the handshake."""
        received = sum(connection.received for connection in self._open.values())
        return self._received + received, self._sent + sum(connection.sent for connection in self._open.values())

    async def close(self) -> None:
        """Close all connections."""
        tasks = list(self._tasks.values())
        for peer in list(self._tasks):
            self.drop(peer)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _talk(
        self, peer: int, address: str, settings: Settings, proxy: Proxy | None, clock: Clock, v2: V2Policy
    ) -> None:
        """Run one connection from its start to its end."""
        try:
            nonces = {connection.nonce for connection in self._connections.values()}
            connection = await Connection.open(
                Address.parse(address, 0),
                settings,
                proxy=proxy,
                limits=self._limits,
                clock=clock,
                own_nonces=nonces,
                v2=v2,
            )
        except Exception as error:  # of any kind: the engine must not wait for this peer forever
            self._report(Lost(peer, _named(error)))
            return
        self._connections[peer], self._fences[peer] = connection, {}
        self._open[peer] = connection
        try:
            self._report(_connected(peer, connection))
            await self._read(peer, connection)
        # a failure of the peer or of the network; a bug that a message triggers also ends only this connection
        except Exception as error:
            if self._connections.pop(peer, None) is not None:
                self._report(Lost(peer, _named(error)))
        finally:
            self._connections.pop(peer, None)
            self._fences.pop(peer, None)
            connection.close()
            del self._open[peer]
            self._received += connection.received
            self._sent += connection.sent

    async def _read(self, peer: int, connection: Connection) -> None:
        while True:
            await connection.drain()  # do not read from a peer that does not read our answers
            events = await connection.receive_together()
            is_first = True
            for each in inputs_of(peer, events, lambda nonce: self._fences[peer].pop(nonce, None)):
                if not is_first:
                    await asyncio.sleep(0)  # other tasks run between the messages of one peer
                is_first = False
                self._report(each)


def stranger(network: Network) -> Settings:
    """Return a private connection's version data, which never varies (Core net_processing.cpp PushNodeVersion)."""
    return Settings(network, user_agent=b"/pynode:0.0.1/", addrv2=False)


def _connected(peer: int, connection: Connection) -> PeerConnected:
    ready = connection.ready
    version = ready.version
    return PeerConnected(
        peer,
        connection.host,
        version.services,
        version.start_height,
        version.relay,
        ready.wtxid_relay,
        version.agent,
        version.timestamp,
        connection.transport,
    )


def _named(error: Exception) -> Exception:
    return TimeoutError("no answer in time") if isinstance(error, TimeoutError) and not error.args else error

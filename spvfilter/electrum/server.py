"""ElectrumServer: lets wallets such as Electrum and Sparrow use a light client as their server."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Collection
from importlib.util import find_spec
from types import TracebackType
from typing import Self

from spvfilter._public import public
from spvfilter.electrum.budget import SMALL, ElectrumBudget
from spvfilter.electrum.connection import ElectrumConnection
from spvfilter.electrum.limits import ElectrumLimits
from spvfilter.electrum.status import ElectrumStatus
from spvfilter.electrum.wallet import WalletLink
from spvfilter.errors import NotRunningError, ParameterError, remedy
from spvfilter.light.client import LightClient

TCP_PORT, TLS_PORT = 50_001, 50_002  # ports of Electrum servers
MAX_PORT = 0xFFFF
LOCAL = ("127.0.0.1", "::1", "localhost")
"""Addresses of this machine, which need no warning."""
_LOG = logging.getLogger(__name__)


@public
class ElectrumServer:
    """An Electrum server over a running light client, for wallets on the same machine.

        async with LightClient(watch, peers=["127.0.0.1:8333"], store="wallet.db") as client:
            async with ElectrumServer(client) as server:
                await server.wait_closed()

    The server knows the scripts of the client's watch list. It speaks versions 1.4 to 1.6 of the protocol. Every
    program that connects sees the wallet, so the server listens on 127.0.0.1. See "Run an Electrum server" in the
    documentation.

    Args:
        client: The running client.
        host: Address to listen on.
        port: Port for TCP. None disables TCP, and 0 chooses a free port.
        tls_port: Port for TLS, which needs a certificate.
        certificate: Path of a PEM file that contains a certificate and its chain.
        key: Path of the certificate's private key; by default, the same file.
        limits: Bounds on sessions and messages.

    Raises:
        ParameterError: There is no valid port, a TLS port has no certificate, or the `electrum` extra is not installed.
            On entering, the certificate or its key cannot be loaded.
        NotRunningError: On entering, the client is not running.
        OSError: On entering, the server cannot listen.
    """

    def __init__(
        self,
        client: LightClient,
        *,
        host: str = "127.0.0.1",
        port: int | None = TCP_PORT,
        tls_port: int | None = None,
        certificate: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        limits: ElectrumLimits | None = None,
    ) -> None:
        if find_spec("aiorpcx") is None:
            raise ParameterError(f"the Electrum server needs aiorpcX; {remedy('electrum')}")
        for given in (port, tls_port):
            if given is not None and not (isinstance(given, int) and 0 <= given <= MAX_PORT):
                raise ParameterError(f"a port must be a number from 0 to {MAX_PORT}, not {given!r}")
        if port is None and tls_port is None:
            raise ParameterError("an Electrum server needs a port: give port or tls_port")
        if tls_port is not None and certificate is None:
            raise ParameterError("tls_port needs a certificate: give the path of a PEM file")
        self._client = client
        self._host = host
        self._ports = port, tls_port
        self._certificate = certificate, key
        self._limits = limits or ElectrumLimits()
        self._budget = ElectrumBudget(self._limits)
        self._link: WalletLink | None = None
        self._servers: list[asyncio.Server] = []
        self._connections: dict[ElectrumConnection, None] = {}
        self._following: asyncio.Task[None] | None = None
        self._hosts: dict[str, dict[str, int]] = {}

    async def __aenter__(self) -> Self:
        """Read the wallet's transactions and start to listen. See the class for the errors."""
        if self._following is not None:
            raise NotRunningError("the server is already running")
        self._hosts = {}
        link = self._link = WalletLink(self._client, self._limits, self._hosts)
        sequence = await link.load()
        port, tls_port = self._ports
        try:
            if port is not None:
                await self._listen(port, "tcp_port", None)
            if tls_port is not None:
                await self._listen(tls_port, "ssl_port", self._tls())
        except BaseException:
            await self._close()
            raise
        if self._host not in LOCAL:
            _LOG.warning("the Electrum server listens on %s: every program that connects sees the wallet", self._host)
        self._following = asyncio.create_task(self._follow(link, sequence))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections and stop listening."""
        await self._close()

    async def wait_closed(self) -> None:
        """Wait until the client ends. If an error ended the client, that error is raised.

        Raises NotRunningError if the server is not running.
        """
        if self._following is None:
            raise NotRunningError("the server is not running: enter it with `async with` first")
        await asyncio.wait([self._following])
        if not self._following.cancelled():
            self._following.result()

    @property
    def port(self) -> int | None:
        """Port for TCP, or None if the server has none."""
        return self._hosts.get(self._host, {}).get("tcp_port")

    @property
    def tls_port(self) -> int | None:
        """Port for TLS, or None if the server has none."""
        return self._hosts.get(self._host, {}).get("ssl_port")

    @property
    def status(self) -> ElectrumStatus:
        """The current state of the server. Raises NotRunningError if the server or the client is not running."""
        if self._link is None:
            raise NotRunningError("the server is not running: enter it with `async with` first")
        return ElectrumStatus(
            len(self._connections),
            sum(len(each.session.subscriptions) for each in self._connections),
            tuple(self._link.state.scripts.unknown),
            self._link.state.scripts.unknown_count,
            self._client.searched_height,
            self._client.tip_height,
        )

    # Listening

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        certificate, key = self._certificate
        assert certificate is not None
        try:
            context.load_cert_chain(certificate, key, password=str)  # no passphrase, and no prompt on the terminal
        except OSError as error:
            keyed = "its key" if key is None else f"the key {os.fspath(key)}"
            raise ParameterError(
                f"the certificate {os.fspath(certificate)} and {keyed} cannot be loaded: {error.strerror}: give a"
                " matching certificate and key in PEM format; the key must not have a passphrase"
            ) from error
        return context

    async def _listen(self, port: int, name: str, tls: ssl.SSLContext | None) -> None:
        server = await asyncio.start_server(self._connected, self._host, port, ssl=tls, limit=SMALL)
        self._servers.append(server)
        self._hosts.setdefault(self._host, {})[name] = server.sockets[0].getsockname()[1]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends. An error ends only this connection."""
        link = self._link
        if link is None or len(self._connections) >= self._limits.sessions:
            _LOG.info("a connection was refused: there are already %d", len(self._connections))
            writer.transport.abort()
            return
        writer.transport.set_write_buffer_limits(SMALL, 0)  # a drain ends when everything has been sent
        connection = ElectrumConnection(reader, writer, link, self._limits, self._budget, lambda: self.status)
        self._connections[connection] = None
        try:
            await connection.serve()
        finally:
            del self._connections[connection]

    async def _follow(self, link: WalletLink, since: int) -> None:
        """Follow the wallet. When the client ends, close all connections, because later answers would be outdated."""
        try:
            await link.follow(self._tell, since)
        finally:
            self._stop()

    async def _tell(self, changed: Collection[str]) -> None:
        for connection in self._connections:
            connection.note(changed)

    def _stop(self) -> list[asyncio.Task[None]]:
        """Stop listening, and end all connections. Returns the tasks of the connections, which will end soon."""
        for server in self._servers:
            server.close()
        return [task for connection in self._connections if (task := connection.close()) is not None]

    async def _close(self) -> None:
        tasks = self._stop()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await asyncio.gather(*tasks, return_exceptions=True)
        self._servers, self._link, self._following = [], None, None

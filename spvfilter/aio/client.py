"""One peer over TCP: opens the connection, moves bytes between socket and session, keeps its clocks. What to ask is decided elsewhere."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from spvfilter.aio.proxy import Proxy
from spvfilter.errors import ParameterError, SessionError
from spvfilter.wire.messages import Message
from spvfilter.wire.peer import Peer
from spvfilter.wire.session import Cause, Disconnected, Event, Ready, Role, Settings

_BUFFER = 1 << 16  # bytes that wait to be read, and are read at once
_TURN_S = 0.002  # of work, after which others have their turn
_HIGH_WATER = 1 << 20  # bytes written and not yet sent from which sending waits


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait for a peer, in seconds (Core's values unless said), and how much is asked of it at once."""

    connect_s: float = 5.0
    proxy_s: float = 20.0  # for a proxy to connect (Core netbase.cpp SOCKS5_RECV_TIMEOUT)
    headers_s: float = 900.0  # for all headers a peer has, and a millisecond for each that it says it has
    reply_s: float = 120.0  # for everything else that was asked for
    stall_s: float = 2.0  # without a block while another peer could send it; doubles each time, up to max_stall_s
    max_stall_s: float = 64.0
    send_s: float = 60.0  # for a peer that does not read; ours
    retry_s: float = 1.0  # before a peer is tried again; doubles each time; ours
    max_retry_s: float = 300.0  # ours
    stale_tip_s: float = 1800.0  # without a new block: ask for headers again
    flight: int = 125  # filtered blocks asked for at once; ours
    flights: int = 8  # of these under way; ours
    filters: int = 250  # compact filters asked for at once; BIP-157: at most 1,000
    filter_flights: int = 2  # of these under way, of a peer; ours


@dataclass(frozen=True, slots=True)
class Address:
    """Where a peer listens: a host name or IPv4 or IPv6 address, and a port."""

    host: str
    port: int

    def __post_init__(self) -> None:
        if not self.host or not 0 < self.port < 65536:
            raise ParameterError(f"no address of a peer: {str(self)[:80]!r}")

    @classmethod
    def parse(cls, text: str, default_port: int) -> Address:
        """From HOST, HOST:PORT, IPV6 or [IPV6]:PORT. Raises ParameterError."""
        host, port = text.strip(), str(default_port)
        if host.startswith("["):
            host, bracket, rest = host[1:].partition("]")
            if not bracket or (rest and not rest.startswith(":")):
                raise ParameterError(f"not HOST:PORT: {text[:80]!r}")
            port = rest[1:] or port
        elif host.count(":") == 1:
            host, _, port = host.partition(":")
        if not port.isascii() or not port.isdigit() or len(port) > 5:
            raise ParameterError(f"not a port: {port[:20]!r}")
        if not (_is_ip(host) or _is_name(host)):
            raise ParameterError(f"not a host: {host[:80]!r}")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_name(host: str) -> bool:
    """Whether it can be asked for: resolvers and proxies stumble over what cannot be encoded, RFC 1035 § 2.3.4."""
    if not all(part and part.replace("-", "").replace("_", "").isalnum() for part in host.split(".")):
        return False
    try:
        return len(host.encode("idna")) <= 253
    except UnicodeError:
        return False


@dataclass(frozen=True, slots=True)
class Clock:
    """Where time comes from: `monotonic` for waiting, `wall` (seconds since 1970) for what blocks and transactions say."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


@dataclass(slots=True)
class Connection:
    """A peer after its handshake. One task reads with `receive`; any may `send`."""

    address: Address
    ready: Ready
    _peer: Peer
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _limits: Limits
    _clock: Clock
    received: int = field(default=0)  # bytes
    _turn: float = field(default=0.0)  # when others have theirs

    @classmethod
    async def open(
        cls,
        address: Address,
        settings: Settings,
        *,
        proxy: Proxy | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        own_nonces: Collection[int] = (),
        draw_nonce: Callable[[], int] | None = None,
    ) -> Connection:
        """Connect and shake hands; with a `proxy` names are resolved there.

        Raises OSError where there is no connection, TimeoutError where none came in time, PeerError for a peer that does not fit.
        """
        limits, clock = limits or Limits(), clock or Clock()
        reader, writer = await _connect(address, proxy, limits)
        try:
            now = clock.monotonic()
            draw = draw_nonce or (lambda: secrets.randbits(64))
            peer = Peer(settings, Role.OUTBOUND, draw_nonce=draw, now=now, timestamp=int(clock.wall()), own_nonces=own_nonces)
            opening = cls(address, Ready.__new__(Ready), peer, reader, writer, limits, clock)
            while not isinstance(event := await opening.receive(), Ready):
                pass
            opening.ready = event
        except BaseException:
            writer.transport.abort()
            raise
        return opening

    @property
    def services(self) -> int:
        """What the peer serves, bits of Service."""
        return self.ready.version.services

    @property
    def nonce(self) -> int:
        """Of our version message on this connection."""
        return self._peer.nonce

    async def receive(self) -> Event:
        """The next event but Disconnected, which is raised: as PeerError, or after `close` as ConnectionAbortedError."""
        while True:
            if time.perf_counter() >= self._turn:
                await asyncio.sleep(0)
                self._turn = time.perf_counter() + _TURN_S
            event = self._peer.next_event()
            self._flush()
            if isinstance(event, Disconnected):
                self._writer.transport.abort()
                raise event.error or ConnectionAbortedError(f"{self.address}: closed by us")
            if event is not None:
                return event
            await self.drain()  # a peer that does not read is not read
            await self._read()

    async def _read(self) -> None:
        deadline = self._peer.deadline
        wait = None if deadline is None else deadline - self._clock.monotonic()
        if wait is not None and wait <= 0:
            self._peer.tick(self._clock.monotonic())
            return
        try:
            async with asyncio.timeout(wait):
                data = await self._reader.read(_BUFFER)
        except TimeoutError:
            self._peer.tick(self._clock.monotonic())
            return
        except OSError:
            data = b""
        if data:
            self.received += len(data)
            self._peer.receive_data(data)
        else:
            self._peer.receive_eof()

    async def send(self, *messages: Message) -> None:
        """Send messages; waits while the peer does not take them. Raises SessionError where it does not for long."""
        for message in messages:
            self._peer.send(message)
            self._flush()
        await self.drain()

    def fence(self) -> int:
        """Send a ping at once; `receive` gives Fenced with its nonce once the peer has answered all that was sent before it."""
        nonce = self._peer.fence(self._clock.monotonic())
        self._flush()
        return nonce

    def _flush(self) -> None:
        if data := self._peer.data_to_send():
            self._writer.write(data)

    async def drain(self) -> None:
        """Wait while the peer does not take what it was sent. Raises SessionError where it does not for long."""
        if self._writer.transport.get_write_buffer_size() < _HIGH_WATER:
            return
        try:
            async with asyncio.timeout(self._limits.send_s):
                await self._writer.drain()
        except TimeoutError:
            error = SessionError(f"does not read what it is sent within {self._limits.send_s:g} s", cause=Cause.LOST)
            self._peer.close(error)
            self._writer.transport.abort()
            raise error from None
        except OSError:
            self._peer.receive_eof()

    def close(self) -> None:
        """End the connection at once; `receive` raises."""
        self._peer.close()
        self._writer.transport.abort()


async def _connect(address: Address, proxy: Proxy | None, limits: Limits) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if proxy is None:
        try:
            async with asyncio.timeout(limits.connect_s):
                return await asyncio.open_connection(address.host, address.port, limit=_BUFFER)
        except TimeoutError as error:  # ours says nothing, the system's does
            raise error if error.errno else TimeoutError(f"no connection within {limits.connect_s:g} s") from None
    socket = await proxy.connect(address.host, address.port, limits.proxy_s)
    try:
        return await asyncio.open_connection(sock=socket, limit=_BUFFER)
    except BaseException:
        socket.close()
        raise

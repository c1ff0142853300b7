"""Connection: a TCP connection to a peer, with protocol session, timeouts and backpressure."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from spvfilter._public import public
from spvfilter.errors import ParameterError, SessionError
from spvfilter.p2p.address import Address, is_ip
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.dns import resolved
from spvfilter.p2p.limits import Limits
from spvfilter.p2p.proxy import Proxy
from spvfilter.wire.events import (
    Cause,
    Ready,
    Received,
    ReceivedFilters,
    Role,
    SessionEnded,
    SessionEvent,
    Settings,
)
from spvfilter.wire.messages.table import LIMITS, Message
from spvfilter.wire.session import MAX_SEND_BUFFER, Session
from spvfilter.wire.transport import Transport, V2Policy
from spvfilter.wire.v2 import V2Stream

_READ = 1 << 16  # bytes of one read
# Limit of the stream reader, in bytes. The reader pauses at twice this size; the event loop receives up to 256 KiB
# at a time.
_BUFFER = 4 * _READ
_TURN_S = 0.002  # seconds of work after which other tasks get a turn
_HIGH_WATER = 1 << 20  # bytes written but not sent; above this, `drain` waits

# Seconds without a byte from the peer after which it gets a line end (our choice). Servers of other protocols, such as
# HTTP, read a line before they answer; their answer then names the protocol.
PROMPT_S = 3.0

logger: logging.Logger = logging.getLogger(__name__)


@public
@dataclass(slots=True)
class Connection:
    """A connection to a peer after the handshake. Create one with `open`.

    Only one task may call `receive`. Any task may call `send`.
    """

    address: Address
    """Address of the peer, as it was passed to `open`."""
    ready: Ready
    """Result of the handshake: the peer's version message and the agreed options."""
    _session: Session
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _limits: Limits
    _clock: Clock
    _is_proxied: bool = False
    received: int = field(default=0)
    """Number of bytes received from the peer so far."""
    _turn: float = field(default=0.0)
    """When other tasks get their next turn, in seconds of `time.perf_counter`."""
    sent: int = field(default=0)
    """Number of bytes sent to the peer so far, including bytes still in a buffer."""

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
        v2: V2Policy = V2Policy.OFF,
        draw_bytes: Callable[[int], bytes] | None = None,
    ) -> Connection:
        """Connect to a peer, complete the handshake, and return the connection.

        Args:
            address: The peer's address.
            settings: The network, our version message, and the services that the peer must offer.
            proxy: SOCKS5 proxy to connect through. It also resolves host names.
            limits: Timeouts; Core's by default.
            clock: Source of time; the system clock by default.
            own_nonces: Version nonces of our other connections. A peer that sends one of them is this program.
            draw_nonce: Function that returns random 64-bit numbers; from `secrets` by default.
            v2: Whether to encrypt the connection (BIP-324, which needs the `bip324` extra). Off by default.
            draw_bytes: Function that returns random bytes for the encryption; from `secrets` by default.

        Raises:
            OSError: The connection failed, or was lost during the handshake.
            TimeoutError: No connection was established within the time of `limits`.
            PeerError: The peer is unsuitable: it is on the wrong network, lacks services, or is silent during the
                handshake.
            ParameterError: The connection should be encrypted, but the `bip324` extra is not installed.
        """
        limits, clock = limits or Limits(), clock or Clock()
        draw = draw_nonce or (lambda: secrets.randbits(64))
        begun: float | None = None  # the handshake, with the time of an attempt with encryption before it

        async def connected(stream: V2Stream | None) -> Connection:
            nonlocal begun
            reader, writer = await connect(address, proxy, limits)
            begun = clock.monotonic() if begun is None else begun
            try:
                session = Session(
                    settings,
                    Role.OUTBOUND,
                    draw_nonce=draw,
                    now=begun,
                    timestamp=int(clock.wall()),
                    own_nonces=own_nonces,
                    stream=stream,
                )
                opening = cls(address, Ready.__new__(Ready), session, reader, writer, limits, clock, proxy is not None)
                opening.ready = await opening._shake_hands()
            except BaseException:
                writer.transport.abort()
                raise
            return opening

        if v2 is V2Policy.OFF:
            return await connected(None)
        draw_bytes = draw_bytes or secrets.token_bytes
        try:
            return await connected(V2Stream(settings.network.magic, Role.OUTBOUND, draw_bytes, LIMITS))
        except SessionError as error:
            if error.cause is not Cause.NO_V2 or v2 is V2Policy.REQUIRE:
                raise
            logger.debug("%s: reconnecting without encryption: %s", address, error)
        return await connected(None)

    @property
    def transport(self) -> Transport:
        """Kind of the connection: `Transport.V2` if it is encrypted."""
        return self._session.transport

    @property
    def services(self) -> int:
        """The peer's service bits (`Service`)."""
        return self.ready.version.services

    @property
    def nonce(self) -> int:
        """The nonce of our version message on this connection."""
        return self._session.nonce

    async def receive(self) -> SessionEvent:
        """Wait for the next event of the session, and return it.

        Raises:
            PeerError: The session ended: the peer broke the protocol, was silent for too long, or disconnected.
            ConnectionAbortedError: `close` was called.
        """
        while True:
            if time.perf_counter() >= self._turn:
                await asyncio.sleep(0)
                self._turn = time.perf_counter() + _TURN_S
            event = self._session.next_event()
            self._flush()
            if isinstance(event, SessionEnded):
                self._writer.transport.abort()
                raise event.error or ConnectionAbortedError(f"{self.address}: closed by us")
            if event is not None:
                return event
            await self.drain()  # while the peer does not read, nothing is read from it
            await self._read()

    async def _shake_hands(self) -> Ready:
        """Wait until the handshake has ended. Ends the connection if the peer sends no byte in time."""
        loop = asyncio.get_running_loop()
        timers = loop.call_later(PROMPT_S, self._prompt), loop.call_later(self._limits.first_byte_s, self._give_up)
        try:
            while not isinstance(event := await self.receive(), Ready):
                pass
            return event
        finally:
            for timer in timers:
                timer.cancel()

    def _prompt(self) -> None:
        """Prompt a peer that has sent nothing, so that a server for another protocol answers."""
        if not self.received and not self._writer.transport.is_closing():
            self._session.prompt()
            self._flush()

    def _give_up(self) -> None:
        """End the connection to a peer that has sent nothing."""
        if not self.received:
            silence = f"accepted the connection but sent nothing within {self._limits.first_byte_s:g} s"
            why = "it is not a Bitcoin node, or is too busy to answer"
            if self.transport is Transport.V2:
                why += ", or it is a node without v2 transport (BIP-324), which needs v2='off'"
            self._session.close(SessionError(f"{silence}: {why}", cause=Cause.HANDSHAKE_TIMEOUT))
            self._writer.transport.abort()

    async def receive_together(self) -> list[SessionEvent]:
        """Wait for the next event, and return it with pending events that may follow it (`Session.more_events`).

        Raises PeerError and ConnectionAbortedError in the same cases as `receive`.
        """
        event = await self.receive()
        return [event, *self._session.more_events()] if isinstance(event, Received | ReceivedFilters) else [event]

    async def _read(self) -> None:
        deadline = self._session.deadline
        wait = None if deadline is None else deadline - self._clock.monotonic()
        if wait is not None and wait <= 0:
            self._session.tick(self._clock.monotonic())
            return
        try:
            async with asyncio.timeout(wait):
                data = await self._reader.read(_READ)
        except TimeoutError:
            self._session.tick(self._clock.monotonic())
            return
        except OSError:
            data = b""
        if data:
            self.received += len(data)
            self._session.receive_data(data)
        else:
            self._session.receive_eof()

    async def send(self, *messages: Message) -> None:
        """Send messages to the peer, and wait while it does not read them.

        Raises SessionError after `Limits.send_s` seconds.
        """
        for message in messages:
            self._session.send(message)
            self._flush()
        await self.drain()

    def post(self, message: Message) -> None:
        """Queue a message for the peer and return immediately.

        If the peer does not read, the next `receive` waits until most of the queue has been sent.

        Raises:
            ParameterError: More than 16 MB are already waiting to be sent.
        """
        transport = self._writer.transport
        if not transport.is_closing():
            if (waiting := transport.get_write_buffer_size()) > MAX_SEND_BUFFER:
                raise ParameterError(f"{waiting} bytes are waiting to be sent, because the peer does not read them")
            self._session.send(message)
            self._flush()

    @property
    def host(self) -> str:
        """IP address of the peer or, with a proxy, the host that the proxy was asked to connect to."""
        if self._is_proxied:
            return self.address.host
        place = self._writer.get_extra_info("peername")
        return str(place[0]) if place else self.address.host

    def fence(self) -> int:
        """Send a ping and return its nonce.

        `receive` returns `Fenced` with this nonce once the peer has processed all earlier messages.
        """
        nonce = self._session.fence(self._clock.monotonic())
        self._flush()
        return nonce

    def _flush(self) -> None:
        data = self._session.data_to_send()
        if data and not self._writer.transport.is_closing():
            self._write(data)

    def _write(self, data: bytes) -> None:
        self._writer.write(data)
        self.sent += len(data)

    async def drain(self) -> None:
        """Wait until at most 1 MiB of queued messages is unsent. Raises SessionError after `Limits.send_s` seconds."""
        if self._writer.transport.get_write_buffer_size() < _HIGH_WATER:
            return
        try:
            async with asyncio.timeout(self._limits.send_s):
                await self._writer.drain()
        except TimeoutError:
            error = SessionError(f"did not read our messages within {self._limits.send_s:g} s", cause=Cause.LOST)
            self._session.close(error)
            self._writer.transport.abort()
            raise error from None
        except OSError:
            self._session.receive_eof()

    def close(self) -> None:
        """Close the connection immediately. A pending or later `receive` raises ConnectionAbortedError."""
        self._session.close()
        self._writer.transport.abort()


async def connect(
    address: Address, proxy: Proxy | None, limits: Limits
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to an address, through the proxy if there is one."""
    if proxy is None:
        try:
            async with asyncio.timeout(limits.connect_s):
                return await _connect_directly(address)
        except TimeoutError as error:  # an error of the system has an errno; that of asyncio.timeout has no message
            raise error if error.errno else TimeoutError(f"no connection within {limits.connect_s:g} s") from None
    socket = await proxy.connect(address.host, address.port, limits.proxy_s)
    try:
        return await asyncio.open_connection(sock=socket, limit=_BUFFER)
    except BaseException:
        socket.close()
        raise


async def _connect_directly(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first IP address of a host name that accepts the connection.

    Names are resolved by `resolved`, because the event loop would use its thread pool, which has few threads, and a
    program waits for these threads when it ends.
    """
    hosts = [address.host] if is_ip(address.host) else list(dict.fromkeys(await resolved(address.host)))
    failure = OSError("the host name has no IP address")
    for host in hosts:
        try:
            return await asyncio.open_connection(host, address.port, limit=_BUFFER)
        except OSError as error:
            failure = error
    raise failure

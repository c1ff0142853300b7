"""Session: the state machine of a P2P connection, without sockets, for either side of the connection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator

from spvfilter._public import public
from spvfilter.errors import EnvelopeError, MessageError, ParameterError, PeerError, SessionError
from spvfilter.protocol import BASIC_FILTER_TYPE, ENVELOPE_SIZE
from spvfilter.wire.codec import Frame
from spvfilter.wire.events import (
    NEGOTIATION_VERSION,
    Cause,
    Fenced,
    Misbehaved,
    Ready,
    Received,
    ReceivedFilters,
    Role,
    Service,
    SessionEnded,
    SessionEvent,
    Settings,
)
from spvfilter.wire.messages.control import Ping, Pong, SendAddrV2, Verack, Version, WtxidRelay
from spvfilter.wire.messages.filters import CFilter
from spvfilter.wire.messages.table import LIMITS, Message, command_of, parse_message
from spvfilter.wire.streams import MessageStream, UndecidedStream, V1Stream
from spvfilter.wire.transport import Transport

# Reading pauses once this many bytes wait to be taken as events. Source: Core net.h DEFAULT_MAXRECEIVEBUFFER.
RECEIVE_BUFFER = 5_000_000

# Received messages wait once this many bytes wait to be sent. Source: Core net.h DEFAULT_MAXSENDBUFFER.
SEND_BUFFER = 1_000_000

# Bytes that may wait to be sent (our choice): a block in its envelope fits in addition to a full SEND_BUFFER.
MAX_SEND_BUFFER = 16_000_000

MAX_PINGS = 1_024  # pings without a pong (our choice)

# Classes of messages that the session answers or refuses itself.
_OF_THE_SESSION = frozenset({Ping, Pong, Version, Verack, WtxidRelay, SendAddrV2})

# Commands that `more_events` leaves for the next call of `events`. None: the next message is not known to be valid.
_ALONE = frozenset({None, "ping", "pong", "version", "verack", "wtxidrelay", "sendaddrv2"})

MAX_EVENTS = 50  # most events that `more_events` returns (our choice)
_NEGOTIATION = frozenset({"version", "wtxidrelay", "sendaddrv2", "verack", "sendheaders", "sendcmpct"})

logger: logging.Logger = logging.getLogger(__name__)


@public
class Session:
    """State machine of a P2P connection: it takes received bytes, and returns events and bytes to send.

        peer = Session(
            Settings(REGTEST), Role.OUTBOUND, draw_nonce=lambda: secrets.randbits(64), now=clock()
        )
        sock.send(peer.data_to_send())
        peer.receive_data(data)  # read from the socket, while peer.wants_data
        for event in peer.events():  # answer each event with peer.send(…) before the next
            ...  # then send peer.data_to_send(), and call peer.tick(now) at peer.deadline

    The session processes a message when the caller takes its event, so answers keep their order. It answers pings
    itself. The size of the pieces passed to `receive_data` does not change the events. While `can_send` is False, the
    session returns no events: call `data_to_send` first.

    Args:
        settings: Values that this side announces, and requirements that the peer must meet.
        role: `Role.OUTBOUND` if this side opened the connection, else `Role.INBOUND`.
        draw_nonce: Function that returns a random u64.
        now: The current time of a monotonic clock, in seconds.
        timestamp: The current time that the version message announces (Unix time).
        own_nonces: Version nonces of all connections of this process. If a peer sends one of them, the connection leads
            back to this process.
        stream: Encoding of the messages, such as `V2Stream` for encryption (BIP-324). By default messages are not
            encrypted.
    """

    def __init__(
        self,
        settings: Settings,
        role: Role,
        *,
        draw_nonce: Callable[[], int],
        now: float,
        timestamp: int = 0,
        own_nonces: Collection[int] = (),
        stream: MessageStream | None = None,
    ) -> None:
        self.settings = settings
        """Values that this side announces, and requirements that the peer must meet."""
        self.role = role
        """Side of the connection: `Role.OUTBOUND` if this side opened it, else `Role.INBOUND`."""
        self.nonce: int = draw_nonce()
        """Nonce of the version message that this side sends (u64)."""
        self.ready: Ready | None = None
        """The Ready event, which completed the handshake, or None until then."""
        self.remote: Version | None = None
        """The version message that the peer sent, or None until it has arrived."""
        self._draw_nonce = draw_nonce
        self._own_nonces = own_nonces
        self._timestamp = timestamp
        self._stream: MessageStream = stream or V1Stream(settings.network.magic, LIMITS)
        self._has_heard = False  # True once the peer has sent a byte
        self._sent = 0  # bytes that the caller has taken to send
        self._last: SessionEnded | None = None  # the pending last event, if no message ended the session
        self._closed = self._eof = False
        self._wtxid_relay = False  # True once the peer has sent wtxidrelay
        self._addrv2 = False  # True once the peer has sent sendaddrv2
        self._pings: dict[
            int, tuple[float, bool]
        ] = {}  # unanswered pings by nonce, oldest first: (time sent, is a fence)
        self._started = now
        self._last_ping = now - settings.ping_interval_s if settings.pings_first else now
        if role is Role.OUTBOUND:
            self._send_version()

    @property
    def transport(self) -> Transport:
        """Kind of the connection: `Transport.V2` if it is encrypted."""
        return self._stream.transport

    # Receiving

    @property
    def wants_data(self) -> bool:
        """True if the caller should read the socket.

        It is False once the session has ended, and while 5 MB of received data wait to be taken as events.
        """
        return not self._closed and self._stream.buffered < RECEIVE_BUFFER

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Pass the next bytes from the socket to the session. Once the session has ended, they are discarded.

        Raises ParameterError if `wants_data` is False.
        """
        if self._closed:
            return
        if not self.wants_data:
            raise ParameterError(
                f"{self._stream.buffered} received bytes have not been taken as events: take the events first"
            )
        self._has_heard = self._has_heard or len(data) > 0
        self._stream.feed(data)
        if isinstance(self._stream, UndecidedStream):
            self._stream = self._stream.decided() or self._stream

    def receive_eof(self) -> None:
        """Report that the peer closed its side, or that the connection was lost.

        The caller can still take the events of earlier bytes. The SessionEnded event follows them.
        """
        self._eof = True

    def events(self) -> Iterator[SessionEvent]:
        """Yield the pending events in order, until none is pending or `can_send` is False.

        SessionEnded is always the last event.
        """
        while (event := self.next_event()) is not None:
            yield event

    def next_event(self) -> SessionEvent | None:
        """Return the next pending event, or None if none is pending or `can_send` is False."""
        if self._last is not None:
            event, self._last = self._last, None
            return event
        while not self._closed and self.can_send:
            try:
                item = self._stream.next_item()
            except EnvelopeError as error:
                if not self._stream.broken:
                    return self._misbehaved(error)
                is_plain = error.field == "transport"
                return self._end(SessionError(str(error), cause=Cause.NO_V2) if is_plain else error)
            if item is None:
                return self._end(self._lost()) if self._eof else None
            if isinstance(item, list):
                return ReceivedFilters(tuple(item))
            if (happened := self._take(item)) is not None:
                return happened
        return None

    def more_events(self) -> list[SessionEvent]:
        """Return up to 50 pending events that may be processed together with the previous event, which was a Received.

        The list ends before a message that the session answers itself, so it answers a ping only after the caller has
        answered all these events.
        """
        events: list[SessionEvent] = []
        while (
            len(events) < MAX_EVENTS
            and self._stream.next_command not in _ALONE
            and (event := self.next_event()) is not None
        ):
            events.append(event)
        return events

    # Sending

    @property
    def waiting(self) -> int:
        """Number of bytes waiting to be sent, which `data_to_send` would return."""
        return len(self._stream.outgoing)

    @property
    def can_send(self) -> bool:
        """True if less than 1 MB waits to be sent. Even if it is False, `send` accepts messages until 16 MB wait."""
        return len(self._stream.outgoing) < SEND_BUFFER

    def data_to_send(self) -> bytes:
        """Return the bytes to write to the socket now, and remove them from the session's buffer."""
        data = bytes(self._stream.outgoing)
        self._stream.outgoing.clear()
        self._sent += len(data)
        return data

    def prompt(self) -> None:
        """Send bytes that a node ignores but a server for another protocol answers, revealing that protocol.

        Call this if the peer has sent nothing for a few seconds.
        """
        self._stream.prompt()

    def send(self, message: Message) -> None:
        """Add a message to the bytes waiting to be sent. Once the session has ended, it is discarded.

        Raises ParameterError before the handshake is complete, and if more than 16 MB would wait to be sent.
        """
        if self._closed:
            return
        if self.ready is None:
            raise ParameterError(f"{command_of(message)} cannot be sent before the handshake is complete")
        self._send(message)

    def fence(self, now: float) -> int:
        """Send a ping and return its nonce.

        A Fenced event with this nonce reports that the peer has processed all messages sent before the ping. `now` is
        the time of the session's clock, in seconds. Raises ParameterError in the same cases as `send`, and if 1,024
        pings are already unanswered.
        """
        return self._ping(now, fence=True)

    def close(self, error: PeerError | None = None) -> None:
        """End the session with an error, or without one. The SessionEnded event contains it.

        Received bytes whose events have not been taken are discarded.
        """
        if not self._closed:
            self._last = self._end(error)

    # Time

    @property
    def deadline(self) -> float | None:
        """Time at which the caller must call `tick` (seconds of the session's clock), or None after the session."""
        if self._closed:
            return None
        if self.ready is None:
            return self._started + self.settings.handshake_s
        if self._pings:
            oldest, _ = next(iter(self._pings.values()))
            return oldest + self.settings.ping_timeout_s
        return self._last_ping + self.settings.ping_interval_s

    def tick(self, now: float) -> None:
        """Send a ping, or end the session after a timeout, if either is due at `now` (seconds of the session's clock).

        Take all pending events before and after the call.
        """
        deadline = self.deadline
        if deadline is None or now < deadline:
            return
        if self.ready is None:
            missing = "no version message" if self.remote is None else "no verack message"
            why = self._stream.other_protocol or f"{missing} within {now - self._started:.0f} s"
            self._last = self._end(SessionError(why, cause=Cause.HANDSHAKE_TIMEOUT))
        elif self._pings:
            waited = now - deadline + self.settings.ping_timeout_s
            self._last = self._end(SessionError(f"no pong within {waited:.0f} s", cause=Cause.PING_TIMEOUT))
        else:
            self._ping(now, fence=False)

    # Internals

    def _send(self, message: Message) -> None:
        payload = bytes(message)
        if self.waiting + ENVELOPE_SIZE + len(payload) > MAX_SEND_BUFFER:
            raise ParameterError(f"{self.waiting} bytes are waiting to be sent: send them first")
        self._stream.send(command_of(message), payload)

    def _ping(self, now: float, *, fence: bool) -> int:
        nonce = self._draw_nonce()
        if self._closed:
            return nonce
        if nonce in self._pings or len(self._pings) == MAX_PINGS:
            raise ParameterError(
                f"{len(self._pings)} pings are unanswered (the limit is {MAX_PINGS}), or nonce {nonce} is in use"
            )
        self.send(Ping(nonce))
        self._pings[nonce] = (now, fence)
        self._last_ping = now
        return nonce

    def _forgive_pings(self) -> None:
        """Await only the pongs of fences: the peer answers without a nonce (Core net_processing.cpp, PONG)."""
        self._pings = {nonce: (sent, fence) for nonce, (sent, fence) in self._pings.items() if fence}

    def _send_version(self) -> None:
        ours = self.settings
        self._send(
            Version(
                ours.version, ours.services, self._timestamp, self.nonce, ours.user_agent, ours.start_height, ours.relay
            )
        )

    def _end(self, error: PeerError | None) -> SessionEnded:
        self._closed = True
        self._stream.close()
        logger.debug("session ended: %s", error or "closed by this side")
        return SessionEnded(error)

    def _lost(self) -> SessionError:
        """Return the error that reports that the peer closed the connection."""
        stream = self._stream
        if stream.other_protocol is not None:
            return SessionError(stream.other_protocol, cause=Cause.LOST)
        if self.role is Role.OUTBOUND and not stream.is_established:
            if not self._has_heard and self._sent >= ENVELOPE_SIZE:  # Core net.cpp V2Transport::ShouldReconnectV1
                why = "it does not support v2 transport (BIP-324), it is full, or it is not a node of this network"
                return SessionError(f"the peer closed the connection before its first byte: {why}", cause=Cause.NO_V2)
            return SessionError("the peer closed the connection before the end of the key exchange", cause=Cause.LOST)
        if self.remote is None and not stream.buffered and self.role is Role.OUTBOUND:
            reasons = "a node of another network, another service on this port, or a node that is full"
            return SessionError(f"the peer closed the connection before its first message: {reasons}", cause=Cause.LOST)
        place = " in the middle of a message" if stream.buffered else ""
        if self.remote is not None and self.ready is None and self.role is Role.OUTBOUND:
            told = f"the peer closed the connection{place or ' after its version message'}"
            return SessionError(told, cause=Cause.LOST_AFTER_VERSION)
        return SessionError(f"the peer closed the connection{place}", cause=Cause.LOST)

    def _misbehaved(self, error: PeerError) -> Misbehaved:
        logger.debug("dropped an invalid message: %s", error)
        return Misbehaved(error)

    def _out_of_turn(self, frame: Frame, cause: Cause) -> Misbehaved:
        return self._misbehaved(SessionError(f"{frame.command}: {cause}", cause=cause))

    def _ignore(self, frame: Frame) -> None:
        """Ignore a second version or verack, as Core does (net_processing.cpp ProcessMessage)."""
        logger.debug("redundant %s message ignored", frame.command)

    def _take(self, frame: Frame) -> SessionEvent | None:
        """Process one message and return its event, or None if it leads to no event."""
        try:
            if self.ready is not None:
                return self._converse(frame)
            return self._greet(frame) if self.remote is None else self._negotiate(frame)
        except MessageError as error:
            if frame.command == "pong":
                self._forgive_pings()
            return self._end(error) if self.remote is None else self._misbehaved(error)

    def _greet(self, frame: Frame) -> SessionEvent | None:
        """Process the first message, which must be a version (Core net_processing.cpp ProcessMessage)."""
        if frame.command != "version":
            return self._out_of_turn(frame, Cause.BEFORE_VERSION)
        version = parse_message(*frame)
        assert isinstance(version, Version)
        self.remote = version
        ours = self.settings
        if version.nonce == self.nonce or version.nonce in self._own_nonces:
            own = f"nonce {version.nonce} is our own: the connection leads back to this process"
            return self._end(SessionError(own, cause=Cause.SELF_CONNECTION))
        if version.version < ours.min_version:
            error = SessionError(
                f"the peer has version {version.version}; at least {ours.min_version} is required",
                cause=Cause.OBSOLETE_VERSION,
            )
            return self._end(error)
        if missing := ours.required_services & ~version.services:
            lacks = f"the peer lacks the services {Service(missing)!r}"
            return self._end(SessionError(lacks, cause=Cause.MISSING_SERVICES))
        if self.role is Role.INBOUND:
            self._send_version()
        if self._common_version >= NEGOTIATION_VERSION:
            if ours.wtxid_relay:
                self._send(WtxidRelay())
            if ours.addrv2:
                self._send(SendAddrV2())
        self._send(Verack())
        return None

    def _negotiate(self, frame: Frame) -> SessionEvent | None:
        """Process a message between version and verack and return its event. Unknown commands are ignored."""
        if frame.command not in _NEGOTIATION:
            return self._out_of_turn(frame, Cause.BEFORE_VERACK) if frame.command in LIMITS else None
        match parse_message(*frame):
            case Version():
                self._ignore(frame)
            case WtxidRelay():
                self._wtxid_relay = True
            case SendAddrV2():
                self._addrv2 = True
            case Verack():
                return self._agree()
            case message:
                return Received(message)
        return None

    def _agree(self) -> Ready:
        """Complete the handshake when the verack has arrived, and return the Ready event."""
        assert self.remote is not None
        relay = self._wtxid_relay and self.settings.wtxid_relay and self._common_version >= NEGOTIATION_VERSION
        self.ready = Ready(self.remote, self._common_version, relay, self._addrv2)
        self._stream.joins_filters = self.settings.joins_filters
        logger.debug("handshake complete with %s, version %d", self.remote.agent, self.remote.version)
        return self.ready

    def _converse(self, frame: Frame) -> SessionEvent | None:
        """Process a message after the handshake and return its event, or None if it leads to no event."""
        message = parse_message(*frame)
        if self._stream.joins_filters and isinstance(message, CFilter) and message.filter_type == BASIC_FILTER_TYPE:
            return ReceivedFilters(((message.block_hash, message.data),))
        if type(message) not in _OF_THE_SESSION:
            return Received(message)
        match message:
            case Ping(nonce):
                self._send(Pong(nonce))
                return None
            case Pong(nonce) if nonce in self._pings:
                _, fence = self._pings.pop(nonce)
                return Fenced(nonce) if fence else None
            case Pong(nonce):
                if nonce == 0:
                    self._forgive_pings()
                return self._out_of_turn(frame, Cause.UNSOLICITED_PONG)
            case Version() | Verack():
                self._ignore(frame)
                return None
            case WtxidRelay() | SendAddrV2():
                return self._end(SessionError(f"{frame.command} after verack", cause=Cause.LATE_NEGOTIATION))
            case message:
                return Received(message)

    @property
    def _common_version(self) -> int:
        assert self.remote is not None
        return min(self.remote.version, self.settings.version)

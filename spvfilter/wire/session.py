"""A session with one peer as a state machine, for either side. No sockets, no clock of its own, and no policy of what to serve."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator

from spvfilter._public import public
from spvfilter.errors import EnvelopeError, MessageError, ParameterError, PeerError, SessionError
from spvfilter.wire.codec import Decoder, Frame, encode_message
from spvfilter.wire.events import (
    NEGOTIATION_VERSION,
    Cause,
    Disconnected,
    Fenced,
    Misbehaved,
    Ready,
    Received,
    Role,
    Service,
    SessionEvent,
    Settings,
)
from spvfilter.wire.messages.control import Ping, Pong, SendAddrV2, Verack, Version, WtxidRelay
from spvfilter.wire.messages.table import LIMITS, Message, command_of, parse_message

RECEIVE_BUFFER = 5_000_000  # bytes, Core net.h DEFAULT_MAXRECEIVEBUFFER; then stop reading
SEND_BUFFER = 1_000_000  # bytes, Core net.h DEFAULT_MAXSENDBUFFER; then the peer's messages wait
MAX_SEND_BUFFER = 16_000_000  # bytes, ours: a block and its envelopes fit behind a full SEND_BUFFER
MAX_PINGS = 1_024  # ours: fences under way
_NEGOTIATION = frozenset({"version", "wtxidrelay", "sendaddrv2", "verack", "sendheaders", "sendcmpct"})

logger = logging.getLogger(__name__)


@public
class Session:
    """One connection: bytes in, events and bytes out.

        peer = Session(Settings(REGTEST), Role.OUTBOUND, draw_nonce=lambda: secrets.randbits(64), now=clock())
        ...                                  # connect, send peer.data_to_send()
        peer.receive_data(data)              # from the socket, while peer.wants_data
        for event in peer.events():          # answer each with peer.send(…) before taking the next
            ...
        ...                                  # send peer.data_to_send(), call peer.tick(now) at peer.deadline

    Messages are worked off one by one as events are taken, so answers keep their order: the pong to a ping goes out behind what was
    sent in answer to the messages before it. However the stream is cut, the events are the same. While `can_send` is False no
    further event is given: first take `data_to_send`. Pings are answered and not shown.

    `draw_nonce` gives random u64 numbers. `now` is any clock in seconds that does not go back, `timestamp` seconds since 1970, for our
    version. `own_nonces` are the version nonces of all our connections: a peer that sends one of them is ourselves.
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
    ) -> None:
        self.settings = settings
        self.role = role
        self.nonce = draw_nonce()  # of our version
        self.ready: Ready | None = None  # once the handshake is done
        self.remote: Version | None = None  # the peer's version, once it came
        self._draw_nonce = draw_nonce
        self._own_nonces = own_nonces
        self._timestamp = timestamp
        self._decoder = Decoder(settings.network.magic, LIMITS)
        self._outgoing = bytearray()
        self._last: Disconnected | None = None  # where something else than a message ended the session, and it was not yet told
        self._closed = self._eof = False
        self._wtxid_relay = False  # offered by the peer, as the next
        self._addrv2 = False
        self._pings: dict[int, tuple[float, bool]] = {}  # nonce: when it was sent, and whether as a fence; oldest first
        self._started = self._last_ping = now
        if role is Role.OUTBOUND:
            self._send_version()

    # In

    @property
    def wants_data(self) -> bool:
        """Whether to go on reading from the socket: not while 5 MB wait for their events to be taken, nor after the end."""
        return not self._closed and self._decoder.buffered < RECEIVE_BUFFER

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Take the stream's next bytes; events come of them. After the end they are dropped. Raises ParameterError unless `wants_data`."""
        if self._closed:
            return
        if not self.wants_data:
            raise ParameterError(f"{self._decoder.buffered} bytes received already wait for their events to be taken")
        self._decoder.feed(data)

    def receive_eof(self) -> None:
        """The peer closed its side, or the connection broke. What arrived before can still be taken, then comes Disconnected."""
        self._eof = True

    def events(self) -> Iterator[SessionEvent]:
        """What happened, in order, until there is nothing more or `can_send` is False. Disconnected is always the last."""
        while (event := self.next_event()) is not None:
            yield event

    def next_event(self) -> SessionEvent | None:
        """The next of `events`, None where there is none now."""
        if self._last is not None:
            event, self._last = self._last, None
            return event
        while not self._closed and self.can_send:
            try:
                frame = self._decoder.next_frame()
            except EnvelopeError as error:
                return self._end(error) if self._decoder.broken else self._misbehaved(error)
            if frame is None:
                return self._end(self._lost()) if self._eof else None
            if (happened := self._take(frame)) is not None:
                return happened
        return None

    # Out

    @property
    def waiting(self) -> int:
        """Bytes that wait in `data_to_send`."""
        return len(self._outgoing)

    @property
    def can_send(self) -> bool:
        """Whether less than 1 MB waits in `data_to_send`. A message may be sent all the same, up to 16 MB."""
        return len(self._outgoing) < SEND_BUFFER

    def data_to_send(self) -> bytes:
        """The bytes that are to go to the socket now; they are forgotten here."""
        data = bytes(self._outgoing)
        self._outgoing.clear()
        return data

    def send(self, message: Message) -> None:
        """Send a message; after the end it is dropped.

        Raises ParameterError before Ready, and where more than 16 MB would wait.
        """
        if self._closed:
            return
        if self.ready is None:
            raise ParameterError(f"{command_of(message)} before the handshake is done")
        self._send(message)

    def fence(self, now: float) -> int:
        """Send a ping and return its nonce: Fenced tells when the peer has answered all that was sent before it.

        Raises ParameterError as `send` does, and where 1,024 pings wait for their pongs.
        """
        return self._ping(now, fence=True)

    def close(self, error: PeerError | None = None) -> None:
        """End the session, for a reason of the owner's perhaps; what was received and not taken is dropped."""
        if not self._closed:
            self._last = self._end(error)

    # Time

    @property
    def deadline(self) -> float | None:
        """When `tick` has something to do next; None after the end."""
        if self._closed:
            return None
        if self.ready is None:
            return self._started + self.settings.handshake_s
        if self._pings:
            oldest, _ = next(iter(self._pings.values()))
            return oldest + self.settings.ping_timeout_s
        return self._last_ping + self.settings.ping_interval_s

    def tick(self, now: float) -> None:
        """Do what is due at `now`: a ping, or the end of a peer that is silent. Take the events that are there before, and after."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return
        if self.ready is None:
            cause = "no version" if self.remote is None else "no verack"
            self._last = self._end(SessionError(f"{cause} within {now - self._started:.0f} s", cause=Cause.HANDSHAKE_TIMEOUT))
        elif self._pings:
            waited = now - deadline + self.settings.ping_timeout_s
            self._last = self._end(SessionError(f"no pong within {waited:.0f} s", cause=Cause.PING_TIMEOUT))
        else:
            self._ping(now, fence=False)

    # Within

    def _send(self, message: Message) -> None:
        encoded = encode_message(self.settings.network.magic, command_of(message), bytes(message))
        if len(self._outgoing) + len(encoded) > MAX_SEND_BUFFER:
            raise ParameterError(f"{len(self._outgoing)} bytes already wait to be sent")
        self._outgoing += encoded

    def _ping(self, now: float, *, fence: bool) -> int:
        nonce = self._draw_nonce()
        if self._closed:
            return nonce
        if nonce in self._pings or len(self._pings) == MAX_PINGS:
            raise ParameterError(f"{len(self._pings)} pings wait for their pongs, the nonce {nonce} perhaps among them")
        self.send(Ping(nonce))
        self._pings[nonce] = (now, fence)
        self._last_ping = now
        return nonce

    def _send_version(self) -> None:
        ours = self.settings
        self._send(Version(ours.version, ours.services, self._timestamp, self.nonce, ours.user_agent, ours.start_height, ours.relay))

    def _end(self, error: PeerError | None) -> Disconnected:
        self._closed = True
        self._decoder = Decoder(self.settings.network.magic)
        logger.debug("session ended: %s", error or "closed by us")
        return Disconnected(error)

    def _lost(self) -> SessionError:
        missing = "in the middle of a message" if self._decoder.buffered else "between two messages"
        return SessionError(f"the stream ended {missing}", cause=Cause.LOST)

    def _misbehaved(self, error: PeerError) -> Misbehaved:
        logger.debug("dropped: %s", error)
        return Misbehaved(error)

    def _out_of_turn(self, frame: Frame, cause: Cause) -> Misbehaved:
        return self._misbehaved(SessionError(f"{frame.command}: {cause}", cause=cause))

    def _take(self, frame: Frame) -> SessionEvent | None:
        """Work off one message; None where its event is nobody's business."""
        try:
            if self.ready is not None:
                return self._converse(frame)
            return self._greet(frame) if self.remote is None else self._negotiate(frame)
        except MessageError as error:
            return self._end(error) if self.remote is None else self._misbehaved(error)

    def _greet(self, frame: Frame) -> SessionEvent | None:
        """The first message, which has to be a version (Core net_processing.cpp ProcessMessage, as in all of the following)."""
        if frame.command != "version":
            return self._out_of_turn(frame, Cause.BEFORE_VERSION)
        version = parse_message(*frame)
        assert isinstance(version, Version)
        self.remote = version
        ours = self.settings
        if version.nonce == self.nonce or version.nonce in self._own_nonces:
            return self._end(SessionError(f"nonce {version.nonce} is our own", cause=Cause.SELF_CONNECTION))
        if version.version < ours.min_version:
            error = SessionError(f"version {version.version}, at least {ours.min_version} wanted", cause=Cause.OBSOLETE_VERSION)
            return self._end(error)
        if missing := ours.required_services & ~version.services:
            return self._end(SessionError(f"serves no {Service(missing)!r}", cause=Cause.MISSING_SERVICES))
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
        """Between version and verack; what only later versions know is ignored."""
        if frame.command not in _NEGOTIATION:
            return self._out_of_turn(frame, Cause.BEFORE_VERACK) if frame.command in LIMITS else None
        match parse_message(*frame):
            case Version():
                return self._out_of_turn(frame, Cause.DUPLICATE_VERSION)
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
        """Both sides have accepted each other."""
        assert self.remote is not None
        relay = self._wtxid_relay and self.settings.wtxid_relay and self._common_version >= NEGOTIATION_VERSION
        self.ready = Ready(self.remote, self._common_version, relay, self._addrv2)
        logger.debug("session with %s, version %d", self.remote.agent, self.remote.version)
        return self.ready

    def _converse(self, frame: Frame) -> SessionEvent | None:
        """After the handshake."""
        match parse_message(*frame):
            case Ping(nonce):
                self._send(Pong(nonce))
                return None
            case Pong(nonce) if nonce in self._pings:
                _, fence = self._pings.pop(nonce)
                return Fenced(nonce) if fence else None
            case Pong():
                return self._out_of_turn(frame, Cause.UNASKED_PONG)
            case Version():
                return self._out_of_turn(frame, Cause.DUPLICATE_VERSION)
            case Verack():
                return self._out_of_turn(frame, Cause.DUPLICATE_VERACK)
            case WtxidRelay() | SendAddrV2():
                return self._end(SessionError(f"{frame.command} after verack", cause=Cause.LATE_NEGOTIATION))
            case message:
                return Received(message)

    @property
    def _common_version(self) -> int:
        assert self.remote is not None
        return min(self.remote.version, self.settings.version)

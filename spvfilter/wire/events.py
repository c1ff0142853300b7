"""Settings, events and error causes of a P2P session."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntFlag, StrEnum

from spvfilter._public import public
from spvfilter._version import __version__
from spvfilter.errors import ParameterError, PeerError
from spvfilter.network import Network
from spvfilter.protocol import BIP37_VERSION, MAX_USER_AGENT_SIZE
from spvfilter.wire.messages.control import Version
from spvfilter.wire.messages.fields import check_int, check_most, check_uint
from spvfilter.wire.messages.table import Message

PROTOCOL_VERSION = 70016  # the version that a session announces; Core node/protocol_version.h
NEGOTIATION_VERSION = (
    70016  # the first version with wtxidrelay (BIP-339); since that version, Core also sends sendaddrv2
)


@public
class Service(IntFlag):
    """Service bits of a version message (Core protocol.h ServiceFlags)."""

    NETWORK = 1 << 0
    """The node serves all blocks."""
    BLOOM = 1 << 2
    """The node serves BIP-37 filters (BIP-111)."""
    WITNESS = 1 << 3
    """The node serves witness data (BIP-144)."""
    COMPACT_FILTERS = 1 << 6
    """The node serves compact filters (BIP-157)."""
    NETWORK_LIMITED = 1 << 10
    """The node serves at least the last 288 blocks (BIP-159)."""
    P2P_V2 = 1 << 11
    """The node accepts encrypted connections (BIP-324)."""


@public
class Role(Enum):
    """The side of a P2P connection that a session represents."""

    OUTBOUND = "outbound"
    """This side opened the connection and sends the first version message."""
    INBOUND = "inbound"
    """The peer opened the connection and sends the first version message."""


@public
class Cause(StrEnum):
    """The reason for a SessionError, stored in its attribute `cause`.

    The session continues after the first three causes, up to UNSOLICITED_PONG, as in Core. The other causes end it.
    """

    BEFORE_VERSION = "message before version"
    """The peer's first message was not a version message. The session drops it."""
    BEFORE_VERACK = "message before verack"
    """The peer sent a message before verack that the handshake does not allow. The session drops it."""
    UNSOLICITED_PONG = "pong without ping"
    """The peer sent a pong whose nonce matches no unanswered ping. The session drops it."""

    SELF_CONNECTION = "connected to self"
    """The peer sent a version nonce that this process uses, so the process has connected to itself."""
    OBSOLETE_VERSION = "protocol version too old"
    """The peer's protocol version is below `Settings.min_version`."""
    MISSING_SERVICES = "services missing"
    """The peer lacks a service bit of `Settings.required_services`."""
    LATE_NEGOTIATION = "negotiation after verack"
    """The peer sent wtxidrelay or sendaddrv2 after verack."""
    HANDSHAKE_TIMEOUT = "handshake timed out"
    """The handshake took longer than `Settings.handshake_s`."""
    PING_TIMEOUT = "ping timed out"
    """The peer did not answer a ping within `Settings.ping_timeout_s`."""
    LOST = "connection lost"
    """The peer closed the connection, or the connection was lost."""
    LOST_AFTER_VERSION = "connection lost after version"
    """The peer closed the connection after its version message and before the end of the handshake.

    Its slots for peers that want transactions may be full (Core `-inboundrelaypercent`).
    """
    NO_V2 = "no encrypted connection"
    """The peer answered an encrypted connection without encryption, or closed it before sending a byte.

    It may be an older node that lacks BIP-324.
    """


@public
@dataclass(frozen=True, slots=True)
class Settings:
    """Values that a session announces to its peer, and requirements that the peer must meet.

    Times are in seconds of the session's clock; the defaults are Core's. Raises ParameterError if a version message
    cannot encode a value, or if a time is not positive.
    """

    network: Network
    """The Bitcoin network that the session uses. A peer of another network is disconnected."""
    services: int = 0
    """Service bits that this side announces in its version message (see Service)."""
    user_agent: bytes = f"/spvfilter:{__version__}/".encode("ascii")
    """User agent that this side announces in its version message, at most 256 bytes (BIP-14)."""
    start_height: int = 0
    """Height of this side's best chain, announced in the version message."""
    relay: bool = False
    """If False, the peer announces no transactions before this side sends filterload or filterclear (BIP-37)."""
    version: int = PROTOCOL_VERSION
    """Protocol version that this side announces in its version message."""
    wtxid_relay: bool = True
    """True if this side offers to announce transactions by wtxid (BIP-339)."""
    addrv2: bool = True
    """True if this side asks the peer for addrv2 messages instead of addr (BIP-155)."""
    min_version: int = BIP37_VERSION
    """Lowest protocol version that the peer may have. A peer with a lower version is disconnected."""
    required_services: int = 0
    """Service bits that the peer must have. A peer that lacks any of them is disconnected."""
    handshake_s: float = 60.0
    """Seconds that the handshake may take before the session ends."""
    ping_interval_s: float = 120.0
    """Seconds between the session's pings."""
    ping_timeout_s: float = 1_200.0
    """Seconds that the peer may take to answer a ping before the session ends."""
    pings_first: bool = False
    """True if the session sends its first ping right after the handshake, as Core does."""
    joins_filters: bool = False
    """True if consecutive cfilter messages become one ReceivedFilters event, which is much faster."""

    def __post_init__(self) -> None:
        check_uint(self.services, 8, "services")
        check_uint(self.required_services, 8, "required services")
        check_most(self.user_agent, MAX_USER_AGENT_SIZE, "user agent")
        check_int(self.start_height, 4, "start height")
        check_int(self.version, 4, "version")
        for name in ("handshake_s", "ping_interval_s", "ping_timeout_s"):
            if not getattr(self, name) > 0:
                raise ParameterError(f"{name} must be positive, not {getattr(self, name)}")


@public
@dataclass(frozen=True, slots=True)
class Ready:
    """An event: the handshake is complete. The session accepts messages to send from now on."""

    version: Version
    """The peer's version message."""
    common_version: int
    """The lower of the two protocol versions that this side and the peer announced."""
    wtxid_relay: bool
    """True if both sides offered to announce transactions by wtxid (BIP-339)."""
    addrv2: bool
    """True if the peer asked for addrv2 messages instead of addr (BIP-155)."""


@public
@dataclass(frozen=True, slots=True)
class Received:
    """An event: the peer sent a message that the session does not handle itself.

    The session handles version, verack, wtxidrelay, sendaddrv2, ping and pong. SendHeaders and SendCmpct may arrive
    before the Ready event.
    """

    message: Message
    """The parsed message. It is an Unknown object if its command is not in the table of messages."""


@public
@dataclass(frozen=True, slots=True)
class ReceivedFilters:
    """An event: consecutive cfilter messages with basic filters arrived. Only sent with `Settings.joins_filters`."""

    filters: tuple[tuple[bytes, bytes], ...]
    """The block hash (32 bytes, wire order) and the filter of each cfilter message."""


@public
@dataclass(frozen=True, slots=True)
class Fenced:
    """An event: the pong of a fence arrived. The peer has processed every message that was sent before the fence."""

    nonce: int
    """The nonce that `Session.fence` returned."""


@public
@dataclass(frozen=True, slots=True)
class Misbehaved:
    """An event: the peer sent an invalid message. The session dropped it and continues, as in Core."""

    error: PeerError
    """The fault in the dropped message: an EnvelopeError, MessageError or SessionError."""


@public
@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The last event of a session: it has ended, and the caller closes the socket."""

    error: PeerError | None
    """The error that ended the session, or None if `Session.close` was called without an error."""


SessionEvent = Ready | Received | ReceivedFilters | Fenced | Misbehaved | SessionEnded
"""Any event of a session."""

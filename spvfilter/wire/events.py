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
NEGOTIATION_VERSION = 70016  # the first version with wtxidrelay (BIP-339); Core sends sendaddrv2 from it on, too


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


@public
class Role(Enum):
    """The side of the connection that this session is."""

    OUTBOUND = "outbound"
    """This side opened the connection and sends the first version message."""
    INBOUND = "inbound"
    """The peer opened the connection and sends the first version message."""


@public
class Cause(StrEnum):
    """The `cause` of a SessionError.

    The session survives the first five causes, as in Core. The other causes end it.
    """

    BEFORE_VERSION = "message before version"
    """The peer's first message is not version. The message is dropped."""
    BEFORE_VERACK = "message before verack"
    """A message that the handshake does not allow arrived before verack. It is dropped."""
    DUPLICATE_VERSION = "second version"
    """The peer sent a second version message. It is dropped."""
    DUPLICATE_VERACK = "second verack"
    """The peer sent a second verack message. It is dropped."""
    UNSOLICITED_PONG = "pong without ping"
    """A pong has the nonce of no open ping. It is dropped."""

    SELF_CONNECTION = "connected to self"
    """The peer sent one of our own version nonces: the connection leads back to this process."""
    OBSOLETE_VERSION = "protocol version too old"
    """The peer's protocol version is below `Settings.min_version`."""
    MISSING_SERVICES = "services missing"
    """The peer lacks a service bit of `Settings.required_services`."""
    LATE_NEGOTIATION = "negotiation after verack"
    """The peer sent wtxidrelay or sendaddrv2 after verack."""
    HANDSHAKE_TIMEOUT = "handshake timed out"
    """The handshake took longer than `Settings.handshake_s`."""
    PING_TIMEOUT = "ping timed out"
    """A ping was not answered within `Settings.ping_timeout_s`."""
    LOST = "connection lost"
    """The peer closed the connection, or it broke."""


@public
@dataclass(frozen=True, slots=True)
class Settings:
    """The announcements that a session makes in its version message, and its requirements for the peer.

    Times are seconds of the session's clock; the defaults are Core's. Raises ParameterError for values that a version
    message cannot carry, and for times that are not positive.
    """

    network: Network
    """The network of the peer."""
    services: int = 0
    """Service bits that this side announces."""
    user_agent: bytes = f"/spvfilter:{__version__}/".encode("ascii")
    """User agent that this side announces, at most 256 bytes (BIP-14)."""
    start_height: int = 0
    """Height of the best chain that this side announces."""
    relay: bool = False
    """BIP-37: if False, the peer announces no transactions before filterload or filterclear."""
    version: int = PROTOCOL_VERSION
    """Protocol version that this side announces."""
    wtxid_relay: bool = True
    """True to offer the announcement of transactions by wtxid (BIP-339)."""
    addrv2: bool = True
    """True to ask for addrv2 messages instead of addr (BIP-155)."""
    min_version: int = BIP37_VERSION
    """Lowest protocol version of the peer. A peer with a lower version is disconnected."""
    required_services: int = 0
    """Service bits that the peer must have. A peer that lacks one of them is disconnected."""
    handshake_s: float = 60.0
    """Seconds that the handshake may take."""
    ping_interval_s: float = 120.0
    """Seconds between two pings."""
    ping_timeout_s: float = 1_200.0
    """Seconds within which the peer must answer a ping."""
    joins_filters: bool = False
    """True to get consecutive cfilter messages as one ReceivedFilters event, which is much faster."""

    def __post_init__(self) -> None:
        check_uint(self.services, 8, "services")
        check_uint(self.required_services, 8, "required services")
        check_most(self.user_agent, MAX_USER_AGENT_SIZE, "user agent")
        check_int(self.start_height, 4, "start height")
        check_int(self.version, 4, "version")
        for name in ("handshake_s", "ping_interval_s", "ping_timeout_s"):
            if not getattr(self, name) > 0:
                raise ParameterError(f"{name} must be positive: {getattr(self, name)}")


@public
@dataclass(frozen=True, slots=True)
class Ready:
    """The handshake is complete. Messages may be sent now."""

    version: Version
    """The peer's version message."""
    common_version: int
    """The lower one of both sides' protocol versions."""
    wtxid_relay: bool
    """True if both sides offered BIP-339: transactions are announced by wtxid."""
    addrv2: bool
    """True if the peer asked for addrv2 messages instead of addr (BIP-155)."""


@public
@dataclass(frozen=True, slots=True)
class Received:
    """A message from the peer that the session does not handle itself.

    The session handles version, verack, wtxidrelay, sendaddrv2, ping and pong. SendHeaders and SendCmpct may arrive
    before Ready.
    """

    message: Message
    """The parsed message; Unknown if its command is not in the table of messages."""


@public
@dataclass(frozen=True, slots=True)
class ReceivedFilters:
    """Basic filters of consecutive cfilter messages. Only with `Settings.joins_filters`."""

    filters: tuple[tuple[bytes, bytes], ...]
    """Block hash (32 bytes, wire order) and filter of each message."""


@public
@dataclass(frozen=True, slots=True)
class Fenced:
    """The pong of a fence arrived: the peer has processed everything that was sent before the fence."""

    nonce: int
    """The nonce that `Session.fence` returned."""


@public
@dataclass(frozen=True, slots=True)
class Misbehaved:
    """An invalid message was dropped. The session continues, as in Core."""

    error: PeerError
    """An EnvelopeError, MessageError or SessionError."""


@public
@dataclass(frozen=True, slots=True)
class Disconnected:
    """The last event: close the socket."""

    error: PeerError | None
    """The error that ended the session; None if `Session.close` was called without an error."""


SessionEvent = Ready | Received | ReceivedFilters | Fenced | Misbehaved | Disconnected

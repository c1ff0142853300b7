"""Settings, events and error causes of a P2P session."""

from __future__ import annotations

from enum import Enum, IntFlag, StrEnum

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter._version import __version__
from spvfilter.errors import ParameterError, PeerError
from spvfilter.network import Network
from spvfilter.protocol import BIP37_VERSION, MAX_USER_AGENT_SIZE
from spvfilter.wire.messages.control import Version
from spvfilter.wire.messages.fields import check_int, check_most, check_uint
from spvfilter.wire.messages.table import Message

PROTOCOL_VERSION = 70016  # Core node/protocol_version.h
NEGOTIATION_VERSION = 70016  # wtxidrelay (BIP-339), and sendaddrv2 as Core sends it


@public
class Service(IntFlag):
    """Service bits of a version message (Core protocol.h ServiceFlags)."""

    NETWORK = 1 << 0
    BLOOM = 1 << 2
    """BIP-111."""
    WITNESS = 1 << 3
    COMPACT_FILTERS = 1 << 6
    """BIP-157."""
    NETWORK_LIMITED = 1 << 10
    """BIP-159."""


@public
class Role(Enum):
    """Which side opened the connection."""

    OUTBOUND = "outbound"
    """We opened it and send the first version."""
    INBOUND = "inbound"


@public
class Cause(StrEnum):
    """The `cause` of a SessionError. The session survives the first group, as in Core; the second group ends it."""

    BEFORE_VERSION = "message before version"
    BEFORE_VERACK = "message before verack"
    DUPLICATE_VERSION = "second version"
    DUPLICATE_VERACK = "second verack"
    UNSOLICITED_PONG = "pong without ping"

    SELF_CONNECTION = "connected to self"
    OBSOLETE_VERSION = "protocol version too old"
    MISSING_SERVICES = "services missing"
    LATE_NEGOTIATION = "negotiation after verack"
    HANDSHAKE_TIMEOUT = "handshake timed out"
    PING_TIMEOUT = "ping timed out"
    LOST = "connection lost"


@public
@dataclass(frozen=True, slots=True)
class Settings:
    """What a session announces and what it requires of the peer.

    Times are in seconds of the session's clock, with Core's values.

    Raises ParameterError for values that a version message cannot carry, and for times that are not positive.
    """

    network: Network
    services: int = 0
    """That we offer."""
    user_agent: bytes = f"/spvfilter:{__version__}/".encode("ascii")
    start_height: int = 0
    relay: bool = False
    """BIP-37: if False, the peer announces no transactions before filterload or filterclear."""
    version: int = PROTOCOL_VERSION
    wtxid_relay: bool = True
    """Offer BIP-339."""
    addrv2: bool = True
    """Offer BIP-155."""
    min_version: int = BIP37_VERSION
    required_services: int = 0
    """A peer without all of these bits is disconnected."""
    handshake_s: float = 60.0
    ping_interval_s: float = 120.0
    ping_timeout_s: float = 1_200.0
    joins_filters: bool = (
        False  # whether successive cfilter messages come as one ReceivedFilters, which takes a fraction of the time
    )

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
    """The handshake is complete and messages may be sent.

    `version` is the peer's, `common_version` the lower version of both sides.
    """

    version: Version
    common_version: int
    wtxid_relay: bool
    """Both sides offered BIP-339, so transactions are announced by wtxid."""
    addrv2: bool
    """The peer requested addrv2 instead of addr (BIP-155)."""


@public
@dataclass(frozen=True, slots=True)
class Received:
    """A message from the peer, except those that the session handles: version, verack, wtxidrelay, sendaddrv2, ping,
    pong.

    SendHeaders and SendCmpct may precede Ready.
    """

    message: Message


@public
@dataclass(frozen=True, slots=True)
class ReceivedFilters:
    """Successive cfilter messages with basic filters: the block's hash and the filter of each.

    Only with `Settings.joins_filters`.
    """

    filters: tuple[tuple[bytes, bytes], ...]


@public
@dataclass(frozen=True, slots=True)
class Fenced:
    """The pong of a fence arrived: the peer has processed everything that was sent before the fence."""

    nonce: int


@public
@dataclass(frozen=True, slots=True)
class Misbehaved:
    """An invalid message was dropped and the session continues, as in Core; `error` is an EnvelopeError, MessageError
    or SessionError.
    """

    error: PeerError


@public
@dataclass(frozen=True, slots=True)
class Disconnected:
    """The last event: close the socket. `error` is None if `Session.close` was called without one."""

    error: PeerError | None


SessionEvent = Ready | Received | ReceivedFilters | Fenced | Misbehaved | Disconnected

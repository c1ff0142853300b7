"""What a session with a peer is told and tells: settings, events, and the causes that end or disturb one. Its state machine is `peer`."""

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

PROTOCOL_VERSION = 70016  # Core node/protocol_version.h
NEGOTIATION_VERSION = 70016  # wtxidrelay (BIP-339), and sendaddrv2 as Core sends it


@public
class Service(IntFlag):
    """Bits of a version's services (Core protocol.h ServiceFlags)."""

    NETWORK = 1 << 0
    BLOOM = 1 << 2  # BIP-111
    WITNESS = 1 << 3
    COMPACT_FILTERS = 1 << 6  # BIP-157
    NETWORK_LIMITED = 1 << 10  # BIP-159


@public
class Role(Enum):
    """Who opened the connection."""

    OUTBOUND = "outbound"  # we did: our version goes first
    INBOUND = "inbound"


@public
class Cause(StrEnum):
    """Why a SessionError: its `cause`. The first group disturbs a session, as in Core; the second ends it."""

    BEFORE_VERSION = "message before version"
    BEFORE_VERACK = "message before verack"
    DUPLICATE_VERSION = "second version"
    DUPLICATE_VERACK = "second verack"
    UNASKED_PONG = "pong without ping"

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
    """What we say of ourselves and ask of a peer. Times are in seconds of the session's clock; Core's values.

    Raises ParameterError for values that a version message cannot carry, and for times that are not positive.
    """

    network: Network
    services: int = 0  # ours
    user_agent: bytes = f"/spvfilter:{__version__}/".encode("ascii")
    start_height: int = 0
    relay: bool = False  # BIP-37: False asks for no transactions before filterload or filterclear
    version: int = PROTOCOL_VERSION
    wtxid_relay: bool = True  # offer BIP-339
    addrv2: bool = True  # offer BIP-155
    min_version: int = BIP37_VERSION
    required_services: int = 0  # without these bits a peer is left
    handshake_s: float = 60.0
    ping_interval_s: float = 120.0
    ping_timeout_s: float = 1_200.0

    def __post_init__(self) -> None:
        check_uint(self.services, 8, "services")
        check_uint(self.required_services, 8, "required services")
        check_most(self.user_agent, MAX_USER_AGENT_SIZE, "user agent")
        check_int(self.start_height, 4, "start height")
        check_int(self.version, 4, "version")
        for name in ("handshake_s", "ping_interval_s", "ping_timeout_s"):
            if not getattr(self, name) > 0:
                raise ParameterError(f"{name} is not positive: {getattr(self, name)}")


@public
@dataclass(frozen=True, slots=True)
class Ready:
    """The handshake is done: messages may be sent. `version` is the peer's, `common_version` the lower of both."""

    version: Version
    common_version: int
    wtxid_relay: bool  # both sides offered BIP-339: transactions are announced by wtxid
    addrv2: bool  # the peer asked for addrv2 instead of addr (BIP-155)


@public
@dataclass(frozen=True, slots=True)
class Received:
    """A message for the owner: none of version, verack, wtxidrelay, sendaddrv2, ping, pong. SendHeaders and SendCmpct may precede Ready."""

    message: Message


@public
@dataclass(frozen=True, slots=True)
class Fenced:
    """The pong of a fence arrived: the peer has answered everything that was sent before it."""

    nonce: int


@public
@dataclass(frozen=True, slots=True)
class Misbehaved:
    """Something of the peer's was dropped and the session goes on, as in Core. EnvelopeError, MessageError or SessionError."""

    error: PeerError


@public
@dataclass(frozen=True, slots=True)
class Disconnected:
    """The last event: the socket is to be closed. None where the owner closed the session itself."""

    error: PeerError | None


SessionEvent = Ready | Received | Fenced | Misbehaved | Disconnected

"""Messages about the connection itself: version, verack, ping, pong, reject and the negotiation of features."""

from __future__ import annotations

from typing import Self

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.errors import FormatError, ParameterError
from spvfilter.protocol import MAX_USER_AGENT_SIZE
from spvfilter.wire.messages.fields import (
    PayloadReader,
    check_int,
    check_most,
    check_size,
    check_uint,
    printable,
    var_bytes,
)

MAX_COMMAND_NAME_SIZE = 12  # bytes, in a reject
MAX_REASON_SIZE = 1_000  # bytes, ours; Core sent at most 111
ADDRESS_SIZE = 26  # bytes: services u64, IPv6 16, port u16 BE
VERSION_SIZE = (
    1_024  # bytes, ours: more than a version message has today, since later protocol versions may append fields
)
REJECT_SIZE = 3 + MAX_COMMAND_NAME_SIZE + 1 + 3 + MAX_REASON_SIZE + 32  # bytes


@dataclass(frozen=True, slots=True)
class Empty:
    """Base class of messages without a payload."""

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
        if payload:
            raise FormatError(f"{len(payload)} trailing bytes", offset=0, field="payload")
        return cls()

    def __bytes__(self) -> bytes:
        return b""


@public
@dataclass(frozen=True, slots=True)
class Version:
    """The first message of both sides (Core net_processing.cpp PushNodeVersion).

    Version i32, services u64, timestamp i64, receiver and sender (26 bytes each, unreliable), nonce u64, CompactSize
    and user agent, start height i32, relay u8 (BIP-37: True if absent). Trailing bytes of later protocol versions are
    ignored, as in Core.
    """

    version: int
    services: int
    """Service bits."""
    timestamp: int
    """Seconds since 1970."""
    nonce: int
    user_agent: bytes
    """BIP-14; unescaped, print `agent` instead."""
    start_height: int
    relay: bool = True
    receiver: bytes = bytes(ADDRESS_SIZE)
    sender: bytes = bytes(ADDRESS_SIZE)

    def __post_init__(self) -> None:
        check_int(self.version, 4, "version")
        check_uint(self.services, 8, "services")
        check_int(self.timestamp, 8, "timestamp")
        check_uint(self.nonce, 8, "nonce")
        check_most(self.user_agent, MAX_USER_AGENT_SIZE, "user agent")
        check_int(self.start_height, 4, "start height")
        check_size(self.receiver, ADDRESS_SIZE, "receiver")
        check_size(self.sender, ADDRESS_SIZE, "sender")

    @property
    def agent(self) -> str:
        """The user agent as printable ASCII."""
        return printable(self.user_agent)

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
        reader = PayloadReader(payload)
        return cls(
            version=reader.sint(4, "version"),
            services=reader.uint(8, "services"),
            timestamp=reader.sint(8, "timestamp"),
            receiver=reader.take(ADDRESS_SIZE, "receiver"),
            sender=reader.take(ADDRESS_SIZE, "sender"),
            nonce=reader.uint(8, "nonce"),
            user_agent=reader.var_bytes("user agent", MAX_USER_AGENT_SIZE),
            start_height=reader.sint(4, "start height"),
            relay=reader.at == len(payload) or reader.uint(1, "relay") != 0,
        )

    def __bytes__(self) -> bytes:
        return b"".join(
            (
                self.version.to_bytes(4, "little", signed=True),
                self.services.to_bytes(8, "little"),
                self.timestamp.to_bytes(8, "little", signed=True),
                self.receiver,
                self.sender,
                self.nonce.to_bytes(8, "little"),
                var_bytes(self.user_agent),
                self.start_height.to_bytes(4, "little", signed=True),
                bytes((self.relay,)),
            )
        )


@public
@dataclass(frozen=True, slots=True)
class Verack(Empty):
    """Accepts the peer's version."""


@public
@dataclass(frozen=True, slots=True)
class WtxidRelay(Empty):
    """Requests announcement of transactions by wtxid; sent between version and verack (BIP-339)."""


@public
@dataclass(frozen=True, slots=True)
class SendAddrV2(Empty):
    """Requests addrv2 messages instead of addr; sent between version and verack (BIP-155)."""


@public
@dataclass(frozen=True, slots=True)
class SendHeaders(Empty):
    """Requests announcement of new blocks by headers instead of inv (BIP-130)."""


@public
@dataclass(frozen=True, slots=True)
class SendCmpct:
    """Whether to announce new blocks by cmpctblock, u8 0 or 1, and the version of compact blocks, u64 (BIP-152)."""

    announce: bool
    version: int

    def __post_init__(self) -> None:
        check_uint(self.version, 8, "version")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
        reader = PayloadReader(payload)
        announce = reader.uint(1, "announce")
        if announce > 1:
            raise FormatError(f"0 or 1, not {announce}", offset=0, field="announce")
        version = reader.uint(8, "version")
        reader.finish("sendcmpct")
        return cls(announce == 1, version)

    def __bytes__(self) -> bytes:
        return bytes((self.announce,)) + self.version.to_bytes(8, "little")


@public
@dataclass(frozen=True, slots=True)
class FeeFilter:
    """Asks not to announce transactions below a fee rate, i64 in satoshi per 1,000 virtual bytes (BIP-133)."""

    feerate: int
    """Satoshi / kvB."""

    def __post_init__(self) -> None:
        check_int(self.feerate, 8, "feerate")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
        reader = PayloadReader(payload)
        feerate = reader.sint(8, "feerate")
        reader.finish("feefilter")
        return cls(feerate)

    def __bytes__(self) -> bytes:
        return self.feerate.to_bytes(8, "little", signed=True)


@dataclass(frozen=True, slots=True)
class _Nonce:
    nonce: int
    """u64."""

    def __post_init__(self) -> None:
        check_uint(self.nonce, 8, "nonce")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
        reader = PayloadReader(payload)
        nonce = reader.uint(8, "nonce")
        reader.finish("nonce")
        return cls(nonce)

    def __bytes__(self) -> bytes:
        return self.nonce.to_bytes(8, "little")


@public
@dataclass(frozen=True, slots=True)
class Ping(_Nonce):
    """Asks for a pong with the same nonce, u64. The peer processes earlier messages first (BIP-31)."""


@public
@dataclass(frozen=True, slots=True)
class Pong(_Nonce):
    """Answers a ping with its nonce, u64 (BIP-31)."""


@public
@dataclass(frozen=True, slots=True)
class Reject:
    """A rejection by an old peer (BIP-61, no longer sent by Core).

    CompactSize and the rejected command (at most 12 bytes), code u8, CompactSize and reason, optionally a hash.
    """

    message: bytes
    code: int
    reason: bytes
    """Unescaped, print with fields.printable."""
    data: bytes = b""
    """The hash of the rejected transaction or block, 32 bytes."""

    def __post_init__(self) -> None:
        check_most(self.message, MAX_COMMAND_NAME_SIZE, "message")
        check_uint(self.code, 1, "code")
        check_most(self.reason, MAX_REASON_SIZE, "reason")
        if len(self.data) not in (0, 32):
            raise ParameterError(f"data has 0 or 32 bytes, not {len(self.data)}")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
        reader = PayloadReader(payload)
        message = reader.var_bytes("message", MAX_COMMAND_NAME_SIZE)
        code = reader.uint(1, "code")
        reason = reader.var_bytes("reason", MAX_REASON_SIZE)
        data = b"" if reader.at == len(payload) else reader.hash("data")
        reader.finish("reject")
        return cls(message, code, reason, data)

    def __bytes__(self) -> bytes:
        return var_bytes(self.message) + bytes((self.code,)) + var_bytes(self.reason) + self.data

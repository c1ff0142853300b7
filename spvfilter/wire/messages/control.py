"""Messages about the connection itself: version, verack, ping, pong, reject and the negotiation of features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

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

MAX_COMMAND_NAME_SIZE = 12  # bytes of the command in a reject
MAX_REASON_SIZE = 1_000  # bytes of the reason in a reject (our choice). Core sent at most 111.

ADDRESS_SIZE = 26  # bytes of an address in a version: services u64, IPv6 address 16, port u16 BE

# Bytes of the longest version payload (our choice). It leaves room for fields that later protocol versions append.
VERSION_SIZE = 1_024

REJECT_SIZE = 3 + MAX_COMMAND_NAME_SIZE + 1 + 3 + MAX_REASON_SIZE + 32  # bytes of the longest reject payload


@dataclass(frozen=True, slots=True)
class Empty:
    """Base class of messages without a payload."""

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse a payload, which must be empty. Raises FormatError if it is not empty."""
        if left := len(payload):
            raise FormatError(f"{left} trailing byte{'' if left == 1 else 's'}", offset=0, field="payload")
        return cls()

    def __bytes__(self) -> bytes:
        return b""


@public
@dataclass(frozen=True, slots=True)
class Version:
    """A version message, the first message of both sides (Core net_processing.cpp PushNodeVersion).

    | bytes | field |
    |---|---|
    | 4 | protocol version i32 LE |
    | 8 | services u64 LE |
    | 8 | timestamp i64 LE (Unix time) |
    | 26 | receiver: services u64 LE, IPv6 address (16), port u16 BE; unreliable |
    | 26 | sender: the same three fields; unreliable |
    | 8 | nonce u64 LE |
    | 1 or 3 | size of the user agent, CompactSize, at most 256 |
    | size | user agent (BIP-14) |
    | 4 | start height i32 LE |
    | 0 or 1 | relay u8 (BIP-37): 0 for False; True if the byte is absent |

    Additional bytes, which later protocol versions may append, are ignored, as in Core. The constructor raises
    ParameterError if a value has no encoding.
    """

    version: int
    """Protocol version of the sender (i32)."""
    services: int
    """Service bits of the sender (u64)."""
    timestamp: int
    """Current time of the sender's clock (Unix time) (i64)."""
    nonce: int
    """Random number that lets a node recognize a connection to itself (u64)."""
    user_agent: bytes
    """User agent of the sender, at most 256 bytes (BIP-14), not escaped. Use `agent` to print it."""
    start_height: int
    """Height of the sender's best chain (i32)."""
    relay: bool = True
    """False if transactions must not be announced before filterload or filterclear (BIP-37)."""
    receiver: bytes = bytes(ADDRESS_SIZE)
    """Network address of the receiver, 26 bytes; unreliable."""
    sender: bytes = bytes(ADDRESS_SIZE)
    """Network address of the sender, 26 bytes; unreliable."""

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
        """The sender's user agent as printable ASCII, safe for a log or a terminal."""
        return printable(self.user_agent)

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a version message. Raises FormatError if it is malformed."""
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
    """A message that accepts the peer's version message. The payload is empty."""


@public
@dataclass(frozen=True, slots=True)
class WtxidRelay(Empty):
    """A message that offers to announce transactions by wtxid (BIP-339).

    It is sent between version and verack. The payload is empty.
    """


@public
@dataclass(frozen=True, slots=True)
class SendAddrV2(Empty):
    """A message that asks the peer for addrv2 messages instead of addr (BIP-155).

    It is sent between version and verack. The payload is empty.
    """


@public
@dataclass(frozen=True, slots=True)
class SendHeaders(Empty):
    """A message that asks the peer to announce new blocks by headers instead of inv (BIP-130). The payload is empty."""


@public
@dataclass(frozen=True, slots=True)
class SendCmpct:
    """A message that tells the peer how it may announce new blocks as compact blocks (BIP-152).

    | bytes | field |
    |---|---|
    | 1 | announce u8, 0 or 1 |
    | 8 | version of compact blocks u64 LE |
    """

    announce: bool
    """True if the peer may announce a new block immediately, by a cmpctblock message."""
    version: int
    """Version of compact blocks that the sender supports (u64)."""

    def __post_init__(self) -> None:
        check_uint(self.version, 8, "version")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a sendcmpct message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        announce = reader.uint(1, "announce")
        if announce > 1:
            raise FormatError(f"must be 0 or 1, not {announce}", offset=0, field="announce")
        version = reader.uint(8, "version")
        reader.finish("sendcmpct")
        return cls(announce == 1, version)

    def __bytes__(self) -> bytes:
        return bytes((self.announce,)) + self.version.to_bytes(8, "little")


@public
@dataclass(frozen=True, slots=True)
class FeeFilter:
    """A message that asks the peer not to announce transactions below a fee rate (BIP-133).

    | bytes | field |
    |---|---|
    | 8 | fee rate i64 LE, satoshi per 1,000 virtual bytes |
    """

    feerate: int
    """Lowest fee rate of transactions to announce, in satoshi per 1,000 virtual bytes (i64)."""

    def __post_init__(self) -> None:
        check_int(self.feerate, 8, "feerate")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a feefilter message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        feerate = reader.sint(8, "feerate")
        reader.finish("feefilter")
        return cls(feerate)

    def __bytes__(self) -> bytes:
        return self.feerate.to_bytes(8, "little", signed=True)


@dataclass(frozen=True, slots=True)
class _Nonce:
    """Base class of ping and pong messages."""

    nonce: int
    """Random number that links a pong to its ping (u64)."""

    def __post_init__(self) -> None:
        check_uint(self.nonce, 8, "nonce")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a ping or pong message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        nonce = reader.uint(8, "nonce")
        reader.finish("nonce")
        return cls(nonce)

    def __bytes__(self) -> bytes:
        return self.nonce.to_bytes(8, "little")


@public
@dataclass(frozen=True, slots=True)
class Ping(_Nonce):
    """A message that asks the peer for a pong with the same nonce (BIP-31). The peer processes earlier messages first.

    | bytes | field |
    |---|---|
    | 8 | nonce u64 LE |
    """


@public
@dataclass(frozen=True, slots=True)
class Pong(_Nonce):
    """A message that answers a ping and repeats its nonce (BIP-31).

    | bytes | field |
    |---|---|
    | 8 | nonce u64 LE |
    """


@public
@dataclass(frozen=True, slots=True)
class Reject:
    """A message with which an old peer rejects a message that it received (BIP-61). Core no longer sends it.

    | bytes | field |
    |---|---|
    | 1 | size of the command, CompactSize, at most 12 |
    | size | command of the rejected message |
    | 1 | code u8 |
    | 1 or 3 | size of the reason, CompactSize, at most 1,000 |
    | size | reason |
    | 0 or 32 | hash of the rejected transaction or block |
    """

    message: bytes
    """Command of the rejected message, at most 12 bytes."""
    code: int
    """Code of the reason for the rejection, as listed in BIP-61 (u8)."""
    reason: bytes
    """Text of the reason for the rejection, at most 1,000 bytes. Escape it before you print it."""
    data: bytes = b""
    """Hash of the rejected transaction or block, 32 bytes, or empty if the message contains no hash."""

    def __post_init__(self) -> None:
        check_most(self.message, MAX_COMMAND_NAME_SIZE, "message")
        check_uint(self.code, 1, "code")
        check_most(self.reason, MAX_REASON_SIZE, "reason")
        if len(self.data) not in (0, 32):
            raise ParameterError(f"data must be 0 or 32 bytes long, not {len(self.data)}")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a reject message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        message = reader.var_bytes("message", MAX_COMMAND_NAME_SIZE)
        code = reader.uint(1, "code")
        reason = reader.var_bytes("reason", MAX_REASON_SIZE)
        data = b"" if reader.at == len(payload) else reader.hash("data")
        reader.finish("reject")
        return cls(message, code, reason, data)

    def __bytes__(self) -> bytes:
        return var_bytes(self.message) + bytes((self.code,)) + var_bytes(self.reason) + self.data

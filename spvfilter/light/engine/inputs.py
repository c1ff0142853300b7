"""Inputs of the light client's engine, reported by its shell.

All inputs are plain values. `peer` is the number that the engine assigned to the connection in Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from spvfilter.light.engine.requests import Request
from spvfilter.wire import events as wire
from spvfilter.wire.messages.merkleblock import MerkleBlock
from spvfilter.wire.messages.table import Addr, AddrV2, Block, GetData, Headers, Inv, Message, NotFound, Tx
from spvfilter.wire.transport import Transport


class Instant(NamedTuple):
    """A point in time on both clocks.

    `monotonic` is for waiting; `wall` (Unix time) is for comparing with times in blocks and transactions.
    """

    monotonic: float
    wall: float


class PeerConnected(NamedTuple):
    """The handshake with a peer is complete.

    `host` is the IP or onion address to which the connection leads. A host name has been resolved.
    """

    peer: int
    host: str
    services: int
    """Bits of wire.Service."""
    start_height: int
    """Height of the peer's chain, according to its version message."""
    relays: bool
    """True if the peer accepts transactions."""
    wtxid_relay: bool
    """True if transactions are announced by wtxid (BIP-339)."""
    user_agent: str
    """User agent that the peer sent, with control characters escaped."""
    time: int
    """The peer's clock (Unix time)."""
    transport: Transport = Transport.V1
    """V2 if the connection is encrypted (BIP-324)."""


class Lost(NamedTuple):
    """A connection could not be made, or has ended. After Drop, the shell need not report Lost."""

    peer: int
    error: Exception


class Heard(NamedTuple):
    """A peer sent a message, or part of a message with many items."""

    peer: int
    message: Message


class HeardTogether(NamedTuple):
    """A peer sent several messages, which arrived together in this order."""

    peer: int
    heard: tuple[wire.Received | wire.ReceivedFilters, ...]


class FencePassed(NamedTuple):
    """A peer has processed everything that was sent to it before the Fence effect with this token."""

    peer: int
    token: int


class Malformed(NamedTuple):
    """A peer sent a malformed message, which was discarded."""

    peer: int
    error: Exception


class Committed(NamedTuple):
    """All commits up to this number are durable."""

    number: int


class Worked(NamedTuple):
    """The result of the Work or Read effect with this token.

    If its function raised an exception, `value` is the exception.
    """

    token: int
    value: object


class Asked(NamedTuple):
    """The user requests a change to the watch list or the searched blocks. The Done effect has the same token."""

    token: int
    request: Request


class BroadcastAsked(NamedTuple):
    """The user wants to broadcast a transaction, given as its bytes."""

    raw: bytes
    input_values: tuple[int, ...] | None = None
    """Value of each input in satoshi, if the user gives them."""
    is_private: bool = False
    """True if one new peer gets the transaction first."""
    call: int = 0
    """Number of the waiting call. The Answer effect has the same number."""
    parents: tuple[bytes, ...] = ()
    """Transactions to broadcast before it, whose fees it may pay."""
    is_forced: bool = False
    """True to broadcast it even if all peers will refuse it."""
    guest: str | None = None
    """Name of the server's guest that sends it; None for the wallet's own transaction.

    A guest's transaction is only relayed, not recorded, unless it or a parent involves the wallet.
    """


class SeedAnswer(NamedTuple):
    """A DNS seed's answer."""

    seed: str
    services: int
    """Services that the hosts offer, according to the seed (bits of wire.Service); 0 if none were requested."""
    hosts: tuple[str, ...]
    """IPv4 and IPv6 addresses."""
    error: Exception | None = None
    """Why the seed returned no hosts; None if it returned some."""


class Seeded(NamedTuple):
    """The DNS seeds have answered, or their time is up."""

    answers: tuple[SeedAnswer, ...]


class Abandon(NamedTuple):
    """The user wants to abandon an unconfirmed transaction of the wallet."""

    txid: bytes
    is_unsent: bool = False
    """True if no peer can have it, so the versions that it replaced count again."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The time given by the last Wake effect has been reached. Additional ticks do no harm."""


# Limit on work in one input, in units of about a microsecond (our choice). An indivisible message may take more.
MAX_WORK = 2_000
_CUT_AT = 2_000  # Limit on items in one part of an inv, getdata or notfound.
_ADDRESSES = 50  # Limit on addresses in one part of an addr or addrv2.


def inputs_of(peer: int, events: Iterable[wire.SessionEvent], token_of: Callable[[int], int | None]) -> Iterator[Input]:
    """Yield the events of a peer's session as inputs, in order. Its beginning and end are left out.

    Each input causes the engine little work, so that the shell can do something else in between. `token_of` returns the
    token of the fence with a given nonce, or None.
    """
    heard: list[wire.Received | wire.ReceivedFilters] = []
    work = 0
    for event in events:
        if isinstance(event, wire.Received | wire.ReceivedFilters):
            for part in _parts(event):
                more = _work(part)
                if work + more > MAX_WORK:
                    yield from _heard(peer, heard)
                    heard, work = [], 0
                heard.append(part)
                work += more
            continue
        yield from _heard(peer, heard)
        heard, work = [], 0
        match event:
            case wire.Fenced(nonce):
                token = token_of(nonce)
                if token is not None:
                    yield FencePassed(peer, token)
            case wire.Misbehaved(error):
                yield Malformed(peer, error)
            case wire.Ready() | wire.SessionEnded():
                pass
            case _:
                assert_never(event)
    yield from _heard(peer, heard)


def _parts(event: wire.Received | wire.ReceivedFilters) -> Iterator[wire.Received | wire.ReceivedFilters]:
    """Split a long message whose items are independent of each other."""
    match event:
        case wire.Received(Inv(items) | GetData(items) | NotFound(items) as message) if len(items) > _CUT_AT:
            for at in range(0, len(items), _CUT_AT):
                yield wire.Received(type(message)(items[at : at + _CUT_AT]))
        case wire.Received(Addr(addresses) | AddrV2(addresses) as message) if len(addresses) > _ADDRESSES:
            for at in range(0, len(addresses), _ADDRESSES):
                yield wire.Received(type(message)(addresses[at : at + _ADDRESSES]))
        case _:
            yield event


def _work(event: wire.Received | wire.ReceivedFilters) -> int:
    """Estimate the work of an event, in units of about a microsecond."""
    match event:
        case wire.ReceivedFilters(filters):
            return 2 * len(filters)
        case wire.Received(Headers(headers)):
            return 40 + 2 * len(headers)
        case wire.Received(Inv(items) | GetData(items) | NotFound(items)):
            return 10 + len(items)
        case wire.Received(Addr(addresses) | AddrV2(addresses)):
            return 10 + 60 * len(addresses)  # of IPv6, where an address book is kept
        case wire.Received(MerkleBlock(hashes=hashes)):
            return 20 + len(hashes) // 2
        case wire.Received(Tx(raw)):
            return 20 + len(raw) // 50
        case wire.Received(Block(raw)):
            return 50 + len(raw) // 200
    return 20


def _heard(peer: int, heard: list[wire.Received | wire.ReceivedFilters]) -> Iterator[Input]:
    if len(heard) == 1 and isinstance(heard[0], wire.Received):
        yield Heard(peer, heard[0].message)
    elif heard:
        yield HeardTogether(peer, tuple(heard))


Input = (
    PeerConnected
    | Lost
    | Heard
    | HeardTogether
    | FencePassed
    | Malformed
    | Committed
    | Worked
    | Asked
    | BroadcastAsked
    | Abandon
    | Seeded
    | Tick
)

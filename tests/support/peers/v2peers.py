"""Two sides of an encrypted connection for tests: streams and sessions with counted random bytes."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from spvfilter.errors import EnvelopeError
from spvfilter.wire.codec import Filters, Frame
from spvfilter.wire.events import Role
from spvfilter.wire.messages.table import LIMITS
from spvfilter.wire.streams import MessageStream
from spvfilter.wire.v2 import PacketEncoder, V2Stream
from support.peers.sessionparts import encoder_of
from support.peers.sessions import MAGIC

Item = Frame | Filters | tuple[str, str]  # an error is (field, message)


def drawn(seed: int, garbage: int | None = None) -> Callable[[int], bytes]:
    """A source of random bytes; `garbage` is the length of the garbage, by default a random one."""
    rng = random.Random(seed)

    def draw(size: int) -> bytes:
        return garbage.to_bytes(2, "little") if size == 2 and garbage is not None else rng.randbytes(size)

    return draw


def stream(role: Role, seed: int = 1, garbage: int | None = None) -> V2Stream:
    return V2Stream(MAGIC, role, drawn(seed, garbage), LIMITS)


def taken(side: MessageStream) -> bytes:
    """The bytes that a side has to send."""
    data = bytes(side.outgoing)
    side.outgoing.clear()
    return data


def items(side: MessageStream) -> list[Item]:
    """The messages and errors of a side; the error that ended the stream is the last one, once."""
    found: list[Item] = []
    while True:
        try:
            item = side.next_item()
        except EnvelopeError as error:
            found.append((error.field, str(error)))
            if side.broken is not None and error is side.broken:
                return found
            continue
        if item is None:
            return found
        found.append(item)


def without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behave as if the packages of the extra `bip324` were not installed."""
    monkeypatch.setitem(sys.modules, "btclib_secp256k1.ellswift", None)


class Pair(NamedTuple):
    """Both sides of a connection after the key exchange."""

    initiator: V2Stream
    responder: V2Stream

    @property
    def encoder(self) -> PacketEncoder:
        """The initiator's encoder."""
        return encoder_of(self.initiator)


def exchanged(seed: int = 1, garbage: int | None = None) -> Pair:
    """A connection whose version packets have arrived."""
    pair = Pair(stream(Role.OUTBOUND, seed, garbage), stream(Role.INBOUND, seed + 1, garbage))
    pair.responder.feed(taken(pair.initiator))
    pair.initiator.feed(taken(pair.responder))
    pair.responder.feed(taken(pair.initiator))
    assert items(pair.initiator) == items(pair.responder) == []
    assert pair.initiator.is_established and pair.responder.is_established
    return pair

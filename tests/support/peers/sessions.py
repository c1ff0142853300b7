"""Sessions for tests: a Session with counted nonces, the bytes of the other side, and events in a comparable form."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from spvfilter.errors import SessionError
from spvfilter.network import REGTEST
from spvfilter.wire.codec import Decoder, encode_message
from spvfilter.wire.events import Cause, Misbehaved, Ready, Role, SessionEnded, SessionEvent, Settings
from spvfilter.wire.messages.table import Message, Verack, Version, command_of, parse_message
from spvfilter.wire.session import Session

MAGIC = REGTEST.magic
THEIR_NONCE = 0xABCDEF
THEIRS = Version(70016, 1037, 1_700_000_000, THEIR_NONCE, b"/their:1/", 800_000)


def encoded(*messages: Message) -> bytes:
    return b"".join(encode_message(MAGIC, command_of(message), bytes(message)) for message in messages)


def sent(peer: Session) -> list[Message]:
    """The messages that the session has to send, decoded."""
    decoder = Decoder(MAGIC)
    decoder.feed(peer.data_to_send())
    frames = iter(decoder.next_frame, None)
    return [parse_message(command, payload) for command, payload in frames]


def fresh(
    role: Role = Role.OUTBOUND, settings: Settings | None = None, own_nonces: Iterable[int] = (), first_nonce: int = 1
) -> Session:
    """A session that starts at 1,000 s with counted nonces; the first one is in its version."""
    nonces = itertools.count(first_nonce)
    return Session(
        settings or Settings(REGTEST),
        role,
        draw_nonce=lambda: next(nonces),
        now=1_000.0,
        timestamp=1_234,
        own_nonces=set(own_nonces),
    )


def ready(role: Role = Role.OUTBOUND, settings: Settings | None = None, theirs: Version = THEIRS) -> Session:
    """A session after its handshake, with no pending events and nothing to send."""
    peer = fresh(role, settings)
    peer.receive_data(encoded(theirs, Verack()))
    (event,) = peer.events()
    assert isinstance(event, Ready)
    peer.data_to_send()
    return peer


def ended(peer: Session, cause: Cause) -> str:
    """Assert that the only event is the session's end with this cause. Returns the message of the error."""
    (event,) = peer.events()
    assert isinstance(event, SessionEnded)
    assert isinstance(event.error, SessionError)
    assert event.error.cause == cause
    assert (peer.next_event(), peer.deadline, peer.wants_data) == (None, None, False)
    return str(event.error)


def comparable(events: Iterable[SessionEvent]) -> list[object]:
    """Events in a comparable form: errors as class and message."""
    return [
        (type(event), type(event.error), str(event.error)) if isinstance(event, (Misbehaved, SessionEnded)) else event
        for event in events
    ]

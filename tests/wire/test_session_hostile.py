"""Hostile streams, and honest streams cut anywhere: the same events, typed errors, constant memory."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import EnvelopeError, MessageError, SessionError
from spvfilter.protocol import MAX_PAYLOAD_SIZE
from spvfilter.wire.codec import encode_message
from spvfilter.wire.events import Fenced, Misbehaved, Ready, Received, Role, SessionEnded, SessionEvent
from spvfilter.wire.messages.table import LIMITS, Message, Verack, command_of, parse_message
from spvfilter.wire.session import Session
from support.peers.sessions import MAGIC, THEIRS, comparable, encoded, fresh
from support.samples import ANY, SAMPLES, payloads
from support.vectors import effort

TYPED = (EnvelopeError, MessageError, SessionError)
OPENINGS = (b"", encoded(THEIRS), encoded(THEIRS, Verack()))


def taken(stream: bytes, sizes: list[int], role: Role) -> tuple[list[object], bytes]:
    """The events of a stream that is cut into pieces of these sizes and a last piece, and the responses."""
    peer = fresh(role)
    events: list[SessionEvent] = []
    answer = b""
    at = 0
    for size in (*sizes, len(stream)):
        peer.receive_data(stream[at : at + size])
        at += size
        events += peer.events()
        answer += peer.data_to_send()
    peer.receive_eof()
    events += peer.events()
    return comparable(events), answer


PIECES = st.one_of(
    ANY.map(encoded),
    st.builds(encode_message, st.just(MAGIC), st.sampled_from(sorted(LIMITS)), st.binary(max_size=80)),
    st.binary(max_size=30),
)


@given(
    st.sampled_from(OPENINGS),
    st.lists(PIECES, max_size=6).map(b"".join),
    st.lists(st.integers(0, 60), max_size=30),
    st.sampled_from(Role),
)
def test_the_division_of_a_stream_changes_no_event(opening: bytes, rest: bytes, sizes: list[int], role: Role) -> None:
    stream = opening + rest
    whole = taken(stream, [], role)
    assert taken(stream, sizes, role) == whole
    assert taken(stream, [1] * len(stream), role) == whole


def mutated(random: random.Random) -> bytes:
    """A message with a random command. Mostly its payload is damaged under a correct checksum, otherwise any byte."""
    command, payload = random.choice(PAYLOADS)
    damaged = bytearray(payload)
    for _ in range(random.randint(1, 3)):
        at = random.randint(0, len(damaged))
        match random.randrange(6):
            case 0:
                del damaged[at:]
            case 1:
                damaged[at : at + random.randint(0, 40)] = b""
            case 2:
                damaged[at:at] = random.randbytes(random.randint(1, 40))
            case 3:  # an absurdly large number replaces a count
                damaged[at : at + 1] = random.choice((b"\xfd\xff\xff", b"\xfe\xff\xff\xff\xff", b"\xff" * 9, b"\xfc"))
            case 4 if damaged:
                damaged[at - 1] ^= 1 << random.randrange(8)
            case _:
                damaged[at:at] = random.choice(PAYLOADS)[1]
    if random.randrange(16):
        return encode_message(MAGIC, command if random.randrange(8) else random.choice(PAYLOADS)[0], bytes(damaged))
    message = bytearray(encode_message(MAGIC, command, bytes(damaged)))
    message[random.randrange(24)] ^= 1 << random.randrange(8)
    return bytes(message)


PAYLOADS = [*payloads(), ("alert", bytes(50))]


def abused(random: random.Random, count: int) -> Iterator[tuple[Session, SessionEvent]]:
    """The events of sessions that receive `count` damaged messages, some of them in pieces.

    When a session ends, a new one begins.
    """
    peer = fresh()
    for _ in range(count):
        if peer.deadline is None:
            peer = fresh(random.choice(list(Role)))
            peer.receive_data(random.choice(OPENINGS))
            if not random.randrange(4):
                list(peer.events())
        message = mutated(random)
        cut = random.randrange(len(message)) if not random.randrange(8) else len(message)
        for piece in (message[:cut], message[cut:]):
            peer.receive_data(piece)
            for event in peer.events():
                yield peer, event
        peer.data_to_send()


def test_damaged_messages_raise_only_typed_errors() -> None:
    count = effort(2_000, 100_000, 1_000_000)
    seen: dict[str, int] = {}
    for peer, event in abused(random.Random(37), count):
        match event:
            case Misbehaved(error):
                assert isinstance(error, TYPED)
                assert peer.deadline is not None
                seen[type(error).__name__] = seen.get(type(error).__name__, 0) + 1
            case SessionEnded(error):
                assert isinstance(error, TYPED)
                assert peer.next_event() is None
            case Received(message):
                assert_well_formed(message)
            case Ready() | Fenced():
                pass
        seen[type(event).__name__] = seen.get(type(event).__name__, 0) + 1
    assert (
        min(seen[name] for name in ("Misbehaved", "SessionEnded", "Received", "Ready", "MessageError", "SessionError"))
        > count // 500
    )
    assert seen["EnvelopeError"] > count // 2_000


def assert_well_formed(message: Message) -> None:
    command = command_of(message)
    assert parse_message(command, bytes(message)) == message
    assert command not in ("version", "verack", "wtxidrelay", "sendaddrv2", "ping", "pong")


def held() -> int:
    """Traced memory in bytes, after the interpreter's free lists were cleared."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.long
def test_damaged_messages_leave_no_memory() -> None:
    tracemalloc.start()
    try:
        sum(1 for _ in abused(random.Random(2), 1_000))
        before = held()
        sum(1 for _ in abused(random.Random(3), effort(1_000, 5_000, 50_000)))
        _, peak = tracemalloc.get_traced_memory()
        assert held() - before < 48 * 1024
        assert (
            peak - before < 3 * MAX_PAYLOAD_SIZE
        )  # a decoder that has read a damaged length may wait for as many bytes
    finally:
        tracemalloc.stop()


@pytest.mark.long
def test_a_long_session_keeps_no_processed_message() -> None:
    peer = fresh()
    peer.receive_data(OPENINGS[2])
    list(peer.events())
    passing = [message for command, message in SAMPLES.items() if command not in ("wtxidrelay", "sendaddrv2")]
    stream = encoded(*passing)
    turns = effort(40, 200, 2_000)
    tracemalloc.start()
    try:
        for turn in range(20 + turns):
            if turn == 20:
                before = held()
            peer.receive_data(stream)
            assert len(list(peer.events())) == len(passing) - 3  # no event of a ping, a second version and a verack
            peer.data_to_send()
        assert held() - before < 48 * 1024
    finally:
        tracemalloc.stop()

"""Hostile encrypted streams: every truncation, changed byte and wrong order ends the session, and no peer is banned."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest

from spvfilter.errors import EnvelopeError, SessionError
from spvfilter.light.lies import is_lie
from spvfilter.network import REGTEST
from spvfilter.wire import v2
from spvfilter.wire.codec import Frame, encode_message
from spvfilter.wire.events import Cause, Misbehaved, Ready, Received, Role, SessionEnded, SessionEvent, Settings
from spvfilter.wire.messages.table import LIMITS, Verack, command_of
from spvfilter.wire.session import Session
from support.growth import LIMIT, growth
from support.peers import v2fuzz
from support.peers.sessionparts import encoder_of
from support.peers.sessions import MAGIC, THEIRS
from support.peers.v2peers import drawn, exchanged, items, stream, taken
from support.vectors import effort

pytestmark = pytest.mark.v2
GARBAGE = 40  # bytes, of each side


def session(seed: int = 1) -> Session:
    """Our side, which has opened the connection."""
    made = v2.V2Stream(MAGIC, Role.OUTBOUND, drawn(seed, GARBAGE), LIMITS)
    return Session(Settings(REGTEST), Role.OUTBOUND, draw_nonce=lambda: 7, now=0.0, stream=made)


def answered(peer: Session, count: int = 3) -> tuple[bytes, list[tuple[int, int]]]:
    """The bytes of an honest peer: key, garbage, terminator, then packets. The spans of the message packets."""
    far = stream(Role.INBOUND, 2, GARBAGE)
    far.feed(peer.data_to_send())
    for message in (THEIRS, Verack()):
        far.send(command_of(message), bytes(message))
    data, spans = taken(far), []
    for number in range(count):
        far.send("inv", bytes(1) if number % 2 else b"\1\1\0\0\0" + bytes(32))
        packet = taken(far)
        spans.append((len(data), len(data) + len(packet)))
        data += packet
    return data, spans


def events_of(peer: Session, data: bytes) -> list[SessionEvent]:
    """The events of a session that receives these bytes and then the end of the connection."""
    peer.receive_data(data)
    events = list(peer.events())
    peer.receive_eof()
    return [*events, *peer.events()]


def check_end(events: list[SessionEvent]) -> Exception:
    """Assert that the session ended by an error without a ban. Returns the error."""
    *others, last = events
    assert isinstance(last, SessionEnded) and isinstance(last.error, EnvelopeError | SessionError)
    assert not is_lie(last.error)
    assert not any(isinstance(each, Misbehaved | SessionEnded) for each in others)
    return last.error


def test_every_truncation_ends_the_session() -> None:
    whole, spans = answered(session())
    complete = {end for _, end in spans} | {spans[0][0]}
    for size in range(len(whole)):
        peer = session()
        assert answered(peer)[0] == whole
        error = check_end(events_of(peer, whole[:size]))
        assert isinstance(error, SessionError)
        if size == 0:
            assert error.cause == Cause.NO_V2
            continue
        assert error.cause in (Cause.LOST, Cause.LOST_AFTER_VERSION)
        if size > spans[0][0]:
            assert ("in the middle of a message" in str(error)) == (size not in complete)


def test_every_changed_byte_ends_the_session() -> None:
    whole, spans = answered(session())
    for at in range(len(whole)):
        peer = session()
        answered(peer)
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        events = events_of(peer, bytes(data))
        check_end(events)
        received = sum(isinstance(each, Received) for each in events)
        assert received == sum(end <= at for _, end in spans)
        assert any(isinstance(each, Ready) for each in events) == (at >= spans[0][0])


def test_packets_in_another_order_end_the_session() -> None:
    whole, spans = answered(session(), 4)
    parts = [whole[start:end] for start, end in spans]
    for wrong in (parts[1:], [parts[1], parts[0], *parts[2:]], [parts[0], parts[0], *parts[1:]]):
        peer = session()
        answered(peer, 4)
        error = check_end(events_of(peer, whole[: spans[0][0]] + b"".join(wrong)))
        assert isinstance(error, EnvelopeError | SessionError)


def test_a_session_without_terminator_ends_after_the_most_garbage() -> None:
    peer = session()
    peer.data_to_send()
    noise = random.Random(1).randbytes(v2.KEY_SIZE + v2.MAX_GARBAGE + v2.TERMINATOR_SIZE)
    peer.receive_data(noise[:-1])
    assert not list(peer.events())
    peer.receive_data(noise[-1:])
    error = check_end(list(peer.events()))
    assert "no garbage terminator within 4095 bytes" in str(error)


@pytest.mark.parametrize("first", [b"HTTP/1.1 400 Bad", b"SSH-2.0-OpenSSH_", b"\x15\x03\x03\x00\x02\x02\x28"])
@pytest.mark.parametrize("size", [20, 6_000])
def test_another_protocol_is_named(first: bytes, size: int) -> None:
    peer = session()
    peer.data_to_send()
    error = check_end(events_of(peer, first.ljust(size, b"x")))
    assert "not as a Bitcoin node" in str(error)


def test_another_protocol_is_named_at_the_timeout() -> None:
    peer = session()
    peer.receive_data(b"SSH-2.0-OpenSSH_10\r\n")
    peer.tick(60.0)
    assert "answered as an SSH server" in str(check_end(list(peer.events())))


def test_a_plain_answer_of_the_same_network_is_named() -> None:
    peer = session()
    peer.data_to_send()
    error = check_end(events_of(peer, MAGIC + b"version".ljust(12, b"\0") + bytes(90)))
    assert "answered without encryption" in str(error)


def test_no_fallback_is_allowed_before_24_bytes_were_sent() -> None:
    peer = session()
    peer.receive_eof()
    error = check_end(list(peer.events()))
    assert isinstance(error, SessionError) and error.cause == Cause.LOST


@pytest.mark.parametrize(("sizes", "is_within"), [((65_496,), True), ((30_000, 35_477), False), ((65_497,), False)])
def test_packets_before_the_end_of_the_version_packet_are_bounded(sizes: tuple[int, ...], is_within: bool) -> None:
    from btclib_secp256k1 import ellswift

    private_key, far = bytes([1] * 32), stream(Role.INBOUND)
    public_key = ellswift.create(private_key, bytes(32))
    far.feed(public_key)
    secret = ellswift.xdh(public_key, taken(far)[: v2.KEY_SIZE], private_key, 0)
    keys = v2.Keys(secret, MAGIC)
    encoder = v2.PacketEncoder(keys, Role.OUTBOUND)
    decoys = [encoder.encode(bytes(size), is_decoy=True) for size in sizes]
    far.feed(keys.terminators[Role.OUTBOUND] + b"".join(decoys) + encoder.encode(b""))
    found = items(far)
    assert far.is_established == is_within
    assert found == [] if is_within else "bytes of packets before the end of the version packet" in str(found)


def test_long_packets_are_refused_at_once() -> None:
    near, far = exchanged()
    far.feed(encoder_of(near).encode(bytes(v2.MAX_CONTENTS + 1))[:3])
    ((field, message),) = items(far)
    assert (field, message) == ("length", "the contents of a packet must be at most 4000013 bytes long, not 4000014")
    assert far.buffered == 0


def test_message_above_the_limit_of_its_command_ends_the_stream() -> None:
    near, far = exchanged()
    near.send("ping", bytes(LIMITS["ping"] + 1))
    near.send("verack", b"")
    far.feed(taken(near))
    ((field, message),) = items(far)
    assert field == "length" and str(message).startswith("ping must be at most ")


def test_a_flood_of_decoys_uses_no_memory() -> None:
    near, far = exchanged()
    tracemalloc.start()
    try:
        for _ in range(200):
            far.feed(encoder_of(near).encode(bytes(60_000), is_decoy=True))
            assert not items(far)
            assert far.buffered == 0
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2_000_000


def test_a_large_message_in_small_pieces_takes_linear_work() -> None:
    def prepare(size: int) -> Callable[[], object]:
        near, far = exchanged()
        near.send("block", bytes(size))
        data = taken(near)

        def receive() -> None:
            for at in range(0, len(data), 100):
                assert far.next_item() is None
                far.feed(data[at : at + 100])
            assert items(far) == [Frame("block", bytes(size))]

        return receive

    assert growth(prepare, (100_000, 1_000_000)) < LIMIT


def test_damaged_streams_never_yield_other_messages() -> None:
    first = random.randrange(1 << 32)
    print("seed", first)
    for number in range(effort(200, 1_000, 100_000)):
        v2fuzz.check(first + number)


@pytest.mark.parametrize("is_encrypted", [False, True])
@pytest.mark.parametrize("pause_s", [0.9, 3.0])
def test_whole_handshake_drop_by_drop_has_a_minute(pause_s: float, is_encrypted: bool) -> None:
    peer = session() if is_encrypted else Session(Settings(REGTEST), Role.OUTBOUND, draw_nonce=lambda: 7, now=0.0)
    data = answered(peer)[0] if is_encrypted else encode_message(MAGIC, "version", bytes(THEIRS))
    now, events = 0.0, list[SessionEvent]()
    for byte in data:
        peer.receive_data(bytes([byte]))
        events += peer.events()
        now += pause_s
        if peer.deadline is not None and now >= peer.deadline:
            assert now < 60.0 + pause_s
            peer.tick(now)
            events += peer.events()
            break
    (end,) = events
    assert isinstance(end, SessionEnded)
    assert isinstance(end.error, SessionError)
    assert end.error.cause is Cause.HANDSHAKE_TIMEOUT
    assert not is_lie(end.error)

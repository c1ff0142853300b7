"""A session after its handshake, in both roles: pings and fences, timeouts, buffers, and its end."""

from __future__ import annotations

import logging
import tracemalloc

import pytest

from spvfilter.errors import EnvelopeError, MessageError, ParameterError, PeerError, SessionError
from spvfilter.network import MAINNET, REGTEST
from spvfilter.wire.codec import encode_message
from spvfilter.wire.events import Cause, Fenced, Misbehaved, Received, Role, SessionEnded, Settings
from spvfilter.wire.messages.table import (
    Block,
    GetAddr,
    GetData,
    Inv,
    Mempool,
    Message,
    NotFound,
    Ping,
    Pong,
    Unknown,
    Verack,
    WtxidRelay,
)
from spvfilter.wire.session import MAX_PINGS, MAX_SEND_BUFFER, RECEIVE_BUFFER, SEND_BUFFER, Session
from support.peers.sessions import MAGIC, THEIRS, encoded, ended, fresh, ready, sent
from support.samples import ITEMS, SAMPLES

HANDSHAKE = ("version", "verack", "wtxidrelay", "sendaddrv2", "ping", "pong")


@pytest.mark.parametrize("role", list(Role))
def test_other_messages_are_passed_on_unchanged(role: Role) -> None:
    peer = ready(role)
    messages = [message for command, message in SAMPLES.items() if command not in HANDSHAKE] + [Unknown("alert", b"\1")]
    peer.receive_data(encoded(*messages))
    assert list(peer.events()) == [Received(message) for message in messages]
    assert sent(peer) == []


@pytest.mark.parametrize("message", SAMPLES.values(), ids=SAMPLES)
def test_every_message_can_be_sent(message: Message) -> None:
    peer = ready()
    peer.send(message)
    assert sent(peer) == [message]


# Pings and fences


def test_a_pong_follows_responses_to_earlier_requests() -> None:
    peer = ready(Role.INBOUND)
    peer.receive_data(encoded(GetData(ITEMS), Ping(99), GetData(ITEMS[:1]), Ping(100)))
    for event in peer.events():
        assert isinstance(event, Received)
        assert isinstance(event.message, GetData)
        peer.send(NotFound(event.message.items))
    assert sent(peer) == [NotFound(ITEMS), Pong(99), NotFound(ITEMS[:1]), Pong(100)]


def test_a_fence_shows_that_earlier_requests_are_answered() -> None:
    peer = ready()
    peer.send(GetData(ITEMS))
    first, second = peer.fence(1_001.0), peer.fence(1_002.0)
    assert sent(peer) == [GetData(ITEMS), Ping(first), Ping(second)]
    peer.receive_data(encoded(NotFound(ITEMS), Pong(first), Inv(()), Pong(second)))
    assert list(peer.events()) == [Received(NotFound(ITEMS)), Fenced(first), Received(Inv(())), Fenced(second)]


def test_an_unsolicited_pong_is_dropped() -> None:
    peer = ready()
    fence = peer.fence(1_001.0)
    peer.receive_data(encoded(Pong(fence + 1), Pong(fence), Pong(fence)))
    before, released, again = peer.events()
    assert released == Fenced(fence)
    for event in (before, again):
        assert isinstance(event, Misbehaved)
        assert isinstance(event.error, SessionError)
        assert event.error.cause == Cause.UNSOLICITED_PONG


@pytest.mark.parametrize("pong", [encoded(Pong(0)), encode_message(REGTEST.magic, "pong", bytes(7))])
def test_a_pong_without_a_nonce_answers_every_ping(pong: bytes) -> None:
    """Except for fences, whose pongs show that earlier requests are answered."""
    peer = ready()
    peer.tick(1_120.0)
    assert len(sent(peer)) == 1
    fence = peer.fence(1_130.0)
    peer.receive_data(pong + encoded(Pong(fence)))
    ignored, released = peer.events()
    assert isinstance(ignored, Misbehaved)
    assert released == Fenced(fence)
    assert peer.deadline == 1_250.0


def test_a_session_may_send_its_first_ping_early() -> None:
    peer = ready(settings=Settings(REGTEST, pings_first=True))
    assert peer.deadline == 1_000.0
    peer.tick(1_000.0)
    (ping,) = sent(peer)
    assert isinstance(ping, Ping)
    assert peer.deadline == 2_200.0


def test_a_pong_releases_only_its_own_fence() -> None:
    peer = ready()
    first, second = peer.fence(1_001.0), peer.fence(1_002.0)
    peer.receive_data(encoded(Pong(second)))
    assert list(peer.events()) == [Fenced(second)]
    assert peer.deadline == 1_001.0 + 1_200
    peer.receive_data(encoded(Pong(first)))
    assert list(peer.events()) == [Fenced(first)]


def test_the_number_of_open_fences_is_bounded() -> None:
    peer = ready()
    fences = [peer.fence(1_001.0) for _ in range(MAX_PINGS)]
    with pytest.raises(ParameterError, match="1024 pings are unanswered"):
        peer.fence(1_001.0)
    peer.receive_data(encoded(Pong(fences[0])))
    assert list(peer.events()) == [Fenced(fences[0])]
    peer.fence(1_001.0)


def test_a_nonce_in_use_is_not_reused() -> None:
    peer = Session(Settings(REGTEST), Role.OUTBOUND, draw_nonce=lambda: 5, now=0.0)
    peer.receive_data(encoded(THEIRS, Verack()))
    list(peer.events())
    assert peer.fence(1.0) == 5
    with pytest.raises(ParameterError, match="nonce 5"):
        peer.fence(1.0)


# Time


def test_a_silent_peer_gets_a_ping_and_is_disconnected() -> None:
    peer = ready()
    assert peer.deadline == 1_120.0
    peer.tick(1_119.9)
    assert sent(peer) == []
    peer.tick(1_120.5)
    (ping,) = sent(peer)
    assert isinstance(ping, Ping)
    assert peer.deadline == 2_320.5
    peer.tick(2_320.4)
    assert (list(peer.events()), sent(peer)) == ([], [])  # one ping is enough
    peer.tick(2_320.5)
    assert ended(peer, Cause.PING_TIMEOUT) == "no pong within 1200 s"
    peer.tick(5_000.0)
    # the deadline has changed
    assert (list(peer.events()), peer.deadline) == ([], None)  # type: ignore[comparison-overlap]


def test_a_timely_pong_keeps_the_session() -> None:
    peer = ready()
    now = 1_000.0
    for _ in range(50):
        assert peer.deadline == now + 120
        now += 120
        peer.tick(now)
        (ping,) = sent(peer)
        assert isinstance(ping, Ping)
        peer.receive_data(encoded(Pong(ping.nonce)))
        assert list(peer.events()) == []  # this pong belongs to no fence
    assert peer.wants_data


def test_a_fence_counts_as_a_ping() -> None:
    peer = ready()
    fence = peer.fence(1_050.0)
    assert peer.deadline == 2_250.0
    peer.receive_data(encoded(Pong(fence)))
    list(peer.events())
    assert peer.deadline == 1_170.0
    peer.fence(1_060.0)
    peer.tick(2_300.0)
    assert ended(peer, Cause.PING_TIMEOUT) == "no pong within 1240 s"


@pytest.mark.parametrize(("come", "missing"), [(b"", "no version message"), (encoded(THEIRS), "no verack message")])
def test_a_handshake_has_a_minute(come: bytes, missing: str) -> None:
    peer = fresh()
    peer.receive_data(come)
    assert list(peer.events()) == []
    assert peer.deadline == 1_060.0
    peer.tick(1_059.9)
    assert list(peer.events()) == []
    peer.tick(1_060.0)
    assert ended(peer, Cause.HANDSHAKE_TIMEOUT) == f"{missing} within 60 s"


# Buffers


def test_reading_pauses_while_five_million_bytes_wait() -> None:
    peer = ready()
    block = encoded(Block(bytes(80) + b"\x01" + bytes(3_000_000)))
    peer.receive_data(block)
    assert peer.wants_data
    peer.receive_data(block[:2_500_000])
    assert not peer.wants_data
    # the property has changed
    with pytest.raises(ParameterError, match=r"^5\d{6} received bytes have not been taken"):  # type: ignore[unreachable]
        peer.receive_data(block[2_500_000:])
    assert len(list(peer.events())) == 1
    assert peer.wants_data
    peer.receive_data(block[2_500_000:])
    assert len(list(peer.events())) == 1


def test_the_longest_message_fits_into_the_buffer() -> None:
    assert len(encode_message(MAGIC, "block", bytes(4_000_000))) < RECEIVE_BUFFER


def test_a_flood_of_pings_waits_for_its_pongs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SEND_BUFFER == 1_000_000
    monkeypatch.setattr("spvfilter.wire.session.SEND_BUFFER", 10_000)
    peer = ready()
    count = 1_000
    peer.receive_data(b"".join(encoded(Ping(nonce)) for nonce in range(count)) + encoded(GetAddr()))
    answers: list[Message] = []
    rounds = 0
    while not (events := list(peer.events())):
        rounds += 1
        assert not peer.can_send
        waiting = peer.data_to_send()
        assert len(waiting) == 10_016
        answers += (Pong(int.from_bytes(waiting[at + 24 : at + 32], "little")) for at in range(0, len(waiting), 32))
    assert events == [Received(GetAddr())]
    assert answers + sent(peer) == [Pong(nonce) for nonce in range(count)]
    assert rounds == 3


def test_the_send_buffer_is_bounded() -> None:
    peer = ready()
    big = Unknown("junk", bytes(4_000_000))
    for _ in range(3):
        peer.send(big)
        assert not peer.can_send
    with pytest.raises(ParameterError, match="12000072 bytes are waiting to be sent"):
        peer.send(big)
    assert len(peer.data_to_send()) == 12_000_072 < MAX_SEND_BUFFER
    assert peer.can_send
    peer.send(big)


# The end of a session


def test_a_foreign_magic_ends_the_session() -> None:
    peer = ready()
    peer.receive_data(encoded(Mempool()) + encode_message(MAINNET.magic, "mempool", b"") + encoded(Mempool()))
    first, last = peer.events()
    assert first == Received(Mempool())
    assert isinstance(last, SessionEnded)
    assert isinstance(last.error, EnvelopeError)
    assert last.error.field == "magic"
    peer.receive_data(encoded(Mempool()))
    peer.send(Mempool())
    assert peer.fence(1_001.0) == 2
    assert (list(peer.events()), sent(peer)) == ([], [])


@pytest.mark.parametrize(
    ("command", "size"),
    [
        ("ping", 1_025),
        ("headers", 162_004),
        ("inv", 1_800_004),
        ("getheaders", 3_270),
        ("addr", 30_004),
        ("filterload", 36_013),
        ("filteradd", 524),
        ("version", 1_025),
        ("other", 4_000_001),
    ],
)
def test_an_overlong_message_ends_the_session_by_its_header(command: str, size: int) -> None:
    head = MAGIC + command.encode().ljust(12, b"\0")
    peer = ready()
    peer.receive_data(head + (size - 1).to_bytes(4, "little") + bytes(4))
    assert list(peer.events()) == []
    peer = ready()
    peer.receive_data(head + size.to_bytes(4, "little") + bytes(4))
    (event,) = peer.events()
    assert isinstance(event, SessionEnded)
    assert isinstance(event.error, EnvelopeError)
    assert (event.error.field, str(event.error)) == (
        "length",
        f"'{command}' must be at most {size - 1} bytes long, not {size}",
    )


def test_a_bad_message_costs_no_other_message() -> None:
    peer = ready()
    unsummed = bytearray(encoded(Inv(ITEMS)))
    unsummed[20] ^= 1
    unnamed = bytearray(encoded(Mempool()))
    unnamed[4] = 0x1B
    peer.receive_data(
        bytes(unsummed + unnamed) + encoded(Unknown("inv", b"\x02" + bytes(40)), Unknown("ping", b""), Mempool())
    )
    *dropped, last = peer.events()
    assert last == Received(Mempool())
    errors = [event.error for event in dropped if isinstance(event, Misbehaved)]
    assert [type(error) for error in errors] == [EnvelopeError, EnvelopeError, MessageError, MessageError]
    assert (
        str(errors[2])
        == "inv: inventory count at byte 0: truncated: 2 items of at least 36 bytes each, but only 40 bytes left"
    )
    assert str(errors[3]) == "ping: nonce at byte 0: truncated: expected 8 bytes, 0 left"
    assert sent(peer) == []


@pytest.mark.parametrize(
    ("come", "cause", "words"),
    [
        pytest.param((), Cause.LOST, "another service on this port, or a node that is full", id="immediately"),
        pytest.param((THEIRS,), Cause.LOST_AFTER_VERSION, " after its version message", id="after version"),
        pytest.param(
            (THEIRS, WtxidRelay()), Cause.LOST_AFTER_VERSION, " after its version message", id="before verack"
        ),
    ],
)
def test_a_close_during_the_handshake_has_its_own_cause(come: tuple[Message, ...], cause: Cause, words: str) -> None:
    peer = fresh()
    peer.receive_data(encoded(*come))
    peer.receive_eof()
    assert words in ended(peer, cause)


@pytest.mark.parametrize(
    ("rest", "says"),
    [(b"", ""), *((encoded(Ping(1))[:size], " in the middle of a message") for size in (1, 24, 31))],
)
def test_the_end_of_the_stream_follows_received_messages(rest: bytes, says: str) -> None:
    peer = ready()
    peer.receive_data(encoded(Mempool(), Ping(3)) + rest)
    peer.receive_eof()
    first, last = peer.events()
    assert first == Received(Mempool())
    assert isinstance(last, SessionEnded)
    assert isinstance(last.error, SessionError)
    assert (last.error.cause, str(last.error)) == (Cause.LOST, f"the peer closed the connection{says}")
    assert sent(peer) == [Pong(3)]
    assert peer.next_event() is None


def test_the_owner_ends_a_session_once() -> None:
    peer = ready()
    peer.receive_data(encoded(Mempool()))
    peer.send(GetAddr())
    error = PeerError("it lied")
    peer.close(error)
    peer.close()
    assert list(peer.events()) == [SessionEnded(error)]
    assert sent(peer) == [GetAddr()]  # messages that were sent before the end are still in the buffer


def test_the_owner_may_end_a_session_while_it_takes_events() -> None:
    peer = ready()
    peer.receive_data(encoded(Mempool(), GetAddr()))
    events = []
    for event in peer.events():
        events.append(event)
        peer.close()
    assert events == [Received(Mempool()), SessionEnded(None)]


def test_a_session_that_ended_holds_nothing_received() -> None:
    peer = ready()
    tracemalloc.start()
    try:
        peer.receive_data(encoded(Unknown("junk", bytes(3_000_000)))[:-1])
        assert list(peer.events()) == []
        peer.close()
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def test_text_of_a_peer_is_logged_escaped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    peer = fresh()
    evil = b"\x1b[2J\r\n\xff\x9b"
    version = THEIRS.__class__(70016, 0, 0, 1 << 60, evil, 0)
    peer.receive_data(
        encoded(version, Verack()) + MAGIC + evil.ljust(12, b"\0") + (4_000_001).to_bytes(4, "little") + bytes(4)
    )
    assert [type(event).__name__ for event in peer.events()] == ["Ready", "SessionEnded"]
    assert r"\x1b[2J" in caplog.text
    assert all(record.getMessage().isprintable() and record.getMessage().isascii() for record in caplog.records)
    assert len(caplog.records) == 2

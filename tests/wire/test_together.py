"""Events that may be processed together, and consecutive filters as one event."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import EnvelopeError, MessageError
from spvfilter.network import REGTEST
from spvfilter.wire.codec import Decoder, Frame, encode_message
from spvfilter.wire.events import (
    Fenced,
    Misbehaved,
    Received,
    ReceivedFilters,
    Role,
    SessionEnded,
    SessionEvent,
    Settings,
)
from spvfilter.wire.messages.table import CFHeaders, CFilter, GetData, Inv, Mempool, NotFound, Ping, Pong
from spvfilter.wire.session import MAX_EVENTS, Session
from support.peers.sessions import MAGIC, encoded, ready, sent
from support.samples import ITEMS

FILTERS = [(bytes([number]) * 32, bytes([number]) * size) for number, size in enumerate((0, 1, 0xFC, 0xFD, 3_000))]
MESSAGES = [CFilter(0, block_hash, data) for block_hash, data in FILTERS]


def joining() -> Session:
    return ready(settings=Settings(REGTEST, joins_filters=True))


def groups(peer: Session) -> Iterator[list[SessionEvent]]:
    """The groups of events that are returned together."""
    while (event := peer.next_event()) is not None:
        yield [event, *peer.more_events()]


def together(peer: Session) -> list[list[SessionEvent]]:
    return list(groups(peer))


def test_received_messages_are_returned_together() -> None:
    peer = ready()
    assert peer.more_events() == []
    peer.receive_data(encoded(Inv(ITEMS), Mempool(), GetData(ITEMS))[:-1])
    assert together(peer) == [[Received(Inv(ITEMS)), Received(Mempool())]]
    peer.receive_data(encoded(GetData(ITEMS))[-1:])
    assert together(peer) == [[Received(GetData(ITEMS))]]


def test_a_pong_follows_responses_to_all_earlier_requests() -> None:
    peer = ready(Role.INBOUND)
    peer.receive_data(encoded(GetData(ITEMS), GetData(ITEMS[:1]), Ping(99), GetData(ITEMS), Ping(100)))
    for events in groups(peer):
        for event in events:
            assert isinstance(event, Received)
            assert isinstance(event.message, GetData)
            peer.send(NotFound(event.message.items))
    assert sent(peer) == [NotFound(ITEMS), NotFound(ITEMS[:1]), Pong(99), NotFound(ITEMS), Pong(100)]


def test_a_fence_is_returned_alone() -> None:
    peer = ready()
    nonce = peer.fence(1_001.0)
    peer.receive_data(encoded(Inv(ITEMS), Pong(nonce), Mempool()))
    assert together(peer) == [[Received(Inv(ITEMS))], [Fenced(nonce), Received(Mempool())]]


def test_the_size_of_a_group_is_bounded() -> None:
    peer = ready()
    peer.receive_data(encoded(Mempool()) * 200)
    assert [len(events) for events in together(peer)] == [MAX_EVENTS + 1] * 3 + [200 - 3 * (MAX_EVENTS + 1)]


def test_a_refused_message_ends_a_run_of_filters() -> None:
    decoder = Decoder(MAGIC)
    decoder.joins_filters = True
    refused = encode_message(MAGIC, "cfilter", b"\0" + bytes(32) + b"\2\1")  # one byte is missing
    damaged = bytearray(encoded(MESSAGES[1]))
    damaged[-1] ^= 1
    decoder.feed(encoded(*MESSAGES) + refused + encoded(MESSAGES[0]) + damaged + encoded(MESSAGES[2]))
    assert decoder.next_command == "cfilter"
    assert decoder.next_item() == FILTERS
    assert decoder.next_item() == Frame("cfilter", refused[24:])
    assert decoder.next_item() == FILTERS[:1]
    assert decoder.buffered == len(damaged) + len(encoded(MESSAGES[2]))
    with pytest.raises(EnvelopeError, match="checksum"):
        decoder.next_item()
    assert decoder.next_item() == FILTERS[2:3]
    assert decoder.next_item() is None
    assert decoder.buffered == 0


def test_errors_keep_their_order_and_the_end_is_last() -> None:
    peer = ready()
    stream = encoded(Inv(ITEMS)) + encode_message(MAGIC, "inv", b"\1") + encoded(Mempool())
    damaged = bytearray(encoded(Mempool()))
    damaged[20] ^= 1
    peer.receive_data(stream + damaged + encoded(Inv(ITEMS)) + bytes(4) + encoded(Mempool()))
    events = [event for group in together(peer) for event in group]
    kinds = [event.error if isinstance(event, Misbehaved | SessionEnded) else event for event in events]
    assert kinds[0] == kinds[4] == Received(Inv(ITEMS))
    assert isinstance(kinds[1], MessageError)
    assert kinds[2] == Received(Mempool())
    assert isinstance(kinds[3], EnvelopeError)
    assert isinstance(events[5], SessionEnded)
    assert len(events) == 6


def test_successive_filters_are_one_event_on_request() -> None:
    peer = joining()
    headers = CFHeaders(0, bytes(32), bytes(32), ())
    peer.receive_data(encoded(*MESSAGES[:3], headers, *MESSAGES[3:]))
    joined = [ReceivedFilters(tuple(FILTERS[:3])), Received(headers), ReceivedFilters(tuple(FILTERS[3:]))]
    assert together(peer) == [joined]
    peer = ready()
    peer.receive_data(encoded(*MESSAGES))
    assert list(peer.events()) == list(map(Received, MESSAGES))


def test_filters_of_other_types_and_malformed_filters_stay_single() -> None:
    peer = joining()
    other = CFilter(1, bytes(32), b"\0")
    bad = [bytes(MESSAGES[1]) + b"\0", bytes(MESSAGES[1])[:-1], b"", bytes(33), bytes(33) + b"\xfd\1\0\0"]
    for payload in bad:
        stream = (
            encoded(MESSAGES[0]) + encode_message(MAGIC, "cfilter", payload) + encoded(MESSAGES[1], other, MESSAGES[2])
        )
        peer.receive_data(stream)
        events = [event for group in together(peer) for event in group]
        assert events[0] == ReceivedFilters((FILTERS[0],))
        assert isinstance(events[1], Misbehaved)
        assert isinstance(events[1].error, MessageError)
        assert events[2:] == [ReceivedFilters((FILTERS[1],)), Received(other), ReceivedFilters((FILTERS[2],))]


def test_joined_filters_are_bounded() -> None:
    peer = joining()
    large = [CFilter(0, bytes([number]) * 32, bytes(20_000)) for number in range(20)]
    peer.receive_data(encoded(*large))
    events = [event for group in together(peer) for event in group]
    sizes = [sum(len(data) for _, data in event.filters) for event in events if isinstance(event, ReceivedFilters)]
    assert sum(sizes) == 20 * 20_000
    assert max(sizes) <= 1 << 16


@pytest.mark.parametrize("limit", [5, 6])
def test_an_overlong_message_ends_the_stream_in_order(limit: int) -> None:
    decoder = Decoder(MAGIC, {"block": limit})
    decoder.feed(b"".join(encode_message(MAGIC, command, bytes(6)) for command in ("tx", "block", "tx")))
    assert decoder.next_frame() == Frame("tx", bytes(6))
    if limit == 6:
        assert decoder.next_frame() == Frame("block", bytes(6))
        assert decoder.buffered == 30
        assert decoder.next_frame() == Frame("tx", bytes(6))
        assert decoder.buffered == 0
        return
    for _ in range(2):
        with pytest.raises(EnvelopeError, match="block' must be at most 5 bytes long, not 6"):
            decoder.next_frame()
    assert decoder.buffered == 0


@given(st.lists(st.integers(1, 4_000), max_size=30))
def test_the_division_of_a_stream_changes_no_filter(cuts: list[int]) -> None:
    peer, found = joining(), list[tuple[bytes, bytes]]()
    stream = encoded(*MESSAGES)
    for at in (*cuts, len(stream)):
        peer.receive_data(stream[:at])
        stream = stream[at:]
        for event in (event for group in groups(peer) for event in group):
            assert isinstance(event, ReceivedFilters)
            found += event.filters
    assert found == FILTERS

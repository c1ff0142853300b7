"""Encrypted transport (BIP-324): published vectors, both sides together, detection of the transport."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import EnvelopeError, ParameterError, SessionError
from spvfilter.light.checks import check_v2
from spvfilter.network import MAINNET, SIGNET
from spvfilter.protocol import MAX_PAYLOAD_SIZE
from spvfilter.wire import v2
from spvfilter.wire.codec import Frame, encode_message
from spvfilter.wire.events import Cause, Ready, Role, SessionEnded, SessionEvent, Settings
from spvfilter.wire.messages.filters import CFilter
from spvfilter.wire.messages.table import LIMITS, Verack
from spvfilter.wire.session import Session
from spvfilter.wire.streams import UndecidedStream, V1Stream
from spvfilter.wire.transport import Transport, V2Policy, is_installed
from support.peers.sessionparts import encoder_of
from support.peers.sessions import MAGIC, THEIRS, encoded
from support.peers.v2peers import Item, drawn, exchanged, items, stream, taken, without_extra
from support.vectors import vector_cases, vector_file

pytestmark = pytest.mark.v2


def hexed(case: dict[str, str], name: str) -> bytes:
    return bytes.fromhex(case[name])


# Vectors


@vector_cases("10_p2p/bip324_packet_encoding.json")
def test_published_packets_are_made_again(case: Any) -> None:
    from btclib_secp256k1 import ellswift

    is_initiator = case["in_initiating"] == "1"
    ours, theirs = hexed(case, "in_ellswift_ours"), hexed(case, "in_ellswift_theirs")
    pair = (ours, theirs) if is_initiator else (theirs, ours)
    secret = ellswift.xdh(*pair, hexed(case, "in_priv_ours"), 0 if is_initiator else 1)
    assert secret == hexed(case, "mid_shared_secret")
    keys, (side, peer) = v2.Keys(secret, MAINNET.magic), Role if is_initiator else reversed(Role)
    for name, key in (
        ("mid_initiator_l", keys.lengths[Role.OUTBOUND]),
        ("mid_initiator_p", keys.packets[Role.OUTBOUND]),
        ("mid_responder_l", keys.lengths[Role.INBOUND]),
        ("mid_responder_p", keys.packets[Role.INBOUND]),
        ("mid_send_garbage_terminator", keys.terminators[side]),
        ("mid_recv_garbage_terminator", keys.terminators[peer]),
        ("out_session_id", keys.session_id),
    ):
        assert key == hexed(case, name), name
    encoder = v2.PacketEncoder(keys, side)
    for _ in range(int(case["in_idx"])):
        encoder.encode(b"")
    contents = hexed(case, "in_contents") * int(case["in_multiply"])
    packet = encoder.encode(contents, hexed(case, "in_aad"), is_decoy=case["in_ignore"] == "1")
    assert packet.endswith(hexed(case, "out_ciphertext_endswith"))
    assert packet == hexed(case, "out_ciphertext") or not case["out_ciphertext"]


@vector_cases("10_p2p/bip324_ellswift_decode.json")
def test_published_keys_are_decoded(case: Any) -> None:
    from btclib_secp256k1 import ellswift

    assert ellswift.decode(hexed(case, "ellswift"))[1:] == hexed(case, "x")


@pytest.mark.vectors
def test_short_ids_are_the_published_ones() -> None:
    published = vector_file("10_p2p/bip324_message_ids.json")["ids"]
    assert {str(number): command for number, command in v2.SHORT_IDS.items()} == published


# Two sides


COMMANDS = st.sampled_from([*LIMITS, "unknown", "twelve_chars"])
MESSAGES = st.lists(st.tuples(COMMANDS, st.binary(max_size=60)), max_size=8)


@given(MESSAGES, st.lists(st.integers(0, 700), max_size=12), st.integers(0, 1_000))
def test_messages_arrive_however_the_stream_is_divided(
    messages: list[tuple[str, bytes]], sizes: list[int], seed: int
) -> None:
    near, far = stream(Role.OUTBOUND, seed), stream(Role.INBOUND, seed + 1)
    found: list[Item] = []

    def pass_on() -> None:
        data = taken(near)
        for size in (*sizes, len(data)):
            far.feed(data[:size])
            data = data[size:]
            found.extend(items(far))
            near.feed(taken(far))

    for command, payload in messages[:2]:
        near.send(command, payload)  # before the key exchange
    pass_on()
    for command, payload in messages[2:]:
        near.send(command, payload)
    pass_on()
    assert found == [Frame(*each) for each in messages]
    assert items(near) == []
    assert far.buffered == near.buffered == 0
    assert near.session_id == far.session_id is not None


def test_ten_thousand_messages_pass_many_changes_of_the_keys() -> None:
    near, far = exchanged()
    for number in range(10_000):
        near.send("ping", number.to_bytes(8, "little"))
    far.feed(taken(near))
    assert items(far) == [Frame("ping", number.to_bytes(8, "little")) for number in range(10_000)]


def test_the_largest_message_arrives_and_one_byte_more_is_refused() -> None:
    near, far = exchanged()
    near.send("block", bytes(MAX_PAYLOAD_SIZE))
    far.feed(taken(near))
    assert items(far) == [Frame("block", bytes(MAX_PAYLOAD_SIZE))]
    with pytest.raises(ParameterError, match="at most 4000000 bytes long, not 4000001"):
        near.send("block", bytes(MAX_PAYLOAD_SIZE + 1))


@pytest.mark.parametrize("garbage", [0, 4_095])
def test_garbage_of_every_length_is_skipped(garbage: int) -> None:
    near, far = exchanged(garbage=garbage)
    near.send("verack", b"")
    far.feed(taken(near))
    assert items(far) == [Frame("verack", b"")]


def test_decoys_are_ignored() -> None:
    near, far = exchanged()
    near.send("mempool", b"")
    first = taken(near)
    decoys = encoder_of(near).encode(b"\x0fnoise", is_decoy=True) + encoder_of(near).encode(
        bytes(90_000), is_decoy=True
    )
    decoys += encoder_of(near).encode(b"", is_decoy=True)
    near.send("getaddr", b"")
    far.feed(first + decoys + taken(near))
    assert items(far) == [Frame("mempool", b""), Frame("getaddr", b"")]


def test_a_message_after_many_decoys_arrives_at_once() -> None:
    near, far = exchanged()
    decoys = b"".join(encoder_of(near).encode(bytes(1_000), is_decoy=True) for _ in range(200))
    near.send("verack", b"")
    far.feed(decoys + taken(near))
    assert far.next_command == "verack"
    assert items(far) == [Frame("verack", b"")]


def test_consecutive_filters_are_joined() -> None:
    near, far = exchanged()
    sent = [(bytes([number]) * 32, bytes(size)) for number, size in enumerate((0, 252, 253, 60_000, 50_000, 9))]
    large = CFilter(0, b"\6" * 32, bytes(70_000))
    for block_hash, data in sent:
        near.send("cfilter", bytes(CFilter(0, block_hash, data)))
    near.send("ping", bytes(8))
    near.send("cfilter", bytes(large))
    for damaged in (b"", b"\1" + bytes(33), bytes(33), bytes(33) + b"\xfd\1\0a", bytes(33) + b"\2a", bytes(35)):
        near.send("cfilter", damaged)
    near.send("cfilter", bytes(CFilter(0, b"\7" * 32, b"abc")))
    far.joins_filters = True
    far.feed(taken(near))
    assert far.next_command == "cfilter"
    found = items(far)
    joined = [each for each in found if isinstance(each, list)]
    assert [filter_ for each in joined for filter_ in each] == [*sent, (b"\7" * 32, b"abc")]
    assert [each.command for each in found if isinstance(each, Frame)] == ["ping", *["cfilter"] * 7]
    assert found[len(joined)] == Frame("cfilter", bytes(large))
    assert far.buffered == 0


def test_the_random_bytes_decide_the_connection() -> None:
    def first(seed: int) -> bytes:
        return taken(stream(Role.OUTBOUND, seed))

    assert first(5) == first(5) != first(6)


def test_an_impossible_private_key_is_drawn_again() -> None:
    given_ = iter([bytes(32), b"\xff" * 32, b"\1" * 32, b"\2" * 32])
    side = v2.V2Stream(MAGIC, Role.OUTBOUND, lambda size: bytes(size) if size < 32 else next(given_))
    assert len(side.outgoing) == v2.KEY_SIZE


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without_extra(monkeypatch)
    assert not is_installed()
    with pytest.raises(ParameterError, match=r"run `python -m pip install .*extra `bip324`"):
        stream(Role.OUTBOUND)


@pytest.mark.parametrize("name", ["btclib_secp256k1.ellswift", "cryptography.hazmat.primitives.ciphers.aead"])
def test_a_package_that_cannot_be_imported_is_not_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    assert not is_installed()
    assert check_v2("prefer") is V2Policy.OFF
    with pytest.raises(ParameterError, match=r"run `python -m pip install .*extra `bip324`"):
        check_v2("require")


# Detection of the transport


def undecided() -> UndecidedStream:
    return UndecidedStream(MAGIC, drawn(3), LIMITS)


def test_a_version_message_means_no_encryption() -> None:
    start = encoded(THEIRS)
    side = undecided()
    for at in range(16):
        assert side.decided() is side.next_command is None
        assert items(side) == []
        assert side.buffered == at
        side.feed(start[at : at + 1])
    decided = side.decided()
    assert isinstance(decided, V1Stream)
    decided.feed(start[16:])
    assert [each.command for each in items(decided) if isinstance(each, Frame)] == ["version"]


@pytest.mark.parametrize("size", range(16))
def test_the_first_other_byte_means_encryption(size: int) -> None:
    start = bytearray(encoded(THEIRS)[: size + 1])
    start[size] ^= 1
    side = undecided()
    side.feed(start)
    decided = side.decided()
    assert isinstance(decided, v2.V2Stream)
    assert len(taken(decided)) >= v2.KEY_SIZE


def test_a_version_message_of_another_network_is_named() -> None:
    side = undecided()
    side.feed(encode_message(SIGNET.magic, "version", bytes(THEIRS)))
    decided = side.decided()
    assert decided is not None
    ((field, message),) = items(decided)
    assert field == "magic" and str(message).startswith("answered as a signet node, not as a regtest node")


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_sessions_of_both_transports_complete_the_handshake(is_encrypted: bool) -> None:
    settings = Settings(MAINNET)
    near = Session(
        settings,
        Role.OUTBOUND,
        draw_nonce=lambda: 1,
        now=0.0,
        stream=v2.V2Stream(MAINNET.magic, Role.OUTBOUND, drawn(1), LIMITS) if is_encrypted else None,
    )
    undecided = UndecidedStream(MAINNET.magic, drawn(2), LIMITS)
    far = Session(settings, Role.INBOUND, draw_nonce=lambda: 2, now=0.0, stream=undecided)
    events: list[SessionEvent] = []
    for _ in range(4):
        far.receive_data(near.data_to_send())
        events += far.events()
        near.receive_data(far.data_to_send())
        events += near.events()
    assert [type(each) for each in events] == [Ready, Ready]
    assert near.transport is far.transport is (Transport.V2 if is_encrypted else Transport.V1)
    near.send(Verack())
    near.close()
    assert near.transport is far.transport
    assert [type(each) for each in near.events()] == [SessionEnded]


def test_a_stream_of_a_wrong_magic_is_refused() -> None:
    with pytest.raises(ParameterError, match="magic must be 4 bytes long"):
        v2.V2Stream(b"abc", Role.OUTBOUND, drawn(1))


def test_an_unknown_command_is_dropped_and_the_stream_continues() -> None:
    near, far = exchanged()
    for contents in (b"", b"\x1d", b"\xff", b"\0", b"\0verack\0\0\0\0\0", b"\0fi\0ter\0\0\0\0\0\0\0", b"\0" * 13):
        far.feed(encoder_of(near).encode(contents))
    near.send("verack", b"")
    far.feed(taken(near))
    *errors, last = items(far)
    assert [field for field, _ in errors] == ["command"] * 7
    assert last == Frame("verack", b"") and far.broken is None


def test_a_command_in_full_is_the_same_as_its_id() -> None:
    near, far = exchanged()
    far.feed(encoder_of(near).encode(b"\0" + b"ping".ljust(12, b"\0") + bytes(8)))
    assert items(far) == [Frame("ping", bytes(8))]


def test_the_last_error_is_raised_again() -> None:
    near, far = exchanged()
    near.send("verack", b"")
    near.send("verack", b"")
    data = bytearray(taken(near))
    data[-1] ^= 1
    far.feed(data)
    assert far.next_item() == Frame("verack", b"")
    for _ in range(2):
        with pytest.raises(EnvelopeError, match="wrong tag"):
            far.next_item()


def test_answer_without_encryption_is_a_refusal_after_the_key_alone() -> None:
    near = v2.V2Stream(MAINNET.magic, Role.OUTBOUND, drawn(1), LIMITS)
    session = Session(Settings(MAINNET), Role.OUTBOUND, draw_nonce=lambda: 1, now=0.0, stream=near)
    assert len(session.data_to_send()) == v2.KEY_SIZE  # bcoin would ban a peer that sent its garbage, too
    session.receive_data(encode_message(MAINNET.magic, "reject", b"\x00\x01\x15error parsing message"))
    (ended,) = session.events()
    assert isinstance(ended, SessionEnded)
    assert isinstance(ended.error, SessionError)
    assert ended.error.cause is Cause.NO_V2

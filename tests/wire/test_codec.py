"""Framing of messages: published messages, damaged and cut streams, limits."""

from __future__ import annotations

import traceback
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import EnvelopeError, ParameterError
from spvfilter.network import MAINNET, NETWORKS, REGTEST, Network
from spvfilter.protocol import MAX_PAYLOAD_SIZE
from spvfilter.wire.codec import Decoder, Frame, encode_message
from support.blocks.build import sha256d
from support.growth import LIMIT, growth
from support.vectors import vector_cases, vector_file

MAGIC = REGTEST.magic


def test_a_message_without_payload_is_only_its_header() -> None:
    assert encode_message(MAINNET.magic, "verack", b"").hex() == "f9beb4d976657261636b000000000000000000005df6e0e2"


def test_the_largest_payload_is_accepted() -> None:
    assert encode_message(MAINNET.magic, "block", bytes(MAX_PAYLOAD_SIZE))[16:20] == MAX_PAYLOAD_SIZE.to_bytes(
        4, "little"
    )
    with pytest.raises(ParameterError, match="at most 4000000 bytes long, not 4000001"):
        encode_message(MAINNET.magic, "block", bytes(MAX_PAYLOAD_SIZE + 1))


@pytest.mark.parametrize("command", ["", "thirteenchars", "fi\0ter", "filtér", "line\n"])
def test_a_bad_command_is_refused(command: str) -> None:
    with pytest.raises(ParameterError, match="a command must be 1 to 12 printable ASCII"):
        encode_message(MAINNET.magic, command, b"")


@pytest.mark.parametrize("magic", [b"", b"\xf9\xbe\xb4", b"\xf9\xbe\xb4\xd9\x00"])
def test_a_magic_of_another_size_is_refused(magic: bytes) -> None:
    with pytest.raises(ParameterError, match="magic must be 4 bytes long"):
        encode_message(magic, "verack", b"")
    with pytest.raises(ParameterError, match="magic must be 4 bytes long"):
        Decoder(magic)


# Reading


def decoded(
    stream: bytes, sizes: Iterable[int], limits: Mapping[str, int] | None = None
) -> list[Frame | tuple[str, str]]:
    """The frames of a stream, cut into pieces of these sizes and a last piece. Errors are (field, message)."""
    decoder = Decoder(MAGIC, limits)
    found: list[Frame | tuple[str, str]] = []
    at = 0
    for size in (*sizes, len(stream)):
        decoder.feed(stream[at : at + size])
        at += size
        while decoder.broken is None:
            try:
                frame = decoder.next_frame()
            except EnvelopeError as error:
                found.append((error.field, str(error)))
                continue
            if frame is None:
                break
            found.append(frame)
    return found


def envelope(command: bytes, size: int, checksum: bytes, magic: bytes = MAGIC) -> bytes:
    return magic + command.ljust(12, b"\0") + size.to_bytes(4, "little") + checksum


GOOD = encode_message(MAGIC, "inv", b"\x00")
UNSUMMED = envelope(b"inv", 1, b"\1\2\3\4") + b"\x00"
UNNAMED = envelope(b"i\x00v", 1, sha256d(b"\x00")[:4]) + b"\x00"
FOREIGN = encode_message(MAINNET.magic, "inv", b"\x00")
ENDLESS = envelope(b"inv", (1 << 32) - 1, bytes(4))


@vector_cases("10_p2p/messages.json")
def test_published_messages_are_found_and_serialized(case: Any) -> None:
    magic, payload = Network.named(case["network"]).magic, bytes.fromhex(case["payload"])
    assert encode_message(magic, case["command"], payload).hex() == case["message"]
    decoder = Decoder(magic)
    decoder.feed(bytes.fromhex(case["message"]))
    assert decoder.next_frame() == (case["command"], payload)
    assert decoder.next_frame() is None
    assert decoder.buffered == 0


@pytest.mark.vectors
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("bad_magic", "magic"),
        ("payload_changed", "checksum"),
        ("huge_length", "length"),
        ("command_non_ascii", "command"),
    ],
)
def test_each_published_bad_message_has_its_own_error(name: str, field: str) -> None:
    (case,) = (case for case in vector_file("10_p2p/messages.json")["invalid"] if case["id"] == name)
    decoder = Decoder(MAINNET.magic)
    decoder.feed(bytes.fromhex(case["message"]))
    with pytest.raises(EnvelopeError) as caught:
        decoder.next_frame()
    assert caught.value.field == field
    assert (decoder.broken is caught.value) == (field in ("magic", "length"))


@given(
    st.lists(
        st.sampled_from([GOOD, UNSUMMED, UNNAMED, FOREIGN, ENDLESS, b"", b"\0"]) | st.binary(max_size=40), max_size=8
    ).map(b"".join),
    st.lists(st.integers(0, 40), max_size=40),
)
def test_the_division_of_a_stream_changes_no_frame(stream: bytes, sizes: list[int]) -> None:
    whole = decoded(stream, [])
    assert decoded(stream, sizes) == whole
    assert decoded(stream, [1] * len(stream)) == whole


def test_a_bad_message_costs_no_other_message() -> None:
    found = decoded(UNSUMMED + GOOD + UNNAMED + GOOD, [])
    assert found[1] == found[3] == Frame("inv", b"\x00")
    assert found[0] == ("checksum", "inv: checksum 01020304, but the payload's checksum is 1406e058")
    assert found[2] == ("command", "command 690076000000000000000000 is not printable ASCII padded with NULs")
    assert len(found) == 4


@pytest.mark.parametrize("end", [FOREIGN, ENDLESS])
def test_a_foreign_magic_or_excessive_length_ends_the_stream(end: bytes) -> None:
    decoder = Decoder(MAGIC)
    decoder.feed(GOOD + end + GOOD)
    assert decoder.next_frame() == ("inv", b"\x00")
    frames = []
    for _ in range(3):
        with pytest.raises(EnvelopeError) as caught:
            decoder.next_frame()
        decoder.feed(GOOD)
        assert decoder.broken is caught.value
        assert decoder.buffered == 0
        frames.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert frames[1] == frames[2]  # the error is raised again, and its traceback does not grow


def test_four_bytes_identify_a_foreign_magic() -> None:
    for start, words in (
        (b"abcd", "magic 61626364, expected fabfb5da of regtest"),
        (
            b"GET ",
            "answered as an HTTP server, not as a Bitcoin node (Bitcoin Core's RPC, which uses HTTP, has a"
            " different port than its peers): magic 47455420, expected fabfb5da of regtest",
        ),
        (b"HTTP/1.1 400 Bad Request\r\n", "answered as an HTTP server, not as a Bitcoin node"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "answered as a TLS server, not as a Bitcoin node: magic 15030100, exp"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "answered as an SSH server, not as a Bitcoin node"),
        (b"-ERR unknown command\r\n", "answered as a Redis server, not as a Bitcoin node"),
        (b'{"jsonrpc": "2.0"', "answered as a JSON server (Electrum, perhaps), not as a Bitcoin node"),
        *(
            (
                known.magic,
                f"answered as a {known.name} node, not as a regtest node: magic {known.magic.hex()}, expected fabfb5da",
            )
            for known in NETWORKS[:4]
        ),
    ):
        ((field, said),) = decoded(start, [])
        assert field == "magic"
        assert str(said).startswith(words)
    assert decoded(MAGIC[:3], []) == []


@pytest.mark.parametrize(
    "command",
    [b"", b"\x7f", b"\xff", b"a\0b", b"\0a", b"a\n", b"twelve_chars"[:11] + b"\x1b", b"abc" + bytes(8) + b"\1"],
)
def test_a_command_is_printable_and_padded_with_nuls(command: bytes) -> None:
    assert [field for field, _ in decoded(envelope(command, 0, sha256d(b"")[:4]), [])] == ["command"]


def test_a_command_may_fill_its_field_and_contain_spaces() -> None:
    assert encode_message(MAGIC, "twelve chars", b"")[4:16] == b"twelve chars"
    assert decoded(envelope(b"twelve chars", 0, sha256d(b"")[:4]), []) == [Frame("twelve chars", b"")]


@pytest.mark.parametrize("size", [MAX_PAYLOAD_SIZE + 1, 1 << 25, 1 << 31, (1 << 32) - 1])
def test_the_header_alone_decides_about_the_length(size: int) -> None:
    assert decoded(envelope(b"block", size, bytes(4)), []) == [
        ("length", f"'block' must be at most 4000000 bytes long, not {size}")
    ]
    assert decoded(envelope(b"\x1b[2J", size, bytes(4)), []) == [
        ("length", rf"'\x1b[2J' must be at most 4000000 bytes long, not {size}")
    ]


def test_the_longest_message_is_accepted() -> None:
    payload = bytes(MAX_PAYLOAD_SIZE)
    assert decoded(encode_message(MAGIC, "block", payload), [65_536] * 61) == [Frame("block", payload)]


def test_a_command_has_its_own_limit() -> None:
    limits = {"ping": 8}
    assert decoded(encode_message(MAGIC, "ping", bytes(8)), [], limits) == [Frame("ping", bytes(8))]
    refused = ("length", "'ping' must be at most 8 bytes long, not 9")
    assert decoded(envelope(b"ping", 9, bytes(4)), [], limits) == [refused]
    whole = GOOD + encode_message(MAGIC, "ping", bytes(9))  # it is sound but for its length
    assert decoded(whole, [], limits) == [Frame("inv", b"\x00"), refused]
    assert decoded(encode_message(MAGIC, "pong", bytes(9)), [], limits) == [Frame("pong", bytes(9))]


def test_a_claimed_length_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        decoders = [Decoder(MAGIC) for _ in range(100)]
        for decoder in decoders:
            decoder.feed(envelope(b"block", MAX_PAYLOAD_SIZE, bytes(4)) + bytes(1_000))
            assert decoder.next_frame() is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_memory_is_released() -> None:
    decoder = Decoder(MAGIC)
    message = encode_message(MAGIC, "block", bytes(MAX_PAYLOAD_SIZE))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(5):
            decoder.feed(message)
            assert decoder.next_frame() is not None
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000
    assert peak - before < 3 * len(message)


@pytest.mark.parametrize("cut", ["one message in small pieces", "many messages in one piece"])
def test_work_is_linear_in_the_bytes(cut: str) -> None:
    def prepare(size: int) -> Callable[[], object]:
        if cut == "one message in small pieces":
            stream, step = encode_message(MAGIC, "block", bytes(size)), 32
        else:
            stream, step = encode_message(MAGIC, "verack", b"") * (size // 24), size
        decoder = Decoder(MAGIC)

        def decode() -> None:
            for at in range(0, len(stream), step):
                decoder.feed(stream[at : at + step])
                while decoder.next_frame() is not None:
                    pass

        return decode

    assert growth(prepare, (100_000, 1_000_000)) < LIMIT


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_like_piece_is_accepted_and_may_change(kind: Any) -> None:
    piece = bytearray(GOOD)
    decoder = Decoder(MAGIC)
    decoder.feed(kind(piece[:10]))
    held = memoryview(piece)[10:] if kind is memoryview else kind(piece[10:])
    decoder.feed(held)
    piece[:] = bytes(len(piece))
    assert decoder.next_frame() == ("inv", b"\x00")

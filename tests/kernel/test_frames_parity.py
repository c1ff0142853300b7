"""The sound messages at the start of a stream, on both kernels: their contents, and where they end."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import FormatError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel.pure.frames import joined_frames as joined_of_reference, sound_frames as of_reference
from spvfilter.protocol import MAX_PAYLOAD_SIZE
from spvfilter.wire.codec import encode_message
from spvfilter.wire.messages.filters import CFilter
from support.kernels.kernelentries import Kernel, native, reference

pytestmark = pytest.mark.native
MAGIC = b"\xfa\xbf\xb5\xda"
TWO = encode_message(MAGIC, "ping", bytes(8)) + encode_message(MAGIC, "verack", b"")


def envelope(name: bytes, payload: bytes, *, magic: bytes = MAGIC, size: int | None = None) -> bytes:
    length = len(payload) if size is None else size
    return magic + name + length.to_bytes(4, "little") + sha256d(payload)[:4] + payload


@pytest.fixture(params=["native", "pure"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return native() if request.param == "native" else reference()


def test_every_sound_message_is_returned_with_the_total_size(kernel: Kernel) -> None:
    large = bytes(range(256)) * 1_000
    stream = TWO + encode_message(MAGIC, "twelve_bytes", large)
    assert kernel.sound_frames(stream, MAGIC) == (
        [("ping", bytes(8)), ("verack", b""), ("twelve_bytes", large)],
        len(stream),
    )


@pytest.mark.parametrize("left", range(len(TWO)))
def test_an_incomplete_message_ends_the_result(kernel: Kernel, left: int) -> None:
    frames, size = kernel.sound_frames(TWO[:left], MAGIC)
    assert (len(frames), size) == ((1, 32) if left >= 32 else (0, 0))


@pytest.mark.parametrize(
    "unsound",
    [
        envelope(b"ping".ljust(12, b"\0"), bytes(8), magic=b"\xf9\xbe\xb4\xd9"),
        envelope(bytes(12), b""),
        envelope(b"pi\0g".ljust(12, b"\0"), b""),
        envelope(b"ping\x7f".ljust(12, b"\0"), b""),
        envelope(b"ping\x1f".ljust(12, b"\0"), b""),
        envelope(b"p\xefng".ljust(12, b"\0"), b""),
        envelope(b"block".ljust(12, b"\0"), bytes(MAX_PAYLOAD_SIZE + 1)),
        envelope(b"ping".ljust(12, b"\0"), b"", size=0xFFFFFFFF),
        TWO[:31] + b"\1",
        TWO[:20] + bytes(4) + TWO[24:32],
    ],
    ids=["magic", "no name", "NUL", "delete", "control", "not ASCII", "long", "longest", "payload", "checksum"],
)
def test_an_unsound_message_ends_the_result(kernel: Kernel, unsound: bytes) -> None:
    assert kernel.sound_frames(unsound, MAGIC) == ([], 0)
    assert kernel.sound_frames(TWO + unsound + TWO, MAGIC) == ([("ping", bytes(8)), ("verack", b"")], len(TWO))


def test_the_longest_payload_is_sound(kernel: Kernel) -> None:
    stream = envelope(b"block".ljust(12, b"\0"), bytes(MAX_PAYLOAD_SIZE))
    ((command, payload),), size = kernel.sound_frames(stream, MAGIC)
    assert (command, len(payload), size) == ("block", MAX_PAYLOAD_SIZE, len(stream))


@pytest.mark.parametrize("magic", [b"", MAGIC[:3], MAGIC + b"\0"])
def test_a_magic_of_another_size_is_refused(kernel: Kernel, magic: bytes) -> None:
    for frames in (kernel.sound_frames, kernel.joined_frames):
        with pytest.raises(ParameterError, match=f"a network's magic must be 4 bytes long, not {len(magic)}"):
            frames(TWO, magic)


@given(st.lists(st.tuples(st.text("abc~ ", min_size=1, max_size=12), st.binary(max_size=90)), max_size=5), st.data())
def test_both_kernels_agree_on_damaged_streams(messages: list[tuple[str, bytes]], data: st.DataObject) -> None:
    stream = bytearray(b"".join(encode_message(MAGIC, command, payload) for command, payload in messages))
    if stream and data.draw(st.booleans()):
        stream[data.draw(st.integers(0, len(stream) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    expected = of_reference(bytes(stream), MAGIC)
    assert native().sound_frames(bytes(stream), MAGIC) == expected
    # commands have no checksum
    assert [payload for _, payload in expected[0]] == [payload for _, payload in messages][: len(expected[0])]


def cfilter(number: int, data: bytes, *, kind: int = 0) -> bytes:
    return encode_message(MAGIC, "cfilter", bytes(CFilter(kind, bytes([number]) * 32, data)))


def test_successive_filters_are_joined(kernel: Kernel) -> None:
    data = [b"", b"\1", bytes(0xFC), bytes(0xFD), bytes(70_000)]
    run = [cfilter(number, each) for number, each in enumerate(data)]
    pairs = [(bytes([number]) * 32, each) for number, each in enumerate(data)]
    items, size = kernel.joined_frames(b"".join(run) + TWO + run[3] + run[1][:-1], MAGIC)
    assert items == [(pairs, sum(map(len, run))), ("ping", bytes(8)), ("verack", b""), (pairs[3:4], len(run[3]))]
    assert size == sum(map(len, run)) + len(TWO) + len(run[3])
    other = cfilter(1, b"\0", kind=1)
    assert kernel.joined_frames(run[0] + other + run[1], MAGIC)[0] == [
        (pairs[:1], len(run[0])),
        ("cfilter", other[24:]),
        (pairs[1:2], len(run[1])),
    ]
    assert kernel.joined_frames(b"", MAGIC) == ([], 0)
    assert kernel.joined_frames(encode_message(MAGIC, "cfilters", run[0][24:]), MAGIC)[0] == [("cfilters", run[0][24:])]


@pytest.mark.parametrize("size", [*range(4), 20, 251, 252, 253, 254, 300, 65_535, 65_536])
def test_a_joined_filter_equals_its_parsed_message(kernel: Kernel, size: int) -> None:
    """The parser of messages handles every malformed cfilter."""
    whole = bytes(CFilter(0, bytes(range(32)), bytes(range(256)) * (size // 256) + bytes(range(size % 256))))
    broken = [whole[:cut] for cut in (0, 1, 32, 33, 34, len(whole) - 1)] + [whole + b"\0", b"\1" + whole[1:]]
    # a longer form of the length than needed
    wide = [whole[:33] + b"\xfd" + size.to_bytes(2, "little") + whole[-size:]] if 0 < size < 253 else []
    for payload in [whole, *broken, *wide]:
        try:
            message = CFilter.parse(payload)
        except FormatError:
            message = None
        is_joined = message is not None and not message.filter_type
        stream = encode_message(MAGIC, "cfilter", payload)
        expected = (
            ([(message.block_hash, message.data)], len(stream)) if is_joined and message else ("cfilter", payload)
        )
        assert kernel.joined_frames(stream, MAGIC) == ([expected], len(stream))


@given(
    st.lists(
        st.tuples(st.sampled_from(["cfilter", "inv"]), st.integers(0, 1), st.binary(max_size=300), st.integers(-1, 1)),
        max_size=6,
    ),
    st.data(),
)
def test_both_kernels_join_the_same_filters(messages: list[tuple[str, int, bytes, int]], data: st.DataObject) -> None:
    """The joined messages are the sound ones, and the joined filters are those of the messages."""
    stream = bytearray()
    for command, kind, filter, cut in messages:
        payload = bytes(CFilter(kind, bytes(32), filter))
        stream += encode_message(MAGIC, command, payload[:-1] if cut < 0 else payload + bytes(cut))
    if stream and data.draw(st.booleans()):
        stream[data.draw(st.integers(0, len(stream) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    items, size = joined_of_reference(bytes(stream), MAGIC)
    assert native().joined_frames(bytes(stream), MAGIC) == (items, size)
    frames, sound_size = of_reference(bytes(stream), MAGIC)
    assert size == sound_size
    assert sum(len(first) if isinstance(first, list) else 1 for first, _ in items) == len(frames)
    assert sum(second if isinstance(second, int) else 24 + len(second) for _, second in items) == size


def test_filter_hashes_are_those_of_each_filter(kernel: Kernel) -> None:
    filters = [b"", b"a", bytes(55), bytes(56), bytes(64), bytes(80_000)]
    assert kernel.filter_hashes(filters) == b"".join(map(sha256d, filters))
    assert kernel.filter_hashes(bytearray(each) for each in filters) == b"".join(map(sha256d, filters))
    assert kernel.filter_hashes([]) == b""

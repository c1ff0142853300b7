"""The sound messages at the head of a stream, on both kernels: which they are, and where they end."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel.pure.frames import sound_frames as of_reference
from spvfilter.protocol import MAX_PAYLOAD_SIZE
from spvfilter.wire.codec import encode_message
from support.kernelentries import Kernel, native, reference

pytestmark = pytest.mark.native
MAGIC = b"\xfa\xbf\xb5\xda"
TWO = encode_message(MAGIC, "ping", bytes(8)) + encode_message(MAGIC, "verack", b"")


def envelope(name: bytes, payload: bytes, *, magic: bytes = MAGIC, size: int | None = None) -> bytes:
    length = len(payload) if size is None else size
    return magic + name + length.to_bytes(4, "little") + sha256d(payload)[:4] + payload


@pytest.fixture(params=["native", "pure"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return native() if request.param == "native" else reference()


def test_every_sound_message_is_given_with_the_bytes_of_all(kernel: Kernel) -> None:
    large = bytes(range(256)) * 1_000
    stream = TWO + encode_message(MAGIC, "twelve_bytes", large)
    assert kernel.sound_frames(stream, MAGIC) == ([("ping", bytes(8)), ("verack", b""), ("twelve_bytes", large)], len(stream))


@pytest.mark.parametrize("left", range(len(TWO)))
def test_it_ends_before_a_message_that_is_incomplete(kernel: Kernel, left: int) -> None:
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
def test_it_ends_before_a_message_that_is_unsound(kernel: Kernel, unsound: bytes) -> None:
    assert kernel.sound_frames(unsound, MAGIC) == ([], 0)
    assert kernel.sound_frames(TWO + unsound + TWO, MAGIC) == ([("ping", bytes(8)), ("verack", b"")], len(TWO))


def test_the_longest_payload_is_sound(kernel: Kernel) -> None:
    stream = envelope(b"block".ljust(12, b"\0"), bytes(MAX_PAYLOAD_SIZE))
    ((command, payload),), size = kernel.sound_frames(stream, MAGIC)
    assert (command, len(payload), size) == ("block", MAX_PAYLOAD_SIZE, len(stream))


@pytest.mark.parametrize("magic", [b"", MAGIC[:3], MAGIC + b"\0"])
def test_a_magic_of_another_size_is_refused(kernel: Kernel, magic: bytes) -> None:
    with pytest.raises(ParameterError, match=f"a network's magic has 4 bytes, not {len(magic)}"):
        kernel.sound_frames(TWO, magic)


@given(st.lists(st.tuples(st.text("abc~ ", min_size=1, max_size=12), st.binary(max_size=90)), max_size=5), st.data())
def test_both_kernels_agree_on_damaged_streams(messages: list[tuple[str, bytes]], data: st.DataObject) -> None:
    stream = bytearray(b"".join(encode_message(MAGIC, command, payload) for command, payload in messages))
    if stream and data.draw(st.booleans()):
        stream[data.draw(st.integers(0, len(stream) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    expected = of_reference(bytes(stream), MAGIC)
    assert native().sound_frames(bytes(stream), MAGIC) == expected
    assert [payload for _, payload in expected[0]] == [payload for _, payload in messages][: len(expected[0])]  # commands have no checksum

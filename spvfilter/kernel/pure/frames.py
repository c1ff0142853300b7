"""Framing of P2P messages: the sound messages at the head of a stream. The readable reference."""

from __future__ import annotations

from spvfilter.errors import ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel.pure.arguments import snapshot
from spvfilter.protocol import COMMAND_SIZE, ENVELOPE_SIZE, MAX_PAYLOAD_SIZE


def sound_frames(stream: bytes, magic: bytes, /) -> tuple[list[tuple[str, bytes]], int]:
    """The sound messages at the head of a stream, each its command and payload, and how many bytes they have with their envelopes.

    It ends before the first message that is incomplete or unsound: of another magic, with a payload above 4,000,000 bytes, a command other
    than 1 to 12 printable ASCII characters padded with NULs, or a wrong checksum (the first 4 bytes of sha256d(payload)).

    Raises ParameterError unless the magic has 4 bytes.
    """
    stream, magic = snapshot(stream), snapshot(magic)
    if len(magic) != 4:
        raise ParameterError(f"a network's magic has 4 bytes, not {len(magic)}")
    frames: list[tuple[str, bytes]] = []
    at = 0
    while len(stream) - at >= ENVELOPE_SIZE and stream.startswith(magic, at):
        command = _command(stream[at + 4 : at + 4 + COMMAND_SIZE])
        size = int.from_bytes(stream[at + 16 : at + 20], "little")
        start = at + ENVELOPE_SIZE
        if command is None or size > MAX_PAYLOAD_SIZE or size > len(stream) - start:
            break
        payload = stream[start : start + size]
        if sha256d(payload)[:4] != stream[at + 20 : start]:
            break
        frames.append((command, payload))
        at = start + size
    return frames, at


def _command(name: bytes) -> str | None:
    """The command in its 12 bytes, or None for one that no message has (Core CMessageHeader::IsMessageTypeValid)."""
    text = name.rstrip(b"\0")
    return text.decode("ascii") if text and all(0x20 <= byte < 0x7F for byte in text) else None

"""Framing of P2P messages: the valid messages at the start of a stream, and the filters in them.

This is the readable reference.
"""

from __future__ import annotations

from typing import TypeAlias

from spvfilter.errors import FormatError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel.pure.arguments import snapshot
from spvfilter.primitives import read_compact_size
from spvfilter.protocol import BASIC_FILTER_TYPE, COMMAND_SIZE, ENVELOPE_SIZE, HASH_SIZE, MAX_PAYLOAD_SIZE

Filters: TypeAlias = list[tuple[bytes, bytes]]  # Pairs of block hash and filter.


def sound_frames(stream: bytes, magic: bytes, /) -> tuple[list[tuple[str, bytes]], int]:
    """Return the valid messages at the start of a stream, and the number of bytes that they take.

    Reading stops before the first message that is incomplete or invalid. A message is invalid if it has

    - a different magic,
    - a payload of more than 4,000,000 bytes,
    - a command other than 1 to 12 printable ASCII characters padded with NULs,
    - a wrong checksum (the first 4 bytes of sha256d(payload)).

    Returns:
        The command and the payload of each message, and the number of bytes of these messages with their envelopes.

    Raises:
        ParameterError: The magic is not 4 bytes long.
    """
    stream, magic = snapshot(stream), snapshot(magic)
    if len(magic) != 4:
        raise ParameterError(f"a network's magic must be 4 bytes long, not {len(magic)}")
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


def joined_frames(stream: bytes, magic: bytes, /) -> tuple[list[tuple[str, bytes] | tuple[Filters, int]], int]:
    """Like `sound_frames`, but return successive cfilter messages with basic filters as one item.

    The item is a pair: a list with the block hash and the filter of each message, and the total size of these messages
    in bytes.

    A cfilter message is an item of its own if its filter type differs or its payload is malformed (BIP-157 § cfilter).

    Raises ParameterError unless the magic is 4 bytes long.
    """
    frames, end = sound_frames(stream, magic)
    items: list[tuple[str, bytes] | tuple[Filters, int]] = []
    run: Filters = []
    size = 0
    for command, payload in frames:
        found = _basic_filter(payload) if command == "cfilter" else None
        if found is not None:
            run.append(found)
            size += ENVELOPE_SIZE + len(payload)
            continue
        if run:
            items.append((run, size))
            run, size = [], 0
        items.append((command, payload))
    if run:
        items.append((run, size))
    return items, end


def _basic_filter(payload: bytes) -> tuple[bytes, bytes] | None:
    """Return the block hash and the filter of a cfilter payload, or None if it is not a well-formed basic filter.

    The payload is type (u8), block hash, length (CompactSize) and filter (BIP-157).
    """
    head = 1 + HASH_SIZE
    if len(payload) <= head or payload[0] != BASIC_FILTER_TYPE:
        return None
    try:
        size, start = read_compact_size(payload, head, "filter length")
    except FormatError:
        return None
    return (payload[1:head], payload[start:]) if start + size == len(payload) else None


def _command(name: bytes) -> str | None:
    """Return the command in a 12-byte field, or None if it is not valid (Core CMessageHeader::IsMessageTypeValid)."""
    text = name.rstrip(b"\0")
    return text.decode("ascii") if text and all(0x20 <= byte < 0x7F for byte in text) else None
